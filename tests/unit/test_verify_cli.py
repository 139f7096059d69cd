"""fuse on the command line: --verify, --tolerance, --only, --skip, --statistics."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import engine
from fusion_engine.cli import main
from fusion_engine.folds import Fold, find_fold
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict
from fusion_engine.workspace import Workspace
from tests.support.nets import Net


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``a.armnn`` of the working directory: a convolution, an Addition of a Constant, two ReLus, two Reshapes."""
    net = Net()
    conv = net.conv(net.input((1, 8, 8, 1)), np.ones((2, 1, 1, 1)), [0.5, 0.5], name="conv")
    shifted = net.addition(conv, net.constant([0.25, 2.0], name="amount"), name="shifted")
    relus = net.activation(net.activation(shifted, name="relu"), name="again")
    net.output(net.reshape(net.reshape(relus, (64, 2)), (2, 64)))
    path = tmp_path / "a.armnn"
    path.write_bytes(fe.dumps(net.graph))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture
def wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shift fold subtracts what it should add."""
    right = find_fold("shift")

    def apply(workspace: Workspace, match: Match, plan: Any) -> int | None:
        constant = workspace.source(match.root, 1)
        assert constant is not None
        values = workspace.tensor(constant.layer)
        assert values is not None
        workspace.set(constant.layer, constants=FrozenDict(input=values.with_data(-values.data)))
        return right.apply(workspace, match, right.check(workspace, match))

    wrong = Fold(right.check, apply)
    monkeypatch.setattr(engine, "find_fold", lambda name: wrong if name == "shift" else find_fold(name))


def needs_runtime() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")


def reported(path: str = "report.json") -> dict[str, Any]:
    (found,) = json.loads(Path(path).read_text("utf-8"))["models"]
    assert isinstance(found, dict)
    return found


def test_verified(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_runtime()
    assert main(["fuse", "a.armnn", "--out", "out", "--verify", "--report", "report.json"]) == 0
    assert Path("out/a.armnn").exists()
    found = reported()
    assert [fusion["verification"]["status"] for fusion in found["fusions"]] == ["verified"] * len(found["fusions"])
    assert found["verification"]["verified"] == len(found["fusions"]) > 2
    assert f"    verified: {len(found['fusions'])} of {len(found['fusions'])} fusions" in capsys.readouterr().out


def test_what_is_written_is_the_same_with_and_without(model: Path) -> None:
    needs_runtime()
    assert main(["fuse", "a.armnn", "--out", "with", "--verify"]) == 0
    assert main(["fuse", "a.armnn", "--out", "without"]) == 0
    assert Path("with/a.armnn").read_bytes() == Path("without/a.armnn").read_bytes()


def test_nothing_is_written_where_results_differ(
    model: Path, wrong_sign: None, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_runtime()
    assert main(["fuse", "a.armnn", "--out", "out", "--verify", "--report", "report.json"]) == 1
    assert list(Path("out").iterdir()) == []
    found = reported()
    assert (found["status"], found["output"]) == ("failed", None)
    assert found["error"].startswith("a.armnn: verification failed, so it is not written: what layer 5 'shifted' gave")
    by_rule = {fusion["rule"]: fusion["verification"]["status"] for fusion in found["fusions"]}
    assert by_rule["shift"] == "failed"
    assert by_rule["reshapes"] == "verified"
    assert "failed" in capsys.readouterr().out


def test_without_verify_a_wrong_fold_goes_through(model: Path, wrong_sign: None) -> None:
    assert main(["fuse", "a.armnn", "--out", "out", "--report", "report.json"]) == 0
    assert Path("out/a.armnn").exists()
    assert reported()["verification"] is None


def test_tolerance(model: Path, wrong_sign: None) -> None:
    """As wide as that, even the wrong sign passes."""
    needs_runtime()
    assert main(["fuse", "a.armnn", "--out", "out", "--verify", "--tolerance", "10", "--report", "report.json"]) == 0
    assert {fusion["verification"]["tolerance"] for fusion in reported()["fusions"]} >= {10.0}


def test_unverified_is_told_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fold that takes somebody else's StandIn into a region: nobody can run that."""
    needs_runtime()
    net = Net()
    foreign = net.stand_in(net.input((1, 4)), outputs=[(1, 4)], name="foreign")
    net.output(net.activation(net.activation(foreign, name="relu"), "Sigmoid"))
    monkeypatch.chdir(tmp_path)
    Path("a.armnn").write_bytes(fe.dumps(net.graph))
    Path("r.toml").write_text('syntax = 2\n[[rule]]\nname = "odd"\nmatch = "Activation{StandIn}"\nfold = "clamp"\n')

    def apply(workspace: Workspace, match: Match, plan: Any) -> int:
        below = workspace.disconnect(match.root, 0).layer
        workspace.connect(workspace.disconnect(below, 0), match.root, 0)
        workspace.remove(below)
        return match.root

    monkeypatch.setattr(engine, "find_fold", lambda name: Fold(lambda workspace, match: None, apply))
    assert main(["fuse", "a.armnn", "--out", "out", "--verify", "--rules", "r.toml", "--report", "report.json"]) == 0
    assert Path("out/a.armnn").exists()
    (fusion,) = reported()["fusions"]
    assert (fusion["verification"]["status"], fusion["verification"]["difference"]) == ("unverified", None)
    told = capsys.readouterr().out
    assert "    verified: 0 of 1 fusion\n" in told
    assert "unverified: odd at layer 2 'relu': StandIn layer 1 'foreign' cannot be expressed" in told


def test_without_the_extra(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["fuse", "a.armnn", "--out", "out", "--verify"]) == 2
    assert not Path("out").exists()
    assert "pip install 'armnn-fusion-engine[verify]'" in capsys.readouterr().err
    assert main(["fuse", "a.armnn", "--out", "out"]) == 0


def rules_that_fired() -> set[str]:
    return {fusion["rule"] for fusion in reported()["fusions"]}


def test_only_and_skip(model: Path) -> None:
    base = ["fuse", "a.armnn", "--dry-run", "--report", "report.json"]
    assert main(base) == 0
    every = rules_that_fired()
    assert {"shift", "reshapes", "activation-chain"} <= every
    assert main([*base, "--only", "shift", "--only", "reshapes"]) == 0
    assert rules_that_fired() == {"shift", "reshapes"}
    assert main([*base, "--skip", "shift"]) == 0
    assert rules_that_fired() == every - {"shift"}
    assert main([*base, "--only", "shift", "--only", "reshapes", "--skip", "shift"]) == 0
    assert rules_that_fired() == {"reshapes"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "reshape"], "--only reshape: there is no rule of that name (did you mean 'reshapes'"),
        (["--skip", "shft"], "--skip shft: there is no rule of that name (did you mean 'shift'"),
        (["--only", "shift", "--skip", "shift"], "no rule is left: --only and --skip leave none"),
        (["--tolerance", "0.1"], "--tolerance is for --verify: give both or neither"),
        (["--verify", "--tolerance", "-1"], "--tolerance -1: it is a number of at least 0"),
        (["--verify", "--tolerance", "nan"], "--tolerance nan: it is a number of at least 0"),
        (["--verify", "--tolerance", "much"], "invalid float value: 'much'"),
    ],
)
def test_usage(model: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    try:
        code: object = main(["fuse", "a.armnn", "--out", "out", *options])
    except SystemExit as left:
        code = left.code
    assert code == 2
    assert words in capsys.readouterr().err
    assert not Path("out").exists()


def test_statistics(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuse", "a.armnn", "--dry-run", "--statistics", "--report", "report.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(
        number for number, line in enumerate(lines) if line.split() == ["rule", "tried", "fired", "refused", "seconds"]
    )
    table = {row[0]: row[1:] for row in map(str.split, lines[head + 1 :])}
    statistics = {entry["rule"]: entry for entry in reported()["statistics"]}
    assert table.keys() == statistics.keys() == {rule.name for rule in fe.load_rules("armnn")}
    assert table["shift"][:3] == ["1", "1", "0"]
    assert statistics["shift"]["seconds"] >= 0
    assert sum(entry["fired"] for entry in statistics.values()) == len(reported()["fusions"])


def test_statistics_of_a_rule_that_is_refused() -> None:
    net = Net()
    x = net.input((1, 4, 4, 1))
    conv = net.conv(x, np.ones((1, 1, 1, 1)), name="conv")
    net.output(net.batch_norm(conv, [1], [1], [1], [1]))
    net.output(conv)
    rule = next(rule for rule in fe.load_rules("armnn") if rule.name == "batch-norm")
    first, again = (fe.fuse(net.graph, rule).graph["statistics"] for _ in range(2))
    assert first == again == (fe.RuleStatistics("batch-norm", 1, 0, 1, 0.0),)
