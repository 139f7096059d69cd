"""permutes: a Permute or Transpose over another becomes one, or none where they undo each other.

Of two layers, output dimension i of the upper is the middle's ``upper[i]``, which is the input's
``lower[upper[i]]``. An identity by itself goes too.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusion_engine.folds import Accepts, Fold, Inapplicable, Refused
from fusion_engine.folds.moves import (
    PERMUTES,
    bypass,
    check_bypass,
    drop,
    feed,
    feeding,
    mappings,
    permutation,
    require_same_values,
)
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]


@dataclass(frozen=True)
class Plan:
    """What feeds the result, its order of dimensions (None where nothing is left to do), and the layer below."""

    source: Source
    order: tuple[int, ...] | None
    lower: int | None


def check(workspace: Workspace, match: Match) -> Plan:
    """The permutation that is left of a Permute or Transpose and the one below it.

    Raises
    ------
    Refused
        Where quantization or data type changes on the way, the layer below keeps other consumers
        although the two do not cancel, or nothing would be left between an Input and an Output.
    """
    root = match.root
    if workspace.type(root) not in PERMUTES:
        raise Refused(f"permutes takes a Permute or Transpose; {workspace.describe(root)} is a {workspace.type(root)}")
    (source,) = feeding(workspace, root)
    order = permutation(workspace, root)
    identity = tuple(range(len(order)))
    if order == identity:
        check_bypass(workspace, root, source)
        return Plan(source, None, None)
    lower = source.layer
    if workspace.type(lower) not in PERMUTES:
        raise Inapplicable(f"{workspace.describe(root)} is over no Permute or Transpose")
    below = permutation(workspace, lower)
    (origin,) = feeding(workspace, lower)
    require_same_values(workspace, origin, source, Source(root, 0))
    merged = tuple(below[of] for of in order)
    if merged == identity:
        check_bypass(workspace, root, origin)
        return Plan(origin, None, lower)
    for use in workspace.uses(lower):
        if workspace.type(use.layer) not in PERMUTES:
            raise Refused(
                f"{workspace.describe(lower)} is used elsewhere too: {workspace.describe(use.layer)} reads it"
            )
    return Plan(origin, merged, lower)


def apply(workspace: Workspace, match: Match, plan: Plan) -> int | None:
    """Let the root do it all, or take it out; the layer below goes where nothing else reads it."""
    root, lower = match.root, () if plan.lower is None else (plan.lower,)
    if plan.order is None:
        bypass(workspace, root, plan.source, lower)
        return None
    params = workspace.graph.nodes[root]["params"]
    workspace.set(root, params=params.with_(dimMappings=mappings(workspace.type(root), plan.order)))
    feed(workspace, root, plan.source)
    drop(workspace, lower)
    return root


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((PERMUTES,), more=True),))
