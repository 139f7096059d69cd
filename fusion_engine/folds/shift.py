"""shift: an Addition of a Constant, or a Subtraction with one, into the linear layer below it.

The Constant is one number or one per output channel. A Subtraction from the Constant turns the sign
of the layer too.
"""

from __future__ import annotations

import numpy as np

from fusion_engine.folds import Accepts, Fold
from fusion_engine.folds.affine import LINEAR, Plan, apply_plan
from fusion_engine.folds.operands import with_constant
from fusion_engine.match.binding import Match
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "apply", "check"]


def check(workspace: Workspace, match: Match) -> Plan:
    """The shifted bias, or β; ``match.layers`` is the elementwise layer and the linear one below.

    Raises
    ------
    Refused
        Where the result would not be what the two layers compute; the reason names layers and numbers.
    """
    target, operation, slot, values = with_constant(workspace, match, "shift", ("Addition", "Subtraction"))
    if operation == "Addition":
        return target.absorb(workspace, None, values)
    if slot == 1:
        return target.absorb(workspace, None, -values)
    return target.absorb(workspace, np.full(target.channels, -1.0), values)


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Give the layer its new tensors and let it take the elementwise layer's place."""
    return apply_plan(workspace, match.root, plan)


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((frozenset({"Addition", "Subtraction"}), LINEAR)),))
