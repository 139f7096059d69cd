"""Matches without a rule: random ones on any network, and those of a chain by hand."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fusion_engine.match.binding import Edge, Match
from fusion_engine.workspace import Workspace


def match_of(work: Workspace, layers: Sequence[int], constants: Sequence[int] = ()) -> Match:
    """The match that consumes ``layers``, root first, and names ``constants``: outside inputs by layer and slot."""
    inside = {*layers, *constants}
    inputs = [
        Edge(source, key, slot)
        for key in layers
        for slot, source in work.data_inputs(key)
        if source.layer not in inside
    ]
    return Match(layers[0], tuple(layers), (), tuple(constants), tuple(inputs), ())


def random_match(work: Workspace, root: int, random: Random) -> Match:
    """A safe match at a root: some of the layers above that nothing else reads, and some Constants."""
    layers, constants = [root], []
    number = 0
    while number < len(layers):
        for _, source in work.data_inputs(layers[number]):
            key = source.layer
            if key in layers or key in constants or work.type(key) in ("Input", "Output"):
                continue
            if work.type(key) == "Constant":
                if random.random() < 0.5:
                    constants.append(key)
            elif random.random() < 0.7 and all(use.layer in layers for use in work.uses(key)):
                layers.append(key)
        number += 1
    return match_of(work, layers, constants)
