"""A network decoded column by column: what `reader` does table by table, with one NumPy operation for all layers.

Why: a table takes the plain decoder some 4 µs, and a layer has ten of them. In a network of thousands of
layers these tables have few vtables among them, so positions, offsets and numbers can be gathered as
arrays, checked as arrays, and turned into attributes by one loop.

What is unusual (a fault, an older dialect, a field that no schema knows, weights of tables within
tables) is left to the plain reader: `Unusual` is raised, and the whole file is read there. So this
module need not explain a fault, only never overlook one; tests check that both give the same network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.armnn.columns import Columns, Ints, Rows, Tables, Unusual, distinct, require
from fusion_engine.armnn.decode import MAX_BUFFER, Buffer, Decoder, Union
from fusion_engine.armnn.dialects import BINDABLE_VTABLE, odd_tags
from fusion_engine.armnn.files import MappedFile
from fusion_engine.armnn.infos import Infos
from fusion_engine.armnn.sharing import Sharing
from fusion_engine.network import EMPTY, FrozenDict, Network, inside
from fusion_engine.schema import LayerType, schema
from fusion_engine.tensor import DTYPES, PAYLOADS, Origin, Tensor, TensorInfo, address_of

__all__ = ["FEWEST_LAYERS", "LayerColumns", "Unusual"]

FEWEST_LAYERS = 48
"""Networks with fewer layers are read faster by the plain reader."""


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
        self.infos: Infos
        self.sources_first = True
        place = self.decoder.peek(self.decoder.root(), self.facts.tables[self.facts.root].by_name["layers"].slot)
        require(place)
        self._vector = self.decoder.peek_offset(
            self.decoder.root(), self.facts.tables[self.facts.root].by_name["layers"].slot
        )
        self.worthwhile = self.decoder.length(self._vector, 4) >= FEWEST_LAYERS
        if not self.worthwhile:
            return
        self.columns = columns = Columns(buffer, self.facts)
        layers = columns.tables("AnyLayer", columns.rows(np.array([place])).values)
        slot = self.facts.tables["AnyLayer"].by_name["layer"].slot
        self.tags = columns.small(layers.at(slot - 1), "B", 0)
        require(np.all((self.tags > 0) & (layers.at(slot) > 0)))
        self.positions = columns.follow(layers.at(slot))
        self.decoder.take_as_decoded("AnyLayer", self._vector, ())

    def telling(self) -> tuple[list[Union], list[Union]]:
        """The layers by which the dialect can be told: what `dialects.detect` is given."""
        bases = self.columns.first(self.positions)
        small = self.columns.vtable_sizes(np.where(bases > 0, bases, self.positions)) <= BINDABLE_VTABLE
        odd = odd_tags()
        told = np.array([tag in odd for tag in range(256)])[self.tags]
        return self._unions(np.nonzero(small)[0]), self._unions(np.nonzero(small | told)[0])

    def _unions(self, layers: Ints) -> list[Union]:
        return list(map(Union, self.tags[layers].tolist(), self.positions[layers].tolist()))

    def read_into(self, graph: Network, mapped: MappedFile | None) -> None:
        """Put the layers and their connections into an empty network."""
        self.mapped = mapped
        columns, facts, tags, positions = self.columns, self.facts, self.tags, self.positions
        count = len(tags)
        bases = np.zeros(count, np.int64)
        bindings = np.zeros(count, np.int64)
        params: list[Any] = [EMPTY] * count
        pending: list[tuple[Ints, str, Ints]] = []
        for tag in distinct(tags).tolist():
            kind = facts.by_tag.get(tag)
            require(kind is not None)
            assert kind is not None
            where = np.nonzero(tags == tag)[0]
            tables = columns.tables(kind.table.name, positions[where])
            handled = {"base", "descriptor", *(path[0] for path in kind.tensors)}
            require(all(f.name in handled or f.slot not in tables.places for f in kind.table.fields))
            place = tables.at(kind.table.by_name["base"].slot)
            require(np.all(place > 0))
            base = columns.follow(place)
            if kind.bindable:
                bindable = columns.tables("BindableLayerBase", base)
                fields = facts.tables["BindableLayerBase"].by_name
                bindings[where] = columns.small(bindable.at(fields["layerBindingId"].slot), "i", 0)
                require(np.all(bindable.at(fields["base"].slot) > 0))
                base = columns.follow(bindable.at(fields["base"].slot))
            bases[where] = base
            if kind.descriptor is not None:
                self._descriptors(kind, tables, where.tolist(), params)
            for path in kind.tensors:
                at = tables.at(kind.table.by_name[path[0]].slot)
                require(len(path) == 1 or not np.any(at))
                pending.append((where[at > 0], path[0], columns.follow(at[at > 0])))
        kinds = [facts.by_tag[tag] for tag in tags.tolist()]
        self._finish(graph, kinds, bases, bindings.tolist(), params, pending)

    def _descriptors(self, kind: LayerType, tables: Tables, where: list[int], params: list[Any]) -> None:
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
        bases: Ints,
        bindings: list[int],
        params: list[Any],
        pending: list[tuple[Ints, str, Ints]],
    ) -> None:
        columns, fields = self.columns, self.facts.tables["LayerBase"].by_name
        base = columns.tables("LayerBase", bases)
        keys = columns.small(base.at(fields["index"].slot), "I", 0)
        require(len(distinct(keys)) == len(keys))
        named = base.at(fields["layerName"].slot)
        require(np.all(named > 0))
        names = self._strings(named)
        inputs = columns.rows(base.at(fields["inputSlots"].slot))
        outputs = columns.rows(base.at(fields["outputSlots"].slot))
        require(4 * (len(inputs.values) + len(outputs.values)) <= columns.size)
        slots = self.facts.tables["InputSlot"].by_name
        ins = columns.tables("InputSlot", inputs.values)
        flags = columns.small(ins.at(slots["isOverridden"].slot), "B", 0)
        place = ins.at(slots["overriddenTensorInfo"].slot)
        overridden = np.nonzero((flags > 0) | (place > 0))[0]
        overriding = np.zeros(len(place), np.int64)
        overriding[place > 0] = columns.follow(place[place > 0])
        connection = ins.at(slots["connection"].slot)
        require(np.all(connection > 0))
        self._numbered(inputs, columns.small(ins.at(slots["index"].slot), "I", 0))
        sources, source_slots = columns.u32(connection), columns.u32(connection + 4)
        slots = self.facts.tables["OutputSlot"].by_name
        outs = columns.tables("OutputSlot", outputs.values)
        self._numbered(outputs, columns.small(outs.at(slots["index"].slot), "I", 0))
        place = outs.at(slots["tensorInfo"].slot)
        require(np.all(place > 0))
        places = columns.follow(place)
        constants = self._constants(len(kinds), np.concatenate([places, overriding[overriding > 0]]), pending)
        infos = self.infos.numbers(places).tolist()
        self._fill(graph, kinds, keys.tolist(), names, bindings, params, constants, infos, outputs.bounds)
        if len(overridden):
            self._override(graph, keys, inputs, overridden, flags, overriding)
        self._connect(graph, keys, inputs, sources, source_slots, outputs.counts)

    def _override(
        self, graph: Network, keys: Ints, inputs: Rows, overridden: Ints, flags: Ints, overriding: Ints
    ) -> None:
        """Overridden TensorInfos of input slots."""
        ends = np.cumsum(inputs.counts)
        layers = np.searchsorted(ends, overridden, side="right")
        numbers = overridden - (ends - inputs.counts)[layers]
        found: dict[int, dict[Any, Any]] = {}
        there = overriding[overridden]
        infos = np.zeros(len(there), np.int64)
        infos[there > 0] = self.infos.numbers(there[there > 0])
        rows = zip(
            keys[layers].tolist(),
            numbers.tolist(),
            flags[overridden].tolist(),
            there.tolist(),
            infos.tolist(),
            strict=True,
        )
        for key, number, flag, position, info in rows:
            found.setdefault(key, {})[number] = (bool(flag), self.infos.distinct[info] if position else None)
        for key, slots in found.items():
            graph.nodes[key]["overrides"] = FrozenDict(slots)

    @staticmethod
    def _numbered(rows: Rows, indices: Ints) -> None:
        """Slots must stand in the order of their numbers."""
        ends = np.cumsum(rows.counts)
        require(np.array_equal(indices, np.arange(len(indices)) - np.repeat(ends - rows.counts, rows.counts)))

    def _strings(self, places: Ints) -> list[str]:
        columns, buffer = self.columns, self.buffer
        positions = columns.follow(places)
        lengths = columns.lengths(positions, 1)
        ends = positions + 4 + lengths
        require(np.all(ends < columns.size))
        require(not np.any(columns.bytes[ends]))
        require(int(lengths.sum()) <= columns.size)
        return [
            buffer[start:end].decode("utf-8", "surrogateescape")
            for start, end in zip((positions + 4).tolist(), ends.tolist(), strict=True)
        ]

    # TensorInfos and tensors

    def _constants(self, layers: int, places: Ints, pending: list[tuple[Ints, str, Ints]]) -> list[FrozenDict]:
        """The constants of every layer; TensorInfos, those of outputs at ``places`` too, are read on the way."""
        columns, fields = self.columns, self.facts.tables["ConstTensor"].by_name
        tables = columns.tables("ConstTensor", np.concatenate([places[:0], *(found for _, _, found in pending)]))
        place = tables.at(fields["info"].slot)
        require(np.all(place > 0))
        held = columns.follow(place)
        self.infos = Infos(columns, self.decoder, self.sharing, np.concatenate([places, held]))
        place = tables.at(fields["data"].slot)
        require(np.all(place > 0))
        tags = columns.small(tables.at(fields["data"].slot - 1), "B", 0)
        tensors = self._tensors(self.infos.numbers(held), tags, columns.follow(place))
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

    def _tensors(self, numbers: Ints, tags: Ints, positions: Ints) -> list[Tensor]:
        """Tensors, by the numbers of their TensorInfos, the payloads' union tags and positions."""
        columns, infos, mapped = self.columns, self.infos.distinct, self.mapped
        sizes = np.array([info.dtype.itemsize for info in infos], np.int64)[numbers]
        vectors = np.zeros(len(numbers), np.int64)
        for size, name in PAYLOADS.items():
            where = np.nonzero(sizes == size)[0]
            if not len(where):
                continue
            require(np.all(tags[where] == self.facts.unions["ConstTensorData"][name]))
            tables = columns.tables(name, positions[where])
            place = tables.at(self.facts.tables[name].by_name["data"].slot)
            require(np.all(place > 0))
            vectors[where] = columns.follow(place)
            columns.lengths(vectors[where], size)
        counts = columns.u32(vectors)
        require(np.all(counts == np.array([min(info.elements, MAX_BUFFER) for info in infos], np.int64)[numbers]))
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
            for info in self.infos.distinct
        ]

    def _take(self, vectors: Ints, lengths: Ints) -> None:
        """Count what vectors hold, each once however many tensors have it, against the decoder's allowance."""
        total = int(lengths.sum())
        if total > self.columns.size:
            order = np.argsort(vectors, kind="stable")
            total = int(lengths[order[np.diff(vectors[order], prepend=-1) > 0]].sum())
        self.decoder.take_blocks(total)

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
        singles = [(info,) for info in self.infos.distinct]
        nodes, successors, predecessors = inside(graph)
        rows = zip(kinds, keys, names, bindings, params, constants, bounds, bounds[1:], strict=False)
        for kind, key, name, binding, param, held, start, end in rows:
            if end - start == 1:
                outputs: tuple[TensorInfo, ...] = singles[infos[start]]
            else:
                outputs = tuple([self.infos.distinct[number] for number in infos[start:end]])
            attributes: dict[str, Any] = {"type": kind.name, "name": name}
            if kind.bindable:
                attributes["binding_id"] = binding
            attributes["params"] = param
            attributes["constants"] = held
            attributes["outputs"] = outputs
            nodes[key] = attributes
            successors[key] = {}
            predecessors[key] = {}

    def _connect(self, graph: Network, keys: Ints, inputs: Rows, sources: Ints, slots: Ints, outputs: Ints) -> None:
        """The edges."""
        order = np.argsort(keys)
        found = np.searchsorted(keys, sources, sorter=order)
        require(not len(found) or int(found.max()) < len(keys))
        producers = order[found]
        require(np.array_equal(keys[producers], sources))
        consumers = np.repeat(np.arange(len(keys)), inputs.counts)
        self.sources_first = bool(np.all(producers < consumers))
        require(np.all(slots < outputs[producers]))
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
