"""convert: weights as members and as Constants, depthwise layouts, weights that are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict, edges_into
from fusion_engine.releases.passes.weights import to_1hwo, to_mihw
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.converted import fed, member_conv, named, types
from tests.support.nets import Net

# Weights: members and Constants


@pytest.mark.parametrize("bias", [True, False])
def test_members_become_constants(bias: bool) -> None:
    graph = member_conv(bias).graph
    found = fe.convert(graph, "23.08")
    conv = named(found, "conv")
    assert fed(found, conv) == {0: "Input", 1: "Constant"} | ({2: "Constant"} if bias else {})
    assert found.nodes[conv]["constants"] == {}
    weights = found.nodes[named(found, "conv/weights")]
    assert weights["constants"]["input"] is graph.nodes[conv]["constants"]["weights"]
    assert weights["outputs"] == (weights["constants"]["input"].info,)
    assert [name for name in (node["name"] for node in found.nodes.values()) if "biases" in name] == (
        ["conv/biases"] if bias else []
    )
    assert found.graph["feature_versions"] == (1, 1, 1)
    assert fe.validate(found) == ()
    assert fe.equal(fe.convert(found, "20.08"), graph)


def test_constants_become_members() -> None:
    net = Net()
    x = net.input((1, 2, 2, 1))
    weights = net.constant(np.ones((3, 1, 1, 1)), name="w")
    bias = net.constant([1, 2, 3], name="b")
    net.output(net.conv(x, weights, bias, name="conv"))
    net.output(bias, name="bias, too")
    found = fe.convert(net.graph, "20.08")
    conv = named(found, "conv")
    assert fed(found, conv) == {0: "Input"}
    held = found.nodes[conv]["constants"]
    assert held["weights"] is net.graph.nodes[weights]["constants"]["input"]
    assert held["biases"] is net.graph.nodes[bias]["constants"]["input"]
    assert weights not in found
    assert fed(found, named(found, "bias, too")) == {0: "Constant"}
    assert found.graph["feature_versions"] == (1, 0, 0)


@pytest.mark.parametrize(
    ("release", "fully_connected", "convolution"),
    [
        ("21.05", "members", "members"),
        ("21.08", "inputs", "members"),
        ("22.02", "inputs", "members"),
        ("22.05", "inputs", "inputs"),
    ],
)
@pytest.mark.parametrize("form", ["member", "constant"])
def test_forms_change_per_layer_type(form: str, release: str, fully_connected: str, convolution: str) -> None:
    net = Net(form=form, feature_versions=(1, 0, 0) if form == "member" else (1, 1, 1))
    conv = net.conv(net.input((1, 2, 2, 1)), np.ones((1, 1, 1, 1)), [0.0])
    full = net.fully_connected(net.input((1, 2)), np.ones((2, 2)), [0.0, 0.0])
    net.output(conv)
    net.output(full)
    found = fe.convert(net.graph, release)
    for key, expected in ((conv, convolution), (full, fully_connected)):
        assert len(fed(found, key)) == (3 if expected == "inputs" else 1)
        assert sorted(found.nodes[key]["constants"]) == ([] if expected == "inputs" else ["biases", "weights"])


def test_members_are_constant_whatever_the_descriptor_says() -> None:
    net = Net()
    key = net.fully_connected(net.input((1, 2)), np.ones((2, 2)), constantWeights=False)
    net.output(key)
    assert fe.convert(net.graph, "20.08").nodes[key]["params"]["constantWeights"] is True
    assert fe.convert(net.graph, "23.08").nodes[key]["params"]["constantWeights"] is False


def test_transposed_convolutions_keep_members_always() -> None:
    net = Net(form="member", feature_versions=(1, 0, 0))
    key = net.transpose_conv(net.input((1, 2, 2, 1)), np.ones((1, 1, 1, 1)), [0.0])
    net.output(key)
    for release in ("19.08", "24.08"):
        assert sorted(fe.convert(net.graph, release).nodes[key]["constants"]) == ["biases", "weights"]


def test_shared_tensors_stay_shared() -> None:
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 2, 2, 1))
    weights = Tensor.of(np.ones((1, 1, 1, 1)))
    for name in ("a", "b"):
        net.output(net.depthwise(x, weights, name=name))
    new = fe.convert(net.graph, "23.08")
    assert types(new).count("Constant") == 1
    assert new.out_degree(named(new, "a/weights")) == 2
    old = fe.convert(new, "20.08")
    first, second = (old.nodes[named(old, name)]["constants"]["weights"] for name in ("a", "b"))
    assert first.memory == second.memory
    assert fe.equal(old, net.graph)


def test_names_of_constants_are_unique() -> None:
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 2, 2, 1), name="conv/weights")
    for name in ("conv", "conv", ""):
        net.output(net.conv(x, np.ones((1, 1, 1, 1)), name=name), name=f"out of {name}")
    found = fe.convert(net.graph, "23.08")
    constants = {node["name"] for node in found.nodes.values() if node["type"] == "Constant"}
    assert constants == {"conv/weights#2", "conv/weights#3", "Convolution2d/weights"}


def test_overrides_follow_the_weights() -> None:
    net = Net()
    x = net.input((1, 2, 2, 1))
    conv = net.conv(x, np.ones((1, 1, 1, 1)), name="conv")
    net.output(conv)
    infos: dict[Any, Any] = {slot: (False, net.info(s.layer)) for slot, s in edges_into(net.graph, conv)}
    net.graph.nodes[conv]["overrides"] = FrozenDict(infos)
    old = fe.convert(net.graph, "20.08")
    assert list(old.nodes[conv]["overrides"]) == [0]
    assert fe.validate(old) == ()
    assert fe.convert(old, "23.08").nodes[conv]["overrides"] == infos


# Depthwise layouts


def test_depthwise_layouts() -> None:
    """[M,I,H,W] with M = 2, I = 3, H = 1, W = 2: element m*100 + i*10 + w."""
    values = np.array([[[[m * 100 + i * 10 + w for w in range(2)]] for i in range(3)] for m in range(2)])
    turned = to_1hwo(Tensor.of(values))
    assert turned is not None
    assert turned.info.shape == (1, 1, 2, 6)
    assert turned.data[0, 0, 0].tolist() == [0, 100, 10, 110, 20, 120]
    assert turned.data[0, 0, 1].tolist() == [1, 101, 11, 111, 21, 121]
    again = to_mihw(turned, 3)
    assert again is not None
    assert again.info == Tensor.of(values).info
    np.testing.assert_array_equal(again.data, values)


@pytest.mark.parametrize(
    ("scales", "axis", "expected"),
    [
        ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), 0, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),
        ((1.0, 2.0), 0, (1.0, 2.0, 1.0, 2.0, 1.0, 2.0)),
        ((1.0, 2.0, 3.0), 1, (1.0, 1.0, 2.0, 2.0, 3.0, 3.0)),
        ((), 0, ()),
    ],
    ids=["per output channel", "per multiplier", "per input channel", "per tensor"],
)
def test_scales_of_depthwise_weights(scales: tuple[float, ...], axis: int, expected: tuple[float, ...]) -> None:
    info = TensorInfo((2, 3, 1, 1), "QSymmS8", 0.25, quantization_scales=scales, quantization_dim=axis)
    turned = to_1hwo(Tensor(info, np.arange(6, dtype="i1").reshape(info.shape)))
    assert turned is not None
    assert turned.info.quantization_scales == expected
    assert turned.info.quantization_dim == (3 if scales else 0)
    assert turned.info.quantization_scale == 0.25


def test_scales_that_fit_no_axis() -> None:
    info = TensorInfo((2, 3, 1, 1), "QSymmS8", quantization_scales=(1.0,) * 5)
    assert to_1hwo(Tensor(info, np.zeros(info.shape, "i1"))) is None
    info = TensorInfo((1, 1, 1, 6), "QSymmS8", quantization_scales=(1.0,) * 5, quantization_dim=3)
    assert to_mihw(Tensor(info, np.zeros(info.shape, "i1")), 3) is None


def test_channels_that_do_not_fit() -> None:
    weights = Tensor.of(np.zeros((1, 1, 1, 6)))
    assert to_mihw(weights, 4) is None
    assert to_mihw(weights, 0) is None
    net = Net()
    net.output(net.depthwise(net.input((1, 2, 2, 4)), weights, name="dw", output=TensorInfo((1, 2, 2, 6))))
    with pytest.raises(fe.ConversionError, match="do not fit the input's channels: layer 2 'dw'"):
        fe.convert(net.graph, "20.08")


def test_depthwise_of_unknown_channels() -> None:
    net = Net()
    x = net.input((1, 2, 2, 2))
    key = net.depthwise(x, np.zeros((1, 1, 1, 2)), name="dw")
    net.output(key)
    net.graph.nodes[x]["outputs"] = (None,)
    assert fe.convert(net.graph, "23.08").graph["feature_versions"] == (1, 1, 1)
    with pytest.raises(fe.ConversionError, match="the input's channels are not known: layer 2 'dw'"):
        fe.convert(net.graph, "20.08")


def test_depthwise_of_an_nchw_network() -> None:
    net = Net(form="member", feature_versions=(1, 0, 0), layout="NCHW")
    net.output(net.depthwise(net.input((1, 3, 4, 5)), np.arange(12).reshape(2, 3, 1, 2), name="dw"))
    new = fe.convert(net.graph, "22.02")
    assert new.nodes[named(new, "dw")]["constants"]["weights"].info.shape == (1, 1, 2, 6)
    assert fe.equal(fe.convert(new, "19.08"), fe.convert(net.graph, "19.08"))


def test_constant_depthwise_weights_of_scheme_0_keep_their_name() -> None:
    """No real writer makes such files; the reader takes them as what they say."""
    net = Net(feature_versions=(1, 0, 1))
    x = net.input((1, 2, 2, 2))
    weights = net.constant(np.zeros((1, 2, 1, 1)), name="w")
    net.output(net.depthwise(x, weights, name="dw", output=TensorInfo((1, 2, 2, 2))))
    found = fe.convert(net.graph, "23.08")
    assert found.nodes[named(found, "w")]["outputs"][0].shape == (1, 1, 1, 2)
    assert types(found).count("Constant") == 1


# Computed weights


@pytest.mark.parametrize(
    ("stored", "values", "expected"),
    [
        (TensorInfo((2, 1, 1, 1), "Float16"), [1.5, -2.0], [1.5, -2.0]),
        (TensorInfo((2, 1, 1, 1), "QAsymmU8", 0.5, 10), [12, 8], [1.0, -1.0]),
        (TensorInfo((2, 1, 1, 1), "QSymmS8", quantization_scales=(0.5, 2.0)), [3, -3], [1.5, -6.0]),
    ],
    ids=["Float16", "per tensor", "per axis"],
)
def test_dequantized_weights_become_members(stored: TensorInfo, values: list[float], expected: list[float]) -> None:
    net = Net()
    x = net.input((1, 1, 1, 1))
    tensor = Tensor(stored, np.asarray(values, stored.dtype).reshape(stored.shape))
    constant = net.constant(tensor, name="stored")
    weights = net.layer("Dequantize", constant, outputs=[TensorInfo(stored.shape)], name="dequantize")
    net.output(net.conv(x, weights, name="conv"))
    old = fe.convert(net.graph, "20.08")
    assert sorted(types(old)) == ["Convolution2d", "Input", "Output"]
    held = old.nodes[named(old, "conv")]["constants"]["weights"]
    assert held.info == TensorInfo(stored.shape)
    assert held.data.ravel().tolist() == expected
    assert types(fe.convert(net.graph, "22.05")) == types(net.graph)


def test_a_dequantize_that_others_read_stays() -> None:
    net = Net()
    x = net.input((1, 1, 1, 1))
    constant = net.constant(Tensor.of(np.ones((1, 1, 1, 1)), "Float16"))
    weights = net.layer("Dequantize", constant, outputs=[TensorInfo((1, 1, 1, 1))])
    for name in ("a", "b"):
        net.output(net.conv(x, weights, name=name))
    net.output(weights)
    old = fe.convert(net.graph, "20.08")
    assert types(old).count("Dequantize") == 1
    first, second = (old.nodes[named(old, name)]["constants"]["weights"] for name in ("a", "b"))
    assert first.memory == second.memory


def test_computed_weights_are_refused() -> None:
    net = Net()
    net.output(net.conv(net.input((1, 2, 2, 1)), net.input((1, 1, 1, 1)), name="conv"))
    with pytest.raises(
        fe.ConversionError, match=r"computed by another layer \(possible since 22\.05\): layer 2 'conv'"
    ):
        fe.convert(net.graph, "22.02")
