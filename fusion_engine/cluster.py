"""Many models on many machines: the workers of a Dask cluster (extra ``dask``).

Dask carries the jobs to the workers and does those of a lost worker again, as often as its setting
``distributed.scheduler.allowed-failures`` says; what it gives up is tried once more by itself. A job is plain data,
so a worker needs this package, and to reach models and results by the same paths or URLs.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fusion_engine import __version__
from fusion_engine.batch import Job
from fusion_engine.console import counted
from fusion_engine.errors import FusionEngineError, OutputError
from fusion_engine.pool import in_order
from fusion_engine.report import ModelReport
from fusion_engine.spool import Backlog
from fusion_engine.storage import scratch

if TYPE_CHECKING:
    from fusion_engine.tasks import Task, Worker

__all__ = ["CONNECTING", "PATIENCE", "Cluster"]

CONNECTING = 20.0
"""Seconds in which the scheduler must answer."""

PATIENCE = 600.0
"""Seconds that a run waits for a worker while the cluster has none."""

_BEAT = 5.0
_WINDOW = 128


class Cluster:
    """A Dask cluster, by the address of its scheduler.

    Parameters
    ----------
    address
        Such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    OutputError
        Where Dask is not installed, no scheduler answers, or a worker has not this version of this package.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise OutputError("a scheduler needs Dask: pip install 'armnn-fusion-engine[dask]'") from None
        try:
            self._client: Any = Client(address, timeout=CONNECTING, set_as_default=False)
        except Exception as error:
            raise OutputError(f"the scheduler {address} does not answer: {_words(error)}") from error
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise

    def _check_workers(self) -> None:
        for worker, version in self._client.run(_version, on_error="return").items():
            if isinstance(version, Exception):
                raise OutputError(
                    f"the worker {worker} cannot do models: {_words(version)}: install this package there"
                )
            if version != __version__:
                raise OutputError(_mismatch(str(worker), version))

    def close(self) -> None:
        """Leave the cluster."""
        with suppress(Exception):
            self._client.close(timeout=5)

    def reports(
        self,
        jobs: Sequence[Job],
        task: Task,
        timeout: float | None = None,
        heard: Callable[[ModelReport], None] = lambda _: None,
    ) -> Generator[ModelReport, None, None]:
        """Do jobs on the cluster, with what `fusion_engine.pool.in_parallel` takes.

        With a ``timeout`` each model gets a process of its own, which is killed when its time is over.
        """
        return in_order(len(jobs), _Crowd(self._client, task, timeout, jobs, heard))


class _Crowd:
    """The jobs of a run: those that wait, those that the cluster has, those that are done.

    Dask blames every job that a lost worker had, also one that only waited there. So a job that it gives up is a
    suspect, and is done once more when nothing else is.
    """

    def __init__(
        self,
        client: Any,
        task: Task,
        timeout: float | None,
        jobs: Sequence[Job],
        heard: Callable[[ModelReport], None],
    ) -> None:
        self._heard = heard
        self._client = client
        self._task = task
        self._timeout = timeout
        self._jobs = jobs
        self._waiting = deque(range(len(jobs)))
        self._suspects: deque[int] = deque()
        self._by_itself: set[int] = set()
        self._futures: dict[int, Any] = {}
        self._ended: SimpleQueue[int] = SimpleQueue()
        self._run = uuid4().hex
        self._seen = time.monotonic()
        self._most = max(_WINDOW, 4 * sum(client.nthreads().values()))
        self.finished = Backlog()

    def _finish(self, number: int, report: ModelReport) -> None:
        self.finished.put(number, report)
        self._heard(report)

    def employ(self) -> None:
        """Send jobs, as many as the cluster has use for; at last the suspects, each by itself."""
        while self._waiting and len(self._futures) < self._most:
            self._send(self._waiting.popleft())
        if self._suspects and not self._futures:
            number = self._suspects.popleft()
            self._by_itself.add(number)
            self._send(number)

    def _send(self, number: int) -> None:
        future = self._client.submit(
            _do,
            __version__,
            self._task,
            self._jobs[number],
            self._timeout,
            key=f"fusion-engine-{self._run}-{number}{'-again' if number in self._by_itself else ''}",
            pure=False,
        )
        self._futures[number] = future
        future.add_done_callback(lambda _: self._ended.put(number))

    def wait(self) -> None:
        """Wait until a job has ended, or the cluster with all its workers."""
        try:
            number = self._ended.get(timeout=_BEAT)
        except Empty:
            self._look()
            return
        self._seen = time.monotonic()
        future = self._futures.pop(number, None)
        if future is None:
            return
        if future.status in ("cancelled", "lost"):
            self._give_up("the connection to the scheduler was lost: run it again", number)
            return
        try:
            report: ModelReport = future.result()
        except Exception as error:
            if _lost_workers(error) and number not in self._by_itself:
                self._suspects.append(number)
                return
            report = _failed(self._jobs[number], _reason(error))
        self._finish(number, report)

    def _look(self) -> None:
        """Give up where the scheduler does not answer, or there has been no worker for long."""
        try:
            workers = self._client.nthreads()
        except Exception:
            self._give_up("the connection to the scheduler was lost: run it again")
            return
        if workers:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > PATIENCE:
            self._give_up(f"the cluster has had no worker for {PATIENCE:g} seconds: start some, and run it again")

    def _give_up(self, reason: str, *numbers: int) -> None:
        for number in sorted((*numbers, *self._futures, *self._waiting, *self._suspects)):
            self._finish(number, _failed(self._jobs[number], reason))
        self._futures.clear()
        self._waiting.clear()
        self._suspects.clear()

    def dismiss(self) -> None:
        """Take back what is not done."""
        with suppress(Exception):
            self._client.cancel(list(self._futures.values()))
        self._futures.clear()


def _failed(job: Job, reason: str) -> ModelReport:
    return ModelReport(job.path, "failed", error=f"{job.path}: {reason}")


def _lost_workers(error: Exception) -> int:
    """How many workers Dask has lost over a job, where that is why it gave the job up; else 0."""
    from distributed import KilledWorker

    return int(error.allowed_failures) + 1 if isinstance(error, KilledWorker) else 0


def _reason(error: Exception) -> str:
    lost = _lost_workers(error)
    if lost:
        hint = "(there was too little memory, perhaps)"
        return f"{counted(lost, 'worker')} in turn were lost while they did it and nothing else {hint}"
    return f"it could not be done on the cluster: {_words(error)}"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _mismatch(worker: str, version: str) -> str:
    return f"the worker {worker} has version {version} of this package, and this is {__version__}: install the same"


# In a worker


_ALONE = Lock()
"""One model at a time in a process: what is done to one is not made for threads."""


def _version() -> str:
    return __version__


@lru_cache(maxsize=2)
def _worker(task: Task) -> Worker:
    return task.worker()


def _do(version: str, task: Task, job: Job, timeout: float | None) -> ModelReport:
    """Do a job in a worker of the cluster."""
    from distributed import get_worker

    here = get_worker()
    if version != __version__:
        return _failed(job, _mismatch(here.address, __version__))
    with scratch(here.local_directory):
        if timeout is not None:
            return _within(timeout, task, job, here.local_directory)
        with _ALONE:
            return _done(task, job)


def _done(task: Task, job: Job) -> ModelReport:
    try:
        worker = _worker(task)
    except FusionEngineError as error:
        return _failed(job, str(error))
    return worker(job)


_PROGRAM = """
import pickle, sys
from fusion_engine.cluster import _done
from fusion_engine.storage import scratch
task, job, folder = pickle.load(sys.stdin.buffer)
out, sys.stdout = sys.stdout, sys.stderr
with scratch(folder):
    out.buffer.write(pickle.dumps(_done(task, job)))
"""


def _within(timeout: float, task: Task, job: Job, folder: str) -> ModelReport:
    """Do a job in a process of its own, which is killed when its time is over."""
    from fusion_engine.pool import death, too_long

    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            answer, _ = process.communicate(pickle.dumps((task, job, folder)), timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            return _failed(job, too_long(timeout))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0 or not answer:
        return _failed(job, death(process.returncode))
    report: ModelReport = pickle.loads(answer)
    return report
