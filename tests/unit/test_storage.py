"""Models and results at URLs, in memory and on an S3 server that the tests start."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion_engine import storage
from fusion_engine.batch import Job, find_models, plan, process
from fusion_engine.cli import main
from fusion_engine.errors import OutputError
from fusion_engine.language.sources import MAX_BYTES
from fusion_engine.ledger import Ledger
from fusion_engine.network import Network
from tests.support.zoo import files, model, s3

fsspec = pytest.importorskip("fsspec", reason="URLs need the extra 'remote'")

RECORD = "out/.fusion-engine/done.jsonl"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    pytest.importorskip("s3fs", reason="S3 needs the extra 'remote'")
    pytest.importorskip("moto.server", reason="the S3 server of the tests needs moto[server]")
    with s3() as system:
        yield system


@pytest.fixture
def bucket(server: Any) -> Any:
    """The server, its bucket empty."""
    for name in server.find("zoo"):
        server.rm_file(name)
    return server


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system in memory, which is no object store."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


def keep(graph: Network) -> tuple[Network, bool]:
    return graph, False


def statuses(report: Path) -> list[str]:
    return [entry["status"] for entry in json.loads(report.read_text())["models"]]


# An S3 server


def test_from_s3_to_s3_as_from_here_to_here(bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a.armnn", "b c/é+%41?#.armnn", "deep/er/x[1]*.armnn", "plain.txt"]
    for number, name in enumerate(names):
        data = model(float(number))
        bucket.pipe_file(f"zoo/in/{name}", data)
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert main(["fuse", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    report = tmp_path / "report.json"
    assert main(["fuse", "s3://zoo/in", "--out", "s3://zoo/out", "--report", str(report)]) == 0
    written = {name.removeprefix("zoo/out/"): bucket.cat_file(name) for name in bucket.find("zoo/out")}
    del written[RECORD.removeprefix("out/")]
    assert written == files(tmp_path / "out")
    assert len(written) == 3
    entries = json.loads(report.read_text())["models"]
    assert [(entry["path"], entry["output"]) for entry in entries] == [
        (f"s3://zoo/in/{name}", f"s3://zoo/out/{name}") for name in names[:3]
    ]
    assert "s3://zoo/in/a.armnn" in capsys.readouterr().out


def test_a_rerun_on_s3_does_what_has_changed(bucket: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate("abc"):
        bucket.pipe_file(f"zoo/in/{name}.armnn", model(float(number)))

    def again(*options: str) -> list[bool]:
        assert main(["fuse", "s3://zoo/in", "--out", "s3://zoo/out", *options]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("s3://")]
        assert len(lines) == 3
        return ["earlier" not in line for line in lines]

    assert again() == [True, True, True]
    whole = bucket.cat_file("zoo/out/b.armnn")
    assert again() == [False, False, False]
    bucket.pipe_file("zoo/in/a.armnn", model(7.0))
    bucket.pipe_file("zoo/out/b.armnn", b"spoilt")
    assert again() == [True, True, False]
    assert bucket.cat_file("zoo/out/b.armnn") == whole
    bucket.rm_file("zoo/out/c.armnn")
    assert again() == [False, False, True]
    assert again("--force") == [True, True, True]
    assert len(bucket.cat_file(f"zoo/{RECORD}").splitlines()) == 3


def test_failures_on_s3_stay_with_their_models(bucket: Any, tmp_path: Path) -> None:
    bucket.pipe_file("zoo/in/bad.armnn", b"no model")
    bucket.pipe_file("zoo/in/good.armnn", model())
    report = tmp_path / "report.json"
    words = ["s3://zoo/in", "s3://zoo/none.armnn", "--out", str(tmp_path / "out"), "--report", str(report)]
    assert main(["fuse", *words]) == 1
    bad, good, none = json.loads(report.read_text())["models"]
    assert [bad["status"], good["status"], none["status"]] == ["failed", "fused", "failed"]
    assert bad["error"].startswith("s3://zoo/in/bad.armnn: ")
    assert none["error"] == "s3://zoo/none.armnn: cannot be read: there is no such file"
    assert files(tmp_path / "out").keys() == {"good.armnn"}


def test_a_bucket_that_is_not_there(bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.armnn").write_bytes(model())
    assert main(["fuse", str(tmp_path / "a.armnn"), "--out", "s3://nowhere/out"]) == 2
    assert "s3://nowhere/out/.fusion-engine/done.jsonl: cannot be written: " in capsys.readouterr().err


def test_results_in_workers(bucket: Any, tmp_path: Path) -> None:
    for number in range(6):
        bucket.pipe_file(f"zoo/in/{number}.armnn", model(float(number)))
    assert main(["fuse", "s3://zoo/in", "--out", "s3://zoo/out", "--jobs", "2"]) == 0
    assert main(["fuse", "s3://zoo/in", "--out", str(tmp_path / "out")]) == 0
    names = [name for name in bucket.find("zoo/out") if name.endswith(".armnn")]
    assert {name.removeprefix("zoo/out/"): bucket.cat_file(name) for name in names} == files(tmp_path / "out")
    assert len(names) == 6


# Whatever fsspec has


def test_elsewhere_results_are_moved_into_place(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    move = type(memory).mv

    def mv(self: Any, old: str, new: str, **options: Any) -> None:
        moved.append((old, new))
        move(self, old, new, **options)

    monkeypatch.setattr(type(memory), "mv", mv)
    memory.pipe_file("/out/.a.armnn.0123456789abcdef.tmp", b"half")
    memory.pipe_file("/out/.mine.tmp", b"mine")
    (tmp_path / "a.armnn").write_bytes(model())
    assert main(["fuse", str(tmp_path / "a.armnn"), "--out", "memory://out"]) == 0
    assert [new for old, new in moved if old.startswith("/out/.a.armnn.")] == ["/out/a.armnn"]
    assert set(memory.find("/")) == {"/out/a.armnn", "/out/.mine.tmp", f"/{RECORD}"}
    assert main(["fuse", str(tmp_path / "a.armnn"), "--out", str(tmp_path / "out")]) == 0
    assert memory.cat_file("/out/a.armnn") == (tmp_path / "out" / "a.armnn").read_bytes()


def test_a_move_that_fails_leaves_the_old(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/out/a.armnn", b"old")
    (tmp_path / "a.armnn").write_bytes(model())

    def mv(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(memory), "mv", mv)
    report = process(Job(str(tmp_path / "a.armnn"), "memory://out/a.armnn"), keep)
    assert report.error == "memory://out/a.armnn: cannot be written: No space left on device"
    assert {name: memory.cat_file(name) for name in memory.find("/")} == {"/out/a.armnn": b"old"}


def test_an_input_that_changes_meanwhile(memory: Any) -> None:
    memory.pipe_file("/in/a.armnn", model())

    def meddle(graph: Network) -> tuple[Network, bool]:
        memory.pipe_file("/in/a.armnn", model(5.0))
        return graph, False

    report = process(Job("memory://in/a.armnn", "memory://out/a.armnn"), meddle)
    assert report.error == "memory://in/a.armnn: the file was changed while in use: run it again"
    assert memory.find("/out") == []


def test_nothing_stays_in_the_temporary_directory(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory.pipe_file("/in/a.armnn", model())
    assert process(Job("memory://in/a.armnn", "memory://out/a.armnn"), keep).status == "unchanged"
    assert os.listdir(tmp_path) == []
    (tmp_path / "fusion-engine-12345-x" / "in").mkdir(parents=True)
    (tmp_path / "fusion-engine-123456-x").mkdir()
    storage.remove_stages(12345)
    assert os.listdir(tmp_path) == ["fusion-engine-123456-x"]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    report = process(Job("memory://in/a.armnn", None), keep)
    assert report.error == "memory://in/a.armnn: no temporary directory can be made for it: No such file or directory"


def test_a_dry_run_writes_nothing(memory: Any) -> None:
    memory.pipe_file("/in/a.armnn", model())
    assert main(["fuse", "memory://in", "--dry-run"]) == 0
    assert main(["fuse", "memory://in", "--out", "memory://out", "--dry-run"]) == 0
    assert memory.find("/") == ["/in/a.armnn"]


def test_the_judge_sees_files(memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/in/a.armnn", model())
    script = tmp_path / "judge.py"
    script.write_text(
        "import sys\nfor path in sys.argv[1:]: open(path, 'rb').close()\nsys.exit('no: ' + sys.argv[1])\n"
    )
    report = tmp_path / "report.json"
    judge = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"
    words = ["--out", "memory://out", "--judge", judge, "--report", str(report)]
    assert main(["fuse", "memory://in", *words]) == 1
    (entry,) = json.loads(report.read_text())["models"]
    assert entry["error"] == (
        "memory://in/a.armnn: the judge gave exit code 1, so the result is not kept: no: memory://in/a.armnn"
    )
    assert memory.find("/out") == [f"/{RECORD}"]


def test_where_models_are_and_go(memory: Any, tmp_path: Path) -> None:
    for name in ("/in/b/a.armnn", "/in/a.armnn", "/in/b.txt", "/in/out/x.armnn", "/one"):
        memory.pipe_file(name, b"")
    found = find_models(["memory://in", "memory://one"], "memory://in/out")
    assert [(one.path, one.below) for one in found] == [
        ("memory://in/a.armnn", "a.armnn"),
        ("memory://in/b/a.armnn", "b/a.armnn"),
        ("memory://one", "one"),
    ]
    jobs = plan(["memory://in/b", "memory://in/b/a.armnn"], str(tmp_path))
    assert [(job.path, job.output) for job in jobs] == [("memory://in/b/a.armnn", str(tmp_path / "a.armnn"))]
    with pytest.raises(OutputError, match="memory://in is the output directory"):
        plan(["memory://in"], "memory://in/")
    with pytest.raises(OutputError, match=r"the output memory://in/b/a\.armnn is the input memory://in/b/a\.armnn"):
        plan(["memory://in/b/a.armnn"], "memory://in/b")
    with pytest.raises(OutputError, match=r"memory://in/a\.armnn and memory://in/b/a\.armnn have the same output"):
        plan(["memory://in/a.armnn", "memory://in/b/a.armnn"], "memory://else")
    memory.mkdir("/none")
    assert plan(["memory://none"], "memory://else") == [
        Job("memory://none", None, "there is no file *.armnn in the directory")
    ]


def test_names_that_lead_elsewhere(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["/in/../../etc/x.armnn", "/in//x.armnn", "/in/./x.armnn", "/in/\0.armnn", "/in/a..b.armnn"]
    monkeypatch.setattr(type(memory), "find", lambda *_, **__: names)
    memory.pipe_file("/in/x", b"")
    jobs = plan(["memory://in"], str(tmp_path))
    assert [job.output for job in jobs if job.fault is None] == [str(tmp_path / "a..b.armnn")]
    assert {job.fault for job in jobs if job.output is None} == {
        "its name is no path below a directory: name it by itself"
    }
    assert len(jobs) == 5


def test_a_file_of_this_machine_by_its_url(tmp_path: Path) -> None:
    (tmp_path / "a.armnn").write_bytes(model())
    with pytest.raises(OutputError, match="is the input"):
        plan([f"file://{tmp_path}/a.armnn"], str(tmp_path))
    assert process(Job(f"file://{tmp_path}/a.armnn", f"file://{tmp_path}/out/b.armnn"), keep).error is None
    assert (tmp_path / "out" / "b.armnn").read_bytes() == model()


def test_a_name_that_no_file_can_have(memory: Any) -> None:
    long = "x" * 300 + ".armnn"
    memory.pipe_file(f"/in/{long}", model())
    assert process(Job(f"memory://in/{long}", f"memory://out/{long}"), keep).error is None
    assert memory.cat_file(f"/out/{long}") == model()


def test_a_model_that_is_too_large_is_not_fetched(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(memory), "info", lambda *_, **__: {"size": 2**31, "type": "file", "created": 1})
    monkeypatch.setattr(type(memory), "get_file", None)
    report = process(Job("memory://in/a.armnn", None), keep)
    assert report.error is not None
    assert report.error.startswith("memory://in/a.armnn: 2147483648 bytes are too many")


@pytest.mark.parametrize("fault", [ValueError("no such thing"), PermissionError(13, "Forbidden"), KeyError("x")])
def test_whatever_a_file_system_raises(memory: Any, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def get_file(*_: Any, **__: Any) -> None:
        raise fault

    memory.pipe_file("/in/a.armnn", model())
    monkeypatch.setattr(type(memory), "get_file", get_file)
    report = process(Job("memory://in/a.armnn", None), keep)
    words = getattr(fault, "strerror", None) or str(fault)
    assert report.error == f"memory://in/a.armnn: cannot be read: {words}"


def test_urls_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuse", "nonsense://a", "--dry-run"]) == 2
    assert "nonsense://a: cannot be used: " in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert main(["fuse", "s3://zoo/in", "--dry-run"]) == 2
    assert "pip install 'armnn-fusion-engine[remote]'" in capsys.readouterr().err


RULES = b'[[rule]]\nname = "mine"\nmatch = "BatchNormalization{Convolution2d{?}}"\nfold = "batch-norm"\n'


def far(system: str, request: pytest.FixtureRequest) -> tuple[Any, str]:
    return request.getfixturevalue("memory" if system == "memory" else "bucket"), f"{system}://zoo"


@pytest.mark.parametrize("system", ["memory", "s3"])
def test_rules_reports_and_baselines_at_urls(
    system: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, url = far(system, request)
    for name, data in (("in/a.armnn", model()), ("in/bad.armnn", b"no model"), ("mine.toml", RULES)):
        there.pipe_file(f"zoo/{name}", data)
    rules = ["--rules", f"{url}/mine.toml"]
    suffixes = ("json", "jsonl", "csv", "xml", "html")
    wanted = [word for one in suffixes for word in ("--report", f"{url}/reports/r.{one}")]
    assert main(["fuse", f"{url}/in", "--out", f"{url}/out", *rules, *wanted]) == 1
    report = json.loads(there.cat_file("zoo/reports/r.json"))
    assert [(one["path"], one["status"]) for one in report["models"]] == [
        (f"{url}/in/a.armnn", "fused"),
        (f"{url}/in/bad.armnn", "failed"),
    ]
    assert [one["rule"] for one in report["models"][0]["fusions"]] == ["mine"]
    assert report["rules"][0]["file"] == f"{url}/mine.toml"
    found = {name.rpartition("/")[2] for name in there.find("zoo/reports")}
    assert found == {f"r.{one}" for one in suffixes}
    capsys.readouterr()
    again = ["fuse", f"{url}/in", "--out", f"{url}/out", *rules, "--baseline", f"{url}/reports/r.json"]
    assert main([*again, "--fail-on", "failed"]) == 0
    assert "known from the baseline: 1 finding" in capsys.readouterr().err
    assert main([*again, "--report", f"{url}/reports/r.json"]) == 2
    assert "is the baseline, which would then know all that is new" in capsys.readouterr().err
    assert main(["lint", f"{url}/mine.toml"]) == 0


def test_looking_at_models_at_urls(memory: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.armnn").write_bytes(model())
    memory.pipe_file("/in/a.armnn", model())
    memory.pipe_file("/in/bad.armnn", b"no model")
    for command in (["inspect"], ["match", "BatchNormalization{Convolution2d}"], ["explain"]):
        assert main([*command, str(tmp_path / "a.armnn")]) == 0
        here = capsys.readouterr().out
        assert main([*command, "memory://in/a.armnn"]) == 0
        assert capsys.readouterr().out == here.replace(str(tmp_path / "a.armnn"), "memory://in/a.armnn")
        assert main([*command, "memory://in/bad.armnn"]) == 1
        error = capsys.readouterr().err
        assert error.startswith("fusion-engine: memory://in/bad.armnn: ")
        assert "fusion-engine-" not in error
    assert main(["draw", "memory://in/a.armnn", "-o", str(tmp_path / "a.dot")]) == 0
    assert main(["draw", str(tmp_path / "a.armnn"), "-o", "memory://a.dot"]) == 2
    assert "memory://a.dot: pictures are files of this machine" in capsys.readouterr().err
    assert "digraph" in (tmp_path / "a.dot").read_text("utf-8")


def test_what_cannot_be_at_urls_is_told_before_any_work(
    memory: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe_file("/in/a.armnn", model())
    memory.pipe_file("/large.toml", b"#" * (MAX_BYTES + 1))
    command = ["fuse", "memory://in", "--out", "memory://out"]
    for options, reason in (
        (["--report", "memory://in/a.armnn"], "the report memory://in/a.armnn is a model or rule file of the run"),
        (["--report", "memory://out/a.armnn"], "the report memory://out/a.armnn is a model or rule file of the run"),
        (["--report", "memory://r.json", "--report", "memory:///r.json"], "is asked for twice"),
        (["--report", "memory://r.json", "--baseline", "memory:///r.json"], "cannot be read: there is no such file"),
        (["--report", "memory://r.txt"], "the report memory://r.txt has no known format"),
        (["--report", "nonsense://r.json"], "the report nonsense://r.json: cannot be used: "),
        (
            ["--baseline", "memory://none.json"],
            "the baseline memory://none.json: cannot be read: there is no",
        ),
        (["--baseline", "memory://in/a.armnn"], "the baseline memory://in/a.armnn is no report of this version"),
        (["--rules", "memory://none.toml"], "memory://none.toml: the rule file cannot be read: there is no such file"),
        (["--rules", "memory://large.toml"], f"the rule file is larger than {MAX_BYTES} bytes"),
        (["--diff", "memory://pages"], "--diff memory://pages: pages are files of this machine"),
    ):
        assert main([*command, *options]) == 2
        assert reason in capsys.readouterr().err
    assert not memory.exists("/out")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    (tmp_path / "a.armnn").write_bytes(model())
    for options in (["--report", "s3://zoo/r.json"], ["--baseline", "s3://zoo/r.json"], ["--rules", "s3://zoo/r.toml"]):
        assert main(["fuse", str(tmp_path / "a.armnn"), "--out", str(tmp_path / "out"), *options]) == 2
        assert "pip install 'armnn-fusion-engine[remote]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_put_is_told(
    memory: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    memory.pipe_file("/r.json", b"before")
    monkeypatch.setattr(type(memory), "put_file", full)
    (tmp_path / "a.armnn").write_bytes(model())
    command = ["fuse", str(tmp_path / "a.armnn"), "--out", str(tmp_path / "out"), "--report", "memory://r.json"]
    assert main([*command, "--report", str(tmp_path / "r.json")]) == 1
    assert "fusion-engine: memory://r.json: cannot be written: No space left on device" in capsys.readouterr().err
    assert memory.cat_file("/r.json") == b"before"
    assert statuses(tmp_path / "r.json") == ["fused"]


def test_the_record_is_saved_now_and_then(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed has lost what it did since."""
    monkeypatch.setattr("fusion_engine.ledger.SAVED_EVERY", 0.0)
    for name in "ab":
        memory.pipe_file(f"/in/{name}.armnn", model())
    jobs = plan(["memory://in"], "memory://out")
    ledger = Ledger("memory://out", "task")
    with ledger.alone():
        assert memory.cat_file(f"/{RECORD}") == b""
        assert not ledger.has(jobs[0])
        ledger.note(process(jobs[0], keep))
        second = Ledger("memory://out", "task")
        assert second.has(jobs[0])
        assert second.report(jobs[0]).output == jobs[0].output
        assert not second.has(jobs[1])
    assert not Ledger("memory://out", "another").has(jobs[0])
    assert not Ledger("memory://out", "task", force=True).has(jobs[0])


def test_what_a_forced_run_is_not_about_stays_recorded(memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        memory.pipe_file(f"/in/{name}.armnn", model())
    assert main(["fuse", "memory://in", "--out", "memory://out"]) == 0
    assert main(["fuse", "memory://in/a.armnn", "--out", "memory://out", "--force"]) == 0
    assert len(memory.cat_file(f"/{RECORD}").splitlines()) == 2
    capsys.readouterr()
    assert main(["fuse", "memory://in", "--out", "memory://out"]) == 0
    assert capsys.readouterr().out.count("earlier written") == 2


def test_an_archive_of_models(tmp_path: Path) -> None:
    from zipfile import ZipFile

    with ZipFile(tmp_path / "zoo.zip", "w") as archive:
        archive.writestr("in/a.armnn", model())
    assert main(["fuse", f"zip://in::file://{tmp_path}/zoo.zip", "--out", str(tmp_path / "out")]) == 0
    assert files(tmp_path / "out").keys() == {"a.armnn"}
