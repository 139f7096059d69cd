"""What earlier runs did, beside their results, so that a run does only what has changed.

``.fusion-engine/done.jsonl`` in the output directory holds a line for each model that was written: digests of the
model, of the task (rules, options, version) and of the result, and the model's report. A line is complete or is
not read, so a run may be killed at any moment. A lock beside it keeps a second run out while one is at work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from fusion_engine.batch import Job
from fusion_engine.errors import OutputError
from fusion_engine.report import ModelReport

__all__ = ["FOLDER", "Ledger"]

FOLDER = ".fusion-engine"
"""The directory of the record, in the output directory."""

_LINES, _LOCK = "done.jsonl", "lock"
_VERSION = 1
_BLOCK = 1 << 20


class Ledger:
    """The record of an output directory.

    Parameters
    ----------
    folder
        The output directory, which is there.
    task
        Digest of what this run does.
    force
        Do everything anew.
    """

    def __init__(self, folder: str, task: str, *, force: bool = False) -> None:
        self._folder = folder
        self._own = os.path.join(folder, FOLDER)
        self._path = os.path.join(self._own, _LINES)
        self._task = task
        self._inputs: dict[str, str] = {}
        self._lines = {} if force else self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        with suppress(FileNotFoundError), open(self._path, "rb") as file:
            for line in file:
                with suppress(ValueError):
                    entry = json.loads(line)
                    if (
                        isinstance(entry, dict)
                        and entry.get("ledger") == _VERSION
                        and isinstance(entry.get("name"), str)
                    ):
                        found[entry["name"]] = entry
        return found

    def done(self, job: Job) -> ModelReport | None:
        """The report of a job that an earlier run has done just so; None where it is to be done.

        Its result is there as it was written then, and the model is the same.
        """
        if job.output is None or job.fault is not None:
            return None
        source = file_digest(job.path)
        if source is None:
            return None
        self._inputs[job.output] = source
        entry = self._lines.get(self._name(job.output))
        if entry is None or (entry.get("task"), entry.get("source")) != (self._task, source):
            return None
        if entry.get("result") is None or entry["result"] != file_digest(job.output):
            return None
        try:
            return ModelReport.from_json(entry["report"], path=job.path, output=job.output)
        except (KeyError, TypeError, ValueError):
            return None

    def note(self, job: Job, report: ModelReport) -> None:
        """Record a job that was done; one that failed is to be done again."""
        if job.output is None or report.status == "failed" or job.output not in self._inputs:
            return
        entry = {
            "ledger": _VERSION,
            "name": self._name(job.output),
            "task": self._task,
            "source": self._inputs[job.output],
            "result": file_digest(job.output),
            "report": report.as_json(),
        }
        line = json.dumps(entry).encode("ascii") + b"\n"
        try:
            with open(self._path, "ab") as file:
                if file.tell() and not _ends_whole(self._path):
                    line = b"\n" + line
                file.write(line)
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror}") from error

    def _name(self, output: str) -> str:
        return os.path.relpath(output, self._folder)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs out of the directory meanwhile.

        Raises
        ------
        OutputError
            Where one is at work in it.
        """
        import fcntl

        path = os.path.join(self._own, _LOCK)
        try:
            os.makedirs(self._own, exist_ok=True)
            file = open(path, "a", encoding="ascii")  # noqa: SIM115 - the next lines close it
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OutputError(
                    f"another run is at work in {self._folder}: wait for it, or give another directory with --out"
                ) from None
            try:
                yield
            finally:
                if not os.path.exists(self._path):
                    with suppress(OSError):  # nothing was recorded: leave nothing
                        os.unlink(path)
                        os.rmdir(self._own)


def _ends_whole(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def file_digest(path: str) -> str | None:
    """Hexadecimal digest of a file's bytes; None where it cannot be read."""
    told = blake2b(digest_size=16)
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                told.update(block)
    except OSError:
        return None
    return told.hexdigest()
