"""Whether a pattern matches wherever another does.

A *cover* of a pattern matches at each of its matches. Two degrees are told apart. A *twin* binds the very same
layers in the same way, so that it gives the same match. A *smaller* cover takes in no more layers than the other
match, and is as safe: nothing outside reads what it takes in, given that this is so of the other match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fusion_engine.language.pattern import (
    AllOf,
    AnyInput,
    AnyOf,
    Constraint,
    Operand,
    PatternElement,
    PatternItem,
    PatternLayer,
    Test,
)
from fusion_engine.language.steps import Steps, run
from fusion_engine.linting.patterns import Standing, consumes, data_inputs, has_layout, takes, types_covered
from fusion_engine.linting.proving import Claim, Prover
from fusion_engine.linting.truths import given
from fusion_engine.match.machine import COMMUTATIVE
from fusion_engine.schema import slot_facts
from fusion_engine.spellings import spellings
from fusion_engine.workspace import PARAMETER_SLOTS

__all__ = ["Covering", "reads"]

MAX_INPUTS = 64
"""Most inputs up to which numbers of inputs are compared."""

_Names: TypeAlias = "Mapping[int, int]"
"""Ids of the covered pattern's layers by those of the covering one's."""


@dataclass
class Covering:
    """Compares the patterns of two rules.

    Parameters
    ----------
    twin
        Whether the cover must be a twin, else it may be smaller.
    ordered, other_ordered
        Whether the covering and the covered rule leave inputs of commutative layers as they are.
    type_of
        The layer type of each pattern layer of the covered rule, by its id.
    prover
        What proves that conditions follow.
    """

    twin: bool
    ordered: bool
    other_ordered: bool
    type_of: Callable[[int], str]
    prover: Prover
    _known: dict[tuple[int, int], bool] = field(default_factory=dict)

    def covers(self, cover: PatternElement, covered: PatternElement, at_root: bool) -> bool:
        """Whether an element covers another; ``at_root`` tells that the covered one is the root of its pattern."""
        if isinstance(cover, PatternLayer) and (
            not isinstance(covered, PatternLayer) or covered.type not in types_covered(cover.type)
        ):
            return False
        if not isinstance(cover, AnyInput) and not self.prover.may_compare():
            return False
        found: bool = run(self._element(cover, covered, {}, at_root))
        return found

    def _element(
        self, cover: PatternElement, covered: PatternElement, names: _Names, at_root: bool = False
    ) -> Steps[bool]:
        if isinstance(cover, AnyInput):
            return isinstance(covered, AnyInput) or (not self.twin and isinstance(covered, PatternLayer))
        if isinstance(covered, AnyInput):
            return False
        if isinstance(cover, PatternLayer) and isinstance(covered, PatternLayer):
            key = (id(cover), id(covered))
            if key not in self._known:
                self._known[key] = yield self._layer(cover, covered, names, at_root)
            return self._known[key]
        if isinstance(cover, PatternLayer) or isinstance(covered, PatternLayer):
            return False
        same: bool = yield self._items(cover.items, covered.items, names)
        return same

    def _layer(self, cover: PatternLayer, covered: PatternLayer, names: _Names, at_root: bool) -> Steps[bool]:
        if cover.result != covered.result:
            return False
        if cover.type != covered.type and (cover.result or covered.type not in types_covered(cover.type)):
            return False
        if cover.kept != covered.kept and (self.twin or covered.kept):
            return False
        names = {**names, cover.id: covered.id}
        if not self._scopes(cover, covered) or not self._condition(cover, covered, names, at_root):
            return False
        if cover.inputs is None:
            return covered.inputs is None or self._open(covered)
        if not self.twin and _any_only(cover.inputs):
            return self._enough(cover, covered)
        if covered.inputs is None or (not self.twin and sum(map(consumes, covered.inputs)) > 1):
            return False
        if not self.twin and any(consumes(item) and (item.low, item.high) != (1, 1) for item in covered.inputs):
            return False
        commutes = _commutes(covered)
        if commutes and self.ordered and not self.other_ordered:
            return False
        straight: bool = yield self._items(cover.inputs, covered.inputs, names)
        if straight or self.twin or self.ordered or covered.type not in COMMUTATIVE or len(cover.inputs) != 2:
            return straight
        swapped: bool = yield self._items(cover.inputs[::-1], covered.inputs, names)
        return swapped

    def _open(self, covered: PatternLayer) -> bool:
        """Whether a layer without braces covers one with braces."""
        if not self.twin:
            return True
        inputs = covered.inputs or ()
        return _any_only(inputs) and (self.other_ordered or not _commutes(covered))

    def _enough(self, cover: PatternLayer, covered: PatternLayer) -> bool:
        """Whether items of ``?`` alone take what the inputs of the other layer can be."""
        assert cover.inputs is not None
        counts = takes(cover.inputs, MAX_INPUTS)
        endless = bool(counts) and any(item.high is None for item in cover.inputs)
        if covered.inputs is not None:
            needed = takes(covered.inputs, MAX_INPUTS)
            if not counts or not needed or not (endless or _limited(covered.inputs)):
                return False
            return min(needed) >= min(counts) if endless else needed <= counts
        slots = None if covered.result else data_inputs(covered.type)
        if slots is None or covered.type in PARAMETER_SLOTS:
            return endless and min(counts) == 0
        return counts >= frozenset(range(slots[0], slots[1] + 1))

    def _scopes(self, cover: PatternLayer, covered: PatternLayer) -> bool:
        if cover.data_type not in (None, covered.data_type):
            return False
        if cover.layout is None:
            return True
        return cover.layout == covered.layout and not cover.result and has_layout(cover.type)

    def _condition(self, cover: PatternLayer, covered: PatternLayer, names: _Names, at_root: bool) -> bool:
        """Whether the covering layer's condition follows from the covered one's."""
        if not at_root and _many_outputs(covered) and (_reads_output(cover.constraint) or cover.data_type is not None):
            return False
        claims = [Claim(scope) for scope in given(Standing(covered, None, (covered.layout,) if covered.layout else ()))]
        claims += [] if covered.constraint is None else [Claim(covered.constraint)]
        if not self.prover.possible(claims, self.type_of):
            return False  # it never matches at all, of which it is told already
        if cover.constraint is None:
            return True
        reads = {side.at for test in _tests(cover.constraint) for side in _operands(test)}
        if not reads <= names.keys():
            return False
        claims.append(Claim(run(_renamed(cover.constraint, names)), False))
        return not self.prover.possible(claims, self.type_of)

    def _items(self, cover: tuple[PatternItem, ...], covered: tuple[PatternItem, ...], names: _Names) -> Steps[bool]:
        if len(cover) != len(covered):
            return False
        for own, other in zip(cover, covered, strict=True):
            if own.low > other.low or (own.high is not None and (other.high is None or own.high < other.high)):
                return False
            for choice in other.choices:
                found = False
                for element in own.choices:
                    found = yield self._element(element, choice, names)
                    if found:
                        break
                if not found:
                    return False
        return True


def _any_only(items: tuple[PatternItem, ...]) -> bool:
    """Whether items are ``?`` alone."""
    return all(isinstance(choice, AnyInput) for item in items for choice in item.choices)


def _limited(items: tuple[PatternItem, ...]) -> bool:
    """Whether items surely take no more inputs than are compared."""
    plain = all(isinstance(choice, AnyInput | PatternLayer) for item in items for choice in item.choices)
    return plain and sum(MAX_INPUTS + 1 if item.high is None else item.high for item in items) <= MAX_INPUTS


def _commutes(layer: PatternLayer) -> bool:
    """Whether layers that a pattern layer matches may be tried with their inputs swapped."""
    return not layer.result and any(name in COMMUTATIVE for name in types_covered(layer.type))


def _many_outputs(layer: PatternLayer) -> bool:
    """Whether the output that a pattern came through may be another than the first."""
    return layer.result or any(slot_facts()[name]["outputs"] != 1 for name in spellings(layer.type))


def _tests(constraint: Constraint | None) -> list[Test]:
    found: list[Test] = []
    stack = [] if constraint is None else [constraint]
    while stack:
        part = stack.pop()
        if isinstance(part, Test):
            found.append(part)
        else:
            stack.extend(part.parts)
    return found


def _renamed(constraint: Constraint, names: _Names) -> Steps[Constraint]:
    """A condition about the layers that stand for those it is about."""
    if isinstance(constraint, Test):
        left, right = (
            replace(side, at=names[side.at]) if isinstance(side, Operand) else side
            for side in (constraint.left, constraint.right)
        )
        return replace(constraint, left=left, right=right)
    parts: list[Constraint] = []
    for part in constraint.parts:
        parts += [(yield _renamed(part, names))]
    return AllOf(tuple(parts)) if isinstance(constraint, AllOf) else AnyOf(tuple(parts))


def _operands(test: Test) -> list[Operand]:
    return [side for side in (test.left, test.right) if isinstance(side, Operand)]


def _reads_output(constraint: Constraint | None) -> bool:
    return any(side.name.startswith("output.") for test in _tests(constraint) for side in _operands(test))


def reads(constraint: Constraint | None, name: str) -> bool:
    """Whether a condition reads a value of that name."""
    return any(side.name == name for test in _tests(constraint) for side in _operands(test))
