"""Programs in fresh processes: wall time, CPU time and peak memory of each, medians of several.

Standard library only: a child's peak memory counts what its parent held when it was started, so the
process that starts the others has to be small.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

__all__ = ["PLACE", "Measured", "armnn_time", "fresh", "interleaved", "run_of", "slope", "worker"]

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "benchmarks"
"""Where workloads and results of tools are kept."""


@dataclass(frozen=True)
class Measured:
    """What a program took.

    Attributes
    ----------
    wall, cpu
        Seconds from start to end, and of processor time in user and system mode.
    peak
        Largest resident memory (ru_maxrss) in MiB.
    stages
        Seconds by stage, as the program itself says.
    cpu_stages
        The same in seconds of processor time, which says more where the machine is busy with other work.
    answer
        What else it says.
    error
        Why there is nothing of all this, or None.
    """

    wall: float = math.nan
    cpu: float = math.nan
    peak: float = math.nan
    stages: Mapping[str, float] = field(default_factory=dict)
    cpu_stages: Mapping[str, float] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def seconds(self, *names: str, cpu: bool = False) -> float:
        """Seconds of the stages of these names together, or of all; NaN where one is not there."""
        stages = self.cpu_stages if cpu else self.stages
        return sum(stages.get(name, math.nan) for name in names or stages) if stages else math.nan


def fresh(command: Sequence[str | os.PathLike[str]], limit: float = 120.0) -> Measured:
    """Run a command whose last line of output is a JSON object with ``stages``, or nothing.

    Parameters
    ----------
    command
        The program and its arguments.
    limit
        Seconds of processor time after which it is ended, or five times as many in all.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, cwd=ROOT)
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
        timer = threading.Timer(5 * limit, lambda: os.kill(child.pid, signal.SIGKILL))
        timer.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
            return Measured(error=f"not done in {limit:.0f} s")
        text, complaint = _tail(out), _tail(err)
    lines = text.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except ValueError:
        answer = {}
    if child.returncode != 0:
        reason = answer.get("error") or (complaint.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        return Measured(error=str(reason))
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(wall, cpu, usage.ru_maxrss / 1024, answer.pop("stages", {}), answer.pop("cpu_stages", {}), answer)


def _tail(file: IO[bytes]) -> str:
    """The end of what a program printed."""
    file.seek(max(file.seek(0, os.SEEK_END) - 2**20, 0))
    return file.read().decode("utf-8", "replace")


def median(runs: Sequence[Measured]) -> Measured:
    """The median of each number by itself; a run that failed stands for all."""
    for run in runs:
        if run.error is not None:
            return run
    return Measured(
        *(statistics.median(getattr(run, name) for run in runs) for name in ("wall", "cpu", "peak")),
        *(
            {name: statistics.median(getattr(run, kind)[name] for run in runs) for name in getattr(runs[0], kind)}
            for kind in ("stages", "cpu_stages")
        ),
        runs[0].answer,
    )


def interleaved(
    works: Mapping[str, Callable[[], Measured]], repeats: int = 3, patience: float = 20.0
) -> dict[str, Measured]:
    """The median of each work, all of them run in turn so that what slows the machine slows them alike.

    A work whose first run failed, or took more than ``patience`` seconds, is not repeated.
    """
    runs: dict[str, list[Measured]] = {name: [work()] for name, work in works.items()}
    for _ in range(repeats - 1):
        for name, work in works.items():
            if runs[name][0].error is None and runs[name][0].wall <= patience:
                runs[name].append(work())
    return {name: median(found) for name, found in runs.items()}


def run_of(tool: str, *arguments: object, limit: float = 120.0) -> Callable[[], Measured]:
    """A work: `benchmarks.worker` with these arguments."""
    return lambda: worker(tool, *arguments, limit=limit)


def worker(tool: str, *arguments: object, limit: float = 120.0) -> Measured:
    """Run one of the tools of `benchmarks.worker` in a fresh process."""
    return fresh([sys.executable, "-m", "benchmarks.worker", tool, *map(str, arguments)], limit)


def armnn_time(release: str, model: Path, limit: float = 120.0) -> Measured:
    """Real Arm NN's three stages on a model: deserialize, Optimize for CpuRef, serialize.

    It tells no processor time by stage: that of the whole process is spread over the stages, where it is less.
    """
    home = Path(os.environ.get("ARMNN_ORACLE") or Path.home() / ".cache" / "armnn-oracle")
    program = home / "bin" / {"20.08": "armnn_time", "23.08": "armnn_time-23.08"}[release]
    if not program.exists():
        return Measured(error=f"no {program.name} in {program.parent}")
    found = fresh([program, model, model.with_suffix(".armnn-out")], limit)
    if found.error is not None:
        return found
    names = {"load": "ms_deserialize", "fuse": "ms_optimize", "save": "ms_serialize"}
    stages = {name: float(found.answer[key]) / 1000 for name, key in names.items()}
    busy = min(1.0, found.cpu / sum(stages.values()))
    cpu_stages = {name: busy * seconds for name, seconds in stages.items()}
    return Measured(found.wall, found.cpu, found.peak, stages, cpu_stages, found.answer)


def slope(points: Iterable[tuple[float, float]]) -> float:
    """The exponent with which times grow with sizes: least squares on logarithms of both."""
    logs = [(math.log(size), math.log(value)) for size, value in points]
    x0, y0 = (statistics.fmean(column) for column in zip(*logs, strict=True))
    return sum((x - x0) * (y - y0) for x, y in logs) / sum((x - x0) ** 2 for x, _ in logs)
