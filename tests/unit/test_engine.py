"""Applying rules: order, overlap, safety, the end, and what stays as it was."""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import engine, folds
from fusion_engine.engine import LayerRef
from fusion_engine.folds import Fold
from fusion_engine.match.binding import Match
from fusion_engine.network import EMPTY, Network, sources
from fusion_engine.recipes import read_recipe
from fusion_engine.tensor import TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

W = np.ones((2, 1, 1, 2))
BN = {"mean": [0.5, 0.25], "variance": [3, 8], "beta": [1, -1], "gamma": [4, 3], "eps": 1.0}
"""Scale [2, 1] and shift [0, -1.25]."""

CONV_RELU = fe.FusingRule("Activation{Convolution2d}", into="ConvRelu")
BATCH_NORM = fe.FusingRule("BatchNormalization{Convolution2d}", fold="batch-norm", name="bn")


def types(graph: Network) -> Counter[str]:
    return Counter(node["type"] for node in graph.nodes.values() if node["type"] != "Constant")


def made(graph: Network) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.result, tuple(layer.index for layer in f.layers)) for f in graph.graph["fusions"]]


def reasons(graph: Network) -> list[str]:
    return [refusal.reason for refusal in graph.graph["refusals"]]


def fingerprint(graph: Network) -> str:
    """All keys, attributes, edges and array bytes of a graph."""
    found = hashlib.sha256()
    for key, node in graph.nodes.items():
        found.update(repr((key, sorted((k, v) for k, v in node.items() if k != "constants"))).encode())
        for field, tensor in sorted((node.get("constants") or {}).items()):
            found.update(repr((field, tensor.info)).encode() + tensor.tobytes())
    found.update(repr((list(graph.edges(data=True)), sorted(graph.graph.items()))).encode())
    return found.hexdigest()


@pytest.fixture
def net() -> Net:
    return Net(form="member")


def test_another_consumer_of_an_inner_layer_refuses(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    c = net.conv(x, W, name="conv")
    net.output(net.batch_norm(c, **BN))
    p = net.pool(c, (2, 2), name="pool")
    net.output(p)
    fused = fe.fuse(net.graph, BATCH_NORM)
    assert fe.equal(net.graph, fused)
    assert made(fused) == []
    assert reasons(fused) == [f"layer {c} 'conv' is used elsewhere too: layer {p} 'pool' reads it"]
    assert fused.graph["refusals"][0].rule == "bn"


def test_an_inner_layer_that_is_an_output_refuses_but_the_rest_fuses(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    b = net.batch_norm(net.conv(x, W), **BN)
    net.output(b)
    net.output(net.activation(b, "ReLu"))
    rules = [BATCH_NORM, fe.FusingRule("Activation{Convolution2d}", into="ConvRelu")]
    fused = fe.fuse(net.graph, rules)
    assert types(fused) == {"Input": 1, "Convolution2d": 1, "Activation": 1, "Output": 2}
    assert [f.rule for f in fused.graph["fusions"]] == ["bn"]
    assert "is an output of the network too" in reasons(fused)[0]


def test_a_shared_constant_blocks_nothing() -> None:
    net = Net(form="constant")
    x = net.input((1, 4, 4, 2))
    w = net.constant(W, name="w")
    for _ in range(2):
        net.output(net.activation(net.conv(x, w), "ReLu"))
    fused = fe.fuse(net.graph, CONV_RELU)
    assert types(fused) == {"Input": 1, "StandIn": 2, "Output": 2}
    assert fused.nodes[w]["name"] == "w"
    assert fused.out_degree(w) == 2


def test_names_ids_and_order_of_inputs_and_outputs_stay(net: Net) -> None:
    a = net.input((1, 4, 4, 2), binding_id=3, name="data")
    y = net.activation(net.conv(a, W), "ReLu")
    net.output(y, binding_id=7, name="prob")
    net.output(net.activation(a, "TanH"), binding_id=5, name="aux")
    fused = fe.loads(fe.dumps(fe.fuse(net.graph, CONV_RELU)))
    listed = [fused.nodes[key] for key in (*fused.graph["inputs"], *fused.graph["outputs"])]
    assert [(node["name"], node["binding_id"]) for node in listed] == [("data", 3), ("prob", 7), ("aux", 5)]
    assert fused.graph["feature_versions"] == (1, 1, 1)


def test_new_names_are_unique_and_old_ones_stay_to_the_byte(net: Net) -> None:
    x = net.input((1, 4, 4, 2), name="")
    first = net.activation(net.conv(x, W, name="卷积/1\n"), "ReLu", name="r")
    second = net.activation(net.conv(first, W, name="r"), "ReLu", name="r")
    taken = net.activation(second, "TanH", name="ConvRelu:r")
    net.output(taken, name="")
    fused = fe.fuse(net.graph, CONV_RELU)
    names = [fused.nodes[key]["name"] for key in (first, second)]
    assert sorted(names) == ["ConvRelu:r#2", "ConvRelu:r#3"]
    assert fused.nodes[taken]["name"] == "ConvRelu:r"
    assert sorted(made(fused)) == sorted(
        [
            ("ConvRelu", (first, sources(net.graph, first)[0].layer)),
            ("ConvRelu", (second, sources(net.graph, second)[0].layer)),
        ]
    )
    again = fe.fuse(fused, CONV_RELU)
    assert fe.dumps(again) == fe.dumps(fused)


@pytest.mark.parametrize(("length", "pairs", "left"), [(4, 2, 0), (3, 1, 1)])
def test_overlapping_matches_are_each_layer_once(net: Net, length: int, pairs: int, left: int) -> None:
    x = net.input((1, 4, 4, 2))
    keys = []
    for _ in range(length):
        x = net.layer("Multiplication", x, net.constant([2.0]), outputs=[(1, 4, 4, 2)])
        keys.append(x)
    net.output(x)
    rule = fe.FusingRule("Multiplication{Multiplication, ?}", into="F2")
    fused = fe.fuse(net.graph, rule)
    assert types(fused)["StandIn"] == pairs
    assert types(fused)["Multiplication"] == left
    # the first root in the canonical order is the second layer of the chain
    assert made(fused)[0] == ("F2", (keys[1], keys[0]))
    assert made(fe.fuse(net.graph, rule)) == made(fused)


def test_the_order_of_the_rules_decides() -> None:
    net = Net(form="member")
    x = net.input((1, 4, 4, 2))
    net.output(net.activation(net.batch_norm(net.conv(x, W), **BN), "ReLu"))
    short = fe.FusingRule("BatchNormalization{Convolution2d}", into="ConvBn")
    long = fe.FusingRule("Activation{BatchNormalization{Convolution2d}}", into="ConvBnRelu")
    assert [r for r, _ in made(fe.fuse(net.graph, [short, long]))] == ["ConvBn"]
    assert [r for r, _ in made(fe.fuse(net.graph, [long, short]))] == ["ConvBnRelu"]


def test_alternatives_make_one_fusion_not_one_each(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    branches = [net.batch_norm(net.conv(x, W), **BN) for _ in range(2)]
    add = net.layer("Addition", *branches, outputs=[(1, 4, 4, 2)])
    net.output(add)
    rule = fe.FusingRule("Addition{BatchNormalization{Convolution2d}|?, ?|BatchNormalization{Convolution2d}}", into="A")
    fused = fe.fuse(net.graph, rule)
    assert [result for result, _ in made(fused)] == ["A"]
    assert made(fused)[0][1][0] == add


@pytest.mark.parametrize(
    ("rule", "skip"), [("Concat{Convolution2d, Convolution2d}", False), ("Addition{Convolution2d, ?}", True)]
)
def test_what_would_make_a_cycle_is_refused(net: Net, rule: str, skip: bool) -> None:
    x = net.input((1, 4, 4, 2))
    c = net.conv(x, W)
    if skip:
        root = net.layer("Addition", c, net.activation(c, "Sigmoid"), outputs=[(1, 4, 4, 2)])
    else:
        root = net.concat(c, net.conv(net.activation(c, "ReLu"), W), axis=3)
    net.output(root)
    fused = fe.fuse(net.graph, fe.FusingRule(rule, into="Bad"))
    assert made(fused) == []
    assert "is used elsewhere too" in reasons(fused)[0]
    assert nx.is_directed_acyclic_graph(fused)


def test_one_layer_on_two_inputs_is_consumed_once(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    r = net.activation(x, "ReLu")
    a = net.layer("Addition", r, r, outputs=[(1, 4, 4, 2)])
    net.output(a)
    fused = fe.fuse(net.graph, fe.FusingRule("Addition{Activation, Activation}", into="Twice"))
    assert made(fused) == [("Twice", (a, r))]
    assert [s.layer for s in sources(fused, a)][:1] == [x]
    assert fe.dumps(fe.unfuse(fused)) == fe.dumps(net.graph)


@pytest.mark.parametrize("kind", ["Concat", "Subtraction"])
def test_input_order_is_by_slot_after_rewiring(net: Net, kind: str) -> None:
    x, other = net.input((1, 4, 4, 2)), net.input((1, 4, 4, 2))
    r = net.activation(net.conv(x, W), "ReLu")
    root = net.concat(r, other, axis=3) if kind == "Concat" else net.layer(kind, r, other, outputs=[(1, 4, 4, 2)])
    net.output(root)
    fused = fe.loads(fe.dumps(fe.fuse(net.graph, CONV_RELU)))
    key = next(key for key, node in fused.nodes.items() if node["type"] == kind)
    assert [fused.nodes[s.layer]["type"] for s in sources(fused, key)] == ["StandIn", "Input"]
    if kind == "Concat":
        assert fused.nodes[key]["params"]["viewOrigins"] == ((0, 0, 0, 0), (0, 0, 0, 2))


def test_the_callers_graph_and_arrays_stay_as_they_are() -> None:
    net = Net(form="constant")
    x = net.input((1, 4, 4, 2))
    net.output(net.activation(net.batch_norm(net.conv(x, W, [0.5, 0.5]), **BN), "ReLu"))
    before = fingerprint(net.graph)
    fused = fe.fuse(net.graph, [BATCH_NORM, CONV_RELU])
    assert len(fused.graph["fusions"]) == 2
    assert fingerprint(net.graph) == before
    assert "fusions" not in net.graph.graph


def test_a_long_chain_shrinks_without_recursion(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    for _ in range(3000):
        x = net.activation(x, "ReLu")
    net.output(x)
    rule = fe.FusingRule("Activation{Activation}", into="Two")
    fused = fe.fuse(net.graph, rule)
    assert types(fused) == {"Input": 1, "StandIn": 1500, "Output": 1}
    assert fe.dumps(fe.unfuse(fused)) == fe.dumps(net.graph)


def _flip(key: str) -> Fold:
    """A fold that never ends: it renames its root to and fro."""

    def check(workspace: Workspace, match: Match) -> Any:
        return key

    def apply(workspace: Workspace, match: Match, plan: Any) -> int:
        workspace.set(match.root, name=f"{plan}{workspace.name(match.root)[-5:]}")
        return match.root

    return Fold(check, apply)


def test_rules_that_never_end_are_stopped_and_named(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    net.output(net.activation(net.input((1, 4)), "ReLu"))
    registry = {"ping": _flip("p"), "pong": _flip("q")}
    monkeypatch.setattr(folds, "fold_names", lambda: tuple(registry))
    monkeypatch.setattr(engine, "find_fold", registry.__getitem__)
    rules = [fe.FusingRule("Activation", fold=name, name=name) for name in registry]
    with pytest.raises(fe.RuleLoopError, match="130 rewrites of 3 layers and no end: the rules 'ping', 'pong' keep"):
        fe.fuse(net.graph, rules)


def opaque_of(graph: Network, key: int) -> list[str]:
    """The results of a StandIn's recipe and of those that nest in it first, the outermost first."""
    found = []
    recipe = read_recipe(graph, key)
    while recipe is not None:
        found.append(recipe["result"])
        recipe = recipe["layers"][0].get("recipe")
    return found


def test_one_opaque_layer_alone_is_not_wrapped_again(net: Net) -> None:
    root = net.activation(net.input((1, 4)), "ReLu", name="relu")
    net.output(root)
    rules = [
        fe.FusingRule("Activation", into="A"),
        fe.FusingRule("A", into="B", results=["A"], name="to-b"),
        fe.FusingRule("B", into="A", results=["B"], name="to-a"),
    ]
    fused = fe.fuse(net.graph, rules)
    assert made(fused) == [("A", (root,))]
    (refusal,) = fused.graph["refusals"]
    assert refusal.rule == "to-b"
    assert "'A:relu' is an opaque layer 'A' already: as 'B' it would be wrapped once more" in refusal.reason
    again = fe.fuse(fe.loads(fe.dumps(fused)), rules)
    assert made(again) == []
    assert fe.dumps(again) == fe.dumps(fused)


def test_opaque_layers_with_others_are_wrapped(net: Net) -> None:
    x = net.input((1, 4))
    k = net.activation(net.activation(x, "ReLu"), "ReLu")
    softmax = net.layer("Softmax", net.activation(k, "TanH"), outputs=[(1, 4)])
    net.output(softmax)
    rules = [
        fe.FusingRule("Activation", into="K"),
        fe.FusingRule("K{K}", into="L", results=["K"]),
        fe.FusingRule("Softmax{L}", into="M", results=["L"]),
        fe.FusingRule("Softmax{K}", into="N", results=["K"]),
        fe.FusingRule("N{L}", into="O", results=["N", "L"]),
    ]
    fused = fe.fuse(net.graph, rules)
    assert types(fused) == {"Input": 1, "StandIn": 1, "Output": 1}
    assert opaque_of(fused, softmax) == ["O", "N"]
    assert fe.dumps(fe.unfuse(fused)) == fe.dumps(net.graph)


def many_ways(count: int) -> tuple[Net, int]:
    """A Concat of Floors, the last of which is read elsewhere, too, and behind it a ReLu that can be fused."""
    net = Net()
    x = net.input((1, 4))
    floors = [net.layer("Floor", x) for _ in range(count)]
    concat = net.layer("Concat", *floors, outputs=((count, 4),))
    net.output(net.activation(net.layer("Floor", concat), "ReLu"))
    net.output(floors[0])
    return net, concat


def test_a_root_with_too_many_steps_is_a_refusal_and_others_go_on() -> None:
    net, concat = many_ways(30)
    rules = [
        fe.FusingRule(["Concat{Floor, Floor|Floor:0~}", "Activation{Floor}"], into="It", name="many"),
    ]
    fused = fe.fuse(net.graph, rules)
    assert [len(layers) for _, layers in made(fused)] == [2]
    (refusal,) = fused.graph["refusals"]
    assert (refusal.rule, refusal.layer.index) == ("many", concat)
    first, limit = refusal.reason.split("; besides, ")
    assert "is an output of the network too" in first
    assert limit.startswith(f"rule 'many' takes more than 10240 steps at layer {concat} ")
    assert limit.endswith("write it with fewer alternatives and ranges")


def test_a_match_that_is_found_within_the_steps_is_made() -> None:
    net, concat = many_ways(30)
    fused = fe.fuse(net.graph, fe.FusingRule("Concat{Floor!, Floor|Floor:0~}", into="It"))
    assert [layers[0] for _, layers in made(fused)] == [concat]
    assert fused.graph["refusals"] == ()


def test_records_name_layers_by_their_key_name_and_type(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    c = net.conv(x, W, name="c")
    r = net.activation(c, "ReLu", name="r")
    net.output(r)
    fusion = fe.fuse(net.graph, CONV_RELU).graph["fusions"][0]
    assert fusion.rule == "ConvRelu"
    assert fusion.layers == (LayerRef(r, "r", "Activation"), LayerRef(c, "c", "Convolution2d"))
    assert pickle.loads(pickle.dumps(fusion)) == fusion


@pytest.mark.parametrize(
    ("rules", "hint"),
    [
        ("npu", r"""fuse\(graph, load_rules\('npu'\)\)"""),
        ("my.toml", r"""load_rules\('my.toml'\)"""),
        (Path("my.rules"), r"""load_rules\('my.rules'\)"""),
        ("Activation{Convolution2d}", r"""FusingRule\('Activation\{Convolution2d\}'\)"""),
        (["Activation{Convolution2d}"], r"""FusingRule\('Activation\{Convolution2d\}'\)"""),
        (["armnn"], r"""load_rules\('armnn'\)"""),
        ([None], r"a rule is a FusingRule, not NoneType: make rules with FusingRule\(text\) or load_rules\(name\)"),
        (b"npu", "a rule is a FusingRule, not bytes"),
        (5, "rules are FusingRules, not int"),
        ([["Softmax"]], "a rule is a FusingRule, not list"),
    ],
)
def test_what_is_no_rule_is_told(net: Net, rules: Any, hint: str) -> None:
    with pytest.raises(fe.FuseError, match=hint):
        fe.fuse(net.graph, rules)


@pytest.mark.parametrize("graph", [None, nx.Graph(), nx.MultiDiGraph(), "model.armnn"])
def test_what_is_no_network_is_told(graph: Any) -> None:
    with pytest.raises(fe.FuseError, match=r"a network is a networkx\.DiGraph"):
        fe.fuse(graph, CONV_RELU)


def test_a_network_that_cannot_be_worked_on_is_told_by_its_first_problem(net: Net) -> None:
    net.graph.add_node(9)
    with pytest.raises(fe.ModelError, match="cannot be fused"):
        fe.fuse(net.graph, CONV_RELU)


def test_no_rules_change_nothing(net: Net) -> None:
    net.output(net.activation(net.input((1, 4)), "ReLu"))
    fused = fe.fuse(net.graph, [])
    assert fe.dumps(fused) == fe.dumps(net.graph)
    assert (fused.graph["fusions"], fused.graph["refusals"], fused.graph["warnings"]) == ((), (), ())
    assert fused.nodes[1]["params"] is not EMPTY


@pytest.mark.parametrize("rule", ["Activation{Input}", "Output{Activation}"])
def test_the_ends_of_the_network_are_never_consumed(net: Net, rule: str) -> None:
    net.output(net.activation(net.input((1, 4)), "ReLu"))
    fused = fe.fuse(net.graph, fe.FusingRule(rule, into="Bad"))
    assert fe.equal(fused, net.graph)
    assert "the network's ends stay as they are" in reasons(fused)[0]
    kept = fe.fuse(net.graph, fe.FusingRule("Activation{Input!}", into="Good"))
    assert made(kept) == [("Good", (1,))]


def test_a_group_is_made_once_and_is_no_refusal(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    net.output(net.activation(net.conv(x, W, name="c"), "ReLu", name="r"))
    group = fe.FusingRule("Activation{Convolution2d}", group="ConvRelu")
    fused = fe.fuse(net.graph, [group, CONV_RELU])
    assert [result for result, _ in made(fused)] == ["ConvRelu"]
    assert reasons(fused) == []
    assert types(fused) == types(net.graph)
    names = sorted(node["name"] for node in fused.nodes.values() if ":" in node["name"])
    assert [name.split("/")[1] for name in names] == ["c", "r"]
    assert len({name.split("/")[0] for name in names}) == 1
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(fused)))) == fe.dumps(net.graph)


def test_a_tensor_info_that_cannot_be_written_is_told() -> None:
    net = Net()
    conv = net.conv(net.input((1, 4, 4, 2)), W)
    net.output(net.activation(net.batch_norm(conv, **BN), "ReLu"))
    net.graph.nodes[conv]["outputs"] = (fe.TensorInfo((-1,)),)
    rule = fe.FusingRule("Activation{BatchNormalization{Convolution2d{?}}}", into="AB")
    fused = fe.fuse(net.graph, rule)
    assert made(fused) == []
    assert "cannot be written down" in reasons(fused)[0]


def test_signalling_nans_are_refused_without_a_warning(net: Net) -> None:
    x = net.input((1, 4, 4, 2))
    weights = np.full((2, 1, 1, 2), 0x7FA00000, "<u4").view("<f4")
    net.output(net.batch_norm(net.conv(x, weights), **BN))
    fused = fe.fuse(net.graph, BATCH_NORM)
    assert made(fused) == []
    assert "NaN" in reasons(fused)[0] or "nan" in reasons(fused)[0]


def test_records_of_layers_without_type_can_be_shown() -> None:
    graph = Net().graph
    graph.add_node(0, type="Input", name="a", binding_id=0, outputs=(TensorInfo((1,)),))
    graph.add_node(1, type=None, name="x", outputs=(TensorInfo((1,)),))
    graph.add_node(2, type="Output", name="b", binding_id=0)
    graph.add_node(3, type="Activation", name="y", outputs=(TensorInfo((1,)),))
    for source, target in ((0, 1), (0, 2), (1, 3)):
        fe.connect(graph, source, target)
    graph.graph.update(inputs=(0,), outputs=(2,))
    (fusion,) = fe.fuse(graph, fe.load_rules("armnn")).graph["fusions"]
    assert str(fusion) == "dead-ends: nothing from layer 3 'y' Activation; layer 1 'x' None"
