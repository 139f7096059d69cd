"""Small files that want to become large: what they refer to overlaps or is shared, over and over.

FlatBuffers' own Verifier accepts each of them.
"""

from __future__ import annotations

import struct

from fusion_engine.schema import schema

__all__ = ["Raw", "overlapping_dimensions", "overlapping_payloads", "repeated_slots", "shared_name", "shared_pad_list"]


class Raw:
    """A file written word by word; tables have vtables of their own kind, found again by their fields."""

    def __init__(self) -> None:
        self.data = bytearray(4)
        self._vtables: dict[tuple[int, ...], int] = {}

    def align(self) -> int:
        """Pad to a multiple of 4; gives the end."""
        self.data += bytes(-len(self.data) % 4)
        return len(self.data)

    def table(self, slots: dict[int, str]) -> tuple[int, dict[int, int]]:
        """A table with fields of these ``struct`` formats by slot; gives its position and those of its fields."""
        offsets, at = {}, 4
        for slot, code in slots.items():
            at += -at % struct.calcsize(code)
            offsets[slot] = at
            at += struct.calcsize(code)
        entries = (4 + 2 * (max(slots, default=-1) + 1), at, *(offsets.get(s, 0) for s in range(max(slots) + 1)))
        if entries not in self._vtables:
            self._vtables[entries] = self.align()
            self.data += struct.pack(f"<{len(entries)}H", *entries)
        position = self.align()
        self.data += struct.pack("<i", position - self._vtables[entries]) + bytes(at - 4)
        return position, {slot: position + offset for slot, offset in offsets.items()}

    def put(self, place: int, code: str, value: int) -> None:
        """Set a field."""
        struct.pack_into("<" + code, self.data, place, value)

    def lead(self, place: int, target: int) -> None:
        """Let the offset at a place lead somewhere behind it."""
        self.put(place, "I", target - place)

    def words(self, *values: int) -> int:
        """Words, as a vector if the first one is the number of the others; gives their position."""
        position = self.align()
        self.data += struct.pack(f"<{len(values)}I", *values)
        return position

    def vector(self, count: int) -> int:
        """A vector of offsets that are still to be set."""
        return self.words(count, *[0] * count)

    def root(self, layers: int) -> int:
        """The root table with an empty vector of layers, and nothing listed; gives the vector's position."""
        root, fields = self.table({0: "I", 1: "I", 2: "I"})
        self.put(0, "I", root)
        found = self.vector(layers)
        self.lead(fields[0], found)
        empty = self.words(0)
        self.lead(fields[1], empty)
        self.lead(fields[2], empty)
        return found

    def layer(self, place: int, kind: str, slots: dict[int, str]) -> dict[int, int]:
        """A layer that the offset at a place leads to: a table of these fields; gives their places."""
        outer, fields = self.table({0: "B", 1: "I"})
        self.lead(place, outer)
        self.put(fields[0], "B", schema().layers[kind].tag)
        inner, found = self.table(slots)
        self.lead(fields[1], inner)
        return found

    def base(self, place: int, index: int, slots: dict[int, str]) -> dict[int, int]:
        """A LayerBase that the offset at a place leads to."""
        base, fields = self.table({0: "I", **slots})
        self.lead(place, base)
        self.put(fields[0], "I", index)
        return fields


def overlapping_dimensions(count: int) -> bytes:
    """One layer with ``count`` outputs, each of ``count`` dimensions: vectors that begin one word after the other."""
    raw = Raw()
    layers = raw.root(1)
    base = raw.base(raw.layer(layers + 4, "Floor", {0: "I"})[0], 0, {4: "I"})
    outputs = raw.vector(count)
    raw.lead(base[4], outputs)
    places = []
    for number in range(count):
        slot, fields = raw.table({0: "I", 1: "I"})
        raw.lead(outputs + 4 + 4 * number, slot)
        raw.put(fields[0], "I", number)
        info, inner = raw.table({0: "I"})
        raw.lead(fields[1], info)
        places.append(inner[0])
    words = raw.words(*[count] * (2 * count + 1))
    for number, place in enumerate(places):
        raw.lead(place, words + 4 * number)
    return bytes(raw.data) + bytes(8)


def overlapping_payloads(count: int) -> bytes:
    """``count`` Constants of ``count`` elements each, whose data begin one word after the other."""
    raw = Raw()
    layers = raw.root(count)
    places = []
    infos = []
    for number in range(count):
        fields = raw.layer(layers + 4 + 4 * number, "Constant", {0: "I", 1: "I"})
        base = raw.base(fields[0], number, {1: "I", 4: "I"})
        name = raw.words(1, 0x61)
        raw.lead(base[1], name)
        outputs = raw.vector(1)
        raw.lead(base[4], outputs)
        slot, inner = raw.table({1: "I"})
        raw.lead(outputs + 4, slot)
        infos.append(inner[1])
        tensor, parts = raw.table({0: "I", 1: "B", 2: "I"})
        raw.lead(fields[1], tensor)
        infos.append(parts[0])
        raw.put(parts[1], "B", schema().unions["ConstTensorData"]["IntData"])
        payload, data = raw.table({0: "I"})
        raw.lead(parts[2], payload)
        places.append(data[0])
    info, fields = raw.table({0: "I", 1: "B"})
    raw.put(fields[1], "B", schema().enums["DataType"].values["Signed32"])
    for place in infos:
        raw.lead(place, info)
    raw.lead(fields[0], raw.words(1, count))
    words = raw.words(*[count] * (2 * count + 1))
    for number, place in enumerate(places):
        raw.lead(place, words + 4 * number)
    return bytes(raw.data) + bytes(8)


def shared_name(layers: int, length: int) -> bytes:
    """Layers without any slots that have one long name between them."""
    raw = Raw()
    vector = raw.root(layers)
    places, empty = [], []
    for number in range(layers):
        fields = raw.layer(vector + 4 + 4 * number, "Floor", {0: "I"})
        base = raw.base(fields[0], number, {1: "I", 4: "I"})
        places.append(base[1])
        empty.append(base[4])
    slots = raw.words(0)
    for place in empty:
        raw.lead(place, slots)
    name = raw.align()
    raw.data += struct.pack("<I", length) + b"n" * length + bytes(4)
    for place in places:
        raw.lead(place, name)
    return bytes(raw.data) + bytes(8)


def shared_pad_list(layers: int, length: int) -> bytes:
    """Pad layers, each with its own descriptor, that have one long padList between them."""
    raw = Raw()
    vector = raw.root(layers)
    places = []
    for number in range(layers):
        fields = raw.layer(vector + 4 + 4 * number, "Pad", {0: "I", 1: "I"})
        raw.lead(raw.base(fields[0], number, {4: "I"})[4], raw.words(0))
        descriptor, inner = raw.table({0: "I", 1: "f"})
        raw.lead(fields[1], descriptor)
        places.append(inner[0])
    pads = raw.words(length, *[1] * length)
    for place in places:
        raw.lead(place, pads)
    return bytes(raw.data) + bytes(8)


def repeated_slots(layers: int, slots: int) -> bytes:
    """Layers that share one vector of slots, all of them one table: 1 + 3 * layers + layers * slots tables."""
    raw = Raw()
    vector = raw.root(layers)
    places = []
    for number in range(layers):
        fields = raw.layer(vector + 4 + 4 * number, "Floor", {0: "I"})
        places.append(raw.base(fields[0], number, {4: "I"})[4])
    outputs = raw.vector(slots)
    slot, fields = raw.table({0: "I"})
    for number in range(slots):
        raw.lead(outputs + 4 + 4 * number, slot)
    for place in places:
        raw.lead(place, outputs)
    return bytes(raw.data) + bytes(8)
