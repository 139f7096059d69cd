"""quantize-pairs: a Quantize over a Dequantize that gives back the very numbers that went in is none.

The reverse, a Dequantize over a Quantize, rounds and clamps, and stays. That nothing is lost on the
way through the float between the two is tried out on every number of the quantized type, in
float32 as Arm NN's reference backend computes: ``(q - offset) * scale``, then
``round(x / scale) + offset``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.moves import bypass, check_bypass, feeding, shaped_info
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.tensor import FLOATS, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_TYPES = frozenset({"QAsymmU8", "QAsymmS8", "QSymmS8", "QSymmS16"})


@dataclass(frozen=True)
class Plan:
    """The quantized output below the two layers, and the Dequantize."""

    source: Source
    lower: int


def check(workspace: Workspace, match: Match) -> Plan:
    """The output that a Quantize over a Dequantize repeats.

    Raises
    ------
    Refused
        Where type, scale or offset differ, numbers get lost in between, or an Input would be left to
        feed an Output.
    """
    root = match.root
    (source,) = feeding(workspace, root)
    lower = source.layer
    if workspace.type(root) != "Quantize" or workspace.type(lower) != "Dequantize":
        raise Refused(
            f"quantize-pairs takes a Quantize over a Dequantize; {workspace.describe(root)} is a "
            f"{workspace.type(root)} over a {workspace.type(lower)}"
        )
    (origin,) = feeding(workspace, lower)
    before, between = shaped_info(workspace, origin), shaped_info(workspace, source)
    check_bypass(workspace, root, origin)
    if before.canonical_type not in _TYPES or between.data_type not in FLOATS or between.quantization_scales:
        raise Refused(
            f"{workspace.describe(lower)} makes {between.data_type} of {before.data_type}: known are floats of "
            f"{', '.join(sorted(_TYPES))}"
        )
    if not _lossless(before, between):
        raise Refused(f"{between.data_type} of {workspace.describe(lower)} does not hold every number of its input")
    return Plan(origin, lower)


def apply(workspace: Workspace, match: Match, plan: Plan) -> None:
    """Take out the Quantize, and the Dequantize where nothing else reads it."""
    bypass(workspace, match.root, plan.source, [plan.lower])


def _lossless(info: TensorInfo, between: TensorInfo) -> bool:
    """Whether every number comes back through the float type of ``between``."""
    limits = np.iinfo(info.dtype)
    numbers = np.arange(limits.min, limits.max + 1, dtype=np.float32)
    offset = 0 if info.quantization_scales else info.quantization_offset
    for scale in map(np.float32, set(info.quantization_scales) or {info.quantization_scale}):
        with np.errstate(all="ignore"):
            real = ((numbers - np.float32(offset)) * scale).astype(between.dtype).astype(np.float32)
            back = np.rint(real / scale) + np.float32(offset)
        if not np.array_equal(back, numbers):
            return False
    return True


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((frozenset({"Quantize"}),), more=True),))
