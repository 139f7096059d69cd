"""Layers in ONNX operators at the edges of their parameters, against NumPy and numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.verifying import layer as layers
from fusion_engine.verifying.expressions import LayerInexpressible
from tests.support.nets import Net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from tests.support.onnxed import evaluate


def one(net: Net, last: int, inputs: dict[int, Any]) -> np.ndarray:
    net.output(last)
    (found,) = evaluate(net.graph, inputs)
    return found


def refused(net: Net, *last: int) -> str:
    for key in last:
        net.output(key)
    with pytest.raises(LayerInexpressible) as caught:
        evaluate(net.graph, {})
    return caught.value.reason


# Moving


def test_strided_slices_are_those_of_python() -> None:
    """Bounds within the axis or counted from its end, all strides, with every mask, as Python slices."""
    numbers = np.arange(5)
    net = Net()
    x = net.input((5,))
    expected = []
    for begin, end, stride, masks in product((0, 2, 4, -1, -5), (0, 3, 5, 9, -2, -9), (1, 2, -1, -2), range(4)):
        whole = slice(None if masks & 1 else begin, None if masks & 2 else end, stride)
        wanted = numbers[whole]
        if stride < 0 and not masks & 2 and end == -9:
            wanted = numbers[slice(whole.start, None, stride)]
        if not wanted.size:
            continue
        params = {"begin": [begin], "end": [end], "stride": [stride], "beginMask": masks & 1, "endMask": masks >> 1}
        net.output(net.layer("StridedSlice", x, outputs=((wanted.size,),), params=params))
        expected.append(wanted)
    assert len(expected) > 250
    for found, wanted in zip(evaluate(net.graph, {x: numbers}), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_masks_of_a_strided_slice_are_a_bit_for_each_axis() -> None:
    numbers = np.arange(20).reshape(4, 5)
    net = Net()
    x = net.input((4, 5))
    params = {"begin": [2, 1], "end": [3, 4], "stride": [1, 1]}
    cases = (
        ({"beginMask": 1}, slice(0, 3), slice(1, 4)),
        ({"beginMask": 2}, slice(2, 3), slice(0, 4)),
        ({"endMask": 1}, slice(2, 4), slice(1, 4)),
        ({"endMask": 2}, slice(2, 3), slice(1, 5)),
    )
    for masks, rows, columns in cases:
        wanted = numbers[rows, columns]
        net.output(net.layer("StridedSlice", x, outputs=(wanted.shape,), params={**params, **masks}))
    net.output(net.layer("StridedSlice", x, outputs=((3,),), params={**params, "shrinkAxisMask": 1}))
    *found, shrunk = evaluate(net.graph, {x: numbers})
    for array, (_, rows, columns) in zip(found, cases, strict=True):
        np.testing.assert_array_equal(array, numbers[rows, columns])
    np.testing.assert_array_equal(shrunk, numbers[2, 1:4])


def test_tiles_and_stacks() -> None:
    numbers = np.arange(6.0).reshape(2, 3)
    net = Net()
    x, y = net.input((2, 3)), net.input((2, 3))
    net.output(net.layer("Tile", x, outputs=((4, 9),), params={"m_Multiples": (2, 3)}))
    for axis in (0, 1, 2):
        shape = (*(2, 3)[:axis], 2, *(2, 3)[axis:])
        params = {"axis": axis, "numInputs": 2, "inputShape": (2, 3)}
        net.output(net.layer("Stack", x, y, outputs=(shape,), params=params))
    tiled, *stacked = evaluate(net.graph, {x: numbers, y: -numbers})
    np.testing.assert_array_equal(tiled, np.tile(numbers, (2, 3)))
    for axis, found in enumerate(stacked):
        np.testing.assert_array_equal(found, np.stack([numbers, -numbers], axis))


def test_a_slice_of_nothing() -> None:
    net = Net()
    x = net.input((4,))
    params = {"begin": [0], "end": [-9], "stride": [1]}
    assert one(net, net.layer("StridedSlice", x, outputs=((0,),), params=params), {x: [1, 2, 3, 4]}).shape == (0,)


def test_not() -> None:
    net = Net()
    x = net.input((3,), data_type="Boolean")
    negated = net.layer("ElementwiseUnary", x, params={"operation": "LogicalNot"})
    np.testing.assert_array_equal(one(net, negated, {x: [1, 0, 1]}), [0, 1, 0])


# Storing


def test_what_is_not_0_is_true() -> None:
    net = Net()
    x = net.input((4,))
    cast = net.layer("Cast", x, outputs=(TensorInfo((4,), "Boolean"),))
    np.testing.assert_array_equal(one(net, cast, {x: [-2.0, 0.0, 0.25, 7.0]}), [1, 0, 1, 1])


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (TensorInfo((2,), "QSymmS8", 0.5, 0, (0.5, 0.25), 0), "it quantizes per axis"),
        (TensorInfo((2,), "QAsymmU8", 0.0), "the quantization scale 0"),
        (TensorInfo((2,), "QAsymmU8", -1.0), "the quantization scale -1"),
        (TensorInfo((2,), "QAsymmU8", float("inf")), "the quantization scale inf"),
    ],
)
def test_outputs_that_numbers_cannot_be_stored_in(info: TensorInfo, words: str) -> None:
    net = Net()
    assert words in refused(net, net.layer("Quantize", net.input((2,)), outputs=(info,)))


def test_scales_of_integers() -> None:
    """A Signed32 with a scale stands for real numbers, one without and a Signed64 for themselves."""
    for kind, scale, expected in (("Signed32", 0.5, 3.5), ("Signed32", 0.0, 7.0), ("Signed64", 0.5, 7.0)):
        net = Net()
        x = net.input((1,), data_type=kind, quantization_scale=scale)
        real = net.layer("Dequantize", x, outputs=(TensorInfo((1,), "Float32"),))
        assert one(net, real, {x: [7]}).tolist() == [expected]


def test_scales_of_an_axis() -> None:
    """The axis that the TensorInfo names, or one scale for all."""
    stored = np.arange(6).reshape(2, 3)
    for scales, dimension, expected in (
        ((0.5, 2.0), 0, stored * [[0.5], [2.0]]),
        ((0.5, 2.0, 4.0), 1, stored * [0.5, 2.0, 4.0]),
        ((0.25,), 0, stored * 0.25),
        ((0.25,), 1, stored * 0.25),
    ):
        net = Net()
        x = net.input((2, 3), data_type="QSymmS8", quantization_scales=scales, quantization_dim=dimension)
        real = net.layer("Dequantize", x, outputs=(TensorInfo((2, 3)),))
        np.testing.assert_array_equal(one(net, real, {x: stored}), expected)
    for scales, dimension in (((0.5, 2.0), 1), ((0.5, 2.0), 2)):
        net = Net()
        x = net.input((2, 3), data_type="QSymmS8", quantization_scales=scales, quantization_dim=dimension)
        assert "2 quantization scales do not fit axis" in refused(
            net, net.layer("Dequantize", x, outputs=(TensorInfo((2, 3)),))
        )


def test_weights_with_one_scale_in_a_list() -> None:
    net = Net(data_type="QAsymmS8")
    x = net.input((1, 1, 1, 1), quantization_scale=0.5)
    weights = Tensor.of(np.array([[2], [3]]).reshape(2, 1, 1, 1), "QSymmS8", quantization_scales=(0.5,))
    out = TensorInfo((1, 1, 1, 2), "QAsymmS8", 0.25)
    np.testing.assert_array_equal(one(net, net.conv(x, weights, output=out), {x: [[[[4]]]]}).reshape(-1), [8, 12])
    net = Net(data_type="QAsymmS8")
    x = net.input((1, 1, 1, 1), quantization_scale=0.5)
    weights = Tensor.of(np.ones((3, 1, 1, 1)), "QSymmS8", quantization_scales=(0.5, 1.0))
    assert "2 quantization scales for 3 output channels" in refused(
        net, net.conv(x, weights, output=TensorInfo((1, 1, 1, 3), "QAsymmS8", 0.25))
    )


# Layouts


def test_a_batch_norm_of_two_dimensions() -> None:
    net = Net()
    x = net.input((3, 2))
    norm = net.batch_norm(x, [4, 3], [1, -1], [0.5, 0.25], [3, 8], eps=1.0)
    given = np.array([[1.0, 1.0], [0.5, 0.25], [0.0, -1.0]])
    found = one(net, norm, {x: given})
    np.testing.assert_allclose(found, (given - [0.5, 0.25]) * [2, 1] + [1, -1], rtol=1e-6)


def test_a_convolution_3d_with_channels_first() -> None:
    random = np.random.default_rng(1)
    x, w = random.uniform(-1, 1, (1, 3, 4, 5, 2)), random.uniform(-1, 1, (2, 2, 3, 2, 3))
    last = Net()
    given = last.input(x.shape)
    expected = one(last, last.conv3d(given, w, [1, 2, 3]), {given: x})
    first = Net(layout="NCDHW")
    given = first.input((1, 2, 3, 4, 5))
    out = TensorInfo((1, 3, *expected.shape[1:4]))
    conv = first.conv3d(given, w, [1, 2, 3], output=out)
    params = first.graph.nodes[conv]["params"]
    first.graph.nodes[conv]["params"] = FrozenDict({**params, "dataLayout": "NCDHW"})
    found = one(first, conv, {given: np.moveaxis(x, 4, 1)})
    np.testing.assert_allclose(np.moveaxis(found, 1, 4), expected, rtol=1e-6)


def test_a_cast_of_integers_to_integers() -> None:
    for before, after in (("Signed32", "Signed32"), ("Signed64", "Signed64"), ("Signed32", "Signed64")):
        net = Net()
        x = net.input((2,), data_type=before)
        cast = net.layer("Cast", x, outputs=(TensorInfo((2,), after),))
        np.testing.assert_array_equal(one(net, cast, {x: [7, -9]}), [7, -9])


def test_a_mean_over_the_last_axis_counted_from_the_end() -> None:
    """2**32 - 1 is -1 in a field without a sign."""
    net = Net()
    x = net.input((2, 3))
    net.output(net.layer("Mean", x, outputs=((2,),), params={"axis": (2**32 - 1,)}))
    net.output(net.layer("Mean", x, outputs=((1, 3),), params={"axis": (2**32 - 2,), "keepDims": True}))
    across, down = evaluate(net.graph, {x: [[1, 2, 6], [3, 4, 5]]})
    np.testing.assert_array_equal(across, [3, 4])
    np.testing.assert_array_equal(down, [[2, 3, 5.5]])


@pytest.mark.parametrize("aligned", [False, True])
def test_a_picture_of_one_dot(aligned: bool) -> None:
    """With corners aligned there is no distance to divide by: it is the first dot."""
    net = Net()
    x = net.input((1, 3, 4, 1))
    params = {"targetWidth": 1, "targetHeight": 1, "method": "Bilinear", "alignCorners": aligned, "dataLayout": "NHWC"}
    resized = net.layer("Resize", x, outputs=((1, 1, 1, 1),), params=params)
    assert one(net, resized, {x: np.arange(5, 17).reshape(1, 3, 4, 1)}).reshape(-1).tolist() == [5]


def test_a_convolution_of_three_dimensions_is_refused() -> None:
    net = Net()
    x = net.input((2, 2, 1))
    params = {"strideX": 1, "strideY": 1, "dataLayout": "NHWC"}
    held = {"weights": Tensor.of(np.ones((1, 1, 1, 1)))}
    conv = net.layer("Convolution2d", x, outputs=((2, 2, 1),), params=params, constants=held)
    assert refused(net, conv).endswith("its input has rank 3, not 4")


# What is said of layers that cannot be expressed


def arg_max(net: Net) -> int:
    params = {"argMinMaxFunction": "Max", "axis": 0}
    return net.layer(
        "ArgMinMax", net.input((4,)), outputs=(TensorInfo((), "Float32", dimensionality=2),), params=params
    )


def pooled(net: Net) -> int:
    return net.pool(net.input((1, 4, 4, 1)), (2, 2), "Average", paddingMethod=7)


def empty_constant(net: Net) -> int:
    constant = net.constant([1.0])
    net.graph.nodes[constant]["constants"] = FrozenDict()
    return net.activation(constant, "ReLu")


def sliced(net: Net) -> int:
    params = {"begin": [0], "end": [4], "stride": [0]}
    return net.layer("StridedSlice", net.input((4,)), params=params)


def masked(net: Net) -> int:
    params = {"begin": [0, 0], "end": [4, 4], "stride": [1, 1]}
    return net.layer("StridedSlice", net.input((4,)), params=params)


def stacked(net: Net) -> int:
    x, y = net.input((2, 3)), net.input((2, 3))
    return net.layer("Stack", x, y, outputs=((2, 3, 2),), params={"axis": 1, "numInputs": 2, "inputShape": (2, 3)})


def shuffled(net: Net) -> int:
    return net.layer("ChannelShuffle", net.input((1, 4)), params={"axis": 1, "numGroups": 3})


def tiled(net: Net) -> int:
    return net.layer("Tile", net.input((4, 6)), outputs=((2, 2),), params={"m_Multiples": (2, 3)})


def multiplied(net: Net) -> int:
    x, y = net.input((2, 3)), net.input((3, 4))
    return net.layer("BatchMatMul", x, y, outputs=((4, 2),), params={"dataLayoutX": "NCHW", "dataLayoutY": "NCHW"})


def split(net: Net) -> int:
    views = {"numViews": 1, "numDimensions": 2, "viewOrigins": ((0,),)}
    return net.layer("Splitter", net.input((2, 3)), outputs=((2,),), params={"origins": views, "viewSizes": ((2,),)})


def other_channels(net: Net) -> int:
    params = {"poolType": "Max", "poolWidth": 1, "poolHeight": 1, "strideX": 1, "strideY": 1, "dataLayout": "NHWC"}
    return net.layer("Pooling2d", net.input((1, 2, 2, 3)), outputs=((1, 2, 2, 4),), params=params)


def no_window(net: Net) -> int:
    params = {"poolType": "Max", "poolWidth": 0, "poolHeight": 1, "strideX": 1, "strideY": 1, "dataLayout": "NHWC"}
    return net.layer("Pooling2d", net.input((1, 2, 2, 3)), params=params)


def no_stride(net: Net) -> int:
    params = {"poolType": "Max", "poolWidth": 1, "poolHeight": 1, "strideX": 0, "strideY": 1, "dataLayout": "NHWC"}
    return net.layer("Pooling2d", net.input((1, 2, 2, 3)), params=params)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (arg_max, "its output is of Float32"),
        (pooled, "its paddingMethod 7 is unknown"),
        (empty_constant, "Constant layer 0 'constant_0' cannot be expressed: it holds no tensor"),
        (sliced, "begin, end and stride [(0,), (4,), (0,)] do not fit shape (4,)"),
        (masked, "do not fit shape (4,)"),
        (stacked, "its parameters give shape (2, 2, 3), its TensorInfo says (2, 3, 2)"),
        (shuffled, "4 channels do not make 3 groups"),
        (tiled, "its parameters give shape (8, 18), its TensorInfo says (2, 2)"),
        (multiplied, "its parameters give shape (2, 4), its TensorInfo says (4, 2)"),
        (split, "its view 0 is incomplete"),
        (other_channels, "it makes (1, 2, 2, 4) of (1, 2, 2, 3)"),
        (no_window, "its poolWidth is 0 and its strideX 1"),
        (no_stride, "its poolWidth is 1 and its strideX 0"),
    ],
)
def test_reasons(build: Callable[[Net], int], words: str) -> None:
    net = Net()
    assert refused(net, build(net)).endswith(words)


def test_room_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a transposed convolution spreads to, before the edges are cut off, may be as large as the limit."""
    net = Net(form="member")
    x = net.input((2, 3, 4, 1))
    net.output(net.transpose_conv(x, np.ones((5, 2, 3, 1)), strideX=2, strideY=2, padLeft=1, padTop=1))
    largest = 2 * (2 * 2 + 2) * (3 * 2 + 3) * 5
    monkeypatch.setattr(layers, "MOST_ELEMENTS", largest)
    evaluate(net.graph, {})
    monkeypatch.setattr(layers, "MOST_ELEMENTS", largest - 1)
    with pytest.raises(LayerInexpressible, match=r"shape \(2, 5, 6, 9\) on the way, more than 539 elements"):
        evaluate(net.graph, {})


# The ends of a network


@pytest.mark.parametrize(
    ("change", "first", "words"),
    [
        ("gone", "two", "layer 4 'two' is gone from the network's outputs"),
        ("id", "two", "layer 4 'two' is not the same after"),
        ("order", "one", "the network's outputs are not the same, or not in the same order"),
        ("type", "input_0", "layer 0 'input_0' is not the same after"),
    ],
)
def test_ends_are_named(change: str, first: str, words: str) -> None:
    net = Net()
    x = net.input((1, 4))
    net.output(net.activation(x, name="a"), name="one")
    last = net.output(net.activation(x, "TanH", name="b"), name="two")
    after = fe.fuse(net.graph, ())
    if change == "gone":
        after.remove_node(last)
        after.graph["outputs"] = after.graph["outputs"][:1]
    elif change == "id":
        after.nodes[last]["binding_id"] = 17
    elif change == "order":
        after.graph["outputs"] = after.graph["outputs"][::-1]
    else:
        after.nodes[x]["outputs"] = (replace(net.info(x), data_type="Float16"),)
    found = fe.verify(net.graph, after)
    assert found.status == "failed"
    assert [(region.status, region.reason) for region in found.regions if region.reason == words] == [("failed", words)]
    (region,) = (region for region in found.regions if region.reason == words)
    ((layer,), none) = region.before, region.after
    ends = {"one": (2, "one", "Output"), "two": (last, "two", "Output"), "input_0": (x, "input_0", "Input")}
    assert (layer.index, layer.name, layer.type) == ends[first]
    assert none == ()


def without_weights(net: Net) -> int:
    params = {"strideX": 1, "strideY": 1, "dataLayout": "NHWC", "biasEnabled": True}
    x, weights = net.input((1, 2, 2, 1)), net.constant(np.ones((1, 1, 1, 1)))
    return net.layer("Convolution2d", x, weights, params=params)


def norm_of_other_channels(net: Net) -> int:
    return net.batch_norm(net.input((1, 1, 1, 2)), [1, 1, 1], [1, 1], [1, 1], [1, 1])


def too_few_views(net: Net) -> int:
    views = {"numViews": 1, "numDimensions": 2, "viewOrigins": ((0, 0),)}
    sizes = ((1, 3), (1, 3))
    return net.layer(
        "Splitter", net.input((2, 3)), outputs=((1, 3), (1, 3)), params={"origins": views, "viewSizes": sizes}
    )


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (without_weights, "weights or bias are missing"),
        (norm_of_other_channels, "its gamma has 3 values for 2 channels"),
        (too_few_views, "its view 1 is incomplete"),
    ],
)
def test_reasons_of_parts_that_are_missing(build: Callable[[Net], int], words: str) -> None:
    net = Net()
    assert refused(net, build(net)).endswith(words)
