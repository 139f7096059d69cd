"""Conditions of one's own: ``when = "name"`` in a rule, a Python function of an installed package.

A package registers a function under the entry-point group ``fusion_engine.predicates``; the entry
point's name is the name in rules. It is called as ``predicate(graph, match)`` with the network as it
stands at that moment, which cannot be changed through it, and a `Captures`, and answers ``True``, ``False``,
or a str: no, and why. It is asked last, about matches that would be rewritten otherwise; a no makes
the engine try the next way in which the pattern fits, as a fold's refusal does, and becomes a
refusal of the record where none is left.

It may be asked about the same match more than once, and must give the same answer for the same network
and match: results are the same in every run only where it is a function of these two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

import networkx as nx
import numpy as np

from fusion_engine.errors import FuseError
from fusion_engine.folds import Refused
from fusion_engine.language.pattern import PatternGroup, PatternItem, PatternLayer
from fusion_engine.language.rule import FusingRule
from fusion_engine.match.binding import Edge, Match
from fusion_engine.network import Network
from fusion_engine.plugins import Plugins
from fusion_engine.workspace import Workspace

__all__ = [
    "ENTRY_POINTS",
    "Captures",
    "Place",
    "Predicate",
    "RulePredicate",
    "find_predicate",
    "predicate_names",
    "read_only",
]

ENTRY_POINTS = "fusion_engine.predicates"
"""The entry-point group of predicates."""


@dataclass(frozen=True)
class Place:
    """A named layer of a rule's match, and what it is bound to.

    Attributes
    ----------
    type
        The LayerType that is named there, of a vocabulary name the one that it stands for, or the
        ``into`` name of another rule.
    layers
        Keys of the layers bound there, in the order of the inputs; several where the place is repeated,
        none where it lies in an alternative that was not taken.
    """

    type: str
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Captures:
    """A match as a predicate sees it. Layers go by their keys in the graph.

    Attributes
    ----------
    rule
        The rule's name.
    root
        The layer that the pattern's root is bound to.
    layers
        The layers that would be fused, the root first, each once; Constants left out.
    kept
        Layers that must be there and stay, each once.
    constants
        Constant layers that the pattern names, each once.
    inputs
        What would be the data inputs, in order: `Edge` of (source, layer, input_slot).
    places
        Every named layer of the rule's match texts, in their order. Empty for a fold without match.
    """

    rule: str
    root: int
    layers: tuple[int, ...]
    kept: tuple[int, ...]
    constants: tuple[int, ...]
    inputs: tuple[Edge, ...]
    places: tuple[Place, ...]

    def of(self, type_name: str) -> tuple[int, ...]:
        """Keys of the layers bound to places of that type, in the order of the places.

        Examples
        --------
        >>> places = (Place("Activation", (7,)), Place("Convolution2d", ()), Place("Convolution2d", (3, 5)))
        >>> Captures("", 7, (7, 3, 5), (), (), (), places).of("Convolution2d")
        (3, 5)
        """
        return tuple(key for place in self.places if place.type == type_name for key in place.layers)


Predicate: TypeAlias = Callable[[Network, Captures], bool | str]
"""``predicate(graph, match)``: True, False, or why not."""


@cache
def _plugins() -> Plugins:
    return Plugins(ENTRY_POINTS, "predicate")


def predicate_names() -> tuple[str, ...]:
    """Names that ``when = "..."`` may take, sorted: those of the installed packages."""
    return _plugins().names()


def find_predicate(name: str) -> tuple[Predicate, str]:
    """The predicate of that name, and its origin for messages.

    Raises
    ------
    KeyError
        Where there is none.
    FuseError
        Where it cannot be loaded, cannot be called, or two packages claim the name.
    """
    found, origin = _plugins().load(name)
    if not callable(found):
        raise FuseError(
            f"predicate '{name}' of {origin} is a {type(found).__name__}: its entry point must name a function "
            "of a graph and a match"
        )
    predicate: Predicate = found
    return predicate, origin


class RulePredicate:
    """The predicate of a rule, ready to be asked; raises what `find_predicate` does."""

    def __init__(self, rule: FusingRule) -> None:
        self.name = str(rule.when)
        self._function, self._origin = find_predicate(self.name)
        self._rule = rule.name
        self._types = {layer.id: layer.type for layer in _pattern_layers(rule)}

    @property
    def _called(self) -> str:
        return f"predicate '{self.name}' of {self._origin}"

    def require(self, workspace: Workspace, match: Match, layers: tuple[int, ...]) -> None:
        """Raise Refused where the answer is no.

        Parameters
        ----------
        workspace
            The network.
        match
            The match.
        layers
            What would be fused, the root first.

        Raises
        ------
        FuseError
            Where the predicate fails, or answers what is no answer.
        """
        try:
            answer = self._function(read_only(workspace.graph), self._captures(match, layers))
        except MemoryError:
            raise
        except Exception as error:
            raise FuseError(
                f"{self._called} failed on the match of rule {self._rule!r} at {workspace.describe(match.root)}: "
                f"{type(error).__name__}: {error}: repair or uninstall that package"
            ) from error
        if isinstance(answer, str) and answer:
            raise Refused(f"predicate '{self.name}' says: {answer}")
        if not isinstance(answer, bool | np.bool_):
            raise FuseError(
                f"{self._called} answers {answer!r:.80} on the match of rule {self._rule!r} at "
                f"{workspace.describe(match.root)}: it must answer True, False or a text that says why not"
            )
        if not answer:
            raise Refused(f"predicate '{self.name}' says no")

    def _captures(self, match: Match, layers: tuple[int, ...]) -> Captures:
        bound: dict[int, list[int]] = {number: [] for number in self._types}
        for number, key in match.bound:
            bound[number].append(key)
        places = tuple(Place(kind, tuple(bound[number])) for number, kind in self._types.items())
        return Captures(self._rule, match.root, layers, match.kept, match.constants, match.inputs, places)


def _pattern_layers(rule: FusingRule) -> list[PatternLayer]:
    """The named layers of a rule's patterns, in text order."""
    found: list[PatternLayer] = []
    stack: list[Any] = [layer for pattern in rule.patterns for layer in pattern]
    while stack:
        node = stack.pop()
        if isinstance(node, PatternLayer):
            found.append(node)
            stack.extend(node.inputs or ())
        elif isinstance(node, PatternItem):
            stack.extend(node.choices)
        elif isinstance(node, PatternGroup):
            stack.extend(node.items)
    return sorted(found, key=lambda layer: layer.id)


# A network that cannot be changed


class _Frozen(Mapping[Any, Any]):
    """A dict of dicts to look at: ``depth`` levels of dicts below it cannot be changed either."""

    __slots__ = ("_depth", "_held")

    def __init__(self, held: Mapping[Any, Any], depth: int) -> None:
        self._held = held
        self._depth = depth

    def __getitem__(self, key: Any) -> Any:
        value = self._held[key]
        return MappingProxyType(value) if self._depth == 1 else _Frozen(value, self._depth - 1)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def copy(self) -> dict[Any, Any]:
        """A dict of its own, as networkx wants one of a mapping that it copies."""
        return {key: self[key].copy() for key in self}


def read_only(graph: Network) -> Network:
    """A live view of a network through which nothing can be changed; ``copy()`` of it can.

    Examples
    --------
    >>> graph = nx.DiGraph([(1, 2)])
    >>> view = read_only(graph)
    >>> list(view.successors(1))
    [2]
    >>> view.nodes[1]["name"] = "x"
    Traceback (most recent call last):
    TypeError: 'mappingproxy' object does not support item assignment
    """
    given: Any = graph
    view: Any = nx.freeze(nx.DiGraph())
    view.graph = MappingProxyType(given.graph)
    view._node = _Frozen(given._node, 1)
    view._adj = view._succ = _Frozen(given._succ, 2)
    view._pred = _Frozen(given._pred, 2)
    found: Network = view
    return found
