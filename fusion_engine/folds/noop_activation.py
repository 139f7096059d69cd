"""noop-activation: an Activation that changes nothing goes.

That is Linear with a = 1 and b = 0, and on a quantized tensor any function that gives back every value
the tensor can hold: a ReLu where the zero point is the lowest value, a BoundedReLu whose bounds,
rounded to the tensor's grid, are no narrower than its range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from fusion_engine.folds import Fold, Inapplicable, Refused
from fusion_engine.folds.activations import Function, function_of, keeps
from fusion_engine.folds.conditions import QUANTIZED, check_override, check_plain, known_info, same_grid
from fusion_engine.folds.moves import bypass, check_bypass
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.tensor import FLOATS, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "apply", "check"]

_SURELY_ROUNDED = 0.499
"""Of a step of the grid: a bound so close to a value rounds to it however ties are rounded."""


def check(workspace: Workspace, match: Match) -> Source:
    """What the Activation's consumers will read; ``match.root`` is the Activation.

    Raises
    ------
    Inapplicable
        Where it changes values.
    Refused
        Where it does not, and yet cannot be taken out.
    """
    root = match.root
    if workspace.type(root) != "Activation":
        raise Refused(f"noop-activation takes an Activation; the match holds {workspace.type(root)}")
    check_plain(workspace, root)
    inputs = dict(workspace.inputs(root))
    if set(inputs) != {0}:
        raise Refused(f"{workspace.describe(root)} has inputs on slots {sorted(inputs)} instead of one")
    info = known_info(workspace, inputs[0])
    function = function_of(workspace, root)
    if not keeps(function, *_range(function, info)):
        raise Inapplicable(f"{workspace.describe(root)} is {function}, which changes values of {_described(info)}")
    same_grid(workspace, inputs[0], Source(root, 0))
    check_override(workspace, root, 0, info)
    check_bypass(workspace, root, inputs[0])
    return inputs[0]


def apply(workspace: Workspace, match: Match, plan: Source) -> None:
    """Take the Activation out: its consumers read what it read."""
    bypass(workspace, match.root, plan)


def _glance(workspace: Workspace, keys: Iterable[int]) -> list[int]:
    """All but Activations that are complete, read a float tensor, and change some float."""
    nodes = workspace.inside.nodes
    changing: dict[int, tuple[Any, bool]] = {}
    found = []
    for key in keys:
        node = nodes[key]
        params = node.get("params")
        known = changing.get(id(params))
        if known is None:
            known = changing[id(params)] = params, _changes_floats(workspace, key)
        source = workspace.only_source(key) if known[1] and len(node.get("outputs", ())) == 1 else None
        info = None if source is None else workspace.info(source)
        if info is not None and info.data_type in FLOATS:
            continue
        found.append(key)
    return found


def _changes_floats(workspace: Workspace, key: int) -> bool:
    """Whether an Activation's descriptor says that it changes some float."""
    name, a, b = (workspace.param(key, field) for field in ("activationFunction", "a", "b"))
    if workspace.params(key) is None or not isinstance(name, str):
        return False
    return isinstance(a, float) and isinstance(b, float) and not keeps(Function(name, a, b), -math.inf, math.inf)


FOLD = Fold(check, apply, roots=frozenset({"Activation"}), reach=2, glance=_glance)


def _range(function: Function, info: TensorInfo) -> tuple[float, float]:
    """The lowest and highest value that a tensor holds; a bound that rounds to one of them counts as it."""
    if info.canonical_type not in QUANTIZED:
        return (-math.inf, math.inf)
    scale, limits = info.quantization_scale, np.iinfo(info.dtype)
    lowest, highest = (scale * (int(value) - info.quantization_offset) for value in (limits.min, limits.max))
    if function.name in ("ReLu", "BoundedReLu"):
        slack = _SURELY_ROUNDED * scale
        low, high = (0.0, math.inf) if function.name == "ReLu" else (function.b, function.a)
        lowest = max(lowest, low) if abs(low - lowest) <= slack else lowest
        highest = min(highest, high) if abs(high - highest) <= slack else highest
    return lowest, highest


def _described(info: TensorInfo) -> str:
    if info.canonical_type not in QUANTIZED:
        return info.data_type
    return f"{info.data_type} with scale {info.quantization_scale:g} and offset {info.quantization_offset}"
