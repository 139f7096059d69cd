"""From the network to the bytes of a ``.armnn`` file.

Layers are written in canonical order with index == position, so equal networks give equal bytes.
Constant data lies behind all tables, each run of shared bytes once.
"""

from __future__ import annotations

import marshal
import struct
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.armnn.decode import MAX_BUFFER
from fusion_engine.armnn.encode import ALIGNMENT, Assembly, Encoder, Hole, Piece, Ragged, Tagged, string
from fusion_engine.armnn.files import MappedFile, Range, StrPath, path_text, write_atomically
from fusion_engine.canonical import canonical_order
from fusion_engine.collector import paused
from fusion_engine.errors import ModelError, ReaderLimitWarning
from fusion_engine.network import EMPTY, Network, complete_params, inside
from fusion_engine.schema import LayerType, float32, schema
from fusion_engine.tensor import PAYLOADS, Tensor, TensorInfo
from fusion_engine.validation import Findings, require_valid

__all__ = ["dumps", "save"]

_Ints = npt.NDArray[np.int64]


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


class _Blocks:
    """The vectors of constant data behind the built part, each run of shared bytes once.

    Attributes
    ----------
    tensors
        A tensor for each vector, in order.
    sizes
        Bytes of its elements.
    positions
        Where each vector begins with its element count, from the end of the built part, int64; the elements
        follow, aligned to 8.
    places
        The same of the vector of each tensor that was given.
    end
        Where all ends.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors, which = _unshared(tensors)
        self.sizes = [tensor.data.nbytes for tensor in self.tensors]
        sizes = np.array(self.sizes, np.int64)
        room = sizes + 4 + (-sizes - 4) % ALIGNMENT
        self.positions = _FIRST + np.cumsum(room) - room
        self.places = self.positions[which]
        self.end = int(self.positions[-1]) + 4 + self.sizes[-1] if tensors else 0


def _unshared(tensors: list[Tensor]) -> tuple[list[Tensor], _Ints]:
    """The first tensor of each run of memory that some share, in order; and the number of it for every tensor."""
    if len({tensor.address for tensor in tensors}) == len(tensors):
        return tensors, np.arange(len(tensors))
    numbers: dict[tuple[Any, ...], int] = {}
    firsts: list[Tensor] = []
    which = []
    for tensor in tensors:
        number = numbers.setdefault((tensor.memory, tensor.data.itemsize), len(numbers))
        if number == len(firsts):
            firsts.append(tensor)
        which.append(number)
    return firsts, np.array(which, np.int64)


@dataclass(frozen=True)
class _Built:
    """A file before it is written: its tables, and the vectors behind them."""

    head: bytearray
    blocks: _Blocks

    def parts(self) -> Iterator[bytes | memoryview | Range]:
        """The file's bytes in order; small vectors are joined, so that there are few parts."""
        small: list[Any] = [self.head]
        size, gap = len(self.head), _GAPS[_FIRST]
        for tensor, length in zip(self.blocks.tensors, self.blocks.sizes, strict=True):
            data = tensor.data
            small += (gap, _COUNT(data.size))
            gap = _GAPS[(-length - 4) % ALIGNMENT]
            if length < _SMALL and tensor.origin is None and data.flags.c_contiguous:
                small.append(data)
                size += length
            elif length:
                yield b"".join(small)
                yield self._elements(tensor)
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
_FLOAT, _BITS = struct.Struct("<f").pack, struct.Struct("<I").unpack
_FIRST = -4 % ALIGNMENT
"""Where the first vector begins, so that its elements are aligned."""

_COUNT = struct.Struct("<I").pack

_TOO_LARGE = (
    f"the file would have {{}}: a FlatBuffers file ends below 2 GiB ({MAX_BUFFER} bytes at the most); "
    "split the network or store its weights in a smaller type"
)


MOST_TABLES = 1_000_000
"""Tables that real Arm NN takes, each counted as often as it is reached: the default of ``flatbuffers::Verifier``."""


def _build(graph: Network) -> _Built:
    with paused():
        built, tables = _assembled(graph)
    if tables > MOST_TABLES:
        warnings.warn(
            f"the file has {tables:,} tables, and real Arm NN reads at most {MOST_TABLES:,} "
            "(its FlatBuffers Verifier refuses more): split the network",
            ReaderLimitWarning,
            stacklevel=3,
        )
    total = len(built.head) + built.blocks.end
    if total > MAX_BUFFER:
        raise ModelError(_TOO_LARGE.format(f"{total} bytes"))
    return built


def _assembled(graph: Network) -> tuple[_Built, int]:
    """The file, and how many tables the Verifier counts in it; all that it was made from is gone."""
    writer = _Writer(graph, require_valid(graph))
    return _Built(writer.head(), writer.blocks), writer.tables


def count_tables(graph: Network) -> int:
    """How many tables the Verifier counts in the file of a network that can be written."""
    with paused():
        return _assembled(graph)[1]


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


@dataclass(frozen=True)
class _Kind:
    """Layers that the validator found alike: they are written alike but for number, name, sources and data.

    Attributes
    ----------
    template
        The number of their piece.
    infos
        Numbers of the TensorInfos that fill its holes.
    constants
        Fields of their member tensors, in schema order.
    """

    template: int
    infos: tuple[int, ...]
    constants: tuple[str, ...]


class _Writer:
    """A network as an assembly of pieces.

    Layers that differ in numbers, names, TensorInfos and data only share a piece, the template; equal TensorInfos
    are one table in the file. What all layers of a `_Kind` have in common is looked up once. The rest is gathered
    in lists over all layers, and fills the holes of each template by NumPy.
    """

    def __init__(self, graph: Network, findings: Findings) -> None:
        self.graph = graph
        self.facts = schema(graph.graph.get("dialect", "current"))
        self.alike = findings.alike
        self.connections = findings.connections
        self.order = canonical_order(graph, findings.connections)
        self.index = {key: position for position, key in enumerate(self.order)}
        self.encoder = Encoder(self.facts)
        self.assembly = Assembly(self.encoder)
        self.kinds: list[_Kind] = []
        self.templates: dict[Any, int] = {}
        self.pieces: list[Piece] = []
        self.infos: dict[Any, tuple[int, TensorInfo]] = {}
        self.numbers: dict[int, int] = {}
        """Of the infos by id: the network keeps them alive."""
        self.params: dict[int, tuple[Any, Any]] = {}
        self.nodes = inside(graph).nodes
        self.blocks = _Blocks([])
        self.tables = 0
        """How many tables the Verifier counts in what `head` made."""

    def head(self) -> bytearray:
        """Everything but constant data."""
        assembly, order = self.assembly, self.order
        root = self.encoder.piece(self.facts.root, self._root())
        assembly.put(root)
        vector = assembly.put_bytes(struct.pack("<I", len(order)) + bytes(4 * len(order)))
        assembly.link(root.holes["layers"], vector)
        which = self._which()
        kinds, nodes = self.kinds, self.nodes
        tensors = []
        for key, number in zip(order, which, strict=True):
            if fields := kinds[number].constants:
                constants = nodes[key]["constants"]
                tensors += [constants[field] for field in fields]
        self.blocks = _Blocks(tensors)
        names = [string(nodes[key].get("name", "")) for key in order]
        of_kind = np.array(which, np.int64)
        of_template = np.array([kind.template for kind in kinds], np.int64)[of_kind]
        starts, names_at = assembly.put_rows(self.pieces, of_template, names)
        assembly.link(vector + 4 + 4 * np.arange(len(order)), starts)
        infos = self._place_infos()
        self._fill(starts, names_at, of_kind, of_template, infos)
        counts = [len(self.pieces[kind.template].tables) + len(kind.infos) for kind in kinds]
        self.tables = len(root.tables) + sum([counts[number] for number in which])
        return assembly.finish()

    def _which(self) -> list[int]:
        """The number of each layer's kind, in order; of what the validator did not find alike, each has its own."""
        alike = self.alike
        numbers: dict[int, int] = {}
        found = []
        for key in self.order:
            number = numbers.get(alike[key])
            if number is None:
                number = numbers[alike[key]] = len(self.kinds)
                self.kinds.append(self._kind(key))
            found.append(number)
        return found

    def _fill(self, starts: _Ints, names: _Ints, of_kind: _Ints, of_template: _Ints, infos: _Ints) -> None:
        """Fill the holes of all layers: from where they start, where their names lie, and where TensorInfos do."""
        assembly, pieces, index = self.assembly, self.pieces, self.index
        for name, fill, values in (("index", assembly.number, np.arange(len(starts))), ("name", assembly.link, names)):
            places = np.array([piece.holes[name] for piece in pieces], np.int64)
            fill(starts + places[of_template], values)
        fed_by = [self.connections[key] for key in self.order]
        places = _places(pieces, "connection", starts, of_template)
        assembly.number(places, [index[source] for entries in fed_by for _, source, _ in entries])
        assembly.number(places + 4, [output for entries in fed_by for _, _, output in entries])
        _, numbers = Ragged([kind.infos for kind in self.kinds]).of(of_kind)
        assembly.link(_places(pieces, "info", starts, of_template), infos[numbers])
        assembly.link_outside(_places(pieces, "block", starts, of_template), self.blocks.places)

    def _place_infos(self) -> _Ints:
        """Place the TensorInfos; returns where. Those that differ in extents, scale and offset only share a piece."""
        fields = self.facts.tables["TensorInfo"].by_name
        usual_scale, usual_offset = fields["quantizationScale"].default, fields["quantizationOffset"].default
        templates: dict[Any, int] = {}
        pieces: list[Piece] = []
        which: list[int] = []
        values: list[int] = []
        for _, info in self.infos.values():
            scale, offset = float32(info.quantization_scale), info.quantization_offset
            scaled, moved = scale not in (usual_scale, 0), offset != usual_offset
            fixed = (info.data_type, info.quantization_dim, info.dimensionality, info.dimension_specificity)
            alike = (
                len(info.shape),
                *fixed,
                info.is_constant,
                _exactly(info.quantization_scales),
                scaled or str(scale),
                moved,
            )
            number = templates.get(alike)
            if number is None:
                number = templates[alike] = len(pieces)
                pieces.append(self.encoder.piece("TensorInfo", self._info(info, scaled, moved)))
            which.append(number)
            values += info.shape
            if scaled:
                values += _BITS(_FLOAT(scale))
            if moved:
                values.append(offset)
        of_template = np.array(which, np.int64)
        starts, _ = self.assembly.put_rows(pieces, of_template)
        self.assembly.number(_places(pieces, "value", starts, of_template), values)
        return starts

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
        return [self.nodes[key].get("binding_id", 0) if scheme >= 1 else self.index[key] for key in keys]

    def _kind(self, key: int) -> _Kind:
        """What is common to all layers that are alike, taken from one of them."""
        node = self.nodes[key]
        inputs = [slot for slot, _, _ in self.connections[key]]
        tensors = node.get("constants") or EMPTY
        outputs = node.get("outputs", ())
        overrides = _overrides(node.get("overrides") or EMPTY, inputs)
        paths = self.facts.layers[node["type"]].tensors if tensors else ()
        constants = tuple([path[-1] for path in paths if tensors.get(path[-1]) is not None])
        sizes = {field: tensors[field].data.itemsize for field in constants}
        alike = (
            node["type"],
            self._params(node.get("params")),
            len(inputs),
            tuple([(slot, flag, info is not None) for slot, flag, info in overrides]),
            len(outputs),
            tuple(sizes.items()),
            node.get("binding_id"),
        )
        template = self.templates.get(alike)
        if template is None:
            template = self.templates[alike] = len(self.pieces)
            self.pieces.append(self.encoder.piece("AnyLayer", self._values(node, inputs, overrides, sizes)))
        infos = [info for _, _, info in overrides if info is not None]
        infos += outputs
        infos += [tensors[field].info for field in constants]
        return _Kind(template, tuple([self._number(info) for info in infos]), constants)

    def _params(self, params: Mapping[str, Any] | None) -> Any:
        """`_params_key`, worked out once for each mapping that layers share."""
        found = self.params.get(id(params))
        if found is None:
            found = self.params[id(params)] = params, _params_key(params)
        return found[1]

    def _number(self, info: TensorInfo) -> int:
        """The number of a TensorInfo; those have one of which a file says the same."""
        known = self.numbers.get(id(info))
        if known is not None:
            return known
        key = (
            *(info.shape, info.data_type, info.quantization_offset, info.quantization_dim, info.dimensionality),
            *(info.dimension_specificity, info.is_constant),
            *[_FLOAT(float32(scale)) for scale in (info.quantization_scale, *info.quantization_scales)],
        )
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

    def _info(self, info: TensorInfo, scaled: bool, moved: bool) -> dict[str, Any]:
        """A TensorInfo as the encoder takes it, with holes for extents and, if so, scale and offset."""
        values = (Hole(("value", number)) for number in count())
        found: dict[str, Any] = {
            "dimensions": [next(values) for _ in info.shape],
            "dataType": info.data_type,
            "quantizationScale": next(values) if scaled else info.quantization_scale,
            "quantizationOffset": next(values) if moved else info.quantization_offset,
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


def _places(pieces: list[Piece], kind: str, starts: _Ints, which: _Ints) -> _Ints:
    """Where the holes of a kind lie, by number, in a row of pieces that start there."""
    lists = []
    for piece in pieces:
        found: list[int] = []
        while (place := piece.holes.get((kind, len(found)))) is not None:
            found.append(place)
        lists.append(found)
    owners, places = Ragged(lists).of(which)
    return starts[owners] + places


def _overrides(overrides: Mapping[Any, Any], slots: list[int]) -> list[tuple[int, bool, TensorInfo | None]]:
    """Slot, flag and TensorInfo of each input that is overridden."""
    return [(slot, *overrides[slot]) for slot in slots if slot in overrides] if overrides else []


def _exactly(scales: tuple[Any, ...]) -> Any:
    """Equal for scales that are the same numbers of the same types and signs."""
    return marshal.dumps(scales, 2) if scales and {*map(type, scales)} == {float} else str(scales)


def _params_key(params: Mapping[str, Any] | None) -> Any:
    """Equal for descriptors that are written alike; of one that does not allow it, nothing equals it.

    Bytes, since 0.0 equals -0.0; of NumPy's numbers they would not tell the type.
    """
    if not params:
        return params is None
    values = list(params.values())
    for value in values:
        if type(value) is tuple:
            values += value
        elif type(value) not in _MARSHALLED:
            return object()
    return marshal.dumps(dict(params), 2)


_MARSHALLED = {bool, int, float, str, type(None)}
