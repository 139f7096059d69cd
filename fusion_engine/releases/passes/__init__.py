"""The steps of a conversion, one file each, in the order in which they run.

A step is ``run(workspace, release)``: it takes away what keeps the release from reading the network
where that can be done exactly, leaves everything else as it is, and gives the obstacles that only it
can tell. What is left is found by `fusion_engine.releases.needs`. Networks come in the field names of
the current dialect, opaque layers undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.releases.passes import (
    aliases,
    batch_norms,
    bias_scales,
    dequantize,
    descriptors,
    extras,
    fill,
    l2_pooling,
    lstm,
    pads,
    ranks,
    spelling,
    squared_difference,
    untagged,
    weights,
)
from fusion_engine.workspace import Workspace

__all__ = ["PASSES", "Pass"]

Pass: TypeAlias = Callable[[Workspace, Release], Iterable[Obstacle]]

PASSES: tuple[Pass, ...] = (
    untagged.run,
    spelling.run,
    squared_difference.run,
    l2_pooling.run,
    aliases.run,
    descriptors.run,
    lstm.run,
    fill.run,
    dequantize.run,
    weights.run,
    bias_scales.run,
    ranks.run,
    pads.run,
    batch_norms.run,
    extras.run,
)
"""Every step, in order: spellings before DataTypes, computed weights before weights."""
