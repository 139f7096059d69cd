"""Signals that end a program, as an exception, so that what it had begun is taken away before it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["Terminated", "orderly"]

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(BaseException):
    """A signal asked the program to end; ``number`` is its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    for ending in ENDING:  # once is enough: what follows is cleaning up
        signal.signal(ending, signal.SIG_IGN)
    raise Terminated(number)


@contextmanager
def orderly() -> Iterator[None]:
    """Raise `Terminated` where SIGTERM or SIGHUP would end the program without a word.

    For programs, not for libraries: signals belong to the whole process. One that is ignored stays so,
    as under ``nohup``, and where signals cannot be handled, outside the main thread, nothing changes.
    """
    former = {}
    try:
        for ending in ENDING:
            if signal.getsignal(ending) == signal.SIG_DFL:
                former[ending] = signal.signal(ending, _raise)
    except ValueError:  # not the main thread
        pass
    try:
        yield
    finally:
        for ending, handler in former.items():
            signal.signal(ending, handler)
