"""Weights and biases that a Dequantize computes from a Constant become Constants, where members are wanted."""

from __future__ import annotations

import numpy as np

from fusion_engine.network import Source
from fusion_engine.releases.facts import WEIGHT_TYPES, Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.tensor import FLOATS, Tensor
from fusion_engine.workspace import PARAMETER_SLOTS, Workspace

__all__ = ["dequantized", "run"]


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Compute what such Dequantize layers compute; those that nothing else reads go."""
    made: dict[int, int] = {}
    for key in workspace.order():
        kind = workspace.type(key)
        if kind not in WEIGHT_TYPES or release.form(kind, release.as_inputs) != "members":
            continue
        for slot in PARAMETER_SLOTS[kind]:
            source = workspace.source(key, slot)
            if source is None or workspace.type(source.layer) != "Dequantize":
                continue
            if source.layer not in made:
                tensor = dequantized(workspace, source.layer)
                if tensor is None:
                    continue
                name = workspace.name(source.layer)
                made[source.layer] = workspace.add_constant(f"{name or 'Dequantize'}/values", tensor)
            workspace.disconnect(key, slot)
            workspace.connect(Source(made[source.layer], 0), key, slot)
    for key in made:
        if not workspace.uses(key):
            fed = [source.layer for _, source in workspace.inputs(key)]
            workspace.remove(key)
            workspace.drop_unused(fed)
    return ()


def dequantized(workspace: Workspace, key: int) -> Tensor | None:
    """What a Dequantize of a Constant gives, computed as Arm NN does; None where it is fed otherwise.

    ``(stored - offset)``, an exact integer, times the scale in float32; Float16 is widened.
    """
    source = workspace.source(key, 0)
    tensor = None if source is None else workspace.tensor(source.layer)
    info = (*workspace.outputs(key), None)[0]
    if tensor is None or info is None or info.shape != tensor.info.shape or info.data_type not in FLOATS:
        return None
    tensor.require_intact()
    stored = tensor.info
    if stored.data_type in FLOATS:
        values = tensor.data.astype(np.float32)
    elif stored.canonical_type.startswith("Q"):
        if stored.quantization_scales:
            shape = [1] * len(stored.shape)
            shape[stored.quantization_dim] = len(stored.quantization_scales)
            scale = np.asarray(stored.quantization_scales, np.float32).reshape(shape)
            values = tensor.data.astype(np.float32) * scale
        else:
            whole = tensor.data.astype(np.int32) - np.int32(stored.quantization_offset)
            values = whole.astype(np.float32) * np.float32(stored.quantization_scale)
    else:
        return None
    return Tensor(info, np.ascontiguousarray(values, info.dtype))
