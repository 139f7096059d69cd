"""The canonical order of a network's layers."""

from __future__ import annotations

from fusion_engine.network import Network

__all__ = ["canonical_order"]


def canonical_order(graph: Network) -> list[int]:
    """Every layer once, in canonical order."""
    return sorted(graph.nodes)
