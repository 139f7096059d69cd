"""What a region is run on: seeded random values, among them those where layers change their ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

import numpy as np

from fusion_engine.network import EMPTY, Network, edges_into, param
from fusion_engine.tensor import TensorInfo
from fusion_engine.verifying.layer import QUANTIZED, limits
from fusion_engine.verifying.onnxgraph import Array, carrier

__all__ = ["Corners", "trials"]

_INDEXED = ("Gather", "GatherNd")

_KNEES: dict[str, tuple[float, ...]] = {"HardSwish": (-3.0, 3.0)}
"""Where activation functions without bounds of their own bend, 0 aside."""

_ELEMENTS = 256
"""Values to draw for every input in each way, where that takes no more than `_MOST_ROUNDS` rounds."""

_MOST_ROUNDS = 32


class Corners:
    """The values at which the layers of a region bend, saturate or clamp.

    Attributes
    ----------
    numbers
        Real numbers, sorted: 0; bounds of activations, of scalar Constants, of quantized types.
    indices
        One more than the largest index that may be drawn for integers, None where they are no indices.
    """

    def __init__(self) -> None:
        self._numbers = {0.0}
        self.indices: int | None = None

    @property
    def numbers(self) -> list[float]:
        """The real numbers, sorted."""
        return sorted(self._numbers)

    def see(self, graph: Network, layers: Iterable[int]) -> None:
        """Add those of some layers."""
        for key in layers:
            node = graph.nodes[key]
            for info in node.get("outputs") or ():
                if info is not None:
                    self._see_info(info)
            if node["type"] == "Activation":
                function = param(graph, key, "activationFunction")
                self._add(*_KNEES.get(function, ()))
                if function == "BoundedReLu":
                    self._add(param(graph, key, "a"), param(graph, key, "b"))
            elif node["type"] == "Constant":
                tensor = (node.get("constants") or EMPTY).get("input")
                if tensor is not None and tensor.info.elements == 1:
                    tensor.require_intact()
                    self._add(_number(tensor.info, float(tensor.data.reshape(-1)[0])))
            elif node["type"] in _INDEXED:
                self._see_indexed(graph, key)

    def _add(self, *values: float) -> None:
        self._numbers.update(float(value) for value in values if isfinite(value) and abs(value) < 1e6)

    def _see_info(self, info: TensorInfo) -> None:
        if info.canonical_type in QUANTIZED and not info.quantization_scales:
            self._add(*(_number(info, float(stored)) for stored in limits(info)))

    def _see_indexed(self, graph: Network, key: int) -> None:
        for _, (source, slot) in edges_into(graph, key)[:1]:
            outputs = graph.nodes[source].get("outputs") or ()
            shape = outputs[slot].shape if slot < len(outputs) and outputs[slot] is not None else ()
            least = min(shape, default=1)
            self.indices = least if self.indices is None else min(self.indices, least)


def _number(info: TensorInfo, stored: float) -> float:
    if info.canonical_type not in QUANTIZED or info.quantization_scales:
        return stored
    return info.quantization_scale * (stored - info.quantization_offset)


def trials(variables: Mapping[str, TensorInfo], corners: Corners, seed: int) -> Iterator[dict[str, Array]]:
    """Values for the inputs of a region, as their ONNX tensors have them.

    First values around 0, then over a range twice as wide as the corners, then corners and values next to
    them at half of the places; quantized tensors over all that they store. The smaller the inputs, the more rounds.

    Parameters
    ----------
    variables
        Name in the ONNX graph -> TensorInfo.
    corners
        Of the region.
    seed
        Of the random numbers.
    """
    smallest = min((info.elements for info in variables.values()), default=0)
    rounds = min(-(-_ELEMENTS // max(smallest, 1)), _MOST_ROUNDS) if variables else 0
    if not variables:
        yield {}
    for number in range(rounds):
        for way in range(3):
            random = np.random.default_rng([seed, number, way])
            yield {name: _drawn(random, info, corners, way) for name, info in variables.items()}


def _drawn(random: np.random.Generator, info: TensorInfo, corners: Corners, way: int) -> Array:
    kind, shape = info.canonical_type, info.shape
    if kind == "Boolean":
        return np.asarray(random.integers(0, 2, shape), np.float32)
    if kind in ("Signed32", "Signed64"):
        low, high = (-100, 101) if corners.indices is None else (0, max(corners.indices, 1))
        return np.asarray(random.integers(low, high, shape), carrier(info))
    if kind in QUANTIZED:
        return _quantized(random, info, corners, way)
    near = _beside(corners.numbers)
    widest = 2 * max(1.0, float(np.abs(near).max()))
    values = random.uniform(-widest, widest, shape) if way == 1 else random.normal(0.0, 1.0, shape)
    if way == 2:
        values = _strewn(random, values, near)
    narrow: np.dtype[Any] = np.dtype(np.float16 if kind == "Float16" else np.float32)
    largest = float(np.finfo(narrow).max)
    found: Array = np.clip(values, -largest, largest).astype(narrow).astype(np.float32)
    return found


def _beside(numbers: Iterable[float]) -> Array:
    """Numbers, and for each one a little below and one a little above."""
    return np.array([value + step for value in numbers for step in (0.0, -0.01, 0.01)])


def _strewn(random: np.random.Generator, values: float | Array, special: Array) -> Array:
    """``values`` with half of them replaced by special ones, each of which occurs where there is room."""
    found: Array = np.array(values).reshape(-1)
    places = random.permutation(found.size)[: -(-found.size // 2)]
    found[places] = np.resize(random.permutation(special), places.size)
    return found.reshape(np.shape(values))


def _quantized(random: np.random.Generator, info: TensorInfo, corners: Corners, way: int) -> Array:
    low, high = limits(info)
    values = random.integers(low, high + 1, info.shape)
    if way == 2:
        scale = info.quantization_scale
        special = {low, low + 1, info.quantization_offset, high - 1, high}
        if scale > 0 and not info.quantization_scales:
            for number in corners.numbers:
                stored = round(min(max(number / scale + info.quantization_offset, low), high))
                special.update((stored - 1, stored, stored + 1))
        choices = np.array(sorted(value for value in special if low <= value <= high))
        values = _strewn(random, values, choices)
    return np.asarray(values).astype(np.float32)
