"""What a layer holds, connections aside, in a form that compares and hashes as the file would.

Parameters are completed with the schema's defaults under their names of release 24.08, floats taken
as the float32 that the wire stores (NaN and -0 by their bits), enum values by name. What a user
wrote wrongly is taken as it stands: ``validate`` tells of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from hashlib import blake2b
from typing import Any

import numpy as np

from fusion_engine.network import EMPTY, Network, default_value
from fusion_engine.schema import Field, Schema, Table, schema
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["ABSENT_INFO", "Digester", "info_values", "params_values", "value_key"]

ABSENT_INFO = TensorInfo((), "Float16", 1.0)
"""What a table TensorInfo without fields says; an absent one is taken as equal to it."""

INFO_FIELDS = tuple(field.name for field in fields(TensorInfo))


def _as_it_is(value: Any) -> Any:
    return value


def _floating(value: Any) -> Any:
    return float(value) if isinstance(value, int | np.number) else value


_FLOATS: dict[str, Callable[[Any], Any]] = {
    "quantization_scale": _floating,
    "quantization_scales": lambda scales: tuple([_floating(scale) for scale in scales]),
}
"""Fields of a TensorInfo that hold floats, in which a user may have put ints."""


def value_key(value: Any) -> Any:
    """A value of a parameter or TensorInfo field as what two files have to agree in: floats by their bits."""
    if isinstance(value, np.generic):
        value = value.item()
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
    if field.kind == "enum" and isinstance(value, int | np.integer):
        return facts.enums[field.type].names.get(int(value), int(value))
    if field.kind == "scalar" and isinstance(value, int | float | np.number):
        return {"float": float, "bool": bool}.get(field.type, _as_it_is)(value)
    return value


def info_values(info: TensorInfo | None) -> tuple[Any, ...]:
    """The fields of a TensorInfo, in order of `INFO_FIELDS`."""
    found = ABSENT_INFO if info is None else info
    return tuple([_FLOATS.get(name, _as_it_is)(getattr(found, name)) for name in INFO_FIELDS])


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
        self._tensors: dict[tuple[Any, ...], bytes] = {}

    def layer(self, key: int) -> bytes:
        """Digest of what a layer holds: type, name, ids, parameters, TensorInfos, constants' bytes.

        Of a layer whose attributes are malformed type and name count.
        """
        node = self._nodes[key]
        content: tuple[Any, ...] = (node.get("type"), node.get("name", ""))
        with suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
            content += self._rest(node)
        return blake2b(repr(content).encode("utf-8", "backslashreplace"), digest_size=16).digest()

    def _rest(self, node: Mapping[str, Any]) -> tuple[Any, ...]:
        params = params_values(node["type"], node.get("params"))
        overrides = node.get("overrides") or EMPTY
        constants = node.get("constants") or EMPTY
        return (
            node.get("binding_id"),
            tuple([(name, value_key(value)) for name, value in params.items()]),
            tuple([self._info(info) for info in node.get("outputs") or ()]),
            tuple([(slot, overrides[slot][0], self._info(overrides[slot][1])) for slot in sorted(overrides)]),
            tuple([(field, self._tensor(constants[field])) for field in sorted(constants)]),
        )

    @staticmethod
    def _info(info: TensorInfo | None) -> Any:
        return value_key(info_values(info))

    def _tensor(self, tensor: Tensor) -> tuple[Any, bytes]:
        memory = tensor.memory
        if memory not in self._tensors:
            self._tensors[memory] = blake2b(tensor.tobytes(), digest_size=16).digest()
        return (self._info(tensor.info), self._tensors[memory])
