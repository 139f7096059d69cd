"""Work that makes many objects and no cycles, without the garbage collector's looking through them all the time.

Python's collector looks through every object that lives each time their number has grown by a quarter, so
that building a network of 100,000 layers takes more than ten times as long as one of 10,000.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused"]


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
