"""The command convert, fuse --release, --judge, and what inspect and reports say of releases."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.cli import main
from tests.support.nets import Net
from tests.support.rawfile import layer, pack, slot_in, slot_out


def good() -> bytes:
    net = Net(form="member", feature_versions=(1, 0, 0))
    conv = net.conv(net.input((1, 4, 4, 1)), np.ones((2, 1, 1, 1)), name="conv")
    norm = net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8])
    net.output(net.activation(norm, name="relu"))
    return fe.dumps(net.graph)


def tiled() -> bytes:
    net = Net()
    net.output(net.layer("Tile", net.input((1, 2)), params={"m_Multiples": (1, 1)}, name="tile"))
    return fe.dumps(net.graph)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "sub").mkdir(parents=True)
    (tmp_path / "models" / "good.armnn").write_bytes(good())
    (tmp_path / "models" / "sub" / "tiled.armnn").write_bytes(tiled())
    return tmp_path


def report_of(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text("ascii"))
    return found


def test_convert(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["convert", "models", "--release", "20.08", "--out", "new", "--report", "report.json"]
    assert main(command) == 1
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "models/good.armnn: unchanged, 0 converted, 5 layers and 0 Constants, copied to new/good.armnn",
        "models/sub/tiled.armnn: failed: Arm NN 20.08 cannot hold it: Tile: there is no such layer "
        "(possible since 23.08): layer 1 'tile'",
        "2 models: 0 converted, 1 unchanged, 1 failed",
    ]
    assert Path("new/good.armnn").read_bytes() == good()
    assert not Path("new/sub/tiled.armnn").exists()
    report = report_of("report.json")
    assert report["summary"] == {
        "models": 2,
        "converted": 0,
        "unchanged": 1,
        "failed": 1,
        "fusions": 0,
        "refusals": 0,
        "warnings": 0,
    }
    assert report["models"][0]["loads_in"][0] == "20.02"
    assert report["models"][1]["loads_in"] == []


def test_converted(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "models/good.armnn", "--release", "23.08", "--out", "new", "--report", "r.json"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "models/good.armnn: converted, 5 -> 5 layers, 0 -> 1 Constants, written to new/good.armnn"
    )
    assert Path("new/good.armnn").read_bytes() == fe.dumps(fe.load("models/good.armnn"), release="23.08")
    (model,) = report_of("r.json")["models"]
    assert model["loads_in"] == [
        "22.05",
        "22.08",
        "22.11",
        "23.02",
        "23.05",
        "23.08",
        "23.11",
        "24.02",
        "24.05",
        "24.08",
    ]
    assert model["cannot_load"]["22.02"] == [
        "Convolution2d whose weights or bias come on input slots (possible since 22.05): layer 1 'conv'"
    ]
    assert model["judge"] is None


def test_again_is_unchanged(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "models/good.armnn", "--release", "24.02", "--out", "a"]) == 0
    assert main(["convert", "a", "--release", "24.02", "--out", "b"]) == 0
    assert "unchanged" in capsys.readouterr().out
    assert Path("a/good.armnn").read_bytes() == Path("b/good.armnn").read_bytes()


def test_untagged_and_renumbered_files_are_changed(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net("19.05")
    net.output(net.activation(net.input((1, 2))))
    Path("old.armnn").write_bytes(fe.dumps(net.graph))
    assert main(["convert", "old.armnn", "--release", "19.11", "--out", "new"]) == 0
    assert main(["convert", "old.armnn", "--release", "20.02", "--out", "newer"]) == 0
    assert fe.load("newer/old.armnn").graph["feature_versions"] == (1, 0, 0)


@pytest.mark.parametrize(("order", "unnamed"), [((0, 1, 2), (1,)), ((1, 0, 2), ()), ((2, 0, 1), ())])
def test_files_that_readers_abort_on_are_changed(
    models: Path, capsys: pytest.CaptureFixture[str], order: tuple[int, ...], unnamed: tuple[int, ...]
) -> None:
    layers = [
        layer("Input", 0, [], [slot_out()]),
        layer("Activation", 1, [slot_in(0)], [slot_out()], name=None if unnamed else "relu", descriptor={"a": 1.0}),
        layer("Output", 2, [slot_in(1)]),
    ]
    versions = {"bindingIdsScheme": 1, "weightsLayoutScheme": 1, "constantTensorsAsInputs": 1}
    data = pack([layers[key] for key in order], inputIds=[0], outputIds=[0], featureVersions=versions)
    Path("odd.armnn").write_bytes(data)
    assert main(["convert", "odd.armnn", "--release", "23.08", "--out", "new", "--report", "r.json"]) == 0
    assert "odd.armnn: converted" in capsys.readouterr().out
    written = Path("new/odd.armnn").read_bytes()
    assert written == fe.dumps(fe.loads(data), release="23.08") != data
    assert "23.08" in report_of("r.json")["models"][0]["loads_in"]
    assert not next(one for one in fe.loads_in(fe.loads(data)) if one.release == "23.08").loads
    assert main(["convert", "new/odd.armnn", "--release", "23.08", "--out", "again"]) == 0
    assert "unchanged" in capsys.readouterr().out


def test_dry_run(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "models/good.armnn", "--release", "23.08", "--out", "new", "--dry-run"]) == 0
    assert "would be written to new/good.armnn" in capsys.readouterr().out
    assert not Path("new/good.armnn").exists()


def test_fuse_for_a_release(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuse", "models/good.armnn", "--out", "fused", "--release", "23.08"]) == 0
    graph = fe.load("fused/good.armnn")
    assert graph.graph["feature_versions"] == (1, 1, 1)
    assert sorted(node["type"] for node in graph.nodes.values()) == [
        "Activation",
        "Constant",
        "Constant",
        "Convolution2d",
        "Input",
        "Output",
    ]
    assert "1 model: 1 fused" in capsys.readouterr().out


def test_fuse_what_only_the_release_changes(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fuse", "models/good.armnn", "--out", "fused", "--release", "23.08", "--rules", "npu"]
    Path("none.toml").write_text('[[rule]]\nname = "none"\nmatch = "Softmax{Softmax}"\ninto = "None"\n')
    assert main([*command[:-1], "none.toml"]) == 0
    assert fe.equal(fe.load("fused/good.armnn"), fe.convert(fe.load("models/good.armnn"), "23.08"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["convert", "models", "--release", "23.8", "--out", "new"], "there is no release '23.8'"),
        (["fuse", "models", "--release", "1", "--out", "new"], "there is no release '1'"),
        (["convert", "models", "--release", "23.08"], "say where the results go"),
        (["convert", "models", "--release", "23.08", "--out", "models"], "is the output directory"),
        (["convert", "models", "--release", "23.08", "--out", "new", "--judge", "'"], "is no command"),
        (["convert", "models", "--release", "23.08", "--out", "new", "--judge", "no-such-program"], "is no program"),
        (["fuse", "models", "--out", "new", "--judge-timeout", "3"], "--judge-timeout is for a judge"),
        (["convert", "models", "--release", "23.08", "--out", "new", "--report", ""], "say where the report goes"),
    ],
)
def test_wrong_commands(models: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert not Path("new").exists()


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan", "soon"])
def test_wrong_timeouts(models: Path, capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["fuse", "models", "--out", "new", "--judge", "true", f"--judge-timeout={seconds}"])
    assert caught.value.code == 2
    with pytest.raises(SystemExit):
        main(["convert", "models", "--out", "new"])
    assert "the following arguments are required: --release" in capsys.readouterr().err


# The judge


JUDGE = """
import os, sys
before, after = sys.argv[1:]
print(open(before, "rb").read(1) != b"", os.path.basename(after), os.listdir(os.path.dirname(after)))
print(os.path.exists(os.path.join("new", os.path.basename(after))))
sys.exit(int({code}))
"""


def judge(code: int) -> str:
    Path("judge.py").write_text(JUDGE.format(code=code))
    return f"{shlex.quote(sys.executable)} judge.py"


@pytest.mark.parametrize("command", [["convert", "--release", "23.08"], ["fuse"]], ids=["convert", "fuse"])
def test_a_judge_that_keeps(models: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    common = ["models/good.armnn", "--out", "new", "--report", "r.json", "--judge", judge(0)]
    assert main([*command, *common]) == 0
    (model,) = report_of("r.json")["models"]
    assert model["judge"]["output"] == "True good.armnn ['good.armnn']\nFalse\n"
    assert (model["judge"]["kept"], model["judge"]["exit_code"]) == (True, 0)
    assert [path.name for path in Path("new").glob("*.armnn")] == ["good.armnn"]


def test_a_judge_that_does_not(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("new").mkdir()
    Path("new/good.armnn").write_bytes(b"what was there")
    common = ["models/good.armnn", "--out", "new", "--report", "r.json", "--judge", judge(4)]
    assert main(["convert", "--release", "23.08", *common]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "models/good.armnn: failed: the judge gave exit code 4, so the result is not kept: True",
        "1 model: 0 converted, 0 unchanged, 1 failed",
    ]
    (model,) = report_of("r.json")["models"]
    assert (model["status"], model["output"], model["judge"]["exit_code"]) == ("failed", None, 4)
    assert [path.name for path in Path("new").glob("*.armnn")] == ["good.armnn"]
    assert Path("new/good.armnn").read_bytes() == b"what was there"


def test_a_judge_is_asked_of_changes_only(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["models/good.armnn", "--out", "new", "--report", "r.json", "--judge", judge(4)]
    assert main(["convert", "--release", "20.08", *common]) == 0
    (model,) = report_of("r.json")["models"]
    assert (model["status"], model["judge"]) == ("unchanged", None)


def test_a_judge_of_a_dry_run(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["models/good.armnn", "--out", "new", "--report", "r.json", "--dry-run", "--judge", judge(0)]
    assert main(["convert", "--release", "23.08", *common]) == 0
    (model,) = report_of("r.json")["models"]
    assert model["judge"]["kept"]
    assert not Path("new").exists()


def test_one_judgement_stays_with_its_model(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("models/other.armnn").write_bytes(good())
    Path("judge.py").write_text("import sys\nsys.exit('other' in sys.argv[1])\n")
    command = f"{shlex.quote(sys.executable)} judge.py"
    assert main(["fuse", "models", "--out", "new", "--judge", command]) == 1
    assert "3 models: 1 fused, 1 unchanged, 1 failed" in capsys.readouterr().out
    assert sorted(str(p) for p in Path("new").rglob("*.armnn")) == ["new/good.armnn", "new/sub/tiled.armnn"]


# inspect


def test_inspect_tells_which_releases_read_a_file(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "models/sub/tiled.armnn"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line[:9] in ("loads in ", "not in   ")]
    assert lines[0] == "loads in  23.08 to 24.08"
    assert lines[-1] == (
        "not in    20.02 to 23.05: Tile: there is no such layer (possible since 23.08): layer 1 'tile'"
    )


def test_inspect_json_has_every_reason(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "models/sub/tiled.armnn", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loads_in"] == ["23.08", "23.11", "24.02", "24.05", "24.08"]
    assert list(found["cannot_load"])[:2] == ["seed", "19.02"]
    assert len(found["cannot_load"]["19.08"]) == 2


def test_inspect_tells_of_cautions(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(feature_versions=(1, 0, 0))
    x = net.input((1, 2))
    net.output(net.activation(x))
    net.output(net.activation(x, "TanH"))
    Path("two.armnn").write_bytes(fe.dumps(net.graph))
    assert main(["inspect", "two.armnn"]) == 0
    out = capsys.readouterr().out
    assert "care in   20.02 to 21.11: its reader takes the TensorInfo" in out
    assert main(["inspect", "two.armnn", "--json"]) == 0
    assert "20.08" in json.loads(capsys.readouterr().out)["load_cautions"]
