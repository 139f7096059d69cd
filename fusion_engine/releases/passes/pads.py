"""A Pad is kept apart from a layer that an optimizer would fold it into wrongly.

The optimizer puts the Pad's extents of height and width in the place of the convolution's own padding.
It loses what else the Pad does: other values than zero (of a quantized tensor: than the zero point,
since padValue is a stored value and a convolution's own padding is real zeros), padding of channels or
batches, and the padding that the convolution had. Newer ones lose the paddingMode: what is Reflect or
Symmetric becomes zeros, in pooling too. A Reshape to the same shape between them keeps it from doing so.
"""

from __future__ import annotations

from typing import Any

from fusion_engine.folds.conditions import QUANTIZED
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.releases.passes.added import keep_apart
from fusion_engine.weights import channel_axis
from fusion_engine.workspace import Workspace

__all__ = ["run"]

_WINDOWED = ("Convolution2d", "DepthwiseConvolution2d", "Pooling2d")
"""Layer types that optimizers fold a Pad into."""


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Put a Reshape before each layer that a Pad would be folded into wrongly."""
    if not (release.folds_pads or release.folds_modes):
        return ()
    for key in workspace.order():
        if workspace.type(key) not in _WINDOWED:
            continue
        source = workspace.source(key, 0)
        if source is None or workspace.type(source.layer) != "Pad":
            continue
        if _lost(workspace, key, source.layer, release):
            keep_apart(workspace, key, "padded")
    return ()


def _lost(workspace: Workspace, key: int, pad: int, release: Release) -> bool:
    """Whether folding loses anything."""
    if (
        release.folds_modes
        and workspace.param(pad, "paddingMode") != "Constant"
        and any(workspace.param(pad, "padList"))
    ):
        return True
    if not release.folds_pads or workspace.type(key) != "Convolution2d":
        return False
    own = [workspace.param(key, f"pad{side}") for side in ("Left", "Right", "Top", "Bottom")]
    pads: tuple[Any, ...] = workspace.param(pad, "padList")
    channels = channel_axis(workspace.param(key, "dataLayout"), len(pads) // 2)
    others = [pads[2 * axis : 2 * axis + 2] for axis in (0, channels) if axis is not None]
    return any(own) or any(map(any, others)) or workspace.param(pad, "padValue") != _zero(workspace, pad)


def _zero(workspace: Workspace, pad: int) -> float:
    """What a Pad must write so that it writes zeros."""
    info = (*workspace.outputs(pad), None)[0]
    return float(info.quantization_offset) if info is not None and info.canonical_type in QUANTIZED else 0.0
