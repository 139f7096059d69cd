"""Ordered partition refinement: an order of a graph's vertices that does not depend on how they are labelled.

Vertices start in the cells of a given order. A cell whose members have unequal connections to some
cell is split, in an order that the connections decide, until no cell can be. Then the members of
the first cell with several are told apart by the partition that singling each of them out leads to;
where that splits nothing, one of them is set behind the others. So on, until every cell holds one.

This is the refinement that tools for graph isomorphism are built on (B. D. McKay, *Practical Graph
Isomorphism*, 1981), with the splitter rule of Hopcroft's algorithm: all parts of a split cell but
the largest are enough. What is left out is the full search over alternatives, so the order is
independent of labels where the members of a cell that cannot be split are interchangeable. They are
in every forest and in practically every other graph; in large or strongly regular graphs that look
alike from every vertex they need not be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

__all__ = ["refined_order"]

MOST_TRIED = 32
"""Graphs of more vertices are not searched: trying a cell's members takes a refinement for each."""


def refined_order(cells: Iterable[Sequence[int]], neighbours: Mapping[int, Sequence[tuple[int, Any]]]) -> list[int]:
    """An order of all vertices that keeps the order of the cells and depends on connections only.

    Parameters
    ----------
    cells
        The vertices, in cells that are told apart already.
    neighbours
        Per vertex (neighbour, label of the connection as seen from the vertex); every connection is
        listed at both ends. Labels must compare with each other.
    """
    partition = _Partition(cells, neighbours)
    partition.refine()
    start = 0
    while start < len(partition.members):
        if partition.lengths[start] == 1:
            start += 1
            continue
        if len(partition.members) > MOST_TRIED or not partition.tell_apart(start):
            partition.single_out(partition.members[start])
        partition.refine()
    return partition.members


class _Partition:
    """Cells are runs of ``members``, known by where they start; ``lengths`` by start."""

    def __init__(self, cells: Iterable[Sequence[int]], neighbours: Mapping[int, Sequence[tuple[int, Any]]]) -> None:
        self.members: list[int] = []
        self.lengths: dict[int, int] = {}
        self.start: dict[int, int] = {}
        self.place: dict[int, int] = {}
        self.neighbours = neighbours
        self.pending: deque[int] = deque()
        self.waiting: set[int] = set()
        for cell in cells:
            start = len(self.members)
            self.lengths[start] = len(cell)
            for vertex in cell:
                self.place[vertex] = len(self.members)
                self.start[vertex] = start
                self.members.append(vertex)
            self._wait(start)

    def _wait(self, start: int) -> None:
        if start not in self.waiting:
            self.waiting.add(start)
            self.pending.append(start)

    def refine(self) -> None:
        """Split cells until all members of each are connected alike to every cell."""
        while self.pending:
            start = self.pending.popleft()
            self.waiting.discard(start)
            labels: dict[int, list[Any]] = {}
            for vertex in self.members[start : start + self.lengths[start]]:
                for neighbour, label in self.neighbours.get(vertex, ()):
                    if self.lengths[self.start[neighbour]] > 1:
                        labels.setdefault(neighbour, []).append(label)
            touched: dict[int, list[tuple[tuple[Any, ...], int]]] = {}
            for vertex, found in labels.items():
                found.sort()
                touched.setdefault(self.start[vertex], []).append((tuple(found), vertex))
            for cell in sorted(touched):
                self._split(cell, touched[cell])

    def _split(self, start: int, touched: list[tuple[tuple[Any, ...], int]]) -> None:
        """Split a cell: first the members without a signature, then by signature, ascending."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for signature, vertex in touched:
            groups.setdefault(signature, []).append(vertex)
        length = self.lengths[start]
        rest = length - len(touched)
        if not rest and len(groups) == 1:
            return
        parts = [start] if rest else []
        at = start + length
        for signature in sorted(groups, reverse=True):
            group = groups[signature]
            for vertex in group:
                at -= 1
                self._swap(vertex, at)
            for vertex in group:
                self.start[vertex] = at
            self.lengths[at] = len(group)
            parts.append(at)
        if rest:
            self.lengths[start] = rest
        parts.sort()
        if start not in self.waiting:
            parts.remove(max(parts, key=lambda part: (self.lengths[part], -part)))
        for part in parts:
            self._wait(part)

    def single_out(self, vertex: int) -> None:
        """Set a vertex behind the others of its cell."""
        start = self.start[vertex]
        last = start + self.lengths[start] - 1
        self._swap(vertex, last)
        self.lengths[start] -= 1
        self.lengths[last] = 1
        self.start[vertex] = last
        self._wait(last)

    def tell_apart(self, start: int) -> bool:
        """Split a cell by what singling out each of its members leads to; whether that splits it."""
        members = self.members[start : start + self.lengths[start]]
        views = {vertex: tuple(sorted(self.neighbours.get(vertex, ()))) for vertex in members}
        outcomes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        if len(set(views.values())) > 1:
            for vertex, view in views.items():
                if view not in outcomes:
                    outcomes[view] = self._outcome(vertex)
        if len(set(outcomes.values())) < 2:
            return False
        self._split(start, [(outcomes[views[vertex]], vertex) for vertex in members])
        return True

    def _outcome(self, vertex: int) -> tuple[Any, ...]:
        """The partition that singling out a vertex leads to: per cell its place and its members' connections."""
        trial = copy(self)
        trial.members, trial.lengths = self.members.copy(), self.lengths.copy()
        trial.start, trial.place = self.start.copy(), self.place.copy()
        trial.single_out(vertex)
        trial.refine()
        return tuple(
            (
                start,
                tuple(sorted((label, trial.start[n]) for n, label in trial.neighbours.get(trial.members[start], ()))),
            )
            for start in sorted(trial.lengths)
        )

    def _swap(self, vertex: int, to: int) -> None:
        at, other = self.place[vertex], self.members[to]
        self.members[at], self.members[to] = other, vertex
        self.place[vertex], self.place[other] = to, at
