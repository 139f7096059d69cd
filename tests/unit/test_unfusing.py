"""The way back: everything as it was, whatever shares what; and networks that others have changed since."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import EMPTY, Network, bare_copy, connect, disconnect, edges_into
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net, shuffled
from tests.support.opaques import fuse_layers, recipe_key


def back_to_the_byte(fused: Network, graph: Network) -> None:
    assert fe.validate(fused) == ()
    assert fe.difference(fe.unfuse(fused), graph) is None
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(fused)))) == fe.dumps(graph)


def shared_net() -> tuple[Net, dict[str, int]]:
    """Two convolutions of one weights Constant, one bias tensor held by three layers, and a dead one."""
    net = Net()
    keys = {"x": net.input((1, 1, 1, 1), name="x")}
    keys["w"] = net.constant([[[[2.0]]]], name="w")
    bias = Tensor.of([1.0])
    keys["a"] = net.conv(keys["x"], keys["w"], name="a")
    keys["b"] = net.conv(keys["a"], keys["w"], name="b")
    shared = dict.fromkeys(("mean", "variance", "beta", "gamma"), bias)
    for name, source in (("na", "a"), ("nb", "b"), ("dead", "x")):
        keys[name] = net.layer("BatchNormalization", keys[source], constants=shared, name=name)
    keys["y"] = net.output(keys["nb"], name="y")
    keys["z"] = net.output(keys["na"], name="z")
    return net, keys


def test_shared_constants_members_and_dead_layers() -> None:
    net, keys = shared_net()
    one = fuse_layers(net.graph, [keys["nb"], keys["b"]])
    two = fuse_layers(one, [keys["na"]])
    three = fuse_layers(two, [keys["dead"]])
    for fused in (one, two, three):
        back_to_the_byte(fused, net.graph)
    again = fe.unfuse(three)
    tensors = [tensor for _, node in again.nodes(data=True) for tensor in node["constants"].values()]
    assert len({tensor.memory for tensor in tensors}) == 2
    assert len(fe.dumps(three)) < len(fe.dumps(net.graph)) + 8000


def test_two_opaque_layers_over_one_constant() -> None:
    net, keys = shared_net()
    fused = fuse_layers(fuse_layers(net.graph, [keys["nb"], keys["b"]]), [keys["a"]])
    assert set(fused.succ[keys["w"]]) == {keys["nb"], keys["a"]}
    back_to_the_byte(fused, net.graph)


def test_layers_before_the_fused_ones_stay_where_they_are() -> None:
    net = Net()
    x, y = net.input((1, 2), name="x"), net.input((1, 2), name="y")
    kept = net.layer("Floor", x, name="kept")
    total = net.addition(y, kept, name="total")
    net.output(total, name="out", binding_id=9472)
    net.output(kept, name="out", binding_id=-3)
    back_to_the_byte(fuse_layers(net.graph, [total]), net.graph)


def test_the_callers_network_stays_as_it_is() -> None:
    net, keys = shared_net()
    fused = fuse_layers(net.graph, [keys["nb"], keys["b"]])
    before = shuffled(fused, 1)
    nodes = {key: dict(node) for key, node in fused.nodes(data=True)}
    fe.unfuse(fused)
    assert fe.difference(fused, before) is None
    assert {key: dict(node) for key, node in fused.nodes(data=True)} == nodes
    assert fused.graph == before.graph | {field: fused.graph[field] for field in ("inputs", "outputs")}


def test_the_root_keeps_its_key_and_the_record_goes() -> None:
    net, keys = shared_net()
    rule = fe.FusingRule("BatchNormalization{Convolution2d}", into="ConvNorm")
    fused = fe.fuse(net.graph, [rule])
    assert [fusion.result for fusion in fused.graph["fusions"]] == ["ConvNorm"]
    again = fe.unfuse(fused)
    assert again.nodes[keys["nb"]]["name"] == "nb"
    assert set(again.graph) == {"inputs", "outputs", "dialect", "feature_versions"}


def test_kept_layers() -> None:
    net, _ = shared_net()
    fused = fe.fuse(net.graph, fe.FusingRule("BatchNormalization{Convolution2d!}", into="Norm"))
    assert {node["type"] for _, node in fused.nodes(data=True)} >= {"StandIn", "Convolution2d"}
    back_to_the_byte(fused, net.graph)


def test_swapped_operands() -> None:
    net = Net()
    x = net.input((1, 2), name="x")
    act = net.activation(x, name="act")
    total = net.addition(x, act, name="total")
    net.output(total, name="y")
    fused = fe.fuse(net.graph, fe.FusingRule("Addition{Activation, ?}", into="ActAdd"))
    assert [node["name"] for _, node in fused.nodes(data=True) if node["type"] == "StandIn"] == ["ActAdd:total"]
    back_to_the_byte(fused, net.graph)


def test_a_network_without_anything_to_undo() -> None:
    net, _ = shared_net()
    again = fe.unfuse(net.graph)
    assert fe.dumps(again) == fe.dumps(net.graph)
    assert set(again) == set(net.graph)
    assert "warnings" not in again.graph


def test_warnings_of_loading_stay_and_those_of_fusing_go() -> None:
    net = Net("19.05")
    net.output(net.layer("Floor", net.input((1,), name="x"), name="f"))
    fused = fuse_layers(net.graph, [1])
    assert fused.graph["warnings"][0].startswith("opaque layers: ")
    fused.graph["warnings"] = ("something else", *fused.graph["warnings"])
    assert fe.unfuse(fused).graph["warnings"] == ("something else",)


def test_foreign_stand_ins_are_left_and_told() -> None:
    net = Net()
    x = net.input((1, 2), name="x")
    foreign = net.stand_in(x, net.constant([1.0]), outputs=[(1, 2)], name="theirs")
    floor = net.layer("Floor", foreign, name="f")
    net.output(floor, name="y")
    fused = fuse_layers(net.graph, [floor, foreign])
    again = fe.unfuse(fused)
    assert fe.difference(again, net.graph) is None
    assert again.graph.get("warnings", ()) == ()
    left = fe.unfuse(fuse_layers(net.graph, [floor]))
    assert fe.difference(left, net.graph) is None
    assert left.graph["warnings"] == ("layer 2 'theirs' is left as it is: its last input is no recipe",)


@pytest.mark.parametrize("by", ["one Constant", "bytes"])
def test_a_recipe_that_serves_several_is_left_and_told(by: str) -> None:
    """A small file with one long recipe for hundreds of StandIns would come back as hundreds of thousands of layers."""
    net = Net()
    x = net.input((1, 2), name="x")
    floors = [net.layer("Floor", x, name="f") for _ in range(3)]
    for floor in floors:
        net.output(floor)
    fused = net.graph
    for floor in floors:
        fused = fuse_layers(fused, [floor])
    recipes = [recipe_key(fused, floor) for floor in floors]
    if by == "bytes":
        fused.nodes[recipes[1]]["constants"] = fused.nodes[recipes[0]]["constants"]
    else:
        disconnect(fused, floors[1], 1)
        fused.remove_node(recipes[1])
        connect(fused, recipes[0], floors[1], 0, 1)
    again = fe.unfuse(fe.loads(fe.dumps(fused)))
    assert sorted(node["type"] for _, node in again.nodes(data=True) if node["name"].startswith("f")) == ["Floor"]
    assert [text.partition(" is left as it is: ")[2] for text in again.graph["warnings"]] == [
        "2 StandIns share its recipe's bytes, and fusing gives each its own"
    ] * 2


@pytest.mark.parametrize("warnings", [None, "text", 5, [1, "kept"], ("kept", None)])
def test_warnings_that_are_no_tuple_of_str(warnings: Any) -> None:
    net, _ = shared_net()
    net.graph.graph["warnings"] = warnings
    rule = fe.FusingRule("BatchNormalization{Convolution2d}", into="K")
    fused = fe.fuse(net.graph, rule)
    kept = ("kept",) if isinstance(warnings, list | tuple) else ()
    assert fused.graph["warnings"] == kept
    assert fe.unfuse(fused).graph.get("warnings", ()) == kept


def test_what_is_no_network() -> None:
    for thing in (None, "model.armnn", nx.Graph(), nx.MultiDiGraph()):
        with pytest.raises(fe.FuseError, match=r"a network is a networkx\.DiGraph"):
            fe.unfuse(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize("attribute", ["type", "name"])
def test_a_malformed_network(attribute: str) -> None:
    net, keys = shared_net()
    fused = fuse_layers(net.graph, [keys["nb"]])
    broken = shuffled(fused, 0)
    key = next(iter(broken))
    if attribute == "type":
        del broken.nodes[key]["type"]
    else:
        broken.nodes[key]["name"] = 3
    with pytest.raises(fe.ModelError, match="cannot be unfused: "):
        fe.unfuse(broken)


# Networks that others have changed


def depthwise_net() -> tuple[Network, int, int]:
    """A file of 20.08: depthwise weights [M,I,H,W] as a member, then a Floor."""
    net = Net(feature_versions=(1, 0, 0), form="member")
    x = net.input((1, 2, 2, 2), name="x")
    dw = net.depthwise(x, np.ones((1, 2, 1, 1), np.float32), name="dw")
    floor = net.layer("Floor", dw, name="floor")
    net.output(floor, name="y")
    return net.graph, dw, floor


def test_a_depthwise_convolution_that_another_tool_added() -> None:
    graph, dw, floor = depthwise_net()
    fused = fuse_layers(graph, [dw])
    assert fused.graph["feature_versions"] == (1, 1, 0)
    other = bare_copy(fused)
    node = graph.nodes[dw]
    other.add_node(99, **{**node, "name": "added", "constants": EMPTY, "type": "DepthwiseConvolution2d"})
    fe.connect(other, floor, 99)
    with pytest.raises(
        fe.ModelError, match=r"layer 99 'added': its weights would be taken in the wrong layout: .* 1 and"
    ):
        fe.unfuse(other)


def test_a_network_written_anew_with_other_feature_versions() -> None:
    graph, dw, floor = depthwise_net()
    scheme_matters = fuse_layers(graph, [dw])
    scheme_matters.graph["feature_versions"] = (1, 1, 1)
    with pytest.raises(fe.ModelError, match="layer 1 'dw': its weights would be taken in the wrong layout"):
        fe.unfuse(scheme_matters)
    graph.nodes[dw].update(type="Floor", params=EMPTY, constants=EMPTY)
    it_does_not = fuse_layers(graph, [floor])
    it_does_not.graph["feature_versions"] = (1, 1, 1)
    again = fe.unfuse(it_does_not)
    assert again.graph["feature_versions"] == (1, 1, 1)
    assert again.graph["warnings"] == (
        "featureVersions stay (1, 1, 1): another tool wrote the network since it was fused with (1, 0, 0), so layers "
        "that hold their weights themselves may stand beside layers that have them on input slots",
    )


def test_layers_that_the_former_dialect_does_not_have() -> None:
    net = Net("19.05")
    floor = net.layer("Floor", net.input((1,), name="x"), name="f")
    y = net.output(floor, name="y")
    fused = fuse_layers(net.graph, [floor])
    fused.remove_edge(floor, y)
    fused.add_node(50, type="Rank", name="new", params=EMPTY, constants=EMPTY, outputs=(TensorInfo((1,), "Signed32"),))
    fe.connect(fused, floor, 50)
    fe.connect(fused, 50, y)
    again = fe.unfuse(fused)
    assert (again.graph["dialect"], again.graph["feature_versions"]) == ("current", (0, 0, 0))
    assert again.graph["warnings"] == (
        "the network stays a current one, it was 19.05 once: layer 50 'new' is a Rank, which the 19.05 dialect "
        "does not have",
    )
    assert fe.validate(again) == ()


def merged(one: Network, two: Network) -> Network:
    """Both networks in one graph."""
    graph = nx.disjoint_union(one, two)
    count = len(one)
    graph.graph.update(one.graph)
    for field in ("inputs", "outputs"):
        order = {key: number for number, key in enumerate(one)}
        other = {key: count + number for number, key in enumerate(two)}
        graph.graph[field] = tuple(order[key] for key in one.graph[field]) + tuple(
            other[key] for key in two.graph[field]
        )
    return graph


def test_layers_of_two_networks() -> None:
    parts = []
    for versions in ((1, 1, 1), (1, 0, 0)):
        net = Net(feature_versions=versions)
        floor = net.layer("Floor", net.input((1,), name="x"), name="f")
        net.output(floor, name="y")
        parts.append(fuse_layers(net.graph, [floor]))
    with pytest.raises(
        fe.ModelError, match=r"'Fused:f': it was fused in a network of dialect current with .*\(1, 0, 0\)"
    ):
        fe.unfuse(merged(*parts))
    assert len(fe.unfuse(merged(parts[0], parts[0])).graph["inputs"]) == 2


def test_a_member_constant_that_somebody_else_reads_stays() -> None:
    net = Net(form="member")
    conv = net.conv(net.input((1, 1, 1, 1), name="x"), weights=[[[[2.0]]]], name="conv")
    net.output(conv, name="y")
    fused = fuse_layers(net.graph, [conv])
    weights = edges_into(fused, conv)[1][1].layer
    fused.add_node(
        70, type="Floor", name="reader", params=EMPTY, constants=EMPTY, outputs=fused.nodes[weights]["outputs"]
    )
    fe.connect(fused, weights, 70)
    again = fe.unfuse(fused)
    assert again.nodes[weights]["type"] == "Constant"
    held: Any = again.nodes[conv]["constants"]["weights"]
    assert held is fused.nodes[weights]["constants"]["input"]
    assert fe.validate(again) == ()


def test_weights_that_another_tool_replaced_come_back_replaced() -> None:
    net = Net(form="member")
    conv = net.conv(net.input((1, 1, 1, 1), name="x"), weights=[[[[2.0]]]], name="conv")
    net.output(conv, name="y")
    fused = fuse_layers(net.graph, [conv])
    weights = edges_into(fused, conv)[1][1].layer
    tensor: Tensor = fused.nodes[weights]["constants"]["input"]
    other = Tensor(replace(tensor.info, is_constant=True), np.full_like(tensor.data, 7.0))
    fused.nodes[weights].update(constants=fe.FrozenDict(input=other), outputs=(other.info,))
    assert fe.unfuse(fused).nodes[conv]["constants"]["weights"].data.item() == 7.0


def test_many_inputs_cost_no_square() -> None:
    count = 20_000
    graph = Net().graph
    info = TensorInfo((1,))
    for key in range(count):
        graph.add_node(key, type="Input", name="", binding_id=key, params=EMPTY, constants=EMPTY, outputs=(info,))
    views = fe.FrozenDict(numViews=count, numDimensions=1, viewOrigins=tuple((key,) for key in range(count)))
    graph.add_node(count, type="Concat", name="c", params=views, constants=EMPTY, outputs=(TensorInfo((count,)),))
    graph.add_edges_from((key, count, {"slots": ((0, key),)}) for key in range(count))
    graph.graph["inputs"] = tuple(range(count))
    fused = fuse_layers(graph, [count])
    again = fe.unfuse(fused)
    assert fused.nodes[count]["params"]["numInputs"] == count + 1
    assert again.nodes[count]["params"] == {"concatAxis": 0, **views}
