"""Layer types that mean the same: the deprecated spelling of a layer and its successor's.

Real Arm NN loads a deprecated table as its successor: Abs, Rsqrt, Equal, Greater, Merger and
ResizeBilinear in every release that knows the successor, the arithmetic layers since 23.05. Rules
match both spellings alike; no file's spelling is ever changed.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SPELLINGS", "SUCCESSORS", "Spelling", "spellings"]


class Spelling(NamedTuple):
    """A deprecated layer type as its successor: ``type`` with ``field`` at ``value``.

    ``field`` is None where the successor's descriptor says no more than the type's own does.
    """

    type: str
    field: str | None
    value: str | None


SPELLINGS: dict[str, Spelling] = {
    "Addition": Spelling("ElementwiseBinary", "operation", "Add"),
    "Subtraction": Spelling("ElementwiseBinary", "operation", "Sub"),
    "Multiplication": Spelling("ElementwiseBinary", "operation", "Mul"),
    "Division": Spelling("ElementwiseBinary", "operation", "Div"),
    "Minimum": Spelling("ElementwiseBinary", "operation", "Minimum"),
    "Maximum": Spelling("ElementwiseBinary", "operation", "Maximum"),
    "Abs": Spelling("ElementwiseUnary", "operation", "Abs"),
    "Rsqrt": Spelling("ElementwiseUnary", "operation", "Rsqrt"),
    "Equal": Spelling("Comparison", "operation", "Equal"),
    "Greater": Spelling("Comparison", "operation", "Greater"),
    "Merger": Spelling("Concat", None, None),
    "ResizeBilinear": Spelling("Resize", "method", "Bilinear"),
}
"""Successor of every deprecated layer type."""

SUCCESSORS: dict[str, tuple[str, ...]] = {
    new: tuple(old for old, spelling in SPELLINGS.items() if spelling.type == new)
    for new in dict.fromkeys(spelling.type for spelling in SPELLINGS.values())
}
"""Deprecated layer types of every successor."""


def spellings(type_name: str) -> tuple[str, ...]:
    """Every layer type that a layer meant by ``type_name`` may be spelled as, itself first.

    Examples
    --------
    >>> spellings("Addition")
    ('Addition', 'ElementwiseBinary')
    >>> spellings("Resize")
    ('Resize', 'ResizeBilinear')
    >>> spellings("Softmax")
    ('Softmax',)
    """
    successor = SPELLINGS.get(type_name)
    return (type_name, successor.type) if successor else (type_name, *SUCCESSORS.get(type_name, ()))
