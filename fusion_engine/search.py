"""Where a rule's pattern lies on a network, whether or not it could be fused there: what `match` shows."""

from __future__ import annotations

from collections.abc import Iterator

from fusion_engine import FusingRule, LayerRef
from fusion_engine.match import compile_rule
from fusion_engine.network import Network
from fusion_engine.workspace import Workspace

__all__ = ["search"]


def search(graph: Network, rule: FusingRule) -> Iterator[tuple[LayerRef, ...]]:
    """The first binding at each root, roots in canonical order.

    Yields
    ------
    tuple of LayerRef
        The layers that the pattern names, root first, each once.

    Raises
    ------
    FuseError
        Where a match takes too many steps.
    """
    workspace = Workspace(graph)
    matcher = compile_rule(rule)
    for root in workspace.order():
        if workspace.type(root) not in matcher.root_types:
            continue
        match = next(iter(matcher.matches(workspace, root)), None)
        if match is not None:
            keys = dict.fromkeys((root, *(key for _, key in match.bound)))
            yield tuple(LayerRef(key, workspace.name(key), workspace.type(key)) for key in keys)
