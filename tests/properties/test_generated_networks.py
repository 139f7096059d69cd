"""What the laws are tried on: the generated networks have every layer type, data type and form of weights."""

from __future__ import annotations

from collections import Counter

import pytest

from fusion_engine.network import consumers, edges_into
from fusion_engine.releases.facts import WEIGHT_TYPES
from fusion_engine.schema import DIALECTS, schema, slot_facts
from tests.support.strategies import random_network


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_layer_type_and_data_type(dialect: str) -> None:
    layers: Counter[str] = Counter()
    data_types: Counter[str] = Counter()
    held: Counter[str] = Counter()
    topologies: Counter[str] = Counter()
    for seed in range(500):
        graph = random_network(seed, 12, dialect)
        layers.update({node["type"] for _, node in graph.nodes(data=True)})
        for key, node in graph.nodes(data=True):
            data_types.update(info.data_type for info in node["outputs"])
            held.update(tensor.info.data_type for tensor in (node.get("constants") or {}).values())
            feeding = [source for _, source in edges_into(graph, key)]
            topologies["one output on two slots"] += len(set(feeding)) < len(feeding)
            topologies["two outputs of one layer"] += len({source.layer for source in feeding}) < len(set(feeding))
            topologies["shared"] += len(consumers(graph, key)) > 1
            topologies["dead"] += node["type"] != "Output" and not consumers(graph, key)
        topologies["no Output"] += not graph.graph["outputs"]
    facts = schema(dialect)
    assert set(layers) == set(facts.layers)
    assert set(data_types) == set(facts.enums["DataType"].values)
    assert set(held) == (set(data_types) if any(kind.tensors for kind in facts.layers.values()) else set())
    assert min(layers.values()) >= 10, layers.most_common()[-3:]
    if dialect in ("seed", "19.02"):  # no layer there has two outputs
        assert topologies.pop("two outputs of one layer") == 0
    assert min(topologies.values()) >= 10, topologies


def test_every_form_of_weights() -> None:
    """As members, as Constants on input slots, and computed by other layers; with a bias and without."""
    forms: Counter[tuple[str, str, bool]] = Counter()
    for seed in range(3000):
        graph = random_network(seed, 12)
        for key, node in graph.nodes(data=True):
            if node["type"] in WEIGHT_TYPES:
                fed = dict(edges_into(graph, key))
                if "weights" in node["constants"]:
                    forms[node["type"], "members", "biases" in node["constants"]] += 1
                else:
                    constant = graph.nodes[fed[1].layer]["type"] == "Constant"
                    forms[node["type"], "inputs" if constant else "computed", 2 in fed] += 1
    either = {kind for kind in WEIGHT_TYPES if slot_facts()[kind]["weights"] == "either"}
    wanted = {(kind, form) for kind in WEIGHT_TYPES for form in ("inputs", "computed")}
    assert {(kind, form) for kind, form, _ in forms} == wanted | {(kind, "members") for kind in either}
    assert {bias for _, _, bias in forms} == {True, False}
