"""An Lstm without CIFG gets the tensor that readers take whether or not it is used."""

from __future__ import annotations

import numpy as np

from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.tensor import Tensor
from fusion_engine.workspace import Workspace

__all__ = ["run"]


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Give ``cellToInputWeights``, zeros, to layers whose descriptor says that nothing uses it."""
    for key in workspace.order():
        if workspace.type(key) != "Lstm":
            continue
        if release.fault(workspace.graph, key) is None or workspace.param(key, "peepholeEnabled"):
            continue
        held = workspace.constants(key)
        like = held.get("inputGateBias")
        if like is not None and "cellToInputWeights" not in held:
            zeros = Tensor(like.info, np.zeros(like.info.shape, like.info.dtype))
            workspace.set(key, constants=held.with_(cellToInputWeights=zeros))
    return ()
