"""Which layers of two networks stand for each other: by key, by binding id, by name, and by how they are connected."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.canonical import canonical_order
from fusion_engine.network import FrozenDict, Network
from fusion_engine.tensor import TensorInfo
from fusion_engine.verifying.pairing import Pairing, value_numbers
from tests.support.nets import Net


def pairing(before: Network, after: Network, shared: list[int] | None = None) -> Pairing:
    return Pairing(before, after, canonical_order(before), shared)


def branches() -> Network:
    """Keys: 0 x; 1 a, 2 b, 3 c; 4 d; 5, an Output of 4; 6, one of 1."""
    net = Net()
    x = net.input((1, 4), binding_id=7)
    a = net.activation(x, "ReLu", name="a")
    b = net.activation(a, "TanH", name="b")
    c = net.activation(a, "Abs", name="c")
    d = net.addition(b, c, name="d")
    net.output(d, binding_id=8)
    net.output(a, binding_id=9)
    return net.graph


def renamed(graph: Network, *names: str) -> Network:
    """A copy in which the layers that compute have these names, and keys that are larger by 100."""
    other = fe.fuse(graph, ())
    for key, name in zip((1, 2, 3, 4), names, strict=True):
        other.nodes[key]["name"] = name
    moved = nx.relabel_nodes(other, {key: key + 100 for key in other})
    for ends in ("inputs", "outputs"):
        moved.graph[ends] = tuple(key + 100 for key in other.graph[ends])
    return moved


WHOLE = {key: key + 100 for key in range(7)}


def test_names_pair_layers_that_do_something_else() -> None:
    before = branches()
    after = renamed(before, "a", "b", "c", "d")
    for key in (101, 102, 103):
        after.nodes[key]["params"] = FrozenDict({"activationFunction": "Elu", "a": 0.5 + key})
    found = pairing(before, after)
    assert found.forward == WHOLE
    assert found.backward == {after: before for before, after in WHOLE.items()}
    assert found.guesses == {1, 2, 3, 4}  # the ends have ids


@pytest.mark.parametrize("names", [("", "", "", ""), ("same",) * 4, ("p", "q", "r", "s")])
def test_where_names_say_nothing_connections_do(names: tuple[str, ...]) -> None:
    """From the ends downward and upward."""
    before = branches()
    found = pairing(before, renamed(before, *names))
    assert found.forward == WHOLE
    assert found.guesses == {1, 2, 3, 4}


def test_from_the_outputs_upward_alone() -> None:
    """What the Input feeds is other than it was; above the Outputs all is the same."""
    before = branches()
    after = renamed(before, "p", "q", "r", "s")
    after.nodes[101]["params"] = FrozenDict({"activationFunction": "Elu", "a": 0.5})
    found = pairing(before, after)
    assert found.forward == {key: other for key, other in WHOLE.items() if key != 1}


def test_from_the_input_downward_alone() -> None:
    before = branches()
    after = renamed(before, "p", "q", "r", "s")
    after.nodes[104]["type"] = "Subtraction"
    after.remove_node(106)
    after.graph["outputs"] = (105,)
    found = pairing(before, after)
    assert found.forward == {0: 100, 1: 101, 2: 102, 3: 103, 5: 105}


def test_readers_that_are_alike_are_not_told_apart() -> None:
    net = Net()
    x = net.input((1, 4), binding_id=7)
    for _ in range(2):
        net.layer("Floor", net.activation(x, "ReLu", name=""), name="")
    other = fe.fuse(net.graph, ())
    found = pairing(net.graph, other)
    assert found.forward == {0: 0}


def test_keys_are_certain_where_names_are_the_same() -> None:
    before = branches()
    after = fe.fuse(before, ())
    after.nodes[2]["name"] = "other"
    found = pairing(before, after, [1, 2, 3, 4])
    assert found.forward == {key: key for key in range(7)}
    assert found.guesses == {2}  # by its connections
    found.drop([2])
    assert 2 not in found.forward
    assert 2 not in found.backward
    assert found.guesses == set()


def test_constants_and_ends_are_never_paired_with_others() -> None:
    net = Net()
    x = net.input((1, 4), name="x")
    net.output(net.addition(x, net.constant([1.0], name="k"), name="y"), name="z")
    after = fe.fuse(net.graph, ())
    for key, name in ((0, "k"), (1, "x")):
        after.nodes[key]["name"] = name
    assert pairing(net.graph, after).forward == {0: 0, 2: 2, 3: 3}


# What holds the same


def same(change: dict[str, Any], key: int = 1) -> bool:
    before = branches()
    after = fe.fuse(before, ())
    after.nodes[key].update(change)
    return pairing(before, after).holds_same(key, key)


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({}, True),
        ({"name": "other"}, True),
        ({"params": FrozenDict({"activationFunction": "ReLu", "a": 0.0})}, True),
        ({"params": FrozenDict({"activationFunction": "ReLu", "a": 1.0})}, False),
        ({"params": FrozenDict({"activationFunction": "Elu"})}, False),
        ({"type": "Floor"}, False),
        ({"outputs": (TensorInfo((1, 4), "Float32", 0.5, 3),)}, True),
        ({"outputs": (TensorInfo((1, 4), "Float16"),)}, False),
        ({"outputs": (TensorInfo((4, 1), "Float32"),)}, False),
        ({"outputs": (None,)}, False),
        ({"overrides": FrozenDict({0: (False, TensorInfo((9,)))})}, True),
        ({"overrides": FrozenDict({0: (True, TensorInfo((9,)))})}, False),
        ({"overrides": FrozenDict({0: (True, None)})}, False),
        ({"constants": None}, True),
    ],
)
def test_what_makes_a_difference(change: dict[str, Any], alike: bool) -> None:
    assert same(change) is alike


def test_binding_ids_make_a_difference() -> None:
    assert same({"binding_id": 8}, 5)
    assert not same({"binding_id": 9}, 5)


@pytest.mark.parametrize(
    ("ours", "theirs", "alike"),
    [
        ((1, 1, 1), (1, 1, 1), True),
        ((1, 1, 1), (1, 0, 1), False),
        ((1, 0, 0), (0, 0, 1), True),
        (None, (0, 1, 0), True),
        (None, (1, 0, 1), False),
        ((2, 0, 2), None, False),
    ],
)
def test_members_of_depthwise_layers_mean_what_the_layout_scheme_says(
    ours: tuple[int, int, int] | None, theirs: tuple[int, int, int] | None, alike: bool
) -> None:
    net = Net(form="member")
    x = net.input((1, 2, 2, 2))
    key = net.depthwise(x, np.ones((1, 1, 1, 2)), name="d")
    net.output(key)
    after = fe.fuse(net.graph, ())
    for graph, versions in ((net.graph, ours), (after, theirs)):
        graph.graph.pop("feature_versions")
        if versions is not None:
            graph.graph["feature_versions"] = versions
    assert pairing(net.graph, after).holds_same(key, key) is alike


def test_a_stand_in_is_its_name() -> None:
    net = Net()
    net.output(net.stand_in(net.input((1, 4)), outputs=[(1, 4)], name="one"))
    after = fe.fuse(net.graph, ())
    assert pairing(net.graph, after).holds_same(1, 1)
    after.nodes[1]["name"] = "other"
    assert not pairing(net.graph, after).holds_same(1, 1)


# Equal values within one network


def test_layers_that_give_the_same_values_have_one_number() -> None:
    net = Net()
    x, y = net.input((1, 4)), net.input((1, 4))
    a, b = net.activation(x, "ReLu"), net.activation(x, "ReLu")
    c, d = net.activation(y, "ReLu"), net.activation(x, "Abs")
    e, f = net.activation(a, "TanH"), net.activation(b, "TanH")
    halves = net.splitter(x, 1, (2, 2))
    g, h, i = (net.activation((halves, slot), "ReLu") for slot in (0, 1, 1))
    number = value_numbers(net.graph, canonical_order(net.graph))
    assert number[a] == number[b]
    assert number[e] == number[f]
    assert number[h] == number[i]
    assert len({number[key] for key in (x, y, a, c, d, e, halves, g, h)}) == 9
