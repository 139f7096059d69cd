"""Layers that move elements in ONNX: shapes, orders, parts, pads, blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from fusion_engine.verifying.layer import QUANTIZED, Layer, limits
from fusion_engine.verifying.onnxgraph import carrier

__all__ = ["EXPRESSIONS"]


def _reshape(layer: Layer) -> list[str]:
    if layer.x.info.elements != layer.out.elements:
        layer.refuse(f"it makes {layer.out.shape} of {layer.x.info.shape}")
    return [layer.graph.reshape(layer.x.name, layer.out.shape)]


def _permute(layer: Layer) -> list[str]:
    """Dimension i goes to dimMappings[i]."""
    return _transposed(layer, np.argsort(_mappings(layer)).tolist())


def _transpose(layer: Layer) -> list[str]:
    """Dimension i comes from dimMappings[i]."""
    return _transposed(layer, _mappings(layer))


def _mappings(layer: Layer) -> list[int]:
    mappings = list(layer.param("dimMappings"))
    if sorted(mappings) != list(range(len(layer.x.info.shape))):
        layer.refuse(f"its dimMappings {mappings} are no order of {len(layer.x.info.shape)} dimensions")
    return mappings


def _transposed(layer: Layer, axes: Sequence[int]) -> list[str]:
    layer.need_shape([layer.x.info.shape[axis] for axis in axes])
    return [layer.graph.transpose(layer.x.name, axes)]


def _pad(layer: Layer) -> list[str]:
    """The value counts as stored in a quantized tensor, not as a number that it stands for."""
    g, shape = layer.graph, layer.x.info.shape
    flat = layer.param("padList")
    if len(flat) != 2 * len(shape):
        layer.refuse(f"its padList has {len(flat)} numbers for rank {len(shape)}")
    if carrier(layer.x.info) != np.float32:
        layer.refuse(f"it pads {layer.x.info.data_type}")
    pads = list(zip(flat[::2], flat[1::2], strict=True))
    layer.need_shape([size + before + after for size, (before, after) in zip(shape, pads, strict=True)])
    mode = layer.param("paddingMode")
    if mode == "Constant":
        value = float(layer.param("padValue"))
        if layer.out.canonical_type in QUANTIZED:
            low, high = limits(layer.out)
            value = min(max(float(np.trunc(value + np.copysign(0.5, value))), low), high)
        return [g.pad(layer.moved(layer.x), pads, value)]
    if mode not in ("Reflect", "Symmetric"):
        layer.refuse(f"its paddingMode {mode!r} is unknown")
    name = layer.x.name
    for axis, (size, pair) in enumerate(zip(shape, pads, strict=True)):
        if any(pair):
            if max(pair) > size - (mode == "Reflect"):
                layer.refuse(f"it mirrors {max(pair)} of {size} elements")
            order = np.pad(np.arange(size), pair, "reflect" if mode == "Reflect" else "symmetric")
            name = g.take(name, axis, order.tolist())
    return [layer.moved(layer.x, name)]


def _cut(layer: Layer, ranges: Sequence[Sequence[int]]) -> str:
    """The elements of the first input at some numbers of every axis."""
    name = layer.x.name
    for axis, (size, indices) in enumerate(zip(layer.x.info.shape, ranges, strict=True)):
        if any(not 0 <= index < size for index in indices):
            layer.refuse(f"it takes elements that axis {axis} of shape {layer.x.info.shape} does not have")
        if list(indices) != list(range(size)):
            name = layer.graph.take(name, axis, indices)
    return name


def _slice(layer: Layer) -> list[str]:
    begin, size = layer.param("begin"), layer.param("size")
    if not len(begin) == len(size) == len(layer.x.info.shape):
        layer.refuse(f"begin {begin} and size {size} do not fit shape {layer.x.info.shape}")
    layer.need_shape(size)
    return [_cut(layer, [range(b, b + n) for b, n in zip(begin, size, strict=True)])]


def _strided_slice(layer: Layer) -> list[str]:
    if layer.param("ellipsisMask") or layer.param("newAxisMask"):
        layer.refuse("it has an ellipsis mask or a new-axis mask")
    lists = [layer.param(field) for field in ("begin", "end", "stride")]
    shape = layer.x.info.shape
    if any(len(values) != len(shape) for values in lists) or 0 in lists[2]:
        layer.refuse(f"begin, end and stride {lists} do not fit shape {shape}")
    ranges = [
        _stride(layer, axis, size, *numbers) for axis, (size, *numbers) in enumerate(zip(shape, *lists, strict=True))
    ]
    kept = [len(r) for axis, r in enumerate(ranges) if not layer.param("shrinkAxisMask") >> axis & 1]
    if layer.out.elements != prod(map(len, ranges)) or layer.out.shape not in (tuple(kept), tuple(map(len, ranges))):
        layer.refuse(f"its parameters give shape {tuple(kept)}, its TensorInfo says {layer.out.shape}")
    return [layer.graph.reshape(_cut(layer, ranges), layer.out.shape)]


def _stride(layer: Layer, axis: int, size: int, begin: int, end: int, stride: int) -> range:
    """The numbers that a StridedSlice takes of an axis: bounds below 0 count from the end, all are kept within."""

    def masked(name: str) -> bool:
        return bool(layer.param(name) >> axis & 1)

    forward = stride > 0
    start = (0 if forward else size - 1) if masked("beginMask") else begin + size if begin < 0 else begin
    start = min(max(start, 0), size - 1)
    if masked("shrinkAxisMask"):
        return range(start, start + 1)
    if masked("endMask"):
        return range(start, size if forward else -1, stride)
    stop = end + size if end < 0 else end
    return range(start, min(max(stop, 0), size) if forward else min(max(stop, -1), size - 1), stride)


def _splitter(layer: Layer) -> list[str]:
    origins, sizes = layer.param("origins")["viewOrigins"], layer.param("viewSizes")
    rank = len(layer.x.info.shape)
    found = []
    for number, info in enumerate(layer.outputs):
        if number >= len(origins) or number >= len(sizes) or not len(origins[number]) == len(sizes[number]) == rank:
            layer.refuse(f"its view {number} is incomplete")
        if tuple(sizes[number]) != info.shape:
            layer.refuse(f"its view {number} has size {tuple(sizes[number])}, its TensorInfo says {info.shape}")
        part = _cut(layer, [range(o, o + n) for o, n in zip(origins[number], sizes[number], strict=True)])
        found.append(layer.moved(layer.x, part, info))
    return found


def _concat(layer: Layer) -> list[str]:
    """Views that lie one after another along concatAxis."""
    rank = len(layer.x.info.shape)
    axis = layer.axis(layer.param("concatAxis"), rank)
    origins = layer.param("viewOrigins")
    at = 0
    for number, value in enumerate(layer.inputs):
        expected = [at if i == axis else 0 for i in range(rank)]
        if origins and (number >= len(origins) or list(origins[number]) != expected):
            layer.refuse(f"its views do not lie one after another along axis {axis}")
        shape = value.info.shape
        if len(shape) != rank or [n for i, n in enumerate(shape) if i != axis] != [
            n for i, n in enumerate(layer.out.shape) if i != axis
        ]:
            layer.refuse(f"a part of shape {shape} does not fit {layer.out.shape} along axis {axis}")
        at += shape[axis]
    if at != layer.out.shape[axis]:
        layer.refuse(f"its parts have {at} of {layer.out.shape[axis]} elements along axis {axis}")
    return [layer.graph.op("Concat", *(layer.moved(value) for value in layer.inputs), axis=axis)]


def _stack(layer: Layer) -> list[str]:
    g, axis = layer.graph, layer.axis(layer.param("axis"), len(layer.out.shape))
    parts = [g.op("Unsqueeze", layer.moved(value), g.integers(axis)) for value in layer.inputs]
    shape = list(layer.x.info.shape)
    layer.need_shape([*shape[:axis], len(parts), *shape[axis:]])
    return [g.op("Concat", *parts, axis=axis)]


def _gather(layer: Layer) -> list[str]:
    if len(layer.inputs) != 2 or layer.inputs[1].info.canonical_type != "Signed32":
        layer.refuse("its second input is no tensor of Signed32")
    axis = layer.axis(layer.param("axis"), len(layer.x.info.shape))
    found = layer.graph.op("Gather", layer.x.name, layer.inputs[1].name, axis=axis)
    return [layer.moved(layer.x, layer.graph.reshape(found, layer.out.shape))]


def _fill(layer: Layer) -> list[str]:
    return [layer.store(layer.graph.array(np.full(layer.out.shape, layer.param("value"), np.float32)), layer.out)]


def _rank(layer: Layer) -> list[str]:
    return [layer.graph.array(np.full(layer.out.shape, len(layer.x.info.shape), np.int32))]


def _shape(layer: Layer) -> list[str]:
    return [layer.graph.array(np.asarray(layer.x.info.shape, np.int32).reshape(layer.out.shape))]


def _channel_shuffle(layer: Layer) -> list[str]:
    axis = layer.axis(layer.param("axis"), len(layer.x.info.shape))
    groups, size = layer.param("numGroups"), layer.x.info.shape[axis]
    if groups < 1 or size % groups:
        layer.refuse(f"{size} channels do not make {groups} groups")
    order = np.arange(size).reshape(groups, size // groups).T.reshape(-1)
    return [layer.moved(layer.x, layer.graph.take(layer.x.name, axis, order.tolist()))]


# Blocks. All in NHWC, with permutations around it in NCHW.


def _blocks(layer: Layer, rearrange: Callable[[str, tuple[int, ...]], tuple[str, tuple[int, ...]]]) -> list[str]:
    """Rearrange a 4-D tensor in NHWC; ``rearrange`` gives the new name and shape."""
    layer.need_rank(4)
    g, shape = layer.graph, layer.x.info.shape
    numbers = layer.real(layer.x)
    last = layer.layout == "NHWC"
    if not last:
        numbers, shape = g.transpose(numbers, (0, 2, 3, 1)), (shape[0], *shape[2:], shape[1])
    found, made = rearrange(numbers, shape)
    if not last:
        found, made = g.transpose(found, (0, 3, 1, 2)), (made[0], made[3], *made[1:3])
    layer.need_shape(made)
    return [layer.store(found, layer.out)]


def _block(layer: Layer) -> tuple[int, int]:
    block = layer.param("blockShape")
    if len(block) != 2 or min(block) < 1:
        layer.refuse(f"its blockShape is {tuple(block)}")
    return block[0], block[1]


def _pairs(layer: Layer, field: str) -> list[tuple[int, int]]:
    flat = layer.param(field)
    if len(flat) != 4:
        layer.refuse(f"its {field} has {len(flat)} numbers")
    return [(flat[0], flat[1]), (flat[2], flat[3])]


def _divided(layer: Layer, size: int, by: int) -> int:
    if by < 1 or size % by:
        layer.refuse(f"{size} elements do not make blocks of {by}")
    return size // by


def _space_to_batch(layer: Layer) -> list[str]:
    g = layer.graph
    (down, across), pads = _block(layer), _pairs(layer, "padList")

    def rearrange(x: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        n, h, w, c = shape
        x = g.pad(x, [(0, 0), *pads, (0, 0)])
        h, w = (
            _divided(layer, size + sum(pad), by) for size, pad, by in zip((h, w), pads, (down, across), strict=True)
        )
        x = g.transpose(g.reshape(x, (n, h, down, w, across, c)), (2, 4, 0, 1, 3, 5))
        made = (n * down * across, h, w, c)
        return g.reshape(x, made), made

    return _blocks(layer, rearrange)


def _batch_to_space(layer: Layer) -> list[str]:
    g = layer.graph
    (down, across), crops = _block(layer), _pairs(layer, "crops")

    def rearrange(x: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        n, h, w, c = shape
        n = _divided(layer, n, down * across)
        x = g.transpose(g.reshape(x, (down, across, n, h, w, c)), (2, 3, 0, 4, 1, 5))
        x = g.reshape(x, (n, h * down, w * across, c))
        sizes = []
        for axis, (size, (before, after)) in enumerate(zip((h * down, w * across), crops, strict=True), 1):
            if before + after > size:
                layer.refuse(f"its crops {crops} are larger than the picture")
            if before or after:
                x = g.take(x, axis, range(before, size - after))
            sizes.append(size - before - after)
        return x, (n, *sizes, c)

    return _blocks(layer, rearrange)


def _space_to_depth(layer: Layer) -> list[str]:
    g, block = layer.graph, layer.param("blockSize")

    def rearrange(x: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        n, h, w, c = shape
        h, w = _divided(layer, h, block), _divided(layer, w, block)
        made = (n, h, w, block * block * c)
        return g.reshape(g.transpose(g.reshape(x, (n, h, block, w, block, c)), (0, 1, 3, 2, 4, 5)), made), made

    return _blocks(layer, rearrange)


def _depth_to_space(layer: Layer) -> list[str]:
    g, block = layer.graph, layer.param("blockSize")

    def rearrange(x: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        n, h, w, c = shape
        c = _divided(layer, c, block * block)
        made = (n, h * block, w * block, c)
        return g.reshape(g.transpose(g.reshape(x, (n, h, w, block, block, c)), (0, 1, 3, 2, 4, 5)), made), made

    return _blocks(layer, rearrange)


def _tile(layer: Layer) -> list[str]:
    multiples = layer.param("m_Multiples")
    if len(multiples) != len(layer.x.info.shape):
        layer.refuse(f"its multiples {tuple(multiples)} do not fit shape {layer.x.info.shape}")
    layer.need_shape([n * m for n, m in zip(layer.x.info.shape, multiples, strict=True)])
    return [layer.moved(layer.x, layer.graph.op("Tile", layer.x.name, layer.graph.integers(*multiples)))]


EXPRESSIONS: dict[str, Callable[[Layer], list[str]]] = {
    "Reshape": _reshape,
    "Permute": _permute,
    "Transpose": _transpose,
    "Pad": _pad,
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "Splitter": _splitter,
    "Concat": _concat,
    "Merger": _concat,
    "Stack": _stack,
    "Gather": _gather,
    "Fill": _fill,
    "Rank": _rank,
    "Shape": _shape,
    "ChannelShuffle": _channel_shuffle,
    "SpaceToBatchNd": _space_to_batch,
    "BatchToSpaceNd": _batch_to_space,
    "SpaceToDepth": _space_to_depth,
    "DepthToSpace": _depth_to_space,
    "Tile": _tile,
}
"""Layer type -> expression."""
