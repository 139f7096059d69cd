"""Files: read whole or mapped, written atomically, weights moved from file to file without being looked at.

How weights are moved was measured on 1 GiB of them (Linux 6.18, ext4, warm cache; ``cp`` takes 0.75 s and leaves
the writing to later). Where source and target lie at the same place within a page, ``copy_file_range`` copies in
the kernel, or shares the blocks where the file system can. In a file that is written anew they seldom do: there it
goes page by page through a pipe, 1.05 s, while a buffer that stays in the processor's cache takes 0.65 s. Of a
file that is synchronised at the end nothing need wait until then: the disk begins while the rest is copied, which
saves the 0.4 s of `os.fsync`.
"""

from __future__ import annotations

import errno
import glob
import mmap
import os
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fusion_engine.armnn.decode import MAX_BUFFER, Buffer
from fusion_engine.errors import ModelError, OutputError

__all__ = [
    "READ_WHOLE",
    "MappedFile",
    "Range",
    "StrPath",
    "names_later",
    "open_model",
    "path_text",
    "remove_temporaries",
    "sync_directories",
    "write_atomically",
]

StrPath: TypeAlias = "str | os.PathLike[str]"

READ_WHOLE = 64 * 2**20
"""Files up to this many bytes are read whole; larger ones are mapped."""

BLOCK = 2**20
"""Bytes that are copied at a time where the kernel does not do it: the buffer fits in the processor's cache."""

WRITEBACK = 32 * 2**20
"""Bytes after which what was written is handed on to the disk."""


class MappedFile:
    """An open file and its read-only mapping.

    A mapping sees what is later written to the file, and reading it after a truncation kills the
    process, so `check` compares size and modification time before every bulk use. What happens to
    the file during such a use cannot be caught.
    """

    def __init__(self, path: str, descriptor: int, status: os.stat_result) -> None:
        self.path = path
        self.descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self.descriptor)
        self._state = (status.st_size, status.st_mtime_ns)
        self.mapping = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)

    def holds(self, data: npt.NDArray[Any], offset: int) -> bool:
        """Whether an array is the file's bytes from ``offset`` on, and no other that took its place."""
        start = np.frombuffer(self.mapping, np.uint8).__array_interface__["data"][0]
        return bool(data.flags.c_contiguous and data.__array_interface__["data"][0] == start + offset)

    def check(self) -> None:
        """Raise ModelError where the file is no longer what was mapped."""
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != self._state:
            raise ModelError("the file was changed while in use: load it again", path=self.path)


class Range:
    """Bytes of a mapped file, to be copied without reading them here."""

    __slots__ = ("length", "offset", "source")

    def __init__(self, source: MappedFile, offset: int, length: int) -> None:
        self.source = source
        self.offset = offset
        self.length = length


@contextmanager
def _reading(path: str) -> Any:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelError(f"cannot be read: {reason}", path=path) from error


def path_text(path: StrPath) -> str:
    """A path as text; raises ModelError for what is none."""
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"a path is a str or a Path, not {type(path).__name__} {path!r}")
    return os.fsdecode(path)


def open_model(path: StrPath) -> tuple[Buffer, MappedFile | None]:
    """The bytes of a file, whole or mapped.

    Raises
    ------
    ModelError
        Where there is no such file, it is no regular file, cannot be read, or has 2 GiB or more.
    """
    name = path_text(path)
    with _reading(name):
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
                raise ModelError(f"is {kind}: give an .armnn file", path=name)
            if status.st_size > MAX_BUFFER:
                raise ModelError(f"{status.st_size} bytes are too many: a FlatBuffers file ends below 2 GiB", path=name)
            if status.st_size <= READ_WHOLE:
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    return file.read(), None
            mapped = MappedFile(name, descriptor, status)
            return mapped.mapping, mapped
        finally:
            os.close(descriptor)


def write_atomically(path: StrPath, parts: Iterable[bytes | memoryview | Range]) -> None:
    """Write a file so that at any moment the old one or the whole new one is there.

    The parts go to a file in the same directory that is synchronised and then renamed. Where the system has files
    without a name, it gets one when it is whole: of a program that is killed before, nothing is left.
    A symbolic link at ``path`` is replaced, not followed.

    Raises
    ------
    OutputError
        Where the directory is missing or not writable, the disk full, ...; no temporary file stays.
    ModelError
        Where a mapped source changed meanwhile.
    """
    target = Path(path_text(path))
    temporary: str | None = None
    try:
        beginning = f".{target.name[:50]}."
        descriptor = _unnamed(target.parent)
        if descriptor is None:
            descriptor, temporary = tempfile.mkstemp(prefix=beginning, suffix=".tmp", dir=target.parent)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            output = _Output(file)
            for part in parts:
                if isinstance(part, Range):
                    output.copy(part)
                else:
                    output.write(part)
            os.fchmod(descriptor, _mode(target))
            os.fsync(descriptor)
            if temporary is None:
                temporary = _named(descriptor, target.parent / f"{beginning}{os.urandom(8).hex()}.tmp")
        os.replace(temporary, target)
        temporary = None
        if not _LATER.get():
            _sync_directory(target.parent)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OutputError(f"{target}: cannot be written: {reason}") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _unnamed(directory: Path) -> int | None:
    """A new file in a directory that has no name there (Linux's ``O_TMPFILE``); None where there is no such thing."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(_OWN):
        return None
    try:
        return os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:  # the file system has none, or has no room: who asks for a named one finds out
        return None


def _named(descriptor: int, path: Path) -> str:
    """Give a file a name, as open(2) describes it; that `os.link` is given a directory makes it follow the link."""
    os.link(f"{_OWN}/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    return str(path)


_OWN = "/proc/self/fd"

_LATER: ContextVar[bool] = ContextVar("later", default=False)


@contextmanager
def names_later() -> Iterator[None]:
    """Leave it to `sync_directories` that the names of files that are written outlive a crash of the machine.

    Each file is whole all the same, or is not there: its bytes are synchronised before it gets its name.
    """
    former = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(former)


def sync_directories(directories: Iterable[StrPath]) -> None:
    """Synchronise directories: of many files in one that takes no longer than of a file."""
    for directory in directories:
        _sync_directory(Path(directory))


def remove_temporaries(path: StrPath) -> None:
    """Remove what `write_atomically` left beside a file when it was killed; nobody may be writing there now."""
    target = Path(path_text(path))
    for left in target.parent.glob(f".{glob.escape(target.name[:50])}.*.tmp"):
        with suppress(OSError):
            left.unlink()


def _write_all(file: IO[bytes], part: bytes | memoryview) -> None:
    view = memoryview(part).cast("B")
    while view:
        written = file.write(view)
        view = view[written:]


def _mode(target: Path) -> int:
    """Permissions for the new file: those of the one it replaces, else the umask's."""
    with suppress(OSError):
        status = target.lstat()
        if stat.S_ISREG(status.st_mode):
            return stat.S_IMODE(status.st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_directory(directory: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Output:
    """A file that is written from its beginning on, and synchronised soon."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._position = 0
        self._handed_on = 0
        self._buffer: memoryview | None = None

    def write(self, part: bytes | memoryview) -> None:
        """Write bytes of this process."""
        view = memoryview(part).cast("B")
        for start in range(0, len(view), WRITEBACK):
            piece = view[start : start + WRITEBACK]
            _write_all(self._file, piece)
            self._advance(len(piece))

    def copy(self, part: Range) -> None:
        """Copy a range of a mapped file.

        Raises
        ------
        ModelError
            Where the file was changed since it was mapped.
        """
        part.source.check()
        source, target = part.source.descriptor, self._file.fileno()
        offset, end = part.offset, part.offset + part.length
        in_kernel = hasattr(os, "copy_file_range") and (offset - self._position) % mmap.PAGESIZE == 0
        while offset < end:
            if in_kernel:
                try:
                    moved = os.copy_file_range(source, target, min(end - offset, WRITEBACK), offset)
                except OSError as error:
                    if error.errno not in _NOT_HERE:
                        raise
                    in_kernel = False
                    continue
            else:
                moved = os.write(target, self._read(source, min(end - offset, BLOCK), offset))
            if not moved:
                raise ModelError("the file was shortened while in use: load it again", path=part.source.path)
            offset += moved
            self._advance(moved)

    def _read(self, source: int, count: int, offset: int) -> memoryview | bytes:
        if not hasattr(os, "preadv"):
            return os.pread(source, count, offset)
        if self._buffer is None:
            self._buffer = memoryview(bytearray(BLOCK))
        return self._buffer[: os.preadv(source, [self._buffer[:count]], offset)]

    def _advance(self, count: int) -> None:
        self._position += count
        fresh = self._position - self._handed_on
        if fresh >= WRITEBACK:
            if hasattr(os, "posix_fadvise"):  # what is not written to the disk yet stays in memory, and is written
                os.posix_fadvise(self._file.fileno(), self._handed_on, fresh, os.POSIX_FADV_DONTNEED)
            self._handed_on = self._position


_NOT_HERE = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}
"""What the kernel answers where it cannot copy between these two files by itself."""
