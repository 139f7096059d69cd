"""equal-siblings: layers that do the same to the same output are one; its consumers read the first of them.

For Permute and Transpose (in any mixture), Reshape, Quantize and Dequantize.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from fusion_engine.folds import Fold, Inapplicable, Refused
from fusion_engine.folds.moves import PERMUTES, feeding, permutation, reshaped_to, shaped_info
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.tensor import FLOATS
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "Plan", "apply", "check"]

_MEMO = "folds.siblings"

_TYPES = frozenset({*PERMUTES, "Reshape", "Quantize", "Dequantize"})


@dataclass(frozen=True)
class Plan:
    """The root and the layers that it will stand for."""

    root: int
    others: tuple[int, ...]


def check(workspace: Workspace, match: Match) -> Plan:
    """The layers equal to the root on the output that feeds it.

    Raises
    ------
    Refused
        Where the root is no such layer, or its parameters do not make its output.
    """
    root = match.root
    if workspace.type(root) not in _TYPES:
        raise Refused(
            f"equal-siblings takes {', '.join(sorted(_TYPES))}; {workspace.describe(root)} is a {workspace.type(root)}"
        )
    (source,) = feeding(workspace, root)
    if len(workspace.uses(source.layer)) < 2:
        raise Inapplicable(f"{workspace.describe(root)} has no sibling")
    others = tuple(key for key in _groups(workspace, source).get(_content(workspace, root), ()) if key != root)
    if not others:
        raise Inapplicable(f"{workspace.describe(root)} has no equal sibling")
    return Plan(root, others)


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Feed the consumers of the others by the root, and remove them."""
    for other in plan.others:
        for use in workspace.uses(other):
            workspace.disconnect(use.layer, use.input_slot)
            workspace.connect(Source(match.root, 0), use.layer, use.input_slot)
        workspace.remove(other)
    return match.root


def _groups(workspace: Workspace, source: Source) -> dict[Hashable, list[int]]:
    """The layers of these types on an output by what they do, as the network stands now."""
    revision, found = workspace.memo.get(_MEMO, (-1, {}))
    if revision != workspace.revision:
        found = {}
        workspace.memo[_MEMO] = (workspace.revision, found)
    if source not in found:
        groups: dict[Hashable, list[int]] = {}
        for use in workspace.uses(source.layer):
            if use.slot == source.slot and workspace.type(use.layer) in _TYPES:
                try:
                    groups.setdefault(_content(workspace, use.layer), []).append(use.layer)
                except Refused:
                    continue
        found[source] = groups
    known: dict[Hashable, list[int]] = found[source]
    return known


def _content(workspace: Workspace, key: int) -> Hashable:
    """What a layer does to its input, equal for equal layers; Refused where its parameters do not say."""
    feeding(workspace, key)
    kind = workspace.type(key)
    if kind in PERMUTES:
        done: Hashable = ("Permute", permutation(workspace, key))
    elif kind == "Reshape":
        done = (kind, reshaped_to(workspace, key))
    else:
        done = kind
    info = shaped_info(workspace, Source(key, 0))
    quantization = () if info.data_type in FLOATS and not info.quantization_scales else info.quantization
    return done, info.shape, info.canonical_type, quantization


FOLD = Fold(check, apply, roots=_TYPES, layers=lambda plan: (plan.root, *plan.others), reach=3)
