"""Write ``docs/recipe.schema.json``, the JSON Schema (draft 2020-12) of an opaque layer's recipe.

Run ``python scripts/recipe_schema.py`` after an edit of a schema; ``--check`` only compares and exits 1
on a difference. Layer types, parameters and slot counts come from the compiled schema of release 24.08
and ``schema/layers.toml``, so that the document cannot say anything else than the code does.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

from fusion_engine.recipes import FORMAT, VERSION
from fusion_engine.schema import DIALECTS, SCALARS, Enum, Field, LayerType, Table, schema, slot_facts
from fusion_engine.tensor import DTYPES

TARGET = Path(__file__).resolve().parents[1] / "docs" / "recipe.schema.json"

HALFWAY = (2 - 2**-24) * 2.0**127
"""Halfway from the largest float32 to the next power of two: from here on a number is no float32."""

FLOAT = {
    "description": "A float32, written with a point or an exponent; a text where JSON has no number for it.",
    "anyOf": [
        {"type": "number", "exclusiveMinimum": -HALFWAY, "exclusiveMaximum": HALFWAY},
        {"enum": ["inf", "-inf", "nan"]},
        {"type": "string", "pattern": "^nan:(?!7fc00000|[7f]f800000)[7f]f[89a-f][0-9a-f]{5}$"},
    ],
}


def main(arguments: list[str]) -> int:
    """Write the document, or with ``--check`` compare it; the exit code."""
    made = text()
    if "--check" not in arguments:
        TARGET.write_text(made, "utf-8")
        return 0
    if TARGET.is_file() and TARGET.read_text("utf-8") == made:
        return 0
    print(f"{TARGET} is out of date: run python scripts/recipe_schema.py")
    return 1


def text() -> str:
    """The document."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def document() -> dict[str, Any]:
    """The document as plain data."""
    kinds = [kind for name, kind in sorted(schema().layers.items()) if not kind.bindable and name != "Constant"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:armnn-fusion-engine:recipe:{VERSION}",
        "title": "The recipe of an opaque layer made by fusion-engine",
        "description": "What a StandIn was fused from; docs/recipe.md says more. Written for release 24.08 of Arm NN.",
        "$ref": "#/$defs/recipe",
        "$defs": {
            "recipe": _recipe(),
            "constant": _constant(),
            "layer": _layer(kinds),
            "source": _source(),
            "override": _override(),
            "info": _info(),
            "float": FLOAT,
            **{f"enum.{enum.name}": _enum(enum) for enum in _enums(kinds)},
            **{f"params.{kind.name}": _params(kind) for kind in kinds},
        },
    }


def _object(properties: dict[str, Any], **others: Any) -> dict[str, Any]:
    """An object with exactly these members."""
    return {
        "type": "object",
        **others,
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _array(items: Any, **others: Any) -> dict[str, Any]:
    return {"type": "array", **others, "items": items}


def _integer(code: str) -> dict[str, Any]:
    """An integer of a FlatBuffers type, by its ``struct`` format character."""
    bits = 8 * struct.calcsize(f"<{code}")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if code.islower() else (0, 2**bits - 1)
    return {"type": "integer", "minimum": low, "maximum": high}


NUMBER = _integer("I")
TEXT = {"type": "string"}


def _recipe() -> dict[str, Any]:
    return _object(
        {
            "format": {"const": FORMAT},
            "version": {"const": VERSION},
            "rule": {**TEXT, "description": "Name of the rule."},
            "result": {**TEXT, "description": "The rule's into: what the layer is."},
            "code": {**_integer("i"), "description": "The rule's code; 0 where it has none."},
            "dialect": {"enum": list(DIALECTS), "description": "What the file was before anything was fused."},
            "featureVersions": _array(
                NUMBER,
                minItems=3,
                maxItems=3,
                description="bindingIdsScheme, weightsLayoutScheme, constantTensorsAsInputs of that file.",
            ),
            "inputs": {**NUMBER, "description": "Number of data inputs: the first input slots."},
            "constants": _array({"$ref": "#/$defs/constant"}, description="What the next input slots hold."),
            "layers": _array({"$ref": "#/$defs/layer"}, minItems=1, description="The one with the outputs first."),
            "outputs": _array(NUMBER, description="Per output slot that of layers[0]: 0, 1, 2 ..."),
        },
        description="Its own slot is the last one, behind data inputs and constants.",
    )


def _constant() -> dict[str, Any]:
    layer = {**NUMBER, "description": "Number of the layer it belonged to."}
    layout = {"type": ["string", "null"], "description": "A letter per axis, where that is known."}
    return {
        "oneOf": [
            _object(
                {"layer": layer, "field": TEXT, "layout": layout},
                description="A member tensor of that name.",
            ),
            _object(
                {"layer": layer, "slot": NUMBER, "name": TEXT, "layout": layout},
                description="A Constant layer of that name, on that input slot.",
            ),
        ]
    }


def _source() -> dict[str, Any]:
    return {
        "oneOf": [
            _object({"input": NUMBER}, description="Data input of that number."),
            _object({"layer": NUMBER, "slot": NUMBER}, description="Output slot of a layer of this recipe."),
            _object({"constant": NUMBER}, description="Constant of that number."),
        ]
    }


def _override() -> dict[str, Any]:
    return _object({"slot": NUMBER, "isOverridden": {"type": "boolean"}, "info": {"$ref": "#/$defs/info"}})


def _info() -> dict[str, Any]:
    table = schema().tables["TensorInfo"]
    fields = {field.name: _field(field) for field in table.fields}
    fields["dataType"] = {"enum": sorted(DTYPES)}
    return {"anyOf": [{"type": "null"}, _object(fields)], "description": "A TensorInfo; null where there was none."}


def _layer(kinds: list[LayerType]) -> dict[str, Any]:
    made = _object(
        {
            "type": {"enum": [kind.name for kind in kinds]},
            "name": {**TEXT, "description": "Bytes that are no UTF-8 are the surrogates U+DC80 to U+DCFF."},
            "params": {"description": "The descriptor, every field with its value; null where the layer lacked it."},
            "inputs": _array({"$ref": "#/$defs/source"}),
            "outputs": _array({"$ref": "#/$defs/info"}),
            "overrides": _array({"$ref": "#/$defs/override"}),
            "recipe": {"$ref": "#/$defs/recipe", "description": "Of a layer that was opaque itself."},
        }
    )
    made["required"].remove("recipe")
    made["allOf"] = [_of_type(kind) for kind in kinds]
    return made


def _of_type(kind: LayerType) -> dict[str, Any]:
    """What holds for layers of one type."""
    facts = slot_facts()[kind.name]
    then: dict[str, Any] = {"params": {"$ref": f"#/$defs/params.{kind.name}"}}
    for slots in ("inputs", "outputs"):
        counts = facts[slots]
        if isinstance(counts, int):
            then[slots] = {"minItems": counts, "maxItems": counts}
        elif isinstance(counts, list):
            then[slots] = {"anyOf": [{"minItems": count, "maxItems": count} for count in counts]}
    if kind.name != "StandIn":
        then["recipe"] = False
    return {"if": {"properties": {"type": {"const": kind.name}}, "required": ["type"]}, "then": {"properties": then}}


# Descriptors


def _params(kind: LayerType) -> dict[str, Any]:
    if kind.descriptor is None:
        return {"const": {}}
    return {"anyOf": [{"type": "null"}, _table(kind.descriptor)]}


def _table(table: Table) -> dict[str, Any]:
    return _object({field.name: _field(field) for field in table.fields})


def _field(field: Field) -> dict[str, Any]:
    if field.kind == "enum":
        return {"$ref": f"#/$defs/enum.{field.type}"}
    if field.kind == "scalar":
        return _scalar(field.type)
    if field.kind == "string":
        return TEXT
    if field.kind == "scalars":
        return _array(_scalar(field.type))
    table = schema().tables[field.type]
    value = _table(table) if table.wrapped is None else _array(_scalar(table.wrapped.type))
    return _array(value) if field.kind == "tables" else value


def _scalar(kind: str) -> dict[str, Any]:
    if kind == "float":
        return {"$ref": "#/$defs/float"}
    return {"type": "boolean"} if kind == "bool" else _integer(SCALARS[kind])


def _enums(kinds: list[LayerType]) -> list[Enum]:
    """The enums of descriptors, each once, sorted."""
    found: dict[str, Enum] = {}
    tables = [kind.descriptor for kind in kinds if kind.descriptor is not None]
    for table in tables:
        for field in table.fields:
            if field.kind == "enum":
                found[field.type] = schema().enums[field.type]
            elif field.kind in ("table", "tables"):
                tables.append(schema().tables[field.type])
    return [found[name] for name in sorted(found)]


def _enum(enum: Enum) -> dict[str, Any]:
    """A name of Arm NN's; a value that has none is its number."""
    return {"anyOf": [{"enum": list(enum.values)}, {**_integer(enum.format), "not": {"enum": sorted(enum.names)}}]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
