"""DataTypes that were renamed: a release before 20.02 gets the old values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fusion_engine.network import FrozenDict
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.tensor import ALIASES, Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["run"]


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Write QAsymmU8 and QSymmS16 by their old names where the release has no others.

    Later releases read both, so the old names stay where they are.
    """
    renamed = {
        new: old
        for old, new in ALIASES.items()
        if f"DataType.{new}" not in release.values and f"DataType.{old}" in release.values
    }
    if not renamed:
        return ()
    for key in workspace.order():
        node = workspace.graph.nodes[key]
        changes: dict[str, Any] = {"outputs": tuple(_info(info, renamed) for info in node.get("outputs", ()))}
        if node.get("constants"):
            changes["constants"] = FrozenDict({f: _tensor(t, renamed) for f, t in node["constants"].items()})
        if node.get("overrides"):
            entries: dict[Any, Any] = {s: (flag, _info(info, renamed)) for s, (flag, info) in node["overrides"].items()}
            changes["overrides"] = FrozenDict(entries)
        changes = {name: value for name, value in changes.items() if value != node.get(name)}
        if changes:
            workspace.set(key, **changes)
    return ()


def _info(info: TensorInfo | None, renamed: dict[str, str]) -> TensorInfo | None:
    if info is None or info.data_type not in renamed:
        return info
    return replace(info, data_type=renamed[info.data_type])


def _tensor(tensor: Tensor, renamed: dict[str, str]) -> Tensor:
    info = _info(tensor.info, renamed)
    return tensor if info is None or info is tensor.info else replace(tensor, info=info)
