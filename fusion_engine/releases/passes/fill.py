"""A Fill whose value a reader ignores becomes the Constant that it computes."""

from __future__ import annotations

import math

import numpy as np

from fusion_engine.network import EMPTY, FrozenDict
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.tensor import FLOATS, Tensor
from fusion_engine.workspace import Workspace

__all__ = ["run"]

_OVERFLOW = "a Fill with a value beyond what its DataType holds, of which no Constant can be made"


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Make Constants of Fills that the release does not read; of a known shape, Float32 or Float16.

    A value that overflows there is refused: what it becomes is not said, and backends differ.
    """
    refused = []
    for key in workspace.order():
        if workspace.type(key) != "Fill":
            continue
        if release.fault(workspace.graph, key) is None:
            continue
        info = (*workspace.outputs(key), None)[0]
        if info is None or not info.known or info.data_type not in FLOATS:
            continue
        value = float(workspace.param(key, "value"))
        if math.isfinite(value) and abs(value) > float(np.finfo(info.dtype).max):
            refused.append(key)
            continue
        tensor = Tensor(info, np.full(info.shape, value, info.dtype))
        fed = [workspace.disconnect(key, slot).layer for slot, _ in workspace.inputs(key)]
        workspace.unset(key, "overrides", "unconnected")
        workspace.set(key, type="Constant", params=EMPTY, constants=FrozenDict(input=tensor))
        workspace.drop_unused(fed)
    if not refused:
        return ()
    return (Obstacle(_OVERFLOW, None, tuple(refused), tuple(map(workspace.describe, refused))),)
