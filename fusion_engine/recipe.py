"""The recipe of an opaque layer: what it was fused from, as canonical UTF-8 JSON in its last Constant input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusion_engine.network import Network

__all__ = ["read_recipe"]


def read_recipe(graph: Network, key: int) -> Mapping[str, Any] | None:
    """The recipe of a StandIn that this project made, else None."""
    return None
