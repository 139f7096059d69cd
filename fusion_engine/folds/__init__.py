"""Fusions whose result is an ordinary Arm NN layer: the registry, and what a fold is.

A fold is two functions. ``check`` looks at a match and gives a plan, or raises `Refused` with a
reason a user can act on; it changes nothing. ``apply`` carries the plan out on the workspace and
returns the key of the result. Third parties register theirs under the entry-point group
``fusion_engine.folds``; the entry point's name is the fold's name in rule files, and the names of
this package's own folds cannot be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fusion_engine.errors import FuseError
from fusion_engine.plugins import Plugins

if TYPE_CHECKING:
    from fusion_engine.match.binding import Match
    from fusion_engine.workspace import Workspace

__all__ = ["ENTRY_POINTS", "Accepts", "Fold", "Inapplicable", "Refused", "find_fold", "fold_names"]

ENTRY_POINTS = "fusion_engine.folds"
"""The entry-point group of third parties' folds."""


class Refused(Exception):
    """A rewrite is not right here; ``reason`` says why, naming layers. Never reaches a user.

    ``fuse`` turns it into a refusal of its record.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Inapplicable(Refused):
    """The match holds nothing that the fold is about, so there is nothing to tell: ``fuse`` keeps no record of it.

    For folds that find their layers themselves and so are asked about every layer of their root types.
    """


@dataclass(frozen=True)
class Accepts:
    """What a fold may accept: types of the layers that a match takes in, in the order of `Match.layers`.

    Parameters
    ----------
    layers
        For each layer, the root first, the types that it may have; a deprecated type stands for its present spelling
        too.
    more
        Whether further layers may follow.
    """

    layers: tuple[frozenset[str], ...]
    more: bool = False

    def __str__(self) -> str:
        return " over ".join(
            f"{len(types)} types" if len(types) > 8 else " or ".join(sorted(types)) for types in self.layers
        )


@dataclass(frozen=True)
class Fold:
    """A fold: preconditions and rewrite.

    Parameters
    ----------
    check
        ``check(workspace, match) -> plan``; raises Refused.
    apply
        ``apply(workspace, match, plan) -> key``: makes the result, which keeps the root's key and
        name, and removes what it consumed. None where nothing is left of the root.
    roots
        Root types of a fold that needs no ``match`` in a rule; empty for all others. Such a fold itself
        sees to it that what it takes away is used nowhere else.
    layers
        ``layers(plan) -> keys``: what a plan of such a fold takes in, the root first, for the record;
        None where that is what the match holds.
    reach
        How many connections beyond the layers of the match lies what ``check`` looks at, at the most. The
        engine then does not ask again about a match that was refused while nothing changed so near. None,
        the default, where it may look anywhere.
    glance
        ``glance(workspace, keys) -> keys``: of layers of the root types those that are worth a ``check``; for
        all others that would raise Inapplicable. A quick look for folds with ``roots``; None for all.
    prepare
        ``prepare(workspace, roots)``: called before a rule with this fold goes over many roots, so that the
        fold may compute in a batch what ``check`` would compute one by one. Changes nothing.
    accepts
        What ``check`` may accept, for `lint`: whatever is none of these it refuses. Empty where that is not said.
    """

    check: Callable[[Workspace, Match], Any]
    apply: Callable[[Workspace, Match, Any], int | None]
    roots: frozenset[str] = frozenset()
    layers: Callable[[Any], tuple[int, ...]] | None = None
    reach: int | None = None
    glance: Callable[[Workspace, Iterable[int]], list[int]] | None = None
    prepare: Callable[[Workspace, Sequence[int]], None] | None = None
    accepts: tuple[Accepts, ...] = ()


OWN = {
    "batch-norm": "fusion_engine.folds.batch_norm",
    "batch-norm-chain": "fusion_engine.folds.batch_norm_chain",
    "scale": "fusion_engine.folds.scale",
    "shift": "fusion_engine.folds.shift",
    "permutes": "fusion_engine.folds.permutes",
    "permute-as-reshape": "fusion_engine.folds.permute_as_reshape",
    "permute-upward": "fusion_engine.folds.permute_upward",
    "reshapes": "fusion_engine.folds.reshapes",
    "equal-siblings": "fusion_engine.folds.siblings",
    "constants": "fusion_engine.folds.constants",
    "quantize-pairs": "fusion_engine.folds.quantize_pairs",
    "space-depth": "fusion_engine.folds.space_depth",
    "dead-ends": "fusion_engine.folds.dead_ends",
    "identity-layers": "fusion_engine.folds.identity_layers",
    "pad": "fusion_engine.folds.pad",
    "clamp": "fusion_engine.folds.clamp",
    "activation-chain": "fusion_engine.folds.activation_chain",
    "noop-activation": "fusion_engine.folds.noop_activation",
}
"""The folds of this package: the module of each, whose ``FOLD`` it is."""


@cache
def _plugins() -> Plugins:
    return Plugins(ENTRY_POINTS, "fold", OWN)


def fold_names() -> tuple[str, ...]:
    """Names that ``fold = "..."`` may take, sorted."""
    return tuple(sorted({*OWN, *_plugins().names()}))


@cache
def find_fold(name: str) -> Fold:
    """The fold of that name.

    Raises
    ------
    KeyError
        Where there is none.
    FuseError
        Where a third party's fold cannot be loaded, is no `Fold`, or two claim the name.

    Examples
    --------
    >>> find_fold("batch-norm").roots
    frozenset()
    """
    if name in OWN:
        own: Fold = import_module(OWN[name]).FOLD
        return own
    loaded, origin = _plugins().load(name)
    if not isinstance(loaded, Fold):
        raise FuseError(
            f"fold '{name}' of {origin} is a {type(loaded).__name__}: "
            "its entry point must name a fusion_engine.folds.Fold"
        )
    return loaded
