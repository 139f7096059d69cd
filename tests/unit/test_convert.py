"""convert: each step, opaque layers, refusals, and what stays as it is."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict, Network, edges_into
from fusion_engine.recipes import read_recipe
from fusion_engine.releases.passes.weights import to_1hwo, to_mihw
from fusion_engine.schema import slot_facts
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net, shuffled
from tests.support.opaques import fuse_layers


def types(graph: Network) -> list[str]:
    """Types by key."""
    return [graph.nodes[key]["type"] for key in sorted(graph)]


def named(graph: Network, name: str) -> int:
    (key,) = [key for key, node in graph.nodes(data=True) if node["name"] == name]
    return int(key)


def fed(graph: Network, key: int) -> dict[int, str]:
    """Input slot -> type of what feeds it."""
    return {slot: graph.nodes[source.layer]["type"] for slot, source in edges_into(graph, key)}


def member_conv(bias: bool = True) -> Net:
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 2, 2, 1))
    net.output(net.conv(x, np.full((3, 1, 1, 1), 2.0), [1.0, 2.0, 3.0] if bias else None, name="conv"))
    return net


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


# Spellings


def spelled(kind: str, params: dict[str, Any] | None, release: str, operands: int = 1) -> tuple[str, Any]:
    net = Net()
    sources = [net.input((1, 2, 3, 4)) for _ in range(operands)]
    shape = (1, 2, 3, 4) if kind != "Transpose" else (1, 4, 2, 3)
    key = net.layer(kind, *sources, outputs=[shape], params=params)
    net.output(key)
    node = fe.convert(net.graph, release).nodes[key]
    return node["type"], dict(node["params"])


CONCAT = {"concatAxis": 1, "numViews": 1, "numDimensions": 4, "viewOrigins": [[0, 0, 0, 0]]}


@pytest.mark.parametrize(
    ("kind", "params", "release", "expected"),
    [
        ("ElementwiseUnary", {"operation": "Abs"}, "20.11", "ElementwiseUnary"),
        ("ElementwiseUnary", {"operation": "Abs"}, "20.08", "Abs"),
        ("ElementwiseUnary", {"operation": "Abs"}, "19.11", "Abs"),
        ("ElementwiseUnary", {"operation": "Abs"}, "19.08", "Activation"),
        ("ElementwiseUnary", {}, "20.08", "Abs"),
        ("ElementwiseUnary", {"operation": "Rsqrt"}, "20.02", "Rsqrt"),
        ("ElementwiseUnary", {"operation": "Sqrt"}, "20.08", "Activation"),
        ("ElementwiseUnary", {"operation": "Neg"}, "20.08", "Activation"),
        ("Abs", None, "24.08", "Abs"),
        ("Abs", None, "19.05", "Activation"),
        ("Rsqrt", None, "24.08", "Rsqrt"),
        ("Concat", CONCAT, "19.08", "Concat"),
        ("Concat", CONCAT, "19.05", "Merger"),
        ("Merger", CONCAT, "24.08", "Merger"),
        ("Resize", {"method": "Bilinear", "targetWidth": 3, "targetHeight": 2}, "19.05", "ResizeBilinear"),
        ("Resize", {"method": "Bilinear", "targetWidth": 3, "targetHeight": 2}, "19.08", "Resize"),
        ("Reduce", {"reduceOperation": "Mean", "axis": [1], "keepDims": True}, "20.11", "Mean"),
        ("Transpose", {"dimMappings": [0, 3, 1, 2]}, "20.05", "Transpose"),
        ("Transpose", {"dimMappings": [0, 3, 1, 2]}, "20.02", "Permute"),
    ],
)
def test_spellings(kind: str, params: dict[str, Any] | None, release: str, expected: str) -> None:
    assert spelled(kind, params, release)[0] == expected


@pytest.mark.parametrize(
    ("kind", "params", "release", "expected"),
    [
        ("ElementwiseUnary", {"operation": "Sqrt"}, "20.08", {"activationFunction": "Sqrt", "a": 0.0, "b": 0.0}),
        ("ElementwiseUnary", {"operation": "Neg"}, "20.08", {"activationFunction": "Linear", "a": -1.0, "b": 0.0}),
        (
            "Reduce",
            {"reduceOperation": "Mean", "axis": [1], "keepDims": True},
            "20.11",
            {"axis": (1,), "keepDims": True},
        ),
        ("Transpose", {"dimMappings": [0, 3, 1, 2]}, "20.02", {"dimMappings": (0, 2, 3, 1)}),
        (
            "Resize",
            {"method": "Bilinear", "targetWidth": 3, "targetHeight": 2, "dataLayout": "NCHW"},
            "19.05",
            {"targetWidth": 3, "targetHeight": 2, "dataLayout": "NCHW"},
        ),
    ],
)
def test_descriptors_of_spellings(kind: str, params: dict[str, Any], release: str, expected: dict[str, Any]) -> None:
    assert spelled(kind, params, release)[1] == expected


@pytest.mark.parametrize(
    ("operation", "old"),
    [
        ("Add", "Addition"),
        ("Sub", "Subtraction"),
        ("Mul", "Multiplication"),
        ("Div", "Division"),
        ("Minimum", "Minimum"),
        ("Maximum", "Maximum"),
    ],
)
def test_arithmetic(operation: str, old: str) -> None:
    assert spelled("ElementwiseBinary", {"operation": operation}, "23.02", 2) == (old, {})
    assert spelled("ElementwiseBinary", {"operation": operation}, "23.05", 2)[0] == "ElementwiseBinary"
    assert spelled(old, None, "24.08", 2)[0] == old


@pytest.mark.parametrize(("operation", "old"), [("Equal", "Equal"), ("Greater", "Greater")])
def test_comparisons(operation: str, old: str) -> None:
    assert spelled("Comparison", {"operation": operation}, "19.08", 2)[0] == old
    assert spelled(old, None, "24.08", 2)[0] == old


@pytest.mark.parametrize(
    ("kind", "params", "release", "words"),
    [
        ("ElementwiseUnary", {"operation": "Exp"}, "20.08", "ElementwiseUnary that is a layer type"),
        ("Resize", {"method": "NearestNeighbor"}, "19.05", "Resize: there is no such layer (possible since 19.08)"),
        ("Resize", {"method": "Bilinear", "alignCorners": True}, "20.05", "alignCorners True in a ResizeDescriptor"),
        ("Reduce", {"reduceOperation": "Sum"}, "20.11", "Reduce: there is no such layer (possible since 21.02)"),
        ("Tile", {"m_Multiples": [1, 1, 1, 1]}, "23.05", "Tile: there is no such layer (possible since 23.08)"),
        ("Activation", {"activationFunction": "SoftReLu"}, "24.08", "which every release reads as a Sigmoid"),
        ("Activation", {"activationFunction": "Elu"}, "20.02", "the ActivationFunction Elu (possible since 20.05)"),
    ],
)
def test_what_has_no_other_spelling_is_refused(kind: str, params: dict[str, Any], release: str, words: str) -> None:
    with pytest.raises(fe.ConversionError) as caught:
        spelled(kind, params, release)
    assert words in str(caught.value)


@pytest.mark.parametrize("data_type", ["Signed32", "Signed64"])
@pytest.mark.parametrize("operation", ["Neg", "Sqrt"])
def test_unary_operations_on_whole_numbers_become_no_activation(operation: str, data_type: str) -> None:
    net = Net(data_type=data_type)
    net.output(net.layer("ElementwiseUnary", net.input((1, 3)), params={"operation": operation}, name="u"))
    with pytest.raises(fe.ConversionError, match="ElementwiseUnary that is a layer type that the release writes"):
        fe.convert(net.graph, "20.08")


def test_squared_differences() -> None:
    net = Net()
    x, y = net.input((1, 2)), net.input((1, 2))
    key = net.layer("ElementwiseBinary", x, y, params={"operation": "SqDiff"}, name="d")
    net.output(key)
    found = fe.convert(net.graph, "20.08")
    assert found.nodes[key]["type"] == "Multiplication"
    difference = named(found, "d/difference")
    assert found.edges[difference, key]["slots"] == ((0, 0), (0, 1))
    assert [source.layer for _, source in edges_into(found, difference)] == [x, y]
    assert types(fe.convert(net.graph, "23.08")) == types(net.graph)


def test_l2_pooling() -> None:
    net = Net()
    x = net.input((1, 4, 4, 1))
    params = {"poolType": "L2", "poolWidth": 2, "poolHeight": 2, "strideX": 2, "strideY": 2}
    key = net.layer("Pooling2d", x, outputs=[(1, 2, 2, 1)], params=params, name="l2")
    net.output(key)
    found = fe.convert(net.graph, "20.08")
    squared, averaged = named(found, "l2/squared"), named(found, "l2/averaged")
    assert set(found.edges) == {(x, squared), (squared, averaged), (averaged, key), (key, 2)}
    assert found.nodes[squared]["params"]["activationFunction"] == "Square"
    assert found.nodes[squared]["outputs"] == net.graph.nodes[x]["outputs"]
    assert found.nodes[averaged]["params"] == {**params, "poolType": "Average"}
    assert found.nodes[averaged]["outputs"] == net.graph.nodes[key]["outputs"]
    assert found.nodes[key]["params"]["activationFunction"] == "Sqrt"
    assert types(fe.convert(net.graph, "22.02")) == types(net.graph)
    for node in net.graph.nodes.values():
        node["outputs"] = tuple(TensorInfo(info.shape, "QAsymmU8", 1.0) for info in node["outputs"])
    with pytest.raises(fe.ConversionError, match="Pooling2d that pools by L2"):
        fe.convert(net.graph, "20.08")


def test_l2_pooling_of_float16_is_refused() -> None:
    """Squares above 255.9 are infinite in Float16, below 2.4e-4 they are zero."""
    net = Net(data_type="Float16")
    key = net.pool(net.input((1, 2, 2, 1)), (2, 2), "L2", name="l2")
    net.output(key)
    with pytest.raises(fe.ConversionError) as caught:
        fe.convert(net.graph, "20.08")
    told = {obstacle.reason: obstacle for obstacle in caught.value.obstacles}
    assert any("squares overflow or vanish in Float16" in reason for reason in told)
    assert all(obstacle.layers == (key,) for obstacle in told.values())
    assert types(fe.convert(net.graph, "22.02")) == types(net.graph)


def test_l2_pooling_in_an_opaque_layer() -> None:
    net = Net()
    x = net.input((1, 2, 2, 1))
    pool = net.layer("Pooling2d", x, params={"poolType": "L2", "poolWidth": 1, "poolHeight": 1}, name="l2")
    root = net.activation(pool, name="relu")
    net.output(root)
    found = fe.convert(fuse_layers(net.graph, [root, pool], "Block"), "20.08")
    assert fed(found, root)[0] == "Input"
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "20.08"))


def test_a_quantized_squared_difference_is_refused() -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 2), quantization_scale=1.0)
    net.output(net.layer("ElementwiseBinary", x, x, params={"operation": "SqDiff"}, name="d"))
    with pytest.raises(fe.ConversionError, match="ElementwiseBinary: there is no such layer"):
        fe.convert(net.graph, "20.08")


# DataTypes, descriptors, tags, ids


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


# What older optimizers and backends insist on


@pytest.mark.parametrize(
    ("data_type", "bias", "weight_scale", "bias_scale", "expected"),
    [
        ("Float32", [1.0], 0.0, 1.0, 0.0),
        ("QAsymmU8", [0], 0.5, 0.75, 0.25),
        ("QAsymmU8", [3], 0.5, 0.75, 0.75),
        ("QAsymmU8", [0], 0.5, 0.25, 0.25),
    ],
    ids=["floats", "zeros", "values", "right"],
)
def test_scales_of_biases(
    data_type: str, bias: list[float], weight_scale: float, bias_scale: float, expected: float
) -> None:
    net = Net(data_type=data_type)
    x = net.input((1, 1, 1, 1), quantization_scale=0.5)
    weights = net.tensor(np.ones((1, 1, 1, 1)), quantization_scale=weight_scale)
    held = Tensor.of(bias, "Float32" if data_type == "Float32" else "Signed32", quantization_scale=bias_scale)
    key = net.conv(x, weights, held)
    net.output(key)
    found = fe.convert(net.graph, "20.08").nodes[key]["constants"]["biases"].info
    assert found.quantization_scale == expected
    assert fe.equal(fe.convert(net.graph, "23.08"), net.graph)


def test_per_axis_scales_of_biases() -> None:
    net = Net(data_type="QAsymmS8")
    x = net.input((1, 1, 1, 1), quantization_scale=0.5)
    weights = net.tensor(np.ones((2, 1, 1, 1)), "QSymmS8", quantization_scales=(1.0, 2.0))
    key = net.conv(x, weights, Tensor.of([0, 0], "Signed32", quantization_scales=(9.0, 9.0)))
    net.output(key)
    assert fe.convert(net.graph, "20.08").nodes[key]["constants"]["biases"].info.quantization_scales == (0.5, 1.0)


def test_ranks_of_constants() -> None:
    net = Net()
    x, c = net.input((1, 2, 3)), net.constant([1, 2, 3], name="c")
    key = net.layer("Prelu", x, c, outputs=[(1, 2, 3)])
    net.output(key)
    net.output(c, name="c, too")
    found = fe.convert(net.graph, "20.08")
    (_, (made, _)) = edges_into(found, key)[1]
    assert found.nodes[made]["name"] == "c#2"
    assert found.nodes[made]["outputs"][0].shape == (1, 1, 3)
    assert found.nodes[made]["constants"]["input"].memory == net.graph.nodes[c]["constants"]["input"].memory
    assert fed(found, named(found, "c, too")) == {0: "Constant"}
    assert fe.equal(fe.convert(net.graph, "22.02"), fe.convert(net.graph, "23.08"))


def test_ranks_of_what_is_computed() -> None:
    net = Net()
    x, y = net.input((1, 2, 3)), net.input((3,))
    key = net.layer("Subtraction", y, x, outputs=[(1, 2, 3)], name="minus")
    net.output(key)
    found = fe.convert(net.graph, "20.08")
    reshape = named(found, "minus/operand")
    assert found.nodes[reshape]["params"] == {"targetShape": (1, 1, 3)}
    assert [source.layer for _, source in edges_into(found, key)] == [reshape, x]


@pytest.mark.parametrize(
    ("pad", "conv", "apart"),
    [
        ({"padList": [0, 0, 1, 1, 1, 1, 0, 0]}, {}, False),
        ({"padList": [0, 0, 1, 1, 1, 1, 0, 0], "padValue": 2.0}, {}, True),
        ({"padList": [0, 0, 0, 0, 0, 0, 1, 1]}, {}, True),
        ({"padList": [1, 0, 0, 0, 0, 0, 0, 0]}, {}, True),
        ({"padList": [0, 0, 1, 1, 1, 1, 0, 0]}, {"padLeft": 1}, True),
    ],
    ids=["folds right", "value", "channels", "batches", "own padding"],
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_pads(pad: dict[str, Any], conv: dict[str, Any], apart: bool, layout: str) -> None:
    lists = pad["padList"]
    if layout == "NCHW":
        lists = [*lists[:2], *lists[6:], *lists[2:6]]
    net = Net(layout=layout)
    shape = [4, 4, 4, 4]
    padded = tuple(size + lists[2 * axis] + lists[2 * axis + 1] for axis, size in enumerate(shape))
    x = net.layer("Pad", net.input(shape), outputs=[padded], params={**pad, "padList": lists})
    channels = padded[3] if layout == "NHWC" else padded[1]
    weights = np.ones((1, 1, 1, channels) if layout == "NHWC" else (1, channels, 1, 1))
    key = net.conv(x, weights, name="conv", **conv)
    net.output(key)
    found = fe.convert(net.graph, "20.08")
    assert fed(found, key)[0] == ("Reshape" if apart else "Pad")
    if apart:
        reshape = found.nodes[named(found, "conv/padded")]
        assert reshape["outputs"] == net.graph.nodes[x]["outputs"]
        assert reshape["params"] == {"targetShape": padded}
    assert fed(fe.convert(net.graph, "23.08"), key)[0] == "Pad"


@pytest.mark.parametrize("data_type", ["QAsymmU8", "QuantisedAsymm8", "QAsymmS8", "QSymmS16"])
@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_pads_of_quantized_tensors_write_stored_values(data_type: str, offset: int, value: float) -> None:
    net = Net(data_type=data_type)
    x = net.input((1, 3, 3, 1), quantization_scale=0.5, quantization_offset=offset)
    weights = net.tensor(np.ones((1, 1, 1, 1)), quantization_scale=0.5)
    key = net.conv(net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], value), weights)
    net.output(key)
    assert fed(fe.convert(net.graph, "22.02"), key)[0] == ("Pad" if value == offset else "Reshape")


@pytest.mark.parametrize("mode", ["Constant", "Reflect", "Symmetric"])
@pytest.mark.parametrize("kind", ["conv", "depthwise", "pool"])
@pytest.mark.parametrize("release", ["21.11", "22.02", "23.08", "24.08"])
def test_pads_of_other_modes(mode: str, kind: str, release: str) -> None:
    net = Net(feature_versions=(1, 1, 1))
    x = net.pad(net.input((1, 3, 3, 1)), [(0, 0), (1, 1), (1, 1), (0, 0)], mode=mode)
    key = net.pool(x, (2, 2), "Average") if kind == "pool" else getattr(net, kind)(x, np.ones((1, 2, 2, 1)))
    net.output(key)
    found = fe.convert(net.graph, release)
    assert fed(found, key)[0] == ("Pad" if mode == "Constant" else "Reshape")
    assert fe.equal(fe.convert(found, release), found)


def test_a_pad_of_nothing_stays_whatever_its_mode() -> None:
    net = Net()
    key = net.conv(net.pad(net.input((1, 3, 3, 1)), [(0, 0)] * 4, mode="Reflect"), np.ones((1, 1, 1, 1)))
    net.output(key)
    assert fed(fe.convert(net.graph, "23.08"), key)[0] == "Pad"


@pytest.mark.parametrize("kind", ["conv", "depthwise"])
@pytest.mark.parametrize("layouts", [("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "NHWC"), ("NCHW", "NCHW")])
@pytest.mark.parametrize("release", ["20.08", "20.11", "23.08"])
def test_batch_norms_of_the_other_layout(kind: str, layouts: tuple[str, str], release: str) -> None:
    net = Net()
    x = net.input((1, 2, 2, 2))
    weights = {"NHWC": (2, 1, 1, 2), "NCHW": (2, 2, 1, 1)}[layouts[0]] if kind == "conv" else (1, 1, 1, 2)
    conv = getattr(net, kind)(x, np.ones(weights), layout=layouts[0])
    key = net.batch_norm(conv, [1, 2], [0, 1], [0, 0], [1, 1], layout=layouts[1], name="bn")
    net.output(key)
    found = fe.convert(net.graph, release)
    apart = layouts[0] != layouts[1] and release != "20.08"
    assert fed(found, key)[0] == ("Reshape" if apart else net.graph.nodes[conv]["type"])
    if apart:
        reshape = found.nodes[named(found, "bn/convolved")]
        assert (reshape["params"], reshape["outputs"]) == ({"targetShape": (1, 2, 2, 2)}, found.nodes[conv]["outputs"])


# Opaque layers


def chain() -> tuple[Net, list[int]]:
    """Conv, depthwise and ReLu over two inputs that are added before; keys of the last three, root first."""
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.addition(net.input((1, 2, 2, 2)), net.input((1, 2, 2, 2)))
    conv = net.conv(x, np.ones((2, 1, 1, 2)), [0.5, 1.0], name="conv")
    depthwise = net.depthwise(conv, np.arange(4).reshape(2, 2, 1, 1), name="dw")
    relu = net.activation(depthwise, "ReLu", name="relu")
    net.output(relu)
    return net, [relu, depthwise, conv]


@pytest.mark.parametrize("release", ["19.11", "20.08", "21.05", "21.08", "22.02", "22.05", "24.08"])
def test_opaque_layers_cross(release: str) -> None:
    net, layers = chain()
    fused = fuse_layers(net.graph, layers, "Block", code=7)
    found = fe.loads(fe.dumps(fused, release=release))
    stand_in = named(found, "Block:relu")
    recipe = read_recipe(found, stand_in)
    assert recipe is not None
    assert (recipe["rule"], recipe["result"], recipe["code"]) == ("a rule", "Block", 7)
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, release))
    assert next(one for one in fe.loads_in(found) if one.release == release).loads
    assert fe.equal(fe.convert(found, "20.08"), fused)


def test_nested_opaque_layers_cross() -> None:
    net, (relu, depthwise, conv) = chain()
    fused = fuse_layers(fuse_layers(net.graph, [depthwise, conv], "Inner"), [relu, depthwise], "Outer")
    found = fe.convert(fused, "23.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "23.08"))
    recipe = read_recipe(found, named(found, "Outer:relu"))
    assert recipe is not None
    assert recipe["layers"][1]["recipe"]["featureVersions"] == [1, 1, 1]
    assert fe.dumps(fe.convert(found, "20.08")) == fe.dumps(fused)


def test_names_of_opaque_layers_stay() -> None:
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 2, 2, 1))
    keys = []
    for _ in range(2):
        conv = net.conv(x, np.ones((1, 1, 1, 1)), name="conv")
        keys.append((net.activation(conv, name="relu"), conv))
        net.output(keys[-1][0])
    fused = net.graph
    for layers in reversed(keys):
        fused = fuse_layers(fused, layers, "Block")
    names = {key: fused.nodes[key]["name"] for key, _ in keys}
    assert sorted(names.values()) == ["Block:relu", "Block:relu#2"]
    found = fe.convert(fused, "23.08")
    assert {key: found.nodes[key]["name"] for key, _ in keys} == names
    assert fe.equal(fe.convert(found, "20.08"), fused)


def test_data_inputs_keep_their_order() -> None:
    net = Net()
    x, y = net.input((1, 2)), net.input((1, 2))
    minus = net.layer("ElementwiseBinary", y, x, params={"operation": "Sub"})
    squared = net.layer("ElementwiseBinary", minus, x, params={"operation": "SqDiff"})
    root = net.activation(squared, name="root")
    net.output(root)
    fused = fuse_layers(net.graph, [root, squared, minus], "Block")
    before = [source.layer for _, source in edges_into(fused, root)][:3]
    found = fe.convert(fused, "20.08")
    assert [source.layer for _, source in edges_into(found, root)][:3] == before
    again = fe.unfuse(found)
    assert fe.equal(again, fe.convert(net.graph, "20.08"))
    recipe = read_recipe(found, root)
    assert recipe is not None
    assert [layer["type"] for layer in recipe["layers"]] == [
        "Activation",
        "Multiplication",
        "Subtraction",
        "Subtraction",
    ]


def test_constants_that_the_rule_named() -> None:
    net = Net(spelling="new")
    x, c = net.input((1, 2)), net.constant([[1, 2]], name="c")
    added = net.addition(x, c)
    root = net.activation(added, name="root")
    net.output(root)
    fused = fuse_layers(net.graph, [root, added], "Block", constants=[c])
    found = fe.convert(fused, "20.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "20.08"))
    recipe = read_recipe(found, root)
    assert recipe is not None
    assert (recipe["inputs"], len(recipe["constants"])) == (1, 1)


def test_old_dialects_with_opaque_layers() -> None:
    """Fused, a network of 19.02 is a current one; unfused after a conversion it is of the release."""
    net = Net("19.02", form="member")
    conv = net.conv(net.input((1, 2, 2, 1)), np.ones((1, 1, 1, 1)))
    relu = net.layer("Activation", conv, params={"function": "ReLu"}, name="relu")
    net.output(relu)
    fused = fuse_layers(net.graph, [relu, conv], "Block")
    found = fe.convert(fused, "20.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "20.08"))
    assert not any("opaque layers" in warning for warning in found.graph.get("warnings", ()))


def test_refusals_name_layers_inside_opaque_ones() -> None:
    net = Net()
    tile = net.layer("Tile", net.input((1, 2)), params={"m_Multiples": (1, 1)}, name="tile")
    inner = net.activation(tile, name="inner")
    root = net.activation(inner, name="root")
    net.output(root)
    fused = fuse_layers(fuse_layers(net.graph, [inner, tile], "Inner"), [root, inner], "Outer")
    with pytest.raises(fe.ConversionError) as caught:
        fe.convert(fused, "23.05")
    (obstacle,) = caught.value.obstacles
    assert obstacle.layers == (root,)
    assert obstacle.places == (f"'tile' in layer {root} 'Outer:root'",)


def test_an_opaque_layer_that_becomes_a_constant() -> None:
    net = Net()
    fill = net.layer("Fill", net.input((2,), "Signed32"), outputs=[TensorInfo((1, 2))], params={"value": 2.0})
    relu = net.activation(fill, name="relu")
    net.output(relu)
    with pytest.raises(fe.ConversionError, match=r"'Block:fill_1' cannot be made again .*unfuse it first") as caught:
        fe.convert(fuse_layers(net.graph, [fill], "Block"), "20.08")
    assert caught.value.obstacles[0].layers == (fill,)
    found = fe.convert(fuse_layers(net.graph, [relu, fill], "Block"), "20.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "20.08"))


def test_no_stand_in_before_19_11() -> None:
    net, layers = chain()
    fused = fuse_layers(net.graph, layers, "Block")
    with pytest.raises(fe.ConversionError) as caught:
        fe.convert(fused, "19.08")
    assert str(caught.value) == (
        "Arm NN 19.08 cannot hold it: opaque layers: there is no StandIn (unfuse them first) (possible since 19.11): "
        f"layer {layers[0]} 'Block:relu'"
    )
    assert fe.convert(fe.unfuse(fused), "19.08").graph["feature_versions"] == (0, 0, 0)


def test_stand_ins_of_others_stay() -> None:
    net = Net(feature_versions=(1, 0, 0))
    net.output(net.stand_in(net.input((1, 2)), outputs=[(1, 2)], name="theirs"))
    found = fe.convert(net.graph, "23.08")
    assert types(found) == types(net.graph)
    assert any("'theirs' is left as it is" in warning for warning in found.graph["warnings"])


# As a whole


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
