"""Weights and biases where the release looks for them, depthwise ones in the layout it takes them in.

Two forms per layer, `Release.form`: member tensors, or Constant layers on input slots 1 and 2. Two
layouts of depthwise weights: ``[M,I,H,W]`` where weightsLayoutScheme is 0, ``[1,H,W,I*M]`` where it is
1; output channel ``o = i*M + m`` in both. Per-axis scales are in the order of the output channels in
both, their quantizationDim is 0 in the first and 3 in the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.network import FrozenDict, Source
from fusion_engine.releases.facts import WEIGHT_TYPES, Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.tensor import Tensor
from fusion_engine.weights import layer_weights
from fusion_engine.workspace import Workspace

__all__ = ["run", "to_1hwo", "to_mihw"]

_SLOTS = (("weights", 1), ("biases", 2))


def run(workspace: Workspace, release: Release) -> Iterator[Obstacle]:
    """Move the weights of every layer, then let featureVersions say so."""
    mover = _Mover(workspace, release)
    for key in workspace.order():
        if workspace.type(key) in WEIGHT_TYPES:
            yield from mover.layer(key)
    workspace.drop_unused(mover.emptied)
    workspace.graph.graph["feature_versions"] = release.feature_versions


class _Mover:
    """Moves weights; a tensor that several layers share stays one."""

    def __init__(self, workspace: Workspace, release: Release) -> None:
        self.workspace = workspace
        self.release = release
        self.layout = workspace.graph.graph.get("feature_versions", (1, 1, 1))[1]
        self.emptied: dict[int, None] = {}
        self._made: dict[object, int] = {}
        self._turned: dict[object, Tensor] = {}

    def layer(self, key: int) -> Iterator[Obstacle]:
        """The weights and the bias of a layer."""
        kind = self.workspace.type(key)
        wanted = self.release.form(kind, self.release.as_inputs)
        turn = kind == "DepthwiseConvolution2d" and min(self.layout, 1) != self.release.layout
        for field, slot in _SLOTS:
            tensor, constant = self._held(key, field, slot)
            if tensor is None:
                if turn and field == "weights" and self.workspace.source(key, slot) is not None:
                    yield self._obstacle(key, "depthwise weights that are computed, whose layout is another there")
                continue
            if turn and field == "weights":
                turned = self._turn(key, tensor)
                if isinstance(turned, Obstacle):
                    yield turned
                    continue
                self._put(key, field, slot, turned, constant, wanted)
            elif wanted != ("members" if constant is None else "inputs"):
                self._put(key, field, slot, tensor, constant, wanted)

    def _held(self, key: int, field: str, slot: int) -> tuple[Tensor | None, int | None]:
        """A parameter's tensor, and the Constant that feeds it where it is no member."""
        member = self.workspace.constants(key).get(field)
        source = self.workspace.source(key, slot)
        if member is not None or source is None:
            return member, None
        return self.workspace.tensor(source.layer), source.layer

    def _put(self, key: int, field: str, slot: int, tensor: Tensor, constant: int | None, wanted: str) -> None:
        workspace = self.workspace
        held = {name: value for name, value in workspace.constants(key).items() if name != field}
        if constant is not None:
            workspace.disconnect(key, slot)
            self.emptied[constant] = None
        if wanted == "members":
            held[field] = tensor
            overrides = workspace.graph.nodes[key].get("overrides")
            if overrides and slot in overrides:
                rest = FrozenDict({other: value for other, value in overrides.items() if other != slot})
                workspace.set(key, overrides=rest) if rest else workspace.unset(key, "overrides")
        else:
            workspace.connect(Source(self._constant(key, field, tensor, constant), 0), key, slot)
            overrides = workspace.graph.nodes[key].get("overrides")
            if overrides and constant is None:
                entries: dict[Any, Any] = {**overrides, slot: (False, tensor.info)}
                workspace.set(key, overrides=FrozenDict(sorted(entries.items())))
        workspace.set(key, constants=FrozenDict(held))
        if held and workspace.type(key) == "FullyConnected" and not workspace.param(key, "constantWeights"):
            workspace.set(key, params=workspace.graph.nodes[key]["params"].with_(constantWeights=True))

    def _constant(self, key: int, field: str, tensor: Tensor, former: int | None) -> int:
        """The Constant with a tensor; one that replaces another that goes takes its name."""
        workspace = self.workspace
        same = (tensor.memory, tensor.info)
        if same not in self._made:
            name = f"{workspace.name(key) or workspace.type(key)}/{field}"
            if former is not None and not workspace.uses(former):
                name = workspace.name(former)
                self.emptied.pop(former, None)
                workspace.remove(former)
                made = workspace.add("Constant", name, (tensor.info,), constants=FrozenDict(input=tensor))
            else:
                made = workspace.add_constant(name, tensor)
            self._made[same] = made
        return self._made[same]

    def _turn(self, key: int, tensor: Tensor) -> Tensor | Obstacle:
        """Depthwise weights in the layout of the release, or why they cannot be."""
        workspace = self.workspace
        weights = layer_weights(workspace, key)
        channels = None if weights is None else weights.input_channels
        if weights is None:
            return self._obstacle(key, f"depthwise weights of {len(tensor.info.shape)} dimensions, not 4")
        same = (tensor.memory, tensor.info, channels)
        if same not in self._turned:
            if self.release.layout:
                turned = to_1hwo(tensor) if channels in (None, tensor.info.shape[1]) else None
            elif channels is None:
                return self._obstacle(key, "depthwise weights [1,H,W,I*M] where the input's channels are not known")
            else:
                turned = to_mihw(tensor, channels)
            if turned is None:
                return self._obstacle(key, "depthwise weights whose shape or scales do not fit the input's channels")
            self._turned[same] = turned
        return self._turned[same]

    def _obstacle(self, key: int, reason: str) -> Obstacle:
        return Obstacle(reason, None, (key,), (self.workspace.describe(key),))


def to_1hwo(tensor: Tensor) -> Tensor | None:
    """Depthwise weights ``[M,I,H,W]`` as ``[1,H,W,I*M]``; None where per-axis scales are of no channel.

    Examples
    --------
    >>> turned = to_1hwo(Tensor.of(np.arange(6).reshape(2, 3, 1, 1)))
    >>> turned.info.shape, turned.data.ravel().tolist()
    ((1, 1, 1, 6), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    """
    multiplier, inputs, height, width = tensor.info.shape
    scales = tensor.info.quantization_scales
    if scales and len(scales) != multiplier * inputs:
        per_axis = {(0, multiplier): scales * inputs, (1, inputs): tuple(s for s in scales for _ in range(multiplier))}
        found = per_axis.get((tensor.info.quantization_dim, len(scales)))
        if found is None:
            return None
        scales = found
    tensor.require_intact()
    data = tensor.data.transpose(2, 3, 1, 0).reshape(1, height, width, inputs * multiplier)
    return _turned(tensor, data, scales, 3)


def to_mihw(tensor: Tensor, channels: int) -> Tensor | None:
    """Depthwise weights ``[1,H,W,I*M]`` of ``channels`` input channels I as ``[M,I,H,W]``.

    None where the output channels are no multiple of them, or per-axis scales are not theirs.
    """
    one, height, width, outputs = tensor.info.shape
    scales = tensor.info.quantization_scales
    if one != 1 or not channels or outputs % channels or len(scales) not in (0, outputs):
        return None
    tensor.require_intact()
    data = tensor.data.reshape(height, width, channels, outputs // channels).transpose(3, 2, 0, 1)
    return _turned(tensor, data, scales, 0)


def _turned(tensor: Tensor, data: npt.NDArray[Any], scales: tuple[float, ...], axis: int) -> Tensor:
    """The tensor with its elements in another order, and its scales, if any, along another axis."""
    info = replace(tensor.info, shape=data.shape, quantization_scales=scales)
    if scales:
        info = replace(info, quantization_dim=axis)
    return Tensor(info, np.ascontiguousarray(data))
