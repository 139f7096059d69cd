"""Where reports go, found out before any work, and their writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fusion_engine.console import Console, printable
from fusion_engine.errors import OutputError
from fusion_engine.reports import SUFFIXES, pieces, suffix_of
from fusion_engine.storage import identity, is_url, write_parts
from fusion_engine.usage import STDOUT, Wrong

__all__ = ["check_reports", "write_reports"]


def check_reports(wanted: Sequence[str], used: Sequence[str], baseline: str | None = None) -> None:
    """Reports must have a format, and fall upon no directory, no model, no rule file and no other report.

    Parameters
    ----------
    wanted
        Names or URLs of reports; - is standard output, which gets JSON.
    used
        Models, results and rule files of the run.
    baseline
        The earlier report that the run is compared with.

    Raises
    ------
    Wrong
        Where one cannot be.
    """
    try:
        _check(wanted, used, baseline)
    except OutputError as error:
        raise Wrong(f"the report {printable(str(error))}") from error


def _check(wanted: Sequence[str], used: Sequence[str], baseline: str | None) -> None:
    places = {identity(path) for path in used}
    taken: set[str] = set()
    for path in wanted:
        if path == STDOUT:
            continue
        if not path:
            raise Wrong("say where the report goes: --report FILE.json (or - for standard output)")
        if os.path.isdir(path):
            raise Wrong(f"the report {printable(path)} is a directory: name a file")
        if not is_url(path):
            _require_name(path)
        place = identity(path)
        if place in places:
            raise Wrong(f"the report {printable(path)} is a model or rule file of the run: name another file")
        if baseline is not None and place == identity(baseline):
            raise Wrong(
                f"the report {printable(path)} is the baseline, which would then know all that is new: "
                "name another file, and take its place once you agree"
            )
        if place in taken:
            raise Wrong(f"the report {printable(path)} is asked for twice")
        taken.add(place)
        if suffix_of(path) is None:
            endings = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
            raise Wrong(f"the report {printable(path)} has no known format: end its name in {endings}")


def _require_name(path: str) -> None:
    """A file can have that name, whether there is one or not; its directory is looked at elsewhere."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise Wrong(f"the report {printable(path)} cannot be written: {error.strerror}") from error


def write_reports(wanted: Sequence[str], document: Mapping[str, Any], console: Console) -> bool:
    """Write all reports that can be; whether that were all."""
    from fusion_engine.armnn.files import write_atomically

    whole = True
    for path in dict.fromkeys(wanted):
        if path == STDOUT:
            console.stream(pieces(document, ".json"))
            continue
        try:
            write = write_parts if is_url(path) else write_atomically
            write(path, _blocks(pieces(document, suffix_of(path) or ".json")))
        except OutputError as error:
            console.note(f"fusion-engine: {printable(str(error))}")
            whole = False
    return whole


def _blocks(texts: Iterable[str]) -> Iterator[bytes]:
    """Texts in UTF-8, put together to blocks that are worth a write."""
    block = bytearray()
    for text in texts:
        block += text.encode("utf-8")
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)


_BLOCK = 1 << 18
