"""Layers that compute many elements together in ONNX: pooling, means, softmax, resizing, matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fusion_engine.verifying.layer import Layer
from fusion_engine.verifying.onnxgraph import Array
from fusion_engine.weights import channel_axis

__all__ = ["EXPRESSIONS"]


def _pooling(layer: Layer) -> list[str]:
    """Windows over the padded picture, as many as the TensorInfo says; what is over the edge of the pads is no part.

    Padding is never the maximum. An average counts its padding where paddingMethod is IgnoreValue. A
    window with nothing but padding gives 0.
    """
    layer.need_rank(4)
    g, layout = layer.graph, layer.layout
    first = (0, 1, 2, 3) if layout == "NCHW" else (0, 3, 1, 2)
    shape = [layer.x.info.shape[axis] for axis in first]
    wanted = [layer.out.shape[axis] for axis in first]
    if shape[:2] != wanted[:2]:
        layer.refuse(f"it makes {layer.out.shape} of {layer.x.info.shape}")
    kernel, strides, ends, pads, counts = [], [], [], [], []
    for size, extent, side, axis, before, after in zip(
        shape[2:], wanted[2:], ("Height", "Width"), "YX", ("padTop", "padLeft"), ("padBottom", "padRight"), strict=True
    ):
        window, step = layer.param(f"pool{side}"), layer.param(f"stride{axis}")
        start, end = layer.param(before), layer.param(after)
        if window < 1 or (step < 1 and extent > 1):
            layer.refuse(f"its pool{side} is {window} and its stride{axis} {step}")
        step = max(step, 1)
        starts = np.arange(extent) * step - start
        stops = np.minimum(starts + window, size + end)
        real = np.maximum(np.minimum(stops, size) - np.maximum(starts, 0), 0)
        counts.append((stops - starts, real))
        pads.append((start, max(end, (extent - 1) * step + window - size - start)))
        kernel.append(window)
        strides.append(step)
        ends.append((extent - 1) * step + window)
    layer.need_room([*shape[:2], *(size + sum(pair) for size, pair in zip(shape[2:], pads, strict=True))])
    x = g.transpose(layer.real(layer.x), first)
    kind = layer.param("poolType")
    lowest = float(np.finfo(np.float32).min)
    if kind == "L2":
        x = g.op("Mul", x, x)
    padded = g.pad(x, [(0, 0), (0, 0), *pads], lowest if kind == "Max" else 0.0)
    for axis, end in enumerate(ends, 2):
        padded = g.take(padded, axis, range(end))
    real = np.multiply.outer(counts[0][1], counts[1][1])
    if kind == "Max":
        found = g.op("MaxPool", padded, kernel_shape=kernel, strides=strides)
        if not real.all():
            found = g.op(
                "Where", g.op("Greater", g.array(real.astype(np.float32)), g.numbers(0.0)), found, g.numbers(0.0)
            )
    elif kind in ("Average", "L2"):
        mean = g.op("AveragePool", padded, kernel_shape=kernel, strides=strides)
        found = g.op("Mul", mean, g.array(_share(layer, kernel, counts)))
        found = g.op("Sqrt", found) if kind == "L2" else found
    else:
        layer.refuse(f"its poolType {kind!r} is unknown")
    return [layer.store(g.transpose(found, first if layout == "NCHW" else (0, 2, 3, 1)), layer.out)]


def _share(layer: Layer, kernel: Sequence[int], counts: Sequence[tuple[Array, Array]]) -> Array:
    """Size of the kernel by the number of elements that Arm NN divides by, per window."""
    method = layer.param("paddingMethod")
    if method not in ("IgnoreValue", "Exclude"):
        layer.refuse(f"its paddingMethod {method!r} is unknown")
    covered = np.multiply.outer(*(pair[1 if method == "Exclude" else 0] for pair in counts))
    share: Array = (kernel[0] * kernel[1] / np.maximum(covered, 1)).astype(np.float32)
    return share


# Means and sums

_REDUCTIONS = {"Sum": "ReduceSum", "Max": "ReduceMax", "Mean": "ReduceMean", "Min": "ReduceMin", "Prod": "ReduceProd"}


def _reduced(layer: Layer, operation: str) -> list[str]:
    rank = len(layer.x.info.shape)
    axes = sorted({layer.axis(axis - 2**32 if axis >= 2**31 else axis, rank) for axis in layer.param("axis")})
    g = layer.graph
    axes = axes or list(range(rank))
    kept = [1 if axis in axes else size for axis, size in enumerate(layer.x.info.shape)]
    if layer.out.elements != np.prod(kept, dtype=int):
        layer.refuse(f"it makes {layer.out.shape} of {layer.x.info.shape}")
    found = g.op(operation, layer.real(layer.x), g.integers(*axes), keepdims=1)
    return [layer.store(g.reshape(found, layer.out.shape), layer.out)]


def _mean(layer: Layer) -> list[str]:
    return _reduced(layer, "ReduceMean")


def _reduce(layer: Layer) -> list[str]:
    operation = _REDUCTIONS.get(layer.param("reduceOperation"))
    if operation is None:
        layer.refuse(f"its reduceOperation {layer.param('reduceOperation')!r} is unknown")
    return _reduced(layer, operation)


def _softmax(layer: Layer) -> list[str]:
    g, axis = layer.graph, layer.axis(layer.param("axis"), len(layer.x.info.shape))
    kind = "LogSoftmax" if layer.kind == "LogSoftmax" else "Softmax"
    return layer.computed(lambda x: g.op(kind, g.op("Mul", x, g.numbers(layer.param("beta"))), axis=axis))


def _l2_normalization(layer: Layer) -> list[str]:
    g = layer.graph
    layer.need_rank(4)
    axis = channel_axis(layer.layout, 4)

    def operation(x: str) -> str:
        squares = g.op("ReduceSum", g.op("Mul", x, x), g.integers(int(axis or 0)), keepdims=1)
        return g.op("Div", x, g.op("Sqrt", g.op("Max", squares, g.numbers(layer.param("eps")))))

    return layer.computed(operation)


def _instance_normalization(layer: Layer) -> list[str]:
    g = layer.graph
    layer.need_rank(4)
    axes = g.integers(*((2, 3) if layer.layout == "NCHW" else (1, 2)))

    def operation(x: str) -> str:
        centred = g.op("Sub", x, g.op("ReduceMean", x, axes, keepdims=1))
        variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes, keepdims=1)
        deviation = g.op("Sqrt", g.op("Add", variance, g.numbers(layer.param("eps"))))
        scaled = g.op("Mul", g.op("Div", centred, deviation), g.numbers(layer.param("gamma")))
        return g.op("Add", scaled, g.numbers(layer.param("beta")))

    return layer.computed(operation)


def _arg_min_max(layer: Layer) -> list[str]:
    g, shape = layer.graph, layer.x.info.shape
    function = layer.param("argMinMaxFunction")
    if function not in ("Min", "Max"):
        layer.refuse(f"its argMinMaxFunction {function!r} is unknown")
    axis = layer.axis(layer.param("axis"), len(shape))
    found = g.op(f"Arg{function}", layer.real(layer.x), axis=axis, keepdims=0)
    if layer.out.canonical_type == "Signed32":
        found = g.cast(found, np.int32)
    elif layer.out.canonical_type != "Signed64":
        layer.refuse(f"its output is of {layer.out.data_type}")
    return [g.reshape(found, layer.out.shape)]


def _batch_matmul(layer: Layer) -> list[str]:
    g = layer.graph
    if len(layer.inputs) != 2:
        layer.refuse(f"it has {len(layer.inputs)} inputs")
    parts, shapes = [], []
    for value, side in zip(layer.inputs, "XY", strict=True):
        if layer.param(f"dataLayout{side}") not in ("NCHW", "NCDHW"):
            layer.refuse(f"its dataLayout{side} is {layer.param(f'dataLayout{side}')}")
        if layer.param(f"adjoint{side}"):
            layer.refuse(f"it takes the adjoint of {side}")
        axes, name = list(range(len(value.info.shape))), layer.real(value)
        if layer.param(f"transpose{side}"):
            axes[-2:] = axes[:-3:-1]
            name = g.transpose(name, axes)
        parts.append(name)
        shapes.append([value.info.shape[axis] for axis in axes])
    batch = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    layer.need_shape([*batch, shapes[0][-2], shapes[1][-1]])
    return [layer.store(g.op("MatMul", *parts), layer.out)]


# Resizing


def _resize(layer: Layer) -> list[str]:
    """Bilinear: along each axis, two neighbours weighted by how near they are."""
    layer.need_rank(4)
    if layer.kind == "Resize" and layer.param("method") != "Bilinear":
        layer.refuse("it takes the nearest neighbour")
    g, layout = layer.graph, layer.layout
    x = layer.real(layer.x)
    for axis in (1, 2) if layout == "NHWC" else (2, 3):
        size, extent = layer.x.info.shape[axis], layer.out.shape[axis]
        below, share = _neighbours(layer, size, extent)
        above = np.minimum(below + 1, size - 1)
        weight = g.array(share.reshape([-1 if i == axis else 1 for i in range(4)]))
        low, high = g.take(x, axis, below.tolist()), g.take(x, axis, above.tolist())
        x = g.op("Add", low, g.op("Mul", weight, g.op("Sub", high, low)))
    return [layer.store(x, layer.out)]


def _neighbours(layer: Layer, size: int, extent: int) -> tuple[Array, Array]:
    """The lower neighbour of every new element, and the share of the upper one."""
    aligned, half = bool(layer.param("alignCorners")), bool(layer.param("halfPixelCenters"))
    scale = (
        np.float32(size - 1) / np.float32(extent - 1)
        if aligned and extent > 1
        else np.float32(size) / np.float32(extent)
    )
    at = np.arange(extent, dtype=np.float32)
    at = (at + np.float32(0.5)) * scale - np.float32(0.5) if half else at * scale
    at = np.maximum(at, np.float32(0))
    below = np.floor(at)
    return np.minimum(below.astype(int), size - 1), (at - below).astype(np.float32)


EXPRESSIONS: dict[str, Callable[[Layer], list[str]]] = {
    "Pooling2d": _pooling,
    "Mean": _mean,
    "Reduce": _reduce,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "L2Normalization": _l2_normalization,
    "InstanceNormalization": _instance_normalization,
    "ArgMinMax": _arg_min_max,
    "BatchMatMul": _batch_matmul,
    "Resize": _resize,
    "ResizeBilinear": _resize,
}
"""Layer type -> expression."""
