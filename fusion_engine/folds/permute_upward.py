"""permute-upward: permutations on both sides of elementwise layers become one, or none.

For a Permute or Transpose P over elementwise layers over a Permute or Transpose T,

    P(e(T(x), c)) = P(T(e(x, T⁻¹(c)))),

and P ∘ T is one permutation. The elementwise layers then work on the tensor as it was before T, so
that Constants they take are permuted the other way, once. Where several inputs are permuted, they must be
permuted alike. Only the whole way is gone, in one step: a permutation is never moved to where it
stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fusion_engine.folds import Fold, Inapplicable, Refused
from fusion_engine.folds.arithmetic import BINARY, UNARY
from fusion_engine.folds.moves import (
    PERMUTES,
    drop,
    feed,
    feeding,
    inverse,
    mappings,
    mind_layout_scheme,
    permutation,
    require_same_values,
    shaped_info,
)
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_ONE_INPUT = frozenset({*UNARY, "Cast", "Quantize", "Dequantize"})
_TWO_INPUTS = frozenset({*BINARY, "Comparison", "Equal", "Greater", "LogicalBinary"})


@dataclass(frozen=True)
class _Step:
    """An elementwise layer, what will feed it, and the TensorInfo of its output then.

    An operand is the layer below (None), an output below a permutation, or a Constant's new tensor
    with the key of the old one.
    """

    layer: int
    operands: tuple[Source | tuple[int, Tensor] | None, ...]
    output: TensorInfo


@dataclass(frozen=True)
class Plan:
    """What becomes of a root and the layers below it.

    Attributes
    ----------
    root
        The upper permutation.
    order
        Its order of dimensions afterwards; None where it goes.
    steps
        The elementwise layers, down from the root.
    lowers
        The permutations below them.
    """

    root: int
    order: tuple[int, ...] | None
    steps: tuple[_Step, ...]
    lowers: tuple[int, ...]


def check(workspace: Workspace, match: Match) -> Plan:
    """What is left of a permutation over elementwise layers over a permutation.

    Raises
    ------
    Refused
        Where one of the layers in between or the permutation below is used elsewhere too, the inputs
        are not all permuted alike, or a Constant cannot be permuted.
    """
    root = match.root
    if workspace.type(root) not in PERMUTES:
        raise Refused(
            f"permute-upward takes a Permute or Transpose; {workspace.describe(root)} is a {workspace.type(root)}"
        )
    chain, lowers = _down(workspace, root)
    (source,) = feeding(workspace, root)
    order = permutation(workspace, root)
    require_same_values(workspace, source, Source(root, 0))
    moved = permutation(workspace, lowers[0])
    for lower in lowers:
        if permutation(workspace, lower) != moved:
            raise Refused(f"{workspace.describe(lower)} permutes otherwise than {workspace.describe(lowers[0])}")
        require_same_values(workspace, feeding(workspace, lower)[0], Source(lower, 0))
    readers = {root, *chain}
    for key in (*chain, *lowers):
        for use in workspace.uses(key):
            if use.layer not in readers:
                raise Refused(
                    f"{workspace.describe(key)} is used elsewhere too: {workspace.describe(use.layer)} reads it"
                )
    steps = tuple(_step(workspace, key, moved) for key in chain)
    merged = tuple(moved[of] for of in order)
    if merged == tuple(range(len(merged))):
        return Plan(root, None, steps, lowers)
    return Plan(root, merged, steps, lowers)


def _down(workspace: Workspace, root: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The elementwise layers below a layer, from above, and the permutations that feed the last of them."""
    chain: list[int] = []
    at = workspace.source(root, 0)
    while at is not None:
        kind = workspace.type(at.layer)
        if kind not in _ONE_INPUT and kind not in _TWO_INPUTS:
            break
        chain.append(at.layer)
        below = [source for _, source in workspace.inputs(at.layer) if workspace.type(source.layer) != "Constant"]
        if below and all(workspace.type(source.layer) in PERMUTES for source in below):
            return tuple(chain), tuple(dict.fromkeys(source.layer for source in below))
        at = below[0] if len(set(below)) == 1 else None
    raise Inapplicable(f"no permutation lies below {workspace.describe(root)}")


def _step(workspace: Workspace, key: int, moved: tuple[int, ...]) -> _Step:
    """An elementwise layer as it will be."""
    sources = feeding(workspace, key, 2 if workspace.type(key) in _TWO_INPUTS else 1)
    output = shaped_info(workspace, Source(key, 0))
    if len(output.shape) != len(moved) or output.quantization_scales:
        raise Refused(f"{workspace.describe(key)} gives {output.shape}, not a tensor of the {len(moved)} axes below it")
    operands: list[Source | tuple[int, Tensor] | None] = []
    for source in sources:
        if workspace.type(source.layer) in PERMUTES:
            operands.append(feeding(workspace, source.layer)[0])
        elif workspace.type(source.layer) == "Constant":
            operands.append((source.layer, _moved_back(workspace, source.layer, moved)))
        else:
            operands.append(None)
    shape = tuple(output.shape[of] for of in inverse(moved))
    return _Step(key, tuple(operands), replace(output, shape=shape))


def _moved_back(workspace: Workspace, constant: int, moved: tuple[int, ...]) -> Tensor:
    """The tensor of a Constant, permuted so that the permutation ``moved`` gives what it was."""
    tensor = workspace.tensor(constant)
    place = workspace.describe(constant)
    if tensor is None or tensor.info.quantization_scales or (tensor.untagged and tensor.info.data_type == "Float16"):
        raise Refused(f"{place} has a tensor that is quantized per axis or of no certain type")
    rank = len(moved)
    if len(tensor.info.shape) > rank:
        raise Refused(f"{place} has rank {len(tensor.info.shape)}, more than the {rank} axes that are permuted")
    if tensor.info.elements == 1:
        return tensor
    tensor.require_intact()
    full = (1,) * (rank - len(tensor.info.shape)) + tensor.info.shape
    data = tensor.data.reshape(full).transpose(inverse(moved))
    return Tensor(tensor.info.reshaped(data.shape), np.ascontiguousarray(data))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Rewire from below; where no permutation is left, the topmost elementwise layer takes the root's place."""
    changed: dict[int, int] = {}
    for step, below in zip(plan.steps, [*plan.steps[1:], None], strict=True):
        operands = [_operand(workspace, operand, below, changed) for operand in step.operands]
        feed(workspace, step.layer, *operands)
        workspace.set(step.layer, outputs=(step.output,))
    drop(workspace, plan.lowers)
    for new, old in changed.items():
        name = workspace.name(old)
        workspace.drop_unused([old])
        if old not in workspace.graph:
            workspace.set(new, name=name)
    if plan.order is None:
        workspace.take_over(match.root, plan.steps[0].layer)
    else:
        params = workspace.graph.nodes[match.root]["params"]
        order = mappings(workspace.type(match.root), plan.order)
        workspace.set(match.root, params=params.with_(dimMappings=order))
        workspace.unset(match.root, "overrides")
    return match.root


def _operand(
    workspace: Workspace, operand: Source | tuple[int, Tensor] | None, below: _Step | None, changed: dict[int, int]
) -> Source:
    """What feeds a slot of an elementwise layer; a Constant that changes is a new one, noted in ``changed``."""
    if isinstance(operand, Source):
        return operand
    if operand is None:
        assert below is not None
        return Source(below.layer, 0)
    key, tensor = operand
    if tensor is workspace.tensor(key):
        return Source(key, 0)
    mind_layout_scheme(workspace, tensor, workspace.describe(key))
    (info,) = workspace.outputs(key)
    new = workspace.add_constant(workspace.name(key), tensor)
    if info is not None:
        workspace.set(new, outputs=(info.reshaped(tensor.info.shape),))
    changed[new] = key
    return Source(new, 0)


FOLD = Fold(
    check,
    apply,
    roots=PERMUTES,
    layers=lambda plan: (plan.root, *(step.layer for step in plan.steps), *plan.lowers),
)
