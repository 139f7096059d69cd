"""Fusions whose result is an ordinary Arm NN layer: the registry, and what a fold is.

A fold is two functions. ``check`` looks at a match and gives a plan, or raises `Refused` with a
reason a user can act on; it changes nothing. ``apply`` carries the plan out on the workspace and
returns the key of the result. Third parties register theirs under the entry-point group
``fusion_engine.folds``; the entry point's name is the fold's name in rule files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from fusion_engine.match.binding import Match
from fusion_engine.workspace import Workspace

__all__ = ["Fold", "Refused", "find_fold", "fold_names"]


class Refused(Exception):
    """A rewrite is not right here; ``reason`` says why, naming layers. Never reaches a user.

    ``fuse`` turns it into a refusal of its record.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Fold:
    """A fold: preconditions and rewrite.

    Parameters
    ----------
    check
        ``check(workspace, match) -> plan``; raises Refused.
    apply
        ``apply(workspace, match, plan) -> key``: makes the result, which keeps the root's key and
        name, and removes what it consumed.
    roots
        Root types of a fold that needs no ``match`` in a rule; empty for all others.
    """

    check: Callable[[Workspace, Match], Any]
    apply: Callable[[Workspace, Match, Any], int]
    roots: frozenset[str] = frozenset()


@cache
def _registry() -> dict[str, Any]:
    from fusion_engine.folds import batch_norm

    found: dict[str, Any] = {point.name: point for point in entry_points(group="fusion_engine.folds")}
    return found | {"batch-norm": batch_norm.FOLD}


def fold_names() -> tuple[str, ...]:
    """Names that ``fold = "..."`` may take, sorted."""
    return tuple(sorted(_registry()))


def find_fold(name: str) -> Fold:
    """The fold of that name.

    Raises
    ------
    KeyError
        Where there is none.
    """
    found = _registry()[name]
    fold: Fold = found if isinstance(found, Fold) else found.load()
    return fold
