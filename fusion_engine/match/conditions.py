"""Conditions of a rule as short programs: each test with where to go when it holds and when it does not.

Jumps take the place of nesting, so that a condition of any depth is run by one loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Failure:
    """The test that made a condition fail last, and the values of its operands (None for a literal)."""

    test: Test
    left: Any
    right: Any


@dataclass(frozen=True)
class _Step:
    """A test, ready to run; the operands read, the literals as they compare."""

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
                read = (
                    left if isinstance(step.left, Operand) else None,
                    right if isinstance(step.right, Operand) else None,
                )
                return Failure(step.test, *read)


def _read(side: Any, value: Any) -> Any:
    return value if isinstance(side, Operand) else None


def _side(workspace: Workspace, bound: Bound, side: Any) -> Any:
    if not isinstance(side, Operand):
        return side
    key, slot = bound(side.at)
    value = read_value(workspace, key, slot, side.name)
    if side.kind == "enum" and not isinstance(value, str):
        return UNKNOWN  # a number that the schema has no name for
    return value


def _holds(step: _Step, left: Any, right: Any) -> bool:
    if left is UNKNOWN or right is UNKNOWN:
        return False
    if step.dimension:
        return _dimensions(step.compare, left, right)
    return step.compare(left, right)


def _dimensions(compare: Callable[[Any, Any], bool], left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Compare on the axes that both sides have: on every one, but ``<>`` where any differs."""
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
            return float32(float(side)) if abs(side) < 2**1023 else float("inf") * (1 if side > 0 else -1)
        if other.name.endswith("dataType") and isinstance(side, str):
            return ALIASES.get(side, side)
    return side


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
    kinds = {side.kind for side in (test.left, test.right) if isinstance(side, Operand)}
    dimension = "dimension" in kinds or isinstance(test.left, tuple) or isinstance(test.right, tuple)
    return _Step(test, left, right, dimension, _COMPARE[test.op], then, otherwise)
