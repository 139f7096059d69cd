"""From the network to the bytes of a ``.armnn`` file.

Layers are written in canonical order with index == position, so equal networks give equal bytes.
Constant data lies behind all tables, each run of shared bytes once.
"""

from __future__ import annotations

import marshal
import struct
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.armnn.decode import MAX_BUFFER
from fusion_engine.armnn.encode import ALIGNMENT, Assembly, Encoder, Hole, Piece, Tagged, string
from fusion_engine.armnn.files import MappedFile, Range, StrPath, path_text, write_atomically
from fusion_engine.canonical import canonical_order
from fusion_engine.collector import paused
from fusion_engine.errors import ModelError, ReaderLimitWarning
from fusion_engine.network import EMPTY, Network, Source, complete_params, edges_into, inside
from fusion_engine.schema import LayerType, Schema, schema
from fusion_engine.tensor import PAYLOADS, Tensor, TensorInfo
from fusion_engine.validation import require_valid

__all__ = ["dumps", "save"]


def save(graph: Network, path: StrPath, *, release: str | None = None) -> None:
    """Write a network to a ``.armnn`` file.

    The file is replaced in one step: a reader sees the old one or the whole new one, also where
    ``graph`` was loaded from it. Layers are numbered anew, in canonical order.

    Parameters
    ----------
    graph
        The network; it stays as it is.
    path
        The file.
    release
        The release of Arm NN that is to read it: what `convert` makes of the network is written. By
        default the network is written as it is.

    Raises
    ------
    ConversionError
        Where the release cannot hold the network, or there is none such; nothing is written then.
    ModelError
        Where the network is not one that a real reader takes (see `validate`), or where its file
        would have 2 GiB or more; nothing is written then.
    OutputError
        Where the file cannot be written.

    Warns
    -----
    ReaderLimitWarning
        Where the file has more tables than real Arm NN reads; it is written all the same.
    """
    name = path_text(path)
    try:
        built = _build(_aimed(graph, release))
    except ModelError as error:
        raise error.within(name) from None
    write_atomically(name, built.parts())


def dumps(graph: Network, *, release: str | None = None) -> bytes:
    """The bytes of the ``.armnn`` file that `save` would write; raises as `save` does."""
    return b"".join(_bytes_of(part) for part in _build(_aimed(graph, release)).parts())


def _aimed(graph: Network, release: str | None) -> Network:
    """The network as a release takes it."""
    if release is None:
        return graph
    from fusion_engine.releases.converting import convert

    return convert(graph, release)


def _bytes_of(part: bytes | memoryview | Range) -> bytes | memoryview:
    if isinstance(part, Range):
        part.source.check()
        return memoryview(part.source.mapping)[part.offset : part.offset + part.length]
    return part


@dataclass(frozen=True)
class _Block:
    """A vector of constant data: its tensor, element count, and the position of its length."""

    tensor: Tensor
    count: int
    position: int


class _Blocks:
    """The vectors of constant data behind the built part, each run of shared bytes once."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.end = 0
        self._placed: dict[tuple[Any, ...], int] = {}

    def place(self, tensor: Tensor) -> int:
        """Where the elements of a tensor lie, counted from the end of the built part."""
        data = tensor.data
        key = (tensor.memory, data.itemsize)
        position = self._placed.get(key)
        if position is None:
            position = self._placed[key] = self.end + (-self.end - 4) % ALIGNMENT
            self.blocks.append(_Block(tensor, data.size, position))
            self.end = position + 4 + data.nbytes
        return position


@dataclass(frozen=True)
class _Built:
    """A file before it is written: its tables, and the vectors behind them."""

    head: bytearray
    blocks: list[_Block]

    def parts(self) -> Iterator[bytes | memoryview | Range]:
        """The file's bytes in order; small vectors are joined, so that there are few parts."""
        small: list[Any] = [self.head]
        size, end = len(self.head), 0
        for block in self.blocks:
            data = block.tensor.data
            length = data.nbytes
            small.append(_GAPS[block.position - end])
            small.append(_COUNT(block.count))
            end = block.position + 4 + length
            if length < _SMALL and block.tensor.origin is None and data.flags.c_contiguous:
                small.append(data)
                size += length
            elif length:
                yield b"".join(small)
                yield self._elements(block.tensor)
                small, size = [], 0
            if size >= _JOINED:
                yield b"".join(small)
                small, size = [], 0
        if small:
            yield b"".join(small)

    def _elements(self, tensor: Tensor) -> bytes | memoryview | Range:
        origin = tensor.origin
        if (
            origin is not None
            and isinstance(origin.source, MappedFile)
            and origin.source.holds(tensor.data, origin.offset)
        ):
            return Range(origin.source, origin.offset, tensor.data.nbytes)
        if tensor.data.flags.c_contiguous:
            return tensor.data.reshape(-1).view(np.uint8).data
        return tensor.tobytes()


_SMALL, _JOINED = 1 << 16, 1 << 20
"""Bytes below which a vector is joined with its neighbours, and bytes that are joined at least."""

_GAPS = tuple(bytes(size) for size in range(ALIGNMENT))
_COUNT = struct.Struct("<I").pack

_TOO_LARGE = (
    f"the file would have {{}}: a FlatBuffers file ends below 2 GiB ({MAX_BUFFER} bytes at the most); "
    "split the network or store its weights in a smaller type"
)


MOST_TABLES = 1_000_000
"""Tables that real Arm NN takes, each counted as often as it is reached: the default of ``flatbuffers::Verifier``."""


def _build(graph: Network) -> _Built:
    blocks = _Blocks()
    with paused():
        require_valid(graph)
        writer = _Writer(graph, schema(graph.graph.get("dialect", "current")), blocks)
        head = writer.head()
    if writer.tables > MOST_TABLES:
        warnings.warn(
            f"the file has {writer.tables:,} tables, and real Arm NN reads at most {MOST_TABLES:,} "
            "(its FlatBuffers Verifier refuses more): split the network",
            ReaderLimitWarning,
            stacklevel=3,
        )
    total = len(head) + blocks.end
    if total > MAX_BUFFER:
        raise ModelError(_TOO_LARGE.format(f"{total} bytes"))
    return _Built(head, blocks.blocks)


def count_tables(graph: Network) -> int:
    """How many tables the Verifier counts in the file of a network that can be written."""
    with paused():
        writer = _Writer(graph, schema(graph.graph.get("dialect", "current")), _Blocks())
        writer.head()
    return writer.tables


def tables_at_most(graph: Network) -> int:
    """No fewer than `count_tables` says, in a fraction of the time."""
    slots = sum(len(data["slots"]) for _, _, data in graph.edges(data=True))
    return _ROOT_TABLES + _SLOT_TABLES * slots + sum(_layer_tables_at_most(node) for _, node in graph.nodes(data=True))


_ROOT_TABLES, _LAYER_TABLES, _SLOT_TABLES, _TENSOR_TABLES = 2, 16, 2, 3
"""Tables at most, but for those in lists: of the root; of a layer without slots and tensors, whatever its type; of an
input slot with its TensorInfo; of a member tensor with TensorInfo and payload."""


def _layer_tables_at_most(node: Mapping[str, Any]) -> int:
    """Of a layer, but for its input slots."""
    found = _LAYER_TABLES + 2 * len(node.get("outputs") or ()) + _TENSOR_TABLES * len(node.get("constants") or ())
    pending = [node.get("params") or EMPTY]
    while pending:
        for value in pending.pop().values():
            if isinstance(value, Mapping):
                pending.append(value)
            elif isinstance(value, (tuple, list)):
                found += len(value)
    return found


@dataclass
class _Template:
    """Layers that differ in numbers, names, TensorInfos and data only: their piece, and what each has in its holes."""

    piece: Piece
    starts: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    sources: list[tuple[int, int]] = field(default_factory=list)
    infos: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)

    def fill(self, assembly: Assembly, infos: npt.NDArray[np.int64]) -> None:
        """Fill the holes of all its layers; ``infos`` are the positions of TensorInfos by number."""
        starts = np.array(self.starts, np.int64)
        layers = len(starts)
        sources = np.array(self.sources, np.int64).reshape(layers, -1, 2)
        numbers = np.array(self.infos, np.int64).reshape(layers, -1)
        blocks = np.array(self.blocks, np.int64).reshape(layers, -1)
        holes = self.piece.holes
        assembly.number(starts + holes["index"], self.indices)
        assembly.link(starts + holes["name"], self.names)
        for name, place in holes.items():
            if not isinstance(name, tuple):
                continue
            kind, number = name
            if kind == "connection":
                assembly.number(starts + place, sources[:, number, 0])
                assembly.number(starts + place + 4, sources[:, number, 1])
            elif kind == "info":
                assembly.link(starts + place, infos[numbers[:, number]])
            else:
                assembly.link_outside(starts + place, blocks[:, number])


class _Writer:
    """A network as an assembly of pieces.

    Layers that are alike share a template, equal TensorInfos are one table in the file.
    """

    def __init__(self, graph: Network, facts: Schema, blocks: _Blocks) -> None:
        self.graph = graph
        self.facts = facts
        self.blocks = blocks
        self.order = canonical_order(graph)
        self.index = {key: position for position, key in enumerate(self.order)}
        self.encoder = Encoder(facts)
        self.assembly = Assembly(self.encoder)
        self.templates: dict[Any, _Template] = {}
        self.infos: dict[Any, tuple[int, TensorInfo]] = {}
        self.numbers: dict[int, int] = {}
        """Of the infos by id: the network keeps them alive."""
        self.params: dict[int, tuple[Any, Any]] = {}
        self.nodes = inside(graph).nodes
        self.root_tables = 0

    def head(self) -> bytearray:
        """Everything but constant data."""
        assembly = self.assembly
        root = self.encoder.piece(self.facts.root, self._root())
        assembly.put(root)
        self.root_tables = len(root.tables)
        vector = assembly.put_bytes(struct.pack("<I", len(self.order)) + bytes(4 * len(self.order)))
        assembly.link(root.holes["layers"], vector)
        starts = [self._layer(position, key) for position, key in enumerate(self.order)]
        assembly.link(vector + 4 + 4 * np.arange(len(starts)), starts)
        pieces = (self.encoder.piece("TensorInfo", self._info(info)) for _, info in self.infos.values())
        infos = np.array([assembly.put(piece) for piece in pieces], np.int64)
        for template in self.templates.values():
            template.fill(assembly, infos)
        return assembly.finish()

    @property
    def tables(self) -> int:
        """How many tables the Verifier counts in what `head` made."""
        return self.root_tables + sum(
            len(template.starts) * len(template.piece.tables) + len(template.infos)
            for template in self.templates.values()
        )

    def _root(self) -> dict[str, Any]:
        versions = self.graph.graph.get("feature_versions", (1, 1, 1))
        found: dict[str, Any] = {
            "layers": Hole("layers"),
            "inputIds": self._ids("inputs", versions[0]),
            "outputIds": self._ids("outputs", versions[0]),
        }
        if any(versions):
            names = ("bindingIdsScheme", "weightsLayoutScheme", "constantTensorsAsInputs")
            found["featureVersions"] = dict(zip(names, versions, strict=True))
        return found

    def _ids(self, listed: str, scheme: int) -> list[int]:
        keys = self.graph.graph.get(listed, ())
        return [self.graph.nodes[key].get("binding_id", 0) if scheme >= 1 else self.index[key] for key in keys]

    def _layer(self, position: int, key: int) -> int:
        """Place a layer; returns where."""
        node = self.nodes[key]
        inputs = edges_into(self.graph, key)
        tensors = node.get("constants") or EMPTY
        outputs = node.get("outputs", ())
        overrides = _overrides(node.get("overrides") or EMPTY, inputs)
        slots: Any = tuple([slot for slot, _ in inputs]) if node.get("unconnected") else len(inputs)
        sizes = tuple([(name, tensor.data.itemsize) for name, tensor in tensors.items()])
        alike = (
            node["type"],
            self._params(node.get("params")),
            slots,
            tuple([(slot, flag, info is not None) for slot, flag, info in overrides]),
            len(outputs),
            sizes,
            node.get("binding_id"),
        )
        template = self.templates.get(alike)
        if template is None:
            values = self._values(node, [slot for slot, _ in inputs], overrides, dict(sizes))
            template = self.templates[alike] = _Template(self.encoder.piece("AnyLayer", values))
        start = self.assembly.put(template.piece)
        template.starts.append(start)
        template.indices.append(position)
        template.names.append(self.assembly.put_bytes(string(node.get("name", ""))))
        index, number = self.index, self._number
        template.sources += [(index[layer], slot) for _, (layer, slot) in inputs]
        if overrides:
            template.infos += [number(info) for _, _, info in overrides if info is not None]
        template.infos += [number(info) for info in outputs]
        for path in self.facts.layers[node["type"]].tensors if tensors else ():
            tensor = tensors.get(path[-1])
            if tensor is not None:
                template.infos.append(number(tensor.info))
                template.blocks.append(self.blocks.place(tensor))
        return start

    def _params(self, params: Mapping[str, Any] | None) -> Any:
        """`_params_key`, worked out once for each mapping that layers share."""
        found = self.params.get(id(params))
        if found is None:
            found = self.params[id(params)] = params, _params_key(params)
        return found[1]

    def _number(self, info: TensorInfo) -> int:
        """The number of a TensorInfo; equal ones have one."""
        known = self.numbers.get(id(info))
        if known is not None:
            return known
        scale, scales = info.quantization_scale, info.quantization_scales
        key = info if scale and not scales else (info, str(scale), scales and str(scales))  # 0.0 equals -0.0
        found = self.infos.get(key)
        if found is None:
            found = self.infos[key] = (len(self.infos), info)
        self.numbers[id(info)] = found[0]
        return found[0]

    def _values(
        self,
        node: dict[str, Any],
        slots: list[int],
        overrides: list[tuple[int, bool, TensorInfo | None]],
        sizes: dict[str, int],
    ) -> dict[str, Any]:
        """A layer as the encoder takes it, with holes for what differs among layers that are alike."""
        kind = self.facts.layers[node["type"]]
        infos = (Hole(("info", number)) for number in count())
        base: dict[str, Any] = {
            "index": Hole("index"),
            "layerName": Hole("name"),
            "layerType": kind.value,
            "inputSlots": self._input_slots(slots, overrides, infos),
            "outputSlots": [
                {"index": number, "tensorInfo": next(infos)} for number in range(len(node.get("outputs", ())))
            ],
        }
        if kind.bindable:
            base = {"base": base, "layerBindingId": node.get("binding_id", 0)}
        table: dict[str, Any] = {"base": base}
        if kind.descriptor is not None and node.get("params") is not None:
            table["descriptor"] = complete_params(kind.descriptor, node["params"], self.facts)
        table.update(self._constants(kind, sizes, infos))
        return {"layer": Tagged(kind.table.name, table)}

    def _input_slots(
        self, slots: list[int], overrides: list[tuple[int, bool, TensorInfo | None]], infos: Iterator[Hole]
    ) -> list[dict[str, Any]]:
        overridden = {slot: (flag, info) for slot, flag, info in overrides}
        found = []
        for number, slot in enumerate(slots):
            values: dict[str, Any] = {"index": slot, "connection": Hole(("connection", number))}
            if slot in overridden:
                flag, info = overridden[slot]
                values["isOverridden"] = flag
                if info is not None:
                    values["overriddenTensorInfo"] = next(infos)
            found.append(values)
        return found

    def _constants(self, kind: LayerType, sizes: dict[str, int], infos: Iterator[Hole]) -> dict[str, Any]:
        """The member tensors, in schema order."""
        found: dict[str, Any] = {}
        blocks = count()
        for path in kind.tensors:
            holder = found
            for part in path[:-1]:
                holder = holder.setdefault(part, {})
            if path[-1] in sizes:
                data = {"data": Hole(("block", next(blocks)))}
                holder[path[-1]] = {"info": next(infos), "data": Tagged(PAYLOADS[sizes[path[-1]]], data)}
        return found

    def _info(self, info: TensorInfo) -> dict[str, Any]:
        found: dict[str, Any] = {
            "dimensions": info.shape,
            "dataType": info.data_type,
            "quantizationScale": info.quantization_scale,
            "quantizationOffset": info.quantization_offset,
        }
        rest = (
            ("quantizationScales", info.quantization_scales, ()),
            ("quantizationDim", info.quantization_dim, 0),
            ("dimensionality", info.dimensionality, 1),
            ("dimensionSpecificity", info.dimension_specificity, ()),
            ("isConstant", info.is_constant, False),
        )
        found.update((name, value) for name, value, default in rest if value != default)
        return found


def _overrides(
    overrides: Mapping[Any, Any], inputs: list[tuple[int, Source]]
) -> list[tuple[int, bool, TensorInfo | None]]:
    """Slot, flag and TensorInfo of each input that is overridden."""
    return [(slot, *overrides[slot]) for slot, _ in inputs if slot in overrides] if overrides else []


def _params_key(params: Mapping[str, Any] | None) -> Any:
    """Equal for descriptors that are written alike; of one that does not allow it, nothing equals it.

    Bytes, since 0.0 equals -0.0.
    """
    if not params:
        return params is None
    try:
        return marshal.dumps(dict(params), 2)
    except ValueError:
        return object()
