"""How far a run has come, on a terminal: counts, rate, remaining time and failures so far, in a line that stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from fusion_engine.console import Console, printable
from fusion_engine.report import ModelReport

__all__ = ["Progress", "clock_time"]

_WIDTH = 20


class Progress:
    """The bar of a run.

    Parameters
    ----------
    console
        Where it is shown, if that is a terminal; None for nowhere.
    total
        Number of models.
    now
        A clock, in seconds.
    """

    def __init__(self, console: Console | None, total: int, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._total = total
        self._now = now
        self._begun = now()
        self._kept = self._done = self._failed = 0
        self._name = ""

    def look(self, number: int, path: str) -> None:
        """So many models were held against what an earlier run has recorded, and this one is next."""
        if self._console is not None:
            name = printable(os.path.basename(path))
            self._console.progress(f"looking for what is done already: {number}/{self._total}  {name}")

    def keep(self, count: int) -> None:
        """Of so many models the work was done by an earlier run; the time counts from here."""
        self._kept = count
        self._begun = self._now()

    def begin(self, path: str) -> None:
        """A model is the next to be shown."""
        self._name = printable(os.path.basename(path))
        self._draw()

    def finish(self, model: ModelReport) -> None:
        """A model is done; in whatever order."""
        self._done += 1
        self._failed += model.status == "failed"
        self._draw()

    def _draw(self) -> None:
        if self._console is not None:
            self._console.progress(self.line())

    def line(self) -> str:
        """The bar as text."""
        done = self._done + self._kept
        share = done / self._total if self._total else 1.0
        filled = int(share * _WIDTH)
        parts = [f"{int(100 * share):3}% [{'#' * filled}{'-' * (_WIDTH - filled)}] {done}/{self._total}"]
        elapsed = self._now() - self._begun
        if self._done and elapsed > 0:
            rate = self._done / elapsed
            parts.append(f"{rate:.1f} models/s" if rate >= 1 else f"{1 / rate:.1f} s/model")
            parts.append(f"{clock_time((self._total - done) / rate)} left")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return "  ".join([*parts, self._name])


def clock_time(seconds: float) -> str:
    """Seconds as a clock shows them.

    Examples
    --------
    >>> clock_time(7.2), clock_time(83), clock_time(36_000)
    ('0:07', '1:23', '10:00:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
