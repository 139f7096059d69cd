"""Depth, width and ladders: what must neither recurse nor explode."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import fusion_engine as fe
from fusion_engine.match import Match, compile_rule
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


def test_a_ladder_of_25_levels_matches_nowhere() -> None:
    net = Net()
    a, b = net.input((1, 4)), net.input((1, 4))
    for _ in range(25):
        a, b = net.layer("Addition", a, b), net.layer("Addition", a, b)
    net.output(net.layer("Addition", a, b))
    deep = "Addition{" * 12 + "Floor" + ", ?}" * 12
    fused = fe.fuse(net.graph, fe.FusingRule(deep, into="Never"))
    assert (fused.graph["fusions"], fused.graph["refusals"]) == ((), ())


@pytest.fixture
def little_stack() -> Iterator[None]:
    """A recursion limit that leaves no room for recursing over a pattern or a network."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 150)
    yield
    sys.setrecursionlimit(limit)


def chain(length: int) -> tuple[Net, list[int]]:
    """An Input and a chain of Floor layers."""
    net = Net()
    keys = [net.input((1, 4))]
    for _ in range(length):
        keys.append(net.layer("Floor", keys[-1]))
    return net, keys


def find(net: Net, text: str, root: int) -> list[Match]:
    return list(compile_rule(fe.FusingRule(text, into="Deep")).matches(Workspace(net.graph), root))


@pytest.mark.usefixtures("little_stack")
def test_a_pattern_999_deep_takes_all_of_a_chain_of_1_000_and_nothing_of_a_shorter_one() -> None:
    net, keys = chain(1000)
    text = "Floor{" * 999 + "Floor" + "}" * 999
    (match,) = find(net, text, keys[-1])
    assert match.layers == tuple(reversed(keys[1:]))
    assert [edge.source.layer for edge in match.inputs] == [keys[0]]
    assert find(net, text, keys[-2]) == []


@pytest.mark.usefixtures("little_stack")
def test_scopes_and_conditions_at_every_level() -> None:
    net, keys = chain(900)
    text = 'fp32|Floor[output.dataType == "Float32"]{' * 899 + "Floor!" + "}" * 899
    (match,) = find(net, text, keys[-1])
    assert match.layers == tuple(reversed(keys[2:]))
    assert match.kept == (keys[1],)


@pytest.mark.usefixtures("little_stack")
def test_groups_nest_300_deep() -> None:
    net, keys = chain(2)
    (match,) = find(net, "Floor{" + "((?, ?)|" * 300 + "Floor" + ")" * 300 + "}", keys[2])
    assert match.layers == (keys[2], keys[1])


def test_a_ladder_of_25_levels_that_do_not_swap_has_one_binding() -> None:
    net = Net()
    a, b = net.input((1, 4)), net.input((1, 4))
    for _ in range(25):
        a, b = net.binary("Subtraction", a, b), net.binary("Subtraction", a, b)
    (match,) = find(net, "Subtraction{?, " * 24 + "Subtraction" + "}" * 24, b)
    assert len(match.layers) == 25


def test_fuse_leaves_a_layer_with_50_000_consumers_alone() -> None:
    net = Net()
    floor = net.layer("Floor", net.input((1, 4)))
    ends = [net.layer("Output", net.activation(floor), outputs=(), binding_id=number) for number in range(50_000)]
    net.graph.graph["outputs"] = tuple(ends)
    fused = fe.fuse(net.graph, fe.FusingRule("Activation{Floor}", into="Wide"))
    assert fused.number_of_nodes() == net.graph.number_of_nodes()
    assert len(fused[floor]) == 50_000
