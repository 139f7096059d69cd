"""A verifying FlatBuffers decoder, driven by the compiled schema and generic over tables.

Every offset, length and alignment is checked before it is used, by the rules of
``flatbuffers::Verifier`` (C++, ``VerifyBuffer`` without identifier, no limit on tables), so that
what decodes here is what a real reader accepts. Decoding and verifying are one pass: a table's
vtable is looked at once per table type and turned into one ``struct`` unpacking and a list of what
to do with each value; tables and vectors that several places refer to are decoded once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from mmap import mmap
from typing import Any, TypeAlias

from fusion_engine.errors import ModelError
from fusion_engine.schema import SCALARS, Field, Schema, Table

__all__ = ["Buffer", "Decoder", "Union"]

_Action: TypeAlias = "Callable[[Decoder, Any, int], Any] | None"
_Run: TypeAlias = "tuple[Callable[..., tuple[Any, ...]], tuple[tuple[str, int, _Action], ...]]"

Buffer: TypeAlias = "bytes | mmap"

SIZES = {name: struct.calcsize("<" + code) for name, code in SCALARS.items()}
MAX_BUFFER = 2**31 - 1
"""FLATBUFFERS_MAX_BUFFER_SIZE: a FlatBuffer ends below 2 GiB."""
MIN_BUFFER = 12
"""No root table fits in fewer bytes: root offset, its vtable offset, an empty vtable."""

OVERLAP = 2
"""How many times a file's bytes may be decoded: what a writer lays out does not overlap at all."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")


@dataclass(frozen=True)
class Union:
    """A union's value: tag and position of its table."""

    tag: int
    position: int


@dataclass
class _Plan:
    """What to do with a table of one type."""

    table: Table
    finish: Callable[[dict[str, Any]], Any] | None
    slots: dict[int, _Slot]
    prepared: dict[int, _Prepared] = field(default_factory=dict)
    memo: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Slot:
    """A wire slot: the name its value goes by, ``struct`` format and size, what to do with it."""

    name: str
    format: str
    size: int
    alignment: int
    action: _Action


@dataclass(frozen=True)
class _Prepared:
    """A vtable, made ready: one unpacking per run of fields that do not overlap."""

    runs: tuple[_Run, ...]
    end: int
    taken: int


class Decoder:
    """Reads tables out of a buffer.

    Parameters
    ----------
    buffer
        The whole file.
    facts
        The schema to read by.
    lenient
        Drop fields that the schema does not know, with a warning, instead of refusing them.

    Attributes
    ----------
    finishers
        Table name -> function from the dict of the fields that are present to what a table of that
        name is decoded to; tables without one decode to the dict. To be filled before the first
        table is decoded.
    place
        What is being decoded, for messages.
    warnings
        What ``lenient`` dropped.
    allowed
        How many bytes all tables, vectors and strings may take together, each counted once.
        FlatBuffers lets them overlap, so that a small file could decode to a large multiple of itself.
    """

    def __init__(
        self,
        buffer: Buffer,
        facts: Schema,
        *,
        lenient: bool = False,
    ) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.facts = facts
        self.lenient = lenient
        self.place = "the root table"
        self.warnings: list[str] = []
        self._plans: dict[str, _Plan] = {}
        self.finishers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self._vectors: dict[tuple[str, int], Any] = {}
        self._blocks: set[int] = set()
        self.allowed = OVERLAP * self.size
        self._taken = 0

    # Faults

    def fault(self, reason: str) -> ModelError:
        """A ModelError at the current place."""
        return ModelError(reason, place=self.place)

    def _bad(self, what: str, position: int) -> ModelError:
        return self.fault(f"{what} at byte {position} of {self.size}: the file is damaged, truncated or no .armnn file")

    def _need(self, position: int, length: int, what: str) -> None:
        if not (length < self.size and 0 <= position <= self.size - length):
            raise self._bad(f"{what} lies outside the file", position)

    def _take(self, length: int, position: int) -> None:
        """Count the bytes of something that is about to be decoded."""
        self._taken += length
        if self._taken > self.allowed:
            raise self._bad("tables and vectors that lie one over another", position)

    # Positions

    def root(self) -> int:
        """Position of the root table.

        Raises
        ------
        ModelError
            Where the buffer is too short or its root offset points nowhere.
        """
        if self.size < MIN_BUFFER:
            raise self.fault(f"{self.size} bytes are too few for an .armnn file")
        if self.size > MAX_BUFFER:
            raise self.fault(f"{self.size} bytes are too many: a FlatBuffers file ends below 2 GiB")
        return self.follow(_U32.unpack_from(self.buffer, 0)[0], 0)

    def follow(self, offset: int, position: int) -> int:
        """Where a non-zero offset stored at ``position`` leads."""
        if not 0 < offset <= MAX_BUFFER:
            raise self._bad(f"an offset of {offset}", position)
        target = position + offset
        self._need(target, 1, "the target of an offset")
        return target

    def vtable(self, position: int) -> tuple[int, int]:
        """Position and size in bytes of the vtable of the table at ``position``."""
        self._need(position, 4, "a table")
        if position % 4:
            raise self._bad("a table that is not aligned", position)
        place = position - int(_I32.unpack_from(self.buffer, position)[0])
        self._need(place, 2, "a vtable")
        size: int = _U16.unpack_from(self.buffer, place)[0]
        if place % 2 or size % 2:
            raise self._bad("a vtable that is not aligned", place)
        self._need(place, size, "a vtable")
        return place, size

    def peek(self, position: int, slot: int) -> int:
        """Position of a field's value in the table at ``position``, or 0 where it is absent."""
        place, size = self.vtable(position)
        entry = 4 + 2 * slot
        if entry >= size:
            return 0
        offset: int = _U16.unpack_from(self.buffer, place + entry)[0]
        return position + offset if offset else 0

    def peek_offset(self, position: int, slot: int) -> int:
        """Where an offset field leads, or 0 where it is absent."""
        place = self.peek(position, slot)
        if not place:
            return 0
        self._need(place, 4, "an offset")
        if place % 4:
            raise self._bad("an offset that is not aligned", place)
        return self.follow(_U32.unpack_from(self.buffer, place)[0], place)

    def length(self, position: int, element: int) -> int:
        """Number of elements of the vector at ``position``, whose elements have ``element`` bytes."""
        self._need(position, 4, "a vector")
        if position % 4:
            raise self._bad("a vector that is not aligned", position)
        count: int = _U32.unpack_from(self.buffer, position)[0]
        if count >= MAX_BUFFER // element:
            raise self._bad(f"a vector of {count} elements", position)
        self._need(position, 4 + count * element, f"a vector of {count} elements")
        return count

    def block(self, position: int, element: int) -> int:
        """Number of elements of a vector that is not decoded, but used as it lies in the file."""
        count = self.length(position, element)
        if position not in self._blocks:
            self._blocks.add(position)
            self._take(4 + count * element, position)
        return count

    def take_blocks(self, length: int) -> None:
        """Count vectors as `block` does, which somebody else has verified; they have so many bytes together."""
        self._take(length, 0)

    def targets(self, position: int) -> list[int]:
        """Positions of the elements of a vector of offsets; each element is still to be checked."""
        count = self.length(position, 4)
        start = position + 4
        offsets = struct.unpack_from(f"<{count}I", self.buffer, start)
        return [start + 4 * i + offset for i, offset in enumerate(offsets)]

    # Values

    def table(self, name: str, position: int) -> Any:
        """The table of type ``name`` at ``position``, verified and decoded."""
        plan = self._plans.get(name) or self._plan(name)
        return self._table(plan, position)

    def _table(self, plan: _Plan, position: int) -> Any:
        memo = plan.memo
        if position in memo:
            return memo[position]
        if position % 4 or not 0 <= position <= self.size - 4:
            self.vtable(position)
        place = position - _I32.unpack_from(self.buffer, position)[0]
        prepared = plan.prepared.get(place)
        if prepared is None:
            prepared = self._prepare(plan, position)
        if position + prepared.end > self.size:
            raise self._bad(f"a field of a {plan.table.name} lies outside the file", position)
        self._take(prepared.taken, position)
        values: dict[str, Any] = {}
        for unpack, fields in prepared.runs:
            for (name, offset, action), raw in zip(fields, unpack(self.buffer, position), strict=True):
                values[name] = raw if action is None else action(self, raw, position + offset)
        result = values if plan.finish is None else plan.finish(values)
        memo[position] = result
        return result

    def _prepare(self, plan: _Plan, position: int) -> _Prepared:
        place, size = self.vtable(position)
        entries = struct.unpack_from(f"<{max(size // 2 - 2, 0)}H", self.buffer, place + 4) if size > 4 else ()
        for slot, offset in enumerate(entries):
            if not offset:
                continue
            known = plan.slots.get(slot)
            if known is None:
                self._unknown(plan.table.name, slot)
            elif offset % known.alignment:
                raise self._bad(f"field {known.name} of a {plan.table.name} is not aligned", position + offset)
        prepared = plan.prepared[place] = _ready(self.facts, plan.table.name, entries[: plan.table.slots])
        return prepared

    def _unknown(self, table: str, slot: int) -> None:
        text = f"{table} has a field in slot {slot} that no release up to 24.08 has"
        if not self.lenient:
            raise self.fault(f"{text}: a newer Arm NN wrote it; lenient=True reads the file without such fields")
        warning = f"{self.place}: {text}; it was dropped"
        if warning not in self.warnings:
            self.warnings.append(warning)

    def _plan(self, name: str) -> _Plan:
        plan = self._plans[name] = _Plan(self.facts.tables[name], self.finishers.get(name), _slots(self.facts, name))
        return plan

    def string(self, position: int) -> str:
        """The string at ``position``; bytes that are no UTF-8 become surrogate escapes."""
        key = ("string", position)
        if key in self._vectors:
            found: str = self._vectors[key]
            return found
        count = self.length(position, 1)
        end = position + 4 + count
        self._need(end, 1, "the end of a string")
        self._take(5 + count, position)
        text: bytes = self.buffer[position + 4 : end]
        if self.buffer[end]:
            raise self._bad("a string without its final zero", position)
        name = self._vectors[key] = text.decode("utf-8", "surrogateescape")
        return name

    def take_as_decoded(self, name: str, position: int, value: Sequence[Any]) -> None:
        """Let the vector of tables at a position be ``value``: somebody else has decoded and verified it."""
        self._vectors[name, position] = value

    def tables(self, name: str, position: int) -> Sequence[Any]:
        """The vector of tables of type ``name`` at ``position``."""
        key = (name, position)
        if key not in self._vectors:
            self._take(4 + 4 * self.length(position, 4), position)
            plan = self._plans.get(name) or self._plan(name)
            self._vectors[key] = tuple([self._table(plan, target) for target in self.targets(position)])
        found: Sequence[Any] = self._vectors[key]
        return found

    def scalars(self, kind: str, position: int) -> tuple[Any, ...]:
        """The vector of scalars (``struct`` format ``kind``) at ``position``."""
        key = (kind, position)
        if key not in self._vectors:
            size = struct.calcsize("<" + kind)
            count = self.length(position, size)
            self._take(4 + count * size, position)
            self._vectors[key] = struct.unpack_from(f"<{count}{kind}", self.buffer, position + 4)
        found: tuple[Any, ...] = self._vectors[key]
        return found


# What is the same for every file


@cache
def _slots(facts: Schema, name: str) -> dict[int, _Slot]:
    """The wire slots of a table."""
    found = {}
    for f in facts.tables[name].fields:
        if f.kind == "union":
            found[f.slot - 1] = _Slot(f"{f.name}_type", "B", 1, 1, None)
        found[f.slot] = _slot(f, facts)
    return found


def _slot(f: Field, facts: Schema) -> _Slot:
    if f.kind == "scalar":
        size = SIZES[f.type]
        if size > 4:  # positions are only known modulo 4 here
            raise NotImplementedError(f"{f.name}: 8-byte fields are not in any schema of Arm NN")
        return _Slot(f.name, SCALARS[f.type], size, size, None)
    if f.kind == "enum":
        enum = facts.enums[f.type]
        size = struct.calcsize("<" + enum.format)
        names = enum.names
        return _Slot(f.name, enum.format, size, size, lambda _, raw, at: names.get(raw, raw))
    if f.kind == "struct":
        layout = struct.Struct("<" + "".join(SCALARS[kind] for _, kind in facts.structs[f.type]))
        return _Slot(f.name, f"{layout.size}s", layout.size, 4, lambda _, raw, at: layout.unpack(raw))
    return _Slot(f.name, "I", 4, 4, _offset_action(f, facts))


def _offset_action(f: Field, facts: Schema) -> Callable[[Decoder, int, int], Any]:
    if f.kind == "string":
        return lambda decoder, raw, at: decoder.string(decoder.follow(raw, at))
    if f.kind == "table":
        return lambda decoder, raw, at: decoder.table(f.type, decoder.follow(raw, at))
    if f.kind == "tables":
        return lambda decoder, raw, at: decoder.tables(f.type, decoder.follow(raw, at))
    if f.kind == "scalars":
        kind = facts.enums[f.type].format if f.type in facts.enums else SCALARS[f.type]
        return lambda decoder, raw, at: decoder.scalars(kind, decoder.follow(raw, at))
    return Decoder.follow  # a union: who asked for it knows which table its tag means


@lru_cache(maxsize=1024)
def _ready(facts: Schema, name: str, entries: tuple[int, ...]) -> _Prepared:
    """A vtable of a table type, made ready; slots that the schema does not know are left out."""
    slots = _slots(facts, name)
    found = sorted(
        ((offset, slots[slot]) for slot, offset in enumerate(entries) if offset and slot in slots),
        key=lambda pair: pair[0],
    )
    runs: list[list[tuple[int, _Slot]]] = []
    for offset, known in found:
        run = next((r for r in runs if r[-1][0] + r[-1][1].size <= offset), None)
        if run is None:
            runs.append([(offset, known)])
        else:
            run.append((offset, known))
    ready = []
    for run in runs:
        text, at = "<", 0
        for offset, known in run:
            text += f"{offset - at}x{known.format}"
            at = offset + known.size
        ready.append((struct.Struct(text).unpack_from, tuple((k.name, o, k.action) for o, k in run)))
    end = max((o + k.size for o, k in found), default=4)
    return _Prepared(tuple(ready), end, 4 + sum(k.size for _, k in found))
