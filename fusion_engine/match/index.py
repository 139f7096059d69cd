"""Where rules may match: one index over all rules of a run, so that those that cannot match cost next to nothing.

Roots are found by their layer types. Where several rules share a root type, its layers are grouped by their
*surroundings*, the types and descriptors of the layer and of what feeds it: a rule is held against each group
once. Groups are renewed where edits were made.

`RootIndex.near` tells how far edits can matter: a rule whose outcome at a root depends on what lies at most
so many connections away is decided there as before where nothing was touched within that distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from fusion_engine.match.simple import SimplePatterns
from fusion_engine.workspace import Workspace

__all__ = ["RootIndex"]

FEW = 3
"""Rules of a root type up to which each looks at the layers itself: cheaper than groups."""

_Surroundings: TypeAlias = "tuple[int, ...]"


class RootIndex:
    """The index over a network under rewriting and the rules of a run.

    Parameters
    ----------
    workspace
        The network.
    roots
        The root types of each rule with simple patterns.
    """

    def __init__(self, workspace: Workspace, roots: Iterable[frozenset[str]]) -> None:
        self._workspace = workspace
        counts = Counter(name for types in roots for name in types)
        self._busy = frozenset(name for name, count in counts.items() if count > FEW)
        self._groups: dict[str, dict[_Surroundings, dict[int, None]]] = {}
        self._group_of: dict[int, tuple[str, _Surroundings]] = {}
        self._at = 0
        self._kinds: dict[tuple[str, int], int] = {}
        self._alive: list[Any] = []
        self._decided: dict[int, dict[_Surroundings, bool]] = {}
        self._regions: dict[tuple[int, int, int], frozenset[int] | None] = {}

    def near(self, position: int, reach: int) -> Collection[int] | None:
        """The layers that edits since ``position`` of `Workspace.changes` can matter to.

        Parameters
        ----------
        position
            Number of changes that are old.
        reach
            How many connections away an edit can matter.

        Returns
        -------
        collection of int or None
            Keys, of removed layers too; None where it is most of the network.
        """
        changes, graph = self._workspace.changes, self._workspace.graph
        key = position, len(changes), reach
        if key not in self._regions:
            self._regions[key] = _around(graph, changes[position:], reach)
        return self._regions[key]

    def roots(self, types: frozenset[str], region: Collection[int] | None) -> list[int]:
        """The layers of some types in a region, in no promised order."""
        workspace = self._workspace
        if region is None:
            return [key for name in types for key in workspace.of_type(name)]
        nodes: Any = workspace.graph.nodes
        return [key for key in region if key in nodes and workspace.type(key) in types]

    def hopeful(self, patterns: SimplePatterns, types: frozenset[str], region: Collection[int] | None) -> list[int]:
        """The layers of the root types ``types`` in a region at which patterns may lie, in no promised order."""
        workspace = self._workspace
        present = workspace.types()
        if not patterns.possible(present):
            return []
        if region is not None:
            return patterns.hopeful(workspace, self.roots(types, region))
        found: list[int] = []
        for name in types & present:
            if name not in self._busy:
                found += patterns.hopeful(workspace, workspace.of_type(name))
                continue
            decided = self._decided.setdefault(id(patterns), {})
            for surroundings, keys in self._grouped(name).items():
                lies = decided.get(surroundings)
                if lies is None:
                    root = next(iter(keys))
                    lies = any(variant.may_lie_at(workspace, root) for variant in patterns.at(workspace, root))
                    decided[surroundings] = lies
                if lies:
                    found += keys
        return found

    def _grouped(self, name: str) -> dict[_Surroundings, dict[int, None]]:
        """The layers of a type by their surroundings."""
        workspace = self._workspace
        changes = workspace.changes
        if self._at < len(changes):
            for key in dict.fromkeys(changes[self._at :]):
                former = self._group_of.pop(key, None)
                if former is not None:
                    groups = self._groups[former[0]]
                    del groups[former[1]][key]
                    if not groups[former[1]]:
                        del groups[former[1]]
                if key in workspace.graph and workspace.type(key) in self._groups:
                    self._add(key)
            self._at = len(changes)
        if name not in self._groups:
            self._groups[name] = {}
            for key in workspace.of_type(name):
                self._add(key)
        return self._groups[name]

    def _add(self, key: int) -> None:
        workspace, kind = self._workspace, self._kind
        surroundings = (kind(key), *[kind(source.layer) for _, source in workspace.data_inputs(key)])
        name = workspace.type(key)
        self._groups[name].setdefault(surroundings, {})[key] = None
        self._group_of[key] = name, surroundings

    def _kind(self, key: int) -> int:
        """A number for a layer's type and descriptor."""
        params = self._workspace.params(key)
        content = self._workspace.type(key), id(params)
        found = self._kinds.get(content)
        if found is None:
            found = self._kinds[content] = len(self._kinds)
            self._alive.append(params)
        return found


def _around(graph: Any, seeds: Iterable[int], reach: int) -> frozenset[int] | None:
    """Layers at most ``reach`` connections from seeds that are left, and the seeds; None where they are many."""
    succ, pred = graph._succ, graph._pred
    many = len(succ) // 2
    found = set(seeds)
    frontier: Iterable[int] = [key for key in found if key in succ]
    for _ in range(reach):
        if len(found) > many:
            return None
        after: set[int] = set()
        for key in frontier:
            after.update(succ[key])
            after.update(pred[key])
        after -= found
        found |= after
        frontier = after
    return None if len(found) > many else frozenset(found)
