"""The arithmetic of many batch-norm folds of one kind at once.

Why: on the small tensors that most layers have, NumPy takes a microsecond for each of some thirty operations,
whatever their size; for a hundred layers with weights of one shape it takes hardly longer. Every number is
computed by the same operations in the same order as in `fusion_engine.folds.batch_norm` and
`fusion_engine.folds.affine`, so that the bits are the same, which the tests check. Layers of which a number
is out of range are left to these, which say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.folds.affine import Change, Plan, WeightedLayer
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["MOST_ELEMENTS", "Job", "plans"]

MOST_ELEMENTS = 1 << 14
"""Elements of the largest weights that are computed so: with more it is the elements that take time."""

_CHUNK = 1 << 22
"""Elements that are computed at a time at the most."""

_FIELDS = ("gamma", "beta", "mean", "variance")

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Job:
    """A batch-norm fold whose layers fit together.

    Attributes
    ----------
    target
        The layer with weights.
    statistics
        The BatchNormalization's tensors by field.
    eps
        Its ε, a float32 value.
    """

    target: WeightedLayer
    statistics: dict[str, Tensor]
    eps: float

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for jobs that are computed together."""
        weights, bias = self.target.weights, self.target.bias
        held = [self.statistics[field].info.data_type for field in _FIELDS]
        like = None if bias is None else (bias.tensor.info.shape, bias.tensor.info.data_type)
        info = weights.tensor.info
        return (info.shape, info.data_type, weights.output_axes, like, *held)


def plans(jobs: Sequence[Job]) -> Iterator[tuple[int, Plan]]:
    """(number, plan) of each job that all numbers allow; in no promised order."""
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for number, job in enumerate(jobs):
        kinds.setdefault(job.kind, []).append(number)
    for numbers in kinds.values():
        size = max(1, _CHUNK // max(1, jobs[numbers[0]].target.weights.tensor.info.elements))
        for start in range(0, len(numbers), size):
            chunk = numbers[start : start + size]
            for number, plan in zip(chunk, _plans([jobs[number] for number in chunk]), strict=True):
                if plan is not None:
                    yield number, plan


def _plans(jobs: list[Job]) -> Iterator[Plan | None]:
    """The plans of jobs of one kind; None where a number is out of range."""
    first = jobs[0].target
    channels, shape = first.channels, first.weights.tensor.info.shape
    with np.errstate(all="ignore"):
        gamma, beta, mean, variance = (
            _gathered([job.statistics[field] for job in jobs], (channels,)) for field in _FIELDS
        )
        total = variance + np.array([[job.eps] for job in jobs])
        right = ((total > 0) & np.isfinite(total)).all(axis=1)
        scale = gamma / np.sqrt(total)
        shift = beta - mean * scale
        layout = _per_output_channel(scale, shape, first.weights.output_axes)
        weights = _gathered([job.target.weights.tensor for job in jobs], shape) * layout
        biases = [job.target.bias.tensor for job in jobs if job.target.bias is not None]
        if biases:
            shift = _gathered(biases, (channels,)) * scale + shift
    weights_info, bias_info = first.weights.tensor.info, _bias_info(first)
    weights, shift = _stored(weights, weights_info), _stored(shift.reshape(len(jobs), *bias_info.shape), bias_info)
    for stored in (weights, shift):
        right &= np.isfinite(stored).reshape(len(jobs), -1).all(axis=1)
    for job, fits, own, summand in zip(jobs, right.tolist(), weights, shift, strict=True):
        yield _plan(job.target, own, summand) if fits else None


def _plan(target: WeightedLayer, weights: Array, bias: Array) -> Plan:
    held, had = target.weights, target.bias
    made = Change("weights", None if held.constant is None else 1, Tensor.view_of(held.tensor.info, weights, None))
    member = held.constant is None if had is None else had.constant is None
    changed = Change("biases", None if member else 2, Tensor.view_of(_bias_info(target), bias, None))
    return Plan(target.key, (made, changed))


def _bias_info(target: WeightedLayer) -> TensorInfo:
    if target.bias is not None:
        return target.bias.tensor.info
    return target.weights.tensor.info.reshaped((target.channels,))


def _gathered(tensors: list[Tensor], shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """The tensors' values in float64, one row each of the given shape."""
    for tensor in tensors:
        if tensor.origin is not None:
            tensor.require_intact()
    joined: Any = b"".join([tensor.data for tensor in tensors])  # type: ignore[misc]
    values = np.frombuffer(joined, tensors[0].info.dtype)
    return values.astype(np.float64).reshape(len(tensors), *shape)


def _per_output_channel(values: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """`Weights.per_output_channel` of each row."""
    rows = len(values)
    split = values.reshape(rows, *[shape[axis] for axis in axes])
    placed = split.transpose(0, *(1 + np.argsort(axes)))
    return placed.reshape(rows, *[n if axis in axes else 1 for axis, n in enumerate(shape)])


def _stored(values: Array, info: TensorInfo) -> Array:
    """The values in the type of a tensor, read-only."""
    with np.errstate(all="ignore"):
        stored = values.astype(info.dtype)
    stored.flags.writeable = False
    return stored
