"""Many models on the cores of one machine: worker processes that are watched.

A worker that dies or takes too long fails the model that it has in hand, and another takes its place. Reports
come in the order of the jobs, and the files that are written do not depend on the number of workers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

from fusion_engine.batch import Job
from fusion_engine.collector import relaxed
from fusion_engine.report import ModelReport
from fusion_engine.signals import ENDING
from fusion_engine.spool import Backlog

if TYPE_CHECKING:
    from fusion_engine.tasks import Task

__all__ = ["Workforce", "cores", "death", "in_order", "in_parallel", "too_long"]


def cores() -> int:
    """Number of cores that this process may use."""
    with suppress(AttributeError):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def in_parallel(
    jobs: Sequence[Job],
    task: Task,
    workers: int,
    timeout: float | None = None,
    heard: Callable[[ModelReport], None] = lambda _: None,
) -> Generator[ModelReport, None, None]:
    """Do jobs in worker processes.

    Parameters
    ----------
    jobs
        Yielded for in their order.
    task
        What is done to each.
    workers
        Number of processes.
    timeout
        Seconds that a model may take; its worker is killed then.
    heard
        Called with each report as soon as it is there.
    """
    return in_order(len(jobs), _Crew(jobs, task, min(workers, len(jobs)), timeout, heard))


class Workforce(Protocol):
    """Those who do the jobs of a run.

    Attributes
    ----------
    finished
        The reports of jobs that are done, by number, until they are taken.
    """

    finished: Backlog

    def employ(self) -> None:
        """Give work to all who have none."""

    def wait(self) -> None:
        """Wait until something has become of a job."""

    def dismiss(self) -> None:
        """End all work."""


def in_order(jobs: int, force: Workforce) -> Generator[ModelReport, None, None]:
    """The reports of so many jobs in their order, as they are done."""
    try:
        for number in range(jobs):
            while number not in force.finished:
                force.employ()
                force.wait()
            yield force.finished.take(number)
    finally:
        force.dismiss()


def copies(task: Task) -> bool:
    """Whether worker processes start as copies of this one, since imports take longer than many models.

    It is safe on Linux where Python has no other thread and none but this package's own code is at work: threads of
    others do not live on in a copy. Those of NumPy's BLAS do, it sees to that.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and not task.verify and task.own


def _context(task: Task) -> Any:
    """How worker processes start."""
    if not copies(task):
        return multiprocessing.get_context("spawn")
    from fusion_engine import fuse, load, loads_in, save  # noqa: F401 - what every worker needs

    return multiprocessing.get_context("fork")


class _Member:
    """A worker process, and the job that it has in hand."""

    def __init__(self, task: Task) -> None:
        context = _context(task)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, task), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 counts threads of BLAS too
            self.process.start()
        theirs.close()
        self.number: int | None = None
        self.job: Job | None = None
        self.begun = 0.0
        self.deadline: float | None = None

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class _Crew:
    """The workers."""

    def __init__(
        self,
        jobs: Sequence[Job],
        task: Task,
        size: int,
        timeout: float | None,
        heard: Callable[[ModelReport], None],
    ) -> None:
        self._waiting = deque(enumerate(jobs))
        self._task = task
        self._timeout = timeout
        self._size = size
        self._heard = heard
        self._members: list[_Member] = []
        self.finished = Backlog()

    def employ(self) -> None:
        """Give each idle worker a job; start workers for the rest of the jobs, up to the size of the crew."""
        idle = [member for member in self._members if member.number is None]
        while self._waiting and (idle or len(self._members) < self._size):
            if idle:
                member = idle.pop()
            else:
                member = _Member(self._task)
                self._members.append(member)
            member.number, member.job = self._waiting.popleft()
            member.begun = time.monotonic()
            member.deadline = None if self._timeout is None else member.begun + self._timeout
            with suppress(BrokenPipeError):  # dead already: `wait` finds out
                member.connection.send(member.job)

    def wait(self) -> None:
        """Wait for a report, a death or the end of somebody's time."""
        busy = [member for member in self._members if member.number is not None]
        deadlines = [member.deadline for member in busy if member.deadline is not None]
        left = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        ready = set(wait([member.connection for member in busy], left))
        for member in busy:
            assert member.number is not None
            number = member.number
            if member.connection in ready:
                report = self._received(member)
            elif member.deadline is not None and time.monotonic() >= member.deadline:
                report = self._replaced(member, too_long(self._timeout or 0.0))
            else:
                continue
            member.number = None
            self.finished.put(number, report)
            self._heard(report)

    def _received(self, member: _Member) -> ModelReport:
        try:
            report: ModelReport = member.connection.recv()
        except (EOFError, OSError):
            member.process.join()
            return self._replaced(member, death(member.process.exitcode))
        return report

    def _replaced(self, member: _Member, reason: str) -> ModelReport:
        """Part with a worker; its model has failed."""
        assert member.job is not None
        member.kill()
        self._members.remove(member)
        _clear_up(member)
        seconds = time.monotonic() - member.begun
        return ModelReport(member.job.path, "failed", error=f"{member.job.path}: {reason}", seconds=seconds)

    def dismiss(self) -> None:
        """End all workers, in the middle of their work if need be."""
        for member in self._members:
            member.kill()
            if member.number is not None:
                _clear_up(member)
        self._members.clear()


def _clear_up(member: _Member) -> None:
    """Remove what a worker that was killed left of its work."""
    from fusion_engine.armnn.files import remove_temporaries
    from fusion_engine.judging import remove_benches
    from fusion_engine.storage import is_url, remove_stages

    if member.process.pid is not None:
        remove_stages(member.process.pid)
    output = None if member.job is None else member.job.output
    if output is not None and not is_url(output):
        remove_temporaries(output)
        remove_benches(os.path.dirname(output) or ".", member.process.pid)


def too_long(timeout: float) -> str:
    """What to say of a model that took longer than it may."""
    return f"it took more than {timeout:g} seconds: give it more with --timeout"


def death(code: int | None) -> str:
    """What to say of a model whose process ended before it was done, by the exit code."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        hint = " (there was too little memory, perhaps)" if name == "SIGKILL" else ""
        return f"its worker process was ended by {name}{hint}"
    return f"its worker process ended with exit code {code}"


def _end_with_parent() -> None:
    """Be killed when the main process is, where Linux can do that: what follows finds nobody at work."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:  # it ended before that was asked
            os._exit(1)


_PR_SET_PDEATHSIG = 1


def _serve(connection: Connection, task: Task) -> None:
    """A worker: do jobs until nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends the workers
    for ending in ENDING:
        if callable(signal.getsignal(ending)):
            signal.signal(ending, signal.SIG_DFL)
    _end_with_parent()
    relaxed()
    work = task.worker()
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        report = work(job)
        try:
            connection.send(report)
        except (BrokenPipeError, OSError):
            return
