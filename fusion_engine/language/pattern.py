"""A resolved rule: what the matcher runs.

The vocabulary is expanded, names are checked against the schema, marks are turned into ``kept``,
and every operand of a condition says which layer of the pattern it reads. A vocabulary name that
stands for alternatives becomes several choices; at the root, several ``PatternLayer`` in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fusion_engine.language.tree import Span

__all__ = [
    "AllOf",
    "AnyInput",
    "AnyOf",
    "Constraint",
    "Operand",
    "PatternElement",
    "PatternGroup",
    "PatternItem",
    "PatternLayer",
    "Test",
]


@dataclass(frozen=True)
class Operand:
    """A side of a comparison that is read from a bound layer.

    Parameters
    ----------
    name
        Under its 24.08 name: a descriptor field, ``name``, ``kernel.w``, ``output.dataType``,
        ``act.alpha`` ...
    at
        ``id`` of the PatternLayer it is read from: the layer that carries the condition, or for
        vocabulary names another layer of their pattern.
    kind
        ``"int"``, ``"float"`` (a float32 field), ``"string"``, ``"enum"``, ``"bool"`` or
        ``"dimension"``: how it compares.
    """

    name: str
    at: int
    kind: str


@dataclass(frozen=True)
class Test:
    """One comparison.

    A side is an Operand, a literal (int, float, str, or a dimension as a tuple of 2 or 3 ints), or
    None for a value that is never known: such a test is false. ``span`` is where it stands in the
    rule's text.
    """

    left: Operand | int | float | str | tuple[int, ...] | None
    op: str
    right: Operand | int | float | str | tuple[int, ...] | None
    span: Span


@dataclass(frozen=True)
class AllOf:
    """True where every part is."""

    parts: tuple[Constraint, ...]


@dataclass(frozen=True)
class AnyOf:
    """True where a part is."""

    parts: tuple[Constraint, ...]


Constraint: TypeAlias = Test | AllOf | AnyOf


@dataclass(frozen=True)
class PatternLayer:
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
        The element in the rule's text.
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


@dataclass(frozen=True)
class PatternGroup:
    """A run of consecutive inputs."""

    items: tuple[PatternItem, ...]
    span: Span


PatternElement: TypeAlias = PatternLayer | AnyInput | PatternGroup


@dataclass(frozen=True)
class PatternItem:
    """Alternatives in order, repeated ``low`` to ``high`` times (None: no bound), greedy."""

    choices: tuple[PatternElement, ...]
    low: int
    high: int | None
    span: Span
