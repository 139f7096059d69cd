"""From tables as dicts to FlatBuffers bytes, driven by the compiled schema and generic over tables.

The tables are built with ``flatbuffers.Builder``. Constant data does not pass through it: every
vector of constant data lies behind the built part, and the table that refers to it gets an offset
past the builder's end (a negative one), which the builder takes as it takes any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import copysign
from typing import Any

import flatbuffers
import numpy as np

from fusion_engine.schema import SCALARS, Enum, Field, Schema, float32

__all__ = ["ALIGNMENT", "Encoder", "Outside", "Tagged"]

ALIGNMENT = 8
"""Alignment of the end of the built part, and so of the elements that lie behind it, in bytes."""


@dataclass(frozen=True)
class Tagged:
    """A union's value: the member's name and its table."""

    member: str
    table: Mapping[str, Any]


@dataclass(frozen=True)
class Outside:
    """A vector behind the built part: the position of its length, counted from the end of that part."""

    position: int


@dataclass(frozen=True)
class _Slot:
    """How one field is written: its value made ready before the table, and then put in its slot."""

    field: Field
    ready: Callable[[Any], Any]
    put: Callable[[Any], None]


class Encoder:
    """Builds the tables of one file.

    Parameters
    ----------
    facts
        The schema to write by.
    """

    def __init__(self, facts: Schema) -> None:
        self.facts = facts
        self._builder = flatbuffers.Builder(1 << 16)
        self._builder.Prep(ALIGNMENT, 0)
        self._plans: dict[str, tuple[int, tuple[_Slot, ...]]] = {}

    def table(self, name: str, values: Mapping[str, Any]) -> int:
        """Write a table; fields that are left out or at their default are absent in it.

        Values are as the decoder gives them: enums by name or number, a struct as a tuple, a
        union as `Tagged`, tables as dicts, vectors as sequences or, of constant data, `Outside`.

        Returns
        -------
        int
            The table's offset, counted from the end of the built part.

        Raises
        ------
        KeyError
            Where a value has a name that the table has no field for.
        """
        slots, plan = self._plans.get(name) or self._plan(name)
        ready = []
        known = 0
        for slot in plan:
            if slot.field.name in values:
                known += 1
                ready.append((slot, slot.ready(values[slot.field.name])))
        if known != len(values):
            raise KeyError(next(key for key in values if key not in self.facts.tables[name].by_name))
        self._builder.StartObject(slots)
        for slot, value in ready:
            slot.put(value)
        offset: int = self._builder.EndObject()
        return offset

    def finish(self, root: int) -> bytearray:
        """The built part, complete: a multiple of 8 bytes."""
        self._builder.Finish(root)
        built: bytearray = self._builder.Output()
        return built

    def _plan(self, name: str) -> tuple[int, tuple[_Slot, ...]]:
        table = self.facts.tables[name]
        plan = self._plans[name] = (table.slots, tuple(self._slot(f) for f in table.fields))
        return plan

    def _slot(self, f: Field) -> _Slot:
        if f.kind in ("scalar", "enum"):
            return self._scalar(f)
        if f.kind == "struct":
            kinds = [SCALARS[kind] for _, kind in self.facts.structs[f.type]]
            return _Slot(f, lambda value: value, lambda value: self._put_struct(f.slot, kinds, value))
        if f.kind == "union":
            return _Slot(f, self._ready_union(f), lambda value: self._put_union(f.slot, value))
        return _Slot(f, self._ready_reference(f), lambda value: self._put_offset(f.slot, value))

    def _scalar(self, f: Field) -> _Slot:
        enum = self.facts.enums.get(f.type)
        put = getattr(self._builder, _PUT[enum.format if enum else SCALARS[f.type]])

        def store(value: Any) -> None:
            put(f.slot, value, f.default)

        def store_float(value: Any) -> None:
            value = float32(value)
            put(f.slot, value, None if value == 0 and copysign(1, value) < 0 else f.default)

        if f.type == "float":
            return _Slot(f, lambda value: value, store_float)
        return _Slot(f, (lambda value: _enum_value(enum, value)) if enum else (lambda value: value), store)

    def _ready_union(self, f: Field) -> Callable[[Tagged], tuple[int, int]]:
        tags = self.facts.unions[f.type]
        return lambda value: (tags[value.member], self.table(value.member, value.table))

    def _ready_reference(self, f: Field) -> Callable[[Any], int]:
        if f.kind == "string":
            return self._string
        if f.kind == "table":
            wrapped = self.facts.tables[f.type].wrapped
            return lambda value: self.table(f.type, {"data": value} if wrapped else value)
        if f.kind == "tables":
            wrapped = self.facts.tables[f.type].wrapped
            return lambda value: self._offsets(
                [self.table(f.type, {"data": element} if wrapped else element) for element in value]
            )
        enum = self.facts.enums.get(f.type)
        dtype = np.dtype("<" + (enum.format if enum else SCALARS[f.type])) if f.type != "bool" else np.dtype("u1")
        return lambda value: self._vector(value, dtype)

    def _vector(self, value: Any, dtype: np.dtype[Any]) -> int:
        if isinstance(value, Outside):
            return -value.position
        offset: int = self._builder.CreateNumpyVector(np.array(value, dtype))
        return offset

    def _offsets(self, offsets: list[int]) -> int:
        builder = self._builder
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        made: int = builder.EndVector()
        return made

    def _string(self, value: str) -> int:
        offset: int = self._builder.CreateString(value, "utf-8", "surrogateescape")
        return offset

    def _put_offset(self, slot: int, offset: int) -> None:
        builder = self._builder
        builder.PrependUOffsetTRelative(offset)
        builder.Slot(slot)

    def _put_union(self, slot: int, value: tuple[int, int]) -> None:
        self._builder.PrependUint8Slot(slot - 1, value[0], 0)
        self._put_offset(slot, value[1])

    def _put_struct(self, slot: int, kinds: list[str], value: tuple[Any, ...]) -> None:
        builder = self._builder
        builder.Prep(4, 4 * len(kinds))
        for kind, part in zip(reversed(kinds), reversed(value), strict=True):
            getattr(builder, _PREPEND[kind])(part)
        builder.PrependStructSlot(slot, builder.Offset(), 0)


def _enum_value(enum: Enum, value: str | int) -> int:
    return enum.values[value] if isinstance(value, str) else value


_PREPEND = {
    "?": "PrependBool",
    "b": "PrependInt8",
    "B": "PrependUint8",
    "h": "PrependInt16",
    "H": "PrependUint16",
    "i": "PrependInt32",
    "I": "PrependUint32",
    "q": "PrependInt64",
    "Q": "PrependUint64",
    "f": "PrependFloat32",
    "d": "PrependFloat64",
}
"""The builder's method for a ``struct`` format character."""

_PUT = {code: f"{method}Slot" for code, method in _PREPEND.items()}
