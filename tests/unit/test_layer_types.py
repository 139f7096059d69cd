"""What rules can name, and the command that shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fusion_engine.cli import main
from fusion_engine.errors import RuleError
from fusion_engine.language.names import quantities
from fusion_engine.language.rule import FusingRule
from fusion_engine.layer_types import describe_type, type_lines
from fusion_engine.schema import schema

TYPES = sorted(schema().layers)

LITERALS = {"int": "1", "float": "0.5", "bool": "1", "string": '"x"', "dimension": "3x3"}


def literal(entry: dict[str, Any]) -> str:
    return f'"{entry["values"][0]}"' if entry["values"] else LITERALS[entry["kind"]]


@pytest.mark.parametrize("name", TYPES)
def test_what_is_told_of_a_type_can_be_asked_in_a_rule(name: str) -> None:
    found = describe_type(name)
    entries = [*found["fields"], *found["values"]]
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names))
    former = {field["former"] for field in found["fields"]} - {None}
    assert {*names, *former} == {*quantities(name)}
    for entry in entries:
        if entry["kind"] == "list":
            with pytest.raises(RuleError, match="is a list"):
                FusingRule(f"{name}[{entry['name']} == 1]", group="G")
            continue
        right = "3x3x3" if entry["name"] in ("kernel", "stride", "dilation") and "3d" in name else literal(entry)
        FusingRule(f"{name}[{entry['name']} == {right}]", group="G")
    told = "\n".join(type_lines(found))
    assert all(f"    {field['name']}: " in told for field in found["fields"])
    for entry in found["values"]:
        head, dot, tail = entry["name"].partition(".")
        assert entry["name"] in told or (f"    {head + dot}: " in told and tail in told)


def test_a_convolution() -> None:
    found = describe_type("Convolution2d")
    assert (found["inputs"], found["outputs"], found["parameterSlots"]) == ([1, 2, 3], 1, [1, 2])
    assert found["constants"] == ["weights", "biases"]
    fields = {field["name"]: field for field in found["fields"]}
    assert fields["dilationX"] == {"name": "dilationX", "kind": "int", "values": [], "default": 1, "former": None}
    assert fields["biasEnabled"]["default"] is False
    assert (fields["dataLayout"]["default"], fields["dataLayout"]["values"][:2]) == ("NCHW", ["NHWC", "NCHW"])
    assert {"kernel", "kernel.w", "channels", "weights.bytes", "bias.scale"} <= {v["name"] for v in found["values"]}


def test_spellings_and_the_value_that_each_means() -> None:
    assert describe_type("Multiplication")["spellings"] == [
        {"type": "ElementwiseBinary", "where": 'operation == "Mul"'},
    ]
    (operation,) = describe_type("Multiplication")["fields"]
    assert operation["default"] == "Mul"
    others = describe_type("ElementwiseUnary")["spellings"]
    assert others == [{"type": "Abs", "where": None}, {"type": "Rsqrt", "where": None}]
    assert describe_type("Merger")["spellings"] == [{"type": "Concat", "where": None}]


def test_a_former_name_is_told() -> None:
    assert describe_type("Activation")["fields"][0]["former"] == "function"
    assert any("formerly function" in line for line in type_lines(describe_type("Activation")))


def test_the_command_lists_all_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["types"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines[: len(TYPES)]] == TYPES
    assert "Softmax                     beta axis" in "\n".join(lines)


def test_the_command_shows_types_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["types", "Pooling2d", "Concat"]) == 0
    out = capsys.readouterr().out
    assert '    poolType: one of "Max" "Average" "L2"; "Max" where left out\n' in out
    assert "    kernel: dimension: width x height, and depth where there is one; kernel.w, kernel.h\n" in out
    assert "  inputs: as many as numViews says\n" in out
    assert main(["types", "Pooling2d", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"types": [describe_type("Pooling2d")]}
    assert main(["types", "--json"]) == 0
    assert [one["type"] for one in json.loads(capsys.readouterr().out)["types"]] == TYPES


def test_the_command_knows_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["types", "Softmax", "pooling2d", "x\x1by"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "there is no layer type 'pooling2d' (did you mean 'Pooling2d'" in captured.err
    assert "\x1b" not in captured.err
