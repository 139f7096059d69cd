"""What Arm NN's activation functions are: their bounds, where they change nothing, how two of them compose.

With the descriptor's a and b, as Arm NN's reference backend computes them:

============  ===========================  ==========  ================================
Linear        a·x + b                      LeakyReLu   x where x > 0, else a·x
ReLu          max(0, x)                    Elu         x where x ≥ 0, else a·(eˣ − 1)
BoundedReLu   min(a, max(b, x))            Sigmoid     1 / (1 + e⁻ˣ)
TanH          a·tanh(b·x)                  SoftReLu    ln(1 + eˣ)
Abs           |x|                          HardSwish   x · min(6, max(0, x + 3)) / 6
Sqrt          √x                           Square      x²
============  ===========================  ==========  ================================
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fusion_engine.folds import Refused
from fusion_engine.schema import float32, schema
from fusion_engine.workspace import Workspace

__all__ = ["Function", "activation_params", "bounds", "compose", "function_of", "keeps"]

_INFINITY = math.inf

_NOT_NEGATIVE = frozenset({"ReLu", "Abs", "Square", "SoftReLu"})
"""Sqrt is not among them: it is no number below 0, of which a ReLu makes 0."""

_KEEP_POSITIVE = frozenset({"ReLu", "Abs", "LeakyReLu", "Elu"})
"""The functions that give back what is not negative."""


class Function(NamedTuple):
    """An activation function by name, with its a and b (float32 values)."""

    name: str
    a: float = 0.0
    b: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}(a={self.a:g}, b={self.b:g})"


def function_of(workspace: Workspace, key: int) -> Function:
    """The function of an Activation; Refused where it is none that is known."""
    name = workspace.param(key, "activationFunction")
    if not isinstance(name, str):
        raise Refused(f"{workspace.describe(key)} has the unknown activation function {name}")
    a, b = (float32(workspace.param(key, field)) for field in "ab")
    return Function(name, a, b)


def activation_params(workspace: Workspace, function: Function) -> dict[str, object]:
    """Descriptor of an Activation, its fields named as in the network's dialect."""
    descriptor = schema(workspace.graph.graph.get("dialect", "current")).layers["Activation"].descriptor
    fields = () if descriptor is None else (field.name for field in descriptor.fields)
    return dict(zip(fields, function, strict=True))


def bounds(function: Function) -> tuple[float, float]:
    """An interval that holds every value of a function, infinite where it has no bound.

    Examples
    --------
    >>> bounds(Function("BoundedReLu", 6, 0)), bounds(Function("TanH", -2, 1))
    ((0, 6), (-2, 2))
    """
    name, a, b = function
    if name == "BoundedReLu":
        return (a, a) if b > a else (b, a)
    if name in _NOT_NEGATIVE:
        return (0.0, _INFINITY)
    if name == "Sigmoid":
        return (0.0, 1.0)
    if name == "TanH":
        return (-abs(a), abs(a))
    return (-_INFINITY, _INFINITY)


def keeps(function: Function, lowest: float, highest: float) -> bool:
    """Whether a function gives back every value of an interval as it is.

    Examples
    --------
    >>> keeps(Function("ReLu"), 0, 9), keeps(Function("BoundedReLu", 6, 0), 0, 9)
    (True, False)
    """
    name, a, b = function
    if name == "BoundedReLu":
        return b <= lowest <= highest <= a
    if name == "Linear":
        return a == 1 and b == 0
    return name in _KEEP_POSITIVE and lowest >= 0


def compose(outer: Function, inner: Function, *, exact: bool) -> Function | None:
    """The one function that does what ``outer`` after ``inner`` does, or None where there is none.

    Parameters
    ----------
    outer, inner
        Functions with finite a and b.
    exact
        Only what holds in every type, a quantized one too where all three tensors have one grid; not
        what multiplies slopes, or overflows the tensor between the two.

    Raises
    ------
    OverflowError
        Where the one function has an a or b beyond Float32.

    Examples
    --------
    >>> compose(Function("BoundedReLu", 1, -1), Function("ReLu"), exact=True)
    Function(name='BoundedReLu', a=1, b=0.0)
    """
    lowest, highest = bounds(inner)
    if keeps(outer, lowest, highest):
        return inner
    if inner == Function("Linear", 1.0, 0.0):
        return outer
    clamping = outer.name in ("ReLu", "BoundedReLu")
    if clamping and inner.name in ("ReLu", "BoundedReLu"):
        low, high = (_clamped(outer, bound) for bound in (lowest, highest))
        return Function("ReLu") if high == _INFINITY else Function("BoundedReLu", high, low)
    if clamping and inner.name in ("LeakyReLu", "Elu") and inner.a >= 0 and bounds(outer)[0] >= 0:
        return outer
    return None if exact else _product(outer, inner)


def _clamped(outer: Function, value: float) -> float:
    low, high = bounds(outer)
    return min(high, max(low, value))


def _product(outer: Function, inner: Function) -> Function | None:
    match outer.name, inner.name:
        case "Square", "Abs":
            return outer
        case "LeakyReLu", "LeakyReLu":
            return Function("LeakyReLu", _finite(outer.a * inner.a) if inner.a >= 0 else inner.a)
        case "Linear", "Linear":
            return Function("Linear", _finite(outer.a * inner.a), _finite(outer.a * inner.b + outer.b))
        case "Linear", "TanH" if outer.b == 0:
            return Function("TanH", _finite(outer.a * inner.a), inner.b)
        case "TanH", "Linear" if inner.b == 0:
            return Function("TanH", outer.a, _finite(outer.b * inner.a))
    return None


def _finite(value: float) -> float:
    rounded = float32(value)
    if not math.isfinite(rounded):
        raise OverflowError(f"{value:g}")
    if abs(rounded - value) > abs(value) * 2**-23:
        raise FloatingPointError(f"{value:g}")
    return rounded
