"""convert: layers that releases spell in different ways."""

from __future__ import annotations

from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.network import edges_into
from fusion_engine.tensor import TensorInfo
from tests.support.converted import fed, named, types
from tests.support.nets import Net
from tests.support.opaques import fuse_layers


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
