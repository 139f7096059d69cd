"""The engine's plain twin: the definition of `fuse` written down, which looks at every root in every pass.

Nothing is left out, nothing is prepared, and patterns are matched by the machine alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusion_engine import engine, opaque
from fusion_engine.engine import Fusion, Refusal
from fusion_engine.language.rule import FusingRule
from fusion_engine.network import Network
from fusion_engine.workspace import Workspace

__all__ = ["plain_fuse"]


def plain_fuse(graph: Network, rules: Sequence[FusingRule]) -> tuple[Network, list[Fusion], list[Refusal]]:
    """The network that rules make of another, what was made, and the last refusals of each rule."""
    workspace = Workspace(graph)
    runners = [engine._Runner.of(rule) for rule in rules]
    for runner in runners:
        if runner.matcher is not None:
            runner.matcher = replace(runner.matcher, simple=None)
    fusions: list[Fusion] = []
    while True:
        before = workspace.revision
        for runner in runners:
            runner.refusals = {}
            for root in [key for key in workspace.order() if workspace.type(key) in runner.roots]:
                if root in workspace.graph and workspace.type(root) in runner.roots:
                    fusion = engine._try(workspace, runner, root)
                    fusions += [] if fusion is None else [fusion]
        if workspace.revision == before:
            break
    opaque.settle(workspace)
    return workspace.graph, fusions, [refusal for runner in runners for refusal in runner.refusals.values()]
