"""From the network to the bytes of a ``.armnn`` file.

Layers are written in canonical order with index == position, so equal networks give equal bytes.
Constant data lies behind all tables, each run of shared bytes once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np

from fusion_engine.armnn.decode import MAX_BUFFER
from fusion_engine.armnn.encode import ALIGNMENT, Encoder, Outside, Tagged
from fusion_engine.armnn.files import MappedFile, Range, StrPath, path_text, write_atomically
from fusion_engine.canonical import canonical_order
from fusion_engine.errors import ModelError
from fusion_engine.network import EMPTY, Network, complete_params, edges_into
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

    def place(self, tensor: Tensor) -> Outside:
        """Where the elements of a tensor lie, counted from the end of the built part."""
        key = (tensor.memory, tensor.data.itemsize)
        if key not in self._placed:
            position = self.end + (-self.end - 4) % ALIGNMENT
            self.blocks.append(_Block(tensor, tensor.data.size, position))
            self._placed[key] = position
            self.end = position + 4 + tensor.data.nbytes
        return Outside(self._placed[key])


@dataclass(frozen=True)
class _Built:
    """A file before it is written: its tables, and the vectors behind them."""

    head: bytearray
    blocks: list[_Block]

    def parts(self) -> Iterator[bytes | memoryview | Range]:
        """The file's bytes in order."""
        yield bytes(self.head)
        end = 0
        for block in self.blocks:
            yield bytes(block.position - end) + struct.pack("<I", block.count)
            yield from self._elements(block.tensor)
            end = block.position + 4 + block.tensor.data.nbytes

    def _elements(self, tensor: Tensor) -> Iterator[bytes | memoryview | Range]:
        if not tensor.data.nbytes:
            return
        origin = tensor.origin
        if (
            origin is not None
            and isinstance(origin.source, MappedFile)
            and origin.source.holds(tensor.data, origin.offset)
        ):
            yield Range(origin.source, origin.offset, tensor.data.nbytes)
        elif tensor.data.flags.c_contiguous:
            yield tensor.data.reshape(-1).view(np.uint8).data
        else:
            yield tensor.tobytes()


_TOO_LARGE = (
    f"the file would have {{}}: a FlatBuffers file ends below 2 GiB ({MAX_BUFFER} bytes at the most); "
    "split the network or store its weights in a smaller type"
)


def _build(graph: Network) -> _Built:
    require_valid(graph)
    facts = schema(graph.graph.get("dialect", "current"))
    blocks = _Blocks()
    writer = _Writer(graph, facts, blocks)
    root = writer.root()
    encoder = Encoder(facts)
    try:
        head = encoder.finish(encoder.table(facts.root, root))
    except flatbuffers.builder.BuilderSizeError:
        raise ModelError(_TOO_LARGE.format("more than the builder takes")) from None
    total = len(head) + blocks.end
    if total > MAX_BUFFER:
        raise ModelError(_TOO_LARGE.format(f"{total} bytes"))
    return _Built(head, blocks.blocks)


class _Writer:
    """A network as the dicts that the encoder takes."""

    def __init__(self, graph: Network, facts: Schema, blocks: _Blocks) -> None:
        self.graph = graph
        self.facts = facts
        self.blocks = blocks
        self.order = canonical_order(graph)
        self.index = {key: position for position, key in enumerate(self.order)}

    def root(self) -> dict[str, Any]:
        versions = self.graph.graph.get("feature_versions", (1, 1, 1))
        found: dict[str, Any] = {
            "layers": [self._any_layer(key) for key in self.order],
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

    def _any_layer(self, key: int) -> dict[str, Any]:
        node = self.graph.nodes[key]
        kind = self.facts.layers[node["type"]]
        base: dict[str, Any] = {
            "index": self.index[key],
            "layerName": node.get("name", ""),
            "layerType": kind.value,
            "inputSlots": self._input_slots(key, node),
            "outputSlots": [
                {"index": number, "tensorInfo": self._info(info)} for number, info in enumerate(node.get("outputs", ()))
            ],
        }
        if kind.bindable:
            base = {"base": base, "layerBindingId": node.get("binding_id", 0)}
        table: dict[str, Any] = {"base": base}
        if kind.descriptor is not None and node.get("params") is not None:
            table["descriptor"] = complete_params(kind.descriptor, node["params"], self.facts)
        table.update(self._constants(kind, node.get("constants") or EMPTY))
        return {"layer": Tagged(kind.table.name, table)}

    def _input_slots(self, key: int, node: dict[str, Any]) -> list[dict[str, Any]]:
        overrides: dict[Any, Any] = node.get("overrides") or EMPTY
        slots = []
        for number, source in edges_into(self.graph, key):
            slot: dict[str, Any] = {"index": number, "connection": (self.index[source.layer], source.slot)}
            if number in overrides:
                flag, info = overrides[number]
                slot["isOverridden"] = flag
                if info is not None:
                    slot["overriddenTensorInfo"] = self._info(info)
            slots.append(slot)
        return slots

    def _constants(self, kind: LayerType, constants: dict[str, Tensor]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in kind.tensors:
            holder = found
            for part in path[:-1]:
                holder = holder.setdefault(part, {})
            tensor = constants.get(path[-1])
            if tensor is not None:
                holder[path[-1]] = self._tensor(tensor)
        return found

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        member = PAYLOADS[tensor.data.itemsize]
        return {"info": self._info(tensor.info), "data": Tagged(member, {"data": self.blocks.place(tensor)})}

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
