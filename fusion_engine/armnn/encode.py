"""From tables as dicts to FlatBuffers bytes, driven by the compiled schema and generic over tables.

Why not ``flatbuffers.Builder``: it takes some 90 µs for a layer, most of it in accessor calls, and
layers are much alike. Here a table and all below it become a `Piece` once: bytes that may lie
anywhere, with holes for what differs from layer to layer. An `Assembly` puts pieces one after the
other, each as often as it is needed, and fills all holes of a kind with one NumPy operation. Every
offset within a piece is relative, so only three things are left for the end: where a table's vtable
lies (each is written once, before everything else), where references between pieces lead, and
numbers. The tests check it against a plain twin that uses the Builder.

FlatBuffers' own rules that hold here: references lead forward, everything is aligned to its size
(at most 4 bytes in these schemas; constant data lies behind, see the writer), fields at their
default are absent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from math import copysign
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.schema import SCALARS, Enum, Field, Schema, float32

__all__ = ["ALIGNMENT", "Assembly", "Encoder", "Hole", "Piece", "Ragged", "Tagged", "string"]

ALIGNMENT = 8
"""Alignment of the end of an assembly, and so of the elements that lie behind it, in bytes."""

_Positions = npt.NDArray[np.int64]
_HEADER = 4
"""The root's offset."""


@dataclass(frozen=True)
class Hole:
    """A value that is filled in later: an integer or a struct, or what an offset leads to."""

    name: Hashable


@dataclass(frozen=True)
class Tagged:
    """A union's value: the member's name and its table (or a hole for it)."""

    member: str
    table: Mapping[str, Any] | Hole


@dataclass(frozen=True, eq=False)
class Piece:
    """A table and all below it, ready to be placed; a multiple of 4 bytes.

    Attributes
    ----------
    data
        Its bytes.
    tables
        Positions of its tables.
    vtables
        The number of each one's vtable.
    holes
        Positions of the holes.
    """

    data: bytes
    tables: Sequence[int]
    vtables: Sequence[int]
    holes: Mapping[Hashable, int]


class Encoder:
    """Makes pieces, and keeps the vtables that they share.

    Parameters
    ----------
    facts
        The schema to write by.
    """

    def __init__(self, facts: Schema) -> None:
        self.facts = facts
        self.vtables: dict[bytes, int] = {}

    def piece(self, name: str, values: Mapping[str, Any]) -> Piece:
        """The table of type ``name``, at the beginning of the piece, and all below it.

        Values are as the decoder gives them: enums by name or number, a struct as a tuple, a union
        as `Tagged`, tables as dicts, vectors as sequences; and in the place of any of them a `Hole`.

        Raises
        ------
        KeyError
            Where a value has a name that the table has no field for.
        """
        work = _Work(self)
        work.table(name, values)
        return Piece(bytes(work.out), work.tables, work.vtables, work.holes)

    def vtable(self, length: int, places: Mapping[int, int]) -> int:
        """The number of a vtable: field positions by slot, in a table of ``length`` bytes."""
        used = max(places, default=-1) + 1
        entries = [0] * used
        for slot, place in places.items():
            entries[slot] = place
        data = struct.pack(f"<{2 + used}H", 4 + 2 * used, length, *entries)
        return self.vtables.setdefault(data, len(self.vtables))


@dataclass(frozen=True)
class _Slot:
    """How a field is written: as a number, or as an offset to what ``below`` writes."""

    number: int
    """Of the slot in the vtable."""
    size: int
    pack: Callable[[Any], bytes]
    stored: Callable[[Any], Any]
    """The value as ``pack`` takes it; None for one that is absent."""
    below: Callable[[_Work, Any], None] | None = None
    tags: Mapping[str, int] | None = None
    """Of a union: the number of each member, which the slot before holds."""


@cache
def _plan(facts: Schema, name: str) -> dict[str, _Slot]:
    """How the fields of a table are written, by name."""
    return {f.name: _slot(facts, f) for f in facts.tables[name].fields}


def _slot(facts: Schema, f: Field) -> _Slot:
    if f.kind in ("scalar", "enum"):
        enum = facts.enums.get(f.type)
        number = struct.Struct("<" + (enum.format if enum else SCALARS[f.type]))
        return _Slot(f.slot, number.size, number.pack, _stored(f, enum))
    if f.kind == "struct":
        layout = struct.Struct("<" + "".join(SCALARS[kind] for _, kind in facts.structs[f.type]))
        return _Slot(f.slot, layout.size, lambda value: layout.pack(*value), lambda value: value)
    tags = facts.unions[f.type] if f.kind == "union" else None
    return _Slot(f.slot, 4, _LENGTH, lambda value: 0, _below(facts, f), tags)


def _stored(f: Field, enum: Enum | None) -> Callable[[Any], Any]:
    if f.type == "float":

        def stored(value: Any) -> Any:
            value = float32(value)
            negative_zero = value == 0 and copysign(1, value) < 0
            return value if value != f.default or negative_zero else None

    elif enum is not None:
        values = enum.values

        def stored(value: Any) -> Any:
            number = values[value] if isinstance(value, str) else int(value)
            return number if number != f.default else None

    else:

        def stored(value: Any) -> Any:
            return int(value) if value != f.default else None

    return stored


def _below(facts: Schema, f: Field) -> Callable[[_Work, Any], None]:
    if f.kind == "string":
        return lambda work, value: work.string(value)
    if f.kind == "union":
        return lambda work, value: work.table(value.member, value.table)
    if f.kind in ("table", "tables"):
        wrapped = facts.tables[f.type].wrapped

        def one(work: _Work, value: Any) -> None:
            work.table(f.type, {"data": value} if wrapped else value)

        return one if f.kind == "table" else lambda work, values: work.each(values, one)
    enum = facts.enums.get(f.type)
    code = "B" if f.type == "bool" else enum.format if enum else SCALARS[f.type]
    return lambda work, value: work.scalars(code, value)


@dataclass
class _Work:
    """A piece in the making. Tables nest as deep as the schema's do."""

    encoder: Encoder
    out: bytearray = field(default_factory=bytearray)
    tables: list[int] = field(default_factory=list)
    vtables: list[int] = field(default_factory=list)
    holes: dict[Hashable, int] = field(default_factory=dict)

    def table(self, name: str, values: Mapping[str, Any]) -> None:
        """A table, then what it refers to."""
        plan = _plan(self.encoder.facts, name)
        fields: list[tuple[int, int, int, bytes | Hole]] = []
        """The largest first, then by slot: (-alignment, slot, size, what is written)."""
        references = []
        for key, value in values.items():
            slot = plan[key]
            if slot.below is not None:
                references.append((slot, value))
                fields.append((-4, slot.number, 4, _NOTHING))
                if slot.tags is not None:
                    fields.append((-1, slot.number - 1, 1, _BYTE(slot.tags[value.member])))
            elif type(value) is Hole:
                fields.append((-min(slot.size, 4), slot.number, slot.size, value))
            elif (stored := slot.stored(value)) is not None:
                fields.append((-min(slot.size, 4), slot.number, slot.size, slot.pack(stored)))
        fields.sort()
        position, length = len(self.out), 4
        places: dict[int, int] = {}
        out = self.out
        out += _NOTHING
        for _, number, size, written in fields:
            places[number] = length
            if isinstance(written, Hole):
                self.holes[written.name] = position + length
                written = bytes(size)
            out += written
            length += size
        out += bytes(-length % 4)
        self.tables.append(position)
        self.vtables.append(self.encoder.vtable(length, places))
        for slot, value in references:
            assert slot.below is not None
            self._refer(position + places[slot.number], value, slot.below)

    def _refer(self, place: int, value: Any, write: Callable[[_Work, Any], None]) -> None:
        """Write what the offset at ``place`` leads to, here; a hole stays one."""
        target = value.table if isinstance(value, Tagged) else value
        if isinstance(target, Hole):
            self.holes[target.name] = place
            return
        struct.pack_into("<I", self.out, place, len(self.out) - place)
        write(self, value)

    def each(self, values: Sequence[Any], write: Callable[[_Work, Any], None]) -> None:
        """A vector of offsets, then what they lead to."""
        place = len(self.out) + 4
        self.out += struct.pack("<I", len(values)) + bytes(4 * len(values))
        for number, value in enumerate(values):
            self._refer(place + 4 * number, value, write)

    def scalars(self, code: str, values: Any) -> None:
        """A vector of numbers; of holes, where the first is one and numbers have 4 bytes."""
        if values and isinstance(values[0], Hole):
            place = len(self.out) + 4
            self.holes.update((hole.name, place + 4 * number) for number, hole in enumerate(values))
            values = [0] * len(values)
        data = np.array(values, f"<{code}").tobytes()
        self.out += struct.pack("<I", len(values)) + data + bytes(-len(data) % 4)

    def string(self, value: str) -> None:
        """A string, with its final zero."""
        self.out += string(value)


def string(value: str) -> bytes:
    """A string as it is stored: length, UTF-8 (surrogate escapes are the bytes they stand for), a zero, padding."""
    data = value.encode("utf-8", "surrogateescape")
    return _LENGTH(len(data)) + data + _ENDS[len(data) & 3]


_LENGTH, _BYTE = struct.Struct("<I").pack, struct.Struct("<B").pack
_NOTHING = bytes(4)
_ENDS = tuple(bytes(4 - rest) for rest in range(4))


class Ragged:
    """Lists of numbers, of any lengths, in one array.

    Examples
    --------
    >>> owners, values = Ragged([[7], [8, 9]]).of(np.array([1, 0, 1]))
    >>> owners.tolist(), values.tolist()
    ([0, 0, 1, 2, 2], [8, 9, 7, 8, 9])
    """

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self._counts = np.array([len(entries) for entries in lists], np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._values = np.array(list(chain.from_iterable(lists)), np.int64)

    def of(self, which: _Positions) -> tuple[_Positions, _Positions]:
        """The lists of these numbers one after the other: for each entry its place in ``which``, and itself."""
        counts = self._counts[which]
        owners = np.repeat(np.arange(len(which)), counts)
        shifts = self._firsts[which] - (np.cumsum(counts) - counts)
        return owners, self._values[np.arange(len(owners)) + shifts[owners]]


class Assembly:
    """A file in the making: pieces in order, and what fills their holes.

    Positions are counted from the end of the vtables, which are known last.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.end = 0
        self._encoder = encoder
        self._parts: list[bytes] = []
        self._tables: list[tuple[Any, Any]] = []
        """Positions of tables, and the numbers of their vtables."""
        self._numbers: list[tuple[_Positions, npt.NDArray[np.uint32]]] = []
        self._links: list[tuple[_Positions, _Positions]] = []
        self._outside: list[tuple[_Positions, _Positions]] = []

    def put(self, piece: Piece) -> int:
        """Place a piece; returns where."""
        start = self.put_bytes(piece.data)
        self._tables.append(([start + place for place in piece.tables], piece.vtables))
        return start

    def put_rows(
        self, pieces: Sequence[Piece], which: _Positions, tails: Sequence[bytes] | None = None
    ) -> tuple[_Positions, _Positions]:
        """Place a row of pieces, each followed by a tail of its own; returns where each and its tail lie.

        Parameters
        ----------
        pieces
            The different pieces.
        which
            For each place in the row the number of its piece.
        tails
            Bytes, a multiple of 4, that hold no table.
        """
        lengths = np.array([len(piece.data) for piece in pieces], np.int64)[which]
        sizes = lengths if tails is None else lengths + np.fromiter(map(len, tails), np.int64, len(tails))
        starts = self.end + np.cumsum(sizes) - sizes
        owners, tables = Ragged([piece.tables for piece in pieces]).of(which)
        self._tables.append((starts[owners] + tables, Ragged([piece.vtables for piece in pieces]).of(which)[1]))
        data = [pieces[number].data for number in which.tolist()]
        self._parts += data if tails is None else chain.from_iterable(zip(data, tails, strict=True))
        self.end += int(sizes.sum())
        return starts, starts + lengths

    def put_bytes(self, data: bytes) -> int:
        """Place bytes, a multiple of 4, that hold no table; returns where."""
        start = self.end
        self._parts.append(data)
        self.end = start + len(data)
        return start

    def number(self, places: Any, values: Any) -> None:
        """Fill holes with numbers of 32 bits."""
        self._numbers.append((np.asarray(places, np.int64), np.asarray(values).astype(np.int64).astype(np.uint32)))

    def link(self, places: Any, targets: Any) -> None:
        """Let the offsets at ``places`` lead to ``targets``, positions in the assembly."""
        self._links.append((np.asarray(places, np.int64), np.asarray(targets, np.int64)))

    def link_outside(self, places: Any, targets: Any) -> None:
        """Let them lead to positions that are counted from the assembly's end."""
        self._outside.append((np.asarray(places, np.int64), np.asarray(targets, np.int64)))

    def finish(self) -> bytearray:
        """All bytes, the piece placed first being the root; a multiple of 8."""
        starts, vtables, total = [], bytearray(), _HEADER
        for data in self._encoder.vtables:
            starts.append(total)
            vtables += data
            total += len(data)
        base = total + -total % 4
        length = base + self.end
        length += -length % ALIGNMENT
        out = bytearray(length)
        out[_HEADER:total] = vtables
        out[base : base + self.end] = b"".join(self._parts)
        words = np.frombuffer(out, "<u4")
        words[0] = base
        at = np.array(starts, np.int64)
        tables = base + np.concatenate([places for places, _ in self._tables])
        words[tables >> 2] = tables - at[np.concatenate([numbers for _, numbers in self._tables])]
        for where, values in self._numbers:
            words[(where + base) >> 2] = values
        for where, targets in self._links:
            words[(where + base) >> 2] = targets - where
        for where, targets in self._outside:
            words[(where + base) >> 2] = targets + length - (where + base)
        return out
