"""Pooling by L2, on which older readers abort: the root of the average of the squares, which is what it is.

Backends square and average in Float32 and round the root once. Squares that are tensors of Float16
overflow above 255.9 and vanish below 2.4e-4, and 8 bits cannot hold them either: only Float32 is split.
"""

from __future__ import annotations

from fusion_engine.network import FrozenDict, Source
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.releases.passes.added import note_added
from fusion_engine.tensor import FLOATS, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["run"]

_HALF = "pooling by L2 of Float16 cannot be split into other layers: the squares overflow or vanish in Float16"


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Split Pooling2d layers of Float32; those of Float16 are refused with the reason."""
    half = []
    for key in workspace.order():
        if workspace.type(key) != "Pooling2d" or release.fault(workspace.graph, key) is None:
            continue
        source = workspace.source(key, 0)
        before = None if source is None else workspace.info(source)
        after = (*workspace.outputs(key), None)[0]
        if before is None or after is None or not {before.data_type, after.data_type} <= FLOATS:
            continue
        if "Float16" in (before.data_type, after.data_type):
            half.append(key)
            continue
        label = workspace.name(key) or workspace.type(key)
        fed = workspace.disconnect(key, 0)
        squared = _add(workspace, key, "Activation", f"{label}/squared", before, _activation("Square"))
        averaged = _add(workspace, key, "Pooling2d", f"{label}/averaged", after, workspace.graph.nodes[key]["params"])
        workspace.set(averaged, params=workspace.graph.nodes[averaged]["params"].with_(poolType="Average"))
        workspace.unset(key, "overrides")
        workspace.set(key, type="Activation", params=_activation("Sqrt"))
        workspace.connect(fed, squared, 0)
        workspace.connect(Source(squared, 0), averaged, 0)
        workspace.connect(Source(averaged, 0), key, 0)
    if not half:
        return ()
    places = tuple(map(workspace.describe, half))
    return (Obstacle(_HALF, None, tuple(half), places),)


def _add(workspace: Workspace, key: int, kind: str, name: str, info: TensorInfo, params: FrozenDict) -> int:
    made = workspace.add(kind, workspace.names.unique(name), (info,), params)
    note_added(workspace, made, key, 0)
    return made


def _activation(function: str) -> FrozenDict:
    return FrozenDict(activationFunction=function, a=0.0, b=0.0)
