"""Descriptors that a layer type got later: Gather's, in 20.08."""

from __future__ import annotations

from fusion_engine.network import FrozenDict, default_params
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.schema import schema, slot_facts
from fusion_engine.workspace import Workspace

__all__ = ["run"]


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Give the descriptor, at its defaults, where the reader wants one; take it where there is none.

    Only one that says nothing but defaults is taken.
    """
    for name, facts in slot_facts().items():
        if facts.get("descriptor") is not False:
            continue
        table = schema().layers[name].descriptor
        if table is None:
            continue
        defaults = default_params(table, schema())
        known = f"{name}Layer.descriptor" in release.fields
        for key in list(workspace.of_type(name)):
            params = workspace.graph.nodes[key].get("params")
            if known and params is None:
                workspace.set(key, params=FrozenDict(defaults))
            elif not known and params is not None and {**defaults, **params} == defaults:
                workspace.set(key, params=None)
    return ()
