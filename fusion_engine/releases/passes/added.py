"""Layers that a step adds before another: they belong into the opaque layer that the other one is in."""

from __future__ import annotations

from fusion_engine.workspace import Workspace

__all__ = ["added_layers", "note_added"]

_MEMO = "releases: added layers"


def note_added(workspace: Workspace, key: int, owner: int, slot: int) -> None:
    """Note a layer that was added before ``owner``; its input slot 0 takes what the owner's ``slot`` took."""
    workspace.memo.setdefault(_MEMO, {})[key] = (owner, slot)


def added_layers(workspace: Workspace) -> dict[int, tuple[int, int]]:
    """The layers that were noted, each with its owner and slot."""
    found: dict[int, tuple[int, int]] = workspace.memo.get(_MEMO, {})
    return found
