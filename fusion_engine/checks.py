"""Whether single values fit where a network holds them: parameters, TensorInfos, tensors.

Every function gives None, or what is wrong in words that follow the name of the thing. Nothing is
taken for granted about a value, so nothing here raises on one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from reprlib import Repr
from typing import Any

import numpy as np

from fusion_engine.errors import nearest
from fusion_engine.network import default_value
from fusion_engine.schema import SCALARS, Field, Schema, Table
from fusion_engine.tensor import DTYPES, Tensor, TensorInfo

__all__ = [
    "RANGES",
    "field_at",
    "info_fault",
    "is_int",
    "params_faults",
    "rule_faults",
    "scalar_fault",
    "shown",
    "tensor_fault",
]

UNKNOWN_EXTENT = 2**32 - 1
"""-1 in a list of extents: to be worked out by the reader."""

INFO_FIELDS = {
    "quantization_scales": ("quantizationScales", ()),
    "quantization_dim": ("quantizationDim", 0),
    "dimensionality": ("dimensionality", 1),
    "dimension_specificity": ("dimensionSpecificity", ()),
    "is_constant": ("isConstant", False),
}
"""Fields of a TensorInfo that only some dialects have: name on the wire, and what its absence says."""


def _range(code: str) -> range:
    bits = 8 * struct.calcsize("<" + code)
    return range(-(2 ** (bits - 1)), 2 ** (bits - 1)) if code.islower() else range(2**bits)


RANGES = {name: _range(code) for name, code in SCALARS.items() if code not in "?fd"}
"""The values of each integer type of the wire."""

_repr = Repr()
_repr.maxstring = _repr.maxother = 100


def shown(value: Any) -> str:
    """A value in a message: short, and safe whatever it is."""
    if value is None or isinstance(value, bool | int | float | str | bytes | tuple | list | np.generic):
        try:
            return _repr.repr(value)
        except Exception:  # of a class of the user's own
            pass
    return f"a {type(value).__name__}"


def is_int(value: Any) -> bool:
    """Whether a value is an integer, Python's or NumPy's; a bool is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


# Scalars and their vectors


def scalar_fault(kind: str, value: Any) -> str | None:
    """What is wrong with a value for a scalar type of the wire."""
    allowed = RANGES.get(kind)
    if allowed is not None:
        if type(value) is not int and not is_int(value):
            return "it must be an int"
        return None if int(value) in allowed else f"it must be between {allowed[0]} and {allowed[-1]}"
    if kind == "bool":
        right = isinstance(value, bool | np.bool_) or (is_int(value) and value in (0, 1))
        return None if right else "it must be a bool"
    return _float_fault(value)


def _float_fault(value: Any) -> str | None:
    if type(value) is not float and not is_int(value) and not isinstance(value, float | np.floating):
        return "it must be a float"
    try:
        struct.pack("<f", value)
    except (OverflowError, struct.error):
        return "it is beyond the range of a float of 32 bits"
    return None


_PLAIN = {name: {"?": bool, "f": float, "d": float}.get(code, int) for name, code in SCALARS.items()}
"""Python's own type for each scalar type of the wire."""


def _vector_fault(kind: str, value: Any) -> str | None:
    if not isinstance(value, tuple | list):
        return "it must be a tuple"
    if {*map(type, value)} <= {_PLAIN[kind]}:
        with suppress(OverflowError, struct.error):  # what does not fit
            struct.pack(f"<{len(value)}{SCALARS[kind]}", *value)
            return None
    for number, item in enumerate(value):
        fault = scalar_fault(kind, item)
        if fault is not None:
            return f"entry {number}: {fault}"
    return None


# TensorInfos and tensors


_INFO_TYPES = tuple(
    (name, wire_type, fault_of, TensorInfo.__dataclass_fields__[name].default)
    for name, wire_type, fault_of in (
        ("shape", "uint", _vector_fault),
        ("quantization_scale", "float", scalar_fault),
        ("quantization_offset", "int", scalar_fault),
        ("quantization_scales", "float", _vector_fault),
        ("quantization_dim", "uint", scalar_fault),
        ("dimensionality", "uint", scalar_fault),
        ("dimension_specificity", "bool", _vector_fault),
        ("is_constant", "bool", scalar_fault),
    )
)
"""Fields of a TensorInfo with their wire types, and their defaults, which are right."""

SCALAR = 2
"""Dimensionality::Scalar of a TensorInfo."""

MAX_RANK = 5
"""Dimensions of a tensor that real readers take (``MaxNumOfTensorDimensions``; 20.08 and 23.08 reject 6)."""


def info_fault(info: Any, facts: Schema) -> str | None:
    """What is wrong with a TensorInfo for a dialect."""
    if not isinstance(info, TensorInfo):
        return f"is {shown(info)}: it must be a TensorInfo"
    kind: Any = info.data_type
    if not isinstance(kind, str) or kind not in DTYPES:
        hint = nearest(kind[:100], list(DTYPES)) if isinstance(kind, str) else ""
        return f"has the DataType {shown(kind)}, which there is not{hint}"
    if kind not in facts.enums["DataType"].values:
        return f"has the DataType {kind}, which the {facts.dialect} dialect lacks: set the graph's dialect to 'current'"
    for name, wire_type, fault_of, default in _INFO_TYPES:
        value = getattr(info, name)
        if value is not default and (fault_of(wire_type, value) is not None or isinstance(value, list)):
            return f"has the {name} {shown(value)}, which a TensorInfo cannot hold"
    if info.dimensionality == SCALAR and info.shape:
        return f"is a scalar (dimensionality 2) with the shape {shown(info.shape)}"
    if info.dimensionality == 1 and not info.shape:
        return "has no dimensions: real readers reject it; a scalar has dimensionality 2, an unknown shape 0"
    if len(info.shape) > MAX_RANK:
        return f"has {len(info.shape)} dimensions: real readers take at most {MAX_RANK}"
    specified = len(info.dimension_specificity)
    if info.dimensionality != SCALAR and specified not in (0, len(info.shape)):
        return f"has {specified} entries of dimension_specificity for the shape {shown(info.shape)}"
    known = facts.tables["TensorInfo"].by_name
    for name, (wire, absent) in INFO_FIELDS.items():
        if wire not in known and getattr(info, name) != absent:
            return f"has {name} {shown(getattr(info, name))}, which the {facts.dialect} dialect cannot hold"
    return None


def tensor_fault(tensor: Any, info_fault: Callable[[Any], str | None]) -> str | None:
    """What is wrong with a constant tensor; ``info_fault`` tells what is with its TensorInfo."""
    if not isinstance(tensor, Tensor):
        array = ": Tensor.of(array) makes one" if isinstance(tensor, np.ndarray | np.generic | list | float) else ""
        return f"is {shown(tensor)}: it must be a Tensor{array}"
    fault = info_fault(tensor.info)
    if fault is not None:
        return fault
    data: Any = tensor.data
    if not isinstance(data, np.ndarray):
        return f"has {shown(data)} for data: it must be a NumPy array"
    if data.dtype != tensor.info.dtype or data.shape != tensor.info.shape:
        info = tensor.info
        return f"has data of {data.dtype} {data.shape} for a TensorInfo of {info.data_type} {info.shape}"
    return None


# Parameters


def params_faults(table: Table, params: Mapping[Any, Any], facts: Schema, prefix: str = "") -> Iterator[str]:
    """What is wrong with the fields of a descriptor: whole sentences; as deep as the schema's tables nest."""
    for name in sorted(params, key=str):
        field = table.by_name.get(name) if isinstance(name, str) else None
        if field is None:
            hint = nearest(name[:100], list(table.by_name)) if isinstance(name, str) else ""
            yield f"there is no parameter {shown(name)} in a {table.name}{hint}"
        elif field.kind == "table" and isinstance(params[name], Mapping) and not facts.tables[field.type].wrapped:
            yield from params_faults(facts.tables[field.type], params[name], facts, f"{prefix}{name}.")
        else:
            fault = _field_fault(field, params[name], facts)
            if fault is not None:
                yield f"parameter {prefix}{name} is {shown(params[name])}: {fault}"


def _field_fault(field: Field, value: Any, facts: Schema) -> str | None:
    if field.kind == "enum":
        return _enum_fault(field, value, facts)
    if field.kind == "scalar":
        return scalar_fault(field.type, value)
    if field.kind == "scalars":
        return _vector_fault(field.type, value)
    wrapped = facts.tables[field.type].wrapped
    if field.kind != "tables" or wrapped is None:
        return f"it must be a dict of the fields of a {field.type}"
    if not isinstance(value, tuple | list):
        return "it must be a tuple of tuples"
    faults = ((number, _vector_fault(wrapped.type, item)) for number, item in enumerate(value))
    return next((f"list {number}: {fault}" for number, fault in faults if fault), None)


def _enum_fault(field: Field, value: Any, facts: Schema) -> str | None:
    values = facts.enums[field.type].values
    if isinstance(value, str):
        return None if value in values else f"{field.type} has no such value{nearest(value[:100], list(values))}"
    if is_int(value) and int(value) in RANGES["byte"]:
        return None
    return f"it must be a {field.type} by name, such as {next(iter(values))!r}"


def field_at(table: Table, params: Mapping[str, Any], path: str, facts: Schema) -> Any:
    """A descriptor field by its path (``origins.numViews``), at its default where absent."""
    value: Any = params
    for part in path.split("."):
        field = table.by_name[part]
        value = value[part] if part in value else default_value(field, facts)
        table = facts.tables.get(field.type, table)
    return value


def rule_faults(rules: Mapping[str, Any], table: Table, params: Mapping[str, Any], facts: Schema) -> Iterator[str]:
    """What real readers would reject in a descriptor whose fields are all right, by ``layers.toml``."""
    for name in rules.get("even", ()):
        length = len(field_at(table, params, name, facts))
        if length % 2:
            yield f"{name} has {length} entries: it holds pairs"
    lengths = {name: len(field_at(table, params, name, facts)) for name in rules.get("same_length", ())}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        yield f"{' and '.join(lengths)} must be of one length: {found}"
    for name in rules.get("one_unknown", ()):
        extents = field_at(table, params, name, facts)
        if sum(extent == UNKNOWN_EXTENT for extent in extents) > 1:
            yield f"{name} is {shown(extents)}: at most one extent may be -1 ({UNKNOWN_EXTENT})"
    for name in rules.get("views", ()):
        outer = "origins." if "origins" in table.by_name else ""
        views, rank = (field_at(table, params, outer + field, facts) for field in ("numViews", "numDimensions"))
        lists = field_at(table, params, name, facts)
        if len(lists) < views or any(len(view) < rank for view in lists[:views]):
            yield f"{name} must hold {views} lists (numViews) of {rank} numbers (numDimensions)"
