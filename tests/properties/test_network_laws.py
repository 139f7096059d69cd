"""Laws of networks: renumbering changes nothing, equality is isomorphism, any single change is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_engine.armnn.reader import loads
from fusion_engine.armnn.writer import dumps
from fusion_engine.canonical import canonical_order
from fusion_engine.compare import difference
from fusion_engine.content import Digester, params_values, value_key
from fusion_engine.network import FrozenDict, Network, bare_copy, connect, disconnect, edges_into
from fusion_engine.schema import schema
from fusion_engine.tensor import Tensor
from fusion_engine.validation import validate
from tests.support.encode import plain_dumps
from tests.support.nets import Net, shuffled
from tests.support.strategies import NAMES, networks, random_network

seeds = st.integers(0, 2**32 - 1)


def told(graph: Network) -> list[Any]:
    """The network by position: digest of each layer, and what feeds each slot."""
    digester = Digester(graph)
    order = canonical_order(graph)
    position = {key: number for number, key in enumerate(order)}
    return [
        (digester.layer(key), [(slot, position[source.layer], source.slot) for slot, source in edges_into(graph, key)])
        for key in order
    ]


def isomorphic(a: Network, b: Network) -> bool:
    """Whether two networks are one, by a search that knows nothing of order: for small networks."""
    labelled = []
    for graph in (a, b):
        digester = Digester(graph)
        ends = {key: (kind, at) for kind in ("inputs", "outputs") for at, key in enumerate(graph.graph[kind])}
        other: Network = nx.DiGraph()
        other.add_nodes_from((key, {"label": (digester.layer(key), ends.get(key))}) for key in graph)
        other.add_edges_from((u, v, {"label": frozenset(data["slots"])}) for u, v, data in graph.edges(data=True))
        labelled.append(other)
    same = nx.algorithms.isomorphism.categorical_node_match("label", None)
    same_edge = nx.algorithms.isomorphism.categorical_edge_match("label", None)
    return nx.is_isomorphic(*labelled, node_match=same, edge_match=same_edge)


# Order and equality


@given(networks(), seeds)
@settings(max_examples=200, deadline=None)
def test_renumbering_and_reordering_change_nothing(graph: Network, seed: int) -> None:
    other = shuffled(graph, seed)
    assert told(graph) == told(other)
    assert difference(graph, other) is None
    assert difference(other, graph) is None
    assert dumps(graph) == dumps(other)


@given(seeds, seeds)
@settings(max_examples=300, deadline=None)
def test_dead_layers_that_hold_the_same_are_told_by_their_connections(seed: int, shuffle: int) -> None:
    """Constants alike below Additions alike, of which nothing reaches an Output."""
    random = Random(seed)
    net = Net()
    pool = [net.constant([1.0], name="c") for _ in range(random.randint(1, 6))]
    for _ in range(random.randint(1, 10)):
        key = net.addition(random.choice(pool), random.choice(pool), name="a")
        if random.random() < 0.3:
            pool.append(key)
    other = shuffled(net.graph, shuffle)
    assert told(net.graph) == told(other)
    assert difference(net.graph, other) is None


@given(networks())
@settings(max_examples=200, deadline=None)
def test_sources_come_first_and_every_layer_once(graph: Network) -> None:
    order = canonical_order(graph)
    position = {key: number for number, key in enumerate(order)}
    assert sorted(order) == sorted(graph)
    assert all(position[u] < position[v] for u, v in graph.edges)
    inputs, outputs = graph.graph["inputs"], graph.graph["outputs"]
    assert tuple(order[: len(inputs)]) == inputs
    assert tuple(order[len(order) - len(outputs) :]) == outputs


@given(networks())
@settings(max_examples=200, deadline=None)
def test_random_networks_are_valid_and_survive_a_file(graph: Network) -> None:
    assert validate(graph) == ()
    data = dumps(graph)
    again = loads(data)
    assert difference(graph, again) is None
    assert told(graph) == told(again)
    assert dumps(again) == data


@given(networks())
@settings(max_examples=150)
def test_the_writer_says_what_its_plain_twin_says(graph: Network) -> None:
    fast, plain = loads(dumps(graph)), loads(plain_dumps(graph))
    assert difference(fast, plain) is None
    assert fast.graph == plain.graph


def test_nothing_hangs_on_the_hash_seed() -> None:
    program = (
        "from tests.support.strategies import random_network\n"
        "from fusion_engine.armnn.writer import dumps\n"
        "from fusion_engine.validation import validate\n"
        "from hashlib import sha256\n"
        "graphs = [random_network(seed, 12) for seed in range(30)]\n"
        "print(sha256(b''.join(map(dumps, graphs))).hexdigest())\n"
        "for graph in graphs:\n"
        "    for node in graph.nodes.values():\n"
        "        node['params'] = {'no': 1, 'none': 2}\n"
        "        node['constants'] = {'no': 1, 'none': 2}\n"
        "    print(*validate(graph))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in range(3)
    }
    assert len(found) == 1
    assert len(found.pop()) > 1000


# Single changes


def other_name(graph: Network, key: int, random: Random) -> None:
    node = graph.nodes[key]
    node["name"] = random.choice([name for name in NAMES if name != node["name"]])


def other_type(graph: Network, key: int, random: Random) -> None:
    node = graph.nodes[key]
    node["type"] = random.choice(sorted({"Floor", "Rank", "Shape"} - {node["type"]}))


def other_binding_id(graph: Network, key: int, random: Random) -> None:
    if "binding_id" in graph.nodes[key]:
        graph.nodes[key]["binding_id"] += 1


def other_parameter(graph: Network, key: int, random: Random) -> None:
    node = graph.nodes[key]
    layer = schema().layers[node["type"]]
    if layer.descriptor is None or node["params"] is None:
        return
    whole = params_values(node["type"], node["params"])
    field = random.choice([f for f in layer.descriptor.fields if f.kind in ("scalar", "enum")] or [None])
    if field is None:
        return
    if field.kind == "enum":
        values = sorted(schema().enums[field.type].values)
    else:
        values = {"bool": [False, True], "float": [0.0, -0.0, 0.5, float("nan"), float("inf")]}.get(
            field.type, [0, 1, 7]
        )
    value = random.choice([v for v in values if value_key(v) != value_key(whole[field.name])])
    node["params"] = FrozenDict({**{k: v for k, v in node["params"].items() if k != field.former}, field.name: value})


def other_info(graph: Network, key: int, random: Random) -> None:
    node = graph.nodes[key]
    if node["outputs"]:
        at = random.randrange(len(node["outputs"]))
        info = node["outputs"][at]
        change = random.choice(
            [
                {"shape": (*info.shape, 7)},
                {"data_type": "Signed64" if info.data_type != "Signed64" else "Boolean"},
                {"quantization_scale": info.quantization_scale + 1},
                {"quantization_offset": info.quantization_offset + 1},
                {"quantization_scales": (*info.quantization_scales, 0.5)},
                {"quantization_dim": info.quantization_dim + 1},
                {"dimensionality": info.dimensionality + 1},
                {"dimension_specificity": (*info.dimension_specificity, False)},
                {"is_constant": not info.is_constant},
            ]
        )
        node["outputs"] = (*node["outputs"][:at], replace(info, **change), *node["outputs"][at + 1 :])


def other_bit(graph: Network, key: int, random: Random) -> None:
    node = graph.nodes[key]
    fields = sorted(field for field, tensor in node["constants"].items() if tensor.data.size)
    if fields:
        field = random.choice(fields)
        tensor = node["constants"][field]
        data = bytearray(tensor.tobytes())
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        values = np.frombuffer(bytes(data), tensor.info.dtype).reshape(tensor.info.shape)
        node["constants"] = node["constants"].with_(**{field: Tensor(tensor.info, values)})


def a_constant_less(graph: Network, key: int, random: Random) -> None:
    node = graph.nodes[key]
    if node["constants"]:
        gone = random.choice(sorted(node["constants"]))
        node["constants"] = FrozenDict({field: t for field, t in node["constants"].items() if field != gone})


def other_override(graph: Network, key: int, random: Random) -> None:
    node = graph.nodes[key]
    if graph.pred[key]:
        overrides = node.get("overrides", {})
        flag, info = overrides.get(0, (False, None))
        node["overrides"] = FrozenDict({**overrides, 0: (not flag, info)})


def other_source(graph: Network, key: int, random: Random) -> None:
    inputs = edges_into(graph, key)
    earlier = [u for u in graph if u not in nx.descendants(graph, key) | {key} and graph.nodes[u]["outputs"]]
    if inputs and earlier:
        slot, _ = random.choice(inputs)
        disconnect(graph, key, slot)
        source = random.choice(sorted(earlier))
        connect(graph, source, key, random.randrange(len(graph.nodes[source]["outputs"])), slot)


def one_connection_less(graph: Network, key: int, random: Random) -> None:
    inputs = edges_into(graph, key)
    if inputs:
        disconnect(graph, key, random.choice(inputs)[0])


def swapped_inputs(graph: Network, key: int, random: Random) -> None:
    inputs = edges_into(graph, key)
    if len(inputs) > 1:
        (one, _), (two, _) = random.sample(inputs, 2)
        first, second = disconnect(graph, key, one), disconnect(graph, key, two)
        connect(graph, first.layer, key, first.slot, two)
        connect(graph, second.layer, key, second.slot, one)


def a_layer_doubled(graph: Network, key: int, random: Random) -> None:
    """A copy of the layer takes over one of its uses, if it has any."""
    copy = max(graph) + 1
    graph.add_node(copy, **graph.nodes[key])
    for slot, source in edges_into(graph, key):
        connect(graph, source.layer, copy, source.slot, slot)
    uses = [(target, i, o) for target, data in graph.succ[key].items() for o, i in data["slots"] if target != copy]
    if uses:
        target, slot, output = random.choice(sorted(uses))
        disconnect(graph, target, slot)
        connect(graph, copy, target, output, slot)


def a_layer_less(graph: Network, key: int, random: Random) -> None:
    graph.remove_node(key)
    for listed in ("inputs", "outputs"):
        graph.graph[listed] = tuple(k for k in graph.graph[listed] if k != key)


def other_lists(graph: Network, key: int, random: Random) -> None:
    listed = random.choice(["inputs", "outputs"])
    keys = graph.graph[listed]
    graph.graph[listed] = random.choice([keys[1:], tuple(reversed(keys))])


def other_versions(graph: Network, key: int, random: Random) -> None:
    versions = list(graph.graph["feature_versions"])
    versions[random.randrange(3)] += 1
    graph.graph["feature_versions"] = tuple(versions)


CHANGES: list[Callable[[Network, int, Random], None]] = [
    other_name,
    other_type,
    other_binding_id,
    other_parameter,
    other_info,
    other_bit,
    a_constant_less,
    other_override,
    other_source,
    one_connection_less,
    swapped_inputs,
    a_layer_doubled,
    a_layer_less,
    other_lists,
    other_versions,
]


@given(networks(min_layers=1), st.sampled_from(CHANGES), seeds)
@settings(max_examples=1000, deadline=None)
def test_difference_tells_of_any_change_and_of_nothing_else(
    graph: Network, change: Callable[[Network, int, Random], None], seed: int
) -> None:
    random = Random(seed)
    other = shuffled(bare_copy(graph), seed)
    change(other, random.choice(sorted(other)), random)
    same = isomorphic(graph, other) and graph.graph["feature_versions"] == other.graph["feature_versions"]
    text = difference(graph, other)
    assert (text is None) == same, text
    assert (difference(other, graph) is None) == same
    if change in (other_name, other_type, other_versions, a_layer_less, a_layer_doubled):
        assert text is not None


def test_every_change_is_made_often_enough() -> None:
    """The law above would be hollow if the changes mostly changed nothing."""
    for change in CHANGES:
        told_of = 0
        for seed in range(100):
            random = Random(seed)
            graph = random_network(seed, 10)
            other = bare_copy(graph)
            change(other, random.choice(sorted(other)), random)
            told_of += difference(graph, other) is not None
        assert told_of >= 8, change.__name__
