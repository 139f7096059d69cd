"""The arithmetic of many batch-norm folds of one kind at once.

Why: on the small tensors that most layers have, NumPy takes a microsecond for each of some thirty operations,
whatever their size; for a hundred layers with weights of one shape it takes hardly longer. Every number is
computed by the same operations in the same order as in `fusion_engine.folds.batch_norm` and
`fusion_engine.folds.affine`, so that the bits are the same, which the tests check. Layers of which a number
is out of range are left to these, which say so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from operator import is_, itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fusion_engine.folds.affine import NORM_FIELDS, Change, Plan, keeps_precision, magnitudes
from fusion_engine.network import EMPTY
from fusion_engine.schema import WEIGHTED, float32
from fusion_engine.tensor import Tensor, TensorInfo, address_of
from fusion_engine.workspace import Workspace

__all__ = ["FEW", "MOST_ELEMENTS", "Job", "plans"]

MOST_ELEMENTS = 1 << 14
"""Elements of the largest weights that are computed so: with more it is the elements that take time."""

FEW = 4
"""Layers of one shape up to which each is computed by itself."""

_CHUNK = 1 << 22
"""Elements that are computed at a time at the most."""

_ONE = ((0, 0),)
"""The slots of a connection from the first output to the first input and no other."""

_STATISTICS = itemgetter(*NORM_FIELDS)

Array = npt.NDArray[Any]


class Job(NamedTuple):
    """A BatchNormalization over a layer with weights.

    Attributes
    ----------
    norm, layer
        Their keys.
    weights, bias
        The layer's tensors; it may have no bias.
    weights_slot, bias_slot
        The input slots that Constants feed them on, None where they are members; of a bias that is not there
        yet, that which it will have.
    statistics
        gamma, beta, mean and variance.
    eps
        Of the BatchNormalization, a float32 value.
    kind
        Equal for pairs that hold the very same descriptors and TensorInfos, so that what is right about one is
        right about all.
    """

    norm: int
    layer: int
    weights: Tensor
    bias: Tensor | None
    weights_slot: int | None
    bias_slot: int | None
    statistics: tuple[Tensor, ...]
    eps: float
    kind: Hashable

    @classmethod
    def of(cls, workspace: Workspace, norm: int) -> Job | None:
        """The job at a BatchNormalization; None where there is none, or one that is better done by itself."""
        nodes, succ, pred = workspace.inside
        sources = pred[norm]
        if len(sources) != 1:
            return None
        ((layer, edge),) = sources.items()
        above, below = nodes[norm], nodes[layer]
        if edge["slots"] != _ONE or below["type"] not in WEIGHTED or len(succ[layer]) != 1:
            return None
        if above.get("overrides") or above.get("unconnected") or below.get("overrides") or below.get("unconnected"):
            return None
        given = workspace.inputs(layer)
        held = below.get("constants") or EMPTY
        try:
            statistics: tuple[Tensor, ...] = _STATISTICS(above.get("constants") or EMPTY)
        except KeyError:
            return None
        if not given or given[0][0]:
            return None
        weights, bias = held.get("weights"), held.get("biases")
        own, summand = weights, bias
        wiring: list[Any] = []
        for slot, feeder in given[1:]:
            tensor = workspace.tensor(feeder.layer)
            wiring += (slot, tensor is None)
            if slot == 1 and weights is None:
                own = tensor
            elif slot == 2 and bias is None:
                summand = tensor
        if own is None or own.info.elements > MOST_ELEMENTS:
            return None
        objects = [above.get("params"), above.get("outputs"), below.get("params"), below.get("outputs")]
        data = given[0][1]
        objects.append(nodes[data.layer].get("outputs"))
        for tensor in (own, *statistics) if summand is None else (own, *statistics, summand):
            if tensor.untagged:
                return None
            objects.append(tensor.info)
        weights_slot = None if weights is not None else 1
        member = weights is not None if summand is None else bias is not None
        bias_slot = None if member else 2
        kind = (below["type"], data.slot, weights_slot, bias is None, *wiring, None, *map(id, objects))
        eps = float32(workspace.param(norm, "eps"))
        return cls(norm, layer, own, summand, weights_slot, bias_slot, statistics, eps, kind)

    def stands(self, workspace: Workspace) -> bool:
        """Whether the network still has what the job was made from, all of it."""
        now = Job.of(workspace, self.norm)
        if now is None or (now.layer, now.kind, now.eps) != (self.layer, self.kind, self.eps):
            return False
        tensors = (self.weights, self.bias, *self.statistics)
        return all(map(is_, tensors, (now.weights, now.bias, *now.statistics)))

    @property
    def shapes(self) -> Hashable:
        """Equal for jobs whose tensors have the same shapes and types."""
        tensors = (self.weights, self.bias, *self.statistics)
        return tuple([tensor and (tensor.info.shape, tensor.info.data_type) for tensor in tensors])


def plans(jobs: Sequence[Job], axes: tuple[int, ...]) -> Iterator[tuple[Job, Plan]]:
    """The plan of each job that all its numbers allow.

    Parameters
    ----------
    jobs
        Jobs of one shape, whose layers fit together.
    axes
        The output axes of their weights, as `Weights.output_axes`.
    """
    size = max(1, _CHUNK // max(1, jobs[0].weights.info.elements))
    for start in range(0, len(jobs), size):
        yield from _plans(jobs[start : start + size], axes)


def _plans(jobs: Sequence[Job], axes: tuple[int, ...]) -> Iterator[tuple[Job, Plan]]:
    count, shape = len(jobs), jobs[0].weights.info.shape
    channels = jobs[0].statistics[0].info.elements
    with np.errstate(all="ignore"):
        gamma, beta, mean, variance = (
            _gathered([job.statistics[number] for job in jobs], (channels,)) for number in range(len(NORM_FIELDS))
        )
        total = variance + np.array([[job.eps] for job in jobs])
        right = ((total > 0) & np.isfinite(total)).all(axis=1)
        scale = gamma / np.sqrt(total)
        shift = beta - mean * scale
        weights = _gathered([job.weights for job in jobs], shape)
        weights *= _per_output_channel(scale, shape, axes)
        biases = [job.bias for job in jobs if job.bias is not None]
        if biases:
            shift = _gathered(biases, (channels,)) * scale + shift
        like = _bias_info(jobs[0], channels)
        exact = weights.reshape(count, -1)
        weights = weights.astype(jobs[0].weights.info.dtype)
        right &= keeps_precision(exact, weights.reshape(count, -1))
        shift = shift.reshape(count, *like.shape).astype(like.dtype)
    for stored in (weights, shift):
        stored.flags.writeable = False
        right &= np.isfinite(magnitudes(stored.reshape(count, -1)))
    infos: dict[int, TensorInfo] = {}
    rows = zip(jobs, right.tolist(), weights, shift, _row_addresses(weights), _row_addresses(shift), strict=True)
    for job, fits, own, summand, own_address, summand_address in rows:
        if fits:
            info = job.weights.info
            made = Change("weights", job.weights_slot, Tensor.view_of(info, own, None, own_address))
            if job.bias is not None:
                info = job.bias.info
            else:
                info = infos.get(id(info)) or infos.setdefault(id(info), _bias_info(job, channels))
            added = Change("biases", job.bias_slot, Tensor.view_of(info, summand, None, summand_address))
            yield job, Plan(job.layer, (made, added))


def _row_addresses(array: npt.NDArray[Any]) -> list[int]:
    """Where in memory each row lies."""
    start, step = address_of(array), array.strides[0]
    return [start + row * step for row in range(len(array))]


def _bias_info(job: Job, channels: int) -> TensorInfo:
    return job.weights.info.reshaped((channels,)) if job.bias is None else job.bias.info


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
