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
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import copysign
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.schema import SCALARS, Enum, Field, Schema, float32

__all__ = ["ALIGNMENT", "Assembly", "Encoder", "Hole", "Piece", "Rows", "Tagged", "string"]

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
        self._plans: dict[str, dict[str, _Slot]] = {}

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

    def plan(self, name: str) -> dict[str, _Slot]:
        """How the fields of a table are written, by name."""
        found = self._plans.get(name)
        if found is None:
            found = self._plans[name] = {f.name: _slot(self.facts, f) for f in self.facts.tables[name].fields}
        return found

    def vtable(self, slots: int, length: int, places: Mapping[int, int]) -> int:
        """The number of a vtable: field positions by slot, in a table of ``length`` bytes."""
        used = max(places, default=-1) + 1
        entries = (places.get(slot, 0) for slot in range(min(used, slots)))
        data = struct.pack(f"<{2 + used}H", 4 + 2 * used, length, *entries)
        return self.vtables.setdefault(data, len(self.vtables))


@dataclass(frozen=True)
class _Slot:
    """How a field is written: as a number, or as an offset to what ``below`` writes."""

    field: Field
    code: str
    size: int
    stored: Callable[[Any], Any]
    """The value as ``struct`` packs it; None for one that is absent."""
    below: Callable[[_Work, Any], None] | None = None


def _slot(facts: Schema, f: Field) -> _Slot:
    if f.kind in ("scalar", "enum"):
        enum = facts.enums.get(f.type)
        code = enum.format if enum else SCALARS[f.type]
        return _Slot(f, code, struct.calcsize("<" + code), _stored(f, enum))
    if f.kind == "struct":
        layout = struct.Struct("<" + "".join(SCALARS[kind] for _, kind in facts.structs[f.type]))
        return _Slot(f, f"{layout.size}s", layout.size, lambda value: layout.pack(*value))
    return _Slot(f, "I", 4, lambda value: value, _below(facts, f))


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
        plan = self.encoder.plan(name)
        present = [(plan[key], value) for key, value in values.items()]
        fields = sorted(self._inline(present), key=lambda entry: (-min(entry[0], 4), entry[1]))
        position, length = len(self.out), 4
        places: dict[int, int] = {}
        parts = []
        for size, wire, code, value in fields:
            places[wire] = length
            if isinstance(value, Hole):
                self.holes[value.name] = position + length
                parts.append(bytes(size))
            else:
                parts.append(struct.pack(f"<{code}", value))
            length += size
        self.out += bytes(4) + b"".join(parts) + bytes(-length % 4)
        self.tables.append(position)
        self.vtables.append(self.encoder.vtable(self.encoder.facts.tables[name].slots, length, places))
        for slot, value in present:
            if slot.below is not None:
                self._refer(position + places[slot.field.slot], value, slot.below)

    def _inline(self, present: Iterable[tuple[_Slot, Any]]) -> Iterator[tuple[int, int, str, Any]]:
        """What a table holds itself: size, wire slot, format and value of each field."""
        for slot, value in present:
            wire = slot.field.slot
            if slot.field.kind == "union":
                tag = self.encoder.facts.unions[slot.field.type][value.member]
                yield 1, wire - 1, "B", tag
            stored = value if isinstance(value, Hole) else 0 if slot.below is not None else slot.stored(value)
            if stored is not None:
                yield slot.size, wire, slot.code, stored

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
        """A vector of numbers."""
        data = np.array(values, f"<{code}").tobytes()
        self.out += struct.pack("<I", len(values)) + data + bytes(-len(data) % 4)

    def string(self, value: str) -> None:
        """A string, with its final zero."""
        self.out += string(value)


def string(value: str) -> bytes:
    """A string as it is stored: length, UTF-8 (surrogate escapes are the bytes they stand for), a zero, padding."""
    data = value.encode("utf-8", "surrogateescape")
    return _LENGTH(len(data)) + data + _ENDS[len(data) & 3]


_LENGTH = struct.Struct("<I").pack
_ENDS = tuple(bytes(4 - rest) for rest in range(4))


@dataclass(frozen=True, eq=False)
class Rows:
    """Where a row of pieces was placed.

    Attributes
    ----------
    starts
        Where each lies.
    tails
        Where each one's tail lies.
    places
        Per different piece its places in the row, ascending.
    """

    starts: _Positions
    tails: _Positions
    places: Sequence[_Positions]


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

    def put_rows(self, pieces: Sequence[Piece], which: Sequence[int], tails: Sequence[bytes]) -> Rows:
        """Place a row of pieces, each followed by a tail of its own: bytes, a multiple of 4, that hold no table.

        Parameters
        ----------
        pieces
            The different pieces.
        which
            For each place in the row the number of its piece.
        tails
            The tails.
        """
        numbers = np.array(which, np.int64)
        lengths = np.array([len(piece.data) for piece in pieces], np.int64)[numbers]
        ends = self.end + np.cumsum(lengths + np.fromiter(map(len, tails), np.int64, len(tails)))
        starts = np.concatenate([[self.end], ends])[:-1]
        places = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers, minlength=len(pieces))))
        for piece, rows in zip(pieces, places, strict=False):
            tables = np.add.outer(starts[rows], np.array(piece.tables, np.int64))
            self._tables.append((tables.reshape(-1), np.tile(np.array(piece.vtables, np.int64), len(rows))))
        data = [piece.data for piece in pieces]
        self._parts += chain.from_iterable(zip([data[number] for number in which], tails, strict=True))
        self.end = int(ends[-1]) if len(ends) else self.end
        return Rows(starts, starts + lengths, places[: len(pieces)])

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
