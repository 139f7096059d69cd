"""What later schemas added beside what a layer means, and older dialects have no place for, is left out.

Whether a tensor was taken as constant, that all of a shape is known, and TensorInfos of input slots that
override nothing. Readers in the current dialect pass such fields over, so they stay in files for those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fusion_engine.network import FrozenDict
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.schema import schema
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["run"]


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Leave out what the release's dialect has no fields for, where it says nothing."""
    tables = schema(release.dialect).tables
    known = tables["TensorInfo"].by_name.keys()
    if "isConstant" in known:
        return ()
    for key in workspace.order():
        node = workspace.graph.nodes[key]
        changes: dict[str, Any] = {"outputs": tuple(_plain(info) for info in node.get("outputs", ()))}
        if node.get("constants"):
            changes["constants"] = FrozenDict({field: _tensor(t) for field, t in node["constants"].items()})
        changes = {name: value for name, value in changes.items() if value != node.get(name)}
        if changes:
            workspace.set(key, **changes)
        overrides: dict[Any, Any] = node.get("overrides") or {}
        if overrides and not any(overridden for overridden, _ in overrides.values()):
            workspace.unset(key, "overrides")
    return ()


def _plain(info: TensorInfo | None) -> TensorInfo | None:
    if info is None:
        return None
    specific = () if all(info.dimension_specificity) else info.dimension_specificity
    return replace(info, is_constant=False, dimension_specificity=specific)


def _tensor(tensor: Tensor) -> Tensor:
    info = _plain(tensor.info)
    return tensor if info is None or info == tensor.info else replace(tensor, info=info)
