"""Whether the values that a region was run on came to where its layers bend.

A clamp that no value reaches looks like no clamp. Free inputs are drawn around the corners of a region,
but what comes to a clamp within it is made of them by the layers between, which may make it small. So
what lies at such a place is watched, and the inputs are drawn from ever larger ranges until it lies on
both sides of the corners, or no longer grows: a Sigmoid gives nothing below 0 however far one goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import TypeVar

import numpy as np

from fusion_engine.network import EMPTY, Network, Source, edges_into, param
from fusion_engine.spellings import SPELLINGS
from fusion_engine.tensor import TensorInfo
from fusion_engine.verifying.layer import QUANTIZED, limits
from fusion_engine.verifying.onnxgraph import Array

__all__ = ["ENOUGH", "KNEES", "LARGEST_SCALE", "SCALES", "Reach", "bends", "constant_range", "number"]

SCALES = (1e1, 1e2, 1e3, 1e4, 1e6, 1e8, 1e10, 1e12, 1e16, 1e20, 1e24, 1e28, 1e32, 1e36)
"""By how much the ranges of the inputs are widened, one after the other."""

ENOUGH = 1e12
"""What did not grow over the last ranges up to here is bounded."""

LARGEST_SCALE = 1e36
"""Larger corners are beyond what can be computed with: they are no bounds."""

_SHARE = 0.02
"""This share of the values must lie beyond a corner."""

_MARGIN = 0.01
"""And by this much, of the corner or of 1."""

_GROWTH = 1e-3
"""What grows by less of the range stays where it is."""

_STILL = 2
"""So many widenings must change nothing before a range counts as bounded."""

KNEES: dict[str, tuple[float, ...]] = {
    "ReLu": (0.0,),
    "LeakyReLu": (0.0,),
    "Elu": (0.0,),
    "Abs": (0.0,),
    "HardSwish": (-3.0, 3.0),
}
"""Where activation functions bend whose descriptor does not say it."""

_BENDING = ("Minimum", "Maximum", "Equal", "NotEqual", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
"""Operations of two operands that bend where one passes the other."""


class Reach:
    """How far the values at one place go, over the widenings of the inputs.

    Parameters
    ----------
    corners
        The real numbers that they are to lie on both sides of.
    """

    def __init__(self, corners: Iterable[float]) -> None:
        usable = [corner for corner in corners if isfinite(corner) and abs(corner) < LARGEST_SCALE]
        self.low = min((corner - _MARGIN * max(1.0, abs(corner)) for corner in usable), default=None)
        self.high = max((corner + _MARGIN * max(1.0, abs(corner)) for corner in usable), default=None)
        self._least, self._most = float("inf"), float("-inf")
        self._still = [0, 0]

    def see(self, arrays: Iterable[Array]) -> None:
        """Take in the values of all trials of one range."""
        values = np.concatenate([np.zeros(0), *(np.asarray(array, np.float64).reshape(-1) for array in arrays)])
        values = values[np.isfinite(values)]
        if not values.size:
            self._still = [count + 1 for count in self._still]
            return
        low, high = (float(value) for value in np.quantile(values, (_SHARE, 1 - _SHARE)))
        room = _GROWTH * (self._most - self._least) if isfinite(self._most) else 0.0
        self._still[0] = 0 if low < self._least - room else self._still[0] + 1
        self._still[1] = 0 if high > self._most + room else self._still[1] + 1
        self._least, self._most = min(self._least, low), max(self._most, high)

    @property
    def reached(self) -> bool:
        """Whether values lay on both sides of the corners."""
        return (self.low is None or self._least < self.low) and (self.high is None or self._most > self.high)

    @property
    def bounded(self) -> bool:
        """Whether on each side they lay beyond the corners or the last widenings brought them no further."""
        low = self.low is None or self._least < self.low or self._still[0] >= _STILL
        return low and (self.high is None or self._most > self.high or self._still[1] >= _STILL)


def bends(graph: Network, layers: Iterable[int]) -> Iterator[tuple[Source, tuple[float, ...]]]:
    """The tensors that come to layers that bend, each with the real numbers where these do."""
    for key in layers:
        node = graph.nodes[key]
        sources = [source for _, source in edges_into(graph, key)]
        if node["type"] == "Activation" and sources:
            function = param(graph, key, "activationFunction")
            corners = KNEES.get(function, ())
            if function == "BoundedReLu":
                corners = (float(param(graph, key, "a")), float(param(graph, key, "b")))
            if corners:
                yield sources[0], corners
        elif node["type"] == "Quantize" and sources:
            (info,) = node["outputs"]
            if info.canonical_type in QUANTIZED and not info.quantization_scales:
                yield sources[0], tuple([number(info, float(stored)) for stored in limits(info)])
        elif _operation(graph, key) in _BENDING and len(sources) == 2:
            for source, other in (sources, sources[::-1]):
                if graph.nodes[other.layer]["type"] == "Constant" and graph.nodes[source.layer]["type"] != "Constant":
                    yield source, constant_range(graph, other.layer)


def _operation(graph: Network, key: int) -> str | None:
    kind = graph.nodes[key]["type"]
    if kind in ("ElementwiseBinary", "Comparison"):
        return str(param(graph, key, "operation"))
    return SPELLINGS[kind].value if kind in SPELLINGS else None


def constant_range(graph: Network, key: int) -> tuple[float, ...]:
    """The smallest and the largest real number that a Constant holds; none where it holds no finite one."""
    tensor = (graph.nodes[key].get("constants") or EMPTY).get("input")
    if tensor is None or not tensor.info.elements:
        return ()
    tensor.require_intact()
    values = tensor.data.reshape(-1)
    values = values[np.isfinite(values)]
    if not values.size:
        return ()
    return (number(tensor.info, float(values.min())), number(tensor.info, float(values.max())))


_Number = TypeVar("_Number", float, Array)


def number(info: TensorInfo, stored: _Number) -> _Number:
    """The real number that a stored one of a quantized type stands for; others stand for themselves."""
    if info.canonical_type not in QUANTIZED or info.quantization_scales:
        return stored
    return info.quantization_scale * (stored - info.quantization_offset)
