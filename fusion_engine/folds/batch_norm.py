"""batch-norm: BatchNormalization into the layer below it."""

from __future__ import annotations

from typing import Any

from fusion_engine.folds import Fold, Refused
from fusion_engine.match.binding import Match
from fusion_engine.workspace import Workspace


def check(workspace: Workspace, match: Match) -> Any:
    """Not there yet."""
    raise Refused("batch-norm is not there yet")


def apply(workspace: Workspace, match: Match, plan: Any) -> int:
    """Not there yet."""
    raise NotImplementedError


FOLD = Fold(check, apply)
