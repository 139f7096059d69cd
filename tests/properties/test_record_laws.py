"""What the records of `fuse` say of each fusion is what became of the network."""

from __future__ import annotations

from collections import Counter

import pytest

import fusion_engine as fe
from fusion_engine.engine import NOTHING
from tests.properties.test_structure_laws import Pieces
from tests.support.folding import rule

FOLDS = [found.name for found in fe.load_rules("armnn")]


@pytest.mark.parametrize("seeds", [range(40), range(40, 80)])
def test_a_result_is_told_exactly_where_something_is_left(seeds: range) -> None:
    """Each rule by itself: nothing stays of a root without a result, and what stays has the type that is told."""
    told: Counter[str] = Counter()
    for seed in seeds:
        graph = Pieces(seed, 25).net.graph
        for name in FOLDS:
            fused = fe.fuse(graph, rule(name))
            last = {fusion.layers[0].index: fusion for fusion in fused.graph["fusions"]}
            for root, fusion in last.items():
                if fusion.result == NOTHING:
                    assert root not in fused, fusion
                elif root in fused:  # else a later fusion took it away
                    assert fused.nodes[root]["type"] == fusion.result, fusion
                told[f"{name}: {'nothing' if fusion.result == NOTHING else 'a layer'}"] += 1
    assert len(told) >= 10, told
    assert {text.partition(": ")[0] for text in told} >= {"reshapes", "permutes", "equal-siblings", "constants"}
