"""identity-layers: layers that give what they are given, by their parameters or by a Constant, go.

These are a Pad of nothing, Slice and StridedSlice of the whole, Concat and Splitter of one, Mean and
Reduce over axes of extent 1 that are kept, Cast to the same type, Multiplication and Division by 1, Addition and
Subtraction of 0. Quantization must be the same on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fusion_engine.folds import Fold, Inapplicable, Refused
from fusion_engine.folds.arithmetic import BINARY, binary_name, real_values
from fusion_engine.folds.moves import bypass, check_bypass, feeding, shaped_info
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.tensor import Tensor
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""The operand that changes nothing; of Sub and Div as the second only."""


@dataclass(frozen=True)
class Plan:
    """What the consumers of the layer will read."""

    source: Source


def check(workspace: Workspace, match: Match) -> Plan:
    """The output that a layer repeats.

    Raises
    ------
    Refused
        Where it does, and shape, type or quantization change all the same, or an Input would be left
        to feed an Output.
    """
    root = match.root
    kind = workspace.type(root)
    if kind in BINARY:
        source = _other_operand(workspace, root)
    elif kind not in _TESTS:
        raise Refused(f"identity-layers does not take a {kind}: {workspace.describe(root)}")
    else:
        found = workspace.source(root, 0)
        if found is None or workspace.graph.nodes[root].get("params", {}) is None:
            raise Inapplicable(f"{workspace.describe(root)} is not complete")
        if not _TESTS[kind](workspace, root, found):
            raise Inapplicable(f"{workspace.describe(root)} is no identity")
        (source,) = feeding(workspace, root)
    check_bypass(workspace, root, source)
    return Plan(source)


def apply(workspace: Workspace, match: Match, plan: Plan) -> None:
    """Take the layer out."""
    bypass(workspace, match.root, plan.source)


def _pads_nothing(workspace: Workspace, key: int, source: Source) -> bool:
    return not any(workspace.param(key, "padList"))


def _slices_whole(workspace: Workspace, key: int, source: Source) -> bool:
    return not any(workspace.param(key, "begin")) and tuple(workspace.param(key, "size")) == _shape(workspace, source)


def _strides_whole(workspace: Workspace, key: int, source: Source) -> bool:
    """Each axis from its first to its last element by 1; where a mask says so, begin or end do not count."""
    shape = _shape(workspace, source)
    masks = ("shrinkAxisMask", "ellipsisMask", "newAxisMask")
    if any(workspace.param(key, mask) for mask in masks):
        return False
    begin, end, stride = (tuple(workspace.param(key, field)) for field in ("begin", "end", "stride"))
    if not len(begin) == len(end) == len(stride) == len(shape):
        return False
    begins, ends = workspace.param(key, "beginMask"), workspace.param(key, "endMask")
    return all(
        step == 1 and (begins >> axis & 1 or first in (0, -size)) and (ends >> axis & 1 or last >= size)
        for axis, (size, first, last, step) in enumerate(zip(shape, begin, end, stride, strict=True))
    )


def _joins_one(workspace: Workspace, key: int, source: Source) -> bool:
    return len(workspace.inputs(key)) == 1


def _splits_into_one(workspace: Workspace, key: int, source: Source) -> bool:
    origins = workspace.param(key, "origins")
    return len(workspace.outputs(key)) == 1 and not any(any(view) for view in origins.get("viewOrigins", ()))


def _reduces_ones(workspace: Workspace, key: int, source: Source) -> bool:
    """Axes of extent 1, kept; without any axis all of them."""
    shape = _shape(workspace, source)
    axes = tuple(workspace.param(key, "axis")) or tuple(range(len(shape)))
    return bool(workspace.param(key, "keepDims")) and all(axis < len(shape) and shape[axis] == 1 for axis in axes)


def _casts_to_same(workspace: Workspace, key: int, source: Source) -> bool:
    before, after = workspace.info(source), workspace.info(Source(key, 0))
    return before is not None and after is not None and before.canonical_type == after.canonical_type


def _shape(workspace: Workspace, source: Source) -> tuple[int, ...]:
    return shaped_info(workspace, source).shape


_TESTS: dict[str, Callable[[Workspace, int, Source], bool]] = {
    "Pad": _pads_nothing,
    "Slice": _slices_whole,
    "StridedSlice": _strides_whole,
    "Concat": _joins_one,
    "Merger": _joins_one,
    "Splitter": _splits_into_one,
    "Mean": _reduces_ones,
    "Reduce": _reduces_ones,
    "Cast": _casts_to_same,
}
"""Per layer type whether its parameters make it an identity."""


def _other_operand(workspace: Workspace, key: int) -> Source:
    """The operand of an elementwise layer whose other operand is a Constant that changes nothing."""
    name = binary_name(workspace, key)
    inputs = workspace.inputs(key)
    if name not in _NEUTRAL or [slot for slot, _ in inputs] != [0, 1]:
        raise Inapplicable(f"{workspace.describe(key)} has no neutral operand")
    for slot in (1, 0) if name in ("Add", "Mul") else (1,):
        tensor = workspace.tensor(inputs[slot][1].layer)
        if tensor is not None and _is_all(tensor, _NEUTRAL[name], workspace.describe(key)):
            return feeding(workspace, key, 2)[1 - slot]
    raise Inapplicable(f"{workspace.describe(key)} has no neutral operand")


def _is_all(tensor: Tensor, value: int, place: str) -> bool:
    """Whether a tensor's real values are all ``value``, as the layer sees them: in float32."""
    if tensor.untagged and tensor.info.data_type == "Float16":
        return False
    tensor.require_intact()
    if tensor.info.data_type in ("Signed32", "Signed64"):
        return bool(np.all(tensor.data == value))
    try:
        return bool(np.all(real_values(tensor, place).astype(np.float32) == value))
    except Refused:
        return False


def _glance(workspace: Workspace, keys: Iterable[int]) -> list[int]:
    """An elementwise layer is worth a look where it reads a Constant."""
    return [key for key in keys if workspace.type(key) not in BINARY or workspace.reads(key, "Constant")]


FOLD = Fold(check, apply, roots=frozenset({*_TESTS, *BINARY}), reach=2, glance=_glance)
