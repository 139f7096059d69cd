"""A command of the user's that decides whether a result is kept: ``--judge``.

It is run as ``COMMAND BEFORE AFTER``, the input file and the result, which lies in a directory of its
own until the verdict. Exit code 0 keeps the result.
"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fusion_engine.errors import OutputError
from fusion_engine.naming import shortened

__all__ = ["MOST_OUTPUT", "TIMEOUT", "Judge", "Verdict", "bench", "remove_benches"]

TIMEOUT = 600.0
"""Seconds that a judge may take for a model, unless it is given others."""

MOST_OUTPUT = 64 * 1024
"""Bytes of its output that are kept: the last."""


@dataclass(frozen=True)
class Verdict:
    """What a judge said of a result.

    Attributes
    ----------
    kept
        Whether the result is kept: its exit code was 0.
    exit_code
        Its exit code; negative where a signal ended it, None where it ran out of time.
    output
        The end of what it wrote to standard output and standard error, in the order of writing.
    seconds
        How long it took.
    """

    kept: bool
    exit_code: int | None
    output: str
    seconds: float

    @property
    def reason(self) -> str:
        """Why the result is not kept, with the last line of the output."""
        if self.exit_code is None:
            what = f"took more than {self.seconds:.0f} seconds"
        elif self.exit_code < 0:
            what = f"was ended by signal {-self.exit_code}"
        else:
            what = f"gave exit code {self.exit_code}"
        lines = self.output.strip().splitlines()
        return f"the judge {what}, so the result is not kept" + (f": {shortened(lines[-1])}" if lines else "")


class Judge:
    """A judge.

    Parameters
    ----------
    command
        Words as a POSIX shell splits them; no shell is run.
    timeout
        Seconds that it may take for a model.

    Raises
    ------
    OutputError
        Where the command is empty, its quotes do not end, or there is no such program.
    """

    def __init__(self, command: str, timeout: float = TIMEOUT) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise OutputError(f"the judge {command!r} is no command: {error}") from error
        if not self.words:
            raise OutputError("the judge is empty: give a command, which is run as COMMAND BEFORE AFTER")
        if shutil.which(self.words[0]) is None:
            raise OutputError(f"the judge {self.words[0]!r} is no program that can be run")
        self.timeout = timeout

    def __call__(self, before: str, after: str) -> Verdict:
        """Run the command on two files.

        Raises
        ------
        OutputError
            Where it cannot be started.
        """
        start = time.monotonic()
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    [*self.words, before, after],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise OutputError(f"the judge {self.words[0]!r} cannot be started: {error.strerror}") from error
            code: int | None = None
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if process.returncode is None:
                    _end(process)
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - MOST_OUTPUT))
            text = output.read(MOST_OUTPUT).decode("utf-8", "replace")
        return Verdict(code == 0, code, text, round(time.monotonic() - start, 3))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_BENCH = ".judged-"


def remove_benches(folder: str, process: int | None = None) -> None:
    """Remove from a directory what `bench` made in a process that was killed; by default in any."""
    which = "[0-9]*" if process is None else str(process)
    for left in glob.glob(os.path.join(glob.escape(folder), f"{_BENCH}{which}-*")):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def bench(name: str, folder: str | None) -> Iterator[str]:
    """A path for a result under judgement, in a directory of its own that goes afterwards.

    Parameters
    ----------
    name
        Name of the file.
    folder
        Where the directory is made, so that the file can be moved from it in one step; None for where
        the system keeps temporary files.

    Raises
    ------
    OutputError
        Where it cannot be made.
    """
    try:
        place = tempfile.mkdtemp(prefix=f"{_BENCH}{os.getpid()}-", dir=folder)
    except OSError as error:
        raise OutputError(f"no directory can be made in {folder or tempfile.gettempdir()}: {error.strerror}") from error
    try:
        yield os.path.join(place, name)
    finally:
        shutil.rmtree(place, ignore_errors=True)
