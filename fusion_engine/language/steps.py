"""Recursion without Python's stack: generators that call each other by ``yield``.

A rule may nest far deeper than the interpreter's stack goes, and the caller may have used up most
of that already. So the functions that walk rules are generators: ``result = yield other(...)``
where a recursive function would write ``result = other(...)``. `run` keeps them on a list.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

__all__ = ["Steps", "run"]

T = TypeVar("T")

Steps: TypeAlias = Generator[Any, Any, T]
"""A walk that yields the walks it waits for and returns a ``T``."""


def run(steps: Steps[T]) -> T:
    """The result of a walk.

    Examples
    --------
    >>> def depth(nested):
    ...     below = 0
    ...     for part in nested:
    ...         below = max(below, (yield depth(part)))
    ...     return below + 1
    >>> run(depth([[], [[]]]))
    3
    """
    stack: list[Steps[Any]] = [steps]
    value: Any = None
    while True:
        try:
            stack.append(stack[-1].send(value))
            value = None
        except StopIteration as done:
            stack.pop()
            value = done.value
            if not stack:
                result: T = value
                return result
