"""A BatchNormalization is kept apart from a convolution of the other dataLayout.

Newer optimizers fold it into the convolution that feeds it without a look at its own dataLayout, so
that another axis is normalized. A Reshape to the same shape between them keeps them from doing so.
"""

from __future__ import annotations

from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.releases.passes.added import keep_apart
from fusion_engine.workspace import Workspace

__all__ = ["run"]


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Put a Reshape before each BatchNormalization that would be folded into a convolution wrongly."""
    if not release.folds_layouts:
        return ()
    for key in workspace.order():
        if workspace.type(key) != "BatchNormalization":
            continue
        source = workspace.source(key, 0)
        if source is None or workspace.type(source.layer) not in ("Convolution2d", "DepthwiseConvolution2d"):
            continue
        if workspace.param(key, "dataLayout") != workspace.param(source.layer, "dataLayout"):
            keep_apart(workspace, key, "convolved")
    return ()
