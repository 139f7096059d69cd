"""Groups: a match whose layers stay ordinary and get a common name prefix, ``ConvRelu:10123456789/``.

The number is a counter, which makes the prefix unique in its network, followed by a ten-digit
checksum of the group's name and the counter. So a prefix proves itself, after any tool has loaded
and saved the file, and a user's own ``block:1/`` is never taken for one. Constants stay out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zlib import crc32

import networkx as nx

from fusion_engine.folds import Refused

if TYPE_CHECKING:
    from fusion_engine.match.binding import Match
    from fusion_engine.network import Network
    from fusion_engine.workspace import Workspace

__all__ = ["Group", "apply", "check", "group_of", "is_grouped", "prefix"]

_PREFIX = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):([1-9][0-9]{0,8})([0-9]{10})/(.*)", re.DOTALL | re.ASCII)
_SALT = b"fusion-engine group"


class Group(NamedTuple):
    """A grouped layer's name in its parts.

    ``result`` is the group's name in its rule, ``counter`` tells groups of that name apart, ``rest``
    is the name that the layer had before.
    """

    result: str
    counter: int
    rest: str


class GroupRule(Protocol):
    """What this module needs of a rule."""

    @property
    def group(self) -> str | None:
        """Name of the group."""


def prefix(result: str, counter: int) -> str:
    """The prefix of a group's layers.

    Examples
    --------
    >>> prefix("ConvRelu", 1)
    'ConvRelu:11399574461/'
    """
    return f"{result}:{counter}{_checksum(result, str(counter))}/"


def _checksum(result: str, counter: str) -> str:
    return f"{crc32(_SALT + f'{result}:{counter}'.encode()):010d}"


def group_of(name: str) -> Group | None:
    """The group that a layer of this name is in; None where it has no prefix of ours.

    Examples
    --------
    >>> group_of(prefix("ConvRelu", 7) + "block/relu")
    Group(result='ConvRelu', counter=7, rest='block/relu')
    >>> group_of("ConvRelu:70123456789/relu") is None
    True
    """
    found = _PREFIX.fullmatch(name)
    if found is None:
        return None
    result, counter, checksum, rest = found.groups()
    return Group(result, int(counter), rest) if _checksum(result, counter) == checksum else None


def is_grouped(workspace: Workspace | Network, key: int) -> bool:
    """Whether a layer is in a group: later ``into`` and ``group`` rules leave it alone."""
    graph = workspace if isinstance(workspace, nx.DiGraph) else workspace.graph
    return group_of(graph.nodes[key].get("name", "")) is not None


def check(workspace: Workspace, match: Match, rule: GroupRule) -> str:
    """Whether a match can become a group.

    Returns
    -------
    str
        The plan: the group's name.

    Raises
    ------
    Refused
        Where a layer's name must stay (Input, Output), where it is in a group already, and where
        there is nothing to group.
    """
    if not match.layers:
        raise Refused("nothing is consumed that could be grouped: Constants are in no group")
    for key in match.layers:
        if workspace.type(key) in ("Input", "Output"):
            raise Refused(
                f"{workspace.describe(key)} is an {workspace.type(key)}, whose name belongs to the network's users: "
                "mark it with ! in the rule to keep it out of the group"
            )
        if is_grouped(workspace, key):
            raise Refused(f"{workspace.describe(key)} is in a group already")
    return str(rule.group)


def apply(workspace: Workspace, match: Match, plan: str) -> int:
    """Give the consumed layers the prefix of the smallest number that is free; returns the root's key."""
    used = _used(workspace).setdefault(plan, set())
    counter = _counters(workspace).get(plan, 1)
    while counter in used:
        counter += 1
    used.add(counter)
    _counters(workspace)[plan] = counter
    start = prefix(plan, counter)
    for key in match.layers:
        workspace.set(key, name=start + workspace.name(key))
    return match.root


def _used(workspace: Workspace) -> dict[str, set[int]]:
    """Counters in use by group name: gathered once, since groups never go during a run."""
    found: dict[str, set[int]] | None = workspace.memo.get("group.used")
    if found is None:
        found = workspace.memo["group.used"] = {}
        for key in workspace.graph:
            group = group_of(workspace.name(key))
            if group is not None:
                found.setdefault(group.result, set()).add(group.counter)
    return found


def _counters(workspace: Workspace) -> dict[str, int]:
    """Where the search for a free counter goes on, by group name."""
    found: dict[str, int] = workspace.memo.setdefault("group.counters", {})
    return found
