"""The folds that compute, judged by real Arm NN: networks of each kind run before and after.

Where weights change, max|x-y| <= 1e-5 * max|x| in Float32; where only layers go or an activation takes
the place of others, every bit. Padding is judged against the written-out sum, since Arm NN's Optimize
folds some Pads itself, and not always rightly; so are layers that a release cannot run before the fold.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.tensor import DTYPES, TensorInfo
from tests.support.evaluate import evaluate
from tests.support.folding import ARITHMETIC, fold
from tests.support.nets import Net
from tests.support.real_armnn import RealArmnn

TOLERANCE = {"float32": 1e-5, "float16": 2e-3}
"""Of the largest value. Float16 keeps 11 bits; weights and outputs are rounded to them at other points."""

FORMS = {"20.08": ("member", (1, 0, 0)), "21.11": ("member", (1, 1, 0)), "23.08": ("constant", (1, 1, 1))}
"""How files of a release hold the weights of convolutions, and featureVersions that say so to 23.08."""

JUDGES = {"20.08": "20.08", "21.11": "23.08", "23.08": "23.08"}
"""The release that runs such files, with Constants as operands in them."""


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def outcome(real_armnn: RealArmnn, graph: Network, release: str, x: np.ndarray | None = None) -> np.ndarray:
    """The one output of a network: its values as stored, for seeded inputs or those given."""
    inputs = None if x is None else {graph.nodes[graph.graph["inputs"][0]]["name"]: x}
    (output,) = real_armnn.run(fe.dumps(graph), release, seed=3, inputs=inputs, limits=(-2, 2)).outputs
    return output.values


def close(expected: np.ndarray, found: np.ndarray) -> bool:
    largest = np.abs(expected.astype(np.float64)).max()
    assert np.isfinite(largest)
    assert largest > 0
    return bool(np.abs(expected.astype(np.float64) - found).max() <= TOLERANCE[found.dtype.name] * largest)


def linear(kind: str, layout: str, files: str, data_type: str = "Float32", bias: bool = True) -> tuple[Net, int]:
    """A layer of three input and four output channels, random parameters. One image, as 20.08 has it."""
    form, versions = FORMS[files]
    net = Net(form=form, layout=layout, feature_versions=versions, data_type=data_type)
    values = drawn(1, 4) if bias else None
    if kind == "FullyConnected":
        x = net.input((3, 5))
        weights = drawn(2, 4, 5)
        if layout == "NHWC":
            return net, net.fully_connected(x, weights, values, transposeWeightsMatrix=True)
        return net, net.fully_connected(x, weights.T, values)
    if kind == "Convolution3d":
        return net, net.conv3d(net.input((1, 3, 4, 4, 3)), drawn(2, 2, 2, 2, 3, 4), values)
    x = net.input((1, 6, 5, 3) if layout == "NHWC" else (1, 3, 6, 5))
    if kind == "BatchNormalization":
        return net, net.batch_norm(x, drawn(3, 3), drawn(4, 3), drawn(5, 3), drawn(6, 3) ** 2)
    if kind == "DepthwiseConvolution2d":
        weights = drawn(2, 2, 3, 2, 2) if versions[1] == 0 else drawn(2, 1, 2, 2, 6)
        return net, net.depthwise(x, weights, drawn(1, 6) if bias else None, padTop=1)
    make = net.conv if kind == "Convolution2d" else net.transpose_conv
    weights = drawn(2, 4, 3, 2, 3) if layout == "NHWC" else drawn(2, 4, 3, 3, 2)
    return net, make(x, weights, values, strideX=2)


def channels(net: Net, layer: int, layout: str) -> tuple[int, ...]:
    """Shape of a Constant with one value per channel of a layer, of the layer's rank as 20.08 wants it."""
    shape = net.info(layer).shape
    axis = 1 if layout == "NCHW" and len(shape) == 4 else len(shape) - 1
    return tuple(n if i == axis else 1 for i, n in enumerate(shape))


CASES = [
    *product(
        ("Convolution2d", "DepthwiseConvolution2d", "TransposeConvolution2d", "BatchNormalization"),
        ("NHWC", "NCHW"),
        ("20.08", "21.11", "23.08"),
    ),
    *product(("FullyConnected",), ("NHWC", "NCHW"), ("20.08", "23.08")),
    ("Convolution3d", "NHWC", "23.08"),
]


@pytest.mark.parametrize(("kind", "layout", "files"), CASES)
def test_scale_and_shift(real_armnn: RealArmnn, kind: str, layout: str, files: str) -> None:
    """(layer · c − d) / e + f, each constant on the side where it may be, one of them a single number."""
    for bias, spelling in ((True, "old"), (False, "new" if files == "23.08" else "old")):
        net, layer = linear(kind, layout, files, bias=bias)
        net.spelling = spelling
        shape = channels(net, layer, layout)
        one = (1,) * len(shape)
        x = net.multiplication(net.constant(drawn(7, *shape)), layer)
        x = net.binary("Subtraction", net.constant(drawn(8, *shape)), x)
        x = net.binary("Division", x, net.constant(np.full(one, 0.7)))
        x = net.binary("Subtraction", net.addition(x, net.constant(drawn(9, *shape))), net.constant(np.full(one, 0.1)))
        net.output(x)
        fused = fold(net.graph, "scale", "shift")
        assert fused.nodes[x]["type"] == kind
        release = JUDGES[files]
        assert close(outcome(real_armnn, net.graph, release), outcome(real_armnn, fused, release))


@pytest.mark.parametrize("kind", ["Convolution2d", "DepthwiseConvolution2d", "FullyConnected", "BatchNormalization"])
@pytest.mark.parametrize("files", ["20.08", "23.08"])
def test_scale_and_shift_in_half_precision(real_armnn: RealArmnn, kind: str, files: str) -> None:
    net, layer = linear(kind, "NHWC", files, "Float16")
    shape = channels(net, layer, "NHWC")
    x = net.addition(net.multiplication(layer, net.constant(drawn(7, *shape))), net.constant(drawn(8, *shape)))
    net.output(x)
    fused = fold(net.graph, "scale", "shift")
    release = JUDGES[files]
    assert close(outcome(real_armnn, net.graph, release), outcome(real_armnn, fused, release))


@pytest.mark.parametrize("shape", [(1,), (4,), (1, 1, 4)])
def test_constants_of_lower_rank(real_armnn: RealArmnn, shape: tuple[int, ...]) -> None:
    """23.08 aligns them at their last axis, and takes no scalars here; 20.08 takes neither."""
    net, layer = linear("Convolution2d", "NHWC", "23.08")
    x = net.multiplication(layer, net.constant(drawn(7, *shape)))
    net.output(x)
    fused = fold(net.graph, "scale")
    assert close(outcome(real_armnn, net.graph, "23.08"), outcome(real_armnn, fused, "23.08"))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_batch_norm_chain(real_armnn: RealArmnn, release: str, layout: str) -> None:
    net, layer = linear("BatchNormalization", layout, release)
    for seed in (20, 30):
        parts = [drawn(seed + i, 3) for i in range(4)]
        layer = net.batch_norm(layer, *parts[:3], parts[3] ** 2, eps=0.1)
    net.output(layer)
    fused = fold(net.graph, "batch-norm-chain")
    assert close(outcome(real_armnn, net.graph, release), outcome(real_armnn, fused, release))


# Padding


def stored(values: np.ndarray, info: TensorInfo) -> np.ndarray:
    """Real numbers as a tensor of a TensorInfo stores them."""
    if "Q" not in info.data_type:
        return values.astype(info.dtype)
    return np.rint(values / info.quantization_scale + info.quantization_offset).astype(info.dtype)


def judged_by_sum(real_armnn: RealArmnn, net: Net, release: str, tolerance: float = 0.0) -> Network:
    """The folded network on real Arm NN gives what NumPy computes of the one before."""
    fused = fold(net.graph, "pad")
    info = net.info(0)
    raw = stored(np.random.default_rng(4).uniform(-2, 2, info.shape), info)
    real = raw.astype(np.float64)
    if "Q" in info.data_type:
        real = info.quantization_scale * (real - info.quantization_offset)
    expected = evaluate(net.graph, {0: real})[0]
    found = outcome(real_armnn, fused, release, raw)
    if "Q" in info.data_type:
        (output,) = net.graph.pred[net.graph.graph["outputs"][0]]
        grid = net.info(output)
        off = np.abs(found.astype(np.int64) - stored(expected, grid).astype(np.int64))
        assert off.max() <= 1  # of a step: sums in Float32 round ties elsewhere
        assert np.mean(off) < 0.01
    else:
        assert close(expected, found)
    return fused


PADS = ((1, 2), (0, 1))
GRIDS = {
    "QAsymmU8": {"quantization_scale": 1 / 64, "quantization_offset": 128},
    "QAsymmS8": {"quantization_scale": 1 / 32, "quantization_offset": -5},
    "QSymmS16": {"quantization_scale": 1 / 1024, "quantization_offset": 0},
}


def spatial(layout: str, pads: Any = PADS) -> list[tuple[int, int]]:
    return [(0, 0), *pads, (0, 0)] if layout == "NHWC" else [(0, 0), (0, 0), *pads]


@pytest.mark.parametrize("kind", ["Convolution2d", "DepthwiseConvolution2d"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("files", ["20.08", "21.11", "23.08"])
def test_pad_of_convolutions(real_armnn: RealArmnn, kind: str, layout: str, files: str) -> None:
    form, versions = FORMS[files]
    for own, data_type in (({}, "Float32"), ({"padTop": 2, "padRight": 1}, "Float32"), ({}, "Float16")):
        net = Net(form=form, layout=layout, feature_versions=versions, data_type=data_type)
        x = net.pad(net.input((1, 5, 4, 3) if layout == "NHWC" else (1, 3, 5, 4)), spatial(layout))
        if kind == "DepthwiseConvolution2d":
            weights = drawn(2, 2, 3, 3, 2) if versions[1] == 0 else drawn(2, 1, 3, 2, 6)
            net.output(net.depthwise(x, weights, drawn(1, 6), **own))
        else:
            weights = drawn(2, 4, 3, 2, 3) if layout == "NHWC" else drawn(2, 4, 3, 3, 2)
            net.output(net.conv(x, weights, drawn(1, 4), strideY=2, **own))
        judged_by_sum(real_armnn, net, JUDGES[files])


@pytest.mark.parametrize("data_type", GRIDS)
@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_pad_of_quantized_convolutions(real_armnn: RealArmnn, release: str, data_type: str) -> None:
    """The Pad writes the zero point; for the convolution that is nothing."""
    form, versions = FORMS[release]
    grid = GRIDS[data_type]
    net = Net(form=form, feature_versions=versions, data_type=data_type)
    x = net.pad(net.input((1, 5, 4, 3), **grid), spatial("NHWC"), grid["quantization_offset"])
    span = {"QAsymmU8": 255, "QAsymmS8": 127, "QSymmS16": 3000}[data_type]
    raw = np.random.default_rng(2).integers(0, span, (4, 3, 2, 3)).astype(DTYPES[data_type])
    info = TensorInfo(
        raw.shape, data_type, quantization_scale=1 / 4096, quantization_offset=grid["quantization_offset"]
    )
    weights = replace(net.tensor(raw, data_type), info=info)
    bias_scale = float(np.float32(grid["quantization_scale"]) * np.float32(1 / 4096))
    bias = net.tensor(np.arange(4) * 100, "Signed32", quantization_scale=bias_scale)
    shape = (1, net.info(x).shape[1] - 2, net.info(x).shape[2] - 1, 4)
    net.output(net.conv(x, weights, bias, output=TensorInfo(shape, data_type, **grid)))
    judged_by_sum(real_armnn, net, release)


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_pad_of_a_file_that_20_08_cannot_run(real_armnn: RealArmnn, corpus: Path, release: str) -> None:
    """Its Optimize puts the Pad's pads in the place of the convolution's own; the folded file runs."""
    graph = fe.load(corpus / f"handmade-{release}/pad_conv_with_own_padding.armnn")
    fused = fold(graph, "pad")
    info = graph.nodes[graph.graph["inputs"][0]]["outputs"][0]
    x = drawn(1, *info.shape).astype(np.float32)
    binding = graph.nodes[graph.graph["inputs"][0]]["binding_id"]
    (expected,) = evaluate(graph, {binding: x}).values()
    assert close(expected, outcome(real_armnn, fused, release, x))


def test_pad_of_convolution_3d(real_armnn: RealArmnn) -> None:
    net = Net()
    x = net.pad(net.input((1, 3, 3, 3, 2)), [(0, 0), (1, 0), (2, 1), (0, 1), (0, 0)])
    net.output(net.conv3d(x, drawn(2, 2, 2, 2, 2, 3), drawn(1, 3), padBack=1, strideX=2))
    judged_by_sum(real_armnn, net, "23.08")


@pytest.mark.parametrize(
    ("algorithm", "own", "data_type"),
    [
        ("Max", {}, "Float32"),
        ("Max", {"padTop": 1, "padLeft": 1}, "Float32"),
        ("Max", {"outputShapeRounding": "Ceiling"}, "Float32"),
        ("Max", {}, "QAsymmU8"),
        ("Max", {}, "QAsymmS8"),
        ("Max", {}, "QSymmS16"),
        ("Average", {}, "Float32"),
        ("Average", {"paddingMethod": "Exclude"}, "Float32"),
        ("Average", {"padTop": 1, "padLeft": 1, "paddingMethod": "IgnoreValue"}, "Float32"),
        ("Average", {}, "Float16"),
        ("L2", {}, "Float32"),
    ],
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_pad_of_pooling(
    real_armnn: RealArmnn, release: str, layout: str, algorithm: str, own: dict[str, Any], data_type: str
) -> None:
    if algorithm == "L2" and release == "20.08":
        pytest.skip("20.08 does not load L2 pooling")
    grid = GRIDS.get(data_type, {})
    value = 0.0
    if algorithm == "Max":
        value = float(np.iinfo(DTYPES[data_type]).min if grid else np.finfo(DTYPES[data_type]).min)
    net = Net(layout=layout, feature_versions=FORMS[release][1], data_type=data_type)
    x = net.input((1, 5, 4, 3) if layout == "NHWC" else (1, 3, 5, 4), **grid)
    # rounded up, the last window begins in the picture and ends behind its padding
    kernel, stride = ((4, 2), (5, 1)) if "outputShapeRounding" in own else ((3, 2), (2, 1))
    net.output(net.pool(net.pad(x, spatial(layout), value), kernel, algorithm, stride=stride, **own))
    judged_by_sum(real_armnn, net, release)


# Activations


def bit_equal(real_armnn: RealArmnn, net: Net, release: str, *folds: str) -> None:
    fused = fold(net.graph, *folds)
    before, after = (outcome(real_armnn, graph, release) for graph in (net.graph, fused))
    assert before.dtype == after.dtype
    assert before.max() > before.min()
    assert np.array_equal(before, after)  # +0 and -0 are equal


@pytest.mark.parametrize("data_type", ["Float32", "Float16", *GRIDS])
@pytest.mark.parametrize("outer", ["Minimum", "Maximum"])
@pytest.mark.parametrize("files", ["20.08", "21.11", "23.08"])
def test_clamp(real_armnn: RealArmnn, files: str, outer: str, data_type: str) -> None:
    """In four orders of operands; quantized bounds on the tensor's grid."""
    grid = GRIDS.get(data_type, {})
    for swaps in product([False, True], repeat=2):
        net = Net(feature_versions=FORMS[files][1], data_type=data_type)
        net.spelling = "new" if files == "23.08" else "old"
        x = net.input((1, 8, 8, 3), **grid)
        for kind, swap in zip(("Maximum" if outer == "Minimum" else "Minimum", outer), swaps, strict=True):
            value = np.full((1, 1, 1, 1), 0.75 if kind == "Minimum" else -0.5)
            values = stored(value, TensorInfo((), data_type, **grid))
            constant = net.constant(values, **grid)
            x = net.binary(kind, *((constant, x) if swap else (x, constant)), output=net.info(0))
        net.output(x)
        bit_equal(real_armnn, net, JUDGES[files], "clamp")


CHAINS = [
    (("ReLu",), ("BoundedReLu", 1, -1)),
    (("BoundedReLu", 1, -1), ("ReLu",)),
    (("BoundedReLu", 1.3, -0.7), ("BoundedReLu", 0.9, -1)),
    (("LeakyReLu", 0.1), ("ReLu",)),
    (("Sigmoid",), ("BoundedReLu", 1, 0)),
    (("TanH", 1, 1), ("BoundedReLu", 1, -1)),
    (("Square",), ("Abs",)),
    (("Abs",), ("LeakyReLu", 0.1)),
]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_activation_chain(real_armnn: RealArmnn, release: str, chain: tuple[tuple[Any, ...], ...]) -> None:
    for data_type in ("Float32", "Float16", *GRIDS):
        net = Net(data_type=data_type)
        x = net.input((1, 8, 8, 3), **GRIDS.get(data_type, {}))
        for function in chain:
            x = net.activation(x, *function)
        net.output(x)
        bit_equal(real_armnn, net, release, "activation-chain")


@pytest.mark.parametrize(
    "chain",
    [
        (("Linear", 2, 0.5), ("Linear", -0.7, 3)),
        (("LeakyReLu", 0.3), ("LeakyReLu", 0.4)),
        (("TanH", 1, 0.5), ("Linear", 3, 0)),
        (("Linear", 3, 0), ("TanH", 2, 0.3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_slopes_that_multiply(real_armnn: RealArmnn, release: str, chain: tuple[tuple[Any, ...], ...]) -> None:
    for data_type in ("Float32", "Float16"):
        net = Net(data_type=data_type)
        x = net.input((1, 8, 8, 3))
        for function in chain:
            x = net.activation(x, *function)
        net.output(x)
        fused = fold(net.graph, "activation-chain")
        assert close(outcome(real_armnn, net.graph, release), outcome(real_armnn, fused, release))


@pytest.mark.parametrize("release", ["20.08", "23.08"])
@pytest.mark.parametrize(
    ("function", "data_type", "grid"),
    [
        (("ReLu",), "QAsymmU8", {"quantization_scale": 6 / 255}),
        (("BoundedReLu", 6, 0), "QAsymmU8", {"quantization_scale": 6 / 255}),
        (("BoundedReLu", 6, 0), "QAsymmU8", {"quantization_scale": 0.02353}),
        (("BoundedReLu", 6, 0), "QAsymmS8", {"quantization_scale": 6 / 255, "quantization_offset": -128}),
        (("Linear", 1, 0), "Float32", {}),
        (("Linear", 1, 0), "QSymmS16", {"quantization_scale": 0.001}),
    ],
    ids=str,
)
def test_noop_activation(
    real_armnn: RealArmnn, release: str, function: tuple[Any, ...], data_type: str, grid: dict[str, Any]
) -> None:
    """Over a Reshape, with every value of a byte."""
    net = Net(data_type=data_type)
    x = net.input((1, 256), **grid)
    root = net.activation(net.reshape(x, (256, 1)), *function)
    net.output(root)
    fused = fold(net.graph, "noop-activation")
    raw = np.arange(256).astype(DTYPES[data_type]).reshape(1, 256)
    before, after = (outcome(real_armnn, graph, release, raw) for graph in (net.graph, fused))
    assert np.array_equal(before, after)
    assert np.array_equal(after.reshape(-1), raw.reshape(-1))


def test_everything_meets(real_armnn: RealArmnn) -> None:
    """Pad, convolution, factor, batch norm, summand and a written-out clamp over a ReLu: two layers are left."""
    for files in ("20.08", "23.08"):
        form, versions = FORMS[files]
        net = Net(form=form, feature_versions=versions)
        x = net.pad(net.input((1, 6, 6, 3)), spatial("NHWC"))
        x = net.multiplication(net.conv(x, drawn(2, 4, 3, 3, 3)), net.constant(drawn(3, 1, 1, 1, 4)))
        x = net.batch_norm(x, *(drawn(i, 4) for i in (4, 5, 6)), drawn(7, 4) ** 2 + 0.1)
        x = net.activation(net.addition(x, net.constant(drawn(8, 1, 1, 1, 4))), "ReLu")
        x = net.binary("Maximum", x, net.constant(np.full((1, 1, 1, 1), -1.0)))
        x = net.binary("Minimum", net.constant(np.full((1, 1, 1, 1), 0.8)), x)
        net.output(x)
        fused = fold(net.graph, "pad", "scale", "batch-norm", "shift", "clamp", "activation-chain")
        types = [node["type"] for node in fused.nodes.values() if node["type"] != "Constant"]
        assert sorted(types) == ["Activation", "Convolution2d", "Input", "Output"]
        assert close(outcome(real_armnn, net.graph, JUDGES[files]), outcome(real_armnn, fused, JUDGES[files]))
        again = fe.fuse(fused, [rule for rule in fe.load_rules("armnn") if rule.name in ARITHMETIC])
        assert fe.dumps(again) == fe.dumps(fused)
