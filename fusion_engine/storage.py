"""Models and results that do not lie on this machine: URLs of anything that fsspec reaches (extra ``remote``).

A path with ``://`` in it, such as ``s3://zoo/a.armnn``, is a URL; every other path is one of this machine's, and none
of this is about it. A model is fetched to a temporary directory, done there as any other, and its result is put in
place whole: object stores replace an object in one step, elsewhere it is written under another name and moved.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from glob import escape, glob
from typing import TYPE_CHECKING, Any

from fusion_engine.errors import FusionEngineError, ModelError, OutputError

if TYPE_CHECKING:
    from fusion_engine.batch import Job
    from fusion_engine.report import ModelReport

__all__ = [
    "Listed",
    "at_hand",
    "fetched",
    "fingerprint",
    "identity",
    "is_url",
    "join",
    "models_below",
    "read_lines",
    "remove_stages",
    "remove_temporaries",
    "scratch",
    "staged",
    "write_parts",
]

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+://")

_OBJECT_STORES = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "oci", "oss", "s3", "s3a"})
"""Protocols by which an object appears whole or not at all, and has no directory that must be made."""

_TEMPORARY = re.compile(r"(?:.*/)?\.[^/]*\.[0-9a-f]{16}\.tmp")

_SCRATCH: ContextVar[str | None] = ContextVar("scratch", default=None)


def is_url(path: str) -> bool:
    """Whether a path is a URL.

    Examples
    --------
    >>> is_url("s3://zoo/a.armnn"), is_url("models/a.armnn"), is_url("./s3://a.armnn")
    (True, False, False)
    """
    return _URL.match(path) is not None


def join(url: str, below: str) -> str:
    """The URL of what lies below another; of a chain such as ``zip://in::s3://a.zip`` the first link goes on.

    Examples
    --------
    >>> join("s3://zoo/", "a/b.armnn"), join("zip://in::s3://a.zip", "b.armnn")
    ('s3://zoo/a/b.armnn', 'zip://in/b.armnn::s3://a.zip')
    """
    first, chain, rest = url.partition("::")
    if chain and "://" not in first:
        return f"{first}{chain}{join(rest, below)}"
    return f"{first}{'' if first.endswith('/') else '/'}{below}{chain}{rest}"


def identity(path: str) -> str:
    """One name for a file or an object by whatever path or URL: links, ``..`` and folded case resolved."""
    if not is_url(path):
        return os.path.normcase(os.path.realpath(path))
    system, name = _open(path)
    if _protocols(system) & {"file", "local"}:
        return os.path.normcase(os.path.realpath(name))
    _, chain, rest = path.partition("::")
    return f"{system.unstrip_protocol(name)}{chain}{rest}"


@dataclass(frozen=True)
class Listed:
    """A model below a URL: its own URL, its path below, and why it cannot be done where it cannot."""

    url: str
    below: str
    fault: str | None = None


def models_below(url: str, suffix: str, avoid: str | None = None) -> list[Listed] | None:
    """The objects below a URL whose names end in ``suffix``, sorted; None where the URL is no directory.

    Parameters
    ----------
    url
        What is searched.
    suffix
        The end of the names that are found.
    avoid
        A URL below which nothing is found.

    Raises
    ------
    OutputError
        Where it cannot be searched.
    """
    with _told(OutputError, url, "cannot be searched"):
        system, path = _open(url)
        system.invalidate_cache()
        if not system.isdir(path):
            return None
        names = system.find(path)
    kept = None
    if avoid is not None and is_url(avoid):
        other, where = _open(avoid)
        kept = f"{where.rstrip('/')}/" if other == system else None
    top = path.rstrip("/")
    found = []
    for name in names:
        if not name.endswith(suffix) or not name.startswith(top) or (kept is not None and name.startswith(kept)):
            continue
        below = name[len(top) :].removeprefix("/")
        found.append(Listed(join(url, below), below, _odd(below)))
    return sorted(found, key=lambda one: one.below.split("/"))


def _odd(below: str) -> str | None:
    """Why the name of an object is no path below a directory; None where it is one."""
    if "\0" in below or any(part in ("", ".", "..") for part in below.split("/")):
        return "its name is no path below a directory: name it by itself"
    return None


def fingerprint(url: str, *, fresh: bool = True) -> str | None:
    """What tells that an object is still the same: its entity tag, or its size and times; None where nothing does.

    Parameters
    ----------
    url
        The object.
    fresh
        Ask the storage; else what was listed last will do.
    """
    try:
        system, path = _open(url)
        if fresh:
            system.invalidate_cache(system._parent(path))
        info = system.info(path)
    except MemoryError:
        raise
    except Exception:
        return None
    tag = info.get("ETag") or info.get("etag")
    if tag:
        return f"etag {str(tag).strip(chr(34))} {info.get('size')}"
    times = [str(info[key]) for key in ("mtime", "created", "LastModified", "last_modified", "ino") if key in info]
    return " ".join(["times", str(info.get("size")), *times]) if times else None


@contextmanager
def fetched(url: str) -> Iterator[str | None]:
    """A copy of an object on this machine, as long as the block lasts; None where there is no object.

    Raises
    ------
    OutputError
        Where it cannot be read.
    """
    with _stage(url) as folder:
        path: str | None = os.path.join(folder, "in")
        with _told(OutputError, url, "cannot be read"):
            system, name = _open(url)
            system.invalidate_cache(system._parent(name))
            try:
                system.get_file(name, path)
            except FileNotFoundError:
                path = None
        yield path


def read_lines(url: str) -> Iterator[bytes]:
    """The lines of an object with their ends; none where there is no object. Raises as `fetched` does."""
    with fetched(url) as path:
        if path is not None:
            with open(path, "rb") as file:
                yield from file


def write_parts(url: str, parts: Iterable[bytes]) -> None:
    """Write an object whole.

    Raises
    ------
    OutputError
        Where it cannot be written; what was there is there still.
    """
    with _stage(url) as folder:
        path = os.path.join(folder, "out")
        try:
            with open(path, "wb") as file:
                file.writelines(parts)
        except OSError as error:
            raise OutputError(f"{url}: cannot be written: {error.strerror}") from error
        _put(path, url)


@contextmanager
def at_hand(path: str) -> Iterator[str]:
    """A model on this machine: itself, or as long as the block lasts a copy of the one at a URL.

    Raises
    ------
    FusionEngineError
        As the block does, with the model's own name, and where it cannot be fetched.
    """
    if not is_url(path):
        yield path
        return
    with _stage(path) as folder:
        copy = os.path.join(folder, "in", _file_name(path))
        _fetch(path, copy)
        try:
            yield copy
        except FusionEngineError as error:
            raise ModelError(_named(str(error), [(copy, path)])) from error


def remove_temporaries(url: str) -> None:
    """Remove what runs that were killed left half written below a URL; nobody may be writing there now."""
    with suppress(Exception):
        system, path = _open(url)
        if _protocols(system) & _OBJECT_STORES:
            return
        for name in system.find(path):
            if _TEMPORARY.fullmatch(name):
                system.rm_file(name)


# A model at a time


@contextmanager
def scratch(folder: str) -> Iterator[None]:
    """Keep what is fetched in a directory meanwhile, by default in the system's for temporary files."""
    former = _SCRATCH.set(folder)
    try:
        yield
    finally:
        _SCRATCH.reset(former)


def remove_stages(process: int) -> None:
    """Remove what a process that was killed had fetched."""
    for left in glob(os.path.join(escape(tempfile.gettempdir()), f"{_stage_name(process)}*")):
        shutil.rmtree(left, ignore_errors=True)


def _stage_name(process: int) -> str:
    return f"fusion-engine-{process}-"


def _stage(url: str) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix=_stage_name(os.getpid()), dir=_SCRATCH.get())
    except OSError as error:
        raise OutputError(f"{url}: no temporary directory can be made for it: {error.strerror}") from error


def staged(job: Job, work: Callable[[Job], ModelReport]) -> ModelReport:
    """Do a job on this machine, wherever its model and its result lie.

    Parameters
    ----------
    job
        What to read and to write, paths or URLs.
    work
        Does a job whose paths are this machine's.

    Returns
    -------
    ModelReport
        As of ``work``, with the paths of ``job``.

    Raises
    ------
    FusionEngineError
        As ``work`` does, and where the model cannot be fetched, changed meanwhile, or its result cannot be put.
    """
    far = is_url(job.path)
    if job.fault is not None or not (far or (job.output is not None and is_url(job.output))):
        return work(job)
    with _stage(job.path) as folder:
        source = os.path.join(folder, "in", _file_name(job.path)) if far else job.path
        output = job.output
        if output is not None and is_url(output):
            output = os.path.join(folder, "out", _file_name(output))
        before = fingerprint(job.path) if far else None
        if far:
            _fetch(job.path, source)
        names = [(near, named) for near, named in ((output, job.output), (source, job.path)) if near and named]
        try:
            report = work(replace(job, path=source, output=output))
        except FusionEngineError as error:
            raise ModelError(_named(str(error), names)) from error
        if far and fingerprint(job.path) != before:
            raise ModelError("the file was changed while in use: run it again", path=job.path)
        if output is not None and output != job.output and report.status != "failed" and os.path.exists(output):
            assert job.output is not None
            _put(output, job.output)
    return replace(
        report,
        path=job.path,
        output=None if report.output is None else job.output,
        error=None if report.error is None else _named(report.error, names),
        warnings=tuple(_named(warning, names) for warning in report.warnings),
    )


def _named(text: str, names: list[tuple[str, str]]) -> str:
    """A message with the paths that the user knows."""
    for near, named in names:
        text = text.replace(near, named)
    return text


def _file_name(url: str) -> str:
    """A file's name for an object: its own, where a file can have it."""
    name = url.partition("::")[0].rstrip("/").rpartition("/")[2]
    fit = name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) <= 200
    return name if fit else "model.armnn"


def _fetch(url: str, path: str) -> None:
    from fusion_engine.armnn.decode import MAX_BUFFER

    with _told(ModelError, url, "cannot be read"):
        system, name = _open(url)
        info = system.info(name)
        if info.get("type") == "directory":
            raise ModelError("is a directory: give an .armnn file", path=url)
        if (info.get("size") or 0) > MAX_BUFFER:
            raise ModelError(f"{info['size']} bytes are too many: a FlatBuffers file ends below 2 GiB", path=url)
        os.mkdir(os.path.dirname(path))
        system.get_file(name, path)


def _put(path: str, url: str) -> None:
    with _told(OutputError, url, "cannot be written"), _placing(url) as (system, name):
        system.put_file(path, name)


@contextmanager
def _placing(url: str) -> Iterator[tuple[Any, str]]:
    """Where to write what is to be at a URL; it goes there when all was written, in one step."""
    system, path = _open(url)
    if _protocols(system) & _OBJECT_STORES:
        yield system, path
        return
    parent, _, name = path.rpartition("/")
    if parent:
        system.makedirs(parent, exist_ok=True)
    temporary = f"{parent}/.{name[:50]}.{os.urandom(8).hex()}.tmp"
    try:
        yield system, temporary
        system.mv(temporary, path)
    except BaseException:
        with suppress(Exception):
            system.rm_file(temporary)
        raise


# What fsspec has


def _open(url: str) -> tuple[Any, str]:
    """The file system of a URL, and its path there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise OutputError(
            f"{url}: URLs need fsspec: pip install 'armnn-fusion-engine[remote]' (a file of that name is ./{url})"
        ) from None
    with _told(OutputError, url, "cannot be used"):
        system, path = url_to_fs(url)
        return system, str(path)


def _protocols(system: Any) -> frozenset[str]:
    protocol = system.protocol
    return frozenset([protocol] if isinstance(protocol, str) else protocol)


@contextmanager
def _told(error: type[ModelError] | type[OutputError], url: str, what: str) -> Iterator[None]:
    """Tell of whatever a file system raises, which has no common root, as an error of this package."""
    try:
        yield
    except (FusionEngineError, MemoryError):
        raise
    except Exception as fault:
        if isinstance(fault, FileNotFoundError):
            reason = "there is no such file"
        else:
            reason = (getattr(fault, "strerror", None) or str(fault) or type(fault).__name__).strip()
        raise error(f"{url}: {what}: {reason}") from fault
