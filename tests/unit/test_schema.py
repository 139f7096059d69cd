"""The schemas: compiled form against the .fbs, the facts of every release, and flatc; and layers.toml."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fusion_engine.schema import DIALECTS, SCALARS, compiled, float32, schema, slot_facts

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT.parent / "shared" / "schema" / "dialects.json"
COMPILE = runpy.run_path(str(ROOT / "schema" / "compile.py"))
FILES: dict[str, str] = COMPILE["DIALECTS"]


# The compiled form and the .fbs


def test_compiled_form_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert COMPILE["main"](["--check"]) == 0
    assert capsys.readouterr().out == "compiled.json matches the .fbs files\n"


def test_check_tells_of_an_old_compiled_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = COMPILE["main"]
    before = main.__globals__["COMPILED"]
    main.__globals__["COMPILED"] = tmp_path / "compiled.json"
    try:
        assert main(["--check"]) == 1
        assert main([]) == 0
        assert main(["--check"]) == 0
        (tmp_path / "compiled.json").write_text("{}")
        assert main(["--check"]) == 1
    finally:
        main.__globals__["COMPILED"] = before
    assert capsys.readouterr().out.count("out of date: run python schema/compile.py") == 2


def test_compiling_a_schema() -> None:
    found = COMPILE["compile_schema"](
        """
        // a comment
        namespace n; file_extension "x"; attribute "formerly";
        enum E : byte { A, B = 5, C }
        struct S { a: uint; b: int; }
        union U { T, V }
        table T { s: S; u: U; e: E = C; f: float = 1e-12; g: [E]; old: bool = true (formerly: "older"); }
        table V { }
        root_type T;
        """
    )
    assert found == {
        "root": "T",
        "extension": "x",
        "enums": {"E": {"type": "byte", "values": {"A": 0, "B": 5, "C": 6}}},
        "unions": {"U": {"T": 1, "V": 2}},
        "structs": {"S": [["a", "uint"], ["b", "int"]]},
        "tables": {
            "T": [
                [0, "s", "S", None, None],
                [2, "u", "U", None, None],
                [3, "e", "E", 6, None],
                [4, "f", "float", 1e-12, None],
                [5, "g", "[E]", None, None],
                [6, "old", "bool", True, "older"],
            ],
            "V": [],
        },
    }


# The facts of the releases


def releases() -> list[dict[str, Any]]:
    if not FACTS.exists():
        pytest.skip(f"the facts of the releases are not beside the checkout ({FACTS})")
    found: list[dict[str, Any]] = json.loads(FACTS.read_text("utf-8"))
    return found


def of_release(release: dict[str, Any]) -> str:
    name = str(release["version"]).split(",")[0].removeprefix("v")
    return name if name in DIALECTS else "current"


def default_of(fact: Any, kind: str, enums: dict[str, dict[str, int]]) -> Any:
    """A default as the facts write it, as the compiled form has it."""
    if kind in enums:
        return enums[kind][fact] if fact is not None else 0
    if kind == "bool":
        return fact == "true"
    if kind in ("float", "double"):
        return float(fact or 0)
    return int(fact or 0) if kind in SCALARS else None


def union_slot(row: list[Any]) -> int:
    """The facts give a union's tag, the compiled form its value."""
    return int(row[0]) + (row[2] in ("Layer", "ConstTensorData"))


def test_every_release_reads_as_its_dialect_says() -> None:
    """Slots, types, defaults, enum values and union tags of each release are those of its dialect."""
    for release in releases():
        ours = compiled()[of_release(release)]
        version = release["version"]
        assert release["union Layer"].items() <= ours["unions"]["Layer"].items(), version
        enums = {**release["enums"], "LayerType": release["LayerType"]}
        for name, values in enums.items():
            assert values.items() <= ours["enums"][name]["values"].items(), (version, name)
        for table, rows in release["tables"].items():
            by_slot = {row[0]: row for row in ours["tables"][table]}
            for row in rows:
                slot, name, kind, default, former = by_slot[union_slot(row)]
                assert row[1] in (name, former), (version, table)
                if name in ("inputIds", "outputIds"):  # unsigned until release 19.11: they were layer indices
                    assert row[2].strip("[]") in ("int", "uint")
                    continue
                assert (row[2], default_of(row[3], row[2], enums)) == (kind, default), (version, table, name, slot)


def test_the_newest_release_of_a_dialect_is_the_dialect() -> None:
    newest = {of_release(release): release for release in releases()}
    assert list(newest) == list(DIALECTS)
    for dialect, release in newest.items():
        ours = compiled()[dialect]
        assert release["union Layer"] == ours["unions"]["Layer"]
        assert {**release["enums"], "LayerType": release["LayerType"]} == {
            name: enum["values"] for name, enum in ours["enums"].items()
        }
        assert release["tables"].keys() == ours["tables"].keys()
        for table, rows in release["tables"].items():
            assert [(union_slot(row), row[1]) for row in rows] == [(row[0], row[1]) for row in ours["tables"][table]]


def test_dialects_that_are_one_numbering_give_one_tag() -> None:
    assert {dialect: schema(dialect).layers["Output"].tag for dialect in DIALECTS} == {
        "seed": 4,
        "19.02": 9,
        "19.05": 11,
        "current": 11,
    }
    assert [schema(dialect).layers["Quantize"].tag for dialect in ("19.05", "current")] == [36, 37]


# flatc


@pytest.fixture(scope="module", params=DIALECTS)
def generated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """Dialect, and the Python text that flatc makes of each table, enum, struct and union."""
    flatc = shutil.which("flatc")
    if flatc is None:
        pytest.skip("flatc is not installed (flatbuffers-compiler)")
    dialect = str(request.param)
    out = tmp_path_factory.mktemp("flatc")
    file = ROOT / "schema" / FILES[dialect]
    subprocess.run([flatc, "--python", "--no-warnings", "-o", str(out), str(file)], check=True, capture_output=True)
    texts = {path.stem: path.read_text("utf-8") for path in out.rglob("*.py") if path.stem != "__init__"}
    return dialect, texts


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def accessors(text: str) -> dict[str, tuple[int, str | None]]:
    """Slot and default of every accessor that flatc made for a table."""
    found: dict[str, tuple[int, str | None]] = {}
    for name, body in re.findall(r"    def (\w+)\(self(?:, j)?\):\n((?:        .*\n|\n)+)", text):
        offset = re.search(r"self\._tab\.Offset\((\d+)\)", body)
        if offset and not name.endswith(("Length", "AsNumpy", "IsNone")):
            returned = re.findall(r"^        return (\S+)$", body, re.MULTILINE)
            found[name] = ((int(offset[1]) - 4) // 2, returned[-1] if returned else None)
    return found


def test_flatc_agrees_on_tables(generated: tuple[str, dict[str, str]]) -> None:
    dialect, texts = generated
    facts = schema(dialect)
    for table in facts.tables.values():
        expected: dict[str, int] = {}
        for field in table.fields:
            expected[camel(field.name)] = field.slot
            if field.kind == "union":
                expected[f"{camel(field.name)}Type"] = field.slot - 1
        found = accessors(texts[table.name])
        assert {name: slot for name, (slot, _) in found.items()} == expected, table.name
        for field in table.fields:
            if field.kind in ("scalar", "enum"):
                default = found[camel(field.name)][1]
                assert default is not None
                value = {"True": 1.0, "False": 0.0}.get(default)
                value = float(default) if value is None else value
                assert float32(value) == float32(float(field.default)), (table.name, field.name)


def test_flatc_agrees_on_enums_and_unions(generated: tuple[str, dict[str, str]]) -> None:
    dialect, texts = generated
    facts = schema(dialect)
    numbers = {
        name: {member: int(value) for member, value in re.findall(r"^    (\w+) = (-?\d+)$", text, re.MULTILINE)}
        for name, text in texts.items()
    }
    for enum in facts.enums.values():
        assert numbers[enum.name] == enum.values
    for union, members in facts.unions.items():
        assert numbers[union] == {"NONE": 0, **members}
    assert facts.structs == {"Connection": (("sourceLayerIndex", "uint"), ("outputSlotIndex", "uint"))}
    assert "return 8" in texts["Connection"]


# Schema as objects


@pytest.mark.parametrize("dialect", DIALECTS)
def test_layers(dialect: str) -> None:
    facts = schema(dialect)
    assert set(facts.layers) == set(facts.enums["LayerType"].values)
    for name, layer in facts.layers.items():
        assert facts.by_tag[layer.tag] is layer
        assert layer.value == facts.enums["LayerType"].values[name]
        assert layer.bindable == (name in ("Input", "Output"))
        assert layer.table.fields[0].name == "base"


def test_tensors_of_layers() -> None:
    layers = schema().layers
    assert layers["BatchNormalization"].tensors == (("mean",), ("variance",), ("beta",), ("gamma",))
    assert layers["Constant"].tensors == (("input",),)
    assert layers["Convolution3d"].tensors == ()
    assert layers["QuantizedLstm"].tensors[0] == ("inputParams", "inputToInputWeights")
    assert len(layers["Lstm"].tensors) == 21


def test_fields() -> None:
    descriptor = schema().layers["Splitter"].descriptor
    assert descriptor is not None
    kinds = {field.name: (field.kind, field.type) for field in descriptor.fields}
    assert kinds == {
        "origins": ("table", "OriginsDescriptor"),
        "viewSizes": ("tables", "UintVector"),
        "hasAxis": ("scalar", "bool"),
        "axis": ("scalar", "int"),
    }
    wrapped = schema().tables["UintVector"].wrapped
    assert wrapped is not None
    assert (wrapped.name, wrapped.kind, wrapped.type) == ("data", "scalars", "uint")
    assert descriptor.wrapped is None
    eps = schema().tables["L2NormalizationDescriptor"].by_name["eps"]
    assert eps.default == float32(1e-12) != 1e-12
    assert schema().tables["ActivationDescriptor"].by_name["activationFunction"].former == "function"
    assert schema().tables["AnyLayer"].slots == 2


def test_unknown_dialects() -> None:
    with pytest.raises(KeyError):
        schema("23.08")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 0.5), (0.1, 0.10000000149011612), (1e39, float("inf")), (-1e39, float("-inf")), (1, 1.0)],
)
def test_float32(value: float, expected: float) -> None:
    assert float32(value) == expected


# layers.toml

KNOWN = {
    "inputs",
    "outputs",
    "descriptor",
    "tensors",
    "tensors_if",
    "weights",
    "even",
    "same_length",
    "one_unknown",
    "views",
}


def test_every_layer_type_has_its_facts() -> None:
    assert set(slot_facts()) == set(schema().layers)


@pytest.mark.parametrize("kind", sorted(slot_facts()))
def test_facts_name_what_the_schema_has(kind: str) -> None:
    facts, layer = slot_facts()[kind], schema().layers[kind]
    assert set(facts) <= KNOWN
    assert ("descriptor" in facts) == (layer.descriptor is not None)
    tensors = {path[-1] for path in layer.tensors}
    needed = [*facts.get("tensors", []), *(t for rule in facts.get("tensors_if", []) for t in rule["tensors"])]
    assert set(needed) <= tensors
    paths = [facts[slots] for slots in ("inputs", "outputs") if isinstance(facts[slots], str)]
    paths += [rule["field"] for rule in facts.get("tensors_if", [])]
    paths += [name for rule in ("even", "same_length", "one_unknown", "views") for name in facts.get(rule, [])]
    paths += ["biasEnabled"] if "weights" in facts else []
    for path in paths:
        table = layer.descriptor
        for part in path.split("."):
            assert table is not None
            table = schema().tables.get(table.by_name[part].type)
    if "weights" in facts:
        assert facts["weights"] in ("members", "inputs", "either")
        assert (facts["weights"] != "inputs") == ({"weights", "biases"} <= tensors)
