"""Law: whatever the default rules fold, the network computes what it did, and folding again changes nothing.

Random networks of pieces that fold, meet, or must be left alone, judged by NumPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

import fusion_engine as fe
from fusion_engine.network import Network
from tests.support.evaluate import evaluate, layer_values
from tests.support.folding import ARITHMETIC
from tests.support.nets import Net

RULES = fe.load_rules("armnn")

TOLERANCE = {"Float32": 1e-6, "Float16": 4e-3}
"""Of the largest value of any layer, for each piece: one rounding of a parameter, and some room."""

GRIDS = {
    "QAsymmU8": {"quantization_scale": 0.0625, "quantization_offset": 100},
    "QAsymmS8": {"quantization_scale": 0.03, "quantization_offset": -128},
    "QSymmS16": {"quantization_scale": 0.001, "quantization_offset": 0},
}


@dataclass
class Builder:
    """A network that grows by pieces drawn one after the other."""

    draw: st.DrawFn
    net: Net
    random: np.random.Generator
    at: int
    grid: dict[str, Any] = field(default_factory=dict)

    def values(self, *shape: int) -> np.ndarray:
        """Numbers of both signs, none near zero."""
        return self.random.choice([-1, 1], shape) * self.random.uniform(0.3, 1.2, shape)

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    @property
    def nhwc(self) -> tuple[int, ...]:
        return self.net._nhwc(self.net.info(self.at).shape, self.net.layout)

    def in_layout(self, *shape: int) -> tuple[int, ...]:
        return self.net._in_layout(shape, self.net.layout)

    @property
    def channels(self) -> int:
        return self.nhwc[3]

    # Pieces

    def convolution(self) -> None:
        out, bias = self.integer(1, 3), self.values(3) if self.draw(st.booleans()) else None
        kernel = tuple(min(self.integer(1, 2), size) for size in self.nhwc[1:3])
        shape = (out, *kernel, self.channels) if self.net.layout == "NHWC" else (out, self.channels, *kernel)
        make = self.net.transpose_conv if self.integer(0, 3) == 0 else self.net.conv
        pads = {"padTop": self.integer(0, 1)} if make == self.net.conv else {}
        self.at = make(self.at, self.values(*shape), None if bias is None else bias[:out], **pads)

    def depthwise(self) -> None:
        many, kernel = self.integer(1, 2), tuple(min(2, size) for size in self.nhwc[1:3])
        old = self.net.graph.graph["feature_versions"][1] == 0
        shape = (many, self.channels, *kernel) if old else (1, *kernel, self.channels * many)
        bias = self.values(self.channels * many) if self.draw(st.booleans()) else None
        self.at = self.net.depthwise(self.at, self.values(*shape), bias)

    def batch_norm(self) -> None:
        parts = [self.values(self.channels) for _ in range(4)]
        self.at = self.net.batch_norm(self.at, *parts[:3], parts[3] ** 2 + 0.3, eps=0.01)

    def arithmetic(self) -> None:
        n, h, w, c = self.nhwc
        shapes = [
            (1,),
            (1, 1, 1, 1),
            self.in_layout(1, 1, 1, c),
            self.in_layout(1, 1, w, 1),
            self.in_layout(n, h, w, c),
        ]
        constant = self.net.constant(self.values(*self.draw(st.sampled_from(shapes))))
        kind = self.draw(st.sampled_from(["Multiplication", "Division", "Addition", "Subtraction"]))
        swap = kind != "Division" and self.draw(st.booleans())
        self.at = self.net.binary(kind, *((constant, self.at) if swap else (self.at, constant)))

    def pad(self) -> None:
        zero = float(self.grid.get("quantization_offset", 0))
        lowest = float(np.iinfo(self.net.info(self.at).dtype).min) if self.grid else -65504.0
        value = self.draw(st.sampled_from([zero, zero, zero, lowest, zero + 1]))
        spatial = [(self.integer(0, 1), self.integer(0, 2)) for _ in range(2)]
        pads = [(0, 0), *spatial, (0, 0)] if self.net.layout == "NHWC" else [(0, 0), (0, 0), *spatial]
        self.at = self.net.pad(self.at, pads, value)
        if value == lowest:
            self.pooling("Max")
        elif self.grid:
            self.pooling()
        else:
            self.draw(st.sampled_from([self.convolution, self.depthwise, self.pooling]))()

    def pooling(self, algorithm: str | None = None) -> None:
        kernel = tuple(min(self.integer(1, 3), size) for size in self.nhwc[1:3])
        options = {
            "padTop": self.integer(0, kernel[0] - 1),
            "padRight": self.integer(0, kernel[1] - 1),
            "paddingMethod": self.draw(st.sampled_from(["IgnoreValue", "Exclude"])),
            "outputShapeRounding": self.draw(st.sampled_from(["Floor", "Ceiling"])),
        }
        algorithm = algorithm or self.draw(st.sampled_from(["Max"] if self.grid else ["Max", "Average", "L2"]))
        stride = (self.integer(1, 2), self.integer(1, 2))
        self.at = self.net.pool(self.at, kernel, algorithm, stride=stride, **options)

    def activation(self) -> None:
        functions = [
            ("ReLu",),
            ("BoundedReLu", 1.25, -0.5),
            ("BoundedReLu", 6, 0),
            ("LeakyReLu", 0.25),
            ("Abs",),
            ("Linear", 1, 0),
            ("Linear", -0.5, 0.75),
            ("TanH", 1.5, 0.5),
            ("Sigmoid",),
            ("Elu", 0.5),
        ]
        self.at = self.net.activation(self.at, *self.draw(st.sampled_from(functions)))

    def bounds(self) -> None:
        info = self.net.info(self.at)
        for kind in self.draw(st.permutations(["Minimum", "Maximum"])):
            bound = 1.5 if kind == "Minimum" else self.draw(st.sampled_from([-0.5, 0, 2]))
            if self.grid:
                stored = round(bound / self.grid["quantization_scale"]) + self.grid["quantization_offset"]
                limits = np.iinfo(info.dtype)
                bound = min(max(stored, limits.min), limits.max)
            constant = self.net.constant([bound], **self.grid)
            operands = (constant, self.at) if self.draw(st.booleans()) else (self.at, constant)
            self.at = self.net.binary(kind, *operands, output=info)

    def tap(self) -> None:
        """Another reader: an Output in the middle."""
        self.net.output(self.at)

    def sum(self) -> None:
        self.at = self.net.addition(self.at, self.at)


def built(draw: st.DrawFn, data_type: str, pieces: list[str]) -> tuple[Builder, int]:
    form, scheme = draw(st.sampled_from([("member", 0), ("member", 1), ("constant", 1)]))
    layout = draw(st.sampled_from(["NHWC", "NCHW"]))
    spelling = draw(st.sampled_from(["old", "new"]))
    net = Net(form=form, layout=layout, data_type=data_type, spelling=spelling, feature_versions=(1, scheme, 1))
    grid = GRIDS.get(data_type, {})
    x = net.input(net._in_layout((1, 3, 4, 2), layout), **grid)
    builder = Builder(draw, net, np.random.default_rng(draw(st.integers(0, 2**32 - 1))), x, grid)
    builder.at = net.activation(x, "TanH", 2, 1)
    chosen = draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=8))
    for name in chosen:
        make: Callable[[], None] = getattr(builder, name)
        make()
    net.output(builder.at)
    return builder, len(chosen)


@st.composite
def floats(draw: st.DrawFn) -> tuple[Builder, int, str]:
    data_type = draw(st.sampled_from(["Float32", "Float32", "Float16"]))
    linear = ["convolution", "depthwise", "batch_norm", "arithmetic", "arithmetic"]
    return *built(draw, data_type, [*linear, "pad", "pooling", "activation", "bounds", "tap", "sum"]), data_type


@st.composite
def quantized(draw: st.DrawFn) -> Builder:
    data_type = draw(st.sampled_from(list(GRIDS)))
    return built(draw, data_type, ["pad", "pooling", "activation", "activation", "bounds", "tap"])[0]


def folded(graph: Network) -> Network:
    fused = fe.fuse(graph, RULES)
    assert not fe.validate(fused)
    once = fe.dumps(fused)
    assert fe.dumps(fe.fuse(fused, RULES)) == once
    for name in ARITHMETIC:
        if any(fusion.rule == name for fusion in fused.graph["fusions"]):
            event(name)
    return fused


@given(floats())
@settings(deadline=None, max_examples=200)
def test_float_networks(case: tuple[Builder, int, str]) -> None:
    builder, pieces, data_type = case
    graph = builder.net.graph
    fused = folded(graph)
    x = {0: builder.random.uniform(-2, 2, builder.net.info(0).shape)}
    values = layer_values(graph, x)
    largest = max(np.abs(np.where(value <= -65504, 0, value)).max() for value in values.values())
    before, after = evaluate(graph, x), evaluate(fused, x)
    assert set(before) == set(after)
    for key, expected in before.items():
        assert np.abs(expected - after[key]).max() <= TOLERANCE[data_type] * pieces * largest


@given(quantized())
@settings(deadline=None, max_examples=150)
def test_quantized_networks(builder: Builder) -> None:
    """Nothing that rounds is folded: every value of the grid stays."""
    graph = builder.net.graph
    fused = folded(graph)
    info = builder.net.info(0)
    limits = np.iinfo(info.dtype)
    raw = builder.random.integers(limits.min, limits.max, info.shape, endpoint=True)
    x = {0: builder.grid["quantization_scale"] * (raw - builder.grid["quantization_offset"])}
    before, after = evaluate(graph, x), evaluate(fused, x)
    assert set(before) == set(after)
    for key, expected in before.items():
        assert np.abs(expected - after[key]).max() <= 1e-9
