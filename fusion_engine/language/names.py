"""What a condition may name: for each layer type the values it has, and how each compares.

Descriptor fields go by their names of release 24.08; a former wire name finds the same field. A
name that either spelling of a layer has (`fusion_engine.spellings`) is good on both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from fusion_engine.schema import WEIGHTED, Field, LayerType, schema
from fusion_engine.spellings import spellings

__all__ = ["Quantity", "find_quantity", "quantities"]

_KERNELS = {
    "Convolution2d": 2,
    "Convolution3d": 3,
    "DepthwiseConvolution2d": 2,
    "Pooling2d": 2,
    "Pooling3d": 3,
    "TransposeConvolution2d": 2,
}
"""Number of extents of ``kernel`` per layer type that has one."""

_TENSOR_KINDS = {
    "dataType": "enum",
    "rank": "int",
    "shape": "dimension",
    "n": "int",
    "h": "int",
    "w": "int",
    "c": "int",
    "elements": "int",
    "bytes": "int",
    "scale": "float",
    "offset": "int",
    "perAxis": "bool",
}
"""Kind of what may follow ``output.``, ``input.``, ``weights.`` and ``bias.``."""

_SLOT = re.compile(r"(input|output)(?:0|[1-9][0-9]{0,8})(\..+)")


@dataclass(frozen=True)
class Quantity:
    """Something a condition can ask of a layer.

    Parameters
    ----------
    name
        Its name of release 24.08.
    kind
        ``"int"``, ``"float"`` (a float32), ``"bool"``, ``"string"``, ``"enum"``, ``"dimension"``, or
        ``"list"`` for a field that no comparison takes.
    values
        Value names of an enum.
    parts
        Numbers of extents that a dimension may have.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()


@cache
def quantities(type_name: str) -> Mapping[str, Quantity]:
    """Every quantity of a layer type, by the names a rule may use; slot numbers left out.

    Parameters
    ----------
    type_name
        A LayerType of release 24.08; ``StandIn`` for an opaque layer made here.

    Raises
    ------
    KeyError
        Where there is no such layer type.
    """
    found = {"name": Quantity("name", "string")}
    for spelling in spellings(type_name):
        for name, quantity in _own(spelling, schema().layers[spelling]).items():
            found.setdefault(name, quantity)
    return MappingProxyType(found)


def find_quantity(type_name: str, name: str) -> Quantity | None:
    """What ``name`` means on a layer of that type, or None.

    Examples
    --------
    >>> find_quantity("Activation", "function")
    Quantity(name='activationFunction', kind='enum', values=('Sigmoid', ...), parts=())
    >>> find_quantity("Splitter", "output1.h").kind
    'int'
    >>> find_quantity("Addition", "operation").values[0]
    'Add'
    """
    known = quantities(type_name)
    numbered = _SLOT.fullmatch(name)
    if numbered is None:
        return known.get(name)
    plain = known.get(numbered[1] + numbered[2])
    return None if plain is None else replace(plain, name=name)


def _own(type_name: str, layer: LayerType) -> dict[str, Quantity]:
    fields = () if layer.descriptor is None else layer.descriptor.fields
    found: dict[str, Quantity] = {}
    for field in fields:
        quantity = _field(field)
        found[field.name] = quantity
        if field.former is not None:
            found.setdefault(field.former, quantity)
    if type_name in _KERNELS:
        found |= _extents("kernel", _KERNELS[type_name])
    for whole in ("stride", "dilation"):
        axes = sum(f"{whole}{axis}" in found for axis in "XYZ")
        if axes >= 2:
            found |= _extents(whole, axes)
    if type_name in WEIGHTED:
        found |= {"channels": Quantity("channels", "int")} | _tensor("weights") | _tensor("bias")
    if type_name == "Activation":
        functions = tuple(schema().enums["ActivationFunction"].values)
        found |= {
            "act": Quantity("act", "enum", functions),
            "act.alpha": Quantity("act.alpha", "float"),
            "act.beta": Quantity("act.beta", "float"),
        }
    if type_name not in ("Input", "Constant"):
        found |= _tensor("input")
    if type_name != "Output":
        found |= _tensor("output")
    return found


def _field(field: Field) -> Quantity:
    if field.kind == "enum":
        return Quantity(field.name, "enum", tuple(schema().enums[field.type].values))
    if field.kind == "string":
        return Quantity(field.name, "string")
    if field.kind != "scalar":
        return Quantity(field.name, "list")
    return Quantity(field.name, {"bool": "bool", "float": "float", "double": "float"}.get(field.type, "int"))


def _extents(whole: str, count: int) -> dict[str, Quantity]:
    parts = [Quantity(f"{whole}.{axis}", "int") for axis in "whd"[:count]]
    return {whole: Quantity(whole, "dimension", parts=(count,))} | {part.name: part for part in parts}


def _tensor(prefix: str) -> dict[str, Quantity]:
    types = tuple(schema().enums["DataType"].values)
    named = [
        Quantity(f"{prefix}.{name}", kind, types if kind == "enum" else (), (2, 3) if kind == "dimension" else ())
        for name, kind in _TENSOR_KINDS.items()
    ]
    return {quantity.name: quantity for quantity in named}
