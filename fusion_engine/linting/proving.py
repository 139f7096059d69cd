"""Whether conditions can hold together: a search through their alternatives, with the values that are left.

The answer "no" is a proof. "Yes" may also mean that it would take too long to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from fusion_engine.language.pattern import AllOf, AnyOf, Constraint, Operand, Side, Test
from fusion_engine.linting.domains import NEGATED, SWAPPED, Domain, axes, compared, domain_of, plain_name
from fusion_engine.tensor import ALIASES

__all__ = ["Claim", "Prover"]

MAX_STEPS = 2_000
"""Most parts of conditions that one proof looks at."""

TOTAL_STEPS = 1_000_000
"""Most that all proofs for a file look at."""

TOTAL_COMPARISONS = 20_000
"""Most pairs of elements of patterns that are compared for a file, those inside them not counted."""

_Key: TypeAlias = "tuple[int, str]"
"""A value: the pattern layer that has it, and its name as of `plain_name`."""

_Todo: TypeAlias = "tuple[Claim, _Todo] | None"
"""The claims that are left to look at, as a linked list."""

_RELATIONS: dict[str, frozenset[str]] = {
    "<": frozenset("<"),
    "<=": frozenset("<="),
    "==": frozenset("="),
    "<>": frozenset("<>?"),
    ">=": frozenset(">="),
    ">": frozenset(">"),
}
"""How two values may lie to each other where a comparison holds; ``?`` where one is no number."""

_TURNED = str.maketrans("<>", "><")


class Claim(NamedTuple):
    """A condition that is claimed to hold, or not to hold."""

    constraint: Constraint
    holds: bool = True


@dataclass(frozen=True)
class _Facts:
    """What follows from the claims so far: the values that are left, and how pairs of them lie to each other."""

    domains: Mapping[_Key, Domain] = field(default_factory=dict)
    pairs: Mapping[tuple[_Key, _Key], frozenset[str]] = field(default_factory=dict)

    @property
    def possible(self) -> bool:
        """Whether that can be, as far as pairs tell."""
        domains = dict(self.domains)
        for _ in range(4):
            for (left, right), relations in self.pairs.items():
                one, other = domains[left], domains[right]
                if "=" in relations and len(relations) == 1:
                    one = other = one.common(other)
                elif one.number and not relations & {">", "?"}:
                    step = 1 if one.integer and other.integer and "=" not in relations else 0
                    one = replace(one, high=min(one.high, other.high - step))
                    other = replace(other, low=max(other.low, one.low + step))
                elif one.number and not relations & {"<", "?"}:
                    step = 1 if one.integer and other.integer and "=" not in relations else 0
                    other = replace(other, high=min(other.high, one.high - step))
                    one = replace(one, low=max(one.low, other.low + step))
                if one.empty or other.empty:
                    return False
                domains[left], domains[right] = one, other
        return True


class Prover:
    """Proves conditions impossible; what all its proofs may take together is limited."""

    def __init__(self) -> None:
        self._left = TOTAL_STEPS
        self._comparisons = TOTAL_COMPARISONS

    def may_compare(self) -> bool:
        """Count a comparison of patterns; False where there were too many."""
        self._comparisons -= 1
        return self._comparisons >= 0

    def possible(self, claims: Sequence[Claim], type_of: Callable[[int], str]) -> bool:
        """Whether all claims can be right at once; True also where that is not found out.

        Parameters
        ----------
        claims
            In the order in which they are looked at: such as make values known go before denials.
        type_of
            The layer type of a pattern layer, by its id.
        """
        pending: _Todo = None
        for claim in reversed(claims):
            pending = (claim, pending)
        stack: list[tuple[_Todo, _Facts]] = [(pending, _Facts())]
        steps = 0
        while stack:
            todo, facts = stack.pop()
            while todo is not None:
                steps += 1
                if steps > MAX_STEPS or steps > self._left:
                    self._left -= min(steps, self._left)
                    return True
                (constraint, holds), todo = todo
                if isinstance(constraint, Test):
                    split = _split(constraint, type_of)
                    if split is None:
                        found = _with(facts, constraint, holds, type_of)
                        if found is None:
                            break
                        facts = found
                        continue
                    constraint = split
                claimed = [Claim(part, holds) for part in constraint.parts]
                if isinstance(constraint, AllOf) == holds:
                    for claim in reversed(claimed):
                        todo = (claim, todo)
                else:
                    stack += [((claim, todo), facts) for claim in reversed(claimed)]
                    break
            else:
                if facts.possible:
                    self._left -= steps
                    return True
        self._left -= steps
        return False


def _split(test: Test, type_of: Callable[[int], str]) -> AllOf | AnyOf | None:
    """A comparison of dimensions as those of their extents; None for any other."""
    sides: list[tuple[Side, ...]] = []
    for side in (test.left, test.right):
        if isinstance(side, tuple):
            sides.append(side)
        elif isinstance(side, Operand) and side.kind == "dimension":
            names = axes(type_of(side.at), side.name)
            sides.append(tuple(Operand(name, side.at, "int") for name in names))
        else:
            return None
    tests = tuple(replace(test, left=left, right=right) for left, right in zip(*sides, strict=False))
    return AnyOf(tests) if test.op == "<>" else AllOf(tests)


def _with(
    facts: _Facts,
    test: Test,
    holds: bool,
    type_of: Callable[[int], str],
) -> _Facts | None:
    """The facts with one more test; None where that cannot be."""
    left, op, right = test.left, test.op, test.right
    if left is None or right is None:
        return None if holds else facts
    if not isinstance(left, Operand) and isinstance(right, Operand):
        left, op, right = right, SWAPPED[op], left
    if not isinstance(left, Operand):
        return facts if compared(left, op, right) == holds else None
    key, domain = _value(facts, left, type_of)
    if not isinstance(right, Operand):
        assert not isinstance(right, tuple | None)
        if not holds:
            if domain.unknown or domain.nan:
                return facts
            op = NEGATED[op]
        literal = ALIASES.get(right, right) if isinstance(right, str) and left.name.endswith("dataType") else right
        domain = domain.held(op, literal)
        return None if domain.empty else replace(facts, domains={**facts.domains, key: domain})
    other_key, other = _value(facts, right, type_of)
    if not holds:
        if domain.unknown or domain.nan or other.unknown or other.nan:
            return facts
        op = NEGATED[op]
    relations = _RELATIONS[op]
    domain = replace(domain, unknown=False, nan=domain.nan and op == "<>")
    other = replace(other, unknown=False, nan=other.nan and op == "<>")
    if key == other_key:
        return None if not relations & ({"=", "?"} if domain.nan else {"="}) else facts
    if key > other_key:
        key, other_key, domain, other = other_key, key, other, domain
        relations = frozenset(relation.translate(_TURNED) for relation in relations)
    relations &= facts.pairs.get((key, other_key), relations)
    if domain.empty or other.empty or not relations:
        return None
    domains = {**facts.domains, key: domain, other_key: other}
    return _Facts(domains, {**facts.pairs, (key, other_key): relations})


def _value(
    facts: _Facts,
    operand: Operand,
    type_of: Callable[[int], str],
) -> tuple[_Key, Domain]:
    kind = type_of(operand.at)
    name = plain_name(kind, operand.name)
    key = (operand.at, name)
    return key, facts.domains.get(key) or domain_of(kind, name)
