"""docs/recipe.schema.json: takes every recipe, and nothing of another shape."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusion_engine.recipe_values import Wrong
from fusion_engine.recipes import check
from fusion_engine.schema import schema
from tests.support import recipes

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / "docs" / "recipe.schema.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema.Draft202012Validator.check_schema(DOCUMENT)
    return jsonschema.Draft202012Validator(DOCUMENT)


def faults(validator: Any, recipe: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}"[:300] for error in validator.iter_errors(recipe)]


def test_the_document_is_that_of_the_schema() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "recipe_schema.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_layer_type_is_in_it() -> None:
    types = set(DOCUMENT["$defs"]["layer"]["properties"]["type"]["enum"])
    assert types == set(schema().layers) - {"Input", "Output", "Constant"}


def test_takes_golden_and_made_recipes(validator: Any) -> None:
    found = [*recipes.golden().values(), *recipes.synthetic()]
    for data in found:
        assert faults(validator, json.loads(data)) == []


def test_takes_the_recipes_of_the_corpus(validator: Any) -> None:
    found = recipes.from_corpus()
    if not found:
        pytest.skip(f"there is no corpus in {recipes.CORPUS}")
    for data in found:
        assert faults(validator, json.loads(data)) == []


def at(*path: Any, value: Any) -> Callable[[Any], None]:
    """A change: what ``path`` leads to becomes ``value``."""

    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = value

    return change


def without(*path: Any) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        del found[path[-1]]

    return change


INFO = ("layers", 0, "outputs", 0)
PARAMS = ("layers", 1, "params")
WRONG: dict[str, tuple[str, Callable[[Any], None]]] = {
    **{f"without {key}": ("conv_relu", without(key)) for key in json.loads(recipes.golden()["conv_relu"])},
    "unknown key": ("conv_relu", at("extra", value=1)),
    "version": ("conv_relu", at("version", value=2)),
    "format": ("conv_relu", at("format", value="recipe")),
    "code too large": ("conv_relu", at("code", value=2**31)),
    "code too small": ("conv_relu", at("code", value=-(2**31) - 1)),
    "code true": ("conv_relu", at("code", value=True)),
    "dialect": ("conv_relu", at("dialect", value="20.08")),
    "two versions": ("conv_relu", at("featureVersions", value=[1, 1])),
    "negative inputs": ("conv_relu", at("inputs", value=-1)),
    "no layers": ("conv_relu", at("layers", value=[])),
    "layers an object": ("conv_relu", at("layers", value={})),
    "a layer's key": ("conv_relu", at("layers", 0, "extra", value=None)),
    "a layer without name": ("conv_relu", without("layers", 0, "name")),
    "no layer type": ("conv_relu", at("layers", 0, "type", value="Convolution")),
    "an Input": ("conv_relu", at("layers", 0, "type", value="Input")),
    "params of another type": ("conv_relu", at("layers", 0, "type", value="Floor")),
    "a param too many": ("conv_relu", at(*PARAMS, "padMiddle", value=0)),
    "a param missing": ("conv_relu", without(*PARAMS, "padLeft")),
    "a param of another kind": ("conv_relu", at(*PARAMS, "padLeft", value="0")),
    "a param below its range": ("conv_relu", at(*PARAMS, "padLeft", value=-1)),
    "a param above its range": ("conv_relu", at(*PARAMS, "padLeft", value=2**32)),
    "a param with a fraction": ("conv_relu", at(*PARAMS, "padLeft", value=0.5)),
    "a truth value as a number": ("conv_relu", at(*PARAMS, "biasEnabled", value=1)),
    "no enum value": ("conv_relu", at(*PARAMS, "dataLayout", value="NHCW")),
    "a number that has a name": ("conv_relu", at(*PARAMS, "dataLayout", value=1)),
    "a number that no byte holds": ("conv_relu", at(*PARAMS, "dataLayout", value=128)),
    "a float too large": ("conv_relu", at("layers", 0, "params", "a", value=3.5e38)),
    "a float in words": ("conv_relu", at("layers", 0, "params", "a", value="Infinity")),
    "the common NaN by its bits": ("conv_relu", at("layers", 0, "params", "a", value="nan:7fc00000")),
    "an infinity as a NaN": ("conv_relu", at("layers", 0, "params", "a", value="nan:ff800000")),
    "a number as a NaN": ("conv_relu", at("layers", 0, "params", "a", value="nan:3f800000")),
    "NaN in capitals": ("conv_relu", at("layers", 0, "params", "a", value="nan:FFC00000")),
    "too few inputs": ("conv_relu", at("layers", 0, "inputs", value=[])),
    "too many inputs": ("conv_relu", at("layers", 0, "inputs", value=[{"layer": 1, "slot": 0}, {"input": 0}])),
    "an input of nothing": ("conv_relu", at("layers", 0, "inputs", 0, value={})),
    "an input of two": ("conv_relu", at("layers", 0, "inputs", 0, value={"input": 0, "constant": 0})),
    "an input of no slot": ("conv_relu", at("layers", 0, "inputs", 0, value={"layer": 1})),
    "no outputs": ("conv_relu", at("layers", 0, "outputs", value=[])),
    "a recipe in an Activation": ("conv_relu", at("layers", 0, "recipe", value=json.loads(recipes.golden()["nested"]))),
    "a recipe that is none": ("nested", at("layers", 1, "recipe", "version", value="1")),
    "a layer in a recipe inside": ("nested", at("layers", 1, "recipe", "layers", 1, "name", value=None)),
    "an info's key": ("conv_relu", without(*INFO, "isConstant")),
    "an info's data type": ("conv_relu", at(*INFO, "dataType", value="Float64")),
    "an info's extent": ("conv_relu", at(*INFO, "dimensions", 0, value=-1)),
    "an info's offset": ("conv_relu", at(*INFO, "quantizationOffset", value=2**31)),
    "an info's scale": ("conv_relu", at(*INFO, "quantizationScale", value=None)),
    "an override without slot": ("splitter", without("layers", 0, "overrides", 0, "slot")),
    "an override that may be": ("splitter", at("layers", 0, "overrides", 0, "isOverridden", value=None)),
    "a constant of two kinds": ("conv_relu", at("constants", 0, "slot", value=1)),
    "a constant of no kind": ("conv_relu", without("constants", 0, "field")),
    "a constant of no layer": ("conv_relu", at("constants", 0, "layer", value=None)),
    "a layout": ("conv_relu", at("constants", 0, "layout", value=7)),
}


@pytest.mark.parametrize("name", WRONG)
def test_refuses_other_shapes(validator: Any, name: str) -> None:
    golden, change = WRONG[name]
    found = copy.deepcopy(json.loads(recipes.golden()[golden]))
    assert faults(validator, found) == []
    change(found)
    assert faults(validator, found)
    with pytest.raises(Wrong):
        check(found)


@pytest.mark.parametrize("value", [None, 1, "recipe", [], {}])
def test_refuses_what_is_no_object_or_empty(validator: Any, value: Any) -> None:
    assert faults(validator, value)
