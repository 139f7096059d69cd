"""The folds that move and drop judged by real Arm NN: the same bits before and after, +0 and -0 alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.tensor import TensorInfo
from tests.support.nets import Net
from tests.support.real_armnn import ArmnnFailed, RealArmnn
from tests.support.structural import fold

BOTH = ("20.08", "23.08")
P = (0, 2, 3, 1)
Q = (0, 3, 1, 2)
SWAP = (3, 1, 2, 0)
QUANTIZED = {"quantization_scale": 0.05, "quantization_offset": 0}


def same_bits(real_armnn: RealArmnn, net: Net, release: str, *rules: str) -> None:
    """Real Arm NN gives the same outputs for a network before and after rules of armnn.toml, which fire."""
    before = real_armnn.run(fe.dumps(net.graph), release, seed=3).outputs
    after = real_armnn.run(fe.dumps(fold(net.graph, *rules)), release, seed=3).outputs
    assert [(o.id, o.name, o.values.dtype, o.values.shape) for o in before] == [
        (o.id, o.name, o.values.dtype, o.values.shape) for o in after
    ]
    for x, y in zip(before, after, strict=True):
        assert x.values.astype(np.float64).any()
        np.testing.assert_array_equal(x.values, y.values)


def movements(data_type: str = "Float32", shape: tuple[int, ...] = (1, 2, 3, 5)) -> tuple[Net, int]:
    net = Net(feature_versions=(1, 1, 1))
    return net, net.input(shape, data_type, **QUANTIZED)


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("data_type", ["Float32", "Float16", "QAsymmU8", "QAsymmS8", "QSymmS16"])
@pytest.mark.parametrize("kinds", ["PP", "PT", "TP", "TT"])
def test_permute_pairs(real_armnn: RealArmnn, kinds: str, data_type: str, release: str) -> None:
    """Of a mapping that is not its own inverse: PP and TT leave one, and so do the mixed pairs of another."""
    for second in (P, (0, 1, 3, 2)):
        net, at = movements(data_type)
        for kind, mappings in zip(kinds, (P, second), strict=True):
            at = (net.permute if kind == "P" else net.transpose)(at, mappings)
        net.output(net.activation(at, "Linear", a=1.5, b=0.25))
        same_bits(real_armnn, net, release, "permutes")


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("data_type", ["Float32", "Float16", "QAsymmU8", "QAsymmS8", "QSymmS16"])
def test_reshapes_and_permutes_that_are_reshapes(real_armnn: RealArmnn, data_type: str, release: str) -> None:
    net, x = movements(data_type, (1, 4, 5, 1))
    at = net.reshape(net.permute(net.transpose(x, (0, 3, 1, 2)), P), (20, 1))
    net.output(net.reshape(at, (2, 10)))
    same_bits(real_armnn, net, release, "permute-as-reshape", "reshapes")


def elementwise(kind: str, data_type: str, release: str) -> Net:
    net, x = movements(data_type)
    at = net.permute(x, P)
    if kind in ("ReLu", "TanH"):
        at = net.activation(at, kind, 1.0, 1.0)
    elif kind == "Floor":
        at = net.layer("Floor", at)
    else:
        values = np.arange(1, 4).reshape(1, 1, 1, 3)
        c = net.constant(values, data_type, **QUANTIZED)
        at = net.binary(kind, at, c, output=net.info(at), spelling="new" if release == "23.08" else "old")
    net.output(net.permute(at, Q))
    return net


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("data_type", ["Float32", "QAsymmU8"])
@pytest.mark.parametrize("kind", ["ReLu", "TanH", "Floor", "Addition", "Multiplication", "Division", "Maximum"])
def test_permutes_upward(real_armnn: RealArmnn, kind: str, data_type: str, release: str) -> None:
    if kind == "Floor" and data_type == "QAsymmU8":
        pytest.skip("Arm NN has no quantized Floor")
    same_bits(real_armnn, elementwise(kind, data_type, release), release, "permute-upward")


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("data_type", ["Float32", "QAsymmU8"])
@pytest.mark.parametrize("kind", ["BatchToSpaceNd", "SpaceToBatchNd"])
@pytest.mark.parametrize("upper", ["permute", "transpose"])
def test_space_and_depth(real_armnn: RealArmnn, upper: str, kind: str, data_type: str, release: str) -> None:
    net, x = movements(data_type, (2, 2, 3, 8) if kind == "BatchToSpaceNd" else (2, 4, 6, 3))
    below = net.permute(x, SWAP)
    n, h, w, c = net.info(below).shape
    out = (n // 4, 2 * h, 2 * w, c) if kind == "BatchToSpaceNd" else (n * 4, h // 2, w // 2, c)
    margin = "crops" if kind == "BatchToSpaceNd" else "padList"
    params = {"blockShape": (2, 2), margin: (0, 0, 0, 0), "dataLayout": "NHWC"}
    net.output(getattr(net, upper)(net.layer(kind, below, outputs=(out,), params=params), SWAP))
    same_bits(real_armnn, net, release, "space-depth")


@pytest.mark.parametrize("release", BOTH)
def test_siblings(real_armnn: RealArmnn, release: str) -> None:
    net, x = movements()
    one, other = net.permute(x, P), net.transpose(x, Q)
    net.output(net.addition(net.reshape(one, (30,)), net.reshape(other, (30,))))
    same_bits(real_armnn, net, release, "equal-siblings")


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("data_type", ["QAsymmU8", "QAsymmS8", "QSymmS16"])
def test_quantize_pairs(real_armnn: RealArmnn, data_type: str, release: str) -> None:
    net, x = movements(data_type, (1, 30, 20))
    back = net.layer("Dequantize", net.reshape(x, (600,)), outputs=(TensorInfo((600,)),))
    net.output(net.layer("Quantize", back, outputs=(TensorInfo((600,), data_type, 0.05),)))
    same_bits(real_armnn, net, release, "quantize-pairs")


IDENTITIES: dict[str, Callable[[Net, int], int]] = {
    "Pad": lambda net, x: net.pad(x, [(0, 0)] * 4),
    "Slice": lambda net, x: net.layer("Slice", x, params={"begin": (0,) * 4, "size": (1, 2, 1, 5)}),
    "StridedSlice": lambda net, x: net.layer(
        "StridedSlice",
        x,
        params={"begin": (0, 1, 0, -5), "end": (1, 2, 9, 2), "stride": (1,) * 4, "beginMask": 2, "endMask": 8},
    ),
    "Concat": lambda net, x: net.concat(x, axis=1),
    "Splitter": lambda net, x: net.splitter(x, 1, (2,)),
    "Mean": lambda net, x: net.layer("Mean", x, params={"axis": (0, 2), "keepDims": True}),
    "Multiplication": lambda net, x: net.multiplication(x, net.constant(np.ones((1, 1, 1, 1)))),
    "Addition": lambda net, x: net.addition(net.constant(np.zeros((1, 1, 1, 5))), x),
    "Subtraction": lambda net, x: net.binary("Subtraction", x, net.constant(np.zeros((1, 1, 1, 1)))),
    "Division": lambda net, x: net.binary("Division", x, net.constant(np.ones((1, 2, 1, 5)))),
}


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("kind", IDENTITIES)
def test_identities(real_armnn: RealArmnn, kind: str, release: str) -> None:
    net, x = movements(shape=(1, 2, 1, 5))
    net.output(net.activation(IDENTITIES[kind](net, x), "Square"))
    same_bits(real_armnn, net, release, "identity-layers")


def test_reduce_and_cast(real_armnn: RealArmnn) -> None:
    net, x = movements(shape=(1, 2, 1, 5))
    at = net.layer("Reduce", x, params={"axis": (2,), "keepDims": True, "reduceOperation": "Prod"})
    net.output(net.activation(net.layer("Cast", at), "Square"))
    same_bits(real_armnn, net, "23.08", "identity-layers")


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("data_type", ["QAsymmU8", "QAsymmS8", "QSymmS16"])
@pytest.mark.parametrize(("kind", "neutral"), [("Multiplication", 20), ("Addition", 0)])
def test_quantized_neutral_operands(
    real_armnn: RealArmnn, kind: str, neutral: int, data_type: str, release: str
) -> None:
    """Stored 20 is 1 at a scale of 0.05."""
    net, x = movements(data_type, (1, 30, 20))
    c = net.constant([[[neutral]]], data_type, **QUANTIZED)
    net.output(net.reshape(net.binary(kind, x, c), (600,)))
    same_bits(real_armnn, net, release, "identity-layers")


@pytest.mark.parametrize("release", BOTH)
def test_dead_ends(real_armnn: RealArmnn, release: str) -> None:
    net, x = movements()
    net.output(net.activation(x, "Square"))
    net.layer("Floor", net.addition(net.activation(x), net.constant(np.ones((1, 1, 1, 1)))))
    same_bits(real_armnn, net, release, "dead-ends")


# Constants. Arm NN computes them at every run, in float32.


def close(real_armnn: RealArmnn, net: Net, release: str, tolerance: float) -> None:
    """Before and after the fold of constants the one output is the same to a part of its largest value."""
    before = real_armnn.run(fe.dumps(net.graph), release).outputs[0].values.astype(np.float64)
    after = real_armnn.run(fe.dumps(fold(net.graph, "constants")), release).outputs[0].values.astype(np.float64)
    assert np.abs(before).max() > 0
    assert np.abs(before - after).max() <= tolerance * np.abs(before).max()


def with_input(net: Net, constant: int) -> Net:
    net.output(net.addition(net.input(net.info(constant).shape), constant))
    return net


@pytest.mark.parametrize(
    ("data_type", "judge"), [("QAsymmU8", "20.08"), ("QAsymmS8", "23.08"), ("QSymmS16", "20.08"), ("Float16", "23.08")]
)
def test_dequantized_constants(real_armnn: RealArmnn, data_type: str, judge: str) -> None:
    """As the one release has it that reads such a Constant and does not make zeros of it when it optimizes."""
    net = Net()
    offset = {"QAsymmU8": 100, "QAsymmS8": -7}.get(data_type, 0)
    values: Any = np.arange(256) - (128 if data_type == "QAsymmS8" else 0)
    if data_type == "Float16":
        values = np.linspace(-65504, 65504, 256)
    elif data_type == "QSymmS16":
        values = values * 128 - 1
    c = net.constant(values.reshape(16, 16), data_type, quantization_scale=0.037, quantization_offset=offset)
    with_input(net, net.layer("Dequantize", c, outputs=(TensorInfo((16, 16)),)))
    expected = real_armnn.run(fe.dumps(net.graph), judge).outputs[0].values
    assert np.abs(expected).max() > 5
    fused = fe.dumps(fold(net.graph, "constants"))
    for release in BOTH:
        np.testing.assert_array_equal(real_armnn.run(fused, release).outputs[0].values, expected)


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("kind", ["Addition", "Subtraction", "Multiplication", "Division", "Minimum", "Maximum"])
@pytest.mark.parametrize("data_type", ["Float32", "Float16"])
def test_elementwise_over_constants(real_armnn: RealArmnn, data_type: str, kind: str, release: str) -> None:
    """Sums, products and quotients of float32 numbers in float64 round to what float32 arithmetic gives."""
    net = Net(data_type=data_type)
    random = np.random.default_rng(5)
    x, y = (net.constant(random.uniform(-3, 3, (1, 8, 8, 3))) for _ in range(2))
    c = net.transpose(net.binary(kind, x, y), (0, 3, 1, 2))
    with_input(net, net.reshape(c, (3, 64)))
    if data_type == "Float16" and release == "20.08":
        close(real_armnn, net, release, 2e-3)  # it rounds ties of halves away from zero
    else:
        same_bits(real_armnn, net, release, "constants")


@pytest.mark.parametrize("release", BOTH)
@pytest.mark.parametrize("data_type", ["QAsymmU8", "QSymmS16"])
@pytest.mark.parametrize("kind", ["Addition", "Subtraction", "Multiplication", "Minimum", "Maximum"])
def test_quantized_elementwise_over_constants(real_armnn: RealArmnn, kind: str, data_type: str, release: str) -> None:
    net = Net()
    random = np.random.default_rng(5)
    offsets = (0, 0, 0) if data_type == "QSymmS16" else (3, 250, 128)
    x, y = (
        net.constant(
            random.integers(0, 256, (1, 8, 8, 3)), data_type, quantization_scale=scale, quantization_offset=offset
        )
        for scale, offset in zip((0.0371, 0.0113), offsets[:2], strict=True)
    )
    out = TensorInfo((1, 8, 8, 3), data_type, 0.0249, offsets[2])
    made = net.layer("Dequantize", net.binary(kind, x, y, output=out), outputs=(TensorInfo((1, 8, 8, 3)),))
    same_bits(real_armnn, with_input(net, made), release, "constants")


FUNCTIONS = {
    "ReLu": (0, 0),
    "BoundedReLu": (1, -0.5),
    "Linear": (0.7, 0.3),
    "LeakyReLu": (0.1, 0),
    "Abs": (0, 0),
    "Square": (0, 0),
    "Sqrt": (0, 0),
    "Sigmoid": (0, 0),
    "TanH": (1.5, 0.75),
    "Elu": (1.1, 0),
    "HardSwish": (0, 0),
}


@pytest.mark.parametrize("release", BOTH)
def test_functions_of_constants(real_armnn: RealArmnn, release: str) -> None:
    """Where float32 rounds more than once, to a few units in the last place."""
    worst = {}
    for function, (a, b) in FUNCTIONS.items():
        net = Net()
        values = np.linspace(-4, 4, 101)
        c = net.constant(abs(values) if function == "Sqrt" else values)
        net.output(net.addition(net.input((101,)), net.activation(c, function, a, b)))
        zero = {"#0": np.zeros(101, np.float32)}
        before = real_armnn.run(fe.dumps(net.graph), release, inputs=zero).outputs[0].values
        after = real_armnn.run(fe.dumps(fold(net.graph, "constants")), release, inputs=zero).outputs[0].values
        worst[function] = float(np.abs(before - after).max() / np.abs(before).max())
    assert max(worst.values()) <= 2.5e-7, worst
    assert worst["ReLu"] == worst["BoundedReLu"] == worst["Abs"] == worst["Square"] == worst["Sqrt"] == 0


def test_later_releases_read_what_constants_become(real_armnn: RealArmnn) -> None:
    """23.08 rejects this file of 20.08; folded it must not run and permute the Constant without a word."""
    net = Net(feature_versions=(1, 0, 0))
    c = net.reshape(net.constant(np.arange(1, 4)), (1, 1, 1, 3))
    net.output(net.addition(net.input((1, 3, 3, 3)), c))
    with pytest.raises(ArmnnFailed, match="Permute"):
        real_armnn.run(fe.dumps(net.graph), "23.08")
    fused = fe.dumps(fold(net.graph, "constants"))
    expected = real_armnn.run(fe.dumps(net.graph), "20.08").outputs[0].values
    for release in BOTH:
        np.testing.assert_array_equal(real_armnn.run(fused, release).outputs[0].values, expected)


def test_weights_behind_layers(real_armnn: RealArmnn) -> None:
    """23.08 runs convolutions whose weights pass through Dequantize, Transpose and Reshape."""
    net = Net()
    x = net.input((1, 5, 5, 3))
    random = np.random.default_rng(1)
    w = net.constant(random.uniform(-1, 1, (27, 4)), "Float16")
    w = net.layer("Dequantize", w, outputs=(TensorInfo((27, 4)),))
    w = net.reshape(net.transpose(w, (1, 0)), (4, 3, 3, 3))
    net.output(net.conv(x, w, random.uniform(-1, 1, 4)))
    same_bits(real_armnn, net, "23.08", "constants")


def test_quantized_weights_behind_a_transpose(real_armnn: RealArmnn) -> None:
    """The scales of the output channels go along with their axis."""
    net = Net()
    scales = (0.1, 0.2, 0.3, 0.4, 0.5)
    x = net.input((1, 1, 1, 4), "QAsymmU8", quantization_scale=0.1, quantization_offset=128)
    values = np.arange(-60, 60, 6).reshape(4, 1, 1, 5)
    w = net.constant(values, "QSymmS8", quantization_scales=scales, quantization_dim=3)
    info = TensorInfo((5, 1, 1, 4), "QSymmS8", quantization_scales=scales, quantization_dim=0)
    w = net.layer("Transpose", w, outputs=(info,), params={"dimMappings": SWAP})
    net.output(net.conv(x, w, output=TensorInfo((1, 1, 1, 5), "QAsymmU8", 0.5, 128)))
    fused = fold(net.graph, "constants")
    given = {"#0": np.full((1, 1, 1, 4), 138, np.uint8)}
    found = real_armnn.run(fe.dumps(fused), "23.08", inputs=given).outputs[0].values
    sums = values.sum((0, 1, 2)) * np.float32(scales)
    np.testing.assert_array_equal(found.reshape(5), np.clip(np.rint(sums / 0.5) + 128, 0, 255))
