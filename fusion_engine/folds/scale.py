"""scale: a Multiplication by a Constant, or a Division by one, into the linear layer below it.

The Constant is one number or one per output channel. Division with the Constant above is no factor
and stays.
"""

from __future__ import annotations

import numpy as np

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.affine import LINEAR, Plan, apply_plan
from fusion_engine.folds.operands import with_constant
from fusion_engine.match.binding import Match
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "apply", "check"]


def check(workspace: Workspace, match: Match) -> Plan:
    """The scaled weights and bias; ``match.layers`` is the elementwise layer and the linear one below.

    Raises
    ------
    Refused
        Where the result would not be what the two layers compute; the reason names layers and numbers.
    """
    target, operation, slot, values = with_constant(workspace, match, "scale", ("Multiplication", "Division"))
    if operation == "Division":
        root = workspace.describe(match.root)
        if slot == 0:
            raise Refused(f"{root} divides a Constant by {workspace.describe(target.key)}: that is no factor")
        zero = np.flatnonzero(values == 0)
        if zero.size:
            raise Refused(f"{root} divides by zero in channel {int(zero[0])}")
        with np.errstate(all="ignore"):
            values = 1 / values
    return target.absorb(workspace, values, np.zeros(target.channels))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Give the layer its new tensors and let it take the elementwise layer's place."""
    return apply_plan(workspace, match.root, plan)


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((frozenset({"Multiplication", "Division"}), LINEAR)),))
