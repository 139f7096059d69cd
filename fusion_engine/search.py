"""Where a rule's pattern lies on a network, whether or not it could be fused there: what `match` shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fusion_engine import FusingRule, LayerRef
from fusion_engine.language.pattern import PatternLayer, parts_of
from fusion_engine.match import Match, StepLimitError, compile_rule
from fusion_engine.network import Network
from fusion_engine.workspace import Workspace

__all__ = ["Place", "search"]


@dataclass(frozen=True)
class Place:
    """A place where a pattern lies.

    Attributes
    ----------
    layers
        The layers that the pattern names, root first, each once.
    parts
        What each of the pattern's layers is bound to, in the order of the text: the part of the text
        (its type or name, and where it stands: start and end in code points) and the layer.
    """

    layers: tuple[LayerRef, ...]
    parts: tuple[tuple[str, int, int, LayerRef], ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.layers))

    def as_json(self) -> dict[str, Any]:
        """The place as plain data."""
        parts = [
            {"pattern": text, "start": start, "end": end, "layer": asdict(layer)}
            for text, start, end, layer in self.parts
        ]
        return {"layers": [asdict(layer) for layer in self.layers], "parts": parts}


def search(graph: Network, rule: FusingRule, undecided: list[str] | None = None) -> Iterator[Place]:
    """The first binding at each root, roots in canonical order.

    Parameters
    ----------
    graph, rule
        Where to look, and what for.
    undecided
        Gets a text for each root that takes too many steps to tell; the other roots are looked at all the same.

    Raises
    ------
    StepLimitError
        Where there is such a root and no ``undecided``.
    """
    workspace = Workspace(graph, reading=True)
    matcher = compile_rule(rule)
    named = _named_layers(rule)
    for root in workspace.order():
        if workspace.type(root) not in matcher.root_types:
            continue
        try:
            match = next(iter(matcher.matches(workspace, root)), None)
        except StepLimitError as error:
            if undecided is None:
                raise
            undecided.append(str(error))
            continue
        if match is not None:
            yield _place(workspace, match, named)


def _named_layers(rule: FusingRule) -> dict[int, PatternLayer]:
    """The named layers of a rule's patterns by id."""
    parts = parts_of(root for roots in rule.patterns for root in roots)
    return {part.id: part for part in parts if isinstance(part, PatternLayer)}


def _place(workspace: Workspace, match: Match, named: dict[int, PatternLayer]) -> Place:
    def ref(key: int) -> LayerRef:
        return LayerRef(key, workspace.name(key), workspace.type(key))

    keys = dict.fromkeys((match.root, *(key for _, key in match.bound)))
    parts = tuple(
        (pattern.type, pattern.span.start, pattern.span.end, ref(key))
        for pattern, key in ((named[number], key) for number, key in match.bound)
    )
    return Place(tuple(map(ref, keys)), parts)
