"""From the bytes of a ``.armnn`` file to the network.

The decoder gives tables; here they become nodes and edges by the contract of
``fusion_engine.network``. Wiring goes by the layers' own indices, never by their position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any

import numpy as np

from fusion_engine.armnn.bulk import LayerColumns, Unusual
from fusion_engine.armnn.decode import Buffer, Decoder, Union
from fusion_engine.armnn.dialects import detect
from fusion_engine.armnn.files import MappedFile, StrPath, open_model
from fusion_engine.armnn.sharing import Sharing
from fusion_engine.collector import paused
from fusion_engine.errors import ModelError, UnsupportedLayerError
from fusion_engine.naming import LONGEST, layer_place
from fusion_engine.network import EMPTY, FrozenDict, Network, Storage, default_params, inside, new_network
from fusion_engine.schema import LayerType, Schema, schema
from fusion_engine.tensor import DTYPES, PAYLOADS, Origin, Tensor, TensorInfo

__all__ = ["load", "loads"]

SCALAR = 2
"""Dimensionality.Scalar of a TensorInfo."""


def load(path: StrPath, *, lenient: bool = False) -> Network:
    """The network in a ``.armnn`` file.

    Parameters
    ----------
    path
        The file; it is never changed. Up to 64 MiB are read, a larger one is mapped: do not change
        it while the network is in use.
    lenient
        Read a file of a newer Arm NN without the table fields that no release up to 24.08 has;
        ``graph.graph["warnings"]`` says what was dropped.

    Returns
    -------
    networkx.DiGraph
        Weights are read-only NumPy views of the file.

    Raises
    ------
    ModelError
        Where the file cannot be read or is no ``.armnn`` file that a reader could take: the message
        has the file, the place in it and the reason.
    UnsupportedLayerError
        Where a layer is of a type that no release up to 24.08 has.
    """
    buffer, mapped = open_model(path)
    try:
        return _read(buffer, mapped, lenient)
    except ModelError as error:
        raise error.within(path) from None


def loads(data: bytes | bytearray | memoryview, *, lenient: bool = False) -> Network:
    """The network in the bytes of a ``.armnn`` file; see `load`. Mutable bytes are copied first."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ModelError(f"the bytes of a file are bytes, not {type(data).__name__}: load() takes a path")
    return _read(bytes(data), None, lenient)


_FOREIGN = {
    (4, b"TFL3"): "a TensorFlow Lite model",
    (0, b"PK\x03\x04"): "a zip archive",
    (0, b"\x1f\x8b"): "a gzip archive",
    (0, b"\x89HDF\r\n\x1a\n"): "an HDF5 file",
    (0, b"version https://git-lfs"): "a pointer of Git LFS, not the file itself",
    **{(0, bytes([0x08, version, 0x12])): "an ONNX model" for version in range(3, 20)},
}
"""What other files begin with: offset and bytes."""


def _root(decoder: Decoder) -> dict[str, Any]:
    """The root table; says what the file seems to be where it has none."""
    try:
        found: dict[str, Any] = decoder.table(schema().root, decoder.root())
    except ModelError as error:
        for (offset, magic), kind in _FOREIGN.items():
            if bytes(decoder.buffer[offset : offset + len(magic)]) == magic:
                raise ModelError(
                    f"this is no .armnn file: it looks like {kind} ({error.reason}); Arm NN's own converter or "
                    "serializer writes .armnn files"
                ) from None
        if not decoder.size:
            raise ModelError("the file is empty") from None
        raise
    return found


def _read(buffer: Buffer, mapped: MappedFile | None, lenient: bool) -> Network:
    with paused():
        found = _read_in_columns(buffer, mapped)
        return _read_plainly(buffer, mapped, lenient) if found is None else found


def _read_in_columns(buffer: Buffer, mapped: MappedFile | None) -> Network | None:
    """The network of a large file without anything unusual in it; None of others."""
    try:
        layers = LayerColumns(buffer)
        if not layers.worthwhile:
            return None
        decoder = layers.decoder
        root = decoder.table(schema().root, decoder.root())
        if detect(decoder, *layers.telling()) != "current":
            return None
        decoder.finishers.update(_finishers(decoder, mapped))
        reader = _Reader(decoder, schema())
        layers.read_into(reader.graph, mapped)
        reader.bind(root)
        if not layers.sources_first:
            reader.require_acyclic()
        reader.note_storage()
    except (Unusual, ModelError):
        return None
    return reader.graph


def _read_plainly(buffer: Buffer, mapped: MappedFile | None, lenient: bool) -> Network:
    outer = Decoder(buffer, schema(), lenient=lenient)
    root = _root(outer)
    layers = _unions(outer, root.get("layers", ()))
    facts = schema(detect(outer, layers, layers))
    if "featureVersions" in root and "featureVersions" not in facts.tables[facts.root].by_name:
        raise outer.fault(f"featureVersions in a file whose layers are numbered as in the {facts.dialect} dialect")
    inner = Decoder(buffer, facts, lenient=lenient)
    inner.finishers.update(_finishers(inner, mapped))
    reader = _Reader(inner, facts)
    graph = reader.read(layers, root)
    warnings = (*outer.warnings, *inner.warnings)
    if warnings:
        graph.graph["warnings"] = warnings
    return graph


def _unions(decoder: Decoder, layers: Iterable[dict[str, Any]]) -> list[Union]:
    """Tag and table position of every layer, from the AnyLayer tables (the same in all dialects)."""
    found = []
    for number, layer in enumerate(layers):
        tag, position = layer.get("layer_type", 0), layer.get("layer")
        if not tag or position is None:
            decoder.place = f"the layer at position {number}"
            raise decoder.fault("the layer is empty: the writer of this file had no layer to store there")
        found.append(Union(tag, position))
    return found


def _finishers(decoder: Decoder, mapped: MappedFile | None) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """What tables are decoded to: TensorInfo, Tensor, descriptors, wrapped vectors."""
    facts = decoder.facts
    found: dict[str, Callable[[dict[str, Any]], Any]] = {
        "TensorInfo": partial(_tensor_info, decoder),
        "ConstTensor": partial(_tensor, decoder, mapped),
    }
    for name in _wrapped(facts):
        found[name] = _unwrap
    for name, defaults in _defaults(facts).items():
        found.setdefault(name, partial(_with_defaults, defaults))
    return found


@cache
def _wrapped(facts: Schema) -> tuple[str, ...]:
    """The tables that only hold a vector, other than payloads."""
    return tuple(name for name, table in facts.tables.items() if table.wrapped and name not in PAYLOADS.values())


@cache
def _defaults(facts: Schema) -> dict[str, dict[str, Any]]:
    """What the descriptors, and the tables inside them, say where their fields are absent."""
    pending = [layer.descriptor for layer in facts.layers.values() if layer.descriptor is not None]
    found = {}
    while pending:
        table = pending.pop()
        found[table.name] = default_params(table, facts)
        pending.extend(facts.tables[f.type] for f in table.fields if f.kind in ("table", "tables"))
    return found


def _unwrap(values: dict[str, Any]) -> Any:
    return values.get("data", ())


def _with_defaults(defaults: dict[str, Any], values: dict[str, Any]) -> FrozenDict:
    return FrozenDict({**defaults, **values})


def _tensor_info(decoder: Decoder, values: dict[str, Any]) -> TensorInfo:
    data_type = values.get("dataType", "Float16")
    if data_type not in DTYPES:
        raise decoder.fault(
            f"DataType {data_type} is not one that the {decoder.facts.dialect} dialect has: "
            "a newer Arm NN wrote the file, or it is damaged"
        )
    dimensionality = values.get("dimensionality", 1)
    return TensorInfo(
        () if dimensionality == SCALAR else values.get("dimensions", ()),
        data_type,
        values.get("quantizationScale", 1.0),
        values.get("quantizationOffset", 0),
        values.get("quantizationScales", ()),
        values.get("quantizationDim", 0),
        dimensionality,
        values.get("dimensionSpecificity", ()),
        values.get("isConstant", False),
    )


def _tensor(decoder: Decoder, mapped: MappedFile | None, values: dict[str, Any]) -> Tensor:
    info = values.get("info")
    if info is None:
        raise decoder.fault("a constant tensor without its TensorInfo")
    size = info.dtype.itemsize
    tag, position = values.get("data_type", 0), values.get("data")
    wanted = PAYLOADS[size]
    tags = decoder.facts.unions["ConstTensorData"]
    if tag and tag != tags[wanted]:
        name = next((member for member, value in tags.items() if value == tag), f"union tag {tag}")
        raise decoder.fault(f"a {info.data_type} tensor stored as {name}: its elements have {size} bytes ({wanted})")
    vector = 0 if position is None else decoder.peek_offset(position, 0)
    if not vector:
        if info.elements or position is None:
            raise decoder.fault(f"a constant tensor of {info.data_type} {list(info.shape)} without its data")
        try:
            return Tensor(info, np.empty(info.shape, info.dtype), untagged=not tag)
        except ValueError:
            raise _no_shape(decoder, info) from None
    count = decoder.block(vector, size)
    if count != prod(info.shape):
        raise decoder.fault(f"a constant tensor of shape {list(info.shape)} with {count} elements of {info.data_type}")
    try:
        data = np.frombuffer(decoder.buffer, info.dtype, count, vector + 4).reshape(info.shape)
    except ValueError:
        raise _no_shape(decoder, info) from None
    return Tensor(info, data, untagged=not tag, origin=None if mapped is None else Origin(mapped, vector + 4))


def _no_shape(decoder: Decoder, info: TensorInfo) -> ModelError:
    return decoder.fault(
        f"a constant tensor of {len(info.shape)} dimensions {str(list(info.shape))[:80]}: no array can have that shape"
    )


class _Reader:
    """Builds the network from decoded tables."""

    def __init__(self, decoder: Decoder, facts: Schema) -> None:
        self.decoder = decoder
        self.facts = facts
        self.graph: Network = new_network(facts.dialect)
        self.connections: list[tuple[int, int, int, int]] = []
        self.sharing = Sharing(decoder)
        self.unnamed: list[int] = []

    def read(self, layers: list[Union], root: dict[str, Any]) -> Network:
        for number, layer in enumerate(layers):
            self.decoder.place = f"the layer at position {number}"
            kind = self.facts.by_tag.get(layer.tag)
            if kind is None:
                raise UnsupportedLayerError(
                    f"union tag {layer.tag} is no layer of the {self.facts.dialect} dialect (releases up to 24.08): "
                    "a newer Arm NN wrote the file, or it is damaged",
                    place=f"{self.decoder.place}, index {self._index(layer)}",
                )
            self._layer(kind, self.decoder.table(kind.table.name, layer.position))
        self._connect()
        self.bind(root)
        self.require_acyclic()
        self.note_storage()
        return self.graph

    def _index(self, layer: Union) -> int:
        """The index of a layer whose table is not known: every layer begins with its base."""
        position = self.decoder.peek_offset(layer.position, 0)
        base = self.decoder.table("LayerBase", position) if position else {}
        return int(base.get("index", 0))

    def _layer(self, kind: LayerType, values: dict[str, Any]) -> None:
        base = values.get("base", {})
        binding_id = None
        if kind.bindable:
            binding_id = base.get("layerBindingId", 0)
            base = base.get("base", {})
        key = base.get("index", 0)
        name = base.get("layerName", "")
        self.decoder.place = f"layer {key} {name!r}" if len(name) <= LONGEST else layer_place(key, name)
        self.sharing.count(len(name))
        if "layerName" not in base:
            self.unnamed.append(key)
        if key in self.graph:
            raise self.decoder.fault(f"another layer has the index {key} too")
        attributes: dict[str, Any] = {"type": kind.name, "name": name}
        if binding_id is not None:
            attributes["binding_id"] = binding_id
        attributes["params"] = EMPTY if kind.descriptor is None else values.get("descriptor")
        attributes["constants"] = self._constants(kind, values)
        self._note_bfloat16(attributes["constants"])
        self.sharing.params(kind.descriptor, attributes["params"])
        self.sharing.infos(tensor.info for tensor in attributes["constants"].values())
        attributes["outputs"] = self._outputs(base.get("outputSlots", ()))
        self.sharing.infos(attributes["outputs"])
        attributes.update(self._inputs(key, base.get("inputSlots", ())))
        self.graph.add_node(key, **attributes)

    def _constants(self, kind: LayerType, values: dict[str, Any]) -> FrozenDict:
        found = {}
        for path in kind.tensors:
            holder: Any = values
            for part in path:
                holder = holder.get(part) if holder is not None else None
            if holder is not None:
                found[path[-1]] = holder
        return FrozenDict(found) if found else EMPTY

    def _note_bfloat16(self, constants: FrozenDict) -> None:
        for field, tensor in constants.items():
            if tensor.untagged and tensor.info.data_type == "Float16":
                self.decoder.warnings.append(
                    f"{self.decoder.place}: {field} is Float16 without a payload type, as Arm NN 20.08 "
                    "writes BFloat16: no fold touches it"
                )

    def _outputs(self, slots: Sequence[dict[str, Any]]) -> tuple[TensorInfo | None, ...]:
        self.sharing.slots(len(slots))
        found = sorted(((slot.get("index", 0), slot.get("tensorInfo")) for slot in slots), key=lambda pair: pair[0])
        if [index for index, _ in found] != list(range(len(found))):
            raise self.decoder.fault(f"its output slots are numbered {[index for index, _ in found]}, not 0, 1, ...")
        return tuple(info for _, info in found)

    def _inputs(self, key: int, slots: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Notes the connections; returns the attributes that only some layers have."""
        self.sharing.slots(len(slots))
        indices, overrides, unconnected = [], {}, []
        for slot in slots:
            index = slot.get("index", 0)
            indices.append(index)
            connection = slot.get("connection")
            if connection is None:
                unconnected.append(index)
            else:
                self.connections.append((connection[0], key, connection[1], index))
            if slot.get("isOverridden") or "overriddenTensorInfo" in slot:
                overrides[index] = (slot.get("isOverridden", False), slot.get("overriddenTensorInfo"))
        indices.sort()
        if indices != list(range(len(indices))):
            raise self.decoder.fault(f"its input slots are numbered {indices}, not 0, 1, ...")
        found: dict[str, Any] = {}
        if overrides:
            self.sharing.infos(info for _, info in overrides.values())
            found["overrides"] = FrozenDict(sorted(overrides.items()))
        if unconnected:
            found["unconnected"] = tuple(sorted(unconnected))
        return found

    def _connect(self) -> None:
        graph = self.graph
        pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for source, target, output_slot, input_slot in self.connections:
            found = graph.nodes.get(source)
            if found is None or output_slot >= len(found["outputs"]):
                self.decoder.place = layer_place(target, graph.nodes[target]["name"])
                what = "and no layer has that index" if found is None else f"which has {len(found['outputs'])} outputs"
                raise self.decoder.fault(
                    f"input slot {input_slot} is connected to output slot {output_slot} of layer {source}, {what}"
                )
            pairs.setdefault((source, target), []).append((output_slot, input_slot))
        graph.add_edges_from(
            (source, target, {"slots": tuple(sorted(slots, key=lambda pair: pair[1]))})
            for (source, target), slots in pairs.items()
        )

    def bind(self, root: dict[str, Any]) -> None:
        """What the root table says of the network as a whole."""
        graph = self.graph
        versions = root.get("featureVersions", {})
        names = ("bindingIdsScheme", "weightsLayoutScheme", "constantTensorsAsInputs")
        graph.graph["feature_versions"] = tuple(versions.get(name, 0) for name in names)
        by_binding = graph.graph["feature_versions"][0] >= 1
        bound: dict[str, dict[int, list[int]]] = {"Input": {}, "Output": {}}
        for key, node in inside(graph).nodes.items():
            if node["type"] in bound:
                bound[node["type"]].setdefault(node["binding_id"] if by_binding else key, []).append(key)
        for kind, listed in (("Input", "inputIds"), ("Output", "outputIds")):
            self.decoder.place = listed
            by_id = bound[kind]
            keys: list[int] = []
            seen: set[int] = set()
            for stored in root.get(listed, ()):
                number = stored if by_binding else stored & 0xFFFFFFFF
                found = by_id.get(number, [])
                if len(found) != 1:
                    what = f"no {kind}" if not found else f"{len(found)} {kind}s (layers {found})"
                    raise self.decoder.fault(f"{listed} names {number}, and {what} of this file has that id")
                if found[0] in seen:
                    raise self.decoder.fault(f"{listed} names {number} twice")
                seen.add(found[0])
                keys.append(found[0])
            graph.graph["inputs" if kind == "Input" else "outputs"] = tuple(keys)

    def note_storage(self) -> None:
        """Note what real readers abort on; the network's nodes are in the order of the file."""
        nodes, _, fed = inside(self.graph)
        keys = list(nodes)
        misplaced: list[int] = []
        if keys != list(range(len(keys))):
            without = [not node["outputs"] for node in nodes.values()]
            for key, node in nodes.items():
                if node["type"] != "Output":
                    for source in fed[key]:
                        if source >= len(keys) or without[source]:
                            misplaced.append(key)
                            break
        found = Storage(tuple(sorted(self.unnamed)), tuple(sorted(misplaced)), not keys or keys[0] == 0)
        if found != Storage():
            self.graph.graph["storage"] = found

    def require_acyclic(self) -> None:
        """Raise ModelError where layers feed each other in a cycle."""
        _, fed_by, fed = inside(self.graph)
        missing = {key: len(sources) for key, sources in fed.items()}
        ready = [key for key, count in missing.items() if not count]
        for key in ready:
            for target in fed_by[key]:
                missing[target] -= 1
                if not missing[target]:
                    ready.append(target)
        if len(ready) == len(missing):
            return
        try:
            TopologicalSorter({key: list(sources) for key, sources in fed.items()}).prepare()
        except CycleError as error:
            ring = error.args[1][:-1]  # sources before their consumers
            at = ring.index(min(ring))
            cycle = [str(key) for key in (*ring[at:], *ring[:at], ring[at])]
            shown = " -> ".join(cycle if len(cycle) <= 12 else [*cycle[:10], "...", cycle[-1]])
            raise ModelError(f"the layers {shown} feed each other in a cycle") from None
