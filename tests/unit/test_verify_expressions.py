"""Layers in ONNX operators against numbers worked out by hand; real Arm NN judges the rest in tests/real."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusion_engine.network import Source
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.verifying.expressions import LayerInexpressible
from tests.support.nets import Net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from tests.support.onnxed import evaluate


def one(net: Net, last: int, inputs: dict[int, object]) -> np.ndarray:
    net.output(last)
    (found,) = evaluate(net.graph, inputs)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("function", "a", "b", "expected"),
    [
        ("ReLu", 0, 0, [0, 0, 0, 0.5, 8]),
        ("BoundedReLu", 6, 0, [0, 0, 0, 0.5, 6]),
        ("BoundedReLu", 1, -1, [-1, -1, 0, 0.5, 1]),
        ("BoundedReLu", -1, 1, [-1, -1, -1, -1, -1]),
        ("LeakyReLu", 0.1, 0, [-0.8, -0.1, 0, 0.5, 8]),
        ("Linear", 2, 1, [-15, -1, 1, 2, 17]),
        ("Abs", 0, 0, [8, 1, 0, 0.5, 8]),
        ("Square", 0, 0, [64, 1, 0, 0.25, 64]),
        ("Elu", 2, 0, [2 * np.expm1(-8), 2 * np.expm1(-1), 0, 0.5, 8]),
        ("TanH", 2, 3, 2 * np.tanh(3 * np.array([-8, -1, 0, 0.5, 8]))),
        ("Sigmoid", 0, 0, 1 / (1 + np.exp([8, 1, 0, -0.5, -8]))),
        ("SoftReLu", 0, 0, np.log1p(np.exp([-8, -1, 0, 0.5, 8]))),
        ("HardSwish", 0, 0, [0, -1 / 3, 0, 0.5 * 3.5 / 6, 8]),
        ("Gelu", 0, 0, [0, -0.15865525, 0, 0.34573123, 8]),
    ],
)
def test_activation(function: str, a: float, b: float, expected: object) -> None:
    net = Net()
    x = net.input((5,))
    found = one(net, net.activation(x, function, a, b), {x: [-8, -1, 0, 0.5, 8]})
    np.testing.assert_allclose(found, np.asarray(expected, float), rtol=1e-5, atol=1e-6)


def test_permute_and_transpose_are_inverse() -> None:
    x = np.arange(30.0).reshape(1, 2, 3, 5)
    net = Net()
    given = net.input(x.shape)
    net.output(net.permute(given, (0, 2, 3, 1)))
    net.output(net.transpose(given, (0, 2, 3, 1)))
    net.output(net.transpose(net.permute(given, (0, 2, 3, 1)), (0, 2, 3, 1)))
    permuted, transposed, both = evaluate(net.graph, {given: x})
    assert permuted.shape == (1, 5, 2, 3)
    assert transposed.shape == (1, 3, 5, 2)
    np.testing.assert_array_equal(permuted, x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(transposed, x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(both, x)


@pytest.mark.parametrize(
    ("kind", "method", "expected"),
    [
        ("Average", "IgnoreValue", 4 / 9),
        ("Average", "Exclude", 4.0),
        ("L2", "IgnoreValue", 4 / 3),
        ("L2", "Exclude", 4.0),
        ("Max", "Exclude", 4.0),
    ],
)
def test_pooling_divides_by(kind: str, method: str, expected: float) -> None:
    net = Net()
    x = net.input((1, 1, 1, 1))
    pads = dict.fromkeys(("padLeft", "padRight", "padTop", "padBottom"), 1)
    pool = net.pool(x, (3, 3), kind, paddingMethod=method, **pads)
    assert one(net, pool, {x: [[[[4.0]]]]}).item() == pytest.approx(expected, rel=1e-6)


def test_max_pooling_leaves_padding_out_and_gives_0_over_nothing_else() -> None:
    net = Net()
    x = net.input((1, 1, 2, 1))
    out = TensorInfo((1, 1, 3, 1))
    pool = net.pool(x, (1, 1), "Max", stride=(1, 1), padRight=1, output=out)
    np.testing.assert_array_equal(one(net, pool, {x: [[[[-3.0], [-4.0]]]]}).reshape(-1), [-3, -4, 0])


def test_average_over_the_edge_of_the_pads() -> None:
    """Rounded up, the last window hangs over: what is beyond the pads does not count."""
    net = Net()
    x = net.input((1, 1, 3, 1))
    out = TensorInfo((1, 1, 2, 1))
    pool = net.pool(x, (1, 2), "Average", stride=(1, 2), output=out, outputShapeRounding="Ceiling")
    np.testing.assert_allclose(one(net, pool, {x: [[[[2.0], [4.0], [6.0]]]]}).reshape(-1), [3, 6])


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        ("Constant", 7.0, [7, 1, 2, 3, 7, 7]),
        ("Reflect", 0.0, [2, 1, 2, 3, 2, 1]),
        ("Symmetric", 0.0, [1, 1, 2, 3, 3, 2]),
    ],
)
def test_pad(mode: str, value: float, expected: list[float]) -> None:
    net = Net()
    x = net.input((3,))
    np.testing.assert_array_equal(one(net, net.pad(x, [(1, 2)], value, mode), {x: [1, 2, 3]}), expected)


def test_pad_value_of_a_quantized_tensor_counts_as_stored() -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((1,), quantization_scale=0.5, quantization_offset=128)
    np.testing.assert_array_equal(one(net, net.pad(x, [(1, 0)], 128.0), {x: [3]}), [128, 3])


def test_quantized_relu_clamps_at_the_zero_point() -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((3,), quantization_scale=0.1, quantization_offset=10)
    other = TensorInfo((3,), "QAsymmU8", 0.05, 0)
    net.output(net.activation(x))
    net.output(net.activation(x, output=other))
    same, finer = evaluate(net.graph, {x: [3, 10, 17]})
    np.testing.assert_array_equal(same, [10, 10, 17])
    np.testing.assert_array_equal(finer, [0, 0, 14])


def test_quantizing_rounds_half_away_from_zero_and_saturates() -> None:
    net = Net()
    x = net.input((7,))
    info = TensorInfo((7,), "QAsymmS8", 0.5, 3)
    found = one(net, net.layer("Quantize", x, outputs=(info,)), {x: [0.25, -0.25, 0.24, 0.75, -0.75, 1e9, -1e9]})
    np.testing.assert_array_equal(found, [4, 2, 3, 5, 1, 127, -128])


def test_depthwise_weights_in_both_layouts() -> None:
    """Output channel i * M + m, of [M,I,H,W] and of [1,H,W,I*M]."""
    x = np.array([1.0, 10.0]).reshape(1, 1, 1, 2)
    old = Net(form="member", feature_versions=(1, 0, 0))
    given = old.input(x.shape)
    assert one(old, old.depthwise(given, np.array([[1, 2], [3, 4]]).reshape(2, 2, 1, 1)), {given: x}).reshape(
        -1
    ).tolist() == [1, 3, 20, 40]
    new = Net()
    given = new.input(x.shape)
    assert one(new, new.depthwise(given, np.array([1, 2, 3, 4]).reshape(1, 1, 1, 4)), {given: x}).reshape(
        -1
    ).tolist() == [1, 2, 30, 40]


def test_per_axis_weights_and_bias() -> None:
    net = Net(data_type="QAsymmS8")
    x = net.input((1, 1, 1, 1), quantization_scale=0.5, quantization_offset=1)
    weights = Tensor.of(np.array([[2], [3]]).reshape(2, 1, 1, 1), "QSymmS8", quantization_scales=(0.5, 2.0))
    bias = Tensor.of([4, 8], "Signed32", quantization_scales=(0.25, 1.0))
    out = TensorInfo((1, 1, 1, 2), "QAsymmS8", 1.0, -2)
    found = one(net, net.conv(x, weights, bias, output=out), {x: [[[[5]]]]})
    np.testing.assert_array_equal(found.reshape(-1), [1 * 2 + 1 - 2, 6 * 2 + 8 - 2])


def test_scales_of_a_float_tensor_mean_nothing() -> None:
    net = Net()
    x = net.input((1, 1, 1, 1))
    weights = Tensor.of(np.ones((2, 1, 1, 1)), quantization_scales=(0.5, 2.0))
    bias = Tensor.of([1, 2], quantization_scales=(0.25, 4.0))
    np.testing.assert_array_equal(one(net, net.conv(x, weights, bias), {x: [[[[5]]]]}).reshape(-1), [6, 7])


def test_fully_connected_both_ways_round() -> None:
    weights = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    net = Net()
    x = net.input((1, 2))
    net.output(net.fully_connected(x, weights, [1, 1, 1]))
    net.output(net.fully_connected(x, weights.T, transposeWeightsMatrix=True))
    plain, flipped = evaluate(net.graph, {x: [[1, 10]]})
    np.testing.assert_array_equal(plain, [[42, 53, 64]])
    np.testing.assert_array_equal(flipped, [[41, 52, 63]])


def test_convolution_3d() -> None:
    random = np.random.default_rng(1)
    x, w = random.uniform(-1, 1, (1, 3, 4, 5, 2)), random.uniform(-1, 1, (2, 2, 3, 2, 3))
    net = Net()
    given = net.input(x.shape)
    found = one(net, net.conv3d(given, w, [1, 2, 3], padFront=1, padLeft=1, strideY=2), {given: x})
    padded = np.pad(x, [(0, 0), (1, 0), (0, 0), (1, 0), (0, 0)])
    expected = np.zeros((1, 3, 2, 4, 3))
    for z, y, across in np.ndindex(3, 2, 4):
        window = padded[0, z : z + 2, 2 * y : 2 * y + 2, across : across + 3]
        expected[0, z, y, across] = np.tensordot(window, w, 4) + np.array([1, 2, 3])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_space_and_depth_and_batch() -> None:
    x = np.arange(16.0).reshape(1, 2, 2, 4)
    net = Net()
    given = net.input(x.shape)
    depth = net.layer("DepthToSpace", given, outputs=((1, 4, 4, 1),), params={"blockSize": 2, "dataLayout": "NHWC"})
    net.output(depth)
    net.output(net.layer("SpaceToDepth", depth, outputs=((1, 2, 2, 4),), params={"blockSize": 2, "dataLayout": "NHWC"}))
    blocks = {"blockShape": [2, 2], "dataLayout": "NHWC"}
    batch = net.layer("SpaceToBatchNd", given, outputs=((4, 1, 1, 4),), params={**blocks, "padList": [0, 0, 0, 0]})
    net.output(batch)
    net.output(net.layer("BatchToSpaceNd", batch, outputs=((1, 2, 2, 4),), params={**blocks, "crops": [0, 0, 0, 0]}))
    spread, back, batches, again = evaluate(net.graph, {given: x})
    np.testing.assert_array_equal(spread[0, :, :, 0], [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]])
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(batches[:, 0, 0, 0], [0, 4, 8, 12])
    np.testing.assert_array_equal(again, x)


def test_strided_slice() -> None:
    net = Net()
    x = net.input((4, 5))
    params = {"begin": [-1, 1], "end": [0, 0], "stride": [-2, 2], "endMask": 3}
    found = one(net, net.layer("StridedSlice", x, outputs=((2, 2),), params=params), {x: np.arange(20).reshape(4, 5)})
    np.testing.assert_array_equal(found, [[16, 18], [6, 8]])


def test_batch_norm_eps_is_inside_the_root() -> None:
    net = Net()
    x = net.input((1, 1, 1, 2))
    norm = net.batch_norm(x, [4, 3], [1, -1], [0.5, 0.25], [3, 8], eps=1.0)
    np.testing.assert_allclose(one(net, norm, {x: np.ones((1, 1, 1, 2))}).reshape(-1), [2, -0.25], rtol=1e-6)


def test_float16_is_rounded_after_every_layer() -> None:
    net = Net(data_type="Float16")
    x = net.input((1,))
    y = net.addition(net.addition(x, net.constant([2048.0])), net.constant([-2048.0]))
    assert one(net, y, {x: [0.6]}).item() == 0.0


def refused(net: Net) -> str:
    with pytest.raises(LayerInexpressible) as caught:
        evaluate(net.graph, {})
    return caught.value.reason


def test_what_cannot_be_expressed_says_why() -> None:
    net = Net()
    x = net.input((1, 4))
    net.output(net.stand_in(x, outputs=[(1, 4)], name="foreign"))
    assert refused(net) == "StandIn layer 1 'foreign' cannot be expressed: there is no expression for StandIn"

    net = Net()
    x = net.input((1, 4, 4, 1))
    net.output(net.conv(x, np.ones((1, 3, 3, 1)), output=TensorInfo((1, 3, 3, 1)), name="c"))
    assert "its parameters give shape (1, 2, 2, 1), its TensorInfo says (1, 3, 3, 1)" in refused(net)

    net = Net(data_type="Signed32")
    x = net.input((2,))
    net.output(net.binary("Division", x, x, name="d"))
    assert "it computes Div in integers" in refused(net)

    net = Net()
    x = net.input((2,))
    net.output(net.activation(x, "Swish2", name="a"))
    assert "its activationFunction 'Swish2' is unknown" in refused(net)

    net = Net()
    x = net.input((2,))
    y = net.activation(x, name="a")
    net.graph.nodes[y]["outputs"] = (replace(net.info(x), dimensionality=0, shape=()),)
    net.output(y)
    assert "the shape of its output is not known" in refused(net)


def test_a_source_without_the_output_slot_is_refused() -> None:
    net = Net()
    x = net.input((2,))
    y = net.activation(x, name="a")
    net.output(net.activation(y, name="b"))
    net.graph.edges[y, y + 1]["slots"] = ((3, 0),)
    assert Source(y, 3).slot == 3
    assert "it reads an output that its source does not have" in refused(net)
