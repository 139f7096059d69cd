"""The syntax tree of a fusing rule, as written: nothing resolved, every node with its span.

``Rule`` is what the grammar calls ``rule``. Marks (``!``) are neutral here; what they mean is
decided by the rule's ``marked`` option when the tree is resolved (``pattern.py``).

Nodes compare by identity and are not shown in full: a tree may be too deep for the recursion that
Python's own comparison, hash, repr and pickling need. Compare texts (``parser.unparse``) instead.
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


class _Node:
    """What all nodes have in common: a short repr."""

    span: Span

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.span.start}:{self.span.end}>"


@dataclass(frozen=True, eq=False, repr=False)
class Parameter(_Node):
    """``strideX``, ``act.alpha``: one or two IDs."""

    name: str
    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class Constant(_Node):
    """A number, string or dimension.

    ``kind`` is ``"int"``, ``"float"``, ``"string"`` or ``"dimension"``; ``value`` an int, float,
    str, or the tuple of ints of ``32x16x3`` in written order (w, h[, c]).
    """

    kind: str
    value: int | float | str | tuple[int, ...]
    span: Span


Value: TypeAlias = Parameter | Constant


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(_Node):
    """``left op right``; ``op`` is one of ``< > <= >= == <>``."""

    left: Value
    op: str
    right: Value
    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class And(_Node):
    """``a && b && ...``: two or more parts."""

    parts: tuple[Condition, ...]
    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class Or(_Node):
    """``a || b || ...``: two or more parts."""

    parts: tuple[Condition, ...]
    span: Span


Condition: TypeAlias = Comparison | And | Or


@dataclass(frozen=True, eq=False, repr=False)
class Scope(_Node):
    """``fp16|nchw|``: ``data_type`` ``"fp16"``, ``"fp32"`` or None, ``layout`` ``"nchw"``, ``"nhwc"`` or None."""

    data_type: str | None
    layout: str | None
    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class Rule(_Node):
    """``[scope] type ["[" condition "]"] ["{" inputs "}"]``; ``inputs`` is None without braces."""

    scope: Scope | None
    type: str
    type_span: Span
    condition: Condition | None
    inputs: tuple[Item, ...] | None
    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class AnyLayer(_Node):
    """``?``."""

    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class Group(_Node):
    """``(a, b)``: a run of consecutive inputs."""

    items: tuple[Item, ...]
    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class Element(_Node):
    """One alternative of a selection, with its mark."""

    body: Rule | AnyLayer | Group
    marked: bool
    span: Span


@dataclass(frozen=True, eq=False, repr=False)
class Item(_Node):
    """``a|b:low~high``: a selection with its range; ``high`` None is unbounded; 1 to 1 without a range."""

    choices: tuple[Element, ...]
    low: int
    high: int | None
    span: Span
