"""Law: a layer with a batch norm over it computes what the folded layer computes, up to one rounding per parameter.

Judged by a plain NumPy evaluation in float64 that is written from the layers' definitions and shares
nothing with the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_engine.folds import find_fold
from fusion_engine.match.binding import Match
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

FOLD = find_fold("batch-norm")
KINDS = ("Convolution2d", "DepthwiseConvolution2d", "TransposeConvolution2d", "FullyConnected", "Convolution3d")

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Case:
    """A layer: how it is stored and what it slides over."""

    kind: str
    form: str
    layout: str
    scheme: int
    data_type: str
    transposed: bool
    bias: bool
    stride: int
    pad: int
    dilation: int
    kernel: tuple[int, ...]
    channels: tuple[int, int]
    extents: tuple[int, ...]
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(KINDS))
    axes = {"FullyConnected": 0, "Convolution3d": 3}.get(kind, 2)
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    dilation = 1 if kind == "TransposeConvolution2d" else draw(st.integers(1, 2))
    form = {"TransposeConvolution2d": "member", "Convolution3d": "constant"}.get(kind)
    return Case(
        kind,
        form or draw(st.sampled_from(["member", "constant"])),
        "NHWC" if kind == "Convolution3d" else draw(st.sampled_from(["NHWC", "NCHW"])),
        draw(st.integers(0, 1)),
        draw(st.sampled_from(["Float32", "Float16"])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(1, 2)),
        draw(st.integers(0, 1)),
        dilation,
        kernel,
        (draw(st.integers(1, 4)), draw(st.integers(1, 4))),
        tuple(draw(st.integers(dilation * (k - 1) + 1, dilation * (k - 1) + 3)) for k in kernel),
        draw(st.integers(0, 2**32 - 1)),
    )


def store(case: Case, kernel: Array) -> Array:
    """``kernel`` ([*space, I, O], for depthwise [H,W,I,M]) as the file stores it."""
    match case.kind:
        case "FullyConnected":
            return kernel.T if case.transposed else kernel
        case "Convolution3d":
            return kernel
        case "DepthwiseConvolution2d" if case.scheme:
            return kernel.reshape(1, *kernel.shape[:2], -1)
        case _:
            first = kernel.transpose(3, 0, 1, 2)  # O (or M) H W I
            is_nhwc = case.layout == "NHWC" and case.kind != "DepthwiseConvolution2d"
            return first if is_nhwc else first.transpose(0, 3, 1, 2)


def load(case: Case, stored: Array) -> Array:
    """The inverse of `store`."""
    match case.kind:
        case "FullyConnected":
            return stored.T if case.transposed else stored
        case "Convolution3d":
            return stored
        case "DepthwiseConvolution2d" if case.scheme:
            return stored.reshape(*stored.shape[1:3], case.channels[0], -1)
        case "DepthwiseConvolution2d":
            return stored.transpose(2, 3, 1, 0)
        case _:
            return stored.transpose(1, 2, 3, 0) if case.layout == "NHWC" else stored.transpose(2, 3, 1, 0)


def evaluate(case: Case, x: Array, kernel: Array, bias: Array) -> Array:
    """The layer on ``x`` ([N, *space, I], channels last)."""
    if case.kind == "FullyConnected":
        return x.reshape(len(x), -1) @ kernel + bias
    space = kernel.shape[:-2]
    s, p, d = case.stride, case.pad, case.dilation
    if case.kind == "TransposeConvolution2d":
        full = [s * (n - 1) + k for n, k in zip(x.shape[1:-1], space, strict=True)]
        out = np.zeros((len(x), *full, kernel.shape[-1]))
        for at in product(*map(range, space)):
            window = tuple(slice(a, a + s * (n - 1) + 1, s) for a, n in zip(at, x.shape[1:-1], strict=True))
            out[(slice(None), *window)] += x @ kernel[at]
        crop = tuple(slice(p, n - p) for n in full)
        return out[(slice(None), *crop)] + bias
    padded = np.pad(x, [(0, 0), *[(p, p)] * len(space), (0, 0)])
    sizes = [(n - (d * (k - 1) + 1)) // s + 1 for n, k in zip(padded.shape[1:-1], space, strict=True)]
    out = np.zeros((len(x), *sizes, bias.size))
    for at in product(*map(range, space)):
        window = tuple(slice(d * a, d * a + s * (n - 1) + 1, s) for a, n in zip(at, sizes, strict=True))
        piece = padded[(slice(None), *window)]
        if case.kind == "DepthwiseConvolution2d":
            out += (piece[..., None] * kernel[at]).reshape(*piece.shape[:-1], -1)
        else:
            out += piece @ kernel[at]
    return out + bias


def build(case: Case, stored: Array, bias: Array | None, statistics: dict[str, Array]) -> tuple[Net, int]:
    net = Net(form=case.form, data_type=case.data_type, layout=case.layout, feature_versions=(1, case.scheme, 1))
    channels = case.channels[0]
    pads = ("padLeft", "padRight", "padTop", "padBottom")
    sliding: dict[str, Any] = {"strideX": case.stride, "strideY": case.stride, **dict.fromkeys(pads, case.pad)}
    if case.kind in ("Convolution2d", "DepthwiseConvolution2d", "Convolution3d"):
        sliding |= {"dilationX": case.dilation, "dilationY": case.dilation}
    if case.kind == "FullyConnected":
        x = net.input((2, channels))
        layer = net.fully_connected(x, stored, bias, transposeWeightsMatrix=case.transposed)
    elif case.kind == "Convolution3d":
        x = net.input((2, *case.extents, channels))
        deep = {"strideZ": case.stride, "padFront": case.pad, "padBack": case.pad, "dilationZ": case.dilation}
        layer = net.conv3d(x, stored, bias, **sliding, **deep)
    else:
        x = net.input((2, *case.extents, channels) if case.layout == "NHWC" else (2, channels, *case.extents))
        make = {
            "Convolution2d": net.conv,
            "DepthwiseConvolution2d": net.depthwise,
            "TransposeConvolution2d": net.transpose_conv,
        }[case.kind]
        layer = make(x, stored, bias, **sliding)
    norm = net.batch_norm(layer, **statistics, eps=0.01)
    net.output(norm)
    return net, norm


@given(cases())
@settings(deadline=None, max_examples=150)
def test_folding_changes_no_output(case: Case) -> None:
    random = np.random.default_rng(case.seed)
    inputs, outputs = case.channels
    total = inputs * outputs if case.kind == "DepthwiseConvolution2d" else outputs
    dtype = np.dtype("f4" if case.data_type == "Float32" else "f2")

    def drawn(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
        return random.uniform(low, high, shape).astype(dtype).astype(np.float64)

    kernel, bias = drawn(*case.kernel, inputs, outputs), drawn(total) if case.bias else None
    statistics = {"gamma": drawn(total), "beta": drawn(total), "mean": drawn(total)}
    statistics["variance"] = drawn(total, low=0.05, high=4.0)
    x = drawn(2, *case.extents, inputs)

    plain = evaluate(case, x, kernel, np.zeros(total) if bias is None else bias)
    deviation = np.sqrt(statistics["variance"] + np.float64(np.float32(0.01)))
    expected = statistics["gamma"] * (plain - statistics["mean"]) / deviation + statistics["beta"]

    net, norm = build(case, store(case, kernel), bias, statistics)
    workspace = Workspace(net.graph)
    below = workspace.inputs(norm)[0][1].layer
    match = Match(norm, (norm, below), (), (), (), ())
    FOLD.apply(workspace, match, FOLD.check(workspace, match))

    assert workspace.type(norm) == case.kind
    assert workspace.outputs(norm) == net.graph.nodes[norm]["outputs"]
    tensors = dict(workspace.constants(norm))
    for slot, source in workspace.parameter_inputs(norm):
        tensors[{1: "weights", 2: "biases"}[slot]] = workspace.tensor(source.layer)
    assert set(tensors) == {"weights", "biases"}
    assert bool(workspace.constants(norm)) == (case.form == "member")
    assert tensors["weights"].data.dtype == tensors["biases"].data.dtype == dtype
    folded = load(case, tensors["weights"].data.astype(np.float64))
    new_bias = tensors["biases"].data.astype(np.float64)
    found = evaluate(case, x, folded, new_bias)
    unit = float(np.finfo(dtype).eps) / 2 + 1e-12
    bound = evaluate(case, np.abs(x), np.abs(folded), np.abs(new_bias)) * 2 * unit + float(np.finfo(dtype).tiny)
    assert np.all(np.abs(found - expected) <= bound)
