"""Names of any length: data has all of them, what people read has their ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusion_engine as fe
from fusion_engine.cli import main
from fusion_engine.naming import LONGEST, layer_place, quoted, shortened
from fusion_engine.report import Layers, ModelReport, Report
from fusion_engine.reports import rendered
from fusion_engine.tables import model_lines
from tests.support.nets import Net

LONG = "n" * 60_000 + "MIDDLE" + "m" * 60_000


@given(st.text(max_size=LONGEST))
def test_what_is_short_stays(name: str) -> None:
    assert shortened(name) == name
    assert layer_place(3, name) == f"layer 3 {name!r}"


@given(st.text(min_size=LONGEST + 1, max_size=3 * LONGEST))
def test_what_is_long_keeps_its_ends(name: str) -> None:
    found = shortened(name)
    assert len(found) <= LONGEST
    assert (found[:80], found[-80:]) == (name[:80], name[-80:])
    assert f"...({len(name) - 160} characters more)..." in found


def test_what_is_no_string_is_shown_too() -> None:
    assert quoted(None) == "None"
    assert len(quoted(["x"] * 1000)) < LONGEST


def test_a_long_reason_is_shown_in_part_and_told_whole(tmp_path: Path) -> None:
    """Other packages' folds, predicates and judges say what they like."""
    reason = f"a{LONG}\n{LONG}z"
    layer = fe.LayerRef(1, "x", "Activation")
    models = [
        ModelReport("a", "failed", error=f"a: {reason}"),
        ModelReport("b", "unchanged", refusals=(fe.Refusal("r", layer, reason),), warnings=(reason,)),
    ]
    models[1] = replace(models[1], layers_before=Layers(1, 0), layers_after=Layers(1, 0))
    for model in models:
        lines = model_lines(model, lambda text, _: text, "fused", False)
        assert max(map(len, lines)) < 11_000
        assert not any("MIDDLE" in line for line in lines)
    document = Report(models=models).document()
    for suffix in (".csv", ".xml", ".html"):
        text = rendered(document, suffix)
        assert len(text) < 70_000
        assert "MIDDLE" not in text
    assert json.loads(rendered(document, ".json"))["models"][0]["error"] == f"a: {reason}"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose long names are in refusals."""
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    net = Net()
    conv = net.conv(net.input((1, 2, 2, 1), name=LONG), weights=[[[[2.0]]]], name=f"{LONG}conv")
    net.output(net.activation(conv, "ReLu", name=f"{LONG}relu"), name=f"{LONG}one")
    net.output(net.batch_norm(conv, [1.0], [2.0], [3.0], [4.0], name=f"{LONG}norm"), name=f"{LONG}two")
    fe.save(net.graph, "m/a.armnn")
    net.graph.remove_node(conv)
    (problem, *_) = fe.validate(net.graph)
    assert len(str(problem)) < 1000


COMMANDS = (
    ["fuse", "m", "--out", "o", "--rules", "armnn", "--rules", "npu", "-v", "--fail-on", "refused", "--verify"],
    ["convert", "m", "--out", "c", "--release", "19.02"],
    ["inspect", "m/a.armnn", "--layers"],
    ["explain", "m/a.armnn"],
    ["explain", "m/a.armnn", "--layer", "nowhere"],
    ["match", "BatchNormalization{Convolution2d}", "m"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:1] + command[3:4]))
def test_no_line_on_a_terminal_is_long(command: list[str], models: None, capsys: pytest.CaptureFixture[str]) -> None:
    main(command)
    shown = capsys.readouterr()
    lines = [*shown.out.splitlines(), *shown.err.splitlines()]
    assert lines
    assert max(map(len, lines)) < 1500
    assert "MIDDLE" not in shown.out + shown.err


def test_reports_for_people_have_the_ends_and_json_has_all(models: None) -> None:
    wanted = [word for one in ("json", "csv", "xml", "html") for word in ("--report", f"r.{one}")]
    assert main(["fuse", "m", "--dry-run", "--fail-on", "refused", *wanted]) == 3
    for suffix in ("csv", "xml", "html"):
        text = Path(f"r.{suffix}").read_text("utf-8")
        assert max(map(len, text.splitlines())) < 6000
        assert "MIDDLE" not in text
    (model,) = json.loads(Path("r.json").read_text())["models"]
    assert model["refusals"][0]["layer"]["name"] == f"{LONG}norm"
    assert len(model["refusals"][0]["reason"]) < 1000


# Rule files


def test_the_excerpt_of_a_long_line_is_what_is_about_its_fault() -> None:
    line = "".join(chr(ord("a") + number % 26) for number in range(100_000))
    for column in (1, 2, 99, 101, 102, 50_000, 99_900, 99_999, 100_000, 100_001):
        shown, caret = fe.RuleError("no", text=f"x\n{line}\ny", line=2, column=column).excerpt.split("\n")
        assert len(shown) <= 4 + LONGEST + 6
        at = caret.index("^")
        assert caret == " " * at + "^"
        assert shown[at : at + 1] == line[column - 1 : column]
        assert shown.strip(" .") in line
    short = "Activation{?}"
    assert fe.RuleError("no", text=short, column=12).excerpt == f"    {short}\n{' ' * 15}^"


def test_names_of_rule_files_are_shown_in_part() -> None:
    for text in (f"Activation{{{LONG}}}", f"{LONG}{{?}}"):
        with pytest.raises(fe.RuleError) as caught:
            fe.FusingRule(text, into="X", name=LONG)
        assert "MIDDLE" not in str(caught.value)
        assert max(map(len, str(caught.value).split("\n"))) < 1000


def test_near_misses_show_long_types_in_part(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    made = fe.fuse(fe.load("m/a.armnn"), fe.FusingRule("Activation{?}", into=f"T{LONG}"))
    fe.save(made, "m/made.armnn")
    main(["match", "Output{Convolution2d}", "m/made.armnn", "--why"])
    shown = capsys.readouterr().out
    assert "MIDDLE" not in shown
    assert "it is a Tnnn" in shown
