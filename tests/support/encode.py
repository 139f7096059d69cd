"""The plain twin of the package's encoder: tables as dicts through ``flatbuffers.Builder``, one call per field.

Tests make odd files with it, and check the package's writer against `plain_dumps`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import copysign
from typing import Any

import flatbuffers
import numpy as np

from fusion_engine.canonical import canonical_order
from fusion_engine.network import EMPTY, Network, complete_params, edges_into
from fusion_engine.schema import SCALARS, Enum, Field, LayerType, Schema, float32, schema
from fusion_engine.tensor import PAYLOADS, Tensor, TensorInfo

__all__ = ["Encoder", "Tagged", "plain_dumps"]


@dataclass(frozen=True)
class Tagged:
    """A union's value: the member's name and its table."""

    member: str
    table: Mapping[str, Any]


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
        self._plans: dict[str, tuple[int, tuple[_Slot, ...]]] = {}

    def table(self, name: str, values: Mapping[str, Any]) -> int:
        """Write a table; fields that are left out or at their default are absent in it.

        Values are as the decoder gives them: enums by name or number, a struct as a tuple, a
        union as `Tagged`, tables as dicts, vectors as sequences.

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
        """The file."""
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


def plain_dumps(graph: Network) -> bytes:
    """The file of a network, weights among the tables, nothing shared but vtables."""
    facts = schema(graph.graph.get("dialect", "current"))
    encoder = Encoder(facts)
    return bytes(encoder.finish(encoder.table(facts.root, _Writer(graph, facts).root())))


class _Writer:
    """A network as the dicts that the encoder takes."""

    def __init__(self, graph: Network, facts: Schema) -> None:
        self.graph = graph
        self.facts = facts
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
        stored = tensor.data.reshape(-1).view(f"<i{tensor.data.itemsize}")
        return {"info": self._info(tensor.info), "data": Tagged(member, {"data": stored})}

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
