"""Operands of unequal rank, which newer releases broadcast by themselves, get leading extents of 1."""

from __future__ import annotations

from dataclasses import replace

from fusion_engine.network import FrozenDict, Source
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.releases.passes.added import note_added
from fusion_engine.spellings import SPELLINGS
from fusion_engine.tensor import TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["BROADCASTING", "run"]

BROADCASTING = (
    *(old for old, new in SPELLINGS.items() if new.type in ("ElementwiseBinary", "Comparison")),
    "ElementwiseBinary",
    "Comparison",
    "LogicalBinary",
    "Prelu",
)
"""Layer types of two operands that broadcast."""


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Reshape the operand of lower rank: a Constant itself, anything else by a Reshape before the layer."""
    if not release.equal_ranks:
        return ()
    for key in workspace.order():
        if workspace.type(key) not in BROADCASTING:
            continue
        operands = [(slot, source, workspace.info(source)) for slot, source in workspace.inputs(key)]
        ranks = [len(info.shape) for _, _, info in operands if info is not None and info.known]
        if len(ranks) != 2 or ranks[0] == ranks[1]:
            continue
        slot, source, info = operands[ranks.index(min(ranks))]
        if info is not None:
            _reshape(workspace, key, slot, source, info, max(ranks))
    return ()


def _reshape(workspace: Workspace, key: int, slot: int, source: Source, info: TensorInfo, rank: int) -> None:
    ones = (1,) * (rank - len(info.shape))
    shape = (*ones, *info.shape)
    specific = info.dimension_specificity
    wider = replace(
        info,
        shape=shape,
        dimensionality=1,
        dimension_specificity=(*(True for _ in ones), *specific) if specific else (),
        quantization_dim=info.quantization_dim + len(ones) if info.quantization_scales else 0,
    )
    tensor = workspace.tensor(source.layer)
    workspace.disconnect(key, slot)
    if tensor is None:
        name = workspace.names.unique(f"{workspace.name(key) or workspace.type(key)}/operand")
        made = workspace.add("Reshape", name, (wider,), FrozenDict(targetShape=shape))
        workspace.connect(source, made, 0)
        note_added(workspace, made, key, slot)
    else:
        name = workspace.name(source.layer)
        gone = not workspace.uses(source.layer)
        workspace.drop_unused([source.layer])
        constants = FrozenDict(input=replace(tensor, info=wider, data=tensor.data.reshape(shape)))
        name = name if gone else workspace.names.unique(name)
        made = workspace.add("Constant", name, (wider,), constants=constants)
    workspace.connect(Source(made, 0), key, slot)
