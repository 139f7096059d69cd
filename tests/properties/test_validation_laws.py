"""Law: that layers which share what they hold are looked at once changes no problem that `validate` tells."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_engine import validation
from fusion_engine.network import EMPTY, FrozenDict, Network, bare_copy
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.validation import validate
from tests.support.strategies import random_network

BAD_INFO = TensorInfo((1, 2), "Float31")


def bad_tensor() -> Tensor:
    """A tensor whose data is of another shape than its TensorInfo says."""
    tensor = Tensor.of([1.0, 2.0])
    object.__setattr__(tensor, "data", np.zeros((3, 1), np.float32))
    return tensor


def twice(graph: Network) -> Network:
    """Two copies of a network in one, which share every attribute value."""
    step = max(graph, default=0) + 1
    both = bare_copy(graph)
    for key, node in graph.nodes(data=True):
        both.add_node(key + step, **node)
    for source, target, data in graph.edges(data=True):
        both.add_edge(source + step, target + step, **data)
    return both


def spoil(graph: Network, random: Random) -> None:
    """Put something into a node or an edge that may not be right there."""
    key = random.choice(list(graph))
    held = graph.nodes[random.choice(list(graph))]
    values: dict[str, list[Any]] = {
        "type": ["Floor", "Addition", 7, None, "Constant"],
        "name": ["x", "\ud800", 5, None],
        "params": [EMPTY, None, FrozenDict(strideX=-1), FrozenDict(axis=(1,)), held.get("params"), 3],
        "constants": [EMPTY, None, FrozenDict(weights=bad_tensor()), FrozenDict(input=3), held.get("constants")],
        "outputs": [(), None, (BAD_INFO,), (None,), held.get("outputs"), [TensorInfo((1,))]],
        "binding_id": [0, None, 2**40],
        "unconnected": [(1,), None],
        "overrides": [{0: (True, None)}, {5: (True, BAD_INFO)}, None],
    }
    what = random.choice([*values, "edge"])
    if what == "edge":
        edges = list(graph.edges)
        if edges:
            slots: list[Any] = [((0, 0),), ((0, 3),), ((9, 0),), (), None, ((0, 0), (0, 1)), [(0, 0)], ((True, 0),)]
            graph.edges[random.choice(edges)]["slots"] = random.choice(slots)
    else:
        graph.nodes[key][what] = random.choice(values[what])


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 4))
def test_problems_are_those_of_each_layer_by_itself(seed: int, layers: int, faults: int) -> None:
    random = Random(seed)
    graph = twice(random_network(seed, layers))
    for _ in range(faults):
        spoil(graph, random)
    told = validate(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation._Validator, "_alike", lambda *_: None)
        assert told == validate(graph)


def test_layers_that_share_what_they_hold_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = twice(twice(random_network(7, 9)))
    count = 0
    one = validation._Validator._layer

    def counted(self: validation._Validator, key: int, node: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        one(self, key, node)

    monkeypatch.setattr(validation._Validator, "_layer", counted)
    validate(graph)
    assert count < len(graph) * 0.75
