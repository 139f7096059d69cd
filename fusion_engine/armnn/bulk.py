"""A network decoded column by column: what `reader` does table by table, with one NumPy operation for all layers.

Why: a table takes the plain decoder some 4 µs, and a layer has ten of them. In a network of thousands of
layers these tables have few vtables among them, so positions, offsets and numbers can be gathered as
arrays, checked as arrays, and turned into attributes by one loop.

What is unusual (a fault, an older dialect, a field that no schema knows, weights of tables within
tables) is left to the plain reader: `Unusual` is raised, and the whole file is read there. So this
module need not explain a fault, only never overlook one; tests check that both give the same network.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.armnn.decode import MAX_BUFFER, SIZES, Buffer, Decoder, Union
from fusion_engine.armnn.dialects import BINDABLE_VTABLE, odd_tags
from fusion_engine.armnn.files import MappedFile
from fusion_engine.armnn.sharing import Sharing, info_size
from fusion_engine.network import EMPTY, FrozenDict, Network, inside
from fusion_engine.schema import Field, LayerType, Schema, schema
from fusion_engine.tensor import DTYPES, PAYLOADS, Origin, Tensor, TensorInfo, address_of

__all__ = ["FEWEST_LAYERS", "LayerColumns", "Unusual"]

FEWEST_LAYERS = 64
"""Networks with fewer layers are read faster by the plain reader."""

_Ints = npt.NDArray[np.int64]
_VECTOR_RANK = 8
"""Most dimensions of a tensor whose shape is read in columns."""


class Unusual(Exception):
    """The file is not one that can be read in columns."""


def _require(condition: Any) -> None:
    if not condition:
        raise Unusual


def _aligned(positions: _Ints, mask: int) -> bool:
    return not np.bitwise_or.reduce(positions) & mask


def _most(numbers: _Ints) -> int:
    return int(numbers.max(initial=0))


def _end(layout: dict[int, int], fields: dict[int, tuple[int, int]]) -> int:
    """Where a table's last field ends."""
    return max((at + fields[slot][0] for slot, at in layout.items()), default=4)


@dataclass(frozen=True)
class _Tables:
    """Tables of one type: their positions, and per wire slot where the field's value lies, 0 where it is absent."""

    positions: _Ints
    places: dict[int, _Ints]
    extents: _Ints
    """Per table the length of what it holds itself."""
    kinds: _Ints
    """Per table the position of its vtable."""

    def at(self, slot: int) -> _Ints:
        """Where a field's value lies in each table."""
        found = self.places.get(slot)
        return np.zeros(len(self.positions), np.int64) if found is None else found


@dataclass(frozen=True)
class _Rows:
    """Vectors, flattened: the elements' positions or targets, and each vector's bounds among them."""

    values: _Ints
    counts: _Ints

    @property
    def bounds(self) -> list[int]:
        """Where each vector begins, and where the last one ends."""
        found: list[int] = [0, *np.cumsum(self.counts).tolist()]
        return found


class _Columns:
    """A buffer, read at many positions at once, each checked."""

    def __init__(self, buffer: Buffer, facts: Schema) -> None:
        self.facts = facts
        self.size = len(buffer)
        self.bytes = np.frombuffer(buffer, np.uint8)
        self.words = np.frombuffer(buffer, "<u4", self.size // 4)
        self.halves = np.frombuffer(buffer, "<u2", self.size // 2)
        self._fields: dict[str, dict[int, tuple[int, int]]] = {}

    def u32(self, places: _Ints) -> _Ints:
        """Numbers at places that are known to be right."""
        found: _Ints = self.words[places >> 2].astype(np.int64)
        return found

    def follow(self, places: _Ints) -> _Ints:
        """Where the offsets at places lead."""
        offsets = self.u32(places)
        _require(not len(places) or (offsets.min() > 0 and offsets.max() <= MAX_BUFFER))
        offsets += places
        _require(_most(offsets) < self.size)
        return offsets

    def tables(self, name: str, positions: _Ints) -> _Tables:
        """The tables of a type at positions."""
        if not len(positions):
            return _Tables(positions, {}, positions, positions)
        vtables = self._vtables(positions)
        fields = self._known(name)
        if vtables.min() == vtables.max():
            layout = self._layout(int(vtables[0]), fields)
            end = _end(layout, fields)
            _require(positions.max() + end <= self.size)
            same = {slot: positions + at for slot, at in layout.items()}
            return _Tables(positions, same, np.full(len(positions), end), vtables)
        kinds, which = np.unique(vtables, return_inverse=True)
        _require(len(kinds) <= 64 or len(kinds) * 8 <= len(positions))
        layouts = [self._layout(int(kind), fields) for kind in kinds]
        ends = np.array([_end(layout, fields) for layout in layouts])[which]
        _require((positions + ends).max() <= self.size)
        places = {}
        for slot in sorted({slot for layout in layouts for slot in layout}):
            offsets = np.array([layout.get(slot, 0) for layout in layouts])
            at = offsets[which]
            places[slot] = positions + at if offsets.min() > 0 else np.where(at > 0, positions + at, 0)
        return _Tables(positions, places, ends, vtables)

    def vtable_sizes(self, positions: _Ints) -> _Ints:
        """Bytes of the vtables of tables whose type is not known yet."""
        found: _Ints = self.halves[self._vtables(positions) >> 1].astype(np.int64)
        return found

    def first(self, positions: _Ints) -> _Ints:
        """Where the first field of such tables leads, an offset; 0 where it is absent."""
        vtables = self._vtables(positions)
        sizes = self.halves[vtables >> 1]
        entries = np.where(sizes > 4, self.halves[np.minimum((vtables >> 1) + 2, len(self.halves) - 1)], 0)
        places = np.where(entries > 0, positions + entries, 0)
        _require(np.all(((places & 3) == 0) & (places <= self.size - 4)))
        found = np.zeros(len(positions), np.int64)
        found[places > 0] = self.follow(places[places > 0])
        return found

    def _vtables(self, positions: _Ints) -> _Ints:
        _require(_aligned(positions, 3) and _most(positions) <= self.size - 4)
        vtables: _Ints = positions - self.words[positions >> 2].view(np.int32)
        _require(_aligned(vtables, 1) and vtables.min(initial=0) >= 0 and _most(vtables) <= self.size - 4)
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
        _require(length % 2 == 0 and length < self.size and vtable <= self.size - length)
        found = {}
        for slot, offset in enumerate(self.halves[(vtable >> 1) + 2 : (vtable + length) >> 1].tolist()):
            if offset:
                _require(slot in fields and offset % fields[slot][1] == 0)
                found[slot] = offset
        return found

    def lengths(self, positions: _Ints, size: int) -> _Ints:
        """Numbers of elements of vectors whose elements have ``size`` bytes."""
        _require(_aligned(positions, 3) and _most(positions) <= self.size - 4)
        counts = self.u32(positions)
        _require(_most(counts) < MAX_BUFFER // size)
        _require(_most(positions + counts * size) + 4 <= self.size)
        return counts

    def rows(self, places: _Ints) -> _Rows:
        """The positions of the tables in the vectors that offsets at places lead to; none where the place is 0."""
        present = np.nonzero(places)[0]
        vectors = self.follow(places[present])
        found = self.lengths(vectors, 4)
        total = int(found.sum())
        _require(4 * total <= self.size)  # shared vectors would multiply
        elements = np.repeat(vectors + 4 - 4 * (np.cumsum(found) - found), found)
        elements += 4 * np.arange(total)
        counts = np.zeros(len(places), np.int64)
        counts[present] = found
        return _Rows(self.follow(elements), counts)

    def small(self, places: _Ints, kind: str, default: int) -> _Ints:
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


class LayerColumns:
    """The layers of a file of the current dialect.

    Every method raises `Unusual` or `ModelError` where the file is better read by the plain reader.

    Attributes
    ----------
    decoder
        The plain decoder, for what there is little of; it takes the vector of layers as decoded.
    sources_first
        Whether every layer stands behind those that it reads, so that there is no cycle.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.mapped: MappedFile | None = None
        self.facts = schema()
        self.decoder = Decoder(buffer, self.facts)
        self.sharing = Sharing(self.decoder)
        self.infos: list[TensorInfo] = []
        self.sources_first = True
        place = self.decoder.peek(self.decoder.root(), self.facts.tables[self.facts.root].by_name["layers"].slot)
        _require(place)
        self._vector = self.decoder.peek_offset(
            self.decoder.root(), self.facts.tables[self.facts.root].by_name["layers"].slot
        )
        self.worthwhile = self.decoder.length(self._vector, 4) >= FEWEST_LAYERS
        if not self.worthwhile:
            return
        self.columns = columns = _Columns(buffer, self.facts)
        layers = columns.tables("AnyLayer", columns.rows(np.array([place])).values)
        slot = self.facts.tables["AnyLayer"].by_name["layer"].slot
        self.tags = columns.small(layers.at(slot - 1), "B", 0)
        _require(np.all((self.tags > 0) & (layers.at(slot) > 0)))
        self.positions = columns.follow(layers.at(slot))
        self.decoder.take_as_decoded("AnyLayer", self._vector, ())

    def telling(self) -> list[Union]:
        """The layers by which the dialect can be told: see `dialects`."""
        bases = self.columns.first(self.positions)
        telling = np.isin(self.tags, list(odd_tags()))
        telling |= self.columns.vtable_sizes(np.where(bases > 0, bases, self.positions)) <= BINDABLE_VTABLE
        where = np.nonzero(telling)[0]
        return list(map(Union, self.tags[where].tolist(), self.positions[where].tolist()))

    def read_into(self, graph: Network, mapped: MappedFile | None) -> None:
        """Put the layers and their connections into an empty network."""
        self.mapped = mapped
        columns, facts, tags, positions = self.columns, self.facts, self.tags, self.positions
        count = len(tags)
        bases = np.zeros(count, np.int64)
        bindings = np.zeros(count, np.int64)
        params: list[Any] = [EMPTY] * count
        pending: list[tuple[_Ints, str, _Ints]] = []
        for tag in np.unique(tags).tolist():
            kind = facts.by_tag.get(tag)
            _require(kind is not None)
            assert kind is not None
            where = np.nonzero(tags == tag)[0]
            tables = columns.tables(kind.table.name, positions[where])
            handled = {"base", "descriptor", *(path[0] for path in kind.tensors)}
            _require(all(f.name in handled or f.slot not in tables.places for f in kind.table.fields))
            place = tables.at(kind.table.by_name["base"].slot)
            _require(np.all(place > 0))
            base = columns.follow(place)
            if kind.bindable:
                bindable = columns.tables("BindableLayerBase", base)
                fields = facts.tables["BindableLayerBase"].by_name
                bindings[where] = columns.small(bindable.at(fields["layerBindingId"].slot), "i", 0)
                _require(np.all(bindable.at(fields["base"].slot) > 0))
                base = columns.follow(bindable.at(fields["base"].slot))
            bases[where] = base
            if kind.descriptor is not None:
                self._descriptors(kind, tables, where.tolist(), params)
            for path in kind.tensors:
                at = tables.at(kind.table.by_name[path[0]].slot)
                _require(len(path) == 1 or not np.any(at))
                pending.append((where[at > 0], path[0], columns.follow(at[at > 0])))
        kinds = [facts.by_tag[tag] for tag in tags.tolist()]
        self._finish(graph, kinds, bases, bindings.tolist(), params, pending)

    def _descriptors(self, kind: LayerType, tables: _Tables, where: list[int], params: list[Any]) -> None:
        """Descriptors of the layers of a type; those that hold the same bytes are one."""
        assert kind.descriptor is not None
        name = kind.descriptor.name
        place = tables.at(kind.table.by_name["descriptor"].slot)
        present = np.nonzero(place)[0].tolist()
        for layer in np.nonzero(place == 0)[0].tolist():
            params[where[layer]] = None
        found = self.columns.tables(name, self.columns.follow(place[present]))
        references = any(
            np.any(found.at(f.slot)) for f in kind.descriptor.fields if f.kind not in ("scalar", "enum", "struct")
        )
        decode, buffer = self.decoder.table, self.buffer
        positions = found.positions.tolist()
        if references:
            for layer, position in zip(present, positions, strict=True):
                value = params[where[layer]] = decode(name, position)
                self.sharing.params(kind.descriptor, value)
            return
        alike: dict[tuple[int, bytes], Any] = {}
        ends = (found.positions + found.extents).tolist()
        for layer, position, end, vtable in zip(present, positions, ends, found.kinds.tolist(), strict=True):
            key = (vtable, buffer[position + 4 : end])
            value = alike.get(key)
            if value is None:
                value = alike[key] = decode(name, position)
            params[where[layer]] = value

    def _finish(
        self,
        graph: Network,
        kinds: list[LayerType],
        bases: _Ints,
        bindings: list[int],
        params: list[Any],
        pending: list[tuple[_Ints, str, _Ints]],
    ) -> None:
        columns, fields = self.columns, self.facts.tables["LayerBase"].by_name
        base = columns.tables("LayerBase", bases)
        keys = columns.small(base.at(fields["index"].slot), "I", 0)
        _require(len(np.unique(keys)) == len(keys))
        named = base.at(fields["layerName"].slot)
        _require(np.all(named > 0))
        names = self._strings(named)
        inputs = columns.rows(base.at(fields["inputSlots"].slot))
        outputs = columns.rows(base.at(fields["outputSlots"].slot))
        _require(4 * (len(inputs.values) + len(outputs.values)) <= columns.size)
        slots = self.facts.tables["InputSlot"].by_name
        ins = columns.tables("InputSlot", inputs.values)
        flags = columns.small(ins.at(slots["isOverridden"].slot), "B", 0)
        place = ins.at(slots["overriddenTensorInfo"].slot)
        overridden = np.nonzero((flags > 0) | (place > 0))[0]
        overriding = np.zeros(len(place), np.int64)
        overriding[place > 0] = columns.follow(place[place > 0])
        connection = ins.at(slots["connection"].slot)
        _require(np.all(connection > 0))
        self._numbered(inputs, columns.small(ins.at(slots["index"].slot), "I", 0))
        sources, source_slots = columns.u32(connection), columns.u32(connection + 4)
        slots = self.facts.tables["OutputSlot"].by_name
        outs = columns.tables("OutputSlot", outputs.values)
        self._numbered(outputs, columns.small(outs.at(slots["index"].slot), "I", 0))
        place = outs.at(slots["tensorInfo"].slot)
        _require(np.all(place > 0))
        places = columns.follow(place)
        constants = self._constants(len(kinds), np.concatenate([places, overriding[overriding > 0]]), pending)
        infos = self._numbers_of(places).tolist()
        self._fill(graph, kinds, keys.tolist(), names, bindings, params, constants, infos, outputs.bounds)
        if len(overridden):
            self._override(graph, keys, inputs, overridden, flags, overriding)
        self._connect(graph, keys, inputs, sources, source_slots, outputs.counts)

    def _override(
        self, graph: Network, keys: _Ints, inputs: _Rows, overridden: _Ints, flags: _Ints, overriding: _Ints
    ) -> None:
        """Overridden TensorInfos of input slots."""
        ends = np.cumsum(inputs.counts)
        layers = np.searchsorted(ends, overridden, side="right")
        numbers = overridden - (ends - inputs.counts)[layers]
        found: dict[int, dict[Any, Any]] = {}
        there = overriding[overridden]
        infos = np.zeros(len(there), np.int64)
        infos[there > 0] = self._numbers_of(there[there > 0])
        rows = zip(
            keys[layers].tolist(),
            numbers.tolist(),
            flags[overridden].tolist(),
            there.tolist(),
            infos.tolist(),
            strict=True,
        )
        for key, number, flag, position, info in rows:
            found.setdefault(key, {})[number] = (bool(flag), self.infos[info] if position else None)
        for key, slots in found.items():
            graph.nodes[key]["overrides"] = FrozenDict(slots)

    @staticmethod
    def _numbered(rows: _Rows, indices: _Ints) -> None:
        """Slots must stand in the order of their numbers."""
        ends = np.cumsum(rows.counts)
        _require(np.array_equal(indices, np.arange(len(indices)) - np.repeat(ends - rows.counts, rows.counts)))

    def _strings(self, places: _Ints) -> list[str]:
        columns, buffer = self.columns, self.buffer
        positions = columns.follow(places)
        lengths = columns.lengths(positions, 1)
        ends = positions + 4 + lengths
        _require(np.all(ends < columns.size))
        _require(not np.any(columns.bytes[ends]))
        _require(int(lengths.sum()) <= columns.size)
        return [
            buffer[start:end].decode("utf-8", "surrogateescape")
            for start, end in zip((positions + 4).tolist(), ends.tolist(), strict=True)
        ]

    # TensorInfos and tensors

    def _constants(self, layers: int, places: _Ints, pending: list[tuple[_Ints, str, _Ints]]) -> list[FrozenDict]:
        """The constants of every layer; TensorInfos, those of outputs at ``places`` too, are read on the way."""
        columns, fields = self.columns, self.facts.tables["ConstTensor"].by_name
        tables = columns.tables("ConstTensor", np.concatenate([places[:0], *(found for _, _, found in pending)]))
        place = tables.at(fields["info"].slot)
        _require(np.all(place > 0))
        held = columns.follow(place)
        self._read_infos(np.concatenate([places, held]))
        place = tables.at(fields["data"].slot)
        _require(np.all(place > 0))
        tags = columns.small(tables.at(fields["data"].slot - 1), "B", 0)
        tensors = self._tensors(self._numbers_of(held), tags, columns.follow(place))
        found: list[dict[str, Tensor]] = [EMPTY] * layers
        start = 0
        for where, name, positions in pending:
            end = start + len(positions)
            for layer, tensor in zip(where.tolist(), tensors[start:end], strict=True):
                holder = found[layer]
                if holder is EMPTY:
                    found[layer] = {name: tensor}
                else:
                    holder[name] = tensor
            start = end
        return [holder if holder is EMPTY else FrozenDict(holder) for holder in found]

    def _tensors(self, numbers: _Ints, tags: _Ints, positions: _Ints) -> list[Tensor]:
        """Tensors, by the numbers of their TensorInfos, the payloads' union tags and positions."""
        columns, infos, mapped = self.columns, self.infos, self.mapped
        sizes = np.array([info.dtype.itemsize for info in infos], np.int64)[numbers]
        vectors = np.zeros(len(numbers), np.int64)
        for size, name in PAYLOADS.items():
            where = np.nonzero(sizes == size)[0]
            if not len(where):
                continue
            _require(np.all(tags[where] == self.facts.unions["ConstTensorData"][name]))
            tables = columns.tables(name, positions[where])
            place = tables.at(self.facts.tables[name].by_name["data"].slot)
            _require(np.all(place > 0))
            vectors[where] = columns.follow(place)
            columns.lengths(vectors[where], size)
        counts = columns.u32(vectors)
        _require(np.all(counts == np.array([min(info.elements, MAX_BUFFER) for info in infos], np.int64)[numbers]))
        self._take(vectors, 4 + counts * sizes)
        starts = vectors + 4
        odd = starts % sizes > 0  # only of 8 bytes: vectors are aligned to 4
        kinds = self._kinds(0)
        if np.any(odd):
            kinds += self._kinds(4)
            numbers = numbers + odd * len(infos)
        begin = address_of(columns.bytes)
        made = []
        rows = zip(numbers.tolist(), (starts // sizes).tolist(), (starts + begin).tolist(), strict=True)
        for number, first, address in rows:
            info, array, count, shape = kinds[number]
            data = array[first : first + count]
            if shape is not None:
                data = data.reshape(shape)
            origin = None if mapped is None else Origin(mapped, address - begin)
            made.append(Tensor.view_of(info, data, origin, address))
        return made

    def _kinds(self, offset: int) -> list[tuple[TensorInfo, npt.NDArray[Any], int, tuple[int, ...] | None]]:
        """By number of TensorInfo: the file from an offset on as an array of its type, elements, shape if not flat."""
        size = self.columns.size - offset
        whole = {
            dtype: np.frombuffer(self.buffer, dtype, size // dtype.itemsize, offset) for dtype in {*DTYPES.values()}
        }
        return [
            (info, whole[info.dtype], info.elements, None if len(info.shape) == 1 else info.shape)
            for info in self.infos
        ]

    def _take(self, vectors: _Ints, lengths: _Ints) -> None:
        """Count what vectors hold, each once however many tensors have it, against the decoder's allowance."""
        total = int(lengths.sum())
        if total > self.columns.size:
            _, first = np.unique(vectors, return_index=True)
            total = int(lengths[first].sum())
        self.decoder.take_blocks(total)

    def _numbers_of(self, places: _Ints) -> _Ints:
        """The numbers of the TensorInfos at places that were read."""
        found: _Ints = self._info_numbers[np.searchsorted(self._info_places, places)]
        return found

    def _read_infos(self, places: _Ints) -> None:
        """TensorInfos, each number of times that it is referred to; those that say the same are one."""
        columns = self.columns
        self._info_places = positions = np.unique(places)
        by_name = self.facts.tables["TensorInfo"].by_name
        tables = columns.tables("TensorInfo", positions)
        rare = np.zeros(len(positions), bool)
        for name in ("quantizationScales", "dimensionSpecificity"):
            rare |= tables.at(by_name[name].slot) > 0
        place = tables.at(by_name["dimensions"].slot)
        present = place > 0
        shapes = np.zeros(len(positions), np.int64)
        shapes[present] = columns.follow(place[present])
        ranks = np.zeros(len(positions), np.int64)
        ranks[present] = columns.lengths(shapes[present], 4)
        rare |= ranks > _VECTOR_RANK
        decode: Callable[[str, int], Any] = self.decoder.table
        keys = self._info_keys(tables, shapes, ranks)
        said, width = keys.tobytes(), keys.strides[0]
        known: dict[bytes, int] = {}
        infos = self.infos
        numbers = []
        odd = rare.tolist()
        for number, position in enumerate(positions.tolist()):
            row = said[number * width : (number + 1) * width]
            found = None if odd[number] else known.get(row)
            if found is None:
                found = len(infos)
                infos.append(decode("TensorInfo", position))
                if not odd[number]:
                    known[row] = found
            numbers.append(found)
        self._info_numbers = np.array(numbers, np.int64)
        if np.any(rare):
            _, uses = np.unique(places, return_counts=True)
            for number in np.nonzero(rare)[0].tolist():
                self.sharing.count(int(uses[number]) * info_size(infos[numbers[number]]))

    def _info_keys(self, tables: _Tables, shapes: _Ints, ranks: _Ints) -> npt.NDArray[np.uint32]:
        """What TensorInfos without per-axis scales say, a row each."""
        columns = self.columns
        by_name = self.facts.tables["TensorInfo"].by_name
        plain = (
            "dataType",
            "quantizationOffset",
            "quantizationScale",
            "quantizationDim",
            "dimensionality",
            "isConstant",
        )
        key = np.zeros((len(ranks), 2 * len(plain) + 1 + _VECTOR_RANK), np.uint32)
        for number, name in enumerate(plain):
            place = tables.at(by_name[name].slot)
            kind = by_name[name].type
            code = self.facts.enums[kind].format if kind in self.facts.enums else {"bool": "B"}.get(kind, "I")
            key[:, 2 * number] = columns.small(place, code.upper(), 0)
            key[:, 2 * number + 1] = place > 0
        key[:, 2 * len(plain)] = ranks
        for axis in range(min(_VECTOR_RANK, int(ranks.max(initial=0)))):
            deep = ranks > axis
            key[deep, 2 * len(plain) + 1 + axis] = columns.words[(shapes[deep] + 4 + 4 * axis) >> 2]
        return key

    # The network

    def _fill(
        self,
        graph: Network,
        kinds: list[LayerType],
        keys: list[int],
        names: list[str],
        bindings: list[int],
        params: list[Any],
        constants: list[FrozenDict],
        infos: list[int],
        bounds: list[int],
    ) -> None:
        singles = [(info,) for info in self.infos]
        nodes, successors, predecessors = inside(graph)
        rows = zip(kinds, keys, names, bindings, params, constants, bounds, bounds[1:], strict=False)
        for kind, key, name, binding, param, held, start, end in rows:
            if end - start == 1:
                outputs: tuple[TensorInfo, ...] = singles[infos[start]]
            else:
                outputs = tuple([self.infos[number] for number in infos[start:end]])
            attributes: dict[str, Any] = {"type": kind.name, "name": name}
            if kind.bindable:
                attributes["binding_id"] = binding
            attributes["params"] = param
            attributes["constants"] = held
            attributes["outputs"] = outputs
            nodes[key] = attributes
            successors[key] = {}
            predecessors[key] = {}

    def _connect(
        self, graph: Network, keys: _Ints, inputs: _Rows, sources: _Ints, slots: _Ints, outputs: _Ints
    ) -> None:
        """The edges."""
        order = np.argsort(keys)
        found = np.searchsorted(keys, sources, sorter=order)
        _require(not len(found) or int(found.max()) < len(keys))
        producers = order[found]
        _require(np.array_equal(keys[producers], sources))
        consumers = np.repeat(np.arange(len(keys)), inputs.counts)
        self.sources_first = bool(np.all(producers < consumers))
        _require(np.all(slots < outputs[producers]))
        ends = np.cumsum(inputs.counts)
        numbers = np.arange(len(sources)) - np.repeat(ends - inputs.counts, inputs.counts)
        _, successors, predecessors = inside(graph)  # NetworkX's add_edge takes ten times as long
        pairs: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
        rows = zip(sources.tolist(), keys[consumers].tolist(), slots.tolist(), numbers.tolist(), strict=True)
        for source, target, slot, number in rows:
            pair = pairs.get((slot, number))
            if pair is None:
                pair = pairs[slot, number] = ((slot, number),)
            targets = successors[source]
            if target in targets:
                targets[target]["slots"] += pair
            else:
                targets[target] = predecessors[target][source] = {"slots": pair}
