"""What a region is run on: seeded random values, among them those where layers change their ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

import numpy as np

from fusion_engine.network import Network, consumers, edges_into, param
from fusion_engine.tensor import TensorInfo
from fusion_engine.verifying.elementwise import EXPRESSIONS as OPERATIONS
from fusion_engine.verifying.layer import QUANTIZED, limits
from fusion_engine.verifying.onnxgraph import Array, carrier
from fusion_engine.verifying.reach import KNEES, constant_range, number

__all__ = ["Corners", "trials"]

_INDEXED = ("Gather", "GatherNd")

_ELEMENTS = 256
"""Values to draw for every input in each way, where that takes no more than `_MOST_ROUNDS` rounds."""

_MOST_ROUNDS = 32


class Corners:
    """The values at which the layers of a region bend, saturate or clamp.

    Attributes
    ----------
    numbers
        Real numbers, sorted: 0; bounds of activations and of quantized types, the smallest and largest operands.
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
                self._add(*KNEES.get(function, ()))
                if function == "BoundedReLu":
                    self._add(param(graph, key, "a"), param(graph, key, "b"))
            elif node["type"] == "Constant":
                single = all(info is not None and info.elements == 1 for info in node.get("outputs") or ())
                if single or any(graph.nodes[use.layer]["type"] in OPERATIONS for use in consumers(graph, key)):
                    self._add(*constant_range(graph, key))
            elif node["type"] == "Pad":
                self._add(float(param(graph, key, "padValue") or 0.0))
            elif node["type"] in _INDEXED:
                self._see_indexed(graph, key)

    def _add(self, *values: float) -> None:
        self._numbers.update(float(value) for value in values if isfinite(value) and abs(value) < 1e6)

    def _see_info(self, info: TensorInfo) -> None:
        if info.canonical_type in QUANTIZED and not info.quantization_scales:
            self._add(*(number(info, float(stored)) for stored in limits(info)))

    def _see_indexed(self, graph: Network, key: int) -> None:
        for _, (source, slot) in edges_into(graph, key)[:1]:
            outputs = graph.nodes[source].get("outputs") or ()
            shape = outputs[slot].shape if slot < len(outputs) and outputs[slot] is not None else ()
            least = min(shape, default=1)
            self.indices = least if self.indices is None else min(self.indices, least)


def trials(
    variables: Mapping[str, TensorInfo], corners: Corners, seed: int, scale: float = 1.0
) -> Iterator[dict[str, Array]]:
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
    scale
        By which numbers of floating-point types and integers that are no indices are multiplied.
    """
    smallest = min((info.elements for info in variables.values()), default=0)
    rounds = min(-(-_ELEMENTS // max(smallest, 1)), _MOST_ROUNDS) if variables else 0
    if not variables:
        yield {}
    for turn in range(rounds):
        for way in range(3):
            random = np.random.default_rng([seed, turn, way])
            yield {name: _drawn(random, info, corners, way, scale) for name, info in variables.items()}


def _drawn(random: np.random.Generator, info: TensorInfo, corners: Corners, way: int, scale: float) -> Array:
    kind, shape = info.canonical_type, info.shape
    if kind == "Boolean":
        return np.asarray(random.integers(0, 2, shape), np.float32)
    if kind in ("Signed32", "Signed64"):
        if corners.indices is not None:
            return np.asarray(random.integers(0, max(corners.indices, 1), shape), carrier(info))
        return _integers(random, info, corners, way, scale)
    if kind in QUANTIZED:
        return _quantized(random, info, corners, way)
    near = _beside(corners.numbers)
    widest = 2 * max(1.0, float(np.abs(near).max()))
    values = random.uniform(-widest, widest, shape) if way == 1 else random.normal(0.0, 1.0, shape)
    if way == 2:
        values = _strewn(random, values, near)
    values = values * scale
    narrow: np.dtype[Any] = np.dtype(np.float16 if kind == "Float16" else np.float32)
    largest = float(np.finfo(narrow).max)
    found: Array = np.clip(values, -largest, largest).astype(narrow).astype(np.float32)
    return found


def _integers(random: np.random.Generator, info: TensorInfo, corners: Corners, way: int, scale: float) -> Array:
    whole = [round(value) for value in corners.numbers]
    widest = 2 * max(map(abs, whole)) if way == 1 else 0
    values = random.integers(-max(widest, 100), max(widest, 100) + 1, info.shape)
    if way == 2:
        values = _strewn(random, values, np.array([value + step for value in whole for step in (0, -1, 1)]))
    most = 2**31 - 1 if carrier(info) == np.int32 else 2**63 - 1024  # float64 holds both
    return np.asarray(np.clip(np.asarray(values, np.float64) * scale, -most, most)).astype(carrier(info))


def _beside(numbers: Iterable[float]) -> Array:
    """Numbers, and for each one a little below and one a little above."""
    return np.array([value + step * max(1.0, abs(value)) for value in numbers for step in (0.0, -0.01, 0.01)])


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
