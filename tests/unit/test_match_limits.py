"""Depth, width and ladders: what must neither recurse nor explode."""

from __future__ import annotations

import sys

import pytest

import fusion_engine as fe
from fusion_engine.match import compile_rule
from fusion_engine.workspace import Workspace
from tests.support.nets import Net


def test_a_pattern_of_900_levels_on_a_chain_deeper_than_the_interpreters_limit() -> None:
    net = Net()
    x = net.input((1, 4))
    for _ in range(sys.getrecursionlimit() + 500):
        x = net.layer("Floor", x)
    net.output(x)
    rule = fe.FusingRule("Floor{" * 900 + "?" + "}" * 900, into="Deep")
    found = list(compile_rule(rule).matches(Workspace(net.graph), x))
    assert [len(match.layers) for match in found] == [900]


def test_a_layer_with_50_000_consumers() -> None:
    net = Net()
    r = net.activation(net.input((1, 4)), "ReLu")
    graph = net.graph
    info = graph.nodes[r]["outputs"]
    for key in range(10, 50_010):
        graph.add_node(key, type="Floor", name="", outputs=info, params=fe.FrozenDict(), constants=fe.FrozenDict())
        graph.add_edge(r, key, slots=((0, 0),))
    matcher = compile_rule(fe.FusingRule("Floor{Activation}", into="Wide"))
    workspace = Workspace(graph)
    assert sum(1 for key in range(10, 50_010) for _ in matcher.matches(workspace, key)) == 50_000


def test_a_ladder_of_25_levels_ends_with_a_clear_error_or_none() -> None:
    net = Net()
    a, b = net.input((1, 4)), net.input((1, 4))
    for _ in range(25):
        a, b = net.layer("Addition", a, b), net.layer("Addition", a, b)
    net.output(net.layer("Addition", a, b))
    deep = "Addition{" * 12 + "Floor" + ", ?}" * 12
    with pytest.raises(fe.FuseError, match=r"takes more than 10000 steps at layer \d+"):
        fe.fuse(net.graph, fe.FusingRule(deep, into="Never"))
