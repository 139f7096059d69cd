"""Recipes: canonical bytes, golden files, and reading that takes nothing else for one."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict, Network, bare_copy
from fusion_engine.recipe_values import Wrong
from fusion_engine.recipes import MAX_BYTES, decode, encode, fault_of, nesting, read_recipe, recipe
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net
from tests.support.opaques import fuse_layers, recipe_bytes, recipe_key, with_recipe

GOLDEN = Path(__file__).parents[1] / "golden" / "recipes"


def conv_relu(**options: Any) -> tuple[Network, int]:
    """conv(member weights and bias) -> relu, fused; and the StandIn's key."""
    net = Net(feature_versions=(1, 0, 0), form="member")
    x = net.input((1, 2, 2, 1), name="x")
    conv = net.conv(x, weights=[[[[2.0]]]], bias=[0.5], name="conv")
    relu = net.activation(conv, "BoundedReLu", a=0.1, name="relu")
    net.output(relu, name="y")
    return fuse_layers(net.graph, [relu, conv], "ConvRelu", **options), relu


def constant_add() -> tuple[Network, int]:
    """A convolution with Constant weights, an Addition of a Constant that the pattern names, odd names."""
    net = Net()
    x = net.input((1, 1, 1, 1), name="x")
    weights = net.constant([[[[2.0]]]], name="W\udcff")
    conv = net.conv(x, weights, name="")
    three = net.constant([3.0], name="3\n\u5377")
    add = net.addition(three, conv, name='say "a\\b"')
    net.output(add, name="y")
    return fuse_layers(net.graph, [add, conv], "ConvAdd", code=17, constants=[three]), add


def nested() -> tuple[Network, int]:
    """floor -> abs, fused, -> exp, fused again; in a network of the 19.05 dialect."""
    net = Net("19.05")
    x = net.input((1, 2), name="x")
    floor = net.layer("Floor", x, name="floor")
    act = net.layer("Activation", floor, params={"function": "Abs"}, name="abs")
    last = net.layer("Activation", act, params={"function": "ReLu", "a": float("inf"), "b": float("nan")}, name="last")
    net.output(last, name="y")
    inner = fuse_layers(net.graph, [act, floor], "Inner", code=-1)
    return fuse_layers(inner, [last, act], "Outer"), last


def splitter() -> tuple[Network, int]:
    """A root with two outputs, an overridden input, per-axis quantization."""
    net = Net(data_type="QSymmS8")
    x = net.input((1, 4), quantization_scales=(0.1, 0.2, 0.3, 1e-8), quantization_dim=1, name="x")
    parts = net.splitter(x, 1, [1, 3], name="parts")
    net.graph.nodes[parts]["overrides"] = FrozenDict({0: (True, TensorInfo((4,), "Float16"))})  # type: ignore[dict-item]
    net.output((parts, 0), name="y")
    net.output((parts, 1), name="z")
    return fuse_layers(net.graph, [parts], "Parts"), parts


NETWORKS: dict[str, Callable[[], tuple[Network, int]]] = {
    "conv_relu": conv_relu,
    "constant_add": constant_add,
    "nested": nested,
    "splitter": splitter,
}
"""What the golden files were made from, by their names."""


def test_every_golden_file_has_its_network() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == sorted(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_golden_recipes_to_the_byte(name: str) -> None:
    graph, key = NETWORKS[name]()
    data = recipe_bytes(graph, key)
    assert data.decode("utf-8") == (GOLDEN / f"{name}.json").read_text("utf-8")
    found = decode(data)
    assert found == json.loads(data)
    assert encode(found) == data
    assert fault_of(graph, key) is None
    assert read_recipe(graph, key) == found
    assert recipe(graph, key) == found


@pytest.mark.parametrize("name", NETWORKS)
def test_the_recipe_reads_the_same_after_saving(name: str) -> None:
    graph, key = NETWORKS[name]()
    again = fe.loads(fe.dumps(graph))
    (other,) = (k for k, node in again.nodes(data=True) if node["type"] == "StandIn")
    assert recipe(again, other) == recipe(graph, key)
    assert recipe_bytes(again, other) == recipe_bytes(graph, key)


def test_what_conv_relu_says() -> None:
    graph, key = conv_relu(code=5)
    found = recipe(graph, key)
    assert (found["rule"], found["result"], found["code"]) == ("a rule", "ConvRelu", 5)
    assert (found["dialect"], found["featureVersions"], found["inputs"], found["outputs"]) == (
        "current",
        [1, 0, 0],
        1,
        [0],
    )
    assert found["constants"] == [
        {"layer": 1, "field": "weights", "layout": "OHWI"},
        {"layer": 1, "field": "biases", "layout": "C"},
    ]
    relu, conv = found["layers"]
    assert (relu["name"], relu["type"], relu["inputs"]) == ("relu", "Activation", [{"layer": 1, "slot": 0}])
    assert relu["params"] == {"activationFunction": "BoundedReLu", "a": 0.1, "b": 0.0}
    assert (conv["name"], conv["type"], conv["inputs"]) == ("conv", "Convolution2d", [{"input": 0}])
    assert conv["params"] == {
        "padLeft": 0,
        "padRight": 0,
        "padTop": 0,
        "padBottom": 0,
        "strideX": 1,
        "strideY": 1,
        "dilationX": 1,
        "dilationY": 1,
        "biasEnabled": True,
        "dataLayout": "NHWC",
    }
    assert conv["outputs"][0]["dimensions"] == [1, 2, 2, 1]


def test_names_that_are_no_utf8_survive_in_valid_utf8() -> None:
    graph, key = constant_add()
    data = recipe_bytes(graph, key)
    assert rb'"name":"W\udcff"' in data
    found = decode(data)
    assert found["constants"][0]["name"].encode("utf-8", "surrogateescape") == b"W\xff"
    assert found["layers"][0]["name"] == 'say "a\\b"'


def test_recipe_is_a_copy() -> None:
    graph, key = conv_relu()
    first = recipe(graph, key)
    first["layers"].clear()
    assert recipe(graph, key) == decode(recipe_bytes(graph, key))
    assert read_recipe(graph, key) == recipe(graph, key)


def test_layers_without_a_recipe() -> None:
    graph, _ = conv_relu()
    (output,) = graph.graph["outputs"]
    assert read_recipe(graph, output) is None
    assert fault_of(graph, output) == "it is no StandIn"
    with pytest.raises(fe.ModelError, match=f"^layer {output} 'y': it has no recipe: it is no StandIn"):
        recipe(graph, output)


@pytest.mark.parametrize("layer", [99, "relu", None, (1, 2), [1], 1.5])
def test_there_is_no_such_layer(layer: Any) -> None:
    graph, _ = conv_relu()
    with pytest.raises(fe.ModelError, match=re.escape(f"there is no layer {layer!r} in the network")):
        recipe(graph, layer)


def test_a_recipe_of_what_is_no_network() -> None:
    with pytest.raises(fe.ModelError, match=r"a network is a networkx\.DiGraph, not str"):
        recipe("model.armnn", 0)  # type: ignore[arg-type]


def test_a_recipe_in_a_malformed_network_is_blamed_on_it() -> None:
    graph, key = conv_relu()
    graph.edges[recipe_key(graph, key), key]["slots"] = "none"
    with pytest.raises(fe.ModelError, match="its recipes cannot be read: "):
        recipe(graph, key)


def test_the_package_has_recipe() -> None:
    graph, key = conv_relu()
    assert fe.recipe is recipe
    assert fe.recipe(graph, key) == decode(recipe_bytes(graph, key))


def test_nesting() -> None:
    graph, key = nested()
    found = recipe(graph, key)
    assert nesting(found) == 2
    assert nesting(found["layers"][1]["recipe"]) == 1


# What is no recipe

Change = Callable[[dict[str, Any]], Any]


def put(*path: Any, value: Any) -> Change:
    """Set something deep inside."""

    def change(found: dict[str, Any]) -> None:
        holder: Any = found
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = value

    return change


def drop(*path: Any) -> Change:
    """Delete something deep inside."""

    def change(found: dict[str, Any]) -> None:
        holder: Any = found
        for part in path[:-1]:
            holder = holder[part]
        del holder[path[-1]]

    return change


def no_inputs(recipe: dict[str, Any]) -> None:
    """The root reads nothing, so what it read is read by nothing."""
    recipe["layers"][0]["inputs"] = []


def cycle(found: dict[str, Any]) -> None:
    """conv reads relu, relu reads conv, and another layer reads the input."""
    found["layers"].append(copy.deepcopy(found["layers"][0]) | {"inputs": [{"input": 0}]})
    found["layers"][1]["inputs"] = [{"layer": 0, "slot": 0}]


def again(found: dict[str, Any]) -> None:
    found["constants"][1] = dict(found["constants"][0])


def self_nested(found: dict[str, Any]) -> None:
    """A recipe in a layer that is no StandIn."""
    found["layers"][1]["recipe"] = copy.deepcopy(found)


LIES: dict[str, tuple[Change, str]] = {
    "another format": (put("format", value="x"), "not marked"),
    "no version": (drop("version"), "has no format version"),
    "version as a text": (put("version", value="1"), "has no format version"),
    "version true": (put("version", value=True), "has no format version"),
    "a newer version": (put("version", value=2), "format version 2, and this release reads version 1: use a newer one"),
    "a key more": (put("more", value=1), "exactly the keys"),
    "a key less": (drop("rule"), "exactly the keys"),
    "rule": (put("rule", value=3), "its rule is not a text"),
    "result": (put("result", value=None), "its result is not a text"),
    "result with a surrogate": (put("result", value="\ud800"), "its result has a surrogate"),
    "code": (put("code", value=2**31), "its code"),
    "code as a float": (put("code", value=1.0), "its code"),
    "dialect": (put("dialect", value="20.02"), "its dialect"),
    "dialect as a list": (put("dialect", value=[]), "its dialect"),
    "versions": (put("featureVersions", value=[1, 0]), "its featureVersions"),
    "negative version": (put("featureVersions", value=[1, 0, -1]), "its featureVersions"),
    "versions as a text": (put("featureVersions", value="100"), "its featureVersions"),
    "inputs": (put("inputs", value=-1), "its number of inputs"),
    "inputs 10**12": (put("inputs", value=10**12), "its number of inputs"),
    "more inputs": (put("inputs", value=2), "its data inputs are not read once each"),
    "four billion inputs": (put("inputs", value=2**32 - 1), "its data inputs are not read once each"),
    "no inputs": (put("inputs", value=0), "an input that comes from nowhere"),
    "layers": (put("layers", value={}), "its layers are no list"),
    "no layers": (put("layers", value=[]), "has no layers"),
    "a layer null": (put("layers", 1, value=None), "its layer 1 does not hold exactly"),
    "the first layer null": (put("layers", 0, value=None), "its layer 0 does not hold exactly"),
    "a layer with more": (put("layers", 1, "more", value=1), "its layer 1 does not hold exactly"),
    "a layer with less": (drop("layers", 1, "overrides"), "its layer 1 does not hold exactly"),
    "unknown type": (put("layers", 1, "type", value="Conv"), "a type that no opaque layer"),
    "type as a list": (put("layers", 1, "type", value=[]), "a type that no opaque layer"),
    "an Input inside": (put("layers", 1, "type", value="Input"), "a type that no opaque layer"),
    "a Constant inside": (put("layers", 1, "type", value="Constant"), "a type that no opaque layer"),
    "name": (put("layers", 1, "name", value=None), "a name that is not a text"),
    "name with a surrogate": (put("layers", 1, "name", value="\ud83d"), "a surrogate that stands for no byte"),
    "params": (put("layers", 1, "params", value=[]), "the fields of Convolution2dDescriptor"),
    "a parameter": (put("layers", 1, "params", "strideX", value=-1), "a strideX that is no uint"),
    "a parameter less": (drop("layers", 1, "params", "strideX"), "the fields of Convolution2dDescriptor"),
    "huge parameter": (put("layers", 1, "params", "strideX", value=10**400), "a strideX that is no uint"),
    "layer outputs": (put("layers", 1, "outputs", value=None), "has outputs that are no list"),
    "output": (put("layers", 1, "outputs", 0, value=3), "a TensorInfo"),
    "dimension": (put("layers", 1, "outputs", 0, "dimensions", value=[-1]), "a TensorInfo whose dimensions"),
    "layer inputs": (put("layers", 1, "inputs", value="x"), "has inputs that are no list"),
    "reference null": (put("layers", 1, "inputs", 0, value=None), "comes from nowhere"),
    "reference of two": (put("layers", 1, "inputs", 0, value={"input": 0, "constant": 0}), "comes from nowhere"),
    "input out of range": (put("layers", 1, "inputs", 0, value={"input": 1}), "comes from nowhere"),
    "input true": (put("layers", 1, "inputs", 0, value={"input": False}), "comes from nowhere"),
    "layer out of range": (put("layers", 0, "inputs", 0, value={"layer": 2, "slot": 0}), "comes from nowhere"),
    "negative layer": (put("layers", 0, "inputs", 0, value={"layer": -1, "slot": 0}), "comes from nowhere"),
    "slot out of range": (put("layers", 0, "inputs", 0, value={"layer": 1, "slot": 1}), "comes from nowhere"),
    "a member as an input": (put("layers", 0, "inputs", 0, value={"constant": 0}), "comes from nowhere"),
    "an input twice": (put("layers", 0, "inputs", 0, value={"input": 0}), "not read once each"),
    "reads itself": (put("layers", 0, "inputs", 0, value={"layer": 0, "slot": 0}), "in a cycle"),
    "cycle": (cycle, "in a cycle"),
    "overrides": (put("layers", 1, "overrides", value={}), "has overrides that are no list"),
    "override": (put("layers", 1, "overrides", value=[{}]), "an override that is none"),
    "override of no slot": (
        put("layers", 1, "overrides", value=[{"slot": 1, "isOverridden": True, "info": None}]),
        "an override of no input slot",
    ),
    "override twice": (
        put("layers", 1, "overrides", value=[{"slot": 0, "isOverridden": True, "info": None}] * 2),
        "an override of no input slot",
    ),
    "override not bool": (
        put("layers", 1, "overrides", value=[{"slot": 0, "isOverridden": 1, "info": None}]),
        "an override of no input slot",
    ),
    "constants": (put("constants", value=None), "its constants are no list"),
    "fewer constants": (drop("constants", 1), "2 connected inputs|tells of 3"),
    "constant null": (put("constants", 0, value=None), "its constant 0 does not say what it was"),
    "constant of field and slot": (put("constants", 0, "slot", value=1), "its constant 0 does not say what it was"),
    "constant of layer 2": (put("constants", 0, "layer", value=2), "its constant 0 was part of no layer"),
    "constant of no field": (put("constants", 0, "field", value="mean"), "its constant 0 was no tensor of its layer"),
    "constant twice": (again, "its constant 1 was no tensor of its layer"),
    "constant's layout": (put("constants", 0, "layout", value=4), "the layout of its constant 0 is not a text"),
    "constant that was a layer on no slot": (
        put("constants", 0, value={"layer": 1, "slot": 7, "name": "W", "layout": None}),
        "its constant 0 is not on the input slot",
    ),
    "constant that was a layer on the wrong slot": (
        put("constants", 0, value={"layer": 1, "slot": 0, "name": "W", "layout": None}),
        "its constant 0 is not on the input slot",
    ),
    "outputs": (put("outputs", value=[1]), "its outputs are not those of its first layer"),
    "outputs true": (put("outputs", value=[False]), "its outputs are not those of its first layer"),
    "more outputs": (put("outputs", value=[0, 1]), "its outputs are not those of its first layer"),
    "recipe in a convolution": (self_nested, "has a recipe and is no StandIn"),
    "another shape than the StandIn's": (
        put("layers", 0, "outputs", 0, "dimensions", value=[1, 2, 2, 2]),
        "its output 0 is Float32 .1, 2, 2, 1., and the recipe tells of Float32 .1, 2, 2, 2.",
    ),
    "no TensorInfo of the StandIn's": (put("layers", 0, "outputs", 0, value=None), "tells of without TensorInfo"),
}


def not_ours(graph: Network, key: int, reason: str) -> None:
    """The StandIn is not taken as made here, for that reason, and unfuse leaves it and says so."""
    assert read_recipe(graph, key) is None
    fault = fault_of(graph, key)
    assert fault is not None
    with pytest.raises(fe.ModelError, match=re.escape(f"it has no recipe: {fault}")):
        recipe(graph, key)
    assert re.search(reason, fault), fault
    left = fe.unfuse(graph)
    assert fe.difference(graph, left) is None
    assert left.graph["warnings"][-1] == f"layer {key} {graph.nodes[key]['name']!r} is left as it is: {fault}"


@pytest.mark.parametrize("lie", LIES)
def test_recipes_that_lie_are_not_ours(lie: str) -> None:
    change, reason = LIES[lie]
    graph, key = conv_relu()
    found = json.loads(recipe_bytes(graph, key))
    change(found)
    data = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    not_ours(with_recipe(graph, key, data), key, reason)


def inner_of(found: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = found["layers"][1]["recipe"]
    return inner


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: inner_of(found).update(inputs=0), "comes from nowhere|does not fit the inputs"),
        (lambda found: inner_of(found).update(inputs=2), "does not fit the inputs"),
        (lambda found: inner_of(found).update(version=2), "format version 2"),
        (lambda found: inner_of(found).update(format="x"), "not marked"),
        (lambda found: inner_of(found)["constants"].append({"layer": 0, "field": "x", "layout": None}), "does not fit"),
        (lambda found: inner_of(found)["layers"][0]["params"].update(a="x"), "has a a that is no float32"),
        (lambda found: inner_of(found).update(outputs=[0, 1]), "does not fit the outputs"),
        (lambda found: found["layers"][1].update(recipe=None), "not marked"),
        (lambda found: found["layers"][1].update(recipe=[]), "not marked"),
    ],
)
def test_lies_inside_nested_recipes(change: Change, reason: str) -> None:
    graph, key = nested()
    found = json.loads(recipe_bytes(graph, key))
    change(found)
    data = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    not_ours(with_recipe(graph, key, data), key, reason)


def deeper(levels: int) -> dict[str, Any]:
    """A recipe of so many levels."""
    graph, key = nested()
    found: dict[str, Any] = json.loads(recipe_bytes(graph, key))
    for _ in range(levels - 2):
        outer = copy.deepcopy(found)
        outer["layers"][1]["recipe"] = found
        found = outer
    return found


def test_sixteen_levels_and_no_more() -> None:
    assert nesting(decode(encode(deeper(16)))) == 16
    with pytest.raises(Wrong, match="nested deeper than 16 levels"):
        decode(encode(deeper(17)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not marked"),
        (b"{}", "not marked"),
        (b"null", "not marked"),
        (b'"format":"fusion-engine recipe"', "it is no JSON"),
        (b'{"format":"fusion-engine recipe"', "it is no JSON"),
        (b'["format":"fusion-engine recipe"]', "it is no JSON"),
        (b'["\\"format\\":","format"] "format":"fusion-engine recipe"', "it is no JSON"),
        (b'{"format":"fusion-engine recipe"}', "has no format version"),
        (b'[{"format":"fusion-engine recipe"}]', "not marked"),
        (b'{"format":"fusion-engine recipe","format":"fusion-engine recipe"}', "a key twice"),
        (b'{"format":"fusion-engine recipe","version":NaN}', "has NaN, which JSON does not have"),
        (b'{"format":"fusion-engine recipe","version":1e999}', "has no format version"),
        (b'{"format":"fusion-engine recipe","version":' + b"9" * 5000 + b"}", "it is no JSON"),
        (b'{"format":"fusion-engine recipe","version":"\xff"}', "it is no JSON"),
        (b'\xef\xbb\xbf{"format":"fusion-engine recipe"}', "it is no JSON"),
        (b'{"format":"fusion-engine recipe","version":' + b"[" * 100_000, "nested too deep"),
        (b'{"format":"fusion-engine recipe","version":' + b'{"a":' * 200 + b"1" + b"}" * 201, "nested too deep"),
        (b'{"format":"fusion-engine recipe","version":"' + b'\\"' * 500_000, "it is no JSON"),
        (b'{"format":"fusion-engine recipe","version":"' + b"[" * 500_000 + b'"}', "has no format version"),
        (b'{"format":"fusion-engine recipe","version":"\\', "it is no JSON"),
    ],
)
def test_bytes_that_are_no_recipe(data: bytes, reason: str) -> None:
    graph, key = conv_relu()
    not_ours(with_recipe(graph, key, data), key, reason)


def test_reading_needs_no_deep_stack() -> None:
    data = encode(deeper(16))
    hostile = b'{"format":"fusion-engine recipe","version":' + b"[" * 100_000

    def down(levels: int) -> None:
        if levels:
            down(levels - 1)
            return
        assert nesting(decode(data)) == 16
        with pytest.raises(Wrong, match="nested too deep"):
            decode(hostile)

    down(sys.getrecursionlimit() - 400)


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"data_type": "QAsymmS8"}, "its last input is no recipe"),
        ({"data_type": "Boolean"}, "its last input is no recipe"),
        ({"shape": (1, -1)}, "its last input is no recipe"),
    ],
)
def test_the_recipe_is_a_vector_of_qasymmu8(info: dict[str, Any], reason: str) -> None:
    graph, key = conv_relu()
    data = recipe_bytes(graph, key)
    if "shape" in info:
        info = {"shape": (1, len(data))}
    not_ours(with_recipe(graph, key, data, **info), key, reason)


def test_the_old_name_of_the_data_type_is_taken_too() -> None:
    graph, key = conv_relu()
    other = with_recipe(graph, key, recipe_bytes(graph, key), data_type="QuantisedAsymm8")
    assert recipe(other, key) == recipe(graph, key)


def test_a_large_last_input_is_not_read() -> None:
    graph, key = conv_relu()
    values = np.broadcast_to(np.uint8(0), (MAX_BYTES + 1,))
    tensor = Tensor(TensorInfo(values.shape, "QAsymmU8"), values)
    changed = bare_copy(graph)
    changed.nodes[recipe_key(graph, key)].update(outputs=(tensor.info,), constants=FrozenDict(input=tensor))
    assert fault_of(changed, key) == (
        f"its last input is no recipe that can be read: it has {MAX_BYTES + 1} bytes, and a recipe at most {MAX_BYTES}"
    )


def test_a_foreign_stand_in() -> None:
    net = Net()
    x = net.input((1, 2))
    none = net.stand_in(outputs=[TensorInfo((1, 2))], name="none")
    data = net.stand_in(x, none, outputs=[(1, 2)], name="data")
    weights = net.stand_in(data, net.constant([1.0]), outputs=[(1, 2)], name="weights")
    net.output(weights)
    assert [fault_of(net.graph, key) for key in (none, data, weights)] == [
        "it has no inputs, so no recipe",
        "its last input is no Constant, so it has no recipe",
        "its last input is no recipe",
    ]
    assert len(fe.unfuse(net.graph).graph["warnings"]) == 3


def edited(change: Callable[[Network, int], None]) -> tuple[Network, int]:
    graph, key = conv_relu()
    other = bare_copy(graph)
    change(other, key)
    return other, key


def test_outside_edits_of_the_inputs() -> None:
    graph, key = conv_relu()
    work = fe.loads(fe.dumps(graph))
    key = next(k for k, node in work.nodes(data=True) if node["type"] == "StandIn")
    (source,) = work.graph["inputs"]
    # a data input more, before the recipe
    last = recipe_key(work, key)
    work.remove_edge(last, key)
    fe.connect(work, source, key, 0, 3)
    fe.connect(work, last, key, 0, 4)
    not_ours(work, key, "it has 5 connected inputs, and the recipe tells of 4")
    # weights that are computed
    work, key = conv_relu()
    weights = next(k for k in work.pred[key] if work.nodes[k]["name"].endswith("weights"))
    work.nodes[weights].update(type="Floor", constants=FrozenDict())
    not_ours(work, key, "its input slot 1 is fed by no Constant")


def test_outside_edits_of_the_outputs() -> None:
    def more(graph: Network, key: int) -> None:
        graph.nodes[key]["outputs"] = (*graph.nodes[key]["outputs"], TensorInfo((1,)))

    def shorter(graph: Network, key: int) -> None:
        graph.nodes[key]["outputs"] = (TensorInfo((1, 2, 2), "Float32"),)

    def flagged(graph: Network, key: int) -> None:
        info = TensorInfo((1, 2, 2, 1), "Float32", 1.0, dimension_specificity=(True,) * 4)
        graph.nodes[key]["outputs"] = (info,)

    not_ours(*edited(more), "it has 2 outputs, and the recipe tells of 1")
    not_ours(*edited(shorter), "its output 0 is Float32 .1, 2, 2., and the recipe tells of")
    graph, key = edited(flagged)
    assert read_recipe(graph, key) is not None


def test_the_documents_example_is_a_golden_recipe() -> None:
    text = (GOLDEN.parents[2] / "docs" / "recipe.md").read_text("utf-8")
    (example,) = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    assert json.loads(example) == json.loads((GOLDEN / "conv_relu.json").read_text("utf-8"))
    assert encode(json.loads(example)) == (GOLDEN / "conv_relu.json").read_bytes()


def test_every_layer_but_the_first_is_read() -> None:
    net = Net()
    net.output(net.layer("Floor", net.input((1,), name="x"), name="f"))
    graph = fuse_layers(net.graph, [1])
    found = json.loads(recipe_bytes(graph, 1))
    found["layers"].append({**found["layers"][0], "inputs": [{"layer": 0, "slot": 0}]})
    not_ours(with_recipe(graph, 1, encode(found)), 1, "its layer 1 is read by no other")
