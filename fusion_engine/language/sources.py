"""Where rule files come from: those that ship, by name, and the user's own, by path."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fusion_engine.errors import OutputError, RuleError, nearest
from fusion_engine.resources import folder
from fusion_engine.storage import fetched, is_url

__all__ = ["MAX_BYTES", "Source", "read_source", "shipped_names"]

MAX_BYTES = 4 * 2**20
"""Most bytes that a rule file may have."""


@dataclass(frozen=True)
class Source:
    """A rule file as read: what messages call it, and its bytes."""

    name: str
    data: bytes


def shipped_names() -> tuple[str, ...]:
    """Names of the rule files that ship, sorted: what `load_rules` takes beside paths.

    Examples
    --------
    >>> "armnn" in shipped_names()
    True
    """
    names = [entry.name.rpartition(".") for entry in folder("rules").iterdir()]
    return tuple(sorted(stem for stem, _, suffix in names if suffix in ("toml", "rules")))


def read_source(source: str | os.PathLike[str]) -> Source:
    """Read a rule file, shipped or not.

    Parameters
    ----------
    source
        The name of a shipped file, a URL (extra ``remote``), or a path: a PathLike, or a str with a separator or a
        suffix, or that exists.

    Raises
    ------
    RuleError
        Where there is no such file, or it cannot be read or is too large.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise RuleError(f"rules are loaded by name or path, not from {type(source).__name__} {str(source)[:40]!r}")
    name = os.fsdecode(source)
    try:
        if isinstance(source, str) and name in shipped_names():
            entry = next(e for e in folder("rules").iterdir() if e.name.rpartition(".")[0] == name)
            return Source(entry.name, entry.read_bytes())
        if isinstance(source, str) and is_url(name):
            return Source(name, _fetched(name))
        separators = {os.sep, os.altsep} - {None}
        is_path = not isinstance(source, str) or Path(name).suffix or any(s in name for s in separators if s)
        if not is_path and not os.path.exists(name):
            beside = f"{name}.toml"
            meant = nearest(name, shipped_names())
            if os.path.isfile(beside):
                meant = f" (did you mean the file {beside!r}?)"
            raise RuleError(
                f"there are no rules {name!r}{meant}: give a path, or one of the "
                f"shipped names {', '.join(shipped_names())}"
            )
        with open(source, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        shipped = ", ".join(shipped_names())
        raise RuleError(f"the rule file cannot be read: {reason} (shipped are {shipped})", source=name) from error
    return Source(name, _small(name, data))


def _fetched(url: str) -> bytes:
    try:
        with fetched(url) as path:
            if path is None:
                raise RuleError("the rule file cannot be read: there is no such file", source=url)
            with open(path, "rb") as file:
                return _small(url, file.read(MAX_BYTES + 1))
    except OutputError as error:
        raise RuleError(f"the rule file {str(error).removeprefix(f'{url}: ')}", source=url) from error


def _small(name: str, data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise RuleError(f"the rule file is larger than {MAX_BYTES} bytes: split it", source=name)
    return data
