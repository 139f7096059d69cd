"""Preconditions that folds share: each raises `Refused` with a reason that names the layer.

They are about what every rewrite of two layers into one leans on: that each layer is complete, that
the tensors between them say what they hold, and that nothing at a connection contradicts that.
"""

from __future__ import annotations

import numpy as np

from fusion_engine.folds import Refused
from fusion_engine.network import FrozenDict, Source
from fusion_engine.spellings import SPELLINGS
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = [
    "QUANTIZED",
    "absorb_input",
    "check_float",
    "check_override",
    "check_parameter",
    "check_plain",
    "constant_operand",
    "float_info",
    "known_info",
    "operation",
    "plain_parameter",
    "same_grid",
]

QUANTIZED = frozenset({"QAsymmU8", "QAsymmS8", "QSymmS8", "QSymmS16"})
"""The quantized data types, under their present names."""

_BINARY = "ElementwiseBinary"

_OPERATIONS = {spelling.value: name for name, spelling in SPELLINGS.items() if spelling.type == _BINARY}


def operation(workspace: Workspace, key: int) -> str:
    """A layer's type; of an ElementwiseBinary the deprecated type of its operation, where it has one.

    So ``Multiplication`` is what either spelling of a multiplication is called.
    """
    kind = workspace.type(key)
    return _OPERATIONS.get(workspace.param(key, "operation"), kind) if kind == _BINARY else kind


def check_plain(workspace: Workspace, *keys: int) -> None:
    """Each layer has its descriptor, all its inputs connected, and one output."""
    for key in keys:
        node = workspace.node(key)
        if node.get("params") is None:
            raise Refused(f"{workspace.describe(key)} has no descriptor")
        if node.get("unconnected"):
            raise Refused(f"{workspace.describe(key)} has an unconnected input")
        if len(workspace.outputs(key)) != 1:
            raise Refused(f"{workspace.describe(key)} has {len(workspace.outputs(key))} outputs instead of one")


def known_info(workspace: Workspace, source: Source) -> TensorInfo:
    """TensorInfo of an output slot, which must be there."""
    info = workspace.info(source)
    if info is None:
        raise Refused(f"the output of {workspace.describe(source.layer)} has no TensorInfo")
    return info


def float_info(workspace: Workspace, source: Source) -> TensorInfo:
    """TensorInfo of an output slot, which must be there and of a float type."""
    info = known_info(workspace, source)
    if info.data_type not in FLOATS or info.quantization_scales:
        check_float(info, f"the output of {workspace.describe(source.layer)}")
    return info


def check_float(info: TensorInfo, place: str) -> None:
    """The tensor at ``place`` is Float32 or Float16."""
    if info.data_type not in FLOATS:
        raise Refused(f"{place}: {info.data_type} does not fold, only Float32 and Float16 do")
    if info.quantization_scales:
        raise Refused(f"{place}: {info.data_type} with a per-axis quantization does not fold")


def plain_parameter(tensor: Tensor) -> bool:
    """Whether `check_parameter` finds nothing wrong, so that nobody need say where the tensor is."""
    info = tensor.info
    return info.data_type in FLOATS and not info.quantization_scales and not tensor.untagged


def check_parameter(tensor: Tensor, place: str) -> None:
    """The constant at ``place`` is of a float type, and surely so."""
    check_float(tensor.info, place)
    if tensor.untagged and tensor.info.data_type == "Float16":
        raise Refused(f"{place}: Float16 without a payload type does not fold, since Arm NN 20.08 stores BFloat16 so")


def check_override(workspace: Workspace, key: int, slot: int, info: TensorInfo) -> None:
    """An input slot has no TensorInfo of its own that differs from that of what feeds it."""
    overrides = workspace.node(key).get("overrides")
    if not overrides:
        return
    overridden, seen = overrides.get(slot, (False, None))
    if overridden and seen != info:
        where = "its input" if slot == 0 and len(workspace.inputs(key)) == 1 else f"its input {slot}"
        raise Refused(f"{workspace.describe(key)} overrides the TensorInfo of {where}")


def constant_operand(workspace: Workspace, key: int, other: int, output: int = 0) -> tuple[int, int, Tensor]:
    """The Constant that meets an output of ``other`` in a layer of two inputs.

    Returns
    -------
    slot, constant, tensor
        The input slot of the Constant, its key and its tensor.
    """
    inputs = dict(workspace.inputs(key))
    if set(inputs) != {0, 1}:
        raise Refused(f"{workspace.describe(key)} has inputs on slots {sorted(inputs)} instead of 0 and 1")
    slots = [slot for slot, source in inputs.items() if source != Source(other, output)]
    if len(slots) != 1:
        raise Refused(f"{workspace.describe(key)} does not take {workspace.describe(other)} and a Constant")
    slot = slots[0]
    constant = inputs[slot].layer
    tensor = workspace.tensor(constant)
    if tensor is None:
        raise Refused(f"input {slot} of {workspace.describe(key)} is {workspace.describe(constant)}, no Constant")
    info = known_info(workspace, inputs[slot])
    own = tensor.info
    quantized = own.canonical_type in QUANTIZED and own.quantization != info.quantization
    if (info.shape, info.canonical_type) != (own.shape, own.canonical_type) or quantized:
        raise Refused(f"the output of {workspace.describe(constant)} has another TensorInfo than its tensor")
    check_override(workspace, key, slot, info)
    return slot, constant, tensor


def same_grid(workspace: Workspace, *sources: Source) -> TensorInfo:
    """TensorInfo of outputs that hold the same kind of values in the same shape; that of the first.

    All are of one type, float or quantized; where quantized, of one positive scale and one offset
    that is itself a value of the type, so that 0 is a value of each.
    """
    first = known_info(workspace, sources[0])
    place = f"the output of {workspace.describe(sources[0].layer)}"
    quantized = first.canonical_type in QUANTIZED
    if first.quantization_scales or not (quantized or first.canonical_type in FLOATS):
        per_axis = " with a quantization per axis" if first.quantization_scales else ""
        raise Refused(f"{place} is {first.data_type}{per_axis}, which does not fold")
    if quantized:
        limits = np.iinfo(first.dtype)
        if not 0 < first.quantization_scale < np.inf or not limits.min <= first.quantization_offset <= limits.max:
            raise Refused(f"{place} has scale {first.quantization_scale:g} and offset {first.quantization_offset}")
    for source in sources[1:]:
        info = known_info(workspace, source)
        kind = workspace.describe(source.layer)
        if info.canonical_type != first.canonical_type:
            raise Refused(f"{kind} gives {info.data_type}, {place} is {first.data_type}")
        if quantized and info.quantization != first.quantization:
            raise Refused(
                f"{kind} gives scale {info.quantization_scale:g} and offset {info.quantization_offset}, "
                f"{place} has {first.quantization_scale:g} and {first.quantization_offset}"
            )
        if info.shape != first.shape or not (info.known and first.known):
            raise Refused(f"{kind} gives shape {info.shape}, {place} has {first.shape}")
    return first


def absorb_input(workspace: Workspace, root: int, layer: int) -> None:
    """Let input slot 0 of ``root`` read what that of ``layer`` reads; ``layer``, read by nothing else, goes."""
    nodes = workspace.graph.nodes
    overrides = {slot: value for slot, value in (nodes[root].get("overrides") or {}).items() if slot != 0}
    below = (nodes[layer].get("overrides") or {}).get(0)
    if below is not None:
        overrides[0] = below
    source = workspace.disconnect(layer, 0)
    workspace.disconnect(root, 0)
    workspace.remove(layer)
    workspace.connect(source, root, 0)
    if overrides:
        workspace.set(root, overrides=FrozenDict(sorted(overrides.items())))
    else:
        workspace.unset(root, "overrides")
