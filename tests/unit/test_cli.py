"""The command line: what it writes, says and exits with."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.cli import main
from fusion_engine.console import counted
from fusion_engine.resources import folder
from tests.support.nets import Net

COMMAND = [sys.executable, "-m", "fusion_engine"]


def conv_bn(name: str = "norm") -> bytes:
    """Input, convolution, batch norm, ReLu, Output; member form."""
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 4, 4, 1), name="data")
    conv = net.conv(x, np.ones((2, 1, 1, 1)), [0.5, 0.5], name="conv")
    norm = net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8], eps=1.0, name=name)
    net.output(net.activation(norm, name="relu"), name="prob")
    return fe.dumps(net.graph)


def plain() -> bytes:
    net = Net()
    net.output(net.activation(net.input((1, 2)), name="only"))
    return fe.dumps(net.graph)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``models/`` of the working directory: two that fold (one nested), one without, one truncated, a text, a link."""
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    (folder / "good.armnn").write_bytes(conv_bn())
    (folder / "sub" / "good.armnn").write_bytes(conv_bn())
    (folder / "plain.armnn").write_bytes(plain())
    (folder / "bad.armnn").write_bytes(conv_bn()[:300])
    (folder / "notes.txt").write_text("no model")
    (folder / "dangling.armnn").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    return folder


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; no traceback, ever."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, **options)
    assert "Traceback" not in done.stderr
    return done


# fuse


def test_fuse_a_directory(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuse", "models", "--out", "fused", "--report", "report.json"]) == 1
    out, err = capsys.readouterr()
    assert sorted(str(path.relative_to("fused")) for path in Path("fused").rglob("*.armnn")) == [
        "good.armnn",
        "plain.armnn",
        "sub/good.armnn",
    ]
    fused = fe.load("fused/sub/good.armnn")
    (conv,) = (node for _, node in fused.nodes(data=True) if node["type"] == "Convolution2d")
    assert conv["constants"]["weights"].data.reshape(-1).tolist() == [2, 1]
    assert conv["constants"]["biases"].data.tolist() == [1, -0.75]
    assert conv["name"] == "norm"
    assert Path("fused/plain.armnn").read_bytes() == plain()

    lines = out.splitlines()
    assert lines[0].startswith("models/bad.armnn: failed: ")
    assert lines[1] == "models/dangling.armnn: failed: cannot be read: No such file or directory"
    assert lines[2:5] == [
        "models/good.armnn: fused, 5 -> 4 layers, 0 -> 0 Constants, written to fused/good.armnn",
        "    rule        result         fused  refused",
        "    batch-norm  Convolution2d      1        0",
    ]
    assert lines[5] == "models/plain.armnn: unchanged, 0 fused, 3 layers and 0 Constants, copied to fused/plain.armnn"
    assert lines[-1] == "5 models: 2 fused, 1 unchanged, 2 failed; 2 fusions, 0 refusals"
    assert err.splitlines()[2] == "[3/5] models/good.armnn: fused"

    report = json.loads(Path("report.json").read_text("utf-8"))
    assert report["summary"]["failed"] == 2
    text = (folder("rules") / "armnn.toml").read_bytes()
    assert report["rules"] == [{"file": "armnn.toml", "sha256": hashlib.sha256(text).hexdigest()}]
    good = report["models"][2]
    assert {key: good[key] for key in ("path", "output", "status", "dialect", "layers_before", "layers_after")} == {
        "path": "models/good.armnn",
        "output": "fused/good.armnn",
        "status": "fused",
        "dialect": "current",
        "layers_before": {"layers": 5, "constants": 0},
        "layers_after": {"layers": 4, "constants": 0},
    }
    assert good["fusions"] == [
        {
            "rule": "batch-norm",
            "result": "Convolution2d",
            "layers": [
                {"index": 2, "name": "norm", "type": "BatchNormalization"},
                {"index": 1, "name": "conv", "type": "Convolution2d"},
            ],
        }
    ]
    assert report["models"][0]["error"].startswith("models/bad.armnn: ")


def test_fuse_again_changes_nothing(models: Path) -> None:
    assert main(["fuse", "models/good.armnn", "models/sub/../plain.armnn", "--out", "one"]) == 0
    assert main(["fuse", "one", "--out", "two"]) == 0
    for name in ("good.armnn", "plain.armnn"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()


def test_refusals_are_shown_and_reported(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 1, 1, 1))
    norm = net.batch_norm(net.conv(x, np.ones((1, 1, 1, 1)), name="conv"), [1], [1], [1], [-2], name="norm")
    net.output(norm)
    Path("refused.armnn").write_bytes(fe.dumps(net.graph))
    assert main(["fuse", "refused.armnn", "--out", "fused", "--report", "fused/report.json"]) == 0
    (model,) = json.loads(Path("fused/report.json").read_text("utf-8"))["models"]
    assert model["status"] == "unchanged"
    assert model["refusals"][0]["rule"] == "batch-norm"
    assert model["refusals"][0]["layer"] == {"index": 2, "name": "norm", "type": "BatchNormalization"}
    assert "variance + eps" in model["refusals"][0]["reason"]
    out = capsys.readouterr().out
    assert "    batch-norm  -           0        1" in out
    assert "    refused: batch-norm at layer 2 'norm': variance + eps of layer 2 'norm' is -1.999 in channel 0" in out


def test_rules_from_a_file_and_in_order(models: Path) -> None:
    Path("mine.toml").write_text('[[rule]]\nname = "mine"\nmatch = "Activation{Convolution2d}"\ninto = "ConvRelu"\n')
    arguments = ["fuse", "models/good.armnn", "--out", "fused", "--rules", "armnn", "--rules", "mine.toml"]
    assert main([*arguments, "--report", "r.json"]) == 0
    report = json.loads(Path("r.json").read_text("utf-8"))
    assert [file["file"] for file in report["rules"]] == ["armnn.toml", "mine.toml"]
    assert [(f["rule"], f["result"]) for f in report["models"][0]["fusions"]] == [
        ("batch-norm", "Convolution2d"),
        ("mine", "ConvRelu"),
    ]
    assert main(["unfuse", "fused", "--out", "again"]) == 0
    again = fe.load("again/good.armnn")
    assert sorted(node["type"] for _, node in again.nodes(data=True)) == [
        "Activation",
        "Convolution2d",
        "Input",
        "Output",
    ]


def test_dry_run(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuse", "models/good.armnn", "--dry-run", "--report", "r.json"]) == 0
    assert main(["fuse", "models/good.armnn", "--dry-run", "--out", "fused"]) == 0
    assert not Path("fused").exists()
    assert "would be written to fused/good.armnn" in capsys.readouterr().out
    assert json.loads(Path("r.json").read_text("utf-8"))["models"][0]["output"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fuse", "models"], "say where the results go: --out DIR"),
        (["fuse", "models", "--out", "models"], "is the output directory"),
        (["fuse", "models/good.armnn", "--out", "models"], "is the input models/good.armnn"),
        (["fuse", "models", "models/sub", "--out", "o"], "have the same output"),
        (["fuse", "models", "--out", "models/notes.txt"], "is no directory"),
        (["fuse", "models", "--out", "o", "--rules", "npuu"], "did you mean 'npu'"),
        (["fuse", "models", "--out", "o", "--rules", "missing.toml"], "missing.toml"),
        (["fuse", "models", "--out", "o", "--rules", "broken.toml"], "broken.toml:2:26"),
        (["fuse", "models", "--out", "o", "--rules", "empty.toml"], "empty.toml:1:1: there is no rule in the file"),
        (["fuse", "models", "--out", "o", "--report", "models"], "is a directory"),
        (["fuse", "models", "--out", "o", "--report", ""], "say where the report goes"),
        (["fuse", "models", "--out", "o", "--report", "r.json", "--report", "r.txt"], "r.txt has no known format"),
        (
            ["unfuse", "models", "--out", "o", "--report", "report"],
            "end its name in .json, .jsonl, .csv, .xml or .html",
        ),
        (["fuse", "models", "--out", "o", "--report", "r.xml", "--report", "./r.xml"], "is asked for twice"),
        (["fuse", "models", "--dry-run", "--fail-on", "unverified"], "is for --verify"),
        (["fuse", "models", "--dry-run", "--baseline", "none.json"], "none.json cannot be read: No such file"),
        (["fuse", "models", "--dry-run", "--baseline", "empty.toml"], "is no report of this version"),
        (
            ["fuse", "models", "--dry-run", "--baseline", "known.json", "--report", "./known.json"],
            "is the baseline, which would then know all that is new",
        ),
        (
            ["fuse", "models", "--dry-run", "--report", "broken.toml/r.json"],
            "broken.toml: nothing can be written there",
        ),
        (
            ["fuse", "models", "--out", "o", "--report", f"{'r' * 300}.json"],
            ".json cannot be written: File name too long",
        ),
        (["fuse", "models", "--out", ""], "say where the results go"),
        (["fuse", "models", "--out", "", "--dry-run"], "say where the results go"),
        (["fuse", "models", "--out", "/proc/o"], "/proc/o: nothing can be written there"),
        (["unfuse", "models", "--out", "broken.toml/o"], "broken.toml/o: nothing can be written there"),
        (["fuse", "models", "--out", "o", "--report", "o/good.armnn"], "is a model or rule file of the run"),
        (["fuse", "models", "--out", "o", "--rules", "empty.toml", "--report", "empty.toml"], "empty.toml"),
        (["unfuse", "models"], "--out DIR"),
        (["match", "conv{", "models"], "line 1, column 6"),
        (["match", "Convolution2", "models"], "did you mean 'Convolution2d'"),
        (["lint", "broken.toml"], "1 error in 1 file"),
    ],
)
def test_wrong_commands_do_nothing(
    models: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    Path("broken.toml").write_text('[[rule]]\nmatch = "Activation[b == ]{?}"\ninto = "X"\n')
    Path("empty.toml").write_text("syntax = 2\n")
    Path("known.json").write_text('{"report_version": 1, "models": []}')
    before = sorted(Path().rglob("*"))
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert out == "" or arguments[0] == "lint"
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    "arguments", [[], ["fuse"], ["nonsense"], ["fuse", "x", "--ou", "y"], ["match", "a", "b", "--syntax", "3"]]
)
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: fusion-engine" in capsys.readouterr().err


def test_missing_paths_fail_and_the_rest_is_done(models: Path) -> None:
    Path("empty/too").mkdir(parents=True)
    done = run("fuse", "nowhere.armnn", "models/good.armnn", "no/such/dir/", "empty", "--out", "fused")
    assert done.returncode == 1
    assert "nowhere.armnn: failed: cannot be read: No such file or directory" in done.stdout
    assert "no/such/dir/: failed: there is no such directory" in done.stdout
    assert "empty: failed: there is no file *.armnn in the directory" in done.stdout
    assert "4 models: 1 fused, 0 unchanged, 3 failed" in done.stdout
    assert Path("fused/good.armnn").exists()


def test_a_broken_fold_is_told_before_any_work(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from fusion_engine import folds, plugins

    point = EntryPoint("theirs", "no_such_module_anywhere:FOLD", folds.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    folds._plugins.cache_clear()
    Path("theirs.toml").write_text('[[rule]]\nmatch = "Activation{?}"\nfold = "theirs"\n')
    try:
        assert main(["fuse", "models", "--out", "fused", "--rules", "theirs.toml"]) == 2
    finally:
        folds._plugins.cache_clear()
    assert not Path("fused").exists()


# inspect


def test_inspect(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "models/good.armnn"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "models/good.armnn",
        "dialect   current (featureVersions 1, 0, 0)",
        "layers    5, and 0 Constants",
        "weights   48 bytes",
        "input     'data', id 0, Float32 [1, 4, 4, 1]",
        "output    'prob', id 0, Float32 [1, 4, 4, 2]",
        "types     Activation          1",
        "          BatchNormalization  1",
        "          Convolution2d       1",
        "          Input               1",
        "          Output              1",
        "loads in  20.02 to 24.08",
        "not in    seed: its layers are numbered as in the current dialect; and 4 more: --json has all",
        "not in    19.02: its layers are numbered as in the current dialect; and 2 more: --json has all",
        "not in    19.05 to 19.11: its inputIds and outputIds are binding ids, and the reader takes them as indices "
        "(possible since 20.02)",
    ]


def test_inspect_layers(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "models/good.armnn", "--layers"]) == 0
    assert capsys.readouterr().out.splitlines()[-6:] == [
        "index  type                name    inputs  outputs",
        "0      Input               'data'          Float32 [1, 4, 4, 1]",
        "1      Convolution2d       'conv'  0       Float32 [1, 4, 4, 2]",
        "2      BatchNormalization  'norm'  1       Float32 [1, 4, 4, 2]",
        "3      Activation          'relu'  2       Float32 [1, 4, 4, 2]",
        "4      Output              'prob'  3",
    ]
    assert main(["inspect", "models/good.armnn", "--layers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layer_list"][3] == {
        "layer": 3,
        "type": "Activation",
        "name": "relu",
        "inputs": [{"layer": 2, "slot": 0}],
        "outputs": [{"shape": [1, 4, 4, 2], "data_type": "Float32", "scale": None, "offset": None}],
        "params": {"activationFunction": "ReLu", "a": 0.0, "b": 0.0},
    }


def test_the_report_on_standard_output(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuse", "models/good.armnn", "--out", "fused", "--report", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["summary"]["fused"] == 1
    assert err.splitlines()[-1] == "1 model: 1 fused, 0 unchanged, 0 failed; 1 fusion, 0 refusals"
    assert not Path("-").exists()


def test_inspect_json(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "models/good.armnn", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found.pop("loads_in")[0], found.pop("load_cautions")) == ("20.02", {})
    assert list(found.pop("cannot_load")) == ["seed", "19.02", "19.05", "19.08", "19.11"]
    assert found == {
        "path": "models/good.armnn",
        "dialect": "current",
        "feature_versions": [1, 0, 0],
        "layers": 5,
        "constants": 0,
        "types": {"Activation": 1, "BatchNormalization": 1, "Convolution2d": 1, "Input": 1, "Output": 1},
        "opaque": {},
        "groups": {},
        "inputs": [
            {
                "layer": 0,
                "name": "data",
                "binding_id": 0,
                "listed": True,
                "shape": [1, 4, 4, 1],
                "data_type": "Float32",
                "scale": None,
                "offset": None,
            }
        ],
        "outputs": [
            {
                "layer": 4,
                "name": "prob",
                "binding_id": 0,
                "listed": True,
                "shape": [1, 4, 4, 2],
                "data_type": "Float32",
                "scale": None,
                "offset": None,
            }
        ],
        "weights_bytes": 48,
        "warnings": [],
    }


def test_inspect_quantized(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 2), quantization_scale=0.5, quantization_offset=3, name="卷积\n\udcff")
    net.output(net.activation(x))
    Path("q.armnn").write_bytes(fe.dumps(net.graph))
    assert main(["inspect", "q.armnn"]) == 0
    assert "input     '卷积\\n\\udcff', id 0, QAsymmU8 [1, 2], scale 0.5, offset 3" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["models/bad.armnn", "models", "nowhere", "models/dangling.armnn"])
def test_inspect_what_cannot_be_read(models: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["inspect", name]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"fusion-engine: {name}: ")


# lint


def test_lint(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "armnn"]) == 0
    assert capsys.readouterr().out == f"1 file, {counted(len(fe.load_rules('armnn')), 'rule')}, no errors\n"
    Path("two.toml").write_text(
        '[[rule]]\nmatch = "Activation{Convolution}"\ninto = "X"\n\n[[rule]]\nmatch = "Activation{"\nwhat = 1\n'
    )
    assert main(["lint", "armnn", "two.toml", "none.toml"]) == 2
    out, err = capsys.readouterr()
    assert "two.toml:2:" in out
    assert "two.toml:6:" in out
    assert "two.toml:7:1" in out
    assert "none.toml" in out
    assert "         ^" in out
    assert err.endswith(" errors in 3 files\n")


# match


def test_match(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "Output{Activation{BatchNormalization{Convolution2d{Input}}}}"
    assert main(["match", text, "models/good.armnn", "models/plain.armnn"]) == 0
    out, err = capsys.readouterr()
    assert out == (
        "models/good.armnn: layer 4 'prob' Output; layer 3 'relu' Activation; layer 2 'norm' BatchNormalization; "
        "layer 1 'conv' Convolution2d; layer 0 'data' Input\n"
    )
    assert err.endswith("1 match in 1 of 2 models\n")


def test_match_input_as_root_and_failures(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["match", "Input", "models"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "models/good.armnn: layer 0 'data' Input",
        "models/plain.armnn: layer 0 'input_0' Input",
        "models/sub/good.armnn: layer 0 'data' Input",
    ]
    assert "fusion-engine: models/bad.armnn: " in err
    assert err.endswith("3 matches in 3 of 5 models, 2 failed\n")


# Words


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"fusion-engine {fe.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["fuse", "--help"], ["match", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    text = (
        "import sys\nfrom fusion_engine.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'networkx', 'parsimonious', 'flatbuffers'} & {*sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "fusion-engine" in done.stdout


def test_one_model_needs_no_worker_processes(models: Path) -> None:
    text = (
        "import sys\nfrom fusion_engine.cli import main\n"
        "assert main(['fuse', 'models/good.armnn', '--dry-run']) == 0\n"
        "print(sorted({'multiprocessing', 'fusion_engine.pool'} & {*sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_names_cannot_command_a_terminal(models: Path) -> None:
    name = b"m\n\x1b[31m\xff.armnn"
    with open(os.path.join(os.fsencode(models), name), "wb") as file:
        file.write(conv_bn("no\x1b[31m\nrm"))
    done = subprocess.run(
        [*COMMAND, "fuse", b"models/" + name, "--out", "fused", "--rules", "armnn"], capture_output=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith(b"models/m\\n\\x1b[31m\\xff.armnn: fused, ")
    assert b"\x1b" not in done.stdout + done.stderr
    assert sorted(os.listdir(b"fused")) == [b".fusion-engine", name]
    done = subprocess.run([*COMMAND, "inspect", b"no\x1b[31m\xff"], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"\x1b" not in done.stderr
    done = subprocess.run([*COMMAND, "no\x1b[31m"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_any_encoding_of_the_terminal(models: Path, encoding: str) -> None:
    os.rename(models / "good.armnn", models / "卷积.armnn")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = run("fuse", "models/卷积.armnn", "--out", "fused", env=environment)
    assert done.returncode == 0
    assert ("卷积" if encoding == "utf-8" else "\\u5377\\u79ef") in done.stdout


def test_a_reader_that_goes_away(models: Path) -> None:
    """The models are written although nobody reads the table; nothing is said of the pipe."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, "fuse", "models/good.armnn", "models/plain.armnn", "--out", "fused"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 0
    assert sorted(os.listdir("fused")) == [".fusion-engine", "good.armnn", "plain.armnn"]
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["match", "Input", "models/good.armnn"], ["lint", "armnn"]])
def test_a_reader_that_goes_away_elsewhere(models: Path, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run([*COMMAND, *arguments], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_standard_output_is_full(models: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "fuse", "models/good.armnn", "--out", "fused"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert Path("fused/good.armnn").exists()


def test_no_standard_output_at_all(models: Path) -> None:
    text = f"exec '{sys.executable}' -m fusion_engine fuse models/good.armnn --out fused >&- 2>&-"
    assert subprocess.run(["sh", "-c", text], check=False).returncode == 0
    assert Path("fused/good.armnn").exists()


def test_interrupted(models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("fusion_engine.batch._process", interrupt)
    assert main(["fuse", "models/good.armnn", "--out", "fused"]) == 130
    assert capsys.readouterr().err.endswith("fusion-engine: interrupted\n")


def test_an_error_of_our_own_is_no_traceback(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("sum")

    monkeypatch.setattr("fusion_engine.overview.overview", fail)
    assert main(["inspect", "models/good.armnn"]) == 1
    assert "internal error: ZeroDivisionError: sum (test_cli.py:" in capsys.readouterr().err


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What a terminal gets, standard output and standard error together."""
    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | environment
    process = subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=env, close_fds=True)
    os.close(theirs)
    got, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        if not data:
            break
        got += data
    os.close(ours)
    assert process.wait(60) == 0
    return got.decode()


def test_colours(models: Path) -> None:
    arguments = ("fuse", "models/good.armnn", "models/plain.armnn", "--out", "fused")
    coloured = on_a_terminal(*arguments)
    assert "models/good.armnn: \x1b[32mfused\x1b[0m" in coloured
    assert "models/plain.armnn: \x1b[33munchanged\x1b[0m" in coloured
    assert "\r\x1b[K  0% [--------------------] 0/2  good.armnn" in coloured
    assert re.search(r" 50% \[#{10}-{10}\] 1/2  [\d.]+ (?:models/s|s/model)  \d+:\d\d left  plain.armnn", coloured)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        text = on_a_terminal(*arguments, **environment)
        assert "\x1b[3" not in text
        assert "models/good.armnn: fused" in text
