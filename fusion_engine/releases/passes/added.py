"""Layers that a step adds before another: they belong into the opaque layer that the other one is in."""

from __future__ import annotations

from fusion_engine.network import FrozenDict, Source
from fusion_engine.workspace import Workspace

__all__ = ["added_layers", "keep_apart", "note_added"]

_MEMO = "releases: added layers"


def note_added(workspace: Workspace, key: int, owner: int, slot: int) -> None:
    """Note a layer that was added before ``owner``; its input slot 0 takes what the owner's ``slot`` took."""
    workspace.memo.setdefault(_MEMO, {})[key] = (owner, slot)


def added_layers(workspace: Workspace) -> dict[int, tuple[int, int]]:
    """The layers that were noted, each with its owner and slot."""
    found: dict[int, tuple[int, int]] = workspace.memo.get(_MEMO, {})
    return found


def keep_apart(workspace: Workspace, key: int, suffix: str) -> None:
    """Put a Reshape to the same shape before a layer's input slot 0, which no optimizer folds anything across.

    The Reshape is named as the layer is, with the suffix. Where the shape is not known nothing is done.
    """
    source = workspace.source(key, 0)
    info = None if source is None else workspace.info(source)
    if source is None or info is None or not info.known:
        return
    name = workspace.names.unique(f"{workspace.name(key) or workspace.type(key)}/{suffix}")
    workspace.disconnect(key, 0)
    made = workspace.add("Reshape", name, (info,), FrozenDict(targetShape=info.shape))
    workspace.connect(source, made, 0)
    workspace.connect(Source(made, 0), key, 0)
    note_added(workspace, made, key, 0)
