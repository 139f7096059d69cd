"""Words on a terminal: data on standard output, progress and errors on standard error, nothing that could harm it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO
from unicodedata import combining, east_asian_width

from fusion_engine.naming import LONGEST_REASON, shortened

__all__ = ["Console", "counted", "fitted", "printable", "reason_line"]

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}


def printable(text: str) -> str:
    r"""``text`` without what could break a line or command a terminal.

    A byte that is no UTF-8 becomes ``\xff``, any other character that does not print its escape.

    Examples
    --------
    >>> print(printable("a\nb\x1b[31m\udcff\u202e é"))
    a\nb\x1b[31m\xff\u202e é
    """
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def reason_line(text: str) -> str:
    """A reason or a warning in one `printable` line; what another package or program has said may be of any length."""
    return printable(shortened(text, LONGEST_REASON))


def _escaped(one: str) -> str:
    if "\udc80" <= one <= "\udcff":
        return f"\\x{ord(one) - 0xDC00:02x}"
    return one.encode("unicode_escape", "backslashreplace").decode("ascii")


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """``1 model``, ``2 models``; ``nouns`` where the plural is not the noun and an s.

    Examples
    --------
    >>> counted(1, "model"), counted(0, "match", "matches")
    ('1 model', '0 matches')
    """
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def fitted(text: str, width: int) -> str:
    """As much of a printable text as fits into so many columns of a terminal, where some characters take two.

    Examples
    --------
    >>> fitted("卷积.armnn", 6)
    '卷积.a'
    """
    for place, one in enumerate(text):
        width -= 0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1
        if width < 0:
            return text[:place]
    return text


class Console:
    """Standard output and standard error of a command.

    Colours are used on a terminal only, and not where ``NO_COLOR`` is set. When nobody reads standard
    output any more, what goes there is dropped and the work goes on.

    Attributes
    ----------
    live
        Whether standard error is a terminal, which shows progress.
    fault
        Why standard output could not be written (a full disk), where it could not.
    closed
        Whether nobody reads standard output any more.
    """

    def __init__(self) -> None:
        self._out: TextIO | None = sys.stdout
        self._error: TextIO | None = sys.stderr
        for stream in (self._out, self._error):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._colours = not plain and _is_terminal(self._out)
        self.live = _is_terminal(self._error) and os.environ.get("TERM") != "dumb"
        self._shown = False
        self.fault: str | None = None
        self.closed = False

    def paint(self, text: str, colour: str) -> str:
        """``text`` in a colour, where there are colours."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._colours else text

    def print(self, text: str = "") -> None:
        """A line of data on standard output."""
        self.stream((f"{text}\n",))

    def stream(self, texts: Iterable[str]) -> None:
        """Data on standard output, as it is."""
        self._clear()
        if self._out is None or self.closed or self.fault is not None:
            return
        try:
            self._out.writelines(texts)
            self._out.flush()
        except BrokenPipeError:
            self.closed = True
        except (OSError, ValueError) as error:
            self.fault = getattr(error, "strerror", None) or str(error)

    def note(self, text: str) -> None:
        """A line on standard error."""
        self._clear()
        if self._error is not None:
            with suppress(OSError, ValueError):
                self._error.write(f"{text}\n")
                self._error.flush()

    def progress(self, text: str) -> None:
        """What is being done, on a terminal: it is overwritten by what comes next."""
        if not self.live or self._error is None:
            return
        width = shutil.get_terminal_size().columns - 1
        with suppress(OSError, ValueError):
            self._error.write(f"\r\x1b[K{fitted(text, width)}")
            self._error.flush()
            self._shown = True

    def done(self, text: str) -> None:
        """What was done, where standard error is no terminal: there `progress` has shown it."""
        if not self.live:
            self.note(text)

    def close(self) -> None:
        """Leave standard output so that the interpreter has nothing to complain of when it ends."""
        self._clear()
        if self._out is None:
            return
        try:
            self._out.flush()
        except BrokenPipeError:
            self.closed = True
        except (OSError, ValueError) as error:
            self.fault = self.fault or getattr(error, "strerror", None) or str(error)
        if self.closed or self.fault is not None:
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._out.fileno())
                os.close(nowhere)

    def _clear(self) -> None:
        if self._shown and self._error is not None:
            self._shown = False
            with suppress(OSError, ValueError):
                self._error.write("\r\x1b[K")
                self._error.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
