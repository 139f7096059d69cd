"""activation-chain: an Activation over an Activation becomes one, where the two functions compose to one.

ReLu and BoundedReLu do to a BoundedReLu; an outer function that changes nothing within the bounds
of the inner one goes; slopes multiply (in float types only, since a quantized tensor between the two
rounds). The result has the outer one's place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.activations import Function, activation_params, compose, function_of
from fusion_engine.folds.conditions import absorb_input, check_override, check_plain, same_grid
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.tensor import FLOATS
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]


@dataclass(frozen=True)
class Plan:
    """What `apply` does: the inner Activation that goes, and the function of the one that stays."""

    inner: int
    function: Function


def check(workspace: Workspace, match: Match) -> Plan:
    """The function that both are; ``match.layers`` is the outer and the inner Activation.

    Raises
    ------
    Refused
        Where there is no such function, or the tensor between the two changes values.
    """
    types = [workspace.type(key) for key in match.layers]
    if types != ["Activation", "Activation"]:
        raise Refused(
            f"activation-chain takes an Activation over an Activation; the match holds {', '.join(types) or 'no layer'}"
        )
    outer, inner = match.layers
    check_plain(workspace, outer, inner)
    sources = dict(workspace.inputs(inner))
    if workspace.inputs(outer) != ((0, Source(inner, 0)),) or set(sources) != {0}:
        raise Refused(f"{workspace.describe(outer)} and {workspace.describe(inner)} have other inputs than one each")
    info = same_grid(workspace, sources[0], Source(inner, 0), Source(outer, 0))
    check_override(workspace, outer, 0, info)
    functions = []
    for key in (outer, inner):
        function = function_of(workspace, key)
        if not (math.isfinite(function.a) and math.isfinite(function.b)):
            raise Refused(f"{workspace.describe(key)} is {function}: a and b must be numbers")
        functions.append(function)
    try:
        one = compose(*functions, exact=info.canonical_type not in FLOATS)
    except (OverflowError, FloatingPointError) as error:
        what = "overflow" if isinstance(error, OverflowError) else "underflow"
        raise Refused(
            f"{what} in Float32: {functions[0]} of {workspace.describe(outer)} over {functions[1]} of "
            f"{workspace.describe(inner)} would hold {error}"
        ) from None
    if one is None:
        raise Refused(
            f"{functions[0]} of {workspace.describe(outer)} over {functions[1]} of {workspace.describe(inner)} "
            f"is no one activation function of {info.data_type}"
        )
    return Plan(inner, one)


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Let the outer Activation read what the inner one read, with the function of both."""
    absorb_input(workspace, match.root, plan.inner)
    workspace.set(match.root, params=FrozenDict(activation_params(workspace, plan.function)))
    return match.root


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((frozenset({"Activation"}),) * 2),))
