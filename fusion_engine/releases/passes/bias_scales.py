"""Biases get the quantization scale that older backends insist on, where it changes no value.

They want the product of the input's scale and the weights'. Of floats the scale says nothing, and a
quantized bias of zeros is zeros by any scale: converters share one such bias between layers.
"""

from __future__ import annotations

from dataclasses import replace

from fusion_engine.network import Source
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.schema import WEIGHTED, float32
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["TOLERANCE", "run"]

TOLERANCE = 1e-8
"""How far the backends let a scale be from the product."""


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Set the scales of member biases that are of floats or all zero, where they are not the product."""
    if not release.bias_scales:
        return ()
    for key in workspace.order():
        held = workspace.constants(key)
        if workspace.type(key) not in WEIGHTED or "biases" not in held or "weights" not in held:
            continue
        bias, source = held["biases"], workspace.source(key, 0)
        fed = None if source is None else workspace.info(Source(*source))
        if fed is None:
            continue
        info = _scaled(bias, fed, held["weights"].info)
        if info != bias.info:
            workspace.set(key, constants=held.with_(biases=replace(bias, info=info)))
    return ()


def _scaled(bias: Tensor, fed: TensorInfo, weights: TensorInfo) -> TensorInfo:
    """The bias's TensorInfo with the scales that are wanted; as it is where that would change values."""
    info = bias.info
    if info.data_type not in FLOATS:
        bias.require_intact()
        if bias.data.any():
            return info
    if info.quantization_scales or weights.quantization_scales:
        wanted = tuple(float32(fed.quantization_scale * scale) for scale in weights.quantization_scales)
        if len(wanted) == info.elements and not _near(info.quantization_scales, wanted):
            return replace(info, quantization_scales=wanted, quantization_dim=0)
        return info
    scale = float32(fed.quantization_scale * weights.quantization_scale)
    if _near((info.quantization_scale,), (scale,)) and not info.quantization_offset:
        return info
    return replace(info, quantization_scale=scale, quantization_offset=0)


def _near(present: tuple[float, ...], wanted: tuple[float, ...]) -> bool:
    return len(present) == len(wanted) and all(abs(a - b) <= TOLERANCE for a, b in zip(present, wanted, strict=True))
