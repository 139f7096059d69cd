"""A squared difference, which BinaryOperation has since 23.08, as Subtraction and the product with itself."""

from __future__ import annotations

from fusion_engine.network import EMPTY, Source
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.releases.passes.added import note_added
from fusion_engine.tensor import FLOATS
from fusion_engine.workspace import Workspace

__all__ = ["run"]


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Split ElementwiseBinary layers; of floats only, since a quantized difference would be rounded once more."""
    if "BinaryOperation.SqDiff" in release.values:
        return ()
    for key in workspace.order():
        if workspace.type(key) != "ElementwiseBinary":
            continue
        info = (*workspace.outputs(key), None)[0]
        if info is None or info.data_type not in FLOATS or workspace.param(key, "operation") != "SqDiff":
            continue
        if not {"Subtraction", "Multiplication"} <= release.layers:
            continue
        name = workspace.names.unique(f"{workspace.name(key) or workspace.type(key)}/difference")
        difference = workspace.add("Subtraction", name, (info,))
        for slot, _ in workspace.inputs(key):
            workspace.connect(workspace.disconnect(key, slot), difference, slot)
        workspace.unset(key, "overrides")
        workspace.set(key, type="Multiplication", params=EMPTY)
        for slot in (0, 1):
            workspace.connect(Source(difference, 0), key, slot)
        note_added(workspace, difference, key, 0)
    return ()
