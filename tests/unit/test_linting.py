"""tests/golden/lint: rule files and what lint tells of them, in plain text.

A case is a file NAME.toml and NAME.toml.expected beside it: a line LINE:COLUMN CHECK (RULE) MESSAGE for each finding.
A file whose name begins with ``portable`` is linted with --portable.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fusion_engine.cli import main
from fusion_engine.errors import RuleError
from fusion_engine.language.sources import Source, shipped_names
from fusion_engine.linting.findings import Finding, github_lines, text_lines
from fusion_engine.linting.linter import findings_of

GOLDEN = Path(__file__).parents[1] / "golden" / "lint"
FILES = sorted(path.name for path in GOLDEN.glob("*.toml"))


def line_of(finding: Finding) -> str:
    line, column = finding.place
    inside = f" at {finding.fault.line}:{finding.fault.column} of the text" if finding.fault.outer else ""
    rule = f"({finding.fault.rule}) " if finding.fault.rule else ""
    return f"{line}:{column}{inside} {finding.check} {rule}{finding.fault.reason}"


@pytest.mark.parametrize("name", FILES)
def test_golden(name: str) -> None:
    findings, _ = findings_of([GOLDEN / name], portable=name.startswith("portable"))
    expected = (GOLDEN / f"{name}.expected").read_text("utf-8").splitlines()
    assert [line_of(finding) for finding in findings] == expected


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_rules_are_clean(name: str) -> None:
    findings, rules = findings_of([name])
    assert findings == []
    assert rules > 5


# The command


BROKEN = """\
[[rule]]
match = "Softmaxx"
into  = "A"

[[rule]]
name  = "ranges, and 50%"
match = "Softmax[axis > 5 && axis < 3]"
into  = "B"
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``broken.toml`` with an error and a warning, ``odd.toml`` with a warning, ``fine.toml``."""
    monkeypatch.chdir(tmp_path)
    Path("broken.toml").write_text(BROKEN, "utf-8")
    Path("odd.toml").write_text('[[rule]]\nmatch = "Softmax{?, ?}"\ninto = "A"\n', "utf-8")
    Path("fine.toml").write_text('[[rule]]\nmatch = "Softmax{?}"\ninto = "A"\n', "utf-8")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["fine.toml"], 0, ""),
        (["fine.toml", "--strict"], 0, ""),
        (["odd.toml"], 0, "1 file, 1 rule, no errors, 1 warning\n"),
        (["odd.toml", "--strict"], 2, "1 file, 1 rule, no errors, 1 warning\n"),
        (["odd.toml", "broken.toml"], 2, "1 error, 2 warnings in 2 files\n"),
        (["fine.toml", "--portable"], 0, "1 file, 1 rule, no errors, 4 warnings\n"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", *arguments]) == code
    out, err = capsys.readouterr()
    assert err == told
    if not told:
        assert out == "1 file, 1 rule, no errors\n"


@pytest.mark.usefixtures("files")
def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "odd.toml"])
    assert capsys.readouterr().out == (
        "odd.toml:2:10 (rule '#1'): warning: Softmax has 1 data input, and the braces take 2: nothing matches [slots]\n"
        '    match = "Softmax{?, ?}"\n'
        "             ^\n"
    )


@pytest.mark.usefixtures("files")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "broken.toml", "fine.toml", "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "rules": 2,
        "findings": [
            {
                "file": "broken.toml",
                "line": 2,
                "column": 10,
                "severity": "error",
                "check": "error",
                "rule": "#1",
                "message": "'Softmaxx' is no layer type, vocabulary name or result of a rule "
                "(did you mean 'Softmax' or 'LogSoftmax'?)",
            },
            {
                "file": "broken.toml",
                "line": 7,
                "column": 30,
                "severity": "warning",
                "check": "always-false",
                "rule": "ranges, and 50%",
                "message": "axis < 3 is never true beside axis > 5",
            },
        ],
    }
    assert main(["lint", "fine.toml", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rules": 1, "findings": []}


@pytest.mark.usefixtures("files")
def test_github(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "broken.toml", "--format", "github"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "::error file=broken.toml,line=2,col=10,title=error::rule '#1': 'Softmaxx' is no layer type, vocabulary name "
        "or result of a rule (did you mean 'Softmax' or 'LogSoftmax'?)",
        "::warning file=broken.toml,line=7,col=30,title=always-false::rule 'ranges, and 50%25': axis < 3 is never true "
        "beside axis > 5",
    ]


def test_github_properties_are_escaped() -> None:
    fault = RuleError("one\ntwo", text="x", source="a:b,c%.toml")
    expected = "::error file=a%3Ab%2Cc%25.toml,line=1,col=1,title=error::one%0Atwo"
    assert github_lines(Finding("error", fault)) == expected


@pytest.mark.parametrize("count", [40, 400])
def test_wide_and_deep_rules_take_no_time(count: int, tmp_path: Path) -> None:
    wide = " && ".join(f"(axis == {i} || beta == {i})" for i in range(count))
    deep = "(" * count + "axis == 1" + ")" * count
    nested = "Concat{" * count + "?" + "|Pad}" * count
    lines = "\n".join(f"Floor{{{name}}}" for name in ("Pad", "Rank", "Tile") * (count // 4))
    path = tmp_path / "x.rules"
    path.write_text(f"Softmax[{wide}]\nSoftmax[{deep}]\n{nested}\n{lines}\n", "utf-8")
    started = time.monotonic()
    findings_of([path])
    assert time.monotonic() - started < 20


RULE_FILES = sorted(path for path in GOLDEN.parent.rglob("*") if path.suffix in (".toml", ".rules"))


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.name)
def test_any_rule_file_can_be_linted(path: Path) -> None:
    for finding in findings_of([path], portable=True)[0]:
        assert finding.fault.source == str(path)
        assert finding.place >= (1, 1)
        assert json.dumps(finding.as_json())
        assert "\n" not in github_lines(finding)
        assert finding.fault.reason in text_lines(finding)


def test_a_proof_that_takes_too_long_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("x.rules", b"Softmax[(axis == 0 || axis == 1 || axis == 3) && axis == 2]")
    assert [finding.check for finding in findings_of([source])[0]] == ["always-false"]
    monkeypatch.setattr("fusion_engine.linting.proving.MAX_STEPS", 1)
    assert findings_of([source]) == ([], 1)
