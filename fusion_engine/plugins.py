"""What other packages bring along: objects under the entry-point groups of this one, by name."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fusion_engine.errors import FuseError

__all__ = ["Plugins", "origin"]


class Plugins:
    """The entry points of a group, looked up once.

    Parameters
    ----------
    group
        The entry-point group.
    noun
        What messages call one of them: ``"fold"``.
    reserved
        Names that cannot be taken: entry points of that name are passed over.
    """

    def __init__(self, group: str, noun: str, reserved: Collection[str] = ()) -> None:
        self.group = group
        self.noun = noun
        self._reserved = frozenset(reserved)

    @cached_property
    def _points(self) -> dict[str, tuple[EntryPoint, ...]]:
        """By name; more than one under a name is an error when it is used."""
        found: dict[str, tuple[EntryPoint, ...]] = {}
        for point in sorted(entry_points(group=self.group), key=lambda p: (p.name, p.value)):
            known = found.get(point.name, ())
            if point.name not in self._reserved and all(point.value != other.value for other in known):
                found[point.name] = (*known, point)
        return found

    def names(self) -> tuple[str, ...]:
        """Names of what is there, sorted."""
        return tuple(sorted(self._points))

    def load(self, name: str) -> tuple[Any, str]:
        """The object of that name, and its origin for messages: the package and where in it.

        Raises
        ------
        KeyError
            Where there is none.
        FuseError
            Where it cannot be loaded, or two packages claim the name.
        """
        points = self._points[name]
        if len(points) > 1:
            claims = " and ".join(origin(point) for point in points)
            raise FuseError(f"{self.noun} '{name}' is claimed by {claims}: uninstall all but one")
        where = origin(points[0])
        try:
            return points[0].load(), where
        except Exception as error:
            raise FuseError(
                f"{self.noun} '{name}' of {where} cannot be loaded: {type(error).__name__}: {error}: "
                "repair or uninstall that package"
            ) from error


def origin(point: EntryPoint) -> str:
    """The package that brings an entry point along, and where in it: ``my-npu (my_npu.rules:fits)``."""
    package = point.dist.name if point.dist is not None else "an unknown package"
    return f"{package} ({point.value})"
