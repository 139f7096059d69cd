"""batch-norm: a BatchNormalization into the convolution or fully connected layer below it.

With γ, β, μ, σ² and ε of the BatchNormalization, per output channel,

    scale = γ / √(σ² + ε),    weights' = weights · scale,    bias' = (bias − μ) · scale + β,

which is y = γ · (x − μ) / √(σ² + ε) + β of the layer x = weights ∗ input + bias with its terms
gathered. All in float64 from the stored values (ε from its float32), then rounded once to the type
each tensor is stored in. A layer without bias gets one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fusion_engine.folds import Fold, Refused
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.schema import float32
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo
from fusion_engine.weights import WEIGHTED, Bias, Weights, channel_axis, layer_bias, layer_weights
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_WEIGHTS_SLOT, _BIAS_SLOT = 1, 2

_CHANNELS_LAST = {"NHWC": True, "NDHWC": True, "NCHW": False, "NCDHW": False}


@dataclass(frozen=True)
class Plan:
    """What `apply` does: the layer below, its parameters as they are, and as they will be."""

    layer: int
    weights: Weights
    bias: Bias | None
    new_weights: Tensor
    new_bias: Tensor


def check(workspace: Workspace, match: Match) -> Plan:
    """The folded weights and bias of a match.

    Parameters
    ----------
    workspace
        The network.
    match
        ``layers`` is the BatchNormalization and the layer that feeds it.

    Raises
    ------
    Refused
        Where the result would not be what the two layers compute; the reason names layers and numbers.
    """
    norm, layer = _layers(workspace, match)
    output = _output(workspace, norm, layer)
    weights = _weights(workspace, layer)
    bias = _bias(workspace, layer, weights)
    channels = weights.output_channels
    _check_channels(workspace, norm, layer, output, channels)
    gamma, beta, mean, variance = (
        _statistic(workspace, norm, field, channels) for field in ("gamma", "beta", "mean", "variance")
    )
    deviation = _deviation(workspace, norm, variance)
    place = workspace.describe(layer)
    old_bias = np.zeros(channels) if bias is None else _float64(bias.tensor).reshape(channels)
    with np.errstate(all="ignore"):
        scale = gamma / deviation
        shifted = (old_bias - mean) * scale + beta
        scaled = _float64(weights.tensor) * weights.per_output_channel(scale)
    bias_like = _bias_like(weights) if bias is None else bias.tensor.info
    return Plan(
        layer,
        weights,
        bias,
        _stored(scaled, weights.tensor.info, f"the weights of {place}"),
        _stored(shifted.reshape(bias_like.shape), bias_like, f"the bias of {place}"),
    )


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Give the layer its new weights and bias and let it take the BatchNormalization's place.

    Each parameter keeps its form: a member stays one, a Constant layer is replaced by a new one. A
    bias that was not there takes the form of the weights.
    """
    layer = plan.layer
    members: dict[str, Tensor] = {}
    if plan.weights.constant is None:
        members["weights"] = plan.new_weights
    else:
        _replace_constant(workspace, layer, _WEIGHTS_SLOT, plan.new_weights)
    if plan.bias is None and plan.weights.constant is not None:
        constant = workspace.add_constant(f"{workspace.name(match.root)}/bias", plan.new_bias)
        workspace.connect(Source(constant, 0), layer, _BIAS_SLOT)
    elif plan.bias is None or plan.bias.constant is None:
        members["biases"] = plan.new_bias
    else:
        _replace_constant(workspace, layer, _BIAS_SLOT, plan.new_bias)
    workspace.set(
        layer,
        params=FrozenDict({**workspace.graph.nodes[layer]["params"], "biasEnabled": True}),
        constants=FrozenDict({**workspace.constants(layer), **members}),
    )
    workspace.take_over(match.root, layer)
    return match.root


FOLD = Fold(check, apply)


def _layers(workspace: Workspace, match: Match) -> tuple[int, int]:
    """The BatchNormalization and the layer below it, wired as the fold takes them."""
    types = [workspace.type(key) for key in match.layers]
    if len(types) != 2 or types[0] != "BatchNormalization" or types[1] not in WEIGHTED or match.constants:
        raise Refused(
            "batch-norm takes a BatchNormalization over one layer of type "
            f"{', '.join(sorted(WEIGHTED))}; the match holds {', '.join(types) or 'no layer'}"
        )
    norm, layer = match.layers
    if workspace.inputs(norm) != ((0, Source(layer, 0)),):
        raise Refused(f"{workspace.describe(norm)} has other inputs than {workspace.describe(layer)}")
    for key in (norm, layer):
        if workspace.graph.nodes[key].get("params") is None:
            raise Refused(f"{workspace.describe(key)} has no descriptor")
        if workspace.graph.nodes[key].get("unconnected"):
            raise Refused(f"{workspace.describe(key)} has an unconnected input")
        if len(workspace.outputs(key)) != 1:
            raise Refused(f"{workspace.describe(key)} has {len(workspace.outputs(key))} outputs instead of one")
    slots = [slot for slot, _ in workspace.inputs(layer)]
    plain = {0} if workspace.type(layer) == "TransposeConvolution2d" else {0, _WEIGHTS_SLOT, _BIAS_SLOT}
    if 0 not in slots or not plain.issuperset(slots):
        raise Refused(f"{workspace.describe(layer)} has inputs on slots {slots}; known are {sorted(plain)}")
    return norm, layer


def _output(workspace: Workspace, norm: int, layer: int) -> TensorInfo:
    """TensorInfo between the two layers, which that before and that after them must fit."""
    info = _float_info(workspace, Source(layer, 0))
    after = _float_info(workspace, Source(norm, 0))
    source = workspace.source(layer, 0)
    before = None if source is None else _float_info(workspace, source)
    for other, key in ((before, None if source is None else source.layer), (after, norm)):
        if other is not None and key is not None and other.data_type != info.data_type:
            raise Refused(
                f"{workspace.describe(layer)} gives {info.data_type} and {workspace.describe(key)} {other.data_type}"
            )
    if info.known and after.known and info.shape != after.shape:
        raise Refused(
            f"{workspace.describe(layer)} gives shape {info.shape} and {workspace.describe(norm)} {after.shape}"
        )
    overridden, seen = (workspace.graph.nodes[norm].get("overrides") or {}).get(0, (False, None))
    if overridden and seen != info:
        raise Refused(f"{workspace.describe(norm)} overrides the TensorInfo of its input")
    return info


def _float_info(workspace: Workspace, source: Source) -> TensorInfo:
    info = workspace.info(source)
    place = f"the output of {workspace.describe(source.layer)}"
    if info is None:
        raise Refused(f"{place} has no TensorInfo")
    _check_float(info, place)
    return info


def _check_float(info: TensorInfo, place: str) -> None:
    if info.data_type not in FLOATS:
        raise Refused(f"{place}: {info.data_type} does not fold, only Float32 and Float16 do")
    if info.quantization_scales:
        raise Refused(f"{place}: {info.data_type} with a per-axis quantization does not fold")


def _check_tensor(tensor: Tensor, place: str) -> None:
    _check_float(tensor.info, place)
    if tensor.untagged and tensor.info.data_type == "Float16":
        raise Refused(f"{place}: Float16 without a payload type does not fold, since Arm NN 20.08 stores BFloat16 so")


def _weights(workspace: Workspace, layer: int) -> Weights:
    """The layer's weights, constant and of its kind's rank."""
    found = layer_weights(workspace, layer)
    place = workspace.describe(layer)
    if found is None:
        if workspace.constants(layer).get("weights") is None and workspace.source(layer, _WEIGHTS_SLOT) is None:
            raise Refused(f"{place} has no weights")
        if not _is_constant(workspace, layer, "weights", _WEIGHTS_SLOT):
            raise Refused(f"the weights of {place} are computed by {_feeder(workspace, layer, _WEIGHTS_SLOT)}")
        raise Refused(f"{place} has a dataLayout or a rank of weights that {workspace.type(layer)} does not have")
    if found.constant is None and workspace.source(layer, _WEIGHTS_SLOT) is not None:
        raise Refused(f"{place} has weights both as member and on input slot {_WEIGHTS_SLOT}")
    _check_tensor(found.tensor, f"the weights of {place}")
    shape = found.tensor.info.shape
    if workspace.type(layer) == "DepthwiseConvolution2d" and found.input_axis is None and shape[0] != 1:
        raise Refused(f"the weights of {place} have shape {shape}, where [1,H,W,I*M] is the layout of this file")
    return found


def _bias(workspace: Workspace, layer: int, weights: Weights) -> Bias | None:
    """The layer's bias, or None where it has none."""
    place = workspace.describe(layer)
    member = workspace.constants(layer).get("biases") is not None
    wired = workspace.source(layer, _BIAS_SLOT) is not None
    if member and wired:
        raise Refused(f"{place} has a bias both as member and on input slot {_BIAS_SLOT}")
    if not workspace.param(layer, "biasEnabled"):
        if member or wired:
            raise Refused(f"{place} has a bias although its biasEnabled is false")
        return None
    found = layer_bias(workspace, layer)
    if found is None:
        if wired:
            raise Refused(f"the bias of {place} is computed by {_feeder(workspace, layer, _BIAS_SLOT)}")
        raise Refused(f"{place} has no bias although its biasEnabled is true")
    _check_tensor(found.tensor, f"the bias of {place}")
    if found.tensor.info.elements != weights.output_channels:
        raise Refused(
            f"the bias of {place} has {found.tensor.info.elements} values for {weights.output_channels} output channels"
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


def _check_channels(workspace: Workspace, norm: int, layer: int, output: TensorInfo, channels: int) -> None:
    """The BatchNormalization's channel axis must be the layer's output channels."""
    layout = workspace.param(norm, "dataLayout")
    if layout not in _CHANNELS_LAST:
        raise Refused(f"{workspace.describe(norm)} has the unknown dataLayout {layout}")
    if workspace.type(layer) == "FullyConnected":
        _check_flat_channels(workspace, layer, output, layout, channels)
        return
    own = workspace.param(layer, "dataLayout")
    if own not in _CHANNELS_LAST or _CHANNELS_LAST[own] != _CHANNELS_LAST[layout]:
        raise Refused(f"{workspace.describe(layer)} is {own} and {workspace.describe(norm)} {layout}")
    if output.known:
        axis = channel_axis(own, len(output.shape))
        if axis is None or output.shape[axis] != channels:
            raise Refused(
                f"{workspace.describe(layer)} gives shape {output.shape} in {own}; its weights have {channels} "
                "output channels"
            )


def _check_flat_channels(workspace: Workspace, layer: int, output: TensorInfo, layout: str, channels: int) -> None:
    """A FullyConnected has no layout: its outputs are the channels where no other axis but the batch is over 1."""
    rank = len(output.shape)
    axis = 1 if rank == 2 else channel_axis(layout, rank)
    if (
        not output.known
        or axis is None
        or output.shape[1:] != (1,) * (axis - 1) + (channels,) + (1,) * (rank - 1 - axis)
    ):
        raise Refused(
            f"{workspace.describe(layer)} gives shape {output.shape}; in {layout} that does not have its "
            f"{channels} outputs along the channels"
        )


def _statistic(workspace: Workspace, norm: int, field: str, channels: int) -> npt.NDArray[np.float64]:
    """One of the BatchNormalization's tensors in float64, shape ``(channels,)``."""
    tensor: Tensor | None = workspace.constants(norm).get(field)
    place = f"{field} of {workspace.describe(norm)}"
    if tensor is None:
        raise Refused(f"{place} is missing")
    _check_tensor(tensor, place)
    if tensor.info.elements != channels or max(tensor.info.shape, default=1) != channels:
        raise Refused(f"{place} has shape {tensor.info.shape} for {channels} output channels")
    return _float64(tensor).reshape(channels)


def _float64(tensor: Tensor) -> npt.NDArray[np.float64]:
    """The values in float64, without a warning of signalling NaNs: `_stored` refuses what comes of them."""
    tensor.require_intact()
    with np.errstate(all="ignore"):
        return tensor.data.astype(np.float64)


def _deviation(workspace: Workspace, norm: int, variance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """√(σ² + ε), where every σ² + ε is a positive number."""
    eps = float32(workspace.param(norm, "eps"))
    total = variance + eps
    bad = np.flatnonzero(~((total > 0) & np.isfinite(total)))
    if bad.size:
        channel = int(bad[0])
        raise Refused(
            f"variance + eps of {workspace.describe(norm)} is {total[channel]:g} in channel {channel} "
            f"(variance {variance[channel]:g}, eps {eps:g}): it must be a positive number"
        )
    root: npt.NDArray[np.float64] = np.sqrt(total)
    return root


def _bias_like(weights: Weights) -> TensorInfo:
    """TensorInfo of a bias for a layer that has none, after its weights."""
    return weights.tensor.info.reshaped((weights.output_channels,))


def _stored(values: npt.NDArray[np.float64], info: TensorInfo, place: str) -> Tensor:
    """``values`` as a tensor of ``info``, where they stay within its type."""
    with np.errstate(all="ignore"):
        data = values.astype(info.dtype)
    bad = np.flatnonzero(~np.isfinite(data))
    if bad.size:
        value = float(values.reshape(-1)[bad[0]])
        if np.isnan(value):
            raise Refused(f"NaN in {info.data_type}: {place}")
        largest = float(np.finfo(info.dtype).max)
        raise Refused(f"overflow in {info.data_type}: {place} would hold {value:.6g}, the largest is {largest:.6g}")
    return Tensor(info, np.ascontiguousarray(data))


def _replace_constant(workspace: Workspace, layer: int, slot: int, tensor: Tensor) -> None:
    """Feed a slot from a new Constant, which takes the old one's name where nothing else uses that."""
    old = workspace.disconnect(layer, slot).layer
    name, outputs = workspace.name(old), workspace.outputs(old)
    workspace.drop_unused([old])
    name = workspace.names.unique(name) if old in workspace.graph else name
    new = workspace.add("Constant", name, outputs, constants=FrozenDict(input=tensor))
    workspace.connect(Source(new, 0), layer, slot)
