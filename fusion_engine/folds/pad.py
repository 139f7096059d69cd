"""pad: a Pad into the padding of the convolution or pooling above it.

The pads are added to those that the layer has. What a layer sees around its input is fixed, so the
Pad must write just that: zero, in a quantized tensor the zero point (`padValue` is a stored value
there), in a maximum the lowest value of the type. An average divides by the size of its window; of the
paddingMethods only IgnoreValue counts the padding in, which the result therefore has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.conditions import QUANTIZED, absorb_input, check_override, check_plain, known_info
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.tensor import FLOATS, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

CONVOLUTIONS = frozenset({"Convolution2d", "DepthwiseConvolution2d", "Convolution3d"})

UINT_MAX = 0xFFFFFFFF


class _Axis(NamedTuple):
    """An axis that a window slides over: its position, and its fields in a descriptor."""

    position: int
    before: str
    after: str
    stride: str
    size: str


_DEPTH = ("padFront", "padBack", "strideZ", "poolDepth")
_HEIGHT = ("padTop", "padBottom", "strideY", "poolHeight")
_WIDTH = ("padLeft", "padRight", "strideX", "poolWidth")

_AXES = {
    "NHWC": (_Axis(1, *_HEIGHT), _Axis(2, *_WIDTH)),
    "NCHW": (_Axis(2, *_HEIGHT), _Axis(3, *_WIDTH)),
    "NDHWC": (_Axis(1, *_DEPTH), _Axis(2, *_HEIGHT), _Axis(3, *_WIDTH)),
    "NCDHW": (_Axis(2, *_DEPTH), _Axis(3, *_HEIGHT), _Axis(4, *_WIDTH)),
}


@dataclass(frozen=True)
class Plan:
    """What `apply` does: the Pad that goes, and the fields that the layer above gets."""

    pad: int
    fields: FrozenDict


def check(workspace: Workspace, match: Match) -> Plan:
    """The layer's new pads; ``match.layers`` is the layer and the Pad below it.

    Raises
    ------
    Refused
        Where the layer with more padding would not compute what the two do.
    """
    root, pad = _layers(workspace, match)
    before, padded = _tensors(workspace, root, pad)
    axes = _axes(workspace, root, len(padded.shape))
    pads = _pads(workspace, pad, before, padded, axes)
    own = {name: workspace.param(root, name) for axis in axes for name in (axis.before, axis.after)}
    fields: dict[str, Any] = {name: own[name] + pads[name] for name in own}
    for name, value in fields.items():
        if value > UINT_MAX:
            raise Refused(f"{workspace.describe(root)} would have a {name} of {value}, more than its field holds")
    if workspace.type(root) in CONVOLUTIONS:
        _check_value(workspace, pad, padded, "zero")
    elif workspace.param(root, "poolType") == "Max":
        _check_value(workspace, pad, padded, "lowest")
        _check_extents(workspace, root, padded, before, axes, own, fields)
        _check_windows(workspace, root, before, axes, fields)
    else:
        _check_average(workspace, root, padded, own)
        _check_value(workspace, pad, padded, "zero")
        _check_extents(workspace, root, padded, before, axes, own, fields)
        fields["paddingMethod"] = "IgnoreValue"
    return Plan(pad, FrozenDict(fields))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Let the layer read what the Pad read, with the sum of both pads."""
    absorb_input(workspace, match.root, plan.pad)
    params = workspace.graph.nodes[match.root]["params"]
    workspace.set(match.root, params=FrozenDict({**params, **plan.fields}))
    return match.root


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((CONVOLUTIONS | {"Pooling2d"}, frozenset({"Pad"}))),))


def _layers(workspace: Workspace, match: Match) -> tuple[int, int]:
    types = [workspace.type(key) for key in match.layers]
    if len(types) != 2 or types[0] not in {*CONVOLUTIONS, "Pooling2d"} or types[1] != "Pad":
        known = ", ".join(sorted({*CONVOLUTIONS, "Pooling2d"}))
        raise Refused(f"pad takes one of {known} over a Pad; the match holds {', '.join(types) or 'no layer'}")
    root, pad = match.layers
    check_plain(workspace, root, pad)
    if [(slot, source) for slot, source in workspace.inputs(root) if source.layer == pad] != [(0, Source(pad, 0))]:
        raise Refused(f"{workspace.describe(root)} does not take {workspace.describe(pad)} on input slot 0 alone")
    if [slot for slot, _ in workspace.inputs(pad)] != [0]:
        raise Refused(f"{workspace.describe(pad)} has other inputs than slot 0")
    mode = workspace.param(pad, "paddingMode")
    if mode != "Constant":
        raise Refused(f"{workspace.describe(pad)} has the paddingMode {mode}: only Constant is what a layer's pads do")
    return root, pad


def _tensors(workspace: Workspace, root: int, pad: int) -> tuple[TensorInfo, TensorInfo]:
    """TensorInfo before and after the Pad: of known shape, one type, one quantization."""
    source = dict(workspace.inputs(pad))[0]
    before, padded = known_info(workspace, source), known_info(workspace, Source(pad, 0))
    for key, info in ((source.layer, before), (pad, padded)):
        if not info.known:
            raise Refused(f"{workspace.describe(key)} gives a tensor of unknown shape")
        if info.quantization_scales:
            raise Refused(f"{workspace.describe(key)} gives a tensor with a quantization per axis")
    check_override(workspace, root, 0, padded)
    check_override(workspace, pad, 0, before)
    kind = padded.canonical_type
    if kind not in FLOATS and kind not in QUANTIZED:
        raise Refused(f"{workspace.describe(pad)} gives {padded.data_type}, which no layer with pads takes")
    if before.canonical_type != kind or (kind in QUANTIZED and before.quantization != padded.quantization):
        raise Refused(f"{workspace.describe(pad)} changes data type or quantization")
    return before, padded


def _axes(workspace: Workspace, root: int, rank: int) -> tuple[_Axis, ...]:
    layout = workspace.param(root, "dataLayout")
    axes = _AXES.get(layout, ())
    if len(axes) + 2 != rank or (workspace.type(root) == "Convolution3d") != (rank == 5):
        raise Refused(f"{workspace.describe(root)} is {layout} and takes a tensor of rank {rank}")
    return axes


def _pads(
    workspace: Workspace, pad: int, before: TensorInfo, padded: TensorInfo, axes: tuple[_Axis, ...]
) -> dict[str, int]:
    """The Pad's amounts by the field that each goes into."""
    listed = workspace.param(pad, "padList")
    pairs = list(zip(listed[::2], listed[1::2], strict=False))
    shape = tuple(size + sum(pair) for size, pair in zip(before.shape, pairs, strict=False))
    if len(listed) != 2 * len(before.shape) or shape != padded.shape:
        raise Refused(
            f"{workspace.describe(pad)} makes shape {padded.shape} of {before.shape}, other than its padList {listed}"
        )
    sliding = {axis.position for axis in axes}
    for position, pair in enumerate(pairs):
        if position not in sliding and pair != (0, 0):
            what = "batch" if position == 0 else "channel"
            raise Refused(f"{workspace.describe(pad)} pads the {what} axis {position} by {pair}")
    found = {}
    for axis in axes:
        found[axis.before], found[axis.after] = pairs[axis.position]
    return found


def _check_value(workspace: Workspace, pad: int, padded: TensorInfo, neutral: str) -> None:
    """The Pad writes what the layer above takes its surroundings for."""
    value = workspace.param(pad, "padValue")
    place = f"{workspace.describe(pad)} writes {value:g}"
    if padded.canonical_type in QUANTIZED:
        lowest = int(np.iinfo(padded.dtype).min)
        wanted, what = (padded.quantization_offset, "zero point") if neutral == "zero" else (lowest, "lowest value")
        if value != wanted:
            raise Refused(f"{place}: the {what} of its {padded.data_type} is {wanted}")
        return
    if neutral == "zero" and value != 0:
        raise Refused(f"{place}: the pads of a layer are zeros")
    smallest = float(np.finfo(padded.dtype).min)
    if neutral == "lowest" and not value <= smallest:
        raise Refused(f"{place}: the pads of a maximum are below {smallest:.6g}, the lowest {padded.data_type}")


def _check_average(workspace: Workspace, root: int, padded: TensorInfo, own: dict[str, int]) -> None:
    place = workspace.describe(root)
    kind = workspace.param(root, "poolType")
    if kind not in ("Average", "L2"):
        raise Refused(f"{place} has the unknown poolType {kind}")
    if padded.canonical_type not in FLOATS:
        raise Refused(
            f"{place} is {kind} pooling of {padded.data_type}: backends differ in how a quantized average counts its "
            "padding"
        )
    method = workspace.param(root, "paddingMethod")
    if any(own.values()) and method != "IgnoreValue":
        raise Refused(f"{place} has pads of its own under paddingMethod {method}, which the Pad's would come under too")


def _extent(size: int, before: int, after: int, window: int, stride: int, ceiling: bool) -> int:
    """Windows of a Pooling2d along an axis, as Arm NN infers them: none begins behind input and front padding."""
    room = size + before + after - window
    count = (-(-room // stride) if ceiling else room // stride) + 1
    return count - 1 if (count - 1) * stride >= size + before else count


def _check_extents(
    workspace: Workspace,
    root: int,
    padded: TensorInfo,
    before: TensorInfo,
    axes: tuple[_Axis, ...],
    own: dict[str, int],
    fields: dict[str, Any],
) -> None:
    """The pooling has as many windows over the unpadded tensor as over the padded one.

    That is not so where a last window begins in the padding alone.
    """
    strides = [workspace.param(root, axis.stride) for axis in axes]
    if not any(strides):
        return  # global pooling: one window
    ceiling = workspace.param(root, "outputShapeRounding") == "Ceiling"
    for axis, stride in zip(axes, strides, strict=True):
        window = workspace.param(root, axis.size)
        if not stride:
            raise Refused(f"{workspace.describe(root)} has {axis.stride} 0")
        was = _extent(padded.shape[axis.position], own[axis.before], own[axis.after], window, stride, ceiling)
        now = _extent(before.shape[axis.position], fields[axis.before], fields[axis.after], window, stride, ceiling)
        if was != now:
            raise Refused(
                f"{workspace.describe(root)} has {was} windows along axis {axis.position} and would have {now}: "
                "the last begins in the padding"
            )


def _check_windows(
    workspace: Workspace, root: int, before: TensorInfo, axes: tuple[_Axis, ...], fields: dict[str, Any]
) -> None:
    """No window of a maximum lies in the padding alone: Arm NN gives 0 for that, not the lowest value."""
    after = known_info(workspace, Source(root, 0))
    if not after.known or len(after.shape) != len(before.shape):
        raise Refused(f"{workspace.describe(root)} gives a tensor of unknown shape")
    for axis in axes:
        window, stride = workspace.param(root, axis.size), workspace.param(root, axis.stride)
        last = (after.shape[axis.position] - 1) * stride - fields[axis.before]
        if window <= fields[axis.before] or last >= before.shape[axis.position]:
            raise Refused(
                f"{workspace.describe(root)} has a window of padding alone along axis {axis.position}: "
                "a maximum over nothing is 0 in Arm NN"
            )
