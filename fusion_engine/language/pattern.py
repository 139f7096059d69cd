"""A resolved rule: what the matcher runs.

The vocabulary is expanded, names are checked against the schema, marks are turned into ``kept``,
and every operand of a condition says which layer of the pattern it reads. A vocabulary name that
stands for alternatives becomes several choices; at the root, several ``PatternLayer`` in order.

Nodes that hold other nodes compare by identity and are not shown in full: a pattern may be too deep
for the recursion that Python's own comparison, hash and repr need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from fusion_engine.language.tree import Span

__all__ = [
    "AllOf",
    "AnyInput",
    "AnyOf",
    "Constraint",
    "Definition",
    "Operand",
    "PatternElement",
    "PatternGroup",
    "PatternItem",
    "PatternLayer",
    "Side",
    "Test",
    "parts_of",
]


class _Node:
    """What nodes that hold other nodes have in common: a short repr."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@dataclass(frozen=True)
class Definition:
    """Where a test of a vocabulary name stands: the name, and the span in the text that defines it."""

    name: str
    span: Span


@dataclass(frozen=True)
class Operand:
    """A side of a comparison that is read from a bound layer.

    Parameters
    ----------
    name
        Under its 24.08 name: a descriptor field, ``name``, ``kernel.w``, ``output.dataType``,
        ``act.alpha`` ...
    at
        ``id`` of the PatternLayer it is read from: the layer that carries the condition or, for
        vocabulary names, a layer above it in their pattern; so it is bound when the test is made.
    kind
        ``"int"``, ``"float"`` (a float32 field), ``"string"``, ``"enum"``, ``"bool"`` or
        ``"dimension"``: how it compares.
    """

    name: str
    at: int
    kind: str


Side: TypeAlias = Operand | int | float | str | tuple[int, ...] | None


@dataclass(frozen=True)
class Test:
    """One comparison.

    A side is an Operand, a literal (int, float, str, or a dimension as a tuple of 2 or 3 ints), or
    None for a value that is never known: such a test is false. ``span`` is where it stands in the
    rule's text; a test that a vocabulary name brings along has the span of that name there, and
    ``definition`` says where it is written.
    """

    __test__ = False  # not one of pytest's

    left: Side
    op: str
    right: Side
    span: Span
    definition: Definition | None = None


@dataclass(frozen=True, eq=False, repr=False)
class AllOf(_Node):
    """True where every part is."""

    parts: tuple[Constraint, ...]


@dataclass(frozen=True, eq=False, repr=False)
class AnyOf(_Node):
    """True where a part is."""

    parts: tuple[Constraint, ...]


Constraint: TypeAlias = Test | AllOf | AnyOf


@dataclass(frozen=True, eq=False, repr=False)
class PatternLayer(_Node):
    """A named layer of a pattern.

    Parameters
    ----------
    id
        Unique in the rule; ascending in text order.
    type
        LayerType name of release 24.08, or the ``into`` name where ``result`` is true.
    result
        Whether ``type`` is the ``into`` name of a rule of the run.
    constraint
        What must hold, or None.
    data_type
        DataType that output 0 of this rule (the slot the pattern came through) must have, from
        a scope ``fp16|`` or ``fp32|``.
    layout
        ``"NCHW"`` or ``"NHWC"`` from this element's own scope, for it and every named layer below.
    inputs
        Items for the data inputs, all of them; None leaves them unconstrained.
    kept
        Must match but is not consumed.
    span
        The element in the rule's text; for what a vocabulary name stands for, that name.
    """

    id: int
    type: str
    result: bool
    constraint: Constraint | None
    data_type: str | None
    layout: str | None
    inputs: tuple[PatternItem, ...] | None
    kept: bool
    span: Span


@dataclass(frozen=True)
class AnyInput:
    """``?``: any producer; never consumed."""

    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class PatternGroup(_Node):
    """A run of consecutive inputs."""

    items: tuple[PatternItem, ...]
    span: Span


PatternElement: TypeAlias = PatternLayer | AnyInput | PatternGroup


@dataclass(frozen=True, eq=False, repr=False)
class PatternItem(_Node):
    """Alternatives in order, repeated ``low`` to ``high`` times (None: no bound), greedy."""

    choices: tuple[PatternElement, ...]
    low: int
    high: int | None
    span: Span


def parts_of(roots: Iterable[PatternLayer]) -> Iterator[PatternElement | PatternItem]:
    """Every part of patterns, however deep they nest; in no promised order."""
    pending: list[PatternElement | PatternItem] = list(roots)
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, PatternItem):
            pending.extend(part.choices)
        elif isinstance(part, PatternGroup):
            pending.extend(part.items)
        elif isinstance(part, PatternLayer):
            pending.extend(part.inputs or ())
