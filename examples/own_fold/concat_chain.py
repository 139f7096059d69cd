"""concat-chain: a Concat whose input is another Concat becomes one Concat.

Each view of a Concat goes to an origin in its output. So what the inner one puts at p, and the outer one
with all of the inner at q, goes to p + q. Nothing is computed, and every bit stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusion_engine import FrozenDict, TensorInfo
from fusion_engine.folds import Fold, Refused
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.workspace import Workspace

__all__ = ["FOLD"]

CONCATS = ("Concat", "Merger")
"""The layer in its present and its deprecated spelling: a rule on one of them finds both."""

Origin = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What `apply` does: the inputs of the one Concat, and where each goes."""

    inputs: tuple[Source, ...]
    origins: tuple[Origin, ...]


def check(workspace: Workspace, match: Match) -> Plan:
    """Whether the fold is right here, and what is to be done; changes nothing.

    Raises
    ------
    Refused
        Where it is not; the reason ends up in the report, so it names layers and values.
    """
    if len(match.layers) != 2 or any(workspace.type(key) not in CONCATS for key in match.layers):
        kinds = ", ".join(workspace.type(key) for key in match.layers)
        raise Refused(f"concat-chain takes a Concat over a Concat; the match holds {kinds}")
    outer, inner = match.layers
    inputs: list[Source] = []
    origins: list[Origin] = []
    for source, origin in views(workspace, outer):
        if source.layer == inner:
            for deeper, offset in views(workspace, inner):
                inputs.append(deeper)
                origins.append(tuple(a + b for a, b in zip(origin, offset, strict=True)))
        else:
            inputs.append(source)
            origins.append(origin)
    # A Concat may change the quantization of what it joins. Then it rounds, and two of them round twice.
    target = numbers(workspace, Source(outer, 0))
    for source in (Source(inner, 0), *(source for source, _ in views(workspace, inner))):
        if numbers(workspace, source) != target:
            names = f"{workspace.describe(source.layer)} and {workspace.describe(outer)}"
            raise Refused(f"{names} differ in data type or quantization")
    return Plan(tuple(inputs), tuple(origins))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Carry the plan out; the result keeps the key, the name and the outputs of the root."""
    outer, inner = match.layers
    workspace.remove(inner)
    workspace.rewire(outer, plan.inputs)
    former = workspace.graph.nodes[outer]["params"]
    workspace.set(outer, params=FrozenDict({**former, "numViews": len(plan.inputs), "viewOrigins": plan.origins}))
    return outer


def views(workspace: Workspace, key: int) -> list[tuple[Source, Origin]]:
    """The inputs of a Concat, each with its origin in the output."""
    node = workspace.graph.nodes[key]
    sources = [source for _, source in workspace.inputs(key)]
    origins = workspace.param(key, "viewOrigins") or ()
    if node.get("overrides"):
        raise Refused(f"{workspace.describe(key)} overrides the TensorInfo of an input")
    if len(sources) != len(origins):
        raise Refused(f"{workspace.describe(key)} has {len(sources)} inputs and {len(origins)} origins")
    rank = len(info_of(workspace, Source(key, 0)).shape)
    if any(len(origin) != rank for origin in origins):
        raise Refused(f"{workspace.describe(key)} has origins of another rank than its output, {rank}")
    return [(source, tuple(origin)) for source, origin in zip(sources, origins, strict=True)]


def info_of(workspace: Workspace, source: Source) -> TensorInfo:
    """The TensorInfo of a tensor, which a file may lack."""
    info = workspace.info(source)
    if info is None:
        raise Refused(f"{workspace.describe(source.layer)} has no TensorInfo for its output {source.slot}")
    return info


def numbers(workspace: Workspace, source: Source) -> tuple[object, ...]:
    """What a tensor's stored values stand for: type and quantization."""
    info = info_of(workspace, source)
    if info.data_type in ("Float32", "Float16"):
        return (info.data_type,)  # A float's scale means nothing.
    return (info.canonical_type, info.quantization_scale, info.quantization_offset, info.quantization_scales)


FOLD = Fold(check, apply)
