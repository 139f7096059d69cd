"""A buffer read at many places at once: tables, vectors and numbers as arrays, each checked.

One NumPy operation does for all tables what takes the plain decoder some 4 µs each. What is unusual is left to
that one: `Unusual` is raised. So this module need not explain a fault, only never overlook one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.armnn.decode import MAX_BUFFER, SIZES, Buffer
from fusion_engine.schema import Field, Schema

__all__ = ["Columns", "Ints", "Rows", "Tables", "Unusual", "distinct", "require"]

Ints = npt.NDArray[np.int64]


class Unusual(Exception):
    """The file is not one that can be read in columns."""


def require(condition: Any) -> None:
    """Raise Unusual where something does not hold."""
    if not condition:
        raise Unusual


def distinct(numbers: Ints) -> Ints:
    """Those of numbers from 0 on that differ, sorted.

    The first numpy.unique of a process imports numpy.ma, which takes longer than reading most models.
    """
    found = np.sort(numbers)
    return found[np.diff(found, prepend=-1) > 0]


def _aligned(positions: Ints, mask: int) -> bool:
    return not np.bitwise_or.reduce(positions) & mask


def _most(numbers: Ints) -> int:
    return int(numbers.max(initial=0))


def _end(layout: dict[int, int], fields: dict[int, tuple[int, int]]) -> int:
    """Where a table's last field ends."""
    return max((at + fields[slot][0] for slot, at in layout.items()), default=4)


@dataclass(frozen=True)
class Tables:
    """Tables of one type: their positions, and per wire slot where the field's value lies, 0 where it is absent."""

    positions: Ints
    places: dict[int, Ints]
    extents: Ints
    """Per table the length of what it holds itself."""
    kinds: Ints
    """Per table the position of its vtable."""

    def at(self, slot: int) -> Ints:
        """Where a field's value lies in each table."""
        found = self.places.get(slot)
        return np.zeros(len(self.positions), np.int64) if found is None else found


@dataclass(frozen=True)
class Rows:
    """Vectors, flattened: the elements' positions or targets, and each vector's bounds among them."""

    values: Ints
    counts: Ints

    @property
    def bounds(self) -> list[int]:
        """Where each vector begins, and where the last one ends."""
        found: list[int] = [0, *np.cumsum(self.counts).tolist()]
        return found


class Columns:
    """A buffer, read at many positions at once, each checked."""

    def __init__(self, buffer: Buffer, facts: Schema) -> None:
        self.facts = facts
        self.size = len(buffer)
        self.bytes = np.frombuffer(buffer, np.uint8)
        self.words = np.frombuffer(buffer, "<u4", self.size // 4)
        self.halves = np.frombuffer(buffer, "<u2", self.size // 2)
        self._fields: dict[str, dict[int, tuple[int, int]]] = {}

    def u32(self, places: Ints) -> Ints:
        """Numbers at places that are known to be right."""
        found: Ints = self.words[places >> 2].astype(np.int64)
        return found

    def follow(self, places: Ints) -> Ints:
        """Where the offsets at places lead."""
        offsets = self.u32(places)
        require(not len(places) or (offsets.min() > 0 and offsets.max() <= MAX_BUFFER))
        offsets += places
        require(_most(offsets) < self.size)
        return offsets

    def tables(self, name: str, positions: Ints) -> Tables:
        """The tables of a type at positions."""
        if not len(positions):
            return Tables(positions, {}, positions, positions)
        vtables = self._vtables(positions)
        fields = self._known(name)
        if vtables.min() == vtables.max():
            layout = self._layout(int(vtables[0]), fields)
            end = _end(layout, fields)
            require(positions.max() + end <= self.size)
            same = {slot: positions + at for slot, at in layout.items()}
            return Tables(positions, same, np.full(len(positions), end), vtables)
        kinds = distinct(vtables)
        require(len(kinds) <= 64 or len(kinds) * 8 <= len(positions))
        which = np.searchsorted(kinds, vtables)
        layouts = [self._layout(int(kind), fields) for kind in kinds]
        ends = np.array([_end(layout, fields) for layout in layouts])[which]
        require((positions + ends).max() <= self.size)
        places = {}
        for slot in sorted({slot for layout in layouts for slot in layout}):
            offsets = np.array([layout.get(slot, 0) for layout in layouts])
            at = offsets[which]
            places[slot] = positions + at if offsets.min() > 0 else np.where(at > 0, positions + at, 0)
        return Tables(positions, places, ends, vtables)

    def vtable_sizes(self, positions: Ints) -> Ints:
        """Bytes of the vtables of tables whose type is not known yet."""
        found: Ints = self.halves[self._vtables(positions) >> 1].astype(np.int64)
        return found

    def first(self, positions: Ints) -> Ints:
        """Where the first field of such tables leads, an offset; 0 where it is absent."""
        vtables = self._vtables(positions)
        sizes = self.halves[vtables >> 1]
        entries = np.where(sizes > 4, self.halves[np.minimum((vtables >> 1) + 2, len(self.halves) - 1)], 0)
        places = np.where(entries > 0, positions + entries, 0)
        require(np.all(((places & 3) == 0) & (places <= self.size - 4)))
        found = np.zeros(len(positions), np.int64)
        found[places > 0] = self.follow(places[places > 0])
        return found

    def _vtables(self, positions: Ints) -> Ints:
        require(_aligned(positions, 3) and _most(positions) <= self.size - 4)
        vtables: Ints = positions - self.words[positions >> 2].view(np.int32)
        require(_aligned(vtables, 1) and vtables.min(initial=0) >= 0 and _most(vtables) <= self.size - 4)
        return vtables

    def _known(self, name: str) -> dict[int, tuple[int, int]]:
        """Size and alignment of what a table of a type holds in each wire slot."""
        found = self._fields.get(name)
        if found is None:
            found = self._fields[name] = {}
            for f in self.facts.tables[name].fields:
                size, alignment = self._inline(f)
                if f.kind == "union":
                    found[f.slot - 1] = (1, 1)
                found[f.slot] = (size, alignment)
        return found

    def _inline(self, f: Field) -> tuple[int, int]:
        if f.kind == "struct":
            return sum(SIZES[kind] for _, kind in self.facts.structs[f.type]), 4
        size = 4
        if f.kind == "scalar":
            size = SIZES[f.type]
        elif f.kind == "enum":
            size = struct.calcsize("<" + self.facts.enums[f.type].format)
        return size, size

    def _layout(self, vtable: int, fields: dict[int, tuple[int, int]]) -> dict[int, int]:
        """Where in a table each field lies, by a vtable."""
        length = int(self.halves[vtable >> 1])
        require(length % 2 == 0 and length < self.size and vtable <= self.size - length)
        found = {}
        for slot, offset in enumerate(self.halves[(vtable >> 1) + 2 : (vtable + length) >> 1].tolist()):
            if offset:
                require(slot in fields and offset >= 4 and offset % fields[slot][1] == 0)
                found[slot] = offset
        return found

    def lengths(self, positions: Ints, size: int) -> Ints:
        """Numbers of elements of vectors whose elements have ``size`` bytes."""
        require(_aligned(positions, 3) and _most(positions) <= self.size - 4)
        counts = self.u32(positions)
        require(_most(counts) < MAX_BUFFER // size)
        require(_most(positions + counts * size) + 4 <= self.size)
        return counts

    def rows(self, places: Ints) -> Rows:
        """The positions of the tables in the vectors that offsets at places lead to; none where the place is 0."""
        present = np.nonzero(places)[0]
        vectors = self.follow(places[present])
        found = self.lengths(vectors, 4)
        total = int(found.sum())
        require(4 * total <= self.size)  # shared vectors would multiply
        elements = np.repeat(vectors + 4 - 4 * (np.cumsum(found) - found), found)
        elements += 4 * np.arange(total)
        counts = np.zeros(len(places), np.int64)
        counts[present] = found
        return Rows(self.follow(elements), counts)

    def small(self, places: Ints, kind: str, default: int) -> Ints:
        """Numbers of 1, 2 or 4 bytes (``struct`` format), the default where the place is 0."""
        size = struct.calcsize("<" + kind)
        if size == 1:
            raw = self.bytes[places].astype(np.int64)
        elif size == 2:
            raw = self.halves[places >> 1].astype(np.int64)
        else:
            raw = self.words[places >> 2].astype(np.int64)
        if kind in "bhi":
            raw = np.where(raw >= 1 << (8 * size - 1), raw - (1 << (8 * size)), raw)
        return raw if len(places) and places.min() > 0 else np.where(places > 0, raw, default)
