"""Work that makes many objects and no cycles, without the garbage collector's looking through them all the time.

Python's collector looks through every object that lives each time their number has grown by a quarter, so
that building a network of 100,000 layers takes more than ten times as long as one of 10,000. When a program starts and
when it ends it looks through all that was imported, which takes a fifth of the time of a command.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused", "relaxed", "used_up"]

_THRESHOLDS = (50_000, 4, 2)
"""Objects after which a program's collector looks at new ones, and how often it does before it looks at older ones."""


def relaxed() -> None:
    """Let the collector of this process work less often, and not at its end; for programs, not for libraries."""
    gc.set_threshold(*_THRESHOLDS)
    atexit.register(gc.freeze)


LARGE = 8 << 20
"""Bytes of a model whose network is not left to the collector's own pace: a few of these are all memory there is."""


def used_up(size: int) -> None:
    """Free what is left of a network from a file of so many bytes, where that is large: its views hold it in cycles."""
    if size >= LARGE:
        gc.collect()


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector where it is running; objects are freed by their reference counts all the same."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
