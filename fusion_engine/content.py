"""What a layer holds, connections aside, in a form that compares and hashes as the file would.

Parameters are completed with the schema's defaults under their names of release 24.08, floats taken
as the float32 that the wire stores (NaN and -0 by their bits), enum values by name. What a user
wrote wrongly is taken as it stands: ``validate`` tells of it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import Any

from fusion_engine.network import EMPTY, Network, default_value
from fusion_engine.schema import Field, Schema, Table, schema
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["ABSENT_INFO", "Digester", "info_values", "params_values", "value_key"]

ABSENT_INFO = TensorInfo((), "Float16", 1.0)
"""What a table TensorInfo without fields says; an absent one is taken as equal to it."""

INFO_FIELDS = tuple(field.name for field in fields(TensorInfo))


def value_key(value: Any) -> Any:
    """A value of a parameter or TensorInfo field as what two files have to agree in: floats by their bits."""
    if isinstance(value, float):
        try:
            return struct.pack("<f", value)
        except OverflowError:
            return ("float64", value)
    if isinstance(value, tuple | list):
        return tuple([value_key(item) for item in value])
    return value


def params_values(kind: str, params: Any) -> dict[str, Any]:
    """Every descriptor field of a layer type under its name of release 24.08, in schema order.

    Fields that ``params`` leaves out have their default; a nested table's fields have dotted names;
    what no schema knows comes last, sorted by name.
    """
    facts = schema()
    layer = facts.layers.get(kind)
    given: Mapping[str, Any] = params if isinstance(params, Mapping) else EMPTY
    if layer is None or layer.descriptor is None:
        return {str(name): given[name] for name in sorted(given, key=str)}
    return _table_values(layer.descriptor, given, facts)


def _table_values(table: Table, given: Mapping[str, Any], facts: Schema, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in table.fields:
        name = field.name
        if name not in given and field.former is not None and field.former in given:
            name = field.former
        inner = facts.tables[field.type] if field.kind == "table" else None
        if inner is not None and not inner.wrapped:
            nested = given.get(name)
            nested = nested if isinstance(nested, Mapping) else EMPTY
            found.update(_table_values(inner, nested, facts, f"{prefix}{field.name}."))
        else:
            found[prefix + field.name] = _value(field, given, name, facts)
    known = {name for field in table.fields for name in (field.name, field.former)}
    found.update((prefix + str(name), given[name]) for name in sorted(set(given) - known, key=str))
    return found


def _value(field: Field, given: Mapping[str, Any], name: str, facts: Schema) -> Any:
    if name not in given:
        return default_value(field, facts)
    value = given[name]
    if field.kind == "enum" and isinstance(value, int):
        return facts.enums[field.type].names.get(value, value)
    if field.type in ("float", "bool") and field.kind == "scalar" and isinstance(value, int | float):
        return bool(value) if field.type == "bool" else float(value)
    return value


def info_values(info: TensorInfo | None) -> tuple[Any, ...]:
    """The fields of a TensorInfo, in order of `INFO_FIELDS`."""
    found = ABSENT_INFO if info is None else info
    return tuple([getattr(found, name) for name in INFO_FIELDS])


class Digester:
    """Digests of layers; bytes that several tensors share are read once.

    Examples
    --------
    >>> from fusion_engine.network import new_network
    >>> graph = new_network()
    >>> graph.add_node(0, type="Activation", name="a", params={}, outputs=())
    >>> graph.add_node(1, type="Activation", name="a", params={"activationFunction": "Sigmoid"}, outputs=())
    >>> digester = Digester(graph)
    >>> digester.layer(0) == digester.layer(1)
    True
    """

    def __init__(self, graph: Network) -> None:
        self._nodes = graph.nodes
        self._tensors: dict[tuple[int, int], bytes] = {}

    def layer(self, key: int) -> bytes:
        """Digest of what a layer holds: type, name, ids, parameters, TensorInfos, constants' bytes."""
        node = self._nodes[key]
        kind = node.get("type")
        constants = node.get("constants") or EMPTY
        outputs = node.get("outputs") or ()
        overrides = node.get("overrides") or EMPTY
        content = (
            kind,
            node.get("name", ""),
            node.get("binding_id"),
            tuple([(name, value_key(v)) for name, v in params_values(str(kind), node.get("params")).items()]),
            tuple([self._info(info) for info in outputs]) if isinstance(outputs, Sequence) else outputs,
            self._sorted(overrides, lambda pair: (pair[0], self._info(pair[1]))),
            self._sorted(constants, self._tensor),
        )
        return blake2b(repr(content).encode("utf-8", "backslashreplace"), digest_size=16).digest()

    @staticmethod
    def _sorted(entries: Any, of: Any) -> Any:
        if not isinstance(entries, Mapping):
            return entries
        return tuple([(name, of(entries[name])) for name in sorted(entries, key=str)])

    @staticmethod
    def _info(info: Any) -> Any:
        return value_key(info_values(info)) if info is None or isinstance(info, TensorInfo) else info

    def _tensor(self, tensor: Any) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        memory = tensor.memory
        if memory not in self._tensors:
            self._tensors[memory] = blake2b(tensor.tobytes(), digest_size=16).digest()
        return (self._info(tensor.info), self._tensors[memory])
