"""Conditions of a rule, checked: names against the layer types, values against each other's kinds.

A condition may belong to a vocabulary name, which stands for several chains of layers. It is checked
on every chain and gives one constraint for each: a name must be good on one chain at least, and where
a chain lacks it the value is unknown there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from fusion_engine.errors import nearest
from fusion_engine.language.names import Quantity, find_quantity, quantities
from fusion_engine.language.pattern import AllOf, AnyOf, Constraint, Definition, Operand, Test
from fusion_engine.language.steps import Steps, run
from fusion_engine.language.tree import And, Comparison, Condition, Constant, Parameter, Value
from fusion_engine.schema import schema

__all__ = ["Chain", "Report", "constraints"]

Report: TypeAlias = Callable[[int, str], None]
"""Takes an error: an offset in the text and the reason."""


class Chain(NamedTuple):
    """Layer types from the top of what a name stands for down to its lowest layer.

    ``types`` from the top; ``low`` is the position of the lowest layer, or None where there is no
    single one. ``vocabulary`` tells a vocabulary name from a layer type.
    """

    types: tuple[str, ...]
    low: int | None
    vocabulary: bool

    @property
    def activation(self) -> int | None:
        """Position of the uppermost Activation, or None."""
        return self.types.index("Activation") if "Activation" in self.types else None


class _Side(NamedTuple):
    """A side of a comparison on one chain: its kind and what a `Test` holds (``at`` a chain position)."""

    kind: Quantity
    value: Operand | int | float | str | tuple[int, ...] | None


def constraints(
    condition: Condition, name: str, chains: Sequence[Chain], definition: str | None, report: Report
) -> list[list[tuple[Constraint, int]]]:
    """The constraints that a condition puts on each chain.

    Parameters
    ----------
    condition
        What stands in the brackets.
    name
        The layer type or vocabulary name before them.
    chains
        What it stands for.
    definition
        The vocabulary name whose text this is, or None for a rule's.
    report
        Gets every error.

    Returns
    -------
    list
        Per chain its constraints, all of which must hold, each with the position in the chain of the
        lowest layer that it reads; ``at`` of its operands is such a position too.
    """
    checker = _Checker(name, chains, definition, report)
    parts = condition.parts if isinstance(condition, And) else (condition,)
    found = [run(checker.condition(part)) for part in parts]
    return [[(tests[i], _lowest(tests[i])) for tests in found] for i in range(len(chains))]


def _lowest(constraint: Constraint) -> int:
    lowest, stack = 0, [constraint]
    while stack:
        part = stack.pop()
        if isinstance(part, Test):
            lowest = max(lowest, *(side.at for side in (part.left, part.right) if isinstance(side, Operand)), 0)
        else:
            stack.extend(part.parts)
    return lowest


class _Checker:
    def __init__(self, name: str, chains: Sequence[Chain], definition: str | None, report: Report) -> None:
        self.name = name
        self.chains = chains
        self.definition = definition
        self._report = report
        self._reported: set[tuple[int, str]] = set()

    def report(self, at: Value, reason: str) -> None:
        """Report an error once, though several chains may show it."""
        key = (at.span.start, reason)
        if key not in self._reported:
            self._reported.add(key)
            self._report(*key)

    def condition(self, condition: Condition) -> Steps[list[Constraint]]:
        """The constraint of each chain."""
        if isinstance(condition, Comparison):
            return list(self.comparison(condition))
        parts: list[list[Constraint]] = []
        for part in condition.parts:
            parts += [(yield self.condition(part))]
        kind = AllOf if isinstance(condition, And) else AnyOf
        return [kind(tuple(of_chain)) for of_chain in zip(*parts, strict=True)]

    def comparison(self, comparison: Comparison) -> list[Test]:
        lefts, rights = self.sides(comparison.left), self.sides(comparison.right)
        for side, found, others in (
            (comparison.left, lefts, rights),
            (comparison.right, rights, lefts),
        ):
            if isinstance(side, Parameter) and not any(found):
                self.report(side, self.unknown(side, others))
        tests: list[Test] = []
        for left, right in zip(lefts, rights, strict=True):
            if left and right:
                self.fit(comparison, left.kind, right.kind)
            definition = None if self.definition is None else Definition(self.definition, comparison.span)
            tests.append(
                Test(
                    left.value if left else None,
                    comparison.op,
                    right.value if right else None,
                    comparison.span,
                    definition,
                )
            )
        return tests

    # Names

    def sides(self, value: Value) -> list[_Side | None]:
        """The value on each chain; None where the chain has no such name."""
        if isinstance(value, Constant):
            return [_Side(_of_constant(value), value.value)] * len(self.chains)
        return [self.operand(value.name, chain) for chain in self.chains]

    def operand(self, name: str, chain: Chain) -> _Side | None:
        owner = name.split(".")[0]
        if chain.vocabulary and owner == "act":
            return self.activation(name, chain)
        at = 0 if owner.startswith("output") and "." in name else chain.low
        quantity = None if at is None else find_quantity(chain.types[at], name)
        return None if quantity is None or at is None else _Side(quantity, Operand(quantity.name, at, quantity.kind))

    def activation(self, name: str, chain: Chain) -> _Side | None:
        """``act`` of a vocabulary name: "none", with alpha and beta unknown, on a chain without an Activation."""
        quantity = find_quantity("Activation", name)
        if quantity is None or all(other.activation is None for other in self.chains):
            return None
        if quantity.kind == "enum":
            quantity = Quantity(quantity.name, "enum", (*quantity.values, "none"))
        if chain.activation is None:
            return _Side(quantity, "none" if quantity.kind == "enum" else None)
        return _Side(quantity, Operand(quantity.name, chain.activation, quantity.kind))

    def unknown(self, parameter: Parameter, others: Sequence[_Side | None]) -> str:
        """Why a name is wrong, and what could be meant."""
        other = next((side.kind for side in others if side), None)
        if other is not None and other.kind == "enum":
            if parameter.name in other.values:
                return f'{parameter.name} is a value of {other.name}: quote it, "{parameter.name}"'
            hint = nearest(parameter.name, other.values, 1)
            if hint:
                return f"{self.name} has no {parameter.name!r}" + hint.replace("'", '"').replace("?)", ", in quotes?)")
        if other is not None and other.kind == "bool" and parameter.name.lower() in ("true", "false"):
            return f"{other.name} is compared with 0 or 1, not with {parameter.name}"
        if all(chain.low is None for chain in self.chains):
            return f"{self.name} has no single lowest layer to read {parameter.name} from: its pattern branches"
        if parameter.name.split(".")[0] == "act" and self.chains[0].vocabulary:
            return f"{self.name} has no {parameter.name!r}: nothing it stands for holds an Activation"
        known = sorted({name for chain in self.chains for name in quantities(chain.types[chain.low or 0])})
        near = nearest(parameter.name, known)
        if self.name not in schema().layers and all(chain == Chain(("StandIn",), 0, False) for chain in self.chains):
            return (
                f"{self.name} is an opaque layer and has no {parameter.name!r}{near}: "
                "ask for it in the rule that makes it"
            )
        return f"{self.name} has no {parameter.name!r}{near or ': it has ' + ', '.join(_overview(known))}"

    # Kinds

    def fit(self, comparison: Comparison, left: Quantity, right: Quantity) -> None:
        """Report what is wrong with comparing the two, if anything is."""
        literal = comparison.left if isinstance(comparison.left, Constant) else comparison.right
        families = _FAMILIES[left.kind], _FAMILIES[right.kind]
        for side, kind in ((comparison.left, left), (comparison.right, right)):
            if kind.kind == "list":
                return self.report(side, f"{kind.name} is a list, which no comparison takes")
        if families[0] != families[1]:
            return self.report(literal, _mismatch(left, right))
        if families[0] == "text" and comparison.op not in ("==", "<>"):
            return self.report(
                comparison.left, f"{_called(left)} compares with == and <> only, not with {comparison.op}"
            )
        if families[0] == "dimension" and not set(left.parts) & set(right.parts):
            return self.report(literal, f"{_called(left)} and {_called(right)} differ in their number of extents")
        for side, kind, other in ((comparison.left, left, right), (comparison.right, right, left)):
            if isinstance(side, Constant):
                reason = _bad_value(side, kind, other)
                if reason:
                    return self.report(side, reason)
        return None


def _overview(names: Sequence[str]) -> Iterator[str]:
    """Names without their parts, those of tensors last, as ``input.``."""
    yield from (name for name in names if "." not in name)
    yield from dict.fromkeys(f"{head}." for head, _, tail in (n.partition(".") for n in names) if head in _TENSORS)


_TENSORS = ("bias", "input", "output", "weights")

_FAMILIES = {
    "int": "number",
    "float": "number",
    "bool": "number",
    "string": "text",
    "enum": "text",
    "dimension": "dimension",
    "list": "list",
}
"""What compares with what: the kinds of one family."""


def _of_constant(value: Constant) -> Quantity:
    if isinstance(value.value, tuple):
        return Quantity("x".join(str(extent) for extent in value.value), "dimension", parts=(len(value.value),))
    if isinstance(value.value, str):
        return Quantity(f'"{value.value}"', "string")
    return Quantity(repr(value.value), value.kind)


def _called(kind: Quantity) -> str:
    """``strideX (a number)``."""
    return f"{kind.name} (a {'string' if _FAMILIES[kind.kind] == 'text' else _FAMILIES[kind.kind]})"


def _mismatch(left: Quantity, right: Quantity) -> str:
    hint = ""
    for kind, other in ((left, right), (right, left)):
        if (
            kind.kind == "dimension"
            and _FAMILIES[other.kind] == "number"
            and kind.name in ("kernel", "stride", "dilation")
        ):
            hint = f": compare {kind.name} with a dimension such as 3x3, or a part of it, as {kind.name}.w"
        if kind.kind == "bool" and other.kind == "string":
            hint = f": compare {kind.name} with 0 or 1"
    return f"{_called(left)} cannot be compared with {_called(right)}{hint}"


def _bad_value(value: Constant, kind: Quantity, other: Quantity) -> str | None:
    """What is wrong with a literal as a value of ``other``, or None."""
    if other.kind == "bool" and value.value not in (0, 1):
        return f"{other.name} is compared with 0 or 1, not with {kind.name}"
    if other.kind == "enum" and value.value not in other.values:
        near = nearest(str(value.value), other.values).replace("'", '"')
        return f"{other.name} is never {kind.name}{near or ': its values are ' + ', '.join(other.values)}"
    return None
