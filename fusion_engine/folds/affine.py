"""Taking a factor and a summand per output channel into the constants of a layer.

A layer with weights computes x = weights ∗ input + bias, so that

    scale · x + shift = (weights · scale) ∗ input + (bias · scale + shift);

a BatchNormalization x = γ · (input − μ) / √(σ² + ε) + β, so that the same holds with γ and β in the
place of weights and bias. All in float64 from the stored values, rounded once to the type in which
each tensor is stored. Where only a shift is taken, weights and γ stay the tensors that they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fusion_engine.folds import Refused
from fusion_engine.folds.conditions import check_override, check_parameter, float_info, plain_parameter
from fusion_engine.network import FrozenDict, Source
from fusion_engine.schema import WEIGHTED
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.weights import Bias, Weights, channel_axis, layer_bias, layer_weights
from fusion_engine.workspace import Workspace

__all__ = [
    "LINEAR",
    "NORM_FIELDS",
    "LinearLayer",
    "NormLayer",
    "Plan",
    "WeightedLayer",
    "apply_plan",
    "channel_extents",
    "float64",
    "linear_layer",
    "norm_layer",
    "norm_statistics",
    "norm_tensors",
    "tensor_between",
    "weighted_layer",
]

LINEAR = frozenset({*WEIGHTED, "BatchNormalization"})
"""Layer types that can take a factor and a summand per output channel."""

NORM_FIELDS = ("gamma", "beta", "mean", "variance")
"""The tensors of a BatchNormalization."""

Array = npt.NDArray[np.float64]

_WEIGHTS_SLOT, _BIAS_SLOT = 1, 2


class Change(NamedTuple):
    """A tensor that a layer will have: as its member ``field``, or from a Constant on input ``slot``."""

    field: str
    slot: int | None
    tensor: Tensor


class Plan(NamedTuple):
    """What `apply_plan` does: the layer, and the tensors that change."""

    layer: int
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class WeightedLayer:
    """A layer with constant float weights: ``key``, ``weights``, and ``bias``, None where it has none."""

    key: int
    weights: Weights
    bias: Bias | None

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return self.weights.output_channels

    def absorb(self, workspace: Workspace, scale: Array | None, shift: Array) -> Plan:
        """The plan by which the layer gives ``scale * x + shift`` instead of x.

        Parameters
        ----------
        workspace
            The network.
        scale
            Shape ``(channels,)``; None for 1.
        shift
            Shape ``(channels,)``.

        Raises
        ------
        Refused
            Where a result is no number, or more than its type holds.
        """
        changes = []
        info, channels = self.weights.tensor.info, self.channels
        with np.errstate(all="ignore"):
            if scale is not None:
                scaled = _float64(self.weights.tensor)
                scaled *= self.weights.per_output_channel(scale)
                slot = None if self.weights.constant is None else _WEIGHTS_SLOT
                stored = _stored(scaled, info, workspace, "the weights of", self.key, factor=True)
                changes.append(Change("weights", slot, stored))
            if self.bias is None:
                like, member = info.reshaped((channels,)), self.weights.constant is None
                shifted = shift
            else:
                like, member = self.bias.tensor.info, self.bias.constant is None
                shifted = _affine(_float64(self.bias.tensor).reshape(channels), scale, shift)
            stored = _stored(shifted.reshape(like.shape), like, workspace, "the bias of", self.key)
        changes.append(Change("biases", None if member else _BIAS_SLOT, stored))
        return Plan(self.key, tuple(changes))


@dataclass(frozen=True)
class NormLayer:
    """A BatchNormalization: ``key``, ``channels``, and its ``gamma`` and ``beta``."""

    key: int
    channels: int
    gamma: Tensor
    beta: Tensor

    def absorb(self, workspace: Workspace, scale: Array | None, shift: Array) -> Plan:
        """As `WeightedLayer.absorb`."""
        changes = []
        with np.errstate(all="ignore"):
            for field, tensor, summand in (("gamma", self.gamma, np.zeros(self.channels)), ("beta", self.beta, shift)):
                if field == "gamma" and scale is None:
                    continue
                values = _affine(_float64(tensor).reshape(self.channels), scale, summand).reshape(tensor.info.shape)
                stored = _stored(values, tensor.info, workspace, f"{field} of", self.key, factor=field == "gamma")
                changes.append(Change(field, None, stored))
        return Plan(self.key, tuple(changes))


LinearLayer = WeightedLayer | NormLayer


def linear_layer(workspace: Workspace, key: int) -> LinearLayer:
    """The layer with its constants, where they are such that a factor and a summand can go into them.

    Raises
    ------
    Refused
        Where they are not; the reason says which and why.
    """
    return norm_layer(workspace, key) if workspace.type(key) == "BatchNormalization" else weighted_layer(workspace, key)


def norm_layer(workspace: Workspace, key: int) -> NormLayer:
    """A BatchNormalization with its constants."""
    mean = workspace.constants(key).get("mean")
    if mean is None:
        raise Refused(f"mean of {workspace.describe(key)} is missing")
    channels = mean.info.elements
    norm_statistics(workspace, key, channels)
    constants = workspace.constants(key)
    return NormLayer(key, channels, constants["gamma"], constants["beta"])


def norm_statistics(workspace: Workspace, key: int, channels: int) -> dict[str, Array]:
    """The four tensors of a BatchNormalization in float64, each of shape ``(channels,)``, by field."""
    tensors = norm_tensors(workspace, key, channels)
    with np.errstate(all="ignore"):
        return {field: _float64(tensor).reshape(channels) for field, tensor in tensors.items()}


def norm_tensors(workspace: Workspace, key: int, channels: int) -> dict[str, Tensor]:
    """The four tensors of a BatchNormalization by field, each with a value per channel.

    Raises
    ------
    Refused
        Where one of them is missing, or has another shape or no float type.
    """
    found = {}
    constants = workspace.constants(key)
    for field in NORM_FIELDS:
        tensor: Tensor | None = constants.get(field)
        if tensor is None:
            raise Refused(f"{field} of {workspace.describe(key)} is missing")
        if not plain_parameter(tensor):
            check_parameter(tensor, f"{field} of {workspace.describe(key)}")
        shape = tensor.info.shape
        if shape != (channels,) and (tensor.info.elements != channels or max(shape, default=1) != channels):
            raise Refused(f"{field} of {workspace.describe(key)} has shape {shape} for {channels} output channels")
        found[field] = tensor
    return found


def weighted_layer(workspace: Workspace, key: int) -> WeightedLayer:
    """A layer with its weights and bias."""
    if workspace.only_source(key) is None:
        slots = [slot for slot, _ in workspace.inputs(key)]
        plain = {0} if workspace.type(key) == "TransposeConvolution2d" else {0, _WEIGHTS_SLOT, _BIAS_SLOT}
        if 0 not in slots or not plain.issuperset(slots):
            raise Refused(f"{workspace.describe(key)} has inputs on slots {slots}; known are {sorted(plain)}")
    weights = _weights(workspace, key)
    return WeightedLayer(key, weights, _bias(workspace, key, weights))


def tensor_between(workspace: Workspace, root: int, layer: int, slot: int = 0) -> TensorInfo:
    """TensorInfo that ``layer`` gives input ``slot`` of ``root``; those before and after the two must fit it."""
    info = float_info(workspace, Source(layer, 0))
    after = float_info(workspace, Source(root, 0))
    source = workspace.source(layer, 0)
    before = None if source is None else float_info(workspace, source)
    for other, key in ((before, None if source is None else source.layer), (after, root)):
        if other is not None and key is not None and other.data_type != info.data_type:
            raise Refused(
                f"{workspace.describe(layer)} gives {info.data_type} and {workspace.describe(key)} {other.data_type}"
            )
    if info.known and after.known and info.shape != after.shape:
        raise Refused(
            f"{workspace.describe(layer)} gives shape {info.shape} and {workspace.describe(root)} {after.shape}"
        )
    check_override(workspace, root, slot, info)
    return info


def channel_extents(workspace: Workspace, key: int, info: TensorInfo, channels: int) -> tuple[int, ...]:
    """Extents of a linear layer's output along its channels, with 1 on every other axis.

    A FullyConnected has no layout: all its axes but the batch count its outputs. ``info`` is that
    of the output.

    Raises
    ------
    Refused
        Where the shape does not say so.
    """
    place = workspace.describe(key)
    if info.dimensionality == 0:
        raise Refused(f"{place} gives a tensor of unknown rank")
    rank = len(info.shape)
    if workspace.type(key) == "FullyConnected":
        if not info.known or rank < 2 or int(np.prod(info.shape[1:])) != channels:
            raise Refused(f"{place} gives shape {info.shape}; its weights have {channels} outputs")
        return (1, *info.shape[1:])
    layout = workspace.param(key, "dataLayout")
    axis = channel_axis(layout, rank)
    if axis is None:
        raise Refused(f"{place} gives shape {info.shape}, which has no channels in {layout}")
    if info.known and info.shape[axis] != channels:
        raise Refused(f"{place} gives shape {info.shape} in {layout}; it has constants for {channels} channels")
    return tuple(channels if i == axis else 1 for i in range(rank))


def apply_plan(workspace: Workspace, root: int, plan: Plan) -> int:
    """Give the layer its new tensors and let it take the root's place; returns the root's key.

    Each tensor keeps its form: a member stays one, a Constant layer is replaced by a new one. A bias
    that was not there takes the form of the weights. Constants that the root alone read go.
    """
    layer = plan.layer
    operands = [key for key in workspace.feeders(root) if key != layer]
    constants: Mapping[str, Any] = workspace.constants(layer)
    params = workspace.params(layer)
    members: dict[str, Tensor] = {}
    for field, slot, tensor in plan.changes:
        if field == "biases" and params is not None:
            params = _with_bias(workspace, params)
        if slot is None:
            members[field] = tensor
        elif workspace.source(layer, slot) is None:
            constant = workspace.add_constant(f"{workspace.name(root)}/bias", tensor)
            workspace.connect(Source(constant, 0), layer, slot)
        else:
            _replace_constant(workspace, layer, slot, tensor)
    if members:
        constants = FrozenDict({**constants, **members})
    workspace.take_over(root, layer, {"params": params, "constants": constants})
    if operands:
        workspace.drop_unused(operands)
    return root


def _with_bias(workspace: Workspace, params: Mapping[str, Any]) -> FrozenDict:
    """A descriptor with biasEnabled; layers that share one share the new one."""
    known: dict[int, tuple[Mapping[str, Any], FrozenDict]] = workspace.memo.setdefault("folds.affine.params", {})
    found = known.get(id(params))
    if found is None:
        enabled = FrozenDict({**params, "biasEnabled": True})
        found = known[id(params)] = params, params if params == enabled and type(params) is FrozenDict else enabled
    return found[1]


def float64(tensor: Tensor) -> Array:
    """The values in float64, without a warning of signalling NaNs: `_stored` refuses what comes of them."""
    with np.errstate(all="ignore"):
        return _float64(tensor)


def _float64(tensor: Tensor) -> Array:
    tensor.require_intact()
    return tensor.data.astype(np.float64)


def _affine(values: Array, scale: Array | None, shift: Array) -> Array:
    return values + shift if scale is None else values * scale + shift


def _weights(workspace: Workspace, layer: int) -> Weights:
    """The layer's weights, constant and of its kind's rank."""
    found = layer_weights(workspace, layer)
    if found is None:
        place = workspace.describe(layer)
        if workspace.constants(layer).get("weights") is None and workspace.source(layer, _WEIGHTS_SLOT) is None:
            raise Refused(f"{place} has no weights")
        if not _is_constant(workspace, layer, "weights", _WEIGHTS_SLOT):
            raise Refused(f"the weights of {place} are computed by {_feeder(workspace, layer, _WEIGHTS_SLOT)}")
        raise Refused(f"{place} has a dataLayout or a rank of weights that {workspace.type(layer)} does not have")
    if found.constant is None and workspace.source(layer, _WEIGHTS_SLOT) is not None:
        raise Refused(f"{workspace.describe(layer)} has weights both as member and on input slot {_WEIGHTS_SLOT}")
    if not plain_parameter(found.tensor):
        check_parameter(found.tensor, f"the weights of {workspace.describe(layer)}")
    shape = found.tensor.info.shape
    if workspace.type(layer) == "DepthwiseConvolution2d" and found.input_axis is None and shape[0] != 1:
        place = f"the weights of {workspace.describe(layer)}"
        raise Refused(f"{place} have shape {shape}, where [1,H,W,I*M] is the layout of this file")
    return found


def _bias(workspace: Workspace, layer: int, weights: Weights) -> Bias | None:
    """The layer's bias, or None where it has none."""
    member = workspace.constants(layer).get("biases") is not None
    wired = workspace.source(layer, _BIAS_SLOT) is not None
    if member and wired:
        raise Refused(f"{workspace.describe(layer)} has a bias both as member and on input slot {_BIAS_SLOT}")
    if not workspace.param(layer, "biasEnabled"):
        if member or wired:
            raise Refused(f"{workspace.describe(layer)} has a bias although its biasEnabled is false")
        return None
    found = layer_bias(workspace, layer)
    if found is None:
        place = workspace.describe(layer)
        if wired:
            raise Refused(f"the bias of {place} is computed by {_feeder(workspace, layer, _BIAS_SLOT)}")
        raise Refused(f"{place} has no bias although its biasEnabled is true")
    if not plain_parameter(found.tensor):
        check_parameter(found.tensor, f"the bias of {workspace.describe(layer)}")
    elements = found.tensor.info.elements
    if elements != weights.output_channels:
        raise Refused(
            f"the bias of {workspace.describe(layer)} has {elements} values for {weights.output_channels} "
            "output channels"
        )
    return found


def _is_constant(workspace: Workspace, layer: int, field: str, slot: int) -> bool:
    source = workspace.source(layer, slot)
    return workspace.constants(layer).get(field) is not None or (
        source is not None and workspace.tensor(source.layer) is not None
    )


def _feeder(workspace: Workspace, layer: int, slot: int) -> str:
    source = workspace.source(layer, slot)
    return "nothing" if source is None else f"{workspace.type(source.layer)} {workspace.describe(source.layer)}"


def _stored(
    values: Array, info: TensorInfo, workspace: Workspace, what: str, key: int, *, factor: bool = False
) -> Tensor:
    """``values`` as a tensor of ``info``, where they stay within its type; overflow must be ignored by the caller.

    ``what`` of the layer is where they are for; a ``factor`` must keep its precision too, be the result as small as it
    may: what multiplies it may be large.
    """
    data = values.astype(info.dtype)
    if not np.isfinite(magnitudes(data.reshape(1, -1)))[0]:
        value = float(values.reshape(-1)[np.flatnonzero(~np.isfinite(data))[0]])
        place = f"{what} {workspace.describe(key)}"
        if np.isnan(value):
            raise Refused(f"NaN in {info.data_type}: {place}")
        largest = float(np.finfo(info.dtype).max)
        raise Refused(f"overflow in {info.data_type}: {place} would hold {value:.6g}, the largest is {largest:.6g}")
    if factor and not keeps_precision(values.reshape(1, -1), data.reshape(1, -1))[0]:
        largest, smallest = float(np.abs(values).max()), float(np.finfo(info.dtype).smallest_normal)
        raise Refused(
            f"underflow in {info.data_type}: {what} {workspace.describe(key)} would hold nothing above {largest:.6g}, "
            f"and below {smallest:.6g} digits are lost"
        )
    return Tensor(info, np.ascontiguousarray(data))


def keeps_precision(values: Array, stored: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether numbers are stored to the precision of their type, beside the largest of each row; shapes ``(rows, n)``.

    Small ones beside large ones may vanish; where all are below the normal range, all is inexact. Only such rows
    need a look at each number: half the distance to the next number below the normal range is 2⁻ᵖ of its lowest
    end (p binary digits of the type), which is what the largest number of any other row may be off by.
    """
    limits = np.finfo(stored.dtype)
    kept: npt.NDArray[np.bool_] = magnitudes(stored) >= limits.smallest_normal
    for row in np.flatnonzero(~kept) if values.size else ():
        largest, lost = np.abs(values[row]).max(), np.abs(values[row] - stored[row]).max()
        kept[row] = lost <= largest * float(limits.eps)
    return kept if values.size else np.ones(len(values), bool)


def magnitudes(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The largest magnitude of each row, NaN where it holds one, 0 where it is empty; shape ``(rows, n)``."""
    if not rows.size:
        return np.zeros(len(rows))
    largest: npt.NDArray[Any] = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    return largest


def _replace_constant(workspace: Workspace, layer: int, slot: int, tensor: Tensor) -> None:
    """Feed a slot from a new Constant, which takes the old one's name where nothing else uses that."""
    old = workspace.disconnect(layer, slot).layer
    name, outputs = workspace.name(old), workspace.outputs(old)
    workspace.drop_unused([old])
    name = workspace.names.unique(name) if old in workspace.graph else name
    new = workspace.add("Constant", name, outputs, constants=FrozenDict(input=tensor))
    workspace.connect(Source(new, 0), layer, slot)
