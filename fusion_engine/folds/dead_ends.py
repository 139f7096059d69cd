"""dead-ends: layers from which no Output is reached go, whatever they are; Inputs and Outputs stay.

A layer without any output slot, as a StandIn of a backend of its own may be, is there for what it
does, and stays with all that feeds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusion_engine.folds import Fold, Inapplicable, Refused
from fusion_engine.match.binding import Match
from fusion_engine.schema import DIALECTS, schema
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]


@dataclass(frozen=True)
class Plan:
    """The layers that go, each after those that read it; the root first."""

    layers: tuple[int, ...]


def check(workspace: Workspace, match: Match) -> Plan:
    """A layer that nobody reads, and all that only it needs.

    Raises
    ------
    Refused
        Where the layer has no output that somebody could read, or the network has no Output.
    """
    root = match.root
    if workspace.uses(root) or workspace.type(root) in ("Input", "Output"):
        raise Inapplicable("the layer is read")
    if not workspace.outputs(root):
        raise Refused(f"{workspace.describe(root)} has no outputs: what it does is not seen in the network")
    if not any(True for _ in workspace.of_type("Output")):
        raise Refused("the network has no Output: nothing in it leads anywhere")
    gone = {root: None}
    waiting = [root]
    left: dict[int, int] = {}
    while waiting:
        key = waiting.pop()
        for _, source in workspace.inputs(key):
            layer = source.layer
            left[layer] = left.get(layer, len(workspace.uses(layer))) - 1
            if left[layer] == 0 and workspace.type(layer) != "Input":
                gone[layer] = None
                waiting.append(layer)
    return Plan(tuple(gone))


def apply(workspace: Workspace, match: Match, plan: Plan) -> None:
    """Remove them."""
    for key in plan.layers:
        workspace.remove(key)


def _glance(workspace: Workspace, keys: Iterable[int]) -> list[int]:
    succ = workspace.inside.succ
    return [key for key in keys if not succ[key]]


FOLD = Fold(
    check,
    apply,
    roots=frozenset(name for dialect in DIALECTS for name in schema(dialect).layers) - {"Input", "Output"},
    layers=lambda plan: plan.layers,
    reach=0,
    glance=_glance,
)
