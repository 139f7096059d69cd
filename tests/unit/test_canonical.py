"""The canonical order: what comes first, and that nothing else than the network decides it."""

from __future__ import annotations

import time
from itertools import pairwise
from random import Random

import networkx as nx
import pytest

from fusion_engine.canonical import canonical_order, digest
from fusion_engine.network import Network, connect, new_network
from fusion_engine.partition import refined_order
from tests.support.nets import Net, shuffled


def names(graph: Network) -> list[str]:
    return [graph.nodes[key]["name"] for key in canonical_order(graph)]


def shape_of(graph: Network) -> list[tuple[object, ...]]:
    """The network as its file would tell it: per position the name and what feeds each slot."""
    order = canonical_order(graph)
    position = {key: number for number, key in enumerate(order)}
    return [
        (
            graph.nodes[key]["name"],
            sorted((i, position[u], o) for u, data in graph.pred[key].items() for o, i in data["slots"]),
        )
        for key in order
    ]


def test_inputs_then_post_order_by_slot_then_outputs() -> None:
    net = Net()
    a, b = net.input((1, 4), name="a"), net.input((1, 4), name="b")
    left, right = net.layer("Floor", a, name="left"), net.layer("Floor", b, name="right")
    both = net.layer("Subtraction", right, left, name="both")
    net.output(left, name="y0")
    net.output(both, name="y1")
    assert names(net.graph) == ["a", "b", "left", "right", "both", "y0", "y1"]
    net.graph.graph["outputs"] = tuple(reversed(net.graph.graph["outputs"]))
    assert names(net.graph) == ["a", "b", "right", "left", "both", "y1", "y0"]
    net.graph.graph["inputs"] = tuple(reversed(net.graph.graph["inputs"]))
    assert names(net.graph) == ["b", "a", "right", "left", "both", "y1", "y0"]


def test_slots_decide_not_edges() -> None:
    """An edge removed and added again lies last in its dict; its slot is what counts."""
    net = Net()
    x = net.input((1, 4), name="x")
    first, second = net.layer("Floor", x, name="first"), net.layer("Rsqrt", x, name="second")
    net.output(net.layer("Subtraction", first, second, name="sub"), name="y")
    before = names(net.graph)
    slots = net.graph.edges[first, 3]["slots"]
    net.graph.remove_edge(first, 3)
    net.graph.add_edge(first, 3, slots=slots)
    assert list(net.graph.pred[3]) == [second, first]
    assert names(net.graph) == before == ["x", "first", "second", "sub", "y"]


def test_a_layer_on_two_slots_counts_by_its_first() -> None:
    net = Net()
    x = net.input((1, 4), name="x")
    a, b = net.layer("Floor", x, name="a"), net.layer("Floor", x, name="b")
    net.output(net.layer("Concat", b, a, b, outputs=((1, 12),), params={"numViews": 3}, name="c"), name="y")
    assert names(net.graph) == ["x", "b", "a", "c", "y"]


def test_an_input_that_nothing_reads_keeps_its_place() -> None:
    net = Net()
    net.input((1,), name="unused")
    net.output(net.input((1,), name="used"), name="y")
    assert names(net.graph) == ["unused", "used", "y"]


def test_unlisted_ends_lie_with_what_reaches_no_output() -> None:
    net = Net()
    lost = net.input((1,), name="lost", listed=False)
    x = net.input((1,), name="x")
    net.output(net.layer("Floor", lost, name="above"), name="aside", listed=False)
    net.output(x, name="y")
    assert names(net.graph) == ["x", "lost", "above", "aside", "y"]


def test_dead_layers_are_ordered_by_what_they_hold_and_all_above() -> None:
    """Two sinks alike, over Constants that differ in one bit: the order is that of the digests."""

    def build(first: float, second: float) -> Network:
        net = Net()
        for value in (first, second):
            net.layer("Floor", net.constant([value], name=f"c{value}"), name="f")
        return net.graph

    assert names(build(1.0, 2.0)) == names(build(2.0, 1.0))


@pytest.mark.parametrize("seed", range(20))
def test_dead_copies_that_share_differently(seed: int) -> None:
    """Four sinks alike over two Constants alike, shared 2:2 or 3:1, in one network."""
    net = Net()
    for uses in ((2, 2), (3, 1)):
        for count in uses:
            constant = net.constant([1.0], name="c")
            for _ in range(count):
                net.layer("Floor", constant, name="f")
    assert shape_of(shuffled(net.graph, seed)) == shape_of(net.graph)


@pytest.mark.parametrize("seed", range(20))
def test_dead_rings_and_zigzags(seed: int) -> None:
    """Additions alike over Constants alike, wired as two rings of three, one of six, and a path."""
    net = Net()
    for size, ring in ((3, True), (3, True), (6, True), (7, False)):
        constants = [net.constant([1.0], name="c") for _ in range(size)]
        for x, y in pairwise([*constants, constants[0]] if ring else constants):
            net.layer("Addition", x, y, name="add")
    assert shape_of(shuffled(net.graph, seed)) == shape_of(net.graph)


def test_a_dead_layer_below_a_live_one_is_told_by_its_place() -> None:
    def build(order: tuple[int, int]) -> Network:
        net = Net()
        x = net.input((1,), name="x")
        live = [net.layer("Floor", x, name="same"), net.layer("Floor", x, name="same")]
        net.output(net.layer("Subtraction", *live, name="sub"), name="y")
        for which, name in zip(order, ("p", "q"), strict=True):
            net.layer("Rsqrt", live[which], name=name)
        return net.graph

    assert shape_of(build((0, 1))) != shape_of(build((1, 0)))
    assert names(build((0, 0)))[-3:-1] in (["p", "q"], ["q", "p"])


def test_digest_takes_defaults_as_written() -> None:
    net = Net()
    a = net.layer("Softmax", net.constant([1.0], name="c"), params={"beta": 1.0}, name="s")
    b = net.layer("Softmax", net.constant([1.0], name="c"), params={"beta": 1.0, "axis": -1}, name="s")
    found = digest(net.graph, list(net.graph), [])
    assert found[a] == found[b]
    assert len(found[a]) == 16


@pytest.mark.parametrize(
    "change",
    [
        {"name": "t"},
        {"type": "LogSoftmax"},
        {"params": {"beta": 1.5}},
        {"outputs": ()},
        {"overrides": {0: (True, None)}},
    ],
)
def test_digest_sees_every_attribute(change: dict[str, object]) -> None:
    net = Net()
    keys = [net.layer("Softmax", net.constant([1.0], name="c"), params={"beta": 1.0}, name="s") for _ in range(2)]
    net.graph.nodes[keys[1]].update(change)
    found = digest(net.graph, list(net.graph), [])
    assert found[keys[0]] != found[keys[1]]


@pytest.mark.parametrize("attribute", ["params", "constants", "outputs", "overrides", "name", "type"])
@pytest.mark.parametrize("value", [5, "x", [None], {"a": 1}, {1: 2, "b": 3}, object()])
def test_malformed_attributes_do_not_stop_it(attribute: str, value: object) -> None:
    net = Net()
    x = net.input((1,))
    bad = net.layer("Softmax", x)
    net.graph.nodes[bad][attribute] = value
    assert canonical_order(net.graph) == [x, bad]


def test_cycles_end() -> None:
    graph = new_network()
    graph.add_nodes_from((key, {"type": "Floor", "name": f"n{key}"}) for key in range(6))
    for u, v in ((0, 1), (1, 2), (2, 0), (3, 3), (2, 4), (4, 5)):
        connect(graph, u, v, 0, graph.in_degree(v))
    graph.graph["outputs"] = (5,)
    assert sorted(canonical_order(graph)) == list(range(6))
    graph.graph["outputs"] = ()
    assert sorted(canonical_order(graph)) == list(range(6))


@pytest.mark.parametrize("listed", [None, 7, "ab", [], [[0]], (0, 0, 99, "x", None, 1.5), ((1,),)])
def test_malformed_lists_do_not_stop_it(listed: object) -> None:
    net = Net()
    net.output(net.input((1,)))
    net.graph.graph.update(inputs=listed, outputs=listed)
    assert sorted(canonical_order(net.graph)) == [0, 1]


@pytest.mark.parametrize("slots", [None, (), 5, ((0,),), ((0, "a"),), ((0, 0), "xy"), "ab"])
def test_malformed_slots_do_not_stop_it(slots: object) -> None:
    net = Net()
    x, y = net.input((1,)), net.input((1,))
    out = net.output(net.layer("Addition", x, y))
    net.graph.edges[x, 2]["slots"] = slots
    assert sorted(canonical_order(net.graph)) == [x, y, 2, out]


def test_a_graph_without_our_attributes() -> None:
    assert canonical_order(nx.DiGraph()) == []
    assert sorted(canonical_order(nx.DiGraph([(0, 1), (1, 2)]))) == [0, 1, 2]


def chain(layers: int) -> Network:
    graph = new_network()
    graph.add_nodes_from((key, {"type": "Floor", "name": ""}) for key in range(layers))
    graph.add_edges_from((key, key + 1, {"slots": ((0, 0),)}) for key in range(layers - 1))
    graph.graph.update(inputs=(0,), outputs=(layers - 1,))
    return graph


def plain_post_order(layer: int, sources: dict[int, list[int]], order: list[int], seen: set[int]) -> None:
    """The definition of a post-order, by recursion."""
    seen.add(layer)
    for source in sources[layer]:
        if source not in seen:
            plain_post_order(source, sources, order, seen)
    order.append(layer)


@pytest.mark.parametrize("seed", range(40))
def test_what_an_output_needs_comes_in_post_order(seed: int) -> None:
    """Of networks with cycles too, from the graph's own connections and from those that are known."""
    random = Random(seed)
    graph = new_network()
    keys = random.sample(range(100), 15)
    graph.add_nodes_from((key, {"type": "Floor", "name": ""}) for key in keys)
    sources = {}
    for number, key in enumerate(keys):
        below = keys if seed % 2 else keys[:number]
        sources[key] = [random.choice(below) for _ in range(random.choice([0, 1, 1, 1, 2, 3]))] if below else []
        for slot, source in enumerate(sources[key]):
            connect(graph, source, key, 0, slot)
    graph.graph["outputs"] = (keys[-1],)
    expected: list[int] = []
    seen = {keys[-1]}
    for source in sources[keys[-1]]:
        if source not in seen:
            plain_post_order(source, sources, expected, seen)
    known = {key: [(slot, source, 0) for slot, source in enumerate(entries)] for key, entries in sources.items()}
    for order in (canonical_order(graph), canonical_order(graph, known)):
        assert order[: len(expected)] == expected
        assert sorted(order) == sorted(keys)


def test_a_deep_chain_takes_no_stack() -> None:
    graph = chain(100_000)
    assert canonical_order(graph) == list(range(100_000))
    graph.graph["outputs"] = ()
    assert canonical_order(graph) == list(range(100_000))


def seconds(graph: Network) -> float:
    found = []
    for _ in range(3):
        start = time.process_time()
        canonical_order(graph)
        found.append(time.process_time() - start)
    return min(found)


def dead_star(layers: int) -> Network:
    net = Net()
    source = net.layer("Floor", net.input((1,)), name="source")
    for _ in range(layers):
        net.layer("Floor", source, name="same")
    return net.graph


def dead_zigzag(layers: int) -> Network:
    net = Net()
    constants = [net.constant([1.0], name="c") for _ in range(layers)]
    for x, y in pairwise(constants):
        net.layer("Addition", x, y, name="add")
    return net.graph


@pytest.mark.parametrize("build", [chain, dead_star, dead_zigzag])
def test_time_grows_with_the_network(build: object) -> None:
    """Eight times the layers: a square would take 64 times as long."""
    assert callable(build)
    small, large = seconds(build(1_000)), seconds(build(8_000))
    assert large < 24 * small + 0.05


def test_refined_order_does_not_see_labels() -> None:
    """A path of five under every shift of its labels: the order by distance from the ends is one."""
    path = {n: [(m, 0) for m in (n - 1, n + 1) if 0 <= m < 5] for n in range(5)}
    orders = set()
    for shift in range(5):
        relabelled = {(n + shift) % 5: [((m + shift) % 5, 0) for m, _ in found] for n, found in path.items()}
        order = [(v - shift) % 5 for v in refined_order([sorted(relabelled)], relabelled)]
        assert sorted(order) == list(range(5))
        orders.add(tuple(order) if order.index(0) < order.index(4) else tuple(4 - v for v in order))
    assert len(orders) == 1


def test_refined_order_keeps_the_order_of_cells() -> None:
    path = {n: [(m, 0) for m in (n - 1, n + 1) if 0 <= m < 5] for n in range(5)}
    order = refined_order([[4], [0, 1, 2, 3]], path)
    assert order[0] == 4
    assert sorted(order) == [0, 1, 2, 3, 4]
