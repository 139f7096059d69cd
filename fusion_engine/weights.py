"""Weights and bias of a layer, wherever the file keeps them, and what each axis of the weights means.

Two forms are in use, decided per layer: member tensors (``weights``, ``biases`` of the layer's own
table), and Constant layers on input slots 1 and 2 (FullyConnected since release 21.08, Convolution3d
since 21.11, Convolution2d and DepthwiseConvolution2d since 22.05). Where the member is there it is
the weights. The axes:

======================  ====================================================================
Convolution2d           ``[O,H,W,I]`` in NHWC, ``[O,I,H,W]`` in NCHW
TransposeConvolution2d  as Convolution2d: the output axis is 0
DepthwiseConvolution2d  ``[M,I,H,W]`` where ``weightsLayoutScheme`` (the second of the graph's
                        ``feature_versions``) is 0, else ``[1,H,W,I*M]``; output channel
                        ``o = i*M + m``
FullyConnected          ``[O,I]`` where ``transposeWeightsMatrix``, else ``[I,O]``
Convolution3d           ``[D,H,W,I,O]``
======================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fusion_engine.network import Source
from fusion_engine.schema import WEIGHTED
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import PARAMETER_SLOTS, Workspace

__all__ = ["Bias", "Weights", "channel_axis", "layer_bias", "layer_layout", "layer_weights", "weights_layout"]

_WEIGHTS_SLOT, _BIAS_SLOT = 1, 2


class _Axes(NamedTuple):
    """Position of each axis; ``output`` from the major to the minor part of the channel number."""

    output: tuple[int, ...]
    input: int | None
    height: int | None = None
    width: int | None = None
    depth: int | None = None
    rank: int = 4


_AXES = {
    "OHWI": _Axes((0,), 3, 1, 2),
    "OIHW": _Axes((0,), 1, 2, 3),
    "MIHW": _Axes((1, 0), 1, 2, 3),
    "1HWO": _Axes((3,), None, 1, 2),
    "DHWIO": _Axes((4,), 3, 1, 2, 0, rank=5),
    "OI": _Axes((0,), 1, rank=2),
    "IO": _Axes((1,), 0, rank=2),
}
"""By `weights_layout`."""


@dataclass(frozen=True)
class Weights:
    """Constant weights of a layer.

    Attributes
    ----------
    tensor
        The weights as stored.
    field
        The member they are stored in (``"weights"``), or None in the input form.
    constant
        Key of the Constant layer that feeds them, or None in the member form.
    output_axes
        The axes that make up the output channel, major first: one, except in ``[M,I,H,W]``, where
        they are ``(1, 0)``.
    input_axis
        The axis of the input channels; None in ``[1,H,W,I*M]``, where it shares the output's.
    height_axis, width_axis, depth_axis
        The kernel's axes; None where the kind of layer has no such.
    input_channels
        Number of input channels; in ``[1,H,W,I*M]`` taken from the layer's input, None where that
        is not known.
    """

    tensor: Tensor
    field: str | None
    constant: int | None
    output_axes: tuple[int, ...]
    input_axis: int | None
    height_axis: int | None
    width_axis: int | None
    depth_axis: int | None
    input_channels: int | None

    @property
    def output_channels(self) -> int:
        """Number of output channels (FullyConnected: its output size)."""
        return prod(self.tensor.info.shape[axis] for axis in self.output_axes)

    @property
    def kernel(self) -> tuple[int, ...] | None:
        """Width and height of the kernel, depth third where there is one; None of a FullyConnected."""
        if self.width_axis is None or self.height_axis is None:
            return None
        shape = self.tensor.info.shape
        flat = (shape[self.width_axis], shape[self.height_axis])
        return flat if self.depth_axis is None else (*flat, shape[self.depth_axis])

    def per_output_channel(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``values`` laid out so that ``tensor.data * result`` multiplies each output channel by its own.

        Parameters
        ----------
        values
            Shape ``(output_channels,)``, any dtype.

        Returns
        -------
        numpy.ndarray
            Shape: that of the tensor, with every axis that is no output axis 1.

        Raises
        ------
        ValueError
            Where the number of values is another.

        Examples
        --------
        Depthwise weights ``[M,I,H,W]`` with M = 2 and I = 3: channel 3 is m = 1 of i = 1.

        >>> tensor = Tensor.of(np.zeros((2, 3, 1, 1)))
        >>> weights = Weights(tensor, "weights", None, (1, 0), 1, 2, 3, None, 3)
        >>> int(weights.per_output_channel(np.arange(6))[1, 1, 0, 0])
        3
        """
        shape = self.tensor.info.shape
        split = np.reshape(values, tuple(shape[axis] for axis in self.output_axes))
        placed = np.transpose(split, np.argsort(self.output_axes))
        return placed.reshape(tuple(n if axis in self.output_axes else 1 for axis, n in enumerate(shape)))


@dataclass(frozen=True)
class Bias:
    """Constant bias of a layer: ``tensor`` (one value per output channel), ``field`` and ``constant`` as of Weights."""

    tensor: Tensor
    field: str | None
    constant: int | None


def channel_axis(layout: str | None, rank: int) -> int | None:
    """The channels' axis in a tensor of rank 4 or 5: 1 in NCHW and NCDHW, the last in NHWC and NDHWC; else None.

    Examples
    --------
    >>> channel_axis("NHWC", 4), channel_axis("NCHW", 4), channel_axis("NHWC", 2)
    (3, 1, None)
    """
    if rank not in (4, 5) or layout is None:
        return None
    if layout in ("NCHW", "NCDHW"):
        return 1
    return rank - 1 if layout in ("NHWC", "NDHWC") else None


def layer_layout(workspace: Workspace, key: int) -> str | None:
    """The layer's own ``dataLayout``; of a layer without one that common to the network; None where unknown.

    StridedSlice's ``dataLayout`` says nothing about its data: it counts as a layer without.
    """
    if workspace.type(key) == "StridedSlice":
        return workspace.layout
    try:
        layout = workspace.param(key, "dataLayout")
    except KeyError:
        return workspace.layout
    return layout if isinstance(layout, str) else None


def layer_weights(workspace: Workspace, key: int) -> Weights | None:
    """The constant weights of a layer, in either form.

    Returns
    -------
    Weights or None
        None where the layer has no weights, where they are computed, and where their rank is not
        that of the layer's kind.
    """
    layout = weights_layout(workspace, key)
    if layout is None:
        return None
    axes = _AXES[layout]
    tensor, field, constant = _parameter(workspace, key, "weights", _WEIGHTS_SLOT)
    if tensor is None or len(tensor.info.shape) != axes.rank:
        return None
    channels = _fed_channels(workspace, key) if axes.input is None else tensor.info.shape[axes.input]
    return Weights(
        tensor, field, constant, axes.output, axes.input, axes.height, axes.width, axes.depth, input_channels=channels
    )


def layer_bias(workspace: Workspace, key: int) -> Bias | None:
    """The constant bias of a layer, in either form.

    Returns
    -------
    Bias or None
        None where the layer has no bias (``biasEnabled`` is false, or its type has none) and where
        the bias is computed.
    """
    if workspace.type(key) not in WEIGHTED or not workspace.param(key, "biasEnabled"):
        return None
    tensor, field, constant = _parameter(workspace, key, "biases", _BIAS_SLOT)
    return None if tensor is None else Bias(tensor, field, constant)


def weights_layout(workspace: Workspace, key: int) -> str | None:
    """What the axes of a layer's weights mean, a letter each; None where it has none or its layout is unknown.

    O output channels, I input channels, M multiplier (output channel ``i*M + m``), D, H, W kernel;
    ``1HWO`` is the depthwise layout of weightsLayoutScheme 1.
    """
    match workspace.type(key):
        case "Convolution2d" | "TransposeConvolution2d":
            return {"NHWC": "OHWI", "NCHW": "OIHW"}.get(workspace.param(key, "dataLayout"))
        case "DepthwiseConvolution2d":
            return "1HWO" if workspace.graph.graph.get("feature_versions", (1, 1, 1))[1] else "MIHW"
        case "FullyConnected":
            return "OI" if workspace.param(key, "transposeWeightsMatrix") else "IO"
        case "Convolution3d":
            return "DHWIO"
    return None


def _parameter(workspace: Workspace, key: int, field: str, slot: int) -> tuple[Tensor | None, str | None, int | None]:
    """The tensor of a parameter, with its member field or the key of its Constant."""
    member: Tensor | None = workspace.constants(key).get(field)
    if member is not None:
        return member, field, None
    if slot not in PARAMETER_SLOTS.get(workspace.type(key), ()):
        return None, None, None
    source = workspace.source(key, slot)
    tensor = None if source is None else workspace.tensor(source.layer)
    return (None, None, None) if tensor is None or source is None else (tensor, None, source.layer)


def _fed_channels(workspace: Workspace, key: int) -> int | None:
    """Number of channels of what feeds input slot 0, by the layer's layout."""
    source: Source | None = workspace.source(key, 0)
    info: TensorInfo | None = None if source is None else workspace.info(source)
    if info is None or not info.known:
        return None
    axis = channel_axis(layer_layout(workspace, key), len(info.shape))
    return None if axis is None else info.shape[axis]
