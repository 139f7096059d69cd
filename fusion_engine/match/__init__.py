"""Rule patterns as matchers over a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fusion_engine.language.pattern import PatternGroup, PatternLayer
from fusion_engine.language.rule import FusingRule
from fusion_engine.match.binding import Edge, Match
from fusion_engine.match.machine import CompiledPattern, Miss, StepLimitError, Steps, compile_patterns
from fusion_engine.match.simple import LEFT, SimplePatterns, lay_chain, simple_patterns
from fusion_engine.workspace import Workspace

__all__ = ["Edge", "Match", "Matcher", "Miss", "StepLimitError", "compile_rule", "explain"]


@dataclass(frozen=True)
class Matcher:
    """A rule, compiled.

    Attributes
    ----------
    rule
        The rule.
    root_types
        The LayerType names, in every spelling, that a root can have.
    patterns
        Root alternatives of its texts, in the order they are tried.
    depth
        How many connections below its root a layer of the pattern may lie.
    simple
        The patterns where all of them are simple, else None.
    """

    rule: FusingRule
    root_types: frozenset[str]
    patterns: tuple[CompiledPattern, ...]
    depth: int
    simple: SimplePatterns | None

    def matches(self, workspace: Workspace, root: int, miss: Miss | None = None) -> Iterator[Match]:
        """The complete bindings at a root, in the order of the definition, equal ones once.

        Parameters
        ----------
        workspace
            The network; not changed while the iterator is in use.
        root
            Key of the layer that the pattern's root is bound to.
        miss
            Where given, told how far the furthest failed binding got and what failed there.

        Raises
        ------
        StepLimitError
            Where the root takes more than 10,000 steps, and 8 more for each input that is looked at.
        """
        found = None if self.simple is None or miss is not None else self.simple.matches(workspace, root)
        return self._machine(workspace, root, miss) if found is None else iter(found)

    def first(self, workspace: Workspace, roots: Iterable[int]) -> Iterator[Match]:
        """The first match at each of some roots that has one, in their order; raises as `matches` does."""
        chain = None if self.simple is None else self.simple.only
        if chain is None:
            firsts = (next(self.matches(workspace, root), None) for root in roots)
            yield from (match for match in firsts if match is not None)
            return
        keys = list(roots)
        for root, found in zip(keys, lay_chain(workspace, chain, keys), strict=True):
            match = next(self._machine(workspace, root, None), None) if found is LEFT else found
            if match is not None:
                yield match

    def _machine(self, workspace: Workspace, root: int, miss: Miss | None) -> Iterator[Match]:
        """The same, by the machine, lazily."""
        kind = workspace.type(root)
        steps = Steps()
        seen: set[Match] = set()
        for pattern in self.patterns:
            if kind in pattern.types or miss is not None:
                for match in pattern.matches(workspace, root, steps, miss):
                    if match not in seen:
                        yield match
                        seen.add(match)


def compile_rule(rule: FusingRule) -> Matcher:
    """The matcher of a rule; compiled once for each of the rules that were used last."""
    known = _compiled.get(id(rule))
    if known is not None and known.rule is rule:
        return known
    found = [
        pattern
        for roots, text in zip(rule.patterns, rule.texts, strict=True)
        for pattern in compile_patterns(roots, rule.ordered, rule.name, text)
    ]
    patterns = tuple(found)
    root_types = frozenset().union(*(pattern.types for pattern in found))
    depth = max((_depth(pattern.root) for pattern in patterns), default=0)
    if len(_compiled) >= _MOST_COMPILED:
        _compiled.clear()
    matcher = _compiled[id(rule)] = Matcher(rule, root_types, patterns, depth, simple_patterns(patterns))
    return matcher


_MOST_COMPILED = 2_000
_compiled: dict[int, Matcher] = {}
"""By the id of the rule, which the matcher keeps alive."""


def _depth(root: PatternLayer) -> int:
    """How many connections lie between a pattern's root and its deepest part."""
    deepest = 0
    pending: list[tuple[Any, int]] = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        if isinstance(node, PatternLayer):
            pending += [(choice, depth + 1) for item in node.inputs or () for choice in item.choices]
        elif isinstance(node, PatternGroup):
            pending += [(choice, depth) for item in node.items for choice in item.choices]
    return deepest


def explain(matcher: Matcher, workspace: Workspace, root: int) -> Miss | None:
    """Why a rule has no match at a root: the failure of the attempt that bound the most, the first of several.

    Returns
    -------
    Miss or None
        None where there is a match. Where the root takes too many steps, a `Miss` whose ``reason``
        says so and which is about the root.
    """
    try:
        if next(iter(matcher.matches(workspace, root)), None) is not None:
            return None
        miss = Miss()
        for _ in matcher.matches(workspace, root, miss):
            pass
    except StepLimitError as error:
        return Miss(0, str(error), layer=root)
    return miss
