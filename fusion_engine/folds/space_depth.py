"""space-depth: batch and channels swapped, BatchToSpaceNd or SpaceToBatchNd, and swapped back, is one layer.

BatchToSpaceNd spreads blocks of the batch over height and width; between two swaps of batch and
channels (output dimensions 3, 1, 2, 0) it spreads blocks of the channels, as DepthToSpace does, in
the same order. SpaceToBatchNd and SpaceToDepth are the ways back.

DepthToSpace and SpaceToDepth came with release 19.11 and 19.08. Files say their release only
roughly: one is of 19.11 or later where it has a bindingIdsScheme (since 20.02) or a layer of a type
that 19.08 did not have.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.moves import PERMUTES, drop, feed, feeding, permutation, require_same_values, shaped_info
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.schema import schema
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_SWAP = (3, 1, 2, 0)

_BECOMES = {"BatchToSpaceNd": ("DepthToSpace", "crops"), "SpaceToBatchNd": ("SpaceToDepth", "padList")}
"""The layer that each becomes, and the parameter that must hold nothing but zeros."""

_LAST_TAG_OF_19_08 = schema().layers["Stack"].tag
"""The union grew by Abs and later members from 19.11 on."""


@dataclass(frozen=True)
class Plan:
    """The new layer's type and block size, what feeds it, and the layers below the root."""

    type: str
    block: int
    source: Source
    below: tuple[int, int]


def check(workspace: Workspace, match: Match) -> Plan:
    """The DepthToSpace or SpaceToDepth that three layers are.

    Raises
    ------
    Refused
        Where a swap is another permutation, the layer between is not NHWC, has crops, pads or an
        oblong block, type or quantization changes, or the file may be too old for the new layer.
    """
    root = match.root
    (source,) = feeding(workspace, root)
    middle = source.layer
    kinds = [workspace.type(root), workspace.type(middle)]
    lower = workspace.source(middle, 0)
    if lower is not None:
        kinds.append(workspace.type(lower.layer))
    if lower is None or kinds[0] not in PERMUTES or kinds[1] not in _BECOMES or kinds[2] not in PERMUTES:
        raise Refused(
            f"space-depth takes a Permute or Transpose over {' or '.join(_BECOMES)} over a Permute or Transpose; "
            f"at {workspace.describe(root)} lie {', '.join(kinds)}"
        )
    feeding(workspace, middle)
    (origin,) = feeding(workspace, lower.layer)
    for key in (root, lower.layer):
        if permutation(workspace, key) != _SWAP:
            raise Refused(
                f"{workspace.describe(key)} does not swap batch and channels: it is {permutation(workspace, key)}"
            )
    becomes, margin = _BECOMES[kinds[1]]
    block = _block(workspace, middle, margin)
    require_same_values(workspace, origin, lower, source, Source(root, 0))
    before, after = shaped_info(workspace, origin).shape, shaped_info(workspace, Source(root, 0)).shape
    small, large = (before, after) if becomes == "DepthToSpace" else (after, before)
    if large != (small[0], small[1] * block, small[2] * block, small[3] // block**2) or small[3] % block**2:
        raise Refused(
            f"{workspace.describe(root)} gives {after} for {before}, which no {becomes} of block {block} does"
        )
    _check_age(workspace, becomes)
    return Plan(becomes, block, origin, (middle, lower.layer))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Let the root be the new layer; those below go where nothing else reads them."""
    workspace.set(match.root, type=plan.type, params=FrozenDict(blockSize=plan.block, dataLayout="NHWC"))
    feed(workspace, match.root, plan.source)
    drop(workspace, plan.below)
    return match.root


def _block(workspace: Workspace, key: int, margin: str) -> int:
    """The block size of a BatchToSpaceNd or SpaceToBatchNd that a layer of one size can replace."""
    place = workspace.describe(key)
    if workspace.param(key, "dataLayout") != "NHWC":
        raise Refused(f"{place} is {workspace.param(key, 'dataLayout')}, not NHWC")
    if any(workspace.param(key, margin)):
        raise Refused(f"{place} has the {margin} {tuple(workspace.param(key, margin))}")
    block = tuple(workspace.param(key, "blockShape"))
    if len(block) != 2 or block[0] != block[1] or block[0] < 1:
        raise Refused(f"{place} has the block {block}, which is no square")
    return int(block[0])


def _check_age(workspace: Workspace, becomes: str) -> None:
    """Refuse where the releases that read the file now may not know the new layer."""
    graph = workspace.graph.graph
    if graph.get("dialect", "current") != "current":
        raise Refused(f"the {graph['dialect']} dialect has no {becomes}")
    layers = schema().layers
    types = {node["type"] for node in workspace.graph.nodes.values()}
    young = any(name in layers and layers[name].tag > _LAST_TAG_OF_19_08 for name in types)
    if not graph.get("feature_versions", (1, 1, 1))[0] and not young and becomes not in types:
        raise Refused(f"nothing in the file shows that it is of release 19.11 or later, the first with {becomes}")


FOLD = Fold(check, apply, accepts=(Accepts((PERMUTES,), more=True),))
