"""The compiled schemas as Python objects: tables, enums, and what a layer type is made of.

Everything that reads, writes or checks names is driven by this; no layer type is named in code
here. The facts come from ``schema/*.fbs`` through ``schema/compile.py``, and from
``schema/layers.toml`` (slot counts).
"""

from __future__ import annotations

import json
import struct
import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fusion_engine.resources import folder

__all__ = [
    "DIALECTS",
    "WEIGHTED",
    "Enum",
    "Field",
    "LayerType",
    "Schema",
    "Table",
    "compiled",
    "float32",
    "schema",
    "slot_facts",
    "slots_fit",
]

DIALECTS = ("seed", "19.02", "19.05", "current")

WEIGHTED = frozenset(
    {"Convolution2d", "Convolution3d", "DepthwiseConvolution2d", "FullyConnected", "TransposeConvolution2d"}
)
"""Layer types with weights that have an output axis."""

SCALARS = {
    "bool": "?",
    "byte": "b",
    "ubyte": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "float": "f",
    "double": "d",
}
"""FlatBuffers' scalar types with their ``struct`` format character (little-endian)."""


def float32(value: float) -> float:
    """``value`` rounded to float32, as the wire stores it; out of range gives an infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


@dataclass(frozen=True)
class Enum:
    """An enum: ``values`` by name, ``names`` by value, ``format`` of the integer below it."""

    name: str
    format: str
    values: dict[str, int]
    names: dict[int, str]


@dataclass(frozen=True)
class Field:
    """A field of a table.

    ``kind`` is one of ``scalar``, ``enum``, ``string``, ``struct``, ``union``, ``table``,
    ``scalars`` (a vector of them), ``tables`` (a vector of them); ``type`` the name of the scalar,
    enum, struct, union or table, for a vector that of its elements. ``slot`` is the wire slot; a
    union's is that of its value, its tag lies one before. ``default`` is the value of an absent
    scalar or enum (as the integer), else None. ``former`` is an older name of the field.
    """

    slot: int
    name: str
    type: str
    kind: str
    default: Any
    former: str | None


@dataclass(frozen=True)
class Table:
    """A table: its fields in slot order, and the number of wire slots they take."""

    name: str
    fields: tuple[Field, ...]
    slots: int
    by_name: dict[str, Field] = field(repr=False)

    @property
    def wrapped(self) -> Field | None:
        """The one field ``data`` of a table that only exists to hold a vector (UintVector)."""
        only = self.fields[0] if len(self.fields) == 1 else None
        return only if only is not None and only.name == "data" and only.kind == "scalars" else None


@dataclass(frozen=True)
class LayerType:
    """A layer type: what the union member and its table hold.

    ``name`` as LayerType spells it, ``tag`` in the union, ``value`` of the LayerType enum,
    ``bindable`` for Input and Output, ``descriptor`` the descriptor's table or None, ``tensors``
    the paths of its ConstTensor fields in schema order, nested tables depth first: ``("weights",)``
    or ``("inputParams", "cellBias")``. The last part names the tensor in a node's ``constants``.
    """

    name: str
    tag: int
    value: int
    table: Table
    bindable: bool
    descriptor: Table | None
    tensors: tuple[tuple[str, ...], ...]


class Schema:
    """One dialect's schema.

    Attributes
    ----------
    dialect
        ``"seed"``, ``"19.02"``, ``"19.05"`` or ``"current"``.
    enums, tables, structs, unions
        By name; a struct is its fields as (name, scalar type), a union its tags by member.
    layers
        LayerType by name.
    by_tag
        LayerType by union tag.
    """

    def __init__(self, dialect: str, compiled: dict[str, Any]) -> None:
        self.dialect = dialect
        self.root: str = compiled["root"]
        self.structs: dict[str, tuple[tuple[str, str], ...]] = {
            name: tuple((f, t) for f, t in fields) for name, fields in compiled["structs"].items()
        }
        self.unions: dict[str, dict[str, int]] = compiled["unions"]
        self.enums = {
            name: Enum(name, SCALARS[e["type"]], e["values"], {v: k for k, v in e["values"].items()})
            for name, e in compiled["enums"].items()
        }
        names = compiled["tables"]
        self.tables = {name: self._table(name, rows, names) for name, rows in names.items()}
        values = self.enums["LayerType"].values
        self.layers: dict[str, LayerType] = {}
        for member, tag in self.unions["Layer"].items():
            name = member.removesuffix("Layer")
            self.layers[name] = self._layer(name, tag, values[name], self.tables[member])
        self.by_tag = {layer.tag: layer for layer in self.layers.values()}

    def _table(self, name: str, rows: list[list[Any]], names: dict[str, Any]) -> Table:
        fields = []
        for slot, field_name, type_name, default, former in rows:
            vector = type_name.startswith("[")
            element = type_name.strip("[]")
            if element in names:
                kind = "tables" if vector else "table"
            elif vector:
                kind = "scalars"
            elif element in self.structs:
                kind = "struct"
            elif element in self.unions:
                kind = "union"
            elif element in self.enums:
                kind = "enum"
            else:
                kind = "string" if element == "string" else "scalar"
            if element == "float" and default is not None:
                default = float32(default)
            fields.append(Field(slot, field_name, element, kind, default, former))
        return Table(name, tuple(fields), fields[-1].slot + 1 if fields else 0, {f.name: f for f in fields})

    def _layer(self, name: str, tag: int, value: int, table: Table) -> LayerType:
        base = table.by_name["base"]
        descriptor = table.by_name.get("descriptor")
        tensors: list[tuple[str, ...]] = []
        for f in table.fields:
            if f.type == "ConstTensor":
                tensors.append((f.name,))
            elif f.name not in ("base", "descriptor"):
                tensors.extend((f.name, inner.name) for inner in self.tables[f.type].fields)
        return LayerType(
            name,
            tag,
            value,
            table,
            base.type == "BindableLayerBase",
            None if descriptor is None else self.tables[descriptor.type],
            tuple(tensors),
        )


@cache
def compiled() -> dict[str, Any]:
    """``schema/compiled.json``: per dialect what ``schema/compile.py`` made of its ``.fbs``."""
    loaded: dict[str, Any] = json.loads((folder("schema") / "compiled.json").read_text("utf-8"))
    return loaded


@cache
def schema(dialect: str = "current") -> Schema:
    """The schema of a dialect.

    Raises
    ------
    KeyError
        Where there is no such dialect.

    Examples
    --------
    >>> schema().layers["Convolution2d"].tensors
    (('weights',), ('biases',))
    >>> schema("seed").layers["Softmax"].tag
    5
    """
    return Schema(dialect, compiled()[dialect])


@cache
def slot_facts() -> dict[str, dict[str, Any]]:
    """``schema/layers.toml``: per layer type its slot counts and what must be there."""
    facts: dict[str, dict[str, Any]] = tomllib.loads((folder("schema") / "layers.toml").read_text("utf-8"))
    return facts


def slots_fit(type_name: str, inputs: int, outputs: int) -> bool:
    """Whether a layer type can have so many input and output slots.

    Counts that a descriptor field says (numViews, numInputs) are not looked at.

    Examples
    --------
    >>> slots_fit("Addition", 2, 1), slots_fit("Addition", 1, 1)
    (True, False)
    """
    facts = slot_facts()[type_name]
    for rule, count in ((facts["inputs"], inputs), (facts["outputs"], outputs)):
        if (isinstance(rule, int) and count != rule) or (isinstance(rule, list) and count not in rule):
            return False
    return True
