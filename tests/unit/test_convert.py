"""convert: refusals, what stays as it is, files."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict, Network
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.converted import chain, member_conv
from tests.support.nets import Net, shuffled
from tests.support.opaques import fuse_layers


def test_the_network_given_stays_as_it_is() -> None:
    net, layers = chain()
    fused = fuse_layers(net.graph, layers, "Block")
    before, attributes = fe.dumps(fused), dict(fused.graph)
    fe.convert(fused, "23.08")
    assert fe.dumps(fused) == before
    assert fused.graph == attributes


def test_records_of_fusing_stay() -> None:
    fused = fe.fuse(member_conv().graph, fe.FusingRule("Convolution2d", into="Block"))
    assert fe.convert(fused, "23.08").graph["fusions"] == fused.graph["fusions"] != ()


def test_shuffling_changes_no_byte() -> None:
    net, _ = chain()
    expected = fe.dumps(net.graph, release="23.08")
    for seed in range(5):
        assert fe.dumps(shuffled(net.graph, seed), release="23.08") == expected


def test_own_release_changes_nothing() -> None:
    net, layers = chain()
    for graph in (net.graph, fuse_layers(net.graph, layers, "Block")):
        assert fe.dumps(graph, release="20.08") == fe.dumps(graph)


def test_old_dialects() -> None:
    net = Net("seed", spelling="old")
    x = net.input((1, 2))
    net.output(net.addition(x, x))
    new = fe.convert(net.graph, "24.08")
    assert new.graph["dialect"] == "current"
    assert fe.dumps(fe.convert(new, "seed")) == fe.dumps(net.graph)
    old = Net("19.02")
    old.output(old.layer("Activation", old.input((1, 2)), params={"function": "ReLu", "a": 1.0}))
    assert fe.convert(old.graph, "20.08").nodes[1]["params"] == {"activationFunction": "ReLu", "a": 1.0}
    assert fe.convert(fe.convert(old.graph, "20.08"), "19.05").nodes[1]["params"] == {"function": "ReLu", "a": 1.0}


@pytest.mark.parametrize(("release", "stays"), [("19.05", False), ("19.08", True), ("20.08", True)])
def test_what_old_dialects_have_no_place_for(release: str, stays: bool) -> None:
    net = Net()
    info = TensorInfo((1, 2), dimension_specificity=(True, True), is_constant=True)
    key = net.addition(net.input((1, 2)), net.constant(Tensor(info, np.zeros((1, 2), "<f4"))))
    net.output(key)
    net.graph.nodes[key]["overrides"] = FrozenDict({1: (False, info)})  # type: ignore[dict-item]
    found = fe.loads(fe.dumps(net.graph, release=release))
    constant = next(node for node in found.nodes.values() if node["type"] == "Constant")
    for held in (constant["outputs"][0], constant["constants"]["input"].info):
        assert held == (info if stays else TensorInfo((1, 2)))
    assert any("overrides" in node for node in found.nodes.values()) is stays


def test_warnings_of_the_target() -> None:
    net = Net()
    x = net.input((1, 2))
    net.output(net.activation(x))
    net.output(net.activation(x, "TanH"))
    assert fe.convert(net.graph, "20.08").graph["warnings"][0].startswith("Arm NN 20.08: its reader takes")
    assert "warnings" not in fe.convert(net.graph, "23.08").graph


def test_everything_is_told_at_once(tmp_path: Any) -> None:
    net = Net(data_type="QAsymmS8")
    x = net.input((1, 2), quantization_scale=1.0)
    net.output(net.layer("Tile", x, params={"m_Multiples": (1, 1)}, name="tile"))
    net.output(net.activation(x, "Gelu", name="gelu"))
    with pytest.raises(fe.ConversionError) as caught:
        fe.save(net.graph, tmp_path / "x.armnn", release="20.02")
    assert [(o.reason, o.since) for o in caught.value.obstacles] == [
        ("the DataType QAsymmS8", "20.05"),
        ("Tile: there is no such layer", "23.08"),
        ("the ActivationFunction Gelu", "23.11"),
    ]
    assert str(caught.value).startswith(f"{tmp_path / 'x.armnn'}: Arm NN 20.02 cannot hold it: the DataType QAsymmS8")
    assert list(tmp_path.iterdir()) == []


def test_many_obstacles_make_a_short_message() -> None:
    net = Net()
    x = net.input((1, 2))
    for number in range(40):
        net.output(net.layer("Softmax", x, params={"beta": 1.0, "axis": number}))
    with pytest.raises(fe.ConversionError) as caught:
        fe.convert(net.graph, "20.08")
    assert len(caught.value.obstacles) == 40
    assert str(caught.value).endswith("; and 28 more")


def test_save_for_a_release(tmp_path: Any) -> None:
    graph = member_conv().graph
    fe.save(graph, tmp_path / "new.armnn", release="23.08")
    assert fe.equal(fe.load(tmp_path / "new.armnn"), fe.convert(graph, "23.08"))
    assert fe.dumps(graph, release="22.05.01") == fe.dumps(graph, release="22.05")


def test_what_cannot_be_converted() -> None:
    graph = member_conv().graph
    with pytest.raises(fe.ConversionError, match=r"there is no release '23\.8' of Arm NN \(did you mean '23\.08'"):
        fe.convert(graph, "23.8")
    with pytest.raises(fe.ConversionError, match="there is no release"):
        fe.dumps(graph, release="")
    with pytest.raises(fe.FuseError, match=r"a network is a networkx\.DiGraph, not dict"):
        fe.convert({}, "20.08")  # type: ignore[arg-type]
    broken: Network = nx.DiGraph()
    broken.add_node(1)
    with pytest.raises(fe.ModelError, match="cannot be converted"):
        fe.convert(broken, "20.08")
