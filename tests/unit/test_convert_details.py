"""convert: DataTypes, descriptors, tags, ids, fills."""

from __future__ import annotations

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict
from fusion_engine.schema import slot_facts
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.converted import types
from tests.support.nets import Net


def test_aliases() -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 2), quantization_scale=1.0)
    key = net.addition(x, net.constant([[1, 2]], quantization_scale=1.0))
    net.graph.nodes[key]["overrides"] = FrozenDict({1: (False, TensorInfo((1, 2), "QSymmS16"))})  # type: ignore[dict-item]
    net.output(key)
    old = fe.convert(net.graph, "19.11")
    assert {node["outputs"][0].data_type for node in old.nodes.values() if node["outputs"]} == {"QuantisedAsymm8"}
    assert old.nodes[1]["constants"]["input"].info.data_type == "QuantisedAsymm8"
    assert old.nodes[1]["constants"]["input"].memory == net.graph.nodes[1]["constants"]["input"].memory
    assert old.nodes[key]["overrides"][1][1].data_type == "QuantisedSymm16"
    assert fe.convert(old, "20.02").nodes[x]["outputs"][0].data_type == "QuantisedAsymm8"
    wide = Net(data_type="QSymmS16")
    wide.output(wide.activation(wide.input((1, 2), quantization_scale=1.0)))
    assert fe.convert(wide.graph, "19.05").nodes[0]["outputs"][0].data_type == "QuantisedSymm16"
    with pytest.raises(fe.ConversionError, match="the DataType QSymmS16"):
        fe.convert(wide.graph, "19.02")


def test_gather_descriptors() -> None:
    net = Net(feature_versions=(1, 0, 0))
    key = net.layer("Gather", net.input((3, 2)), net.constant([1], "Signed32"), outputs=[(1, 2)], params={"axis": 0})
    net.output(key)
    old = fe.convert(net.graph, "20.05")
    assert old.nodes[key]["params"] is None
    assert fe.convert(old, "20.08").nodes[key]["params"] == {"axis": 0}
    net.graph.nodes[key]["params"] = FrozenDict(axis=1)
    with pytest.raises(fe.ConversionError, match=r"axis 1 in a GatherDescriptor \(possible since 20\.08\)"):
        fe.convert(net.graph, "20.05")


@pytest.mark.parametrize("data_type", ["QAsymmS8", "Float16"])
def test_untagged_constants(data_type: str) -> None:
    net = Net()
    info = TensorInfo((2,), data_type)
    tensor = Tensor(info, np.zeros(2, info.dtype), untagged=True)
    net.output(net.layer("Constant", outputs=[info], constants={"input": tensor}, name="c"))
    found = fe.convert(net.graph, "20.08")
    assert not found.nodes[0]["constants"]["input"].untagged
    assert found.nodes[0]["constants"]["input"].memory == tensor.memory
    warned = [warning for warning in found.graph.get("warnings", ()) if "BFloat16" in warning]
    assert warned == (
        []
        if data_type == "QAsymmS8"
        else ["layer 0 'c': its Float16 had no payload type, as Arm NN 20.08 writes BFloat16; it is written as Float16"]
    )


@pytest.mark.parametrize(("release", "stored"), [("19.11", [0]), ("20.02", [7])])
def test_ids(release: str, stored: list[int]) -> None:
    net = Net()
    net.output(net.activation(net.input((1, 2), binding_id=7)), binding_id=-3)
    data = fe.dumps(net.graph, release=release)
    again = fe.loads(data)
    assert again.graph["feature_versions"][0] == (1 if release == "20.02" else 0)
    assert [again.nodes[key]["binding_id"] for key in again.graph["inputs"]] == [7]
    assert [again.nodes[key]["binding_id"] for key in again.graph["outputs"]] == [-3]
    from fusion_engine.armnn.decode import Decoder
    from fusion_engine.schema import schema

    decoder = Decoder(data, schema())
    assert list(decoder.table("SerializedGraph", decoder.root())["inputIds"]) == stored


def test_lstm_tensor_that_nothing_uses() -> None:
    held = [*slot_facts()["Lstm"]["tensors"], *slot_facts()["Lstm"]["tensors_if"][0]["tensors"]]
    net = Net()
    x = net.input((1, 2))
    tensors = {name: Tensor.of([1.0, 2.0]) for name in held}
    params = {"cifgEnabled": False}
    key = net.layer("Lstm", x, x, x, outputs=[TensorInfo((1, 2))] * 4, params=params, constants=tensors)
    net.output(key)
    found = fe.convert(net.graph, "23.08").nodes[key]["constants"]["cellToInputWeights"]
    assert found.data.tolist() == [0.0, 0.0]
    net.graph.nodes[key]["params"] = FrozenDict(cifgEnabled=False, peepholeEnabled=True)
    with pytest.raises(fe.ConversionError, match="without cellToInputWeights"):
        fe.convert(net.graph, "23.08")


@pytest.mark.parametrize(("release", "expected"), [("20.08", "Constant"), ("22.02", "Fill")])
def test_fills(release: str, expected: str) -> None:
    net = Net()
    key = net.layer("Fill", net.constant([1, 2], "Signed32"), outputs=[TensorInfo((1, 2))], params={"value": 2.5})
    net.output(key)
    found = fe.convert(net.graph, release)
    assert found.nodes[key]["type"] == expected
    assert types(found) == (["Constant", "Fill", "Output"] if expected == "Fill" else ["Constant", "Output"])
    if expected == "Constant":
        assert found.nodes[key]["constants"]["input"].data.tolist() == [[2.5, 2.5]]


@pytest.mark.parametrize("value", [65520.0, 1e6, -1e6])
def test_a_fill_that_overflows_is_refused(value: float) -> None:
    net = Net()
    shape = net.constant([1, 2], "Signed32")
    key = net.layer("Fill", shape, outputs=[TensorInfo((1, 2), "Float16")], params={"value": value}, name="f")
    net.output(key)
    with pytest.raises(fe.ConversionError, match="beyond what its DataType holds") as caught:
        fe.convert(net.graph, "20.08")
    assert {obstacle.layers for obstacle in caught.value.obstacles} == {(key,)}
    assert fe.convert(net.graph, "22.02").nodes[key]["type"] == "Fill"


def test_infinite_fills_are_no_overflow() -> None:
    net = Net()
    shape = net.constant([1, 2], "Signed32")
    key = net.layer("Fill", shape, outputs=[TensorInfo((1, 2), "Float16")], params={"value": float("-inf")})
    net.output(key)
    assert np.isneginf(fe.convert(net.graph, "20.08").nodes[key]["constants"]["input"].data).all()


def test_a_fill_with_ones_stays() -> None:
    net = Net()
    key = net.layer("Fill", net.constant([1, 2], "Signed32"), outputs=[TensorInfo((1, 2))], params={"value": 1.0})
    net.output(key)
    assert fe.convert(net.graph, "20.08").nodes[key]["type"] == "Fill"
