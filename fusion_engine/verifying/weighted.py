"""Layers with weights in ONNX: convolutions and fully connected layers; and batch normalization.

ONNX computes channels first and has weights ``[O,I,..]`` (``[I,O,..]`` transposed), so tensors and
weights are moved there and back. What the axes of Arm NN's weights are: `fusion_engine.weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fusion_engine.tensor import FLOATS
from fusion_engine.verifying.layer import Layer, Value
from fusion_engine.weights import channel_axis

__all__ = ["EXPRESSIONS"]


class _Window(NamedTuple):
    """A kernel along one axis: its size, and how it moves."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    def extent(self, size: int) -> int:
        """How often it fits."""
        return (size + self.before + self.after - self.dilation * (self.kernel - 1) - 1) // self.stride + 1


_AXES = {"X": ("padLeft", "padRight"), "Y": ("padTop", "padBottom"), "Z": ("padFront", "padBack")}


def _windows(layer: Layer, axes: str, kernel: Sequence[int], dilated: bool = True) -> list[_Window]:
    found = []
    for axis, size in zip(axes, kernel, strict=True):
        stride = layer.param(f"stride{axis}")
        dilation = layer.param(f"dilation{axis}") if dilated else 1
        if stride < 1 or dilation < 1:
            layer.refuse(f"its stride{axis} is {stride} and its dilation{axis} {dilation}")
        before, after = (layer.param(pad) for pad in _AXES[axis])
        found.append(_Window(size, stride, dilation, before, after))
    return found


def _weights(layer: Layer, rank: int) -> tuple[Value, Value | None]:
    """Weights and bias, members or inputs."""
    if layer.members.get("weights") is not None:
        weights = layer.member("weights")
        bias = layer.member("biases") if layer.param("biasEnabled") else None
    else:
        if len(layer.inputs) < (3 if layer.param("biasEnabled") else 2):
            layer.refuse("weights or bias are missing")
        weights = layer.inputs[1]
        bias = layer.inputs[2] if layer.param("biasEnabled") else None
    if len(weights.info.shape) != rank:
        layer.refuse(f"its weights have rank {len(weights.info.shape)}, not {rank}")
    return weights, bias


def _kernel(layer: Layer, weights: Value, name: str, channels: int, rank: int, axis: int = 0) -> str:
    """Numbers of moved weights, ``name``: output channels are at ``axis`` now, and per-axis scales are theirs."""
    scales = weights.info.quantization_scales
    if not scales or weights.info.canonical_type in FLOATS:
        return layer.real(Value(name, weights.info))
    if len(scales) not in (1, channels):
        layer.refuse(f"its weights have {len(scales)} quantization scales for {channels} output channels")
    shape = [-1 if i == axis else 1 for i in range(rank)] if len(scales) > 1 else [1]
    return layer.graph.op("Mul", name, layer.graph.array(np.asarray(scales, np.float32).reshape(shape)))


def _bias(layer: Layer, bias: Value | None, channels: int) -> str | None:
    """Numbers of the bias, shape ``(channels,)``."""
    if bias is None:
        return None
    if bias.info.elements != channels:
        layer.refuse(f"its bias has {bias.info.elements} values for {channels} output channels")
    scales = bias.info.quantization_scales
    flat = layer.graph.reshape(bias.name, (channels,))
    if len(scales) > 1 and bias.info.canonical_type not in FLOATS:
        if len(scales) != channels:
            layer.refuse(f"its bias has {len(scales)} quantization scales for {channels} values")
        return layer.graph.op(
            "Mul", layer.graph.cast(flat, np.float32), layer.graph.array(np.asarray(scales, np.float32))
        )
    return layer.real(Value(flat, bias.info))


def _first(layout: str) -> tuple[int, ...]:
    """The axes of a tensor of this layout, channels first."""
    return {"NHWC": (0, 3, 1, 2), "NDHWC": (0, 4, 1, 2, 3)}.get(layout, tuple(range(5 if "D" in layout else 4)))


def _back(layout: str) -> tuple[int, ...]:
    """The axes of a tensor with channels first, in this layout."""
    return {"NHWC": (0, 2, 3, 1), "NDHWC": (0, 2, 3, 4, 1)}.get(layout, tuple(range(5 if "D" in layout else 4)))


def _convolved(
    layer: Layer, kernel: str, bias: str | None, windows: Sequence[_Window], channels: tuple[int, int], group: int = 1
) -> list[str]:
    """A convolution with a kernel ``[O,I/group,..]``; ``channels`` are input and output channels."""
    g, layout = layer.graph, layer.layout
    shape = [layer.x.info.shape[axis] for axis in _first(layout)]
    if shape[1] != channels[0]:
        layer.refuse(f"its weights take {channels[0]} channels, its input has {shape[1]}")
    extents = [window.extent(size) for window, size in zip(windows, shape[2:], strict=True)]
    full = [shape[0], channels[1], *extents]
    layer.need_shape([full[axis] for axis in _back(layout)])
    found = g.op(
        "Conv",
        g.transpose(layer.real(layer.x), _first(layout)),
        kernel,
        *(() if bias is None else (bias,)),
        strides=[w.stride for w in windows],
        dilations=[w.dilation for w in windows],
        pads=[w.before for w in windows] + [w.after for w in windows],
        group=group,
    )
    return [layer.store(g.transpose(found, _back(layout)), layer.out)]


def _convolution(layer: Layer) -> list[str]:
    layer.need_rank(4)
    weights, bias = _weights(layer, 4)
    moved = layer.graph.transpose(weights.name, _first(layer.layout))
    o, i, h, w = (weights.info.shape[axis] for axis in _first(layer.layout))
    kernel = _kernel(layer, weights, moved, o, 4)
    return _convolved(layer, kernel, _bias(layer, bias, o), _windows(layer, "YX", (h, w)), (i, o))


def _depthwise(layer: Layer) -> list[str]:
    layer.need_rank(4)
    g = layer.graph
    weights, bias = _weights(layer, 4)
    inputs = layer.x.info.shape[1 if layer.layout == "NCHW" else 3]
    if layer.depthwise_scheme == 0:
        m, i, h, w = weights.info.shape
        outputs = m * i
        moved = g.reshape(g.transpose(weights.name, (1, 0, 2, 3)), (outputs, 1, h, w))
    else:
        one, h, w, outputs = weights.info.shape
        if one != 1 or inputs == 0 or outputs % inputs:
            layer.refuse(f"its weights have shape {weights.info.shape} for {inputs} channels")
        i = inputs
        moved = g.transpose(weights.name, (3, 0, 1, 2))
    kernel = _kernel(layer, weights, moved, outputs, 4)
    windows = _windows(layer, "YX", (h, w))
    return _convolved(layer, kernel, _bias(layer, bias, outputs), windows, (i, outputs), group=i)


def _convolution3d(layer: Layer) -> list[str]:
    layer.need_rank(5)
    weights, bias = _weights(layer, 5)
    d, h, w, i, o = weights.info.shape
    moved = layer.graph.transpose(weights.name, (4, 3, 0, 1, 2))
    kernel = _kernel(layer, weights, moved, o, 5)
    return _convolved(layer, kernel, _bias(layer, bias, o), _windows(layer, "ZYX", (d, h, w)), (i, o))


def _transpose_convolution(layer: Layer) -> list[str]:
    """Every input spreads over the output; what lies in the padding is dropped, what nothing reaches has the bias."""
    layer.need_rank(4)
    g, layout = layer.graph, layer.layout
    weights, bias = _weights(layer, 4)
    o, i, h, w = (weights.info.shape[axis] for axis in _first(layout))
    kernel = _kernel(layer, weights, g.transpose(weights.name, _first(layout)), o, 4)
    windows = _windows(layer, "YX", (h, w), dilated=False)
    shape = [layer.x.info.shape[axis] for axis in _first(layout)]
    wanted = [layer.out.shape[axis] for axis in _first(layout)]
    if shape[1] != i or wanted[:2] != [shape[0], o]:
        layer.refuse(f"weights {weights.info.shape} make {layer.out.shape} of {layer.x.info.shape} in {layout}")
    layer.need_room(
        [*wanted[:2], *((size - 1) * w.stride + w.kernel for size, w in zip(shape[2:], windows, strict=True))]
    )
    layer.need_room([*wanted[:2], *(w.before + extent for w, extent in zip(windows, wanted[2:], strict=True))])
    spread = g.op(
        "ConvTranspose",
        g.transpose(layer.real(layer.x), _first(layout)),
        g.transpose(kernel, (1, 0, 2, 3)),
        strides=[window.stride for window in windows],
    )
    for axis, (window, size, extent) in enumerate(zip(windows, shape[2:], wanted[2:], strict=True), 2):
        full = (size - 1) * window.stride + window.kernel
        missing = max(0, window.before + extent - full)
        pads = [(0, missing if at == axis else 0) for at in range(4)]
        spread = g.take(g.pad(spread, pads), axis, range(window.before, window.before + extent))
    found = _bias(layer, bias, o)
    if found is not None:
        spread = g.op("Add", spread, g.reshape(found, (1, o, 1, 1)))
    return [layer.store(g.transpose(spread, _back(layout)), layer.out)]


def _fully_connected(layer: Layer) -> list[str]:
    """All axes of the input but the first make up the inputs."""
    g = layer.graph
    weights, bias = _weights(layer, 2)
    flipped = bool(layer.param("transposeWeightsMatrix"))
    i, o = weights.info.shape[::-1] if flipped else weights.info.shape
    shape = layer.x.info.shape
    batch = shape[0] if shape else 1
    if layer.x.info.elements != batch * i or layer.out.elements != batch * o:
        layer.refuse(f"weights {weights.info.shape} make {layer.out.shape} of {shape}")
    kernel = _kernel(layer, weights, weights.name, o, 2, axis=0 if flipped else 1)
    found = g.op(
        "MatMul", g.reshape(layer.real(layer.x), (batch, i)), g.transpose(kernel, (1, 0) if flipped else (0, 1))
    )
    numbers = _bias(layer, bias, o)
    if numbers is not None:
        found = g.op("Add", found, numbers)
    return [layer.store(g.reshape(found, layer.out.shape), layer.out)]


def _batch_normalization(layer: Layer) -> list[str]:
    """(x - mean) * gamma / sqrt(variance + eps) + beta, as one factor and one summand per channel."""
    g = layer.graph
    rank = len(layer.x.info.shape)
    axis = 1 if rank == 2 else channel_axis(layer.layout, rank)
    if axis is None:
        layer.refuse(f"its input has rank {rank}")
    channels = layer.x.info.shape[axis]
    shape = [channels if at == axis else 1 for at in range(rank)]
    found = {}
    for field in ("mean", "variance", "beta", "gamma"):
        value = layer.member(field)
        if value.info.elements != channels:
            layer.refuse(f"its {field} has {value.info.elements} values for {channels} channels")
        found[field] = g.reshape(layer.real(value), shape)
    deviation = g.op("Sqrt", g.op("Add", found["variance"], g.numbers(layer.param("eps"))))
    factor = g.op("Div", found["gamma"], deviation)
    summand = g.op("Sub", found["beta"], g.op("Mul", factor, found["mean"]))
    return layer.computed(lambda x: g.op("Add", g.op("Mul", factor, x), summand))


EXPRESSIONS = {
    "Convolution2d": _convolution,
    "DepthwiseConvolution2d": _depthwise,
    "TransposeConvolution2d": _transpose_convolution,
    "Convolution3d": _convolution3d,
    "FullyConnected": _fully_connected,
    "BatchNormalization": _batch_normalization,
}
"""Layer type -> expression."""
