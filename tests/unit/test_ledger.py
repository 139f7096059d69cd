"""A run does only what has changed, and one at a time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine import ledger
from fusion_engine.cli import main
from fusion_engine.language.sources import Source
from fusion_engine.ledger import FOLDER, Ledger
from fusion_engine.tasks import Task
from tests.support.nets import Net


def model(weight: float = 2.0) -> bytes:
    net = Net()
    conv = net.conv(net.input((1, 2, 2, 1), name="x"), weights=[[[[weight]]]])
    net.output(net.batch_norm(conv, [1.0], [2.0], [3.0], [4.0], name="n"))
    return fe.dumps(net.graph)


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    for name in "abc":
        Path(f"m/{name}.armnn").write_bytes(model())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """What became of a, b and c: ``new`` or ``kept``."""
    main(["fuse", "m", "--out", "o", *arguments])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("m/")]
    return ["kept" if "earlier written" in line or "earlier copied" in line else "new" for line in lines]


def test_only_what_has_changed_is_done_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys) == ["new", "new", "new"]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path("o").glob("*.armnn")}
    assert run(capsys) == ["kept", "kept", "kept"]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path("o").glob("*.armnn")} == before
    Path("m/a.armnn").write_bytes(model(3.0))
    Path("o/b.armnn").unlink()
    assert run(capsys) == ["new", "new", "kept"]
    Path("o/c.armnn").write_bytes(b"spoilt")
    assert run(capsys) == ["kept", "kept", "new"]
    assert Path("o/c.armnn").read_bytes() == before[Path("o/c.armnn")][0]
    assert run(capsys, "--force") == ["new", "new", "new"]


def test_other_rules_options_and_versions_are_other_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys)
    for arguments in (["--rules", "npu"], ["--skip", "pad"], ["--release", "23.08"], ["--verify"]):
        assert run(capsys, *arguments) == ["new", "new", "new"]
    assert run(capsys, "--verify") == ["kept", "kept", "kept"]
    monkeypatch.setattr("fusion_engine.tasks._program", lambda: "another")
    assert run(capsys, "--verify") == ["new", "new", "new"]


def test_the_report_of_what_was_kept_is_the_one_of_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--report", "one.json")
    run(capsys, "--report", "two.json")
    assert json.loads(Path("two.json").read_text()) == json.loads(Path("one.json").read_text())
    assert json.loads(Path("two.json").read_text())["summary"]["fusions"] == 3


def test_a_model_that_failed_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m/b.armnn").write_bytes(b"no model")
    assert run(capsys) == ["new", "new", "new"]
    Path("m/b.armnn").write_bytes(model())
    assert run(capsys) == ["kept", "new", "kept"]


@pytest.mark.parametrize(
    "left", [b"", b"\n", b"{", b"[1]\n", b'{"ledger": 2, "name": "a.armnn"}\n', b"\xff\n", b"[" * 200_000]
)
def test_a_record_that_is_odd_does_no_harm(left: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    path = Path("o") / FOLDER / "done.jsonl"
    path.write_bytes(left)
    assert run(capsys) == ["new", "new", "new"]
    assert run(capsys) == ["kept", "kept", "kept"]


@pytest.mark.parametrize(
    "change",
    [
        lambda report: report["layers_before"].update(constants=None),
        lambda report: report.update(status=10**30),
        lambda report: report.update(warnings=[1]),
    ],
)
def test_a_record_that_others_have_changed_is_not_believed(change: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    path = Path("o") / FOLDER / "done.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    change(entries[1]["report"])
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert run(capsys) == ["kept", "new", "kept"]


def test_a_record_that_is_cut_off_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys)
    path = Path("o") / FOLDER / "done.jsonl"
    whole = path.read_bytes()
    end = whole.index(b"\n")
    for cut in (1, end - 1, end, end + 1, end + 2, len(whole) // 2, len(whole) - 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert set(run(capsys)) <= {"new", "kept"}
        assert run(capsys) == ["kept", "kept", "kept"]


def test_a_record_does_not_grow_for_ever(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_engine.ledger.SPARE_LINES", 0)
    path = Path("o") / FOLDER / "done.jsonl"
    lengths = []
    for options in ([], ["--force"], ["--force"], [], ["--force"]):
        run(capsys, *options)
        lengths.append(len(path.read_bytes().splitlines()))
    assert lengths == [3, 6, 3, 3, 6]
    assert main(["fuse", "m/b.armnn", "--out", "o", "--force", "--quiet"]) == 0
    names = [json.loads(line)["name"] for line in path.read_bytes().splitlines()]
    assert names == ["a.armnn", "c.armnn", "b.armnn"], "models that this run was not about are still known"
    capsys.readouterr()
    assert run(capsys) == ["kept", "kept", "kept"]
    assert os.listdir(path.parent) == ["done.jsonl", "lock"] or os.listdir(path.parent) == ["lock", "done.jsonl"]


def test_what_another_run_recorded_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is read before the directory is locked: a run that ended in between has added to it."""
    monkeypatch.setattr("fusion_engine.ledger.SPARE_LINES", 0)
    os.mkdir("o")
    line = {"ledger": ledger._VERSION, "task": "task", "source": "s", "result": "r", "report": {}}
    lines = [{**line, "name": name} for name in "aabababc"]
    second = Ledger("o", "task")
    path = Path("o") / FOLDER / "done.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(entry | {"check": ledger._check(entry)}) + "\n" for entry in lines))
    with second.alone():
        pass
    assert [json.loads(one)["name"] for one in path.read_text().splitlines()] == ["a", "b", "c"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_each_directory_is_synchronised_once(
    jobs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all of it was written; a library's `save` does so at once, and a run that does nothing not at all."""
    synchronised: list[str] = []
    monkeypatch.setattr("fusion_engine.armnn.files._sync_directory", lambda path: synchronised.append(str(path)))
    Path("m/sub").mkdir()
    Path("m/sub/d.armnn").write_bytes(model())
    Path("m/sub/bad.armnn").write_bytes(b"no model")
    for expected in (["o", "o/sub"], []):
        run(capsys, "--jobs", jobs)
        assert synchronised == expected
        synchronised.clear()
    fe.save(fe.load("m/a.armnn"), "saved.armnn")
    assert synchronised == ["."]


def test_two_runs_into_one_directory(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkdir("o")
    with Ledger("o", "task").alone():
        assert main(["fuse", "m", "--out", "o"]) == 2
        assert "another run is at work in o" in capsys.readouterr().err
        assert list(Path("o").glob("*.armnn")) == []
    assert list(Path("o").iterdir()) == []
    assert run(capsys) == ["new", "new", "new"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are copied where there is fork")
def test_a_directory_is_free_when_its_run_has_ended_though_a_copy_of_it_lives() -> None:
    (Path("o") / FOLDER).mkdir(parents=True)
    (Path("o") / FOLDER / "done.jsonl").touch()
    end, begin = os.pipe()
    with Ledger("o", "task").alone():
        if (child := os.fork()) == 0:
            os.close(begin)
            os.read(end, 1)
            os._exit(0)
    try:
        with Ledger("o", "task").alone():
            pass
    finally:
        os.close(begin)
        os.waitpid(child, 0)
        os.close(end)


def test_what_a_killed_run_left_goes(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkdir("o")
    Path("o/.a.armnn.k2xw9.tmp").write_bytes(b"half")
    Path("o/.mine.tmp").write_bytes(b"mine")
    Path("o/.judged-12345-x").mkdir()
    Path("o/.judged-12345-x/a.armnn").write_bytes(b"half")
    run(capsys)
    assert sorted(os.listdir("o")) == [FOLDER, ".mine.tmp", "a.armnn", "b.armnn", "c.armnn"]


def test_a_dry_run_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    main(["fuse", "m", "--out", "o", "--dry-run"])
    assert not Path("o").exists()


def test_digests_of_tasks() -> None:
    tasks = [
        Task("fuse"),
        Task("convert"),
        Task("fuse", only=("a",)),
        Task("fuse", skip=("a",)),
        Task("fuse", release="20.08"),
    ]
    assert len({task.digest for task in tasks}) == len(tasks)
    assert Task("fuse", only=("a",)).digest == Task("fuse", only=("a",)).digest


def test_what_depends_on_others_code_is_done_anew(capsys: pytest.CaptureFixture[str]) -> None:
    """A judge may have changed, and so may other packages' folds and predicates."""
    Path("judge").write_text("#!/bin/sh\nexit 0\n")
    os.chmod("judge", 0o755)
    assert run(capsys, "--judge", "./judge") == run(capsys, "--judge", "./judge") == ["new", "new", "new"]
    Path("judge").write_text("#!/bin/sh\nexit 1\n")
    assert main(["fuse", "m", "--out", "o", "--judge", "./judge"]) == 1
    rule = '[[rule]]\nmatch = "Activation{Convolution2d}"\ninto = "K"\n'
    plain, asking = Source("a.toml", rule.encode()), Source("b.toml", f'{rule}when = "fits"\n'.encode())
    foreign = Source("c.toml", b'[[rule]]\nmatch = "Concat{?:1~}"\nfold = "batch-norm"\n')
    assert [Task("fuse", (source,)).lasting for source in (plain, foreign)] == [True, True]
    assert not Task("fuse", (asking,), judge="true").lasting
