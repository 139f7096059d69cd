"""The values of a recipe: descriptors and TensorInfos as JSON, and back.

Driven by the schema of release 24.08, whose names the fields have whatever the file's dialect; every
field is written out, at its schema default where the layer leaves it out. A float is a JSON number
with the fewest digits that give the same float32, and always a point or an exponent; what JSON has
no number for is a string: ``"inf"``, ``"-inf"``, ``"nan"``, and ``"nan:ffc00001"`` for a NaN of
other bits than 7fc00000.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from math import isfinite, isinf
from typing import Any, NoReturn

import numpy as np

from fusion_engine.checks import SCALAR
from fusion_engine.naming import quoted
from fusion_engine.network import EMPTY, FrozenDict, default_value
from fusion_engine.schema import SCALARS, Field, LayerType, Table, float32, schema
from fusion_engine.tensor import DTYPES, TensorInfo

__all__ = [
    "Wrong",
    "float_from_json",
    "float_to_json",
    "info_from_json",
    "info_to_json",
    "is_integer",
    "params_from_json",
    "params_to_json",
]

_NAN = 0x7FC00000
_NAN_TEXT = re.compile("nan:[0-9a-f]{8}")

INFO_FIELDS = {
    "dimensions": "shape",
    "dataType": "data_type",
    "quantizationScale": "quantization_scale",
    "quantizationOffset": "quantization_offset",
    "quantizationScales": "quantization_scales",
    "quantizationDim": "quantization_dim",
    "dimensionality": "dimensionality",
    "dimensionSpecificity": "dimension_specificity",
    "isConstant": "is_constant",
}
"""Arm NN's names of a TensorInfo's fields, and ours."""


class Wrong(ValueError):
    """JSON that is no recipe of the format; ``reason`` says where. Never reaches a user."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def is_integer(value: Any, format_character: str) -> bool:
    """Whether a JSON value is an integer of a FlatBuffers type, given by its ``struct`` format character."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    try:
        struct.pack(f"<{format_character}", value)
    except struct.error:
        return False
    return True


def float_to_json(value: float) -> float | str:
    """A float32 as its JSON value.

    Examples
    --------
    >>> float_to_json(float32(0.1)), float_to_json(6), float_to_json(float("-inf"))
    (0.1, 6.0, '-inf')
    """
    value = float32(float(value))
    if isfinite(value):
        return float(str(np.float32(value)))
    if isinf(value):
        return "inf" if value > 0 else "-inf"
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return "nan" if bits == _NAN else f"nan:{bits:08x}"


def float_from_json(value: Any) -> float:
    """The float32 of a JSON value; raises Wrong where it is none."""
    if isinstance(value, float) and isfinite(value) and isfinite(float32(value)):
        return float32(value)
    if value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, str) and _NAN_TEXT.fullmatch(value):
        found: float = struct.unpack("<f", struct.pack("<I", int(value[4:], 16)))[0]
        if found != found and value[4:] != f"{_NAN:08x}":
            return found
    raise Wrong("is no float32")


def _scalar_to_json(kind: str, value: Any) -> Any:
    if kind == "float":
        return float_to_json(value)
    return bool(value) if kind == "bool" else int(value)


def _scalar_from_json(kind: str, value: Any) -> Any:
    if kind == "float":
        return float_from_json(value)
    if kind == "bool":
        if not isinstance(value, bool):
            raise Wrong("is neither true nor false")
    elif not is_integer(value, SCALARS[kind]):
        raise Wrong(f"is no {kind}")
    return value


# Descriptors


def params_to_json(kind: LayerType, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A descriptor with every field of its table; None where the layer lacks it.

    Raises
    ------
    ValueError
        Where a parameter has a name that the layer type does not have, or a value that does not fit.
    """
    if kind.descriptor is None:
        return {}
    return None if params is None else _table_to_json(kind.descriptor, params)


def _table_to_json(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - {name for field in table.fields for name in (field.name, field.former)})
    if unknown:
        raise ValueError(f"{table.name} has no field {quoted(unknown[0])}")
    found = {}
    for field in table.fields:
        name = field.name
        if name not in values and field.former is not None:
            name = field.former
        found[field.name] = _field_to_json(field, values[name] if name in values else default_value(field, schema()))
    return found


def _field_to_json(field: Field, value: Any) -> Any:
    facts = schema()
    enum = facts.enums.get(field.type)
    if field.kind in ("scalar", "enum"):
        if enum is None:
            return _scalar_to_json(field.type, value)
        return value if isinstance(value, str) else enum.names.get(int(value), int(value))
    if field.kind == "scalars":
        return [_scalar_to_json(field.type, element) for element in value]
    if field.kind == "string":
        return str(value)
    table = facts.tables[field.type]
    wrapped = table.wrapped
    if field.kind == "tables":
        if wrapped is not None:
            return [[_scalar_to_json(wrapped.type, element) for element in inner] for inner in value]
        return [_table_to_json(table, inner) for inner in value]
    if wrapped is not None:
        return [_scalar_to_json(wrapped.type, element) for element in value]
    return _table_to_json(table, value)


def params_from_json(kind: LayerType, values: Any) -> FrozenDict | None:
    """The descriptor that `params_to_json` wrote; raises Wrong, naming the field, where it is none."""
    if kind.descriptor is None:
        if values != {}:
            raise Wrong(f"has parameters, and {kind.name} has none")
        return EMPTY
    return None if values is None else _table_from_json(kind.descriptor, values)


def _table_from_json(table: Table, values: Any) -> FrozenDict:
    if not isinstance(values, dict) or values.keys() != table.by_name.keys():
        raise Wrong(f"does not hold exactly the fields of {table.name}")
    found = {}
    for field in table.fields:
        try:
            found[field.name] = _field_from_json(field, values[field.name])
        except Wrong as error:
            raise Wrong(f"has a {field.name} that {error.reason}") from None
    return FrozenDict(found)


def _field_from_json(field: Field, value: Any) -> Any:
    facts = schema()
    enum = facts.enums.get(field.type)
    if enum is not None and field.kind == "enum":
        known = isinstance(value, str) and value in enum.values
        if not known and not (is_integer(value, enum.format) and value not in enum.names):
            raise Wrong(f"is no {enum.name}")
        return value
    if field.kind == "scalar":
        return _scalar_from_json(field.type, value)
    if field.kind == "string":
        if not isinstance(value, str):
            _no("a text")
        return value
    if field.kind == "scalars":
        return _scalars_from_json(field.type, value)
    table = facts.tables[field.type]
    wrapped = table.wrapped
    if field.kind == "tables":
        if not isinstance(value, list):
            _no("a list")
        if wrapped is not None:
            return tuple([_scalars_from_json(wrapped.type, inner) for inner in value])
        return tuple([_table_from_json(table, inner) for inner in value])
    return _table_from_json(table, value) if wrapped is None else _scalars_from_json(wrapped.type, value)


def _scalars_from_json(kind: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        _no("a list")
    return tuple([_scalar_from_json(kind, element) for element in value])


def _no(what: str) -> NoReturn:
    raise Wrong(f"is not {what}")


# TensorInfos


def info_to_json(info: TensorInfo | None) -> dict[str, Any] | None:
    """A TensorInfo by Arm NN's names of its fields, every one; None where the network lacks it."""
    if info is None:
        return None
    return {
        "dimensions": [int(extent) for extent in info.shape],
        "dataType": info.data_type,
        "quantizationScale": float_to_json(info.quantization_scale),
        "quantizationOffset": int(info.quantization_offset),
        "quantizationScales": [float_to_json(scale) for scale in info.quantization_scales],
        "quantizationDim": int(info.quantization_dim),
        "dimensionality": int(info.dimensionality),
        "dimensionSpecificity": [bool(specific) for specific in info.dimension_specificity],
        "isConstant": bool(info.is_constant),
    }


def info_from_json(values: Any) -> TensorInfo | None:
    """The TensorInfo that `info_to_json` wrote; raises Wrong where it is none."""
    if values is None:
        return None
    if not isinstance(values, dict) or values.keys() != INFO_FIELDS.keys():
        raise Wrong("has a TensorInfo that does not hold exactly its fields")
    table = schema().tables["TensorInfo"]
    if not isinstance(values["dataType"], str) or values["dataType"] not in DTYPES:
        raise Wrong("has a TensorInfo whose dataType is none")
    found: dict[str, Any] = {"data_type": values["dataType"]}
    for name, ours in INFO_FIELDS.items():
        if name != "dataType":
            try:
                found[ours] = _field_from_json(table.by_name[name], values[name])
            except Wrong as error:
                raise Wrong(f"has a TensorInfo whose {name} {error.reason}") from None
    if found["dimensionality"] == SCALAR and found["shape"]:
        raise Wrong("has a TensorInfo of a scalar with dimensions")
    return TensorInfo(**found)
