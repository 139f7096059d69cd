"""constants: layers whose inputs are all Constants are Constants.

Permute, Transpose and Reshape move the stored numbers; where the quantization is per axis, its
quantizationDim goes with the axis. Dequantize, Cast and the elementwise layers compute, in
float64 from the real values of their operands (``scale * (stored - offset)`` where quantized), and
round once to the type of the output: floats to the nearest, quantized types to the nearest step
and into their range, as Arm NN does at every run. Integers are computed as integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fusion_engine.folds import Fold, Inapplicable, Refused
from fusion_engine.folds.arithmetic import BINARY, UNARY, binary_operation, cast, computed, dequantized, unary_operation
from fusion_engine.folds.moves import (
    PERMUTES,
    drop,
    feed,
    feeding,
    mind_layout_scheme,
    permutation,
    reshaped_to,
    same_values,
    shaped_info,
)
from fusion_engine.match.binding import Match
from fusion_engine.network import EMPTY, FrozenDict, Source
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_FEW = 1024
"""Elements up to which a result may be larger than its operands together."""


@dataclass(frozen=True)
class Plan:
    """The root's values, the TensorInfo of its output, and the Constants it is made from."""

    root: int
    tensor: Tensor
    output: TensorInfo
    constants: tuple[int, ...]


def check(workspace: Workspace, match: Match) -> Plan:
    """The values of a layer over Constants.

    Raises
    ------
    Refused
        Where they cannot be told: a data type that the layer is not known for, an output that does not
        fit, a number out of range; or where they would take far more room than the operands.
    """
    root = match.root
    kind = workspace.type(root)
    if kind not in FOLD.roots:
        raise Refused(f"constants does not take a {kind}: {workspace.describe(root)}")
    operands = [workspace.tensor(source.layer) for _, source in workspace.inputs(root)]
    given = [tensor for tensor in operands if tensor is not None]
    if not given or len(given) < len(operands):
        raise Inapplicable("the layer is not over Constants only")
    sources = feeding(workspace, root, 2 if kind in BINARY else 1)
    constants = tuple(dict.fromkeys(source.layer for source in sources))
    for source, tensor in zip(sources, given, strict=True):
        _check_constant(workspace, source, tensor)
    output = shaped_info(workspace, Source(root, 0))
    place = workspace.describe(root)
    if output.elements > max(_FEW, sum(tensor.info.elements for tensor in given)):
        raise Refused(f"{place} would be a Constant of {output.elements} elements, many more than it is made from")
    output = _as_constant(output, shaped_info(workspace, sources[0]))
    info = _as_constant(output, given[0].info)
    for tensor in given:
        tensor.require_intact()
    if kind in PERMUTES or kind == "Reshape":
        tensor, output = _moved(workspace, root, given[0], output)
        return Plan(root, tensor, output, constants)
    if kind in BINARY:
        operation = binary_operation(workspace, root)
        if np.broadcast_shapes(*(tensor.info.shape for tensor in given)) != output.shape:
            raise Refused(f"the operands of {place} do not broadcast to its output's shape {output.shape}")
        return Plan(root, computed(operation, given, info, place), output, constants)
    if given[0].info.shape != output.shape:
        raise Refused(f"{place} gives shape {output.shape} for a Constant of {given[0].info.shape}")
    if kind == "Dequantize":
        return Plan(root, dequantized(given[0], info, place), output, constants)
    if kind == "Cast":
        return Plan(root, cast(given[0], info, place), output, constants)
    return Plan(root, computed(unary_operation(workspace, root), given, info, place), output, constants)


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Let the root be a Constant; those it is made from go where nothing else reads them."""
    mind_layout_scheme(workspace, plan.tensor, workspace.describe(match.root))
    feed(workspace, match.root)
    workspace.set(
        match.root,
        type="Constant",
        params=EMPTY,
        constants=FrozenDict(input=plan.tensor),
        outputs=(plan.output,),
    )
    drop(workspace, plan.constants)
    return match.root


def _check_constant(workspace: Workspace, source: Source, tensor: Tensor) -> None:
    """A Constant whose output is what its tensor holds."""
    if tensor.untagged and tensor.info.data_type == "Float16":
        place = workspace.describe(source.layer)
        raise Refused(f"{place}: Float16 without a payload type does not fold, since Arm NN 20.08 stores BFloat16 so")
    info = shaped_info(workspace, source)
    if info.shape != tensor.info.shape or not same_values(info, tensor.info):
        place = workspace.describe(source.layer)
        raise Refused(f"{place} holds a tensor of other shape, type or quantization than its output says")


def _as_constant(info: TensorInfo, like: TensorInfo) -> TensorInfo:
    """The TensorInfo, as constant as another."""
    return info if info.is_constant == like.is_constant else replace(info, is_constant=like.is_constant)


def _moved(workspace: Workspace, root: int, tensor: Tensor, output: TensorInfo) -> tuple[Tensor, TensorInfo]:
    """The tensor after a Permute, Transpose or Reshape, and the TensorInfo of the layer that holds it."""
    place = workspace.describe(root)
    before = tensor.info
    if workspace.type(root) == "Reshape":
        shape = reshaped_to(workspace, root)
        data = tensor.data.reshape(shape)
        axis = _axis_after_reshape(before.shape, before.quantization_dim, shape) if before.quantization_scales else 0
    else:
        order = permutation(workspace, root)
        shape, data = output.shape, tensor.data.transpose(order)
        axis = order.index(before.quantization_dim) if before.quantization_dim in order else None
    if not before.quantization_scales:
        if not same_values(before, output):
            raise Refused(f"{place} gives {output.data_type} of another quantization than the Constant below it has")
        return Tensor(before.reshaped(shape), np.ascontiguousarray(data)), output
    if axis is None:
        raise Refused(
            f"the Constant below {place} is quantized along axis {before.quantization_dim} of {before.shape}, "
            f"which is no axis of {shape}"
        )
    if output.canonical_type != before.canonical_type or output.quantization_scales != before.quantization_scales:
        raise Refused(f"{place} gives other scales per axis than the Constant below it has")
    info = replace(before.reshaped(shape), quantization_dim=axis)
    return Tensor(info, np.ascontiguousarray(data)), replace(output, quantization_dim=axis)


def _axis_after_reshape(before: tuple[int, ...], axis: int, after: tuple[int, ...]) -> int | None:
    """The axis of ``after`` whose index is that of ``axis`` in ``before`` for every element, or None.

    Examples
    --------
    >>> _axis_after_reshape((4, 3, 3, 2), 0, (4, 18)), _axis_after_reshape((2, 6), 1, (12,))
    (0, None)
    """
    if not 0 <= axis < len(before):
        return None
    wanted = int(np.prod(before[:axis], dtype=np.int64)), before[axis]
    for candidate, size in enumerate(after):
        if (int(np.prod(after[:candidate], dtype=np.int64)), size) == wanted:
            return candidate
    return None


def _glance(workspace: Workspace, keys: Iterable[int]) -> list[int]:
    return [key for key in keys if workspace.reads_only(key, "Constant")]


FOLD = Fold(
    check,
    apply,
    roots=frozenset({*PERMUTES, "Reshape", "Dequantize", "Cast", *UNARY, *BINARY}),
    layers=lambda plan: (plan.root, *plan.constants),
    reach=2,
    glance=_glance,
)
