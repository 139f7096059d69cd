"""Where the keys and values of a TOML document stand: the standard library's reader keeps no positions.

The document is known to be valid, so a lexical walk is enough: keys, strings, brackets, comments.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["MAX_DEPTH", "Location", "Path", "locations", "too_deep"]

MAX_DEPTH = 100
"""Most brackets that may be open at once, and most parts of a dotted key: what the standard library's reader bears."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys, and indices into arrays, from the top of the document."""

_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2}(?!"))'
    r"|'''.*?'''(?:'{0,2}(?!'))"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}\n#]+")
_KEY = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEPTH = re.compile(
    rf"(?P<dotted>(?:{_KEY}[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}})"
    rf"|{_STRING.pattern}|[A-Za-z0-9_-]++|#[^\n]*|(?P<open>[\[{{])|(?P<close>[\]}}])",
    re.DOTALL,
)


@dataclass(frozen=True)
class Location:
    """Where something stands, as offsets in the document.

    Parameters
    ----------
    key
        Its key, or the header of its table; for an element of an array the element itself.
    value
        Its value.
    inside
        For a string written without escapes, its first character; else None.
    """

    key: int
    value: int
    inside: int | None = None


def too_deep(text: str) -> int | None:
    """Offset of the first bracket or dotted key beyond `MAX_DEPTH`, or None.

    Examples
    --------
    >>> too_deep("a = " + "[" * 101)
    104
    """
    depth = 0
    for found in _DEPTH.finditer(text):
        if found["open"]:
            depth += 1
        if found["dotted"] or depth > MAX_DEPTH:
            return found.start()
        if found["close"]:
            depth = max(depth - 1, 0)
    return None


def locations(text: str) -> dict[Path, Location]:
    r"""Where each table, key and array element of a valid document stands.

    Examples
    --------
    >>> places = locations("[[rule]]\nmatch = 'Softmax'")
    >>> places["rule", 0, "match"]
    Location(key=9, value=17, inside=18)
    """
    return _Walk(text).found


class _Walk:
    """The walk over a document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Path, Location] = {}
        self._lengths: dict[Path, int] = {}
        table: Path = ()
        self.blank()
        while self.at < len(text):
            if text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.blank()

    def blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def header(self) -> Path:
        """``[a.b]`` or ``[[a.b]]``: the path of the table that begins."""
        start = self.at
        many = self.text.startswith("[[", start)
        self.at += 2 if many else 1
        path: Path = ()
        keys = list(self.keys())
        for key in keys[:-1]:
            path = self._last((*path, key))
        path = (*path, keys[-1])
        self.at += 2 if many else 1
        if many:
            self._lengths[path] = self._lengths.get(path, 0) + 1
        self.found.setdefault(path, Location(start, start))
        path = self._last(path)
        self.found.setdefault(path, Location(start, start))
        return path

    def _last(self, path: Path) -> Path:
        """The table that a path means: of an array of tables the newest."""
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def keys(self) -> Iterator[str]:
        """A dotted key; the walk stands behind it and the blanks that follow."""
        while True:
            self.blank()
            bare = _BARE.match(self.text, self.at)
            if bare:
                self.at = bare.end()
                yield bare[0]
            else:
                written = self.string()
                yield tomllib.loads(f"k = {written}")["k"]
            self.blank()
            if not self.text.startswith(".", self.at):
                return
            self.at += 1

    def string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise ValueError(f"no string at offset {self.at}")
        self.at = found.end()
        return found[0]

    def key_of(self, table: Path) -> tuple[Path, int]:
        """Path and offset of the key that stands here, and past its ``=``."""
        start = self.at
        path = (*table, *self.keys())
        for depth in range(len(table) + 1, len(path)):
            self.found.setdefault(path[:depth], Location(start, start))
        self.at += 1
        self.blank()
        return path, start

    def pair(self, table: Path) -> None:
        """A key and its value, which may hold any depth of others."""
        path, key = self.key_of(table)
        inside: list[tuple[Path, int]] = []  # open arrays (with the index) and inline tables (-1)
        while True:
            opened = self.start(path, key, inside)
            found = self.first(inside) if opened else self.next(inside)
            if found is None:
                return
            path, key = found

    def start(self, path: Path, key: int, inside: list[tuple[Path, int]]) -> bool:
        """Take a scalar, or the opening bracket of an array or inline table; whether it is a bracket."""
        start = self.at
        first = self.text[start]
        plain: int | None = None
        if first in "[{":
            inside.append((path, 0 if first == "[" else -1))
            self.at += 1
        elif first in "\"'":
            plain = _inside(self.string(), start)
        else:
            found = _PLAIN.match(self.text, start)
            self.at = found.end() if found else start + 1
        self.found.setdefault(path, Location(key, start, plain))
        return first in "[{"

    def first(self, inside: list[tuple[Path, int]]) -> tuple[Path, int] | None:
        """Path and key of the first element of what was just opened; of what follows where it is empty."""
        self.blank()
        if self.text[self.at] in "]}":
            return self.next(inside)
        return self.element(inside)

    def next(self, inside: list[tuple[Path, int]]) -> tuple[Path, int] | None:
        """Path and key of the next element of the innermost array or table that has one, or None."""
        while inside:
            self.blank()
            sign = self.text[self.at]
            self.at += 1
            self.blank()
            if sign == "," and self.text[self.at] not in "]}":
                path, index = inside[-1]
                inside[-1] = (path, index + 1 if index >= 0 else index)
                return self.element(inside)
            if sign in "]}":
                inside.pop()
        return None

    def element(self, inside: list[tuple[Path, int]]) -> tuple[Path, int]:
        path, index = inside[-1]
        return self.key_of(path) if index < 0 else ((*path, index), self.at)


def _inside(written: str, start: int) -> int | None:
    """Offset of the first character that a string stands for, where it is written without escapes."""
    quote = written[0]
    many = written.startswith(quote * 3)
    if quote == '"' and "\\" in written:
        return None
    if not many:
        return start + 1
    newline = re.match(r"\r?\n", written[3:])
    return start + 3 + (newline.end() if newline else 0)
