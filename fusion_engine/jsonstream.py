"""JSON documents that are too long to be in memory: an object whose one long list is given entry by entry."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import IO, Any

__all__ = ["read_members"]

_BLOCK = 1 << 16
_SPACE = " \t\n\r"
_AFTER = ",:]}" + _SPACE


def read_members(file: IO[bytes], long: str, take: Callable[[Any], None]) -> dict[str, Any]:
    """Read a JSON object.

    Parameters
    ----------
    file
        In UTF-8, UTF-16 or UTF-32, as `json.loads` takes bytes.
    long
        The member whose list is not kept.
    take
        Called with each entry of that list.

    Returns
    -------
    dict
        The other members; that one, where it was there, is an empty list.

    Raises
    ------
    ValueError
        Where it is no JSON, no object, or the member is no list.
    RecursionError
        Where a value nests too deep for `json`.
    """
    text = _Text(file)
    found: dict[str, Any] = {}
    text.expect("{")
    more = not text.skip("}")
    while more:
        name = text.value()
        if not isinstance(name, str):
            raise ValueError("a name is no string")
        text.expect(":")
        if name == long:
            _take_entries(text, take)
            found[name] = []
        else:
            found[name] = text.value()
        more = text.skip(",")
        if not more:
            text.expect("}")
    if text.next():
        raise ValueError("something follows the object")
    return found


def _take_entries(text: _Text, take: Callable[[Any], None]) -> None:
    text.expect("[")
    more = not text.skip("]")
    while more:
        take(text.value())
        more = text.skip(",")
        if not more:
            text.expect("]")


class _Text:
    """The text of a file, of which as much is in memory as is being read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        first = file.read(_BLOCK)
        self._decoder = codecs.getincrementaldecoder(json.detect_encoding(first))("surrogatepass")
        self._text = self._decoder.decode(first)
        self._place = 0
        self._ended = False
        self._values = json.JSONDecoder()

    def _fill(self) -> bool:
        """Read on, at least as much as is there; whether there was more."""
        if self._ended:
            return False
        self._text = self._text[self._place :]
        self._place = 0
        data = self._file.read(max(_BLOCK, len(self._text)))
        self._ended = not data
        self._text += self._decoder.decode(data, final=self._ended)
        return True

    def next(self) -> str:
        """The next character that is no space, which stays; empty at the end."""
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in _SPACE:
                    return self._text[self._place]
                self._place += 1
            if not self._fill():
                return ""

    def skip(self, character: str) -> bool:
        """Pass a character, where it is the next."""
        there = self.next() == character
        self._place += there
        return there

    def expect(self, character: str) -> None:
        """Pass a character, which must be the next."""
        if not self.skip(character):
            raise ValueError(f"{character} is missing")

    def value(self) -> Any:
        """The next value."""
        self.next()
        while True:
            try:
                found, end = self._values.raw_decode(self._text, self._place)
            except ValueError:
                if not self._fill():
                    raise
                continue
            after = self._text[end : end + 1]
            if (after and after in _AFTER) or not self._fill():  # else a number may go on in the next block
                self._place = end
                return found
