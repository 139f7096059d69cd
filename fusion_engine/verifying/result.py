"""What verification found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from fusion_engine.engine import Fusion, LayerRef

__all__ = ["FusionCheck", "RegionCheck", "Status", "Verification"]

Status: TypeAlias = Literal["verified", "unverified", "failed"]

_WORSE: dict[Status, int] = {"verified": 0, "unverified": 1, "failed": 2}


@dataclass(frozen=True)
class RegionCheck:
    """A part of the network that was changed, run before and after.

    Attributes
    ----------
    before, after
        Its layers in both networks, Constants among them; those of ``before`` by their keys there. Empty
        where the tensor is the region's input itself.
    status
        ``"verified"``: both gave the same on every input, to the tolerance. ``"failed"``: they did not.
        ``"unverified"``: they could not be run, or not on values on which they could differ.
    difference
        The largest, None where nothing was run.
    unit
        Of the difference: ``"relative"`` to the largest value of the tensor, ``"quanta"``, or
        ``"absolute"``; None where nothing was run.
    tolerance
        The largest difference allowed, in the same unit; None where nothing was run.
    reason
        Why it is not verified; None where it is.
    """

    before: tuple[LayerRef, ...]
    after: tuple[LayerRef, ...]
    status: Status
    difference: float | None = None
    unit: str | None = None
    tolerance: float | None = None
    reason: str | None = None

    @property
    def weight(self) -> tuple[int, float]:
        """What orders regions from best to worst: status, then difference in tolerances."""
        share = 0.0
        if self.difference:
            share = self.difference / self.tolerance if self.tolerance else float("inf")
        return (_WORSE[self.status], share)


@dataclass(frozen=True)
class FusionCheck:
    """What became of a fusion: the worst of the regions that it had a part in. Attributes as of `RegionCheck`."""

    fusion: Fusion
    status: Status
    difference: float | None = None
    unit: str | None = None
    tolerance: float | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """What a report says of it; a difference that is not finite as a string."""
        difference = self.difference
        shown = difference if difference is None or abs(difference) != float("inf") else "Infinity"
        return {
            "status": self.status,
            "difference": shown,
            "unit": self.unit,
            "tolerance": self.tolerance,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    regions
        Every part of the network that was changed, in canonical order.
    fusions
        One entry per entry of the fused network's ``graph["fusions"]``, in the same order.
    """

    regions: tuple[RegionCheck, ...]
    fusions: tuple[FusionCheck, ...]

    @property
    def status(self) -> Status:
        """The worst status of all regions and fusions; ``"verified"`` where nothing was changed."""
        statuses = [*(region.status for region in self.regions), *(check.status for check in self.fusions)]
        return max(statuses, key=_WORSE.__getitem__, default="verified")

    @property
    def failures(self) -> tuple[str, ...]:
        """Why it failed: a text per region that did."""
        return tuple(region.reason or "" for region in self.regions if region.status == "failed")

    def as_json(self) -> dict[str, Any]:
        """What a report says of a model: the status, and how many regions and fusions there are of each."""
        counts: dict[str, Any] = {"status": self.status, "regions": len(self.regions)}
        return counts | {status: self.count(status) for status in _WORSE}

    def count(self, status: Status) -> int:
        """Number of fusions of a status."""
        return sum(check.status == status for check in self.fusions)
