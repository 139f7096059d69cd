"""Opaque layers: what the StandIn is made of, what is refused, what the network is written as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import opaque
from fusion_engine.folds import Refused
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Network, Source, edges_into
from fusion_engine.recipes import recipe
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.matches import match_of
from tests.support.nets import Net
from tests.support.opaques import fuse_layers, into


def inputs_of(graph: Network, key: int) -> list[tuple[str, int]]:
    """(name of the source, its output slot) per input slot."""
    return [(graph.nodes[source.layer]["name"], source.slot) for _, source in edges_into(graph, key)]


def told(graph: Network, key: int) -> dict[str, Any]:
    return recipe(graph, key)


def norm_net(form: str = "member") -> tuple[Net, dict[str, int]]:
    """x -> conv -> norm -> relu -> y."""
    net = Net(form=form)
    keys = {"x": net.input((1, 1, 1, 1), name="x")}
    keys["conv"] = net.conv(keys["x"], weights=[[[[2.0]]]], bias=[0.5], name="conv")
    keys["norm"] = net.batch_norm(keys["conv"], [1.0], [2.0], [3.0], [4.0], name="norm")
    keys["relu"] = net.activation(keys["norm"], name="relu")
    keys["y"] = net.output(keys["relu"], name="y")
    return net, keys


def test_a_chain_becomes_one_stand_in() -> None:
    net, keys = norm_net()
    root = keys["relu"]
    graph = fuse_layers(net.graph, [root, keys["norm"], keys["conv"]], "ConvNormRelu", code=300)
    assert fe.validate(graph) == ()
    node = graph.nodes[root]
    assert (node["type"], node["name"]) == ("StandIn", "ConvNormRelu:relu")
    assert node["params"] == {"numInputs": 8, "numOutputs": 1}
    assert node["constants"] == {}
    assert node["outputs"] == net.graph.nodes[root]["outputs"]
    assert inputs_of(graph, root) == [
        ("x", 0),
        ("ConvNormRelu:relu/norm/mean", 0),
        ("ConvNormRelu:relu/norm/variance", 0),
        ("ConvNormRelu:relu/norm/beta", 0),
        ("ConvNormRelu:relu/norm/gamma", 0),
        ("ConvNormRelu:relu/conv/weights", 0),
        ("ConvNormRelu:relu/conv/biases", 0),
        ("ConvNormRelu:relu/recipe", 0),
    ]
    assert list(graph.pred[keys["y"]]) == [root]
    held = [graph.nodes[source.layer] for _, source in edges_into(graph, root)][1:]
    values = [node["constants"]["input"].data.ravel().tolist() for node in held[:-1]]
    assert values == [[3.0], [4.0], [2.0], [1.0], [2.0], [0.5]]
    assert held[4]["constants"]["input"] is net.graph.nodes[keys["conv"]]["constants"]["weights"]
    assert held[-1]["outputs"] == (held[-1]["constants"]["input"].info,)
    info = held[-1]["outputs"][0]
    assert (info.data_type, len(info.shape), info.quantization_scale, info.quantization_offset) == (
        "QAsymmU8",
        1,
        1,
        300,
    )


def test_constants_that_are_layers_stay_the_layers_they_are() -> None:
    net, keys = norm_net("constant")
    graph = fuse_layers(net.graph, [keys["norm"], keys["conv"]])
    names = [name for name, _ in inputs_of(graph, keys["norm"])]
    assert names[0] == "x"
    assert names[5:7] == ["conv/weights", "conv/bias"]
    for name in ("conv/weights", "conv/bias"):
        (key,) = [key for key, node in net.graph.nodes(data=True) if node["name"] == name]
        assert graph.nodes[key] == net.graph.nodes[key]
    entries = told(graph, keys["norm"])["constants"]
    assert [entry["layout"] for entry in entries] == ["C"] * 4 + ["OHWI", "C"]
    assert entries[4] == {"layer": 1, "slot": 1, "name": "conv/weights", "layout": "OHWI"}


def test_named_constants_come_last_each_once() -> None:
    net = Net()
    x = net.input((1, 1, 1, 1), name="x")
    k = net.constant([[[[1.0]]]], name="k")
    m = net.constant([[[[3.0]]]], name="m")
    conv = net.conv(x, k, name="conv")
    scaled = net.multiplication(k, conv, name="mul")
    add = net.addition(scaled, m, name="add")
    twice = net.multiplication(k, add, name="root")
    net.output(twice, name="y")
    graph = fuse_layers(net.graph, [twice, add, scaled, conv], constants=[k, m])
    assert inputs_of(graph, twice)[:-1] == [("x", 0), ("k", 0), ("k", 0), ("m", 0)]
    found = told(graph, twice)
    assert [(entry["layer"], entry["slot"]) for entry in found["constants"]] == [(3, 1), (0, 0), (1, 1)]
    assert [layer["inputs"] for layer in found["layers"]] == [
        [{"constant": 1}, {"layer": 1, "slot": 0}],
        [{"layer": 2, "slot": 0}, {"constant": 2}],
        [{"constant": 1}, {"layer": 3, "slot": 0}],
        [{"input": 0}, {"constant": 0}],
    ]
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(graph)))) == fe.dumps(net.graph)


def test_a_constant_may_be_named_and_be_data_too() -> None:
    net = Net()
    k = net.constant([1.0], name="k")
    add = net.addition(k, k, name="add")
    net.output(add, name="y")
    fused = fe.fuse(net.graph, fe.FusingRule("Addition{Constant, ?}", into="Twice"))
    assert inputs_of(fused, add) == [("k", 0), ("k", 0), ("Twice:add/recipe", 0)]
    assert told(fused, add)["layers"][0]["inputs"] == [{"constant": 0}, {"input": 0}]
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(fused)))) == fe.dumps(net.graph)


def test_one_source_on_two_slots_and_operands_in_their_order() -> None:
    net = Net()
    x = net.input((1, 4), name="x")
    parts = net.splitter(x, 1, [2, 2], name="parts")
    minus = net.binary("Subtraction", (parts, 1), (parts, 0), name="minus")
    double = net.addition(minus, minus, name="double")
    net.output(double, name="y")
    one = fuse_layers(net.graph, [minus])
    assert inputs_of(one, minus)[:2] == [("parts", 1), ("parts", 0)]
    both = fuse_layers(net.graph, [double, minus])
    assert told(both, double)["layers"][0]["inputs"] == [{"layer": 1, "slot": 0}] * 2
    assert inputs_of(both, double)[:2] == [("parts", 1), ("parts", 0)]
    for graph in (one, both):
        assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(graph)))) == fe.dumps(net.graph)


def test_the_order_of_data_inputs_is_the_matches() -> None:
    net = Net()
    a, b = net.input((1,), name="a"), net.input((1,), name="b")
    minus = net.binary("Subtraction", a, b, name="minus")
    net.output(minus)
    match = match_of(Workspace(net.graph), [minus])
    swapped = Match(minus, (minus,), (), (), match.inputs[::-1], ())
    work = Workspace(net.graph)
    opaque.apply(work, swapped, opaque.check(work, swapped, into("Minus")))
    assert [name for name, _ in inputs_of(work.graph, minus)][:2] == ["b", "a"]
    assert told(work.graph, minus)["layers"][0]["inputs"] == [{"input": 1}, {"input": 0}]
    assert fe.difference(fe.unfuse(work.graph), net.graph) is None


def test_a_root_with_several_outputs() -> None:
    net = Net()
    x = net.input((1, 6), name="x")
    parts = net.splitter(x, 1, [1, 2, 3], name="parts")
    first, last = net.output((parts, 2), name="first"), net.output((parts, 0), name="last")
    graph = fuse_layers(net.graph, [parts])
    assert graph.nodes[parts]["outputs"] == net.graph.nodes[parts]["outputs"]
    assert graph.nodes[parts]["params"] == {"numInputs": 2, "numOutputs": 3}
    assert told(graph, parts)["outputs"] == [0, 1, 2]
    assert [edges_into(graph, key) for key in (first, last)] == [[(0, Source(parts, 2))], [(0, Source(parts, 0))]]


def test_overrides_go_along_and_come_back() -> None:
    net, keys = norm_net("constant")
    info = TensorInfo((1, 1), "Float16")
    overrides: dict[Any, Any] = {0: (True, info), 1: (False, None)}
    net.graph.nodes[keys["conv"]]["overrides"] = FrozenDict(overrides)
    graph = fuse_layers(net.graph, [keys["norm"], keys["conv"]])
    assert graph.nodes[keys["norm"]]["overrides"] == {0: (True, info), 5: (False, None)}
    assert fe.validate(graph) == ()
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(graph)))) == fe.dumps(net.graph)


def test_integers_of_numpy_are_integers() -> None:
    net, keys = norm_net("constant")
    net.graph.graph["feature_versions"] = tuple(np.array([1, 1, 1]))
    overrides: dict[Any, Any] = {np.int64(1): (True, None)}
    net.graph.nodes[keys["conv"]]["overrides"] = FrozenDict(overrides)
    assert fe.validate(net.graph) == ()
    graph = fuse_layers(net.graph, [keys["norm"], keys["conv"]])
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(graph)))) == fe.dumps(net.graph)


def test_names_are_unique() -> None:
    net = Net(form="member")
    x = net.input((1, 1, 1, 1), name="Fused:relu/recipe")
    conv = net.conv(x, weights=[[[[2.0]]]], name="")
    relu = net.activation(conv, name="relu")
    other = net.activation(relu, name="Fused:relu")
    net.output(other, name="Fused:relu#2/Convolution2d/weights")
    graph = fuse_layers(net.graph, [relu, conv])
    assert graph.nodes[relu]["name"] == "Fused:relu#2"
    assert [name for name, _ in inputs_of(graph, relu)] == [
        "Fused:relu/recipe",
        "Fused:relu#2/Convolution2d/weights#2",
        "Fused:relu#2/recipe",
    ]


def test_equal_names_of_roots() -> None:
    net = Net()
    last = net.input((1,), name="x")
    floors = [last := net.layer("Floor", last, name="f") for _ in range(3)]
    net.output(last, name="y")
    graph = fuse_layers(fuse_layers(net.graph, floors[:1]), floors[2:])
    assert [graph.nodes[key]["name"] for key in floors] == ["Fused:f", "f", "Fused:f#2"]


def test_fusions_over_fusions() -> None:
    net, keys = norm_net()
    inner = fuse_layers(net.graph, [keys["norm"], keys["conv"]], "Inner", code=5)
    graph = fuse_layers(inner, [keys["relu"], keys["norm"]], "Outer", code=6)
    assert graph.nodes[keys["relu"]]["name"] == "Outer:relu"
    assert [name for name, _ in inputs_of(graph, keys["relu"])] == [
        "x",
        *[f"Inner:norm/norm/{field}" for field in ("mean", "variance", "beta", "gamma")],
        *[f"Inner:norm/conv/{field}" for field in ("weights", "biases")],
        "Outer:relu/recipe",
    ]
    assert not any(node["name"] == "Inner:norm/recipe" for _, node in graph.nodes(data=True))
    found = told(graph, keys["relu"])
    assert found["layers"][1]["recipe"] == told(inner, keys["norm"])
    assert found["layers"][1]["inputs"] == [{"input": 0}, *[{"constant": k} for k in range(6)]]
    assert [(entry["layer"], entry["slot"]) for entry in found["constants"]] == [(1, slot) for slot in range(1, 7)]
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(graph)))) == fe.dumps(net.graph)


def tower(levels: int) -> tuple[Network, int]:
    """A layer fused alone again and again."""
    net = Net()
    floor = net.layer("Floor", net.input((1,), name="x"), name="f")
    net.output(floor, name="y")
    graph = net.graph
    for level in range(levels):
        graph = fuse_layers(graph, [floor], f"Level{level}")
    return graph, floor


def test_sixteen_levels_and_no_more() -> None:
    graph, floor = tower(16)
    work = Workspace(graph)
    with pytest.raises(Refused, match="fusions over fusions nest to 16 levels, and this would be level 17"):
        opaque.check(work, match_of(work, [floor]), into("More"))
    bare, _ = tower(0)
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(graph)))) == fe.dumps(bare)


def test_what_is_refused() -> None:
    net, keys = norm_net("constant")
    loose = net.layer("Floor", keys["x"], name="loose", unconnected=(1,))
    gap = net.layer("Floor", outputs=[(1,)], name="gap")
    fe.connect(net.graph, keys["x"], gap, 0, 1)
    work = Workspace(net.graph)
    (weights,) = [key for key, node in net.graph.nodes(data=True) if node["name"] == "conv/weights"]
    for layers, reason in (
        ([keys["conv"], keys["x"]], r"layer 0 'x' is an Input, which belongs to the network's users: mark it with !"),
        ([keys["y"], keys["relu"]], r"'y' is an Output"),
        ([loose], "'loose' has input slots that nothing is connected to"),
        ([gap], "'gap' has input slots that nothing is connected to"),
    ):
        with pytest.raises(Refused, match=reason):
            opaque.check(work, match_of(work, layers), into("Fused"))
    with pytest.raises(Refused, match="'conv/weights' is a Constant: it cannot be the root of an opaque layer"):
        opaque.check(work, Match(weights, (), (), (weights,), (), ()), into("Fused"))


def test_check_changes_nothing() -> None:
    net, keys = norm_net()
    work = Workspace(net.graph)
    revision = work.revision
    opaque.check(work, match_of(work, [keys["relu"], keys["norm"]]), into("Fused"))
    assert work.revision == revision
    assert fe.difference(work.graph, net.graph) is None
    assert work.names.unique("Fused:relu") == "Fused:relu"


def test_a_recipe_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net, keys = norm_net()
    work = Workspace(net.graph)
    monkeypatch.setattr("fusion_engine.recipes.MAX_BYTES", 100)
    with pytest.raises(Refused, match=r"the recipe would have \d+ bytes, more than 100"):
        opaque.check(work, match_of(work, [keys["relu"]]), into("Fused"))


def test_what_no_layer_has_is_the_networks_fault() -> None:
    net, keys = norm_net()
    net.graph.nodes[keys["relu"]]["params"] = FrozenDict(stride=1)
    with pytest.raises(fe.ModelError, match="stride"):
        fe.fuse(net.graph, fe.FusingRule("Activation", into="Relu"))
    net.graph.nodes[keys["relu"]].update(params=FrozenDict(), name="\ud800")
    with pytest.raises(fe.ModelError, match="surrogate"):
        fe.fuse(net.graph, fe.FusingRule("Activation", into="Relu"))


# Layouts


def depthwise(versions: tuple[int, int, int], shape: tuple[int, ...]) -> tuple[Network, int]:
    net = Net(feature_versions=versions, form="member")
    key = net.depthwise(net.input((1, 4, 4, 2), name="x"), np.ones(shape, np.float32), name="dw")
    net.output(key, name="y")
    return net.graph, key


@pytest.mark.parametrize(
    ("kind", "params", "weights", "layout"),
    [
        ("Convolution2d", {"dataLayout": "NHWC"}, (3, 1, 1, 2), "OHWI"),
        ("Convolution2d", {"dataLayout": "NCHW"}, (3, 2, 1, 1), "OIHW"),
        ("Convolution2d", {}, (3, 2, 1, 1), "OIHW"),
        ("TransposeConvolution2d", {"dataLayout": "NHWC"}, (3, 1, 1, 2), "OHWI"),
        ("DepthwiseConvolution2d", {}, (1, 1, 1, 2), "1HWO"),
        ("FullyConnected", {"transposeWeightsMatrix": True}, (3, 2), "OI"),
        ("FullyConnected", {}, (2, 3), "IO"),
        ("FullyConnected", {}, (2, 3, 1), None),
        ("Softmax", {}, None, None),
    ],
)
def test_layouts_of_members(kind: str, params: dict[str, Any], weights: tuple[int, ...] | None, layout: str) -> None:
    net = Net()
    x = net.input((1, 2, 1, 1), name="x")
    constants = {} if weights is None else {"weights": Tensor.of(np.ones(weights))}
    key = net.layer(kind, x, params=params, constants=constants)
    net.output(key)
    entries = told(fuse_layers(net.graph, [key]), key)["constants"]
    assert [entry["layout"] for entry in entries] == ([] if weights is None else [layout])


def test_layouts_of_constants_on_input_slots() -> None:
    net = Net()
    x = net.input((1, 1, 1, 1, 1), name="x")
    conv = net.conv3d(x, np.ones((1, 1, 1, 1, 2)), [0.0, 0.0])
    net.output(conv)
    entries = told(fuse_layers(net.graph, [conv]), conv)["constants"]
    assert [(entry["slot"], entry["layout"]) for entry in entries] == [(1, "DHWIO"), (2, "C")]


# What the network is written as


def test_scheme_0_becomes_1_where_nothing_depends_on_it() -> None:
    graph, key = depthwise((1, 0, 0), (2, 2, 3, 3))
    fused = fuse_layers(graph, [key])
    assert fused.graph["feature_versions"] == (1, 1, 0)
    assert fused.graph["warnings"] == ()
    assert told(fused, key)["featureVersions"] == [1, 0, 0]
    assert told(fused, key)["constants"] == [{"layer": 0, "field": "weights", "layout": "MIHW"}]
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(fused)))) == fe.dumps(graph)


def test_scheme_0_stays_where_depthwise_weights_are_left() -> None:
    graph, key = depthwise((1, 0, 0), (2, 2, 3, 3))
    (output,) = graph.graph["outputs"]
    net = Net()
    net.graph = graph
    floor = net.layer("Floor", key, name="floor")
    graph.remove_edge(key, output)
    fe.connect(graph, floor, output)
    fused = fuse_layers(graph, [floor])
    assert fused.graph["feature_versions"] == (1, 0, 0)
    assert fused.graph["warnings"] == (
        "opaque layers: weightsLayoutScheme stays 0 for the sake of layer 1 'dw', a depthwise convolution that no rule "
        "fused: releases from 22.05 on cannot read the network, since with scheme 0 they permute its Constants; "
        "--release 23.08 carries it to one of them",
    )
    later = fuse_layers(fe.loads(fe.dumps(fused)), [1])
    assert later.graph["feature_versions"] == (1, 1, 0)
    assert told(later, 1)["featureVersions"] == [1, 0, 0]
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(later)))) == fe.dumps(graph)


@pytest.mark.parametrize("dialect", ["seed", "19.02", "19.05"])
def test_older_dialects_become_current_and_come_back(dialect: str) -> None:
    net = Net(dialect)
    x = net.input((1, 2), name="x")
    soft = net.layer("Softmax", x, params={"beta": 2.0}, name="soft")
    last = soft
    if dialect != "seed":
        last = net.layer("Activation", soft, params={"function": "TanH", "a": 1.0}, name="act")
        last = net.layer("Activation", last, params={"function": "ReLu"}, name="left")
    y = net.output(last, name="y")
    root = soft if dialect == "seed" else soft + 1
    layers = [root] if dialect == "seed" else [root, soft]
    fused = fuse_layers(net.graph, layers)
    assert fe.validate(fused) == ()
    assert (fused.graph["dialect"], fused.graph["feature_versions"]) == ("current", (0, 1, 0))
    assert fused.graph["warnings"] == (
        f"opaque layers: there is no StandIn in the {dialect} dialect, so the network is written as a current one: "
        "releases before 19.11 cannot read it",
    )
    found = told(fused, root)
    assert (found["dialect"], found["featureVersions"]) == (dialect, [0, 0, 0])
    assert found["layers"][-1]["params"] == {"beta": 2.0, "axis": -1}
    if dialect != "seed":
        assert found["layers"][0]["params"] == {"activationFunction": "TanH", "a": 1.0, "b": 0.0}
        (source,) = edges_into(fused, y)
        assert fused.nodes[source[1].layer]["params"] == {"activationFunction": "ReLu"}
    again = fe.unfuse(fe.loads(fe.dumps(fused)))
    assert again.graph["dialect"] == dialect
    assert fe.dumps(again) == fe.dumps(net.graph)


def test_a_network_without_opaque_layers_is_written_as_it_is() -> None:
    net = Net("19.05")
    net.output(net.layer("Floor", net.input((1,))))
    work = Workspace(net.graph)
    assert opaque.settle(work) == ()
    assert (work.graph.graph["dialect"], work.graph.graph["feature_versions"]) == ("19.05", (0, 0, 0))


def test_to_dialect_says_what_cannot_be() -> None:
    net = Net()
    x = net.input((1,), name="x")
    net.output(net.layer("Softmax", x, params={"axis": 1}, name="soft"))
    work = Workspace(net.graph)
    assert opaque.to_dialect(work, "19.05") == (
        "layer 1 'soft' has axis set, which the 19.05 dialect's Softmax does not have"
    )
    assert opaque.to_dialect(work, "seed") == (
        "layer 1 'soft' has axis set, which the seed dialect's Softmax does not have"
    )
    work.set(1, type="Prelu", params=FrozenDict())
    assert opaque.to_dialect(work, "19.05") == "layer 1 'soft' is a Prelu, which the 19.05 dialect does not have"
    assert work.graph.graph["dialect"] == "current"
