"""clamp: a Minimum over a Maximum, or a Maximum over a Minimum, with scalar Constants becomes a BoundedReLu.

With lower ≤ upper both are min(upper, max(lower, x)), the BoundedReLu with a = upper and b = lower.
Bounds that are quantized are taken as the numbers they stand for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.activations import Function, activation_params
from fusion_engine.folds.conditions import (
    QUANTIZED,
    check_override,
    check_plain,
    constant_operand,
    operation,
    same_grid,
)
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.schema import float32
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_RAN_BY_ACTIVATION = FLOATS | {"QAsymmU8", "QAsymmS8", "QSymmS16"}
"""Data types of which Arm NN computes activations."""


@dataclass(frozen=True)
class Plan:
    """What `apply` does: the layer that goes, what the result reads, and its function."""

    inner: int
    source: Source
    override: tuple[bool, TensorInfo | None] | None
    function: Function


def check(workspace: Workspace, match: Match) -> Plan:
    """The bounds of a match; ``match.layers`` is the outer and the inner of a Minimum and a Maximum.

    Raises
    ------
    Refused
        Where the two are no clamp; the reason names layers and numbers.
    """
    kinds = [operation(workspace, key) for key in match.layers]
    if sorted(kinds) != ["Maximum", "Minimum"]:
        held = ", ".join(kinds) or "no layer"
        raise Refused(f"clamp takes a Minimum over a Maximum or a Maximum over a Minimum; the match holds {held}")
    outer, inner = match.layers
    check_plain(workspace, outer, inner)
    outer_slot, outer_constant, outer_tensor = constant_operand(workspace, outer, inner)
    source = _data_source(workspace, inner)
    inner_slot, inner_constant, inner_tensor = constant_operand(workspace, inner, source.layer, source.slot)
    info = same_grid(workspace, source, Source(inner, 0), Source(outer, 0))
    if info.canonical_type not in _RAN_BY_ACTIVATION:
        raise Refused(f"{workspace.describe(outer)} gives {info.data_type}, of which there are no activations")
    check_override(workspace, outer, 1 - outer_slot, info)
    check_override(workspace, inner, 1 - inner_slot, info)
    bounds = {
        kinds[0]: _bound(workspace, outer_constant, outer_tensor, info),
        kinds[1]: _bound(workspace, inner_constant, inner_tensor, info),
    }
    lower, upper = bounds["Maximum"], bounds["Minimum"]
    if lower > upper:
        raise Refused(
            f"the lower bound {lower:g} of {workspace.describe(outer)} over {workspace.describe(inner)} "
            f"is above the upper bound {upper:g}"
        )
    override = (workspace.graph.nodes[inner].get("overrides") or {}).get(1 - inner_slot)
    return Plan(inner, source, override, Function("BoundedReLu", upper, lower))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Make the outer layer the Activation, over what the inner one clamped; Constants without other uses go."""
    root = match.root
    constants = [
        feeder.layer
        for key in (root, plan.inner)
        for _, feeder in workspace.inputs(key)
        if feeder.layer != plan.source.layer
    ]
    workspace.remove(plan.inner)
    workspace.rewire(root, (plan.source,))
    workspace.unset(root, "overrides")
    overrides = {} if plan.override is None else {"overrides": FrozenDict({0: plan.override})}  # type: ignore[dict-item]
    workspace.set(root, type="Activation", params=FrozenDict(activation_params(workspace, plan.function)), **overrides)
    workspace.drop_unused(constants)
    return root


FOLD = Fold(
    check,
    apply,
    reach=2,
    accepts=(
        Accepts((frozenset({"Minimum"}), frozenset({"Maximum"}))),
        Accepts((frozenset({"Maximum"}), frozenset({"Minimum"}))),
    ),
)


def _data_source(workspace: Workspace, key: int) -> Source:
    """The one input of a layer that is no Constant."""
    data = [source for _, source in workspace.inputs(key) if workspace.type(source.layer) != "Constant"]
    if len(data) != 1:
        raise Refused(f"{workspace.describe(key)} has {len(data)} inputs that are no Constant, not one")
    return data[0]


def _bound(workspace: Workspace, constant: int, tensor: Tensor, info: TensorInfo) -> float:
    """The number that a scalar Constant stands for, as a float32."""
    place = workspace.describe(constant)
    own = tensor.info
    if own.elements != 1 or len(own.shape) > len(info.shape):
        raise Refused(f"{place} has shape {own.shape}: a bound is one number for the whole tensor {info.shape}")
    if own.canonical_type != info.canonical_type:
        raise Refused(f"{place} is {own.data_type} and bounds a tensor of {info.data_type}")
    if tensor.untagged and own.data_type == "Float16":
        raise Refused(f"{place}: Float16 without a payload type does not fold, since Arm NN 20.08 stores BFloat16 so")
    tensor.require_intact()
    value = float(tensor.data.reshape(-1)[0])
    if own.canonical_type in QUANTIZED:
        scales = own.quantization_scales or (own.quantization_scale,)
        if len(scales) != 1:
            raise Refused(f"{place} has {len(scales)} scales for one number")
        offset = 0 if own.quantization_scales else own.quantization_offset
        value = scales[0] * (value - offset)
    value = float32(value)
    if not math.isfinite(value):
        raise Refused(f"{place} holds {value}, which is no bound")
    return value
