"""Recipes to read: the golden ones, one of every layer type with every parameter, odd ones, those of the corpus."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fusion_engine as fe
from fusion_engine.recipes import check, encode, read_recipe
from fusion_engine.schema import SCALARS, Field, LayerType, Table, schema, slots_fit
from fusion_engine.tensor import DTYPES

GOLDEN = Path(__file__).parents[1] / "golden" / "recipes"
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"

FLOATS: tuple[Any, ...] = (
    0.0,
    -0.0,
    0.1,
    1e-8,
    3.4028235e38,
    1e-45,
    "inf",
    "-inf",
    "nan",
    "nan:ffc00000",
    "nan:7fc00001",
)
NAMES = ("", "relu", 'say "a\\b"\n\t\x00/', "卷积/1", "\U0001f600", "bytes\udcff\udc80", "é\udce9", "a" * 300)

_BITS = {"b": 8, "B": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64, "Q": 63}


def golden() -> dict[str, bytes]:
    """The golden recipes by name."""
    return {path.stem: path.read_bytes() for path in sorted(GOLDEN.glob("*.json"))}


def a_scalar(kind: str, rng: random.Random) -> Any:
    """A value of a FlatBuffers scalar type as a recipe has it, often at the ends of its range."""
    if kind == "float":
        return rng.choice(FLOATS)
    if kind == "bool":
        return rng.random() < 0.5
    code = SCALARS[kind]
    low = -(2 ** (_BITS[code] - 1)) if code.islower() else 0
    high = 2 ** (_BITS[code] - 1) - 1 if code.islower() else 2 ** _BITS[code] - 1
    return rng.choice((low, high, 0, 1, rng.randint(low, high)))


def a_field(field: Field, rng: random.Random) -> Any:
    """A value of a field of a descriptor."""
    facts = schema()
    if field.kind == "enum":
        return rng.choice([*facts.enums[field.type].values, 99])
    if field.kind == "scalar":
        return a_scalar(field.type, rng)
    if field.kind == "string":
        return rng.choice(NAMES)
    count = rng.randint(0, 4)
    if field.kind == "scalars":
        return [a_scalar(field.type, rng) for _ in range(count)]
    table = facts.tables[field.type]
    wrapped = table.wrapped
    if field.kind == "tables":
        return [a_table(table, rng) if wrapped is None else _scalars(wrapped.type, rng) for _ in range(count)]
    return a_table(table, rng) if wrapped is None else _scalars(wrapped.type, rng)


def _scalars(kind: str, rng: random.Random) -> list[Any]:
    return [a_scalar(kind, rng) for _ in range(rng.randint(0, 4))]


def a_table(table: Table, rng: random.Random) -> dict[str, Any]:
    """A value of a table of descriptors; no table of the schema holds itself."""
    return {field.name: a_field(field, rng) for field in table.fields}


def an_info(rng: random.Random) -> dict[str, Any] | None:
    """A TensorInfo, or none."""
    if rng.random() < 0.1:
        return None
    dimensionality = rng.randint(0, 2)
    return {
        "dimensions": [
            rng.choice((0, 1, 7, 2**32 - 1)) for _ in range(0 if dimensionality == 2 else rng.randint(0, 5))
        ],
        "dataType": rng.choice(sorted(DTYPES)),
        "quantizationScale": rng.choice(FLOATS),
        "quantizationOffset": rng.choice((-(2**31), -1, 0, 2**31 - 1)),
        "quantizationScales": [rng.choice(FLOATS) for _ in range(rng.randint(0, 3))],
        "quantizationDim": rng.choice((0, 3, 2**32 - 1)),
        "dimensionality": dimensionality,
        "dimensionSpecificity": [rng.random() < 0.5 for _ in range(rng.randint(0, 3))],
        "isConstant": rng.random() < 0.5,
    }


def around(layers: list[dict[str, Any]], rng: random.Random, **entries: Any) -> dict[str, Any]:
    """A recipe with these layers; its data inputs are those that they read."""
    inputs = sum("input" in reference for layer in layers for reference in layer["inputs"])
    return {
        "format": "fusion-engine recipe",
        "version": 1,
        "rule": rng.choice(NAMES),
        "result": "Made",
        "code": rng.choice((0, -1, 17, 2**31 - 1, -(2**31))),
        "dialect": rng.choice(("seed", "19.02", "19.05", "current")),
        "featureVersions": [rng.choice((0, 1, 2**32 - 1)) for _ in range(3)],
        "inputs": inputs,
        "constants": [],
        "layers": layers,
        "outputs": list(range(len(layers[0]["outputs"]))),
        **entries,
    }


def of_type(kind: LayerType, rng: random.Random) -> dict[str, Any]:
    """A recipe of one layer of that type, its member tensors and a Constant on its last slot."""
    counts = [(i, o) for i in range(30) for o in range(1, 9) if slots_fit(kind.name, i, o)]
    inputs, outputs = rng.choice(counts[:8])
    references: list[dict[str, int]] = [{"input": slot} for slot in range(inputs)]
    layouts = {path[-1]: rng.choice((None, "OHWI", "C")) for path in kind.tensors if rng.random() < 0.8}
    constants: list[dict[str, Any]] = [{"layer": 0, "field": f, "layout": layout} for f, layout in layouts.items()]
    if inputs > 1:
        references[-1] = {"constant": len(constants)}
        constants.append({"layer": 0, "slot": inputs - 1, "name": rng.choice(NAMES), "layout": None})
    params: dict[str, Any] | None = {} if kind.descriptor is None else a_table(kind.descriptor, rng)
    if params and rng.random() < 0.1:
        params = None
    overridden = rng.sample(range(inputs), min(inputs, rng.randint(0, 2)))
    layer = {
        "type": kind.name,
        "name": rng.choice(NAMES),
        "params": params,
        "inputs": references,
        "outputs": [an_info(rng) for _ in range(outputs)],
        "overrides": [{"slot": slot, "isOverridden": rng.random() < 0.5, "info": an_info(rng)} for slot in overridden],
    }
    return around([layer], rng, constants=constants)


def nested(levels: int, rng: random.Random) -> dict[str, Any]:
    """A recipe in a recipe ..., the innermost an Activation."""
    found = of_type(schema().layers["Activation"], rng)
    for _ in range(levels - 1):
        layer = {
            "type": "StandIn",
            "name": rng.choice(NAMES),
            "params": {"numInputs": found["inputs"] + 1, "numOutputs": 1},
            "inputs": [{"input": slot} for slot in range(found["inputs"])],
            "outputs": [an_info(rng)],
            "overrides": [],
            "recipe": found,
        }
        found = around([layer], rng)
    return found


@cache
def synthetic() -> tuple[bytes, ...]:
    """Recipes of every layer type, each several times, and nested ones; all of them right."""
    rng = random.Random(3)
    found = []
    for name in sorted(schema().layers):
        kind = schema().layers[name]
        if not kind.bindable and name != "Constant":
            found += [of_type(kind, rng) for _ in range(6)]
    found += [nested(levels, rng) for levels in (2, 3, 16)]
    for recipe in found:
        check(recipe)
    return tuple(encode(recipe) for recipe in found)


@cache
def from_corpus() -> tuple[bytes, ...]:
    """The recipes of the corpus fused with the rules ``npu``, each once, sorted; empty without a corpus."""
    return tuple(sorted(set(_from_corpus())))


def _from_corpus() -> Iterator[bytes]:
    rules = fe.load_rules("npu")
    for path in sorted(CORPUS.rglob("*.armnn")):
        graph = fe.fuse(fe.load(path), rules)
        for key in graph:
            found = read_recipe(graph, key)
            if found is not None:
                yield encode(found)
