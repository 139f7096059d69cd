"""What a run has to remember until its end, on disk: its memory does not grow with the number of its models.

The first of it stays in memory, since most runs are small. The rest lies in a file of the directory for temporary
files that has no name: however the process ends, the file goes with it.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from fusion_engine.report import ModelReport

__all__ = ["Backlog", "Entries", "Spool"]

IN_MEMORY = 1 << 20
"""Bytes of a spool that stay in memory."""


class Spool:
    """Byte strings in the order in which they came; what has no room on the disk stays in memory.

    Parameters
    ----------
    most
        Bytes that stay in memory before the first goes to disk.
    """

    def __init__(self, most: int = IN_MEMORY) -> None:
        self._most = most
        self._file: IO[bytes] = BytesIO()
        self._on_disk = False
        self._ends = array("Q")
        self._rest: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._ends) + len(self._rest or ())

    def append(self, data: bytes) -> int:
        """Keep a string; its place among the others is what `at` finds it by."""
        if self._rest is None:
            begin = self._ends[-1] if self._ends else 0
            try:
                if not self._on_disk and begin + len(data) > self._most:
                    self._move()
                self._file.seek(begin)
                _write(self._file, data)  # a full disk is found out here, while the string is at hand
            except OSError:
                self._rest = []
            else:
                self._ends.append(begin + len(data))
        if self._rest is not None:
            self._rest.append(data)
        return len(self) - 1

    def _move(self) -> None:
        import tempfile

        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lasts as long as this
        try:
            _write(file, self._file.getvalue())  # type: ignore[attr-defined]
        except OSError:
            with suppress(OSError):
                file.close()
            raise
        self._file, self._on_disk = file, True

    def at(self, place: int) -> bytes:
        """The string at a place."""
        if place >= len(self._ends):
            assert self._rest is not None
            return self._rest[place - len(self._ends)]
        begin = self._ends[place - 1] if place else 0
        self._file.seek(begin)
        found, length = b"", self._ends[place] - begin
        while len(found) < length and (more := self._file.read(length - len(found))):
            found += more
        return found

    def clear(self) -> None:
        """Forget all strings, and give their room back."""
        self._file.close()
        self.__init__(self._most)  # type: ignore[misc]

    def __del__(self) -> None:
        with suppress(OSError):
            self._file.close()


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all of a string to a file without a buffer: nothing is left in one that could not be written."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


class Entries(Sequence[dict[str, Any]]):
    """Plain data in the order in which it came: an entry comes back as JSON has it, each time anew."""

    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self._lines = Spool()
        for entry in entries:
            self.append(entry)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Keep an entry as it is now."""
        self._lines.append(json.dumps(entry).encode("ascii"))

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        entry: dict[str, Any] = json.loads(self._lines.at(range(len(self))[place]))
        return entry

    def lines(self) -> Iterator[str]:
        """Each entry as a line of JSON, ASCII only."""
        for place in range(len(self)):
            yield self._lines.at(place).decode("ascii") + "\n"


class Backlog:
    """Reports that came before their turn, by the number of their job."""

    def __init__(self) -> None:
        self._near: dict[int, ModelReport] = {}
        self._far: dict[int, int] = {}
        self._spool = Spool()

    def __contains__(self, number: int) -> bool:
        return number in self._near or number in self._far

    def put(self, number: int, report: ModelReport) -> None:
        """Keep the report of a job."""
        if len(self._near) < _NEAR:
            self._near[number] = report
        else:
            import pickle

            self._far[number] = self._spool.append(pickle.dumps(report))

    def take(self, number: int) -> ModelReport:
        """Part with the report of a job."""
        if number in self._near:
            return self._near.pop(number)
        import pickle

        report: ModelReport = pickle.loads(self._spool.at(self._far.pop(number)))
        if not self._far:
            self._spool.clear()
        return report


_NEAR = 64
