"""The values that conditions name, read from a layer of the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fusion_engine.network import Source
from fusion_engine.spellings import SPELLINGS
from fusion_engine.tensor import ALIASES, TensorInfo
from fusion_engine.weights import channel_axis, layer_bias, layer_layout, layer_weights
from fusion_engine.workspace import Workspace

__all__ = ["UNKNOWN", "Unknown", "is_of_params", "read_value"]


class Unknown:
    """The one value of what is not known: every comparison with it is false."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()

_ACT = {"act": "activationFunction", "act.alpha": "a", "act.beta": "b"}
_TENSORS = ("output", "input", "weights", "bias")
_EXTENTS = {"w": 0, "h": 1, "d": 2}


def read_value(workspace: Workspace, key: int, slot: int, name: str) -> Any:
    """The value of a name on a layer.

    Parameters
    ----------
    workspace, key
        The layer.
    slot
        Its output slot that the pattern came through: what ``output.`` reads.
    name
        As `Operand.name`: ``strideX``, ``kernel.w``, ``output1.dataType``, ...

    Returns
    -------
    int, float, bool, str, tuple of int, or UNKNOWN
        Floats are float32 values; a dimension is (width, height[, channels or depth]).
    """
    if name == "name":
        return workspace.name(key)
    head, _, tail = name.partition(".")
    if tail and head.rstrip("0123456789") in _TENSORS:
        return _of_tensor(workspace, key, slot, head, tail)
    whole = _WHOLES.get(head)
    if whole is not None:
        found = whole(workspace, key)
        if found is None:
            return UNKNOWN
        if not tail:
            return found
        return found[_EXTENTS[tail]] if _EXTENTS[tail] < len(found) else UNKNOWN
    if name == "channels":
        return _channels(workspace, key)
    return _field(workspace, key, _ACT.get(name, name) if workspace.type(key) == "Activation" else name)


def is_of_params(name: str) -> bool:
    """Whether the value of a name is decided by a layer's type and descriptor alone.

    Examples
    --------
    >>> is_of_params("strideX"), is_of_params("act.alpha"), is_of_params("kernel.w"), is_of_params("output.w")
    (True, True, False, False)
    """
    head, _, tail = name.partition(".")
    if tail and head.rstrip("0123456789") in _TENSORS:
        return False
    return name not in ("name", "channels") and head != "kernel"


def _field(workspace: Workspace, key: int, name: str) -> Any:
    spelling = SPELLINGS.get(workspace.type(key))
    if spelling is not None and spelling.field == name:
        return spelling.value
    try:
        return workspace.param(key, name)
    except KeyError:
        return UNKNOWN


def _kernel(workspace: Workspace, key: int) -> tuple[int, ...] | None:
    if workspace.type(key) in ("Pooling2d", "Pooling3d"):
        return _fields(workspace, key, "poolWidth", "poolHeight", "poolDepth")
    weights = layer_weights(workspace, key)
    return None if weights is None else weights.kernel


def _stride(workspace: Workspace, key: int) -> tuple[int, ...] | None:
    return _fields(workspace, key, "strideX", "strideY", "strideZ")


def _dilation(workspace: Workspace, key: int) -> tuple[int, ...] | None:
    return _fields(workspace, key, "dilationX", "dilationY", "dilationZ")


def _fields(workspace: Workspace, key: int, *names: str) -> tuple[int, ...] | None:
    """The values of those of the fields that the layer has; None where it has fewer than two."""
    values = [_field(workspace, key, name) for name in names]
    found = tuple(value for value in values if value is not UNKNOWN)
    return found if len(found) >= 2 else None


_WHOLES: dict[str, Callable[[Workspace, int], tuple[int, ...] | None]] = {
    "kernel": _kernel,
    "stride": _stride,
    "dilation": _dilation,
}


def _channels(workspace: Workspace, key: int) -> Any:
    """Output channels: of the weights, or where those are computed of the output."""
    weights = layer_weights(workspace, key)
    if weights is not None:
        return weights.output_channels
    info = workspace.info(Source(key, 0))
    if info is None or not info.known or not info.shape:
        return UNKNOWN
    if workspace.type(key) == "FullyConnected":
        return info.shape[-1]
    axis = channel_axis(layer_layout(workspace, key), len(info.shape))
    return UNKNOWN if axis is None else info.shape[axis]


def _of_tensor(workspace: Workspace, key: int, slot: int, head: str, tail: str) -> Any:
    if head == "weights":
        weights = layer_weights(workspace, key)
        if weights is None:
            return UNKNOWN
        width_height = weights.kernel or (UNKNOWN, UNKNOWN)
        channels = UNKNOWN if weights.input_channels is None else weights.input_channels
        named = {"n": weights.output_channels, "c": channels, "w": width_height[0], "h": width_height[1]}
        return named[tail] if tail in named else _of_info(weights.tensor.info, tail, named)
    if head == "bias":
        bias = layer_bias(workspace, key)
        return UNKNOWN if bias is None else _of_info(bias.tensor.info, tail, _named(bias.tensor.info, None))
    info = _info(workspace, key, slot, head)
    return UNKNOWN if info is None else _of_info(info, tail, _named(info, layer_layout(workspace, key)))


def _info(workspace: Workspace, key: int, slot: int, head: str) -> TensorInfo | None:
    if head.startswith("output"):
        number = head.removeprefix("output")
        return workspace.info(Source(key, int(number) if number else slot))
    number = head.removeprefix("input")
    inputs = workspace.inputs(key) if number else workspace.data_inputs(key)
    wanted = int(number) if number else inputs[0][0] if inputs else None
    source = next((source for input_slot, source in inputs if input_slot == wanted), None)
    if source is None:
        return None
    overrides = workspace.graph.nodes[key].get("overrides") or {}
    overridden, info = overrides.get(wanted, (False, None))
    return info if overridden and info is not None else workspace.info(source)


def _named(info: TensorInfo, layout: str | None) -> dict[str, Any]:
    """Extents by name: n, and in rank 4 or 5 h, w and c by the layout; unspecified ones unknown."""
    shape: list[Any] = list(info.shape)
    for axis, specified in enumerate(info.dimension_specificity[: len(shape)]):
        if not specified:
            shape[axis] = UNKNOWN
    rank = len(shape)
    named: dict[str, Any] = {"n": shape[0] if shape else UNKNOWN, "h": UNKNOWN, "w": UNKNOWN, "c": UNKNOWN}
    channel = channel_axis(layout, rank)
    if channel is not None:
        spatial = [shape[i] for i in range(1, rank) if i != channel]
        named.update(c=shape[channel], h=spatial[-2], w=spatial[-1])
    return named


def _of_info(info: TensorInfo, tail: str, named: dict[str, Any]) -> Any:
    if tail == "dataType":
        return ALIASES.get(info.data_type, info.data_type)
    if tail == "scale":
        return UNKNOWN if info.quantization_scales else info.quantization_scale
    if tail == "offset":
        return info.quantization_offset
    if tail == "perAxis":
        return bool(info.quantization_scales)
    if info.dimensionality == 0:
        return UNKNOWN
    if tail in named:
        return named[tail]
    if tail == "rank":
        return len(info.shape)
    if tail == "shape":
        return _dimension(named)
    if not info.known:
        return UNKNOWN
    return info.elements * (info.dtype.itemsize if tail == "bytes" else 1)


def _dimension(named: dict[str, Any]) -> Any:
    extents = (named["w"], named["h"], named["c"])
    return UNKNOWN if UNKNOWN in extents[:2] else extents
