"""batch-norm: a BatchNormalization into the convolution or fully connected layer below it.

With γ, β, μ, σ² and ε of the BatchNormalization, per output channel,

    y = γ · (x − μ) / √(σ² + ε) + β = scale · x + shift,
    scale = γ / √(σ² + ε),    shift = β − μ · scale,

which `fusion_engine.folds.affine` takes into weights and bias. ε is its float32. A layer without bias
gets one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.affine import (
    Plan,
    apply_plan,
    norm_statistics,
    norm_tensors,
    tensor_between,
    weighted_layer,
)
from fusion_engine.folds.conditions import check_plain
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.schema import WEIGHTED, float32
from fusion_engine.tensor import TensorInfo
from fusion_engine.weights import channel_axis
from fusion_engine.workspace import Workspace

if TYPE_CHECKING:
    from fusion_engine.folds.batched import Job

__all__ = ["FOLD", "apply", "check", "layers_of", "norm_deviation", "norm_scale_and_shift"]

Array = npt.NDArray[np.float64]

_MEMO = "folds.batch_norm.ready"

_CHANNELS_LAST = {"NHWC": True, "NDHWC": True, "NCHW": False, "NCDHW": False}


def check(workspace: Workspace, match: Match) -> Plan:
    """The folded weights and bias of a match.

    Parameters
    ----------
    workspace
        The network.
    match
        ``layers`` is the BatchNormalization and the layer that feeds it.

    Raises
    ------
    Refused
        Where the result would not be what the two layers compute; the reason names layers and numbers.
    """
    ready: _Ready | None = workspace.memo.get(_MEMO)
    if ready is not None:
        plan = ready.plan(workspace, match)
        if plan is not None:
            return plan
    norm, layer, output = layers_of(workspace, match, "batch-norm", WEIGHTED)
    target = weighted_layer(workspace, layer)
    _check_channels(workspace, norm, layer, output, target.channels)
    return target.absorb(workspace, *norm_scale_and_shift(workspace, norm, target.channels))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Give the layer its new weights and bias and let it take the BatchNormalization's place."""
    return apply_plan(workspace, match.root, plan)


class _Ready:
    """Plans that were computed beforehand, each good while what it was made from stays."""

    def __init__(self, workspace: Workspace) -> None:
        self._plans: dict[int, tuple[Plan, Job]] = {}
        self._touched: set[int] = set()
        self._at = len(workspace.changes)

    def add(self, job: Job, plan: Plan) -> None:
        """Keep the plan of a job."""
        self._plans[job.norm] = plan, job

    def plan(self, workspace: Workspace, match: Match) -> Plan | None:
        """The plan for a match, where there is one."""
        found = self._plans.pop(match.root, None)
        if found is None:
            return None
        plan, job = found
        if self._at < len(workspace.changes):
            self._touched.update(workspace.changes[self._at :])
            self._at = len(workspace.changes)
        if match.layers != (match.root, plan.layer) or match.constants:
            return None
        if self._touched.isdisjoint(match.layers) or job.stands(workspace):
            return plan
        return None


def _prepare(workspace: Workspace, roots: Sequence[int]) -> None:
    """Compute the plans of layers with small weights at once.

    Where several pairs of layers hold the very same descriptors and TensorInfos, one is looked at for all.
    """
    from fusion_engine.folds.batched import FEW, Job, plans

    seen: dict[Hashable, list[Job]] = {}
    for norm in roots:
        job = Job.of(workspace, norm)
        if job is not None:
            seen.setdefault(job.kind, []).append(job)
    alike: dict[Hashable, list[Job]] = {}
    for jobs in seen.values():
        alike.setdefault(jobs[0].shapes, []).extend(jobs)
    few = {shapes for shapes, jobs in alike.items() if len(jobs) < FEW}
    ready = workspace.memo[_MEMO] = _Ready(workspace)
    right: dict[tuple[tuple[int, ...], Hashable], list[Job]] = {}
    for jobs in seen.values():
        norm, layer = jobs[0].norm, jobs[0].layer
        if jobs[0].shapes in few:
            continue
        try:
            _, _, output = layers_of(workspace, Match(norm, (norm, layer), (), (), (), ()), "batch-norm", WEIGHTED)
            target = weighted_layer(workspace, layer)
            _check_channels(workspace, norm, layer, output, target.channels)
            norm_tensors(workspace, norm, target.channels)
        except Refused:
            continue
        right.setdefault((target.weights.output_axes, jobs[0].shapes), []).extend(jobs)
    for (axes, _), jobs in right.items():
        for job, plan in plans(jobs, axes):
            ready.add(job, plan)


FOLD = Fold(check, apply, reach=2, prepare=_prepare, accepts=(Accepts((frozenset({"BatchNormalization"}), WEIGHTED)),))


def layers_of(workspace: Workspace, match: Match, fold: str, below: frozenset[str]) -> tuple[int, int, TensorInfo]:
    """The BatchNormalization, the layer below it and the TensorInfo between them, which all fit together.

    ``below`` are the types that the layer may have; ``fold`` is the name in the reason where it has another.
    """
    types = [workspace.type(key) for key in match.layers]
    if len(types) != 2 or types[0] != "BatchNormalization" or types[1] not in below or match.constants:
        raise Refused(
            f"{fold} takes a BatchNormalization over one layer of type {', '.join(sorted(below))}; "
            f"the match holds {', '.join(types) or 'no layer'}"
        )
    norm, layer = match.layers
    if workspace.inputs(norm) != ((0, Source(layer, 0)),):
        raise Refused(f"{workspace.describe(norm)} has other inputs than {workspace.describe(layer)}")
    check_plain(workspace, norm, layer)
    return norm, layer, tensor_between(workspace, norm, layer)


def norm_scale_and_shift(workspace: Workspace, norm: int, channels: int) -> tuple[Array, Array]:
    """Factor and summand per channel of a BatchNormalization, each of shape ``(channels,)``."""
    found = norm_statistics(workspace, norm, channels)
    deviation = norm_deviation(workspace, norm, found["variance"])
    with np.errstate(all="ignore"):
        scale = found["gamma"] / deviation
        return scale, found["beta"] - found["mean"] * scale


def norm_deviation(workspace: Workspace, norm: int, variance: Array) -> Array:
    """√(σ² + ε), where every σ² + ε is a positive number."""
    eps = norm_epsilon(workspace, norm)
    total = variance + eps
    right = (total > 0) & np.isfinite(total)
    if not right.all():
        channel = int(np.flatnonzero(~right)[0])
        raise Refused(
            f"variance + eps of {workspace.describe(norm)} is {total[channel]:g} in channel {channel} "
            f"(variance {variance[channel]:g}, eps {eps:g}): it must be a positive number"
        )
    root: Array = np.sqrt(total)
    return root


def norm_epsilon(workspace: Workspace, norm: int) -> float:
    """ε of a BatchNormalization: its float32."""
    return float32(workspace.param(norm, "eps"))


def _check_channels(workspace: Workspace, norm: int, layer: int, output: TensorInfo, channels: int) -> None:
    """The BatchNormalization's channel axis must be the layer's output channels."""
    layout = workspace.param(norm, "dataLayout")
    if layout not in _CHANNELS_LAST:
        raise Refused(f"{workspace.describe(norm)} has the unknown dataLayout {layout}")
    if workspace.type(layer) == "FullyConnected":
        _check_flat_channels(workspace, layer, output, layout, channels)
        return
    own = workspace.param(layer, "dataLayout")
    if own not in _CHANNELS_LAST or _CHANNELS_LAST[own] != _CHANNELS_LAST[layout]:
        raise Refused(f"{workspace.describe(layer)} is {own} and {workspace.describe(norm)} {layout}")
    if output.known:
        axis = channel_axis(own, len(output.shape))
        if axis is None or output.shape[axis] != channels:
            raise Refused(
                f"{workspace.describe(layer)} gives shape {output.shape} in {own}; its weights have {channels} "
                "output channels"
            )


def _check_flat_channels(workspace: Workspace, layer: int, output: TensorInfo, layout: str, channels: int) -> None:
    """A FullyConnected has no layout: its outputs are the channels where no other axis but the batch is over 1."""
    rank = len(output.shape)
    axis = 1 if rank == 2 else channel_axis(layout, rank)
    if (
        not output.known
        or axis is None
        or output.shape[1:] != (1,) * (axis - 1) + (channels,) + (1,) * (rank - 1 - axis)
    ):
        raise Refused(
            f"{workspace.describe(layer)} gives shape {output.shape}; in {layout} that does not have its "
            f"{channels} outputs along the channels"
        )
