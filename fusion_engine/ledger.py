"""What earlier runs did, beside their results, so that a run does only what has changed.

``.fusion-engine/done.jsonl`` in the output directory holds a line for each model that was written: digests of the
model, of the task (rules, options, version) and of the result, and the model's report. A line is complete or is
not read, so a run may be killed at any moment. A lock beside it keeps a second run out while one is at work.

Where the results go to a URL, the record is an object there, written whole from time to time and at the end: a run that
was killed does again what it did since. There is no lock: two runs at once leave whole results, and the record of one.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from fusion_engine.armnn.decode import MAX_BUFFER
from fusion_engine.armnn.files import write_atomically
from fusion_engine.batch import Job
from fusion_engine.errors import OutputError
from fusion_engine.report import ModelReport
from fusion_engine.spool import Spool
from fusion_engine.storage import fingerprint, is_url, join, read_lines, write_parts

__all__ = ["FOLDER", "Ledger"]

FOLDER = ".fusion-engine"
"""The directory of the record, in the output directory."""

_LINES, _LOCK = "done.jsonl", "lock"
_VERSION = 2
_BLOCK = 1 << 20


SPARE_LINES = 100
"""Lines that a record may have beside twice as many as models before it is written anew."""

SAVED_EVERY = 30.0
"""Seconds after which the record of results at a URL is written again."""


class Ledger:
    """The record of an output directory.

    Parameters
    ----------
    folder
        The output directory, which is there, or a URL.
    task
        Digest of what this run does.
    force
        Do everything anew.

    Attributes
    ----------
    fault
        Why something could not be recorded, where it could not: the next run does it again.

    Raises
    ------
    OutputError
        Where the record cannot be read.
    """

    def __init__(self, folder: str, task: str, *, force: bool = False) -> None:
        self.fault: str | None = None
        self._folder = folder
        self._record = _FarRecord(join(folder, f"{FOLDER}/{_LINES}")) if is_url(folder) else _NearRecord(folder)
        self._task = task
        self._inputs: dict[str, str] = {}  # by output: what tells the model, and what changes when it is replaced
        self._force = force
        try:
            self._record.read()
        except OutputError:
            if not (force and isinstance(self._record, _NearRecord)):  # there, lines can be added all the same
                raise

    def has(self, job: Job) -> bool:
        """Whether an earlier run has done a job just so.

        Its result is there as it was written then, and the model is the same.
        """
        if job.output is None or job.fault is not None:
            return False
        state = _state(job.path)
        source = _told(job.path, fresh=False)
        if source is None:
            return False
        if not self._force and self._recorded(job, source):
            return True
        self._inputs[job.output] = f"{source}\n{state}"
        return False

    def _recorded(self, job: Job, source: str) -> bool:
        entry = self._entry(job.output or "")
        if entry is None or (entry.get("task"), entry.get("source")) != (self._task, source):
            return False
        if entry.get("result") is None or entry["result"] != _told(job.output or "", fresh=False):
            return False
        return _report(job, entry) is not None

    def report(self, job: Job) -> ModelReport:
        """The report of a job that an earlier run `has` done: what that one wrote of it, at the paths of this run."""
        entry = None if job.output is None else self._entry(job.output)
        found = None if entry is None else _report(job, entry)
        reason = f"{job.path}: the record of the run that did it was changed meanwhile: run it again"
        return found or ModelReport(job.path, "failed", error=reason)

    def _entry(self, output: str) -> dict[str, Any] | None:
        line = self._record.line(self._name(output))
        return None if line is None else _entry(line)

    def note(self, report: ModelReport) -> None:
        """Record a job that was done; one that failed is to be done again."""
        if report.output is None or report.status == "failed" or report.output not in self._inputs:
            return
        source, _, state = self._inputs[report.output].rpartition("\n")
        if state != _state(report.path) or (not state and source != _told(report.path, fresh=True)):
            return  # the model was replaced since it was told: nobody knows which one was read
        name = self._name(report.output)
        entry = {
            "ledger": _VERSION,
            "name": name,
            "task": self._task,
            "source": source,
            "result": _told(report.output, fresh=True),
            "report": report.as_json(),
        }
        try:
            self._record.add(name, json.dumps(entry | {"check": _check(entry)}).encode("ascii") + b"\n")
        except OutputError as error:
            self.fault = str(error)

    def _name(self, output: str) -> str:
        return output[len(join(self._folder, "")) :] if is_url(output) else os.path.relpath(output, self._folder)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs out of the directory meanwhile, where it is one of this machine.

        Raises
        ------
        OutputError
            Where one is at work in it, or nothing can be recorded there.
        """
        with self._record.alone():
            try:
                yield
            finally:
                try:
                    self._record.save()
                except OutputError as error:
                    self.fault = str(error)


class _NearRecord:
    """The record in a directory of this machine: lines are added to a file, and where each begins is remembered."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._own = os.path.join(folder, FOLDER)
        self._path = os.path.join(self._own, _LINES)
        self._begins: dict[str, int] = {}
        self._end = self._count = 0

    def read(self) -> None:
        self._begins, self._end, self._count = {}, 0, 0
        try:
            with suppress(FileNotFoundError), open(self._path, "rb") as file:
                for line in file:
                    entry = _entry(line)
                    if entry is not None:
                        self._begins[entry["name"]] = self._end
                    self._end += len(line)
                    self._count += 1
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be read: {error.strerror}: --force does all anew") from error

    def line(self, name: str) -> bytes | None:
        begin = self._begins.get(name)
        return None if begin is None else self._line_at(begin)

    def _line_at(self, begin: int) -> bytes | None:
        try:
            with open(self._path, "rb") as file:
                file.seek(begin)
                return file.readline()
        except OSError:
            return None

    def add(self, name: str, line: bytes) -> None:
        try:
            with open(self._path, "ab") as file:
                self._end = file.tell()
                if self._end and not _ends_whole(self._path):
                    file.write(b"\n")
                    self._end += 1
                file.write(line)
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._begins[name] = self._end
        self._end += len(line)
        self._count += 1

    def save(self) -> None:
        """Leave out the lines that later ones have replaced, where they are the most."""
        if self._count <= 2 * len(self._begins) + SPARE_LINES:
            return
        lines = (self._line_at(begin) for begin in sorted(self._begins.values()))
        with suppress(OutputError):  # nothing is lost by that
            write_atomically(self._path, (line.rstrip() + b"\n" for line in lines if line))

    @contextmanager
    def alone(self) -> Iterator[None]:
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
            with suppress(OutputError):  # it was read before, so this is what another run has made of it meanwhile
                if _size(self._path) != self._end:
                    self.read()
            try:
                yield
            finally:
                if not os.path.exists(self._path):
                    with suppress(OSError):  # nothing was recorded: leave nothing
                        os.unlink(path)
                        os.rmdir(self._own)
                fcntl.flock(file, fcntl.LOCK_UN)  # copies of this process have it open too


class _FarRecord:
    """The record at a URL: an object that is written whole, and lies here until then."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lines = Spool()
        self._places: dict[str, int] = {}
        self._saved = time.monotonic()

    def read(self) -> None:
        for line in read_lines(self._url):
            entry = _entry(line)
            if entry is not None:
                self._places[entry["name"]] = self._lines.append(line.rstrip() + b"\n")

    def line(self, name: str) -> bytes | None:
        place = self._places.get(name)
        return None if place is None else self._lines.at(place)

    def add(self, name: str, line: bytes) -> None:
        self._places[name] = self._lines.append(line)
        if time.monotonic() - self._saved > SAVED_EVERY:
            self.save()

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.save()  # what cannot be written is found out before any work
        yield

    def save(self) -> None:
        self._saved = time.monotonic()
        write_parts(self._url, map(self._lines.at, self._places.values()))


def _report(job: Job, entry: Mapping[str, Any]) -> ModelReport | None:
    """The report of a job in an entry; None where it is none of this version."""
    try:
        return ModelReport.from_json(entry["report"], path=job.path, output=job.output or "")
    except (KeyError, TypeError, ValueError):
        return None


def _entry(line: bytes) -> dict[str, Any] | None:
    """The entry of a line; None where it is none, or one of another version."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("ledger") != _VERSION or not isinstance(entry.get("name"), str):
        return None
    check = entry.pop("check", None)
    return entry if check == _check(entry) else None


def _check(entry: Mapping[str, Any]) -> str:
    """What tells that a line is as it was written."""
    return blake2b(json.dumps(entry).encode("ascii"), digest_size=16).hexdigest()


def _told(path: str, *, fresh: bool) -> str | None:
    """What tells that a file or an object is the same; None where nothing does."""
    return fingerprint(path, fresh=fresh) if is_url(path) else file_digest(path)


def _state(path: str) -> str:
    """What changes when a file of this machine is written or replaced; empty for others."""
    if is_url(path):
        return ""
    try:
        status = os.stat(path)
    except OSError:
        return "nothing"
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _ends_whole(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def file_digest(path: str) -> str | None:
    """Hexadecimal digest of a file's bytes; None where it cannot be read, or is too large for a model or no file."""
    told = blake2b(digest_size=16)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BUFFER:
                return None
            while block := file.read(_BLOCK):
                told.update(block)
    except (OSError, ValueError):
        return None
    return told.hexdigest()
