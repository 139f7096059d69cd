"""reshapes: a Reshape over a Reshape is one, and a Reshape to the shape that is there already is none."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_engine.folds import Accepts, Fold, Inapplicable, Refused
from fusion_engine.folds.moves import (
    bypass,
    check_bypass,
    drop,
    feed,
    feeding,
    require_same_values,
    reshaped_to,
    shaped_info,
)
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]


@dataclass(frozen=True)
class Plan:
    """What is to feed the root, whether the root goes, and the Reshape below that may go."""

    source: Source
    gone: bool
    lower: int | None


def check(workspace: Workspace, match: Match) -> Plan:
    """What is left of a Reshape and the Reshape below it.

    Raises
    ------
    Refused
        Where a targetShape and the TensorInfo of the output differ, type or quantization changes, the
        layer below keeps other consumers although the shape changes, or an Input would be left to feed an Output.
    """
    root = match.root
    if workspace.type(root) != "Reshape":
        raise Refused(f"reshapes takes a Reshape; {workspace.describe(root)} is a {workspace.type(root)}")
    (source,) = feeding(workspace, root)
    shape = reshaped_to(workspace, root)
    if shaped_info(workspace, source).shape == shape:
        check_bypass(workspace, root, source)
        return Plan(source, True, None)
    lower = source.layer
    if workspace.type(lower) != "Reshape":
        raise Inapplicable(f"{workspace.describe(root)} is over no Reshape")
    reshaped_to(workspace, lower)
    (origin,) = feeding(workspace, lower)
    require_same_values(workspace, origin, source, Source(root, 0))
    if shaped_info(workspace, origin).shape == shape:
        check_bypass(workspace, root, origin)
        return Plan(origin, True, lower)
    for use in workspace.uses(lower):
        if workspace.type(use.layer) != "Reshape":
            raise Refused(
                f"{workspace.describe(lower)} is used elsewhere too: {workspace.describe(use.layer)} reads it"
            )
    return Plan(origin, False, lower)


def apply(workspace: Workspace, match: Match, plan: Plan) -> int | None:
    """Feed the root from below, or take it out; the Reshape below goes where nothing else reads it."""
    lower = () if plan.lower is None else (plan.lower,)
    if plan.gone:
        bypass(workspace, match.root, plan.source, lower)
        return None
    feed(workspace, match.root, plan.source)
    drop(workspace, lower)
    return match.root


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((frozenset({"Reshape"}),), more=True),))
