"""Worker processes: the order of reports, and workers that die, hang or never had rules."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import fusion_engine as fe
from fusion_engine.batch import Job, plan
from fusion_engine.language.sources import read_source
from fusion_engine.pool import _context, cores, in_parallel
from fusion_engine.report import ModelReport
from fusion_engine.signals import orderly
from fusion_engine.tasks import Task
from tests.support.nets import Net

FUSE = Task("fuse", (read_source("armnn"),))


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """Six models, the second no model at all."""
    (tmp_path / "in").mkdir()
    for number in range(6):
        net = Net()
        conv = net.conv(net.input((1, 2, 2, 1), name="x"), weights=[[[[float(number)]]]])
        net.output(net.batch_norm(conv, [1.0], [2.0], [3.0], [4.0], name="n"))
        fe.save(net.graph, tmp_path / "in" / f"{number}.armnn")
    (tmp_path / "in" / "1.armnn").write_bytes(b"no model")
    return plan([tmp_path / "in"], tmp_path / "out")


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_reports_come_in_order_and_the_bytes_are_those_of_one_process(jobs: list[Job], tmp_path: Path) -> None:
    worker = FUSE.worker()
    alone = [worker(job) for job in jobs]
    bytes_alone = written(tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    heard: list[ModelReport] = []
    together = list(in_parallel(jobs, FUSE, 3, heard=heard.append))
    assert [report.path for report in together] == [job.path for job in jobs]
    assert [report.status for report in together] == ["fused", "failed", "fused", "fused", "fused", "fused"]
    assert together == alone
    assert sorted(report.path for report in heard) == [job.path for job in jobs]
    assert all(report.seconds is not None and 0 < report.seconds < 60 for report in together)
    assert written(tmp_path / "out") == bytes_alone


def judged(tmp_path: Path, lines: str) -> Task:
    """A task whose judge is a script, which sees the worker as its parent."""
    script = tmp_path / "judge.py"
    script.write_text(f"import os, signal, sys, time\n{lines}\n", "utf-8")
    return Task("fuse", FUSE.rules, judge=f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}")


def test_a_worker_that_is_killed_fails_its_model_only(jobs: list[Job], tmp_path: Path) -> None:
    task = judged(tmp_path, "if sys.argv[1].endswith('3.armnn'): os.kill(os.getppid(), signal.SIGKILL)")
    reports = list(in_parallel(jobs, task, 2))
    assert [report.status for report in reports] == ["fused", "failed", "fused", "failed", "fused", "fused"]
    assert reports[3].error is not None
    assert reports[3].error.startswith(f"{jobs[3].path}: its worker process was ended by SIGKILL")
    assert set(written(tmp_path / "out")) == {"0.armnn", "2.armnn", "4.armnn", "5.armnn"}


def test_a_worker_ends_by_a_signal_that_the_main_process_handles(jobs: list[Job], tmp_path: Path) -> None:
    task = judged(tmp_path, "if sys.argv[1].endswith('3.armnn'): os.kill(os.getppid(), signal.SIGTERM)")
    with orderly():
        reports = list(in_parallel(jobs, task, 2))
    assert [report.status for report in reports] == ["fused", "failed", "fused", "failed", "fused", "fused"]
    assert reports[3].error == f"{jobs[3].path}: its worker process was ended by SIGTERM"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_workers_are_copies_of_this_process_where_that_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [1]
    monkeypatch.setattr(threading, "active_count", lambda: threads[0])  # other tests leave some
    assert _context(FUSE).get_start_method() == "fork"
    assert _context(replace(FUSE, verify=True)).get_start_method() == "spawn"
    threads[0] = 2
    assert _context(FUSE).get_start_method() == "spawn"
    threads[0] = 1
    assert _context(FUSE).get_start_method() == "fork"
    monkeypatch.setattr(Task, "own", False)
    assert _context(FUSE).get_start_method() == "spawn"


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_copies_and_new_processes_do_the_same(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setattr("fusion_engine.pool._context", lambda _: multiprocessing.get_context(start))
    worker = FUSE.worker()
    alone = [worker(job) for job in jobs]
    bytes_alone = written(tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    assert list(in_parallel(jobs, FUSE, 2)) == alone
    assert written(tmp_path / "out") == bytes_alone


@pytest.mark.skipif(sys.platform != "linux", reason="the command does a few small models itself")
def test_a_few_small_models_have_a_worker_too(tmp_path: Path) -> None:
    net = Net()
    net.output(net.activation(net.input((1, 2)), "ReLu"))
    (tmp_path / "m").mkdir()
    for name in "abc":
        fe.save(net.graph, tmp_path / "m" / f"{name}.armnn")
    program = (
        "import os, sys\n"
        "import fusion_engine\n"
        "from fusion_engine.cli import main\n"
        "load = fusion_engine.load\n"
        "fusion_engine.load = lambda path: os.kill(os.getpid(), 9) if path.endswith('b.armnn') else load(path)\n"
        "sys.exit(main(['fuse', 'm', '--out', 'o', '--quiet']))\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "m/b.armnn: failed: its worker process was ended by SIGKILL" in done.stdout
    assert sorted(path.name for path in (tmp_path / "o").glob("*.armnn")) == ["a.armnn", "c.armnn"]


def test_a_worker_that_hangs_fails_its_model_only(jobs: list[Job], tmp_path: Path) -> None:
    task = judged(tmp_path, "if sys.argv[1].endswith('0.armnn'): time.sleep(600)")
    begin = time.monotonic()
    reports = list(in_parallel(jobs, task, 2, timeout=6))
    assert [report.status for report in reports] == ["failed", "failed", "fused", "fused", "fused", "fused"]
    assert reports[0].error == f"{jobs[0].path}: it took more than 6 seconds: give it more with --timeout"
    assert reports[0].seconds is not None
    assert 6 <= reports[0].seconds < 300
    assert time.monotonic() - begin < 300


def test_work_that_is_given_up_leaves_no_process(jobs: list[Job], tmp_path: Path) -> None:
    task = judged(tmp_path, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getppid())); time.sleep(600)")
    reports = in_parallel(jobs[2:], task, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fusion_engine.pool._Crew.wait", interrupted_when(tmp_path / "pid"))
        with pytest.raises(KeyboardInterrupt):
            next(reports)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def interrupted_when(path: Path) -> object:
    def results(_: object) -> dict[int, object]:
        for _ in range(6000):
            if path.exists() and path.read_text():
                raise KeyboardInterrupt
            time.sleep(0.01)
        raise AssertionError("the judge was never asked")

    return results


def test_there_is_a_core() -> None:
    assert cores() >= 1
