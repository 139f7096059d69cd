"""How far two results are apart, and how far they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion_engine.tensor import TensorInfo
from fusion_engine.verifying.layer import QUANTIZED
from fusion_engine.verifying.onnxgraph import Array

__all__ = ["TOLERANCES", "Measure", "measure"]

TOLERANCES = {"Float32": 1e-5, "Float16": 2e-3}
"""Largest difference by data type, relative to the largest value of the tensor.

Float16 keeps 11 bits; weights, bias and what lies between two layers are rounded to them, or not, at
different points. Quantized types may differ by one quantum, all others not at all.
"""

_FLOOR = 1e-3
"""A trial's largest value counts as at least this share of that of all trials."""


@dataclass(frozen=True)
class Measure:
    """The largest difference of two tensors.

    Attributes
    ----------
    difference
        In ``unit``; infinite where one is no finite number and the other is.
    unit
        ``"relative"`` to the largest value, ``"quanta"``, or ``"absolute"`` (integers and booleans).
    tolerance
        The largest difference allowed.
    finite
        Whether there was any finite number to compare.
    reached
        Whether the values came to where the layers bend, as far as they can.
    """

    difference: float
    unit: str
    tolerance: float
    finite: bool = True
    reached: bool = True

    @property
    def passed(self) -> bool:
        """Whether the difference is allowed."""
        return self.difference <= self.tolerance

    @property
    def share(self) -> float:
        """The difference as a multiple of the tolerance."""
        if self.difference == 0:
            return 0.0
        return self.difference / self.tolerance if self.tolerance > 0 else float("inf")

    def __str__(self) -> str:
        if self.unit == "relative":
            return f"{self.difference:.3g} of the largest value, allowed {self.tolerance:.3g}"
        return f"{self.difference:.6g} {'quanta' if self.unit == 'quanta' else 'at most'}, allowed {self.tolerance:.6g}"


def measure(
    before: Sequence[Array],
    after: Sequence[Array],
    info: TensorInfo,
    tolerance: float | None = None,
    *,
    finite_only: bool = False,
) -> Measure:
    """Compare a tensor before and after, over several trials.

    Parameters
    ----------
    before, after
        One array per trial, shapes equal.
    info
        Of the tensor.
    tolerance
        For floating-point types, instead of that of `TOLERANCES`.
    finite_only
        Whether elements are left out that are no finite number before or after.
    """
    kind = info.canonical_type
    floating = kind in TOLERANCES
    xs, ys = ([np.asarray(a, np.float64).reshape(-1) for a in arrays] for arrays in (before, after))
    if finite_only:
        both = [np.isfinite(x) & np.isfinite(y) for x, y in zip(xs, ys, strict=True)]
        xs, ys = ([a[kept] for a, kept in zip(arrays, both, strict=True)] for arrays in (xs, ys))
    largest = [_largest(x) for x in xs]
    overall = max(largest, default=0.0)
    worst, finite = 0.0, False
    for x, y, own in zip(xs, ys, largest, strict=True):
        finite = finite or bool(np.isfinite(x).any()) or not x.size
        gap = _gap(x, y)
        if gap and floating:
            base = max(own, _FLOOR * overall)
            gap = gap / base if base else float("inf")
        worst = max(worst, gap)
    if floating:
        return Measure(worst, "relative", TOLERANCES[kind] if tolerance is None else tolerance, finite)
    return Measure(worst, "quanta", 1.0, finite) if kind in QUANTIZED else Measure(worst, "absolute", 0.0, finite)


def _largest(x: Array) -> float:
    numbers = np.abs(x[np.isfinite(x)])
    return float(numbers.max()) if numbers.size else 0.0


def _gap(x: Array, y: Array) -> float:
    """Largest |x - y|; NaN is equal to NaN, infinity to itself, -0 to +0."""
    if not x.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        gaps = np.abs(x - y)
    gaps[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
    gaps[np.isnan(gaps)] = np.inf
    return float(gaps.max())
