"""The syntax tree of a fusing rule, as written: nothing resolved, every node with its span.

``Rule`` is what the grammar calls ``rule``. Marks (``!``) are neutral here; what they mean is
decided by the rule's ``marked`` option when the tree is resolved (``pattern.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "And",
    "AnyLayer",
    "Comparison",
    "Condition",
    "Constant",
    "Element",
    "Group",
    "Item",
    "Or",
    "Parameter",
    "Rule",
    "Scope",
    "Span",
    "Value",
]


@dataclass(frozen=True)
class Span:
    """Half-open range of code points in the rule's text."""

    start: int
    end: int


@dataclass(frozen=True)
class Parameter:
    """``strideX``, ``act.alpha``: one or two IDs."""

    name: str
    span: Span


@dataclass(frozen=True)
class Constant:
    """A number, string or dimension.

    ``kind`` is ``"int"``, ``"float"``, ``"string"`` or ``"dimension"``; ``value`` an int, float,
    str, or the tuple of ints of ``32x16x3`` in written order (w, h[, c]).
    """

    kind: str
    value: int | float | str | tuple[int, ...]
    span: Span


Value: TypeAlias = Parameter | Constant


@dataclass(frozen=True)
class Comparison:
    """``left op right``; ``op`` is one of ``< > <= >= == <>``."""

    left: Value
    op: str
    right: Value
    span: Span


@dataclass(frozen=True)
class And:
    """``a && b && ...``: two or more parts."""

    parts: tuple[Condition, ...]
    span: Span


@dataclass(frozen=True)
class Or:
    """``a || b || ...``: two or more parts."""

    parts: tuple[Condition, ...]
    span: Span


Condition: TypeAlias = Comparison | And | Or


@dataclass(frozen=True)
class Scope:
    """``fp16|nchw|``: ``data_type`` ``"fp16"``, ``"fp32"`` or None, ``layout`` ``"nchw"``, ``"nhwc"`` or None."""

    data_type: str | None
    layout: str | None
    span: Span


@dataclass(frozen=True)
class Rule:
    """``[scope] type ["[" condition "]"] ["{" inputs "}"]``; ``inputs`` is None without braces."""

    scope: Scope | None
    type: str
    type_span: Span
    condition: Condition | None
    inputs: tuple[Item, ...] | None
    span: Span


@dataclass(frozen=True)
class AnyLayer:
    """``?``."""

    span: Span


@dataclass(frozen=True)
class Group:
    """``(a, b)``: a run of consecutive inputs."""

    items: tuple[Item, ...]
    span: Span


@dataclass(frozen=True)
class Element:
    """One alternative of a selection, with its mark."""

    body: Rule | AnyLayer | Group
    marked: bool
    span: Span


@dataclass(frozen=True)
class Item:
    """``a|b:low~high``: a selection with its range; ``high`` None is unbounded; 1 to 1 without a range."""

    choices: tuple[Element, ...]
    low: int
    high: int | None
    span: Span
