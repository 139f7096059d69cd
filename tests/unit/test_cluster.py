"""Runs on a Dask cluster: a real one of two worker processes, some of which are killed."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fusion_engine import cluster as clusters
from fusion_engine.batch import plan
from fusion_engine.cli import main
from fusion_engine.cluster import Cluster
from fusion_engine.language.sources import read_source
from fusion_engine.pool import death
from fusion_engine.tasks import Task
from tests.support.zoo import files, model, s3

distributed = pytest.importorskip("distributed", reason="a scheduler needs the extra 'dask'")
dask = pytest.importorskip("dask")

FUSE = Task("fuse", (read_source("armnn"),))


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """An S3 server, which the workers know from their environment; None where there can be none."""
    if find_spec("s3fs") is None or find_spec("moto") is None or find_spec("flask") is None:
        yield None
        return
    with s3() as system:
        yield system


@pytest.fixture(scope="module")
def local(bucket: Any) -> Iterator[Any]:
    """A cluster that gives a model up when it has cost two workers."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1", silence_logs="CRITICAL"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Six models, the second no model at all."""
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"{number}.armnn").write_bytes(model(float(number)))
    (tmp_path / "in" / "1.armnn").write_bytes(b"no model")
    return tmp_path / "in"


def judge(tmp_path: Path, lines: str) -> str:
    """A judge, which sees the worker of the cluster as its parent."""
    script = tmp_path / "judge.py"
    script.write_text(f"import os, signal, sys, time\n{lines}\n", "utf-8")
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"


def entries(report: Path) -> list[dict[str, Any]]:
    """Those of the models, without what differs from run to run."""
    found: list[dict[str, Any]] = json.loads(report.read_text())["models"]
    for entry in found:
        del entry["seconds"]
        for rule in entry["statistics"]:
            del rule["seconds"]
        entry["output"] = entry["output"] and Path(entry["output"]).name
    return found


def test_the_order_the_reports_and_the_bytes_are_those_of_one_process(
    local: Any, models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far, near = tmp_path / "far", tmp_path / "near"
    words = ["--scheduler", local.scheduler_address, "--report", str(tmp_path / "far.json")]
    assert main(["fuse", str(models), "--out", str(far), *words]) == 1
    assert main(["fuse", str(models), "--out", str(near), "--jobs", "1", "--report", str(tmp_path / "near.json")]) == 1
    assert files(far) == files(near)
    assert files(far).keys() == {"0.armnn", "2.armnn", "3.armnn", "4.armnn", "5.armnn"}
    assert entries(tmp_path / "far.json") == entries(tmp_path / "near.json")
    capsys.readouterr()
    assert main(["fuse", str(models), "--out", str(far), *words]) == 1
    assert capsys.readouterr().out.count("earlier") == 5


def test_a_lost_worker_costs_a_retry(local: Any, models: Path, tmp_path: Path) -> None:
    once = tmp_path / "once"
    kill = judge(
        tmp_path,
        f"if sys.argv[1].endswith('3.armnn') and not os.path.exists({str(once)!r}):\n"
        f"    open({str(once)!r}, 'w').close()\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n",
    )
    words = ["--scheduler", local.scheduler_address, "--judge", kill, "--report", str(tmp_path / "report.json")]
    assert main(["fuse", str(models), "--out", str(tmp_path / "out"), *words]) == 1
    assert once.exists()
    reports = entries(tmp_path / "report.json")
    assert [entry["status"] for entry in reports] == ["fused", "failed", "fused", "fused", "fused", "fused"]
    assert main(["fuse", str(models), "--out", str(tmp_path / "near")]) == 1
    assert files(tmp_path / "out") == files(tmp_path / "near")


def test_a_model_that_costs_worker_after_worker_has_failed(local: Any, models: Path, tmp_path: Path) -> None:
    """And those that only waited in a worker that was lost have not."""
    kill = judge(tmp_path, "if sys.argv[1].endswith('3.armnn'): os.kill(os.getppid(), signal.SIGKILL)")
    words = ["--scheduler", local.scheduler_address, "--judge", kill, "--report", str(tmp_path / "report.json")]
    names = [str(models / f"{number}.armnn") for number in (3, 4, 5, 0, 2)]
    assert main(["fuse", *names, "--out", str(tmp_path / "out"), *words]) == 1
    lost, *others = entries(tmp_path / "report.json")
    assert lost["error"] == (
        f"{models}/3.armnn: 2 workers in turn were lost while they did it and nothing else "
        "(there was too little memory, perhaps)"
    )
    assert [entry["status"] for entry in others] == ["fused"] * 4
    assert files(tmp_path / "out").keys() == {"0.armnn", "2.armnn", "4.armnn", "5.armnn"}
    local.wait_for_workers(2, timeout=60)


def test_a_model_that_takes_too_long(local: Any, models: Path, tmp_path: Path) -> None:
    slow = judge(tmp_path, "if sys.argv[1].endswith('3.armnn'): time.sleep(600)")
    jobs = plan([models / "1.armnn", models / "3.armnn", models / "4.armnn"], tmp_path / "out")
    cluster = Cluster(local.scheduler_address)
    try:
        task = Task("fuse", FUSE.rules, judge=slow)
        broken, late, fused = cluster.reports(jobs, task, timeout=12)
        ended = Task("fuse", FUSE.rules, judge=judge(tmp_path, "os.kill(os.getppid(), signal.SIGKILL)"))
        (killed,) = cluster.reports(jobs[2:], ended, timeout=60)
    finally:
        cluster.close()
    assert broken.status == "failed"
    assert "4.armnn" not in str(broken.error)
    assert late.error == f"{models}/3.armnn: it took more than 12 seconds: give it more with --timeout"
    assert fused.status == "fused"
    assert killed.error == f"{models}/4.armnn: {death(-9)}"


def test_workers_without_a_disk_in_common(local: Any, bucket: Any, models: Path, tmp_path: Path) -> None:
    if bucket is None:
        pytest.skip("needs the extra 'remote' and moto[server]")
    for path in models.iterdir():
        bucket.put_file(path, f"zoo/in/{path.name}")
    words = ["--scheduler", local.scheduler_address]
    assert main(["fuse", "s3://zoo/in", "--out", "s3://zoo/out", *words]) == 1
    assert main(["fuse", str(models), "--out", str(tmp_path / "out")]) == 1
    names = [name for name in bucket.find("zoo/out") if name.endswith(".armnn")]
    assert {name.removeprefix("zoo/out/"): bucket.cat_file(name) for name in names} == files(tmp_path / "out")
    assert len(names) == 5


def test_a_worker_of_another_version(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "__version__", "0.0.0")
    with pytest.raises(clusters.OutputError, match=r"has version .* of this package, and this is 0\.0\.0"):
        Cluster(local.scheduler_address)
    monkeypatch.undo()
    cluster = Cluster(local.scheduler_address)
    monkeypatch.setattr(clusters, "__version__", "0.0.0")
    try:
        (report,) = cluster.reports([clusters.Job("a.armnn", None)], FUSE)
    finally:
        cluster.close()
    assert "of this package, and this is" in str(report.error)


def test_a_cluster_that_loses_its_workers_or_its_scheduler(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "PATIENCE", 0.3)
    monkeypatch.setattr(clusters, "_BEAT", 0.1)
    jobs = plan([models], tmp_path / "out")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as empty,
    ):
        cluster = Cluster(empty.scheduler_address)
        reports = list(cluster.reports(jobs, FUSE))
        assert {str(one.error).partition("armnn: ")[2] for one in reports} == {
            "the cluster has had no worker for 0.3 seconds: start some, and run it again"
        }
        assert [one.path for one in reports] == [job.path for job in jobs]
        monkeypatch.setattr(clusters, "PATIENCE", 600.0)
        work = cluster.reports(jobs, FUSE)
        empty.loop.call_later(0.5, lambda: empty.loop.add_callback(empty.scheduler.close))
        begin = time.monotonic()
        reports = list(work)
        assert time.monotonic() - begin < 60
        assert {str(one.error).partition("armnn: ")[2] for one in reports} == {
            "the connection to the scheduler was lost: run it again"
        }
        cluster.close()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--scheduler", "tcp://127.0.0.1:1"], "the scheduler tcp://127.0.0.1:1 does not answer: "),
        (["--scheduler", "nonsense://x"], "the scheduler nonsense://x does not answer: "),
        (["--scheduler", "x", "--jobs", "2"], "--jobs is for the work of this machine: give it or --scheduler"),
        (["--scheduler", "x", "--diff", "pages"], "--diff is for the work of this machine: give it or --scheduler"),
    ],
)
def test_wrong_commands_do_nothing(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    reason: str,
) -> None:
    monkeypatch.setattr(clusters, "CONNECTING", 1.0)
    assert main(["fuse", str(models / "0.armnn"), "--out", str(tmp_path / "out"), *words]) == 2
    assert reason in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*.armnn"))


def test_without_dask(models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["fuse", str(models), "--dry-run", "--scheduler", "x"]) == 2
    assert "pip install 'armnn-fusion-engine[dask]'" in capsys.readouterr().err
