"""Conditions of a rule as short programs: each test with where to go when it holds and when it does not.

Jumps take the place of nesting, so that a condition of any depth is run by one loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from fusion_engine.language.pattern import AllOf, Constraint, Operand, Side, Test
from fusion_engine.match.values import UNKNOWN, read_value
from fusion_engine.schema import float32
from fusion_engine.tensor import ALIASES
from fusion_engine.workspace import Workspace

__all__ = ["Bound", "Failure", "Program", "compile_constraint"]

Bound = Callable[[int], "tuple[int, int]"]
"""From a pattern layer's id to the (layer key, output slot) it is bound to."""

HOLDS, FAILS = -1, -2

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_KINDS: dict[str, type | tuple[type, ...]] = {
    "int": (int, float, Real),
    "float": (int, float, Real),
    "bool": (int, Real),
    "string": str,
    "enum": str,
    "dimension": tuple,
}
"""What a value of a kind of operand may be in Python."""


@dataclass(frozen=True)
class Failure:
    """The test that decided that a condition is false, and the values that its sides had."""

    test: Test
    left: Any
    right: Any

    @property
    def reason(self) -> str:
        """The test and what was found, in words.

        Examples
        --------
        >>> from fusion_engine.language.tree import Span
        >>> test = Test(Operand("strideX", 0, "int"), "==", 1, Span(0, 12))
        >>> Failure(test, 2, 1).reason
        'strideX == 1 is false: it is 2'
        """
        test = self.test
        sides = {
            side.name: _shown(value)
            for side, value in ((test.left, self.left), (test.right, self.right))
            if isinstance(side, Operand)
        }
        text = f"{_written(test.left)} {test.op} {_written(test.right)} is false"
        if len(sides) == 1:
            return f"{text}: it is {next(iter(sides.values()))}"
        return f"{text}: {' and '.join(f'{name} is {value}' for name, value in sides.items())}" if sides else text


@dataclass(frozen=True)
class _Step:
    """A test, ready to run: its operands, and its literals as they compare."""

    test: Test
    left: Any
    right: Any
    dimension: bool
    compare: Callable[[Any, Any], bool]
    then: int
    otherwise: int


@dataclass(frozen=True)
class Program:
    """A compiled condition."""

    steps: tuple[_Step, ...]

    @property
    def reads(self) -> frozenset[int]:
        """The ids of the pattern layers that it reads."""
        sides = (side for step in self.steps for side in (step.left, step.right))
        return frozenset(side.at for side in sides if isinstance(side, Operand))

    @property
    def names(self) -> frozenset[str]:
        """The names that it reads, of whichever layer."""
        sides = (side for step in self.steps for side in (step.left, step.right))
        return frozenset(side.name for side in sides if isinstance(side, Operand))

    def failure(self, workspace: Workspace, bound: Bound) -> Failure | None:
        """None where the condition holds, else the test that decided that it does not."""
        at = 0
        while True:
            step = self.steps[at]
            left, right = _side(workspace, bound, step.left), _side(workspace, bound, step.right)
            at = step.then if _holds(step, left, right) else step.otherwise
            if at == HOLDS:
                return None
            if at == FAILS:
                return Failure(step.test, left, right)


def _written(side: Side) -> str:
    """A side as a rule's text has it."""
    if side is None:
        return "an unknown value"
    return side.name if isinstance(side, Operand) else _shown(side)


def _shown(value: Any) -> str:
    """A value as a rule's text has it."""
    if isinstance(value, tuple):
        return "x".join("?" if extent is UNKNOWN else str(extent) for extent in value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, float) and value == float32(value):
        return str(np.float32(value))  # as short as 32 bits allow
    return str(int(value) if isinstance(value, bool) else value)


def _side(workspace: Workspace, bound: Bound, side: Any) -> Any:
    if not isinstance(side, Operand):
        return side
    key, slot = bound(side.at)
    value: Any = read_value(workspace, key, slot, side.name)
    if not isinstance(value, _KINDS[side.kind]):
        return UNKNOWN  # an enum's number that the schema has no name for, or what no file can hold
    return _float32(value) if side.kind == "float" else value


def _holds(step: _Step, left: Any, right: Any) -> bool:
    if left is UNKNOWN or right is UNKNOWN:
        return False
    if step.dimension:
        return _dimensions(step.compare, left, right)
    return step.compare(left, right)


def _dimensions(compare: Callable[[Any, Any], bool], left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Compare on every axis that both sides have, or for ``<>`` see whether any differs."""
    axes = min(len(left), len(right))
    left, right = left[:axes], right[:axes]
    if UNKNOWN in left or UNKNOWN in right:
        return False
    pairs = (compare(a, b) for a, b in zip(left, right, strict=True))
    return any(pairs) if compare is operator.ne else all(pairs)


def _ready(side: Side, other: Side) -> Any:
    """A side as it is compared: literals rounded and renamed as what they are compared with."""
    if side is None:
        return UNKNOWN
    if isinstance(other, Operand):
        if other.kind == "float" and isinstance(side, int | float):
            return _float32(side)
        if other.name.endswith("dataType") and isinstance(side, str):
            return ALIASES.get(side, side)
    return side


def _float32(value: Any) -> float:
    """A number as a float field stores it; a large one as an infinity."""
    try:
        return float32(float(value))
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def compile_constraint(constraint: Constraint) -> Program:
    """A condition as a program."""
    # Each label becomes the index of the first step of its part; the two outcomes have theirs.
    labels: dict[int, int] = {HOLDS: HOLDS, FAILS: FAILS}
    count = 0
    parts: list[tuple[Test, int, int]] = []
    pending: list[tuple[Constraint, int | None, int, int]] = [(constraint, None, HOLDS, FAILS)]
    while pending:
        part, label, then, otherwise = pending.pop()
        if isinstance(part, Test):
            if label is not None:
                labels[label] = len(parts)
            parts.append((part, then, otherwise))
            continue
        following: list[int | None] = [label]
        for _ in part.parts[1:]:
            count += 1
            following.append(count)
        todo: list[tuple[Constraint, int | None, int, int]] = []
        for number, (inner, own) in enumerate(zip(part.parts, following, strict=True)):
            after = following[number + 1] if number + 1 < len(following) else None
            if isinstance(part, AllOf):
                todo.append((inner, own, then if after is None else after, otherwise))
            else:
                todo.append((inner, own, then, otherwise if after is None else after))
        pending.extend(reversed(todo))
    return Program(tuple(_step(test, labels[then], labels[otherwise]) for test, then, otherwise in parts))


def _step(test: Test, then: int, otherwise: int) -> _Step:
    left, right = _ready(test.left, test.right), _ready(test.right, test.left)
    dimension = any(
        isinstance(side, tuple) or (isinstance(side, Operand) and side.kind == "dimension")
        for side in (test.left, test.right)
    )
    return _Step(test, left, right, dimension, _COMPARE[test.op], then, otherwise)
