"""permute-as-reshape: a Permute or Transpose that only moves dimensions of 1 is a Reshape, or nothing.

The elements lie in memory as before where the dimensions over 1 keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusion_engine.folds import Fold, Inapplicable, Refused
from fusion_engine.folds.moves import (
    PERMUTES,
    bypass,
    check_bypass,
    feeding,
    permutation,
    require_same_values,
    shaped_info,
)
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.schema import schema
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]


@dataclass(frozen=True)
class Plan:
    """The source of the layer, and the shape that a Reshape is to make (None where it has that shape already)."""

    source: Source
    shape: tuple[int, ...] | None


def check(workspace: Workspace, match: Match) -> Plan:
    """The Reshape that a Permute or Transpose is.

    Raises
    ------
    Refused
        Where type or quantization changes, or an Input would be left to feed an Output.
    """
    root = match.root
    if workspace.type(root) not in PERMUTES:
        raise Refused(
            f"permute-as-reshape takes a Permute or Transpose; {workspace.describe(root)} is a {workspace.type(root)}"
        )
    (source,) = feeding(workspace, root)
    order = permutation(workspace, root)
    before, after = shaped_info(workspace, source), shaped_info(workspace, Source(root, 0))
    moved = [axis for axis in order if before.shape[axis] != 1]
    if moved != sorted(moved):
        raise Inapplicable(f"{workspace.describe(root)} moves elements")
    if before.shape == after.shape:
        check_bypass(workspace, root, source)
        return Plan(source, None)
    require_same_values(workspace, source, Source(root, 0))
    dialect = workspace.graph.graph.get("dialect", "current")
    if "Reshape" not in schema(dialect).layers:
        raise Refused(f"the {dialect} dialect has no Reshape")
    return Plan(source, after.shape)


def apply(workspace: Workspace, match: Match, plan: Plan) -> int | None:
    """Let the layer be a Reshape, or take it out."""
    if plan.shape is None:
        bypass(workspace, match.root, plan.source)
        return None
    workspace.set(match.root, type="Reshape", params=FrozenDict(targetShape=plan.shape))
    return match.root


FOLD = Fold(check, apply, roots=PERMUTES, reach=2)
