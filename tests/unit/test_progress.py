"""The bar: counts, rate, remaining time, failures; and what quiet, verbose and a plain stream show."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusion_engine as fe
from fusion_engine.cli import main
from fusion_engine.console import Console, fitted
from fusion_engine.progress import Progress
from fusion_engine.report import ModelReport
from tests.support.nets import Net

FINE, BAD = ModelReport("a", "fused"), ModelReport("b", "failed", error="b: bad")


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_counts_rate_remaining_time_and_failures() -> None:
    clock = Clock()
    bar = Progress(None, 40, clock)
    bar.begin("m/a\n.armnn")
    assert bar.line() == "  0% [--------------------] 0/40  a\\n.armnn"
    for _ in range(10):
        bar.finish(FINE)
    clock.time += 4
    assert bar.line() == " 25% [#####---------------] 10/40  2.5 models/s  0:12 left  a\\n.armnn"
    clock.time += 36
    bar.finish(BAD)
    bar.finish(BAD)
    assert bar.line() == " 30% [######--------------] 12/40  3.3 s/model  1:33 left  2 failed  a\\n.armnn"


def test_what_an_earlier_run_did_is_no_measure_of_speed() -> None:
    clock = Clock()
    bar = Progress(None, 100, clock)
    clock.time += 50  # spent on finding out what is done already
    bar.keep(80)
    assert bar.line() == " 80% [################----] 80/100  "
    clock.time += 10
    bar.finish(FINE)
    assert bar.line() == " 81% [################----] 81/100  10.0 s/model  3:10 left  "


def test_looking_for_what_is_done() -> None:
    shown: list[str] = []

    class Live(Console):
        def progress(self, text: str) -> None:
            shown.append(text)

    bar = Progress(Live(), 2, Clock())
    bar.look(0, "m/a\n.armnn")
    bar.look(1, "m/b.armnn")
    Progress(None, 2, Clock()).look(0, "m/a.armnn")
    assert shown == [
        "looking for what is done already: 0/2  a\\n.armnn",
        "looking for what is done already: 1/2  b.armnn",
    ]


def test_the_bar_is_full_at_the_end_only() -> None:
    bar = Progress(None, 1000, Clock())
    bar.keep(999)
    assert bar.line().startswith(" 99% [###################-] 999/1000")
    bar.finish(FINE)
    assert bar.line().startswith("100% [####################] 1000/1000")


def test_a_line_fits_its_columns() -> None:
    assert fitted("abc", 3) == "abc"
    assert fitted("abcd", 3) == "abc"
    assert fitted("卷积层", 5) == "卷积"
    assert fitted("e\u0301e\u0301e", 2) == "e\u0301e\u0301"
    assert fitted("abc", 0) == ""


def test_nothing_but_the_bar_is_drawn_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console()
    monkeypatch.setattr(console, "live", True)
    monkeypatch.setenv("COLUMNS", "35")
    bar = Progress(console, 2, Clock())
    bar.begin("model.armnn")
    console.print("line")
    out, err = capsys.readouterr()
    assert err == "\r\x1b[K  0% [--------------------] 0/2  m\r\x1b[K"
    assert out == "line\n"


# The command


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``m/``: one that is damaged, one on which a rule is refused twelve times."""
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    Path("m/bad.armnn").write_bytes(b"bad")
    net = Net()
    x = net.input((1, 2, 2, 1), name="x")
    for number in range(12):
        conv = net.conv(x, weights=[[[[2.0]]]], name=f"conv{number}")
        net.output(net.batch_norm(conv, [1.0], [2.0], [3.0], [4.0], name=f"norm{number}"))
        net.output(net.activation(conv))
    Path("m/good.armnn").write_bytes(fe.dumps(net.graph))


FUSE = ("fuse", "m", "--dry-run", "--only", "batch-norm")
BAD_LINE = "m/bad.armnn: failed: the root table: 3 bytes are too few for an .armnn file"
SUMMARY = "2 models: 0 fused, 1 unchanged, 1 failed; 0 fusions, 12 refusals"


def test_plain_lines(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    main([*FUSE])
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert (lines[0], lines[-1]) == (BAD_LINE, SUMMARY)
    assert sum(line.startswith("    refused: batch-norm at layer") for line in lines) == 10
    assert "    refused: 2 more: -v shows all" in lines
    assert err.splitlines() == [f"[1/2] {BAD_LINE}", "[2/2] m/good.armnn: unchanged"]


def test_verbose(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    main([*FUSE, "-v"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("    refused: batch-norm at layer") for line in lines) == 12
    assert not [line for line in lines if "more:" in line]
    assert [line for line in lines if line.startswith("m/good.armnn: unchanged, ") and line.endswith(" s")]


def test_quiet(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    main([*FUSE, "--quiet"])
    assert capsys.readouterr() == (f"{BAD_LINE}\n{SUMMARY}\n", "")


def test_quiet_with_the_report_on_standard_output(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    main([*FUSE, "-q", "--report", "-"])
    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert err == f"{BAD_LINE}\n{SUMMARY}\n"


def test_quiet_and_verbose(models: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*FUSE, "-q", "-v"])
    assert "not allowed with" in capsys.readouterr().err
