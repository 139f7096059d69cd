"""standin.hpp reads what Python reads, and of anything else says what is wrong."""

from __future__ import annotations

import copy
import json
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from fusion_engine import resources
from fusion_engine.cli import main
from fusion_engine.recipe_values import Wrong
from fusion_engine.recipes import MAX_BYTES, decode, encode
from tests.support import recipes

PROGRAM = Path(__file__).parents[1] / "support" / "standin_dump.cpp"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

pytestmark = pytest.mark.xdist_group("standin.hpp")

Reader: TypeAlias = Callable[[Iterable[bytes]], list[Any]]
"""Takes recipes; gives what the header reads of each, or {"error": ..., "place": ...}."""


def compiled(folder: Path, *options: str) -> Reader:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    program = folder / "standin_dump"
    include = str(resources.include_folder())
    command = [compiler, "-std=c++17", *STRICT, *options, "-I", include, str(PROGRAM), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def read(records: Iterable[bytes]) -> list[Any]:
        given = list(records)
        stream = b"".join(struct.pack("<I", len(record)) + record for record in given)
        run = subprocess.run([program], input=stream, capture_output=True, check=False, timeout=120)
        assert run.returncode == 0, run.stderr.decode("utf-8", "replace")
        found = [json.loads(line) for line in run.stdout.splitlines()]
        assert len(found) == len(given)
        return found

    return read


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return compiled(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def read_sanitized(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return compiled(tmp_path_factory.mktemp("sanitized"), *SANITIZED)


# What Python reads, as the program prints it


def text(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").hex()


def real(value: Any) -> dict[str, str]:
    if isinstance(value, str) and value.startswith("nan"):
        return {"f": value.partition(":")[2] or "7fc00000"}
    return {"f": struct.pack(">f", float(value)).hex()}


def plain(value: Any) -> Any:
    """Any JSON: texts as hexadecimal, floats as bits. Recipes in tests are shallow."""
    if isinstance(value, dict):
        return {text(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return real(value)
    return text(value) if isinstance(value, str) else value


def tensor(info: dict[str, Any] | None) -> Any:
    if info is None:
        return None
    scales = info["quantizationScales"]
    return [
        text(info["dataType"]),
        info["dimensions"],
        [real(scale) for scale in scales or [info["quantizationScale"]]],
        info["quantizationOffset"],
        info["quantizationDim"] if scales else -1,
        info["dimensionality"],
        info["dimensionSpecificity"],
        info["isConstant"],
    ]


def source(reference: dict[str, int]) -> list[Any]:
    (kind,) = {"input", "layer", "constant"} & reference.keys()
    return [kind, reference[kind], reference.get("slot", 0)]


def tensors(recipe: dict[str, Any]) -> list[int | None]:
    """Numbers of the constants that are weights, biases and mean of each layer."""
    found: list[int | None] = []
    for number, layer in enumerate(recipe["layers"]):
        for field, slot in (("weights", 1), ("biases", 2), ("mean", None)):
            constants = recipe["constants"]
            at = next(
                (k for k, c in enumerate(constants) if c["layer"] == number and c.get("field") == field),
                None,
            )
            weighted = ("Convolution2d", "Convolution3d", "DepthwiseConvolution2d", "FullyConnected")
            if at is None and slot is not None and layer["type"] in weighted and slot < len(layer["inputs"]):
                at = layer["inputs"][slot].get("constant")
            found.append(at)
    return found


def expected(outermost: dict[str, Any]) -> list[Any]:
    found = []
    pending = [outermost]
    for recipe in pending:
        constants = [
            [c["layer"], text(c.get("field", "")), c.get("slot", -1), text(c.get("name", "")), text(c["layout"] or "")]
            for c in recipe["constants"]
        ]
        head = [
            text(recipe["result"]),
            text(recipe["rule"]),
            recipe["code"],
            text(recipe["dialect"]),
            recipe["featureVersions"],
            recipe["inputs"],
            constants,
            recipe["outputs"],
            recipe["inputs"] + len(constants) + 1,
            tensors(recipe),
        ]
        layers = [
            [
                text(layer["type"]),
                text(layer["name"]),
                plain(layer["params"]),
                [source(reference) for reference in layer["inputs"]],
                [tensor(info) for info in layer["outputs"]],
                [[o["slot"], o["isOverridden"], tensor(o["info"])] for o in layer["overrides"]],
                "recipe" in layer,
            ]
            for layer in recipe["layers"]
        ]
        found.append([head, layers])
        pending.extend(layer["recipe"] for layer in recipe["layers"] if "recipe" in layer)
    return found


def assert_same(read: Reader, data: Iterable[bytes]) -> None:
    given = list(data)
    for record, found in zip(given, read(given), strict=True):
        assert found == expected(decode(record)), record


def message(found: Any) -> tuple[str, str]:
    """What was wrong, and where."""
    assert isinstance(found, dict), found
    return bytes.fromhex(found["error"]).decode("utf-8", "replace"), bytes.fromhex(found["place"]).decode("utf-8")


def test_the_command_prints_where_the_header_lies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["include-dir"]) == 0
    out, err = capsys.readouterr()
    assert Path(out.removesuffix("\n")) == resources.include_folder()
    assert (resources.include_folder() / "fusion_engine" / "standin.hpp").is_file()
    assert err == ""


def test_the_command_says_where_no_header_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "__file__", str(tmp_path / "resources.py"))
    assert main(["include-dir"]) == 2
    assert "install fusion_engine again" in capsys.readouterr().err


# Right recipes


def test_reads_the_golden_recipes(read: Reader) -> None:
    found = recipes.golden()
    assert len(found) >= 4
    assert_same(read, found.values())


def test_reads_every_layer_type_with_every_parameter(read: Reader) -> None:
    found = recipes.synthetic()
    assert len(found) > 400
    assert_same(read, found)


def test_reads_the_recipes_of_the_corpus(read: Reader) -> None:
    found = recipes.from_corpus()
    if not found:
        pytest.skip(f"there is no corpus in {recipes.CORPUS}")
    assert len(found) > 400
    assert_same(read, found)


def numbers() -> list[bytes]:
    """A recipe with a parameter written in ways that are not canonical."""
    base = json.loads(recipes.golden()["conv_relu"])
    base["layers"][0]["params"]["a"] = "A"
    shown = json.dumps(base, indent=1, ensure_ascii=True).replace('"format": ', '"format":').replace("\n", "\r\n\t")
    ways = ("0.10", "1.0e+2", "1E2", "-0.0", "1e-400", "-1e-320", "1e-30", "0.000e999999999999", "1.5e38")
    return [
        shown.replace('"A"', way, 1).encode() for way in (*ways, "3.4028235677973362e38", "0." + "0" * 999 + "1e999")
    ]


def test_reads_json_that_is_not_canonical(read: Reader) -> None:
    base = json.loads(recipes.golden()["conv_relu"])
    name = '"\\u0072\\/\\ud83d\\ude00\\u00e9"'
    escaped = json.dumps(base, sort_keys=True).replace('"relu"', name, 1).replace('"format": ', '"format":')
    assert_same(read, [*numbers(), escaped.encode()])


def test_reads_numbers_by_streams(tmp_path: Path, read: Reader) -> None:
    """As with a standard library whose std::from_chars knows integers only."""
    by_streams = compiled(tmp_path, "-DFUSION_ENGINE_WITHOUT_TO_CHARS")
    found = recipes.synthetic()
    assert by_streams(found) == read(found)
    assert_same(by_streams, numbers())
    message(by_streams([HOSTILE["huge exponent"]])[0])


def test_reads_with_the_sanitizers(read_sanitized: Reader) -> None:
    assert_same(read_sanitized, [*recipes.golden().values(), *recipes.synthetic()])


# Wrong ones


def changed(name: str, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A golden recipe with a change."""
    found = copy.deepcopy(json.loads(recipes.golden()[name]))
    change(found)
    return encode(found)


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    """A change: the last of ``path`` is the value, the others lead to where it goes."""
    *before, last, value = path

    def change(found: Any) -> None:
        for step in before:
            found = found[step]
        found[last] = value

    return change


WRONG: dict[str, tuple[bytes, str, str]] = {
    "no recipe": (b'{"a":1}', "", "not marked as a recipe; leave the layer to others"),
    "empty": (b"", "", "there are no bytes"),
    "version": (
        changed("conv_relu", put("version", 2)),
        "version",
        "is 2, and this header reads version 1: use a newer",
    ),
    "version of another kind": (changed("conv_relu", put("version", "1")), "version", "is a text, expected an integer"),
    "unknown key": (changed("conv_relu", put("extra", 1)), "", "has 'extra', which the format does not have"),
    "missing key": (changed("conv_relu", lambda found: found.pop("rule")), "", "has no 'rule'; it has 'code'"),
    "code": (changed("conv_relu", put("code", 2**31)), "code", "is 2147483648, expected -2147483648 to 2147483647"),
    "no layers": (changed("conv_relu", put("layers", [])), "", "it has no layers"),
    "feature versions": (changed("conv_relu", put("featureVersions", [1, 2])), "featureVersions", "three numbers"),
    "layer": (changed("conv_relu", put("layers", 1, "name", 5)), "layers[1].name", "is an integer, expected a text"),
    "source": (
        changed("conv_relu", put("layers", 0, "inputs", 0, {"layer": 1, "slot": 1})),
        "layers[0].inputs[0]",
        "comes from nowhere",
    ),
    "source of two kinds": (
        changed("conv_relu", put("layers", 0, "inputs", 0, {"input": 0, "slot": 1})),
        "layers[0].inputs[0]",
        "has 'slot', which the format does not have",
    ),
    "a data input twice": (changed("conv_relu", put("layers", 0, "inputs", 0, {"input": 0})), "inputs", "once each"),
    "data inputs unread": (changed("conv_relu", put("inputs", 4_000_000_000)), "inputs", "once each"),
    "cycle": (
        changed(
            "constant_add",
            lambda found: found["layers"][1]["inputs"].__setitem__(1, {"layer": 0, "slot": 0}),
        ),
        "constants[0]",
        "is not on the input slot that it names",
    ),
    "true cycle": (
        changed("conv_relu", put("layers", 1, "inputs", [{"input": 0}, {"layer": 0, "slot": 0}])),
        "layers",
        "feed each other in a cycle",
    ),
    "constant of no layer": (
        changed("conv_relu", put("constants", 1, "layer", 2)),
        "constants[1].layer",
        "there are 2",
    ),
    "a member twice": (changed("conv_relu", put("constants", 1, "field", "weights")), "constants", "twice"),
    "outputs": (changed("splitter", put("outputs", [0])), "outputs", "are not those of layers[0]"),
    "outputs out of order": (changed("splitter", put("outputs", [1, 0])), "outputs[0]", "is not 0"),
    "override": (
        changed("splitter", put("layers", 0, "overrides", 0, "slot", 1)),
        "layers[0].overrides[0].slot",
        "is 1, and there are 1 input slots",
    ),
    "info": (
        changed("splitter", put("layers", 0, "outputs", 1, "dimensions", 0, -1)),
        "layers[0].outputs[1].dimensions[0]",
        "is -1, expected 0 to 4294967295",
    ),
    "scale": (
        changed("splitter", put("layers", 0, "outputs", 0, "quantizationScale", "nan:7fc00000")),
        "layers[0].outputs[0].quantizationScale",
        "is the text 'nan:7fc00000', expected a float",
    ),
    "infinite scale in disguise": (
        changed("splitter", put("layers", 0, "outputs", 0, "quantizationScale", "nan:7f800000")),
        "layers[0].outputs[0].quantizationScale",
        "expected a float",
    ),
    "recipe of no StandIn": (
        changed("nested", put("layers", 1, "type", "Floor")),
        "layers[1]",
        "has a recipe and is a 'Floor', no StandIn",
    ),
    "nested": (
        changed("nested", put("layers", 1, "recipe", "layers", 1, "inputs", 0, {"constant": 0})),
        "layers[1].recipe.layers[1].inputs[0]",
        "comes from nowhere",
    ),
    "unread": (changed("conv_relu", put("layers", 0, "inputs", [])), "layers[1]", "is read by no other layer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_says_what_is_wrong_and_where(read: Reader, name: str) -> None:
    data, place, reason = WRONG[name]
    with pytest.raises(Wrong):
        decode(data)
    found, where = message(read([data])[0])
    assert reason in found
    assert where == place
    assert found.startswith(f"{place}: " if place else "")


def in_name(data: bytes) -> bytes:
    """A golden recipe with these bytes in a name."""
    return recipes.golden()["conv_relu"].replace(b'"relu"', b'"' + data + b'"', 1)


def in_place_of_code(data: bytes) -> bytes:
    return recipes.golden()["conv_relu"].replace(b'"code":0', b'"code":' + data, 1)


HOSTILE = {
    "twice": in_place_of_code(b'0,"code":0'),
    "twice, escaped": in_place_of_code(b'0,"co\\u0064e":0'),
    "comma": in_place_of_code(b"0,"),
    "big": in_place_of_code(b"9" * 30),
    "bigger": in_place_of_code(b"9" * 100_000),
    "huge exponent": in_place_of_code(b"1e999999999999999999999"),
    "leading zero": in_place_of_code(b"00"),
    "plus": in_place_of_code(b"+1"),
    "minus": in_place_of_code(b"-"),
    "point": in_place_of_code(b"1."),
    "no exponent": in_place_of_code(b"1.0e+"),
    "float": in_place_of_code(b"0.0"),
    "NaN": in_place_of_code(b"NaN"),
    "Infinity": in_place_of_code(b"-Infinity"),
    "nul": in_place_of_code(b"\x00"),
    "word": in_place_of_code(b"nul"),
    "control": in_name(b"\x1f"),
    "no UTF-8": in_name(b"\xff"),
    "overlong": in_name(b"\xc0\xaf"),
    "overlong of three": in_name(b"\xe0\x80\xaf"),
    "surrogate as bytes": in_name(b"\xed\xa0\x80"),
    "beyond Unicode": in_name(b"\xf4\x90\x80\x80"),
    "cut sequence": in_name(b"\xe5\x8d"),
    "half a pair": in_name(b"\\ud83d"),
    "half a pair and a letter": in_name(b"\\ud83d\\u0041"),
    "surrogate of no byte": in_name(b"\\udc7f"),
    "unknown escape": in_name(b"\\x41"),
    "short escape": in_name(b"\\u41"),
    "signed escape": in_name(b"\\u-041"),
    "escape at the end": recipes.golden()["conv_relu"] + b'"\\',
    "after the end": recipes.golden()["conv_relu"] + b"{}",
    "mark": b"\xef\xbb\xbf" + recipes.golden()["conv_relu"],
    "deep lists": b'{"format":"fusion-engine recipe","a":' + b"[" * 1_000_000,
    "deep objects": b'{"format":"fusion-engine recipe"' + b',"a":{"a":1' * 500_000,
    "129 deep": b'{"format":"fusion-engine recipe","a":' + b"[" * 128 + b"]" * 128 + b"}",
    "closed wrong": b'{"format":"fusion-engine recipe","a":[1}]',
    "not in an object": b'["format":"fusion-engine recipe"]',
    "name without quotes": b'{"format":"fusion-engine recipe",a:1}',
    "17 levels": encode(
        recipes.around(
            [{**recipes.nested(2, random.Random(1))["layers"][0], "recipe": recipes.nested(16, random.Random(1))}],
            random.Random(1),
        )
    ),
    "too large": recipes.golden()["conv_relu"].ljust(MAX_BYTES + 1),
    "numbers": b'{"format":"fusion-engine recipe","a":[' + b"0," * 400_000 + b"0]}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_an_error(read_sanitized: Reader, name: str) -> None:
    data = HOSTILE[name]
    with pytest.raises(Wrong):
        decode(data)
    found, _ = message(read_sanitized([data])[0])
    assert len(found) < 1000


def test_every_cut_is_an_error(read_sanitized: Reader) -> None:
    data = recipes.golden()["nested"]
    for found in read_sanitized(data[:size] for size in range(len(data))):
        message(found)


def damaged(rng: random.Random) -> bytes:
    """A recipe with bits flipped, bytes replaced, cut out or doubled."""
    data = bytearray(rng.choice([*recipes.golden().values(), *recipes.synthetic()]))
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice(b'{}[],:"\\0123456789-+.eE\x00\xff tfn')
            case 2:
                del data[at : at + rng.randint(1, 9)]
            case _:
                data[at:at] = data[at : at + rng.randint(1, 30)]
    return bytes(data)


def test_damaged_recipes_are_errors_or_what_python_reads(read_sanitized: Reader) -> None:
    """Whatever Python takes the header reads alike; whatever it does not take Python does not either."""
    rng = random.Random(11)
    given = [damaged(rng) for _ in range(3000)]
    taken = refused = 0
    for data, found in zip(given, read_sanitized(given), strict=True):
        try:
            right = decode(data)
        except Wrong:
            refused += isinstance(found, dict)
            continue
        taken += 1
        assert found == expected(right), data
    assert taken > 100
    assert refused > 2000
