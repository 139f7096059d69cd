"""Groups: prefixes that prove themselves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import fusion_engine as fe
from fusion_engine.folds import Refused
from fusion_engine.group import Group, apply, check, group_of, is_grouped, prefix
from fusion_engine.match.binding import Match
from fusion_engine.network import Network
from fusion_engine.workspace import Workspace
from tests.support.matches import match_of
from tests.support.nets import Net


def rule(name: str) -> SimpleNamespace:
    return SimpleNamespace(name="a rule", group=name)


def chain(*names: str) -> Network:
    """x -> Floor layers of those names, in a row, under keys 1, 2, ... -> y."""
    net = Net()
    last = net.input((1, 2), name="x")
    for name in names:
        last = net.layer("Floor", last, name=name)
    net.output(last, name="y")
    return net.graph


def grouped(work: Workspace, *layers: int, name: str = "Block") -> None:
    match = match_of(work, layers)
    assert apply(work, match, check(work, match, rule(name))) == layers[0]


def test_prefixes_are_fixed_for_all_time() -> None:
    assert prefix("ConvRelu", 1) == "ConvRelu:11399574461/"
    assert prefix("A", 999) == "A:9990703673627/"
    assert prefix("A", 2) == "A:20202008038/"


@pytest.mark.parametrize("rest", ["", "relu", "a/b", "conv:1/x", "\n", "caf\xe9", "W\udcff", "/", "x" * 70_000])
@pytest.mark.parametrize("counter", [1, 9, 10, 123_456_789])
def test_a_prefix_proves_itself(rest: str, counter: int) -> None:
    assert group_of(prefix("Conv_2d", counter) + rest) == Group("Conv_2d", counter, rest)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "relu",
        "ConvRelu:7/relu",
        "ConvRelu/relu",
        "ConvRelu:70123456789/relu",
        "ConvRelu:01399574461/relu",
        "convRelu:11399574461/relu",
        "ConvRelu:11399574461",
        "ConvRelu:11399574461\\relu",
        " ConvRelu:11399574461/relu",
        "block/ConvRelu:11399574461/relu",
        "ConvRelu:\u0661\u0661399574461/relu",
        "ConvRelu:" + "1" * 100_000 + "/",
        ":" * 100_000,
    ],
)
def test_what_a_user_writes_is_no_prefix(name: str) -> None:
    assert group_of(name) is None


def test_every_changed_digit_is_noticed() -> None:
    name = prefix("ConvRelu", 41) + "x"
    start = name.index(":") + 1
    for position in range(start, start + 12):
        for digit in "0123456789":
            changed = name[:position] + digit + name[position + 1 :]
            assert (group_of(changed) is None) == (changed != name)


def test_layers_get_the_prefix_and_nothing_else_changes() -> None:
    net = Net(form="constant")
    x = net.input((1, 1, 1, 1), name="x")
    conv = net.conv(x, weights=[[[[2.0]]]], bias=[1.0], name="a/conv")
    relu = net.activation(conv, name="")
    net.output(relu, name="y")
    work = Workspace(net.graph)
    match = match_of(work, [relu, conv])
    assert apply(work, match, check(work, match, rule("ConvRelu"))) == relu
    expected = Workspace(net.graph)
    expected.set(relu, name="ConvRelu:11399574461/")
    expected.set(conv, name="ConvRelu:11399574461/a/conv")
    assert fe.difference(expected.graph, work.graph) is None
    assert [is_grouped(work, key) for key in (conv, relu, x)] == [True, True, False]
    assert is_grouped(work.graph, conv)
    assert work.names.unique("a/conv") == "a/conv"


def test_counters_are_the_smallest_free_ones() -> None:
    graph = chain(prefix("Block", 2) + "old", "a", "b", "c", "Block:1/mine", prefix("Other", 1) + "z")
    work = Workspace(graph)
    for key in (2, 3, 4):
        grouped(work, key)
    assert [work.name(key) for key in (2, 3, 4)] == [
        prefix("Block", number) + rest for number, rest in ((1, "a"), (3, "b"), (4, "c"))
    ]
    grouped(work, 5, name="Other")
    assert group_of(work.name(5)) == Group("Other", 2, "Block:1/mine")


def test_what_cannot_be_grouped() -> None:
    work = Workspace(chain("a", "b"))
    with pytest.raises(Refused, match=r"layer 0 'x' is an Input, whose name belongs to the network's users: mark it"):
        check(work, match_of(work, [1, 0]), rule("G"))
    with pytest.raises(Refused, match=r"layer 3 'y' is an Output"):
        check(work, match_of(work, [3]), rule("G"))
    grouped(work, 1)
    with pytest.raises(Refused, match=r"layer 1 'Block:.*/a' is in a group already"):
        check(work, match_of(work, [2, 1]), rule("G"))
    net = Net()
    constant = net.constant([1.0])
    with pytest.raises(Refused, match="nothing is consumed"):
        check(Workspace(net.graph), Match(constant, (), (), (constant,), (), ()), rule("G"))


def test_unfuse_takes_our_prefixes_and_no_others() -> None:
    graph = chain("Block:1/a", "b/c", "", "caf\udce9")
    work = Workspace(graph)
    grouped(work, 2, 1)
    grouped(work, 4, 3, name="Tail")
    written = fe.dumps(work.graph)
    assert fe.difference(fe.unfuse(work.graph), graph) is None
    assert fe.dumps(fe.unfuse(fe.loads(written))) == fe.dumps(graph)


def test_a_rule_with_a_group_leaves_grouped_layers_alone() -> None:
    graph = chain("a", "b", "c")
    pair = fe.FusingRule("Floor{Floor}", group="Pair")
    every = fe.FusingRule("Floor", into="Single")
    fused = fe.fuse(graph, [pair, every])
    names = sorted(node["name"] for _, node in fused.nodes(data=True))
    assert names == sorted([prefix("Pair", 1) + "a", prefix("Pair", 1) + "b", "Single:c", "Single:c/recipe", "x", "y"])
    assert fused.graph["refusals"] == ()
    assert fe.dumps(fe.fuse(fe.loads(fe.dumps(fused)), [pair, every])) == fe.dumps(fused)
    assert fe.difference(fe.unfuse(fused), graph) is None
