"""The values that something in a condition can have: of a layer type, and under comparisons that hold.

Numbers are intervals with their ends, less single values; names are sets, or all but a set. A float field
holds float32 values, so the neighbour of a bound is known and no interval needs open ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from fusion_engine.language.names import find_quantity
from fusion_engine.schema import float32, schema, slot_facts
from fusion_engine.spellings import SPELLINGS, spellings
from fusion_engine.tensor import ALIASES

__all__ = ["NEGATED", "SWAPPED", "Domain", "axes", "compared", "domain_of", "plain_name"]

NEGATED = {"==": "<>", "<>": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The comparison that holds between known values where another does not."""

SWAPPED = {"==": "==", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The comparison that holds with the sides exchanged."""

_INTEGERS = {
    "bool": (0, 1),
    "byte": (-(2**7), 2**7 - 1),
    "ubyte": (0, 2**8 - 1),
    "short": (-(2**15), 2**15 - 1),
    "ushort": (0, 2**16 - 1),
    "int": (-(2**31), 2**31 - 1),
    "uint": (0, 2**32 - 1),
    "long": (-(2**63), 2**63 - 1),
    "ulong": (0, 2**64 - 1),
}
"""Smallest and largest value of FlatBuffers' integers."""

_ACT = {"act": "activationFunction", "act.alpha": "a", "act.beta": "b"}
_FIELDS = {
    "stride": ("strideX", "strideY", "strideZ"),
    "dilation": ("dilationX", "dilationY", "dilationZ"),
    "kernel": ("poolWidth", "poolHeight", "poolDepth"),
}
"""Fields that are parts of a whole, in the order of its parts."""

_TENSORS = ("output", "input", "weights", "bias")


@dataclass(frozen=True)
class Domain:
    """A set of values.

    Parameters
    ----------
    number
        Whether they are numbers, else strings.
    integer
        Whether the numbers are whole.
    low, high
        Least and greatest number.
    only
        The strings that there are; None for any.
    without
        Values that are left out.
    unknown
        Whether the value may be unknown, which no comparison holds for.
    nan
        Whether it may be no number, for which ``<>`` holds and no other comparison does.
    """

    number: bool
    integer: bool = False
    low: float = -math.inf
    high: float = math.inf
    only: frozenset[str] | None = None
    without: frozenset[object] = frozenset()
    unknown: bool = True
    nan: bool = False

    @property
    def empty(self) -> bool:
        """Whether no value is left."""
        if not self.number:
            return self.only is not None and self.only <= self.without
        if self.low > self.high:
            return not self.nan
        size = self.high - self.low + 1 if self.integer else 1 if self.low == self.high else math.inf
        gone = sum(isinstance(value, int | float) and self.low <= value <= self.high for value in self.without)
        return size <= gone and not self.nan

    def held(self, op: str, value: int | float | str) -> Domain:
        """The values for which a comparison with a literal holds."""
        known = replace(self, unknown=False, nan=self.nan and op == "<>")
        if isinstance(value, str):
            if op == "<>":
                return replace(known, without=self.without | {value})
            return replace(known, only=frozenset({value} if known.only is None or value in known.only else ()))
        if op == "<>":
            left_out = value if self.integer else float32(float(value))
            return replace(known, without=self.without | {left_out})
        low, high = self._bounds(op, value)
        return replace(known, low=max(self.low, low), high=min(self.high, high))

    def _bounds(self, op: str, value: int | float) -> tuple[float, float]:
        """The interval that a comparison with a number allows."""
        if not self.integer:
            value = float32(float(value))
            below, above = _before(value), _after(value)
        elif math.isinf(value):
            below = above = value
            if (op in (">", ">=", "==") and value > 0) or (op in ("<", "<=", "==") and value < 0):
                return math.inf, -math.inf
        else:
            below, above = math.ceil(value) - 1, math.floor(value) + 1
        whole = not self.integer or math.isinf(value) or value == math.floor(value)
        if op == "==":
            return (value, value) if whole else (math.inf, -math.inf)
        if op in ("<", "<="):
            return -math.inf, value if op == "<=" and whole else below
        return value if op == ">=" and whole else above, math.inf

    def common(self, other: Domain) -> Domain:
        """The values that are in both."""
        both = replace(self, unknown=False, nan=False, without=self.without | other.without)
        if self.number:
            return replace(both, low=max(self.low, other.low), high=min(self.high, other.high))
        if self.only is None or other.only is None:
            return replace(both, only=self.only if other.only is None else other.only)
        return replace(both, only=self.only & other.only)

    def __str__(self) -> str:
        if not self.number:
            return "a string" if self.only is None else " or ".join(f'"{value}"' for value in sorted(self.only))
        if not self.integer:
            return "a number"
        if math.isinf(self.low):
            return "a whole number"
        if (self.low, self.high) == (0, 1):
            return "0 or 1"
        if self.high - self.low < 2:
            return " or ".join(str(value) for value in range(int(self.low), int(self.high) + 1))
        low = int(self.low)
        return f"a whole number {f'of at least {low}' if math.isinf(self.high) else f'from {low} to {self.high}'}"


def compared(left: object, op: str, right: object) -> bool:
    """Whether a comparison of two literals of one kind holds."""
    if op in ("==", "<>"):
        return (left == right) == (op == "==")
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]


def plain_name(type_name: str, name: str) -> str:
    """The one name of a value that goes by several: the field, where it is one."""
    if type_name == "Activation" and name in _ACT:
        return _ACT[name]
    whole, _, part = name.partition(".")
    if part and whole in _FIELDS and find_quantity(type_name, name) is not None:
        field = _FIELDS[whole]["whd".index(part)]
        return field if find_quantity(type_name, field) is not None else name
    return name


def axes(type_name: str, name: str) -> tuple[str, ...]:
    """The names of the extents of a dimension, in its order."""
    head, _, tail = name.partition(".")
    if tail == "shape":
        return tuple(f"{head}.{axis}" for axis in "whc")
    quantity = find_quantity(type_name, name)
    assert quantity is not None
    return tuple(f"{name}.{axis}" for axis in "whd"[: max(quantity.parts)])


@cache
def domain_of(type_name: str, name: str) -> Domain:
    """The values that a name has on a layer that is matched by a type.

    Parameters
    ----------
    type_name
        A LayerType of release 24.08.
    name
        As of `plain_name`, and no dimension.
    """
    if name == "name":
        return Domain(number=False, unknown=False)
    head, _, tail = name.partition(".")
    if tail and head.rstrip("0123456789") in _TENSORS:
        return _of_tensor(type_name, head, tail)
    if tail or name == "channels":
        return Domain(number=True, integer=True, low=0)
    return _of_field(type_name, name)


def _of_tensor(type_name: str, head: str, tail: str) -> Domain:
    number = head.lstrip("abcdefghijklmnopqrstuvwxyz")
    if number and not _has_slot(type_name, head.removesuffix(number), int(number)):
        return Domain(number=True, low=1, high=0)
    if tail == "dataType":
        names = schema().enums["DataType"].values
        return Domain(number=False, only=frozenset(ALIASES.get(name, name) for name in names))
    if tail == "scale":
        return Domain(number=True, nan=True)
    low, high = {"perAxis": (0, 1), "offset": _INTEGERS["int"]}.get(tail, (0, math.inf))
    return Domain(number=True, integer=True, low=low, high=high)


def _has_slot(type_name: str, slots: str, number: int) -> bool:
    for spelling in spellings(type_name):
        count = slot_facts()[spelling][f"{slots}s"]
        if isinstance(count, str) or number < (max(count) if isinstance(count, list) else count):
            return True
    return False


def _of_field(type_name: str, name: str) -> Domain:
    """The values of a descriptor's field over all spellings of the type; what one lacks may be unknown."""
    found: Domain | None = None
    lacking = False
    pinned = SPELLINGS.get(type_name)
    for spelling in spellings(type_name):
        meant = SPELLINGS.get(spelling)
        descriptor = schema().layers[spelling].descriptor
        if pinned is not None and pinned.field == name:
            own = Domain(number=False, only=frozenset({str(pinned.value)}), unknown=False)
        elif meant is not None and meant.field == name:
            own = Domain(number=False, only=frozenset({str(meant.value)}), unknown=False)
        elif descriptor is not None and name in descriptor.by_name:
            field = descriptor.by_name[name]
            if field.kind == "enum":
                values = frozenset(schema().enums[field.type].values)
                own = Domain(number=False, only=values, unknown=False)
            elif field.kind == "string":
                own = Domain(number=False)
            elif field.type in ("float", "double"):
                own = Domain(number=True, unknown=False, nan=True)
            else:
                low, high = _INTEGERS[field.type]
                own = Domain(number=True, integer=True, low=low, high=high, unknown=False)
        else:
            lacking = True
            continue
        found = own if found is None else _either(found, own)
    if found is None:
        return Domain(number=True, nan=True)
    return replace(found, unknown=found.unknown or lacking)


def _either(one: Domain, other: Domain) -> Domain:
    only = None if one.only is None or other.only is None else one.only | other.only
    return replace(
        one,
        only=only,
        low=min(one.low, other.low),
        high=max(one.high, other.high),
        integer=one.integer and other.integer,
        unknown=one.unknown or other.unknown,
        nan=one.nan or other.nan,
    )


def _before(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(-math.inf)))


def _after(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(math.inf)))
