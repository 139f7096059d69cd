"""Constants without their payload's type get it: no release reads them otherwise."""

from __future__ import annotations

from dataclasses import replace

from fusion_engine.network import FrozenDict
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.workspace import Workspace

__all__ = ["BFLOAT16", "run"]

BFLOAT16 = "releases: bfloat16"
"""Where a workspace's memo lists layers whose Float16 may be another format."""


def run(workspace: Workspace, _: Release) -> tuple[Obstacle, ...]:
    """Mark every tensor as tagged: the writer stores the type that its DataType has.

    An untagged Float16 may be the BFloat16 that Arm NN 20.08 writes so; it is noted in the memo.
    """
    for key in workspace.order():
        held = workspace.constants(key)
        if any(tensor.untagged for tensor in held.values()):
            if any(tensor.untagged and tensor.info.data_type == "Float16" for tensor in held.values()):
                workspace.memo.setdefault(BFLOAT16, []).append(workspace.describe(key))
            workspace.set(
                key, constants=FrozenDict({field: replace(tensor, untagged=False) for field, tensor in held.items()})
            )
    return ()
