"""What a matcher gives: one way in which a rule's pattern lies on the network."""

from __future__ import annotations

from typing import NamedTuple

from fusion_engine.network import Source

__all__ = ["Edge", "Match"]


class Edge(NamedTuple):
    """A connection: what feeds which input slot of which layer."""

    source: Source
    layer: int
    input_slot: int


class Match(NamedTuple):
    """One complete binding of a pattern at a root.

    Attributes
    ----------
    root
        Key of the layer the pattern's root is bound to.
    layers
        The consumed layers, Constants left out: in pattern order, root first, each once.
    kept
        Layers bound to kept elements, in pattern order, each once.
    constants
        Constant layers that consumed elements of the pattern name, in pattern order, each once.
    inputs
        The outside inputs in order: each data-input edge into a consumed layer from a layer that
        is neither consumed nor in ``constants``; the pattern depth first, left to right.
    bound
        (pattern layer id, layer key) of every named layer, in pattern order.
    """

    root: int
    layers: tuple[int, ...]
    kept: tuple[int, ...]
    constants: tuple[int, ...]
    inputs: tuple[Edge, ...]
    bound: tuple[tuple[int, int], ...]
