"""validate: every problem told with its layer, in one order, and nothing raised whatever is in a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest

from fusion_engine.errors import ModelError
from fusion_engine.network import EMPTY, FrozenDict, Network, connect, disconnect
from fusion_engine.schema import schema, slot_facts
from fusion_engine.tensor import DTYPES, Tensor, TensorInfo
from fusion_engine.validation import Problem, look_over, require_valid, validate
from tests.support.nets import Net, shuffled


def sample() -> Network:
    """Keys: 0 x, 1 weights, 2 bias, 3 conv, 4 y."""
    net = Net()
    x = net.input((1, 2, 2, 2), name="x", binding_id=3)
    net.output(net.conv(x, np.ones((2, 1, 1, 2)), [1, 2], name="conv"), name="y", binding_id=7)
    return net.graph


def told(graph: Network) -> list[str]:
    return [str(problem) for problem in validate(graph)]


def changed(key: int, **attributes: Any) -> list[str]:
    graph = sample()
    graph.nodes[key].update(attributes)
    return told(graph)


def one_layer(kind: str, inputs: int = 1, dialect: str = "current", **options: Any) -> list[str]:
    """The problems of a layer alone in a network; ``params`` default to none at all."""
    net = Net(dialect)
    sources = [net.input((1, 2)) for _ in range(inputs)]
    params = options.pop("params", EMPTY)
    key = net.layer(kind, *sources, name="it", **{"outputs": ((1, 2),), **options})
    net.graph.nodes[key]["params"] = params
    return [text.removeprefix(f"layer {key} 'it': ") for text in told(net.graph)]


def test_a_right_network_has_none() -> None:
    assert validate(sample()) == ()
    require_valid(sample())


def alike_layers() -> tuple[Net, list[int]]:
    """Three convolutions in a row that differ in name, source and values only."""
    net, info = Net(), TensorInfo((2, 1, 1, 2))
    first = net.conv(net.input((1, 2, 2, 2), name="x"), np.ones((2, 1, 1, 2)), [1, 2], name="a", form="member")
    node = net.graph.nodes[first]
    keys = [first]
    for name in "bc":
        key = net.layer("Convolution2d", keys[-1], outputs=((1, 2, 2, 2),), name=name)
        held = {field: Tensor(tensor.info, tensor.data + 1) for field, tensor in node["constants"].items()}
        net.graph.nodes[key].update(params=node["params"], outputs=node["outputs"], constants=FrozenDict(held))
        keys.append(key)
    net.output(keys[-1], name="y")
    assert node["constants"]["weights"].info == info
    return net, keys


def test_what_was_found_out_about_a_right_network() -> None:
    net, (a, b, c) = alike_layers()
    found = require_valid(net.graph)
    x, y = (key for key in net.graph if key not in (a, b, c))
    assert found.connections == {x: [], a: [(0, x, 0)], b: [(0, a, 0)], c: [(0, b, 0)], y: [(0, c, 0)]}
    assert found.alike[a] == found.alike[b] == found.alike[c]
    assert len({found.alike[key] for key in (x, a, y)}) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda node: {"params": FrozenDict(node["params"])},
        lambda node: {"outputs": (replace(node["outputs"][0]),)},
        lambda node: {"constants": node["constants"].with_(biases=Tensor.of([1, 2]))},
        lambda node: {"overrides": FrozenDict({0: (True, None)})},
        lambda node: {"name": "\u5377"},
    ],
)
def test_layers_that_do_not_share_what_they_hold_are_looked_at_themselves(change: Callable[[Any], Any]) -> None:
    net, (a, b, c) = alike_layers()
    net.graph.nodes[b].update(change(net.graph.nodes[b]))
    found = require_valid(net.graph)
    assert found.alike[a] == found.alike[c] != found.alike[b]


def test_cycles_are_found_whatever_the_keys() -> None:
    """Against NetworkX's own answer; most connections lead upwards in some networks, and hardly any in others."""
    found = set()
    for seed in range(300):
        random = Random(seed)
        net = Net()
        keys = random.sample(range(20), random.randint(1, 6))
        net.graph.add_nodes_from((key, {"type": "Floor", "outputs": (TensorInfo((1,)),)}) for key in keys)
        for key in keys:
            for slot in range(random.choice([0, 0, 1, 2])):
                below = [source for source in keys if seed % 2 or source < key or source == max(keys)]
                if below:
                    connect(net.graph, random.choice(below), key, 0, slot)
        cyclic = not nx.is_directed_acyclic_graph(net.graph)
        assert any(text.endswith("feed each other in a cycle") for text in told(net.graph)) == cyclic
        found.add((seed % 2, cyclic))
    assert len(found) == 4


def overridden() -> tuple[Net, list[int]]:
    """`alike_layers`, each of which overrides its input's TensorInfo."""
    net, keys = alike_layers()
    info = TensorInfo((1, 2, 2, 2))
    for key in keys:
        net.graph.nodes[key]["overrides"] = FrozenDict({0: (True, info)})  # type: ignore[dict-item]
    return net, keys


def test_layers_with_the_same_overrides_are_alike() -> None:
    net, (a, b, c) = overridden()
    numbers = require_valid(net.graph).alike
    assert numbers[a] == numbers[b] == numbers[c]
    for value in ((True, TensorInfo((1, 2, 2, 2))), (False, net.graph.nodes[a]["overrides"][0][1]), (True, None)):
        net.graph.nodes[b]["overrides"] = {0: value}
        numbers = require_valid(net.graph).alike
        assert numbers[a] == numbers[c] != numbers[b]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({1: (True, None)}, "overrides names input slot 1, which is not connected"),
        ({True: (True, None)}, "overrides names input slot True, which is not connected"),
        ({0: (1, None)}, "the override of input slot 0 is (1, None): it is (flag, TensorInfo or None)"),
        ({0: (True, TensorInfo((1,), "x"))}, "the override of input slot 0 has the DataType 'x', which there is not"),
        ([], "overrides is []: it is a dict of (flag, TensorInfo or None) by input slot"),
    ],
)
def test_wrong_overrides_are_found_among_layers_that_are_alike_otherwise(overrides: Any, problem: str) -> None:
    net, (_, b, _) = overridden()
    net.graph.nodes[b]["overrides"] = overrides
    assert told(net.graph) == [f"layer {b} 'b': {problem}"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tensor: np.ones((2, 2), np.float32), "has data of float32 (2, 2)"),
        (lambda tensor: tensor.data.astype(np.float64), "has data of float64 (2, 1, 1, 2)"),
        (lambda tensor: tensor.data.tolist(), "for data: it must be a NumPy array"),
    ],
)
def test_data_that_was_replaced_is_found_in_layers_that_are_alike_otherwise(
    change: Callable[[Tensor], Any], problem: str
) -> None:
    net, (_, b, _) = alike_layers()
    weights = net.graph.nodes[b]["constants"]["weights"]
    object.__setattr__(weights, "data", change(weights))
    (found,) = look_over(net.graph).problems
    assert found.layer == b
    assert problem in found.message


def test_order_of_problems_is_by_key() -> None:
    graph = sample()
    graph.nodes[4]["name"] = 5
    graph.nodes[0]["name"] = 6
    graph.graph["dialect"] = "23.08"
    assert told(graph) == [
        "the dialect is '23.08': it is one of 'seed', '19.02', '19.05', 'current'",
        "layer 0 '': its name is 6: a name is a str",
        "layer 4 '': its name is 5: a name is a str",
    ]


def test_require_valid_counts_the_rest() -> None:
    graph = sample()
    graph.nodes[3]["name"] = 1
    with pytest.raises(ModelError) as caught:
        require_valid(graph)
    assert str(caught.value) == "layer 3 '': its name is 1: a name is a str"
    graph.nodes[4]["binding_id"] = None
    with pytest.raises(ModelError, match=r"a name is a str \(and 1 more problem: validate lists them\)"):
        require_valid(graph)
    graph.graph["dialect"] = 1
    with pytest.raises(ModelError, match=r"^the dialect is 1: .* \(and 2 more problems: validate lists them\)$"):
        require_valid(graph)


def test_a_problem_is_a_value() -> None:
    problem = Problem(3, "it is wrong", "relu\n")
    assert problem == Problem(3, "it is wrong", "relu\n")
    assert str(problem) == "layer 3 'relu\\n': it is wrong"
    assert Problem(None, "it is wrong").place is None
    assert hash(problem) == hash(Problem(3, "it is wrong", "relu\n"))


# The network as a whole


@pytest.mark.parametrize("value", [None, 5, nx.MultiDiGraph(), nx.Graph(), {}])
def test_what_is_no_digraph(value: Any) -> None:
    assert told(value) == [f"a network is a networkx.DiGraph, not a {type(value).__name__}"]


@pytest.mark.parametrize(
    ("attribute", "value", "text"),
    [
        ("dialect", ["current"], "the dialect is ['current']: it is one of 'seed', '19.02', '19.05', 'current'"),
        ("feature_versions", (1, 1), "feature_versions is (1, 1): it is three numbers, such as (1, 1, 1)"),
        ("feature_versions", (1, 1, -1), "feature_versions is (1, 1, -1): it is three numbers, such as (1, 1, 1)"),
        ("feature_versions", (True, 1, 1), "feature_versions is (True, 1, 1): it is three numbers, such as (1, 1, 1)"),
        ("feature_versions", None, "feature_versions is None: it is three numbers, such as (1, 1, 1)"),
        ("inputs", 0, "the graph's inputs is 0: it is a tuple of the keys of the Inputs"),
        ("outputs", {4}, "the graph's outputs is a set: it is a tuple of the keys of the Outputs"),
        ("inputs", (0, 9), "the graph's inputs lists 9, which is no layer: take it off"),
        ("inputs", (0, [1]), "the graph's inputs lists [1], which is no layer: take it off"),
        ("inputs", (0, 3), "the graph's inputs lists layer 3, which is no Input: take it off"),
        ("inputs", (0, 4), "the graph's inputs lists layer 4, which is no Input: take it off"),
        ("outputs", (4, 4), "the graph's outputs lists layer 4 twice"),
    ],
)
def test_attributes_of_the_graph(attribute: str, value: Any, text: str) -> None:
    graph = sample()
    graph.graph[attribute] = value
    found = told(graph)
    assert found[0] == text
    assert found[1:] == (
        ["layer 0 'x': this Input has consumers, and the graph's inputs does not list it: add it there"]
        if attribute == "inputs" and value == 0
        else []
    )


def test_defaults_of_a_graph_made_by_hand() -> None:
    """Neither dialect nor feature_versions, names, params of types without descriptor, nor constants."""
    graph: Network = nx.DiGraph(inputs=(0,), outputs=(2,))
    info = TensorInfo((1,))
    graph.add_node(0, type="Input", binding_id=0, outputs=(info,))
    graph.add_node(1, type="Floor", outputs=(info,))
    graph.add_node(2, type="Output", binding_id=0)
    connect(graph, 0, 1)
    connect(graph, 1, 2)
    assert told(graph) == []


def test_versions_that_the_dialect_cannot_hold() -> None:
    net = Net("19.05", (1, 0, 0))
    assert told(net.graph) == ["feature_versions is (1, 0, 0): the 19.05 dialect holds (0, 0, 0) only"]


def test_keys_that_are_no_ints() -> None:
    graph = sample()
    graph.add_node("b", type="Floor")  # type: ignore[arg-type]
    graph.add_node(("a", 1), type="Floor")  # type: ignore[arg-type]
    graph.add_edge(3, "b", slots=((0, 0),))  # type: ignore[arg-type]
    assert told(graph) == [
        "the node key 'b' is no int: layers are keyed by ints",
        "the node key ('a', 1) is no int: layers are keyed by ints",
    ]


def test_binding_ids_that_name_two() -> None:
    net = Net()
    for _ in range(2):
        net.output(net.input((1,), binding_id=4), binding_id=4)
    assert told(net.graph) == [
        "the Inputs 0, 2 have one binding id, 4: inputs names layers by it",
        "the Outputs 1, 3 have one binding id, 4: outputs names layers by it",
    ]
    net.graph.graph["feature_versions"] = (0, 1, 1)
    assert told(net.graph) == []
    net.graph.graph.update(inputs=(), outputs=(), feature_versions=(1, 1, 1))
    net.graph.remove_edges_from(list(net.graph.edges))
    assert not [text for text in told(net.graph) if "binding id" in text]


def test_cycles() -> None:
    net = Net()
    x = net.input((1,))
    keys = [net.layer("Addition", x, outputs=((1,),), name=f"a{n}") for n in range(20)]
    for u, v in zip(keys[2:5], [*keys[3:5], keys[2]], strict=True):
        connect(net.graph, u, v, 0, 1)
    for key in (*keys[:2], *keys[5:]):
        connect(net.graph, keys[4], key, 0, 1)
    assert told(net.graph) == ["the layers 3 -> 4 -> 5 -> 3 feed each other in a cycle"]
    assert told(shuffled(net.graph, 1))[0].endswith("feed each other in a cycle")


def test_long_and_short_cycles() -> None:
    graph: Network = nx.DiGraph()
    graph.add_nodes_from((key, {"type": "Floor", "outputs": (TensorInfo((1,)),)}) for key in range(50_000))
    graph.add_edges_from((key, (key + 1) % 50_000, {"slots": ((0, 0),)}) for key in range(50_000))
    assert told(graph) == [f"the layers {' -> '.join(map(str, range(10)))} -> ... -> 0 feed each other in a cycle"]
    graph = nx.DiGraph()
    graph.add_node(3, type="Floor", outputs=(TensorInfo((1,)),))
    graph.add_edge(3, 3, slots=((0, 0),))
    assert told(graph) == ["the layers 3 -> 3 feed each other in a cycle"]


def test_unlisted_ends() -> None:
    net = Net()
    net.input((1,), listed=False)
    net.output(net.input((1,)), listed=False)
    assert told(net.graph) == []
    net.output(0)
    assert told(net.graph) == [
        "layer 0 'input_0': this Input has consumers, and the graph's inputs does not list it: add it there"
    ]


# Types, names, ids


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "it has no type: set the name of a LayerType"),
        (7, "its type is 7: a type is the name of a LayerType"),
        ("Convolution2D", "there is no layer type 'Convolution2D' (did you mean 'Convolution2d' or 'Convolution3d'"),
        ("", "there is no layer type ''"),
    ],
)
def test_types(value: Any, text: str) -> None:
    assert changed(3, type=value)[0].startswith(f"layer 3 'conv': {text}")


def test_types_of_a_dialect() -> None:
    assert one_layer("StandIn", dialect="19.05", params={"numInputs": 1, "numOutputs": 1}) == [
        "the 19.05 dialect has no StandIn: set the graph's dialect to 'current'"
    ]


@pytest.mark.parametrize("name", ["", "卷积/1\n", "\udcff\udc80", "a\0b", "x" * 70_000])
def test_names_that_a_file_can_hold(name: str) -> None:
    assert changed(3, name=name) == []


def test_names_that_no_file_can_hold() -> None:
    assert changed(3, name="a\ud800") == [
        "layer 3 'a\\ud800': its name has the lone surrogate U+D800, which UTF-8 cannot hold"
    ]
    assert changed(3, name=b"conv") == ["layer 3 '': its name is b'conv': a name is a str"]


@pytest.mark.parametrize("value", [None, "3", 2**31, -(2**31) - 1, 1.0, True])
def test_binding_ids(value: Any) -> None:
    assert changed(0, binding_id=value) == [f"layer 0 'x': its binding_id is {value!r}: it is an int of 32 bits"]


def test_binding_ids_at_the_ends_of_their_range() -> None:
    assert changed(0, binding_id=2**31 - 1) == changed(0, binding_id=-(2**31)) == []
    assert changed(0, binding_id=np.int64(5)) == []


# Tensors


INFO = TensorInfo((1, 2, 2, 2))


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (None, "output slot 0 has no TensorInfo: real readers need one"),
        ("Float32", "output slot 0 is 'Float32': it must be a TensorInfo"),
        (
            replace(INFO, data_type="float32"),
            "output slot 0 has the DataType 'float32', which there is not (did you mean 'Float32' or 'Float16'?)",
        ),
        (replace(INFO, data_type=1), "output slot 0 has the DataType 1, which there is not"),
        (replace(INFO, shape=(1,) * 6), "output slot 0 has 6 dimensions: real readers take at most 5"),
        (
            replace(INFO, shape=()),
            "output slot 0 has no dimensions: real readers reject it; "
            "a scalar has dimensionality 2, an unknown shape 0",
        ),
        (replace(INFO, shape=[1, 2]), "output slot 0 has the shape [1, 2], which a TensorInfo cannot hold"),
        (replace(INFO, shape=(1, -2)), "output slot 0 has the shape (1, -2), which a TensorInfo cannot hold"),
        (replace(INFO, shape=(1.0,)), "output slot 0 has the shape (1.0,), which a TensorInfo cannot hold"),
        (replace(INFO, shape=(2**32,)), "output slot 0 has the shape (4294967296,), which a TensorInfo cannot hold"),
        (
            replace(INFO, quantization_scale="1"),
            "output slot 0 has the quantization_scale '1', which a TensorInfo cannot hold",
        ),
        (
            replace(INFO, quantization_offset=2**31),
            "output slot 0 has the quantization_offset 2147483648, which a TensorInfo cannot hold",
        ),
        (
            replace(INFO, dimensionality=2),
            "output slot 0 is a scalar (dimensionality 2) with the shape (1, 2, 2, 2)",
        ),
        (
            replace(INFO, dimension_specificity=(True,)),
            "output slot 0 has 1 entries of dimension_specificity for the shape (1, 2, 2, 2)",
        ),
    ],
)
def test_tensor_infos(info: Any, text: str) -> None:
    assert changed(3, outputs=(info,)) == [f"layer 3 'conv': {text}"]


def test_a_binding_id_of_a_layer_that_has_none() -> None:
    text = "layer 3 'conv': it has a binding_id, which only Input and Output have: remove it"
    assert (changed(3, binding_id=0), changed(3, binding_id=None)) == ([text], [])


def test_scalars_are_right() -> None:
    scalar = TensorInfo((), dimensionality=2, dimension_specificity=(True,))
    assert changed(3, outputs=(scalar,)) == changed(3, outputs=[INFO]) == []


@pytest.mark.parametrize("info", [TensorInfo((1,) * 5), TensorInfo((), dimensionality=0)])
def test_the_most_and_the_fewest_dimensions_are_right(info: TensorInfo) -> None:
    assert changed(3, outputs=(info,)) == []


def test_outputs_that_are_no_tuple() -> None:
    assert changed(3, outputs=INFO) == [
        "layer 3 'conv': outputs is a TensorInfo: it is a tuple of TensorInfos, one per output slot"
    ]


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (
            replace(INFO, data_type="QAsymmS8"),
            "has the DataType QAsymmS8, which the 19.05 dialect lacks: set the graph's dialect to 'current'",
        ),
        (
            replace(INFO, quantization_scales=(0.5,)),
            "has quantization_scales (0.5,), which the 19.05 dialect cannot hold",
        ),
        (replace(INFO, is_constant=True), "has is_constant True, which the 19.05 dialect cannot hold"),
        (replace(INFO, data_type="QuantisedSymm16"), None),
    ],
)
def test_tensor_infos_of_a_dialect(info: TensorInfo, text: str | None) -> None:
    found = one_layer("Floor", dialect="19.05", outputs=(info,))
    assert found == ([] if text is None else [f"output slot 0 {text}"])


@pytest.mark.parametrize("data_type", DTYPES)
def test_every_data_type(data_type: str) -> None:
    net = Net()
    net.output(net.constant([0, 1], data_type))
    assert told(net.graph) == []


def test_constants() -> None:
    weights = Tensor.of(np.ones((2, 1, 1, 2)))

    def member(**constants: Any) -> list[str]:
        params = {"biasEnabled": False, "dataLayout": "NHWC"}
        return one_layer("Convolution2d", params=params, constants=constants or {"weights": weights})

    assert member() == []
    assert member(weights=weights, bias=weights) == [
        "there is no constant 'bias' in Convolution2d: it has weights, biases"
    ]
    assert member(weights=np.ones(2)) == [
        "its constant 'weights' is a ndarray: it must be a Tensor: Tensor.of(array) makes one"
    ]
    assert member(biases=weights) == ["it lacks the constant 'weights', which Convolution2d needs"]
    broken = Tensor.of([1, 2])
    object.__setattr__(broken, "data", np.ones(3, np.float32))
    assert member(weights=broken) == [
        "its constant 'weights' has data of float32 (3,) for a TensorInfo of Float32 (2,)"
    ]
    object.__setattr__(broken, "data", [1, 2])
    assert member(weights=broken) == ["its constant 'weights' has [1, 2] for data: it must be a NumPy array"]
    assert one_layer("Floor", constants={"weights": weights}) == [
        "there is no constant 'weights' in Floor: it has none"
    ]


def test_constants_that_are_no_dict() -> None:
    assert "layer 3 'conv': constants is [1]: it is a dict of Tensors by field" in changed(3, constants=[1])


def test_a_constant_layer() -> None:
    tensor = Tensor.of([1, 2])
    assert one_layer("Constant", 0, constants={"input": tensor}, outputs=((1, 2),)) == []
    assert one_layer("Constant", 0, constants={"input": tensor}, outputs=((3,),)) == [
        "its tensor has the shape (2,), its output (3,): the sizes differ"
    ]
    assert one_layer("Constant", 0) == ["it lacks the constant 'input', which Constant needs"]


@pytest.mark.parametrize(
    "kind", ["BatchNormalization", "DetectionPostProcess", "TransposeConvolution2d", "QuantizedLstm"]
)
def test_constants_that_must_be_there(kind: str) -> None:
    facts = slot_facts()[kind]
    needed = facts.get("tensors", ["weights"])
    found = one_layer(kind, facts["inputs"], params={}, outputs=((1, 2),) * facts["outputs"])
    assert found == [f"it lacks the constant {field!r}, which {kind} needs" for field in needed]


def test_constants_that_a_descriptor_asks_for() -> None:
    facts = slot_facts()["Lstm"]
    constants = {field: Tensor.of([1]) for field in facts["tensors"]}
    options: dict[str, Any] = {"constants": constants, "outputs": ((1,),) * 4}
    assert one_layer("Lstm", 3, params={}, **options) == []
    assert one_layer("Lstm", 3, params={"cifgEnabled": False, "projectionEnabled": True}, **options) == [
        f"it lacks the constant {field!r}, which Lstm needs"
        for field in ("inputToInputWeights", "recurrentToInputWeights", "inputGateBias", "projectionWeights")
    ]


# Parameters


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"frobnicate": 1}, "there is no parameter 'frobnicate' in a Pooling2dDescriptor"),
        ({3: 1}, "there is no parameter 3 in a Pooling2dDescriptor"),
        ({"strideX": -1}, "parameter strideX is -1: it must be between 0 and 4294967295"),
        ({"strideX": 2**32}, "parameter strideX is 4294967296: it must be between 0 and 4294967295"),
        ({"strideX": 1.0}, "parameter strideX is 1.0: it must be an int"),
        ({"strideX": True}, "parameter strideX is True: it must be an int"),
        ({"strideX": None}, "parameter strideX is None: it must be an int"),
        ({"poolType": "max"}, "parameter poolType is 'max': PoolingAlgorithm has no such value (did you mean 'Max'?)"),
        ({"poolType": 1.0}, "parameter poolType is 1.0: it must be a PoolingAlgorithm by name, such as 'Max'"),
        ({"poolType": 128}, "parameter poolType is 128: it must be a PoolingAlgorithm by name, such as 'Max'"),
    ],
)
def test_parameters(params: dict[Any, Any], text: str) -> None:
    assert one_layer("Pooling2d", params=params) == [text]


@pytest.mark.parametrize(
    ("kind", "params", "text"),
    [
        ("Softmax", {"beta": "1"}, "parameter beta is '1': it must be a float"),
        ("Softmax", {"beta": True}, "parameter beta is True: it must be a float"),
        ("Softmax", {"beta": 1e39}, "parameter beta is 1e+39: it is beyond the range of a float of 32 bits"),
        ("Softmax", {"beta": 10**400}, "it is beyond the range of a float of 32 bits"),
        ("Resize", {"alignCorners": "no"}, "parameter alignCorners is 'no': it must be a bool"),
        ("Resize", {"alignCorners": 2}, "parameter alignCorners is 2: it must be a bool"),
        ("Permute", {"dimMappings": 3}, "parameter dimMappings is 3: it must be a tuple"),
        ("Permute", {"dimMappings": (0, "1")}, "parameter dimMappings is (0, '1'): entry 1: it must be an int"),
        ("Permute", {"dimMappings": np.array([0, 1])}, "parameter dimMappings is a ndarray: it must be a tuple"),
        ("Pad", {"padList": (1, 2, 3)}, "padList has 3 entries: it holds pairs"),
        ("SpaceToBatchNd", {"padList": (1,)}, "padList has 1 entries: it holds pairs"),
        ("BatchToSpaceNd", {"crops": [1, 2, 3]}, "crops has 3 entries: it holds pairs"),
        ("Slice", {"begin": (0,), "size": ()}, "begin and size must be of one length: begin has 1, size has 0"),
        (
            "StridedSlice",
            {"begin": (0,), "end": (1,)},
            "begin and end and stride must be of one length: begin has 1, end has 1, stride has 0",
        ),
        (
            "Reshape",
            {"targetShape": (2**32 - 1, 2, 2**32 - 1)},
            "targetShape is (4294967295, 2, 4294967295): at most one extent may be -1 (4294967295)",
        ),
        (
            "Splitter",
            {"origins": {"numViews": "1"}},
            "parameter origins.numViews is '1': it must be an int",
        ),
        ("Splitter", {"origins": 1}, "parameter origins is 1: it must be a dict of the fields of a OriginsDescriptor"),
        ("Splitter", {"viewSizes": 1}, "parameter viewSizes is 1: it must be a tuple of tuples"),
        ("Splitter", {"viewSizes": (1,)}, "parameter viewSizes is (1,): list 0: it must be a tuple"),
        (
            "Splitter",
            {"viewSizes": ((1, -1),)},
            "viewSizes is ((1, -1),): list 0: entry 1: it must be between 0",
        ),
        (
            "Splitter",
            {"origins": {"numViews": 1, "numDimensions": 2, "viewOrigins": ((0, 0),)}, "viewSizes": ((1,),)},
            "viewSizes must hold 1 lists (numViews) of 2 numbers (numDimensions)",
        ),
        (
            "Concat",
            {"numViews": 1, "numDimensions": 2},
            "viewOrigins must hold 1 lists (numViews) of 2 numbers (numDimensions)",
        ),
    ],
)
def test_parameters_of_every_kind(kind: str, params: dict[str, Any], text: str) -> None:
    (found,) = one_layer(kind, params=params)
    assert text in found


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("Softmax", {"beta": float("nan"), "axis": -1}),
        ("Softmax", {"beta": np.float32(1), "axis": np.int32(1)}),
        ("Softmax", {"beta": 1}),
        ("Activation", {"activationFunction": 77}),
        ("Activation", {"activationFunction": "SoftReLu"}),
        ("Resize", {"alignCorners": np.bool_(True), "halfPixelCenters": 1}),
        ("Permute", {"dimMappings": [0, 1]}),
        ("Reshape", {"targetShape": (2**32 - 1, 2)}),
        ("Splitter", {"origins": {"numViews": 1, "numDimensions": 1, "viewOrigins": [[0]]}, "viewSizes": [[1]]}),
    ],
)
def test_right_parameters(kind: str, params: dict[str, Any]) -> None:
    assert one_layer(kind, params=params) == []


def test_missing_descriptors() -> None:
    assert one_layer("Softmax", params=None) == [
        "it has no params: Softmax needs its descriptor (an empty dict says all defaults)"
    ]
    assert one_layer("Gather", 2, params=None) == []
    assert one_layer("Floor", params=None) == []
    assert one_layer("Floor", params={"a": 1}) == ["it has the parameter 'a': Floor has no descriptor"]
    assert one_layer("Softmax", params=[1]) == ["params is [1]: it is a dict of the descriptor's fields"]


def test_parameters_of_a_dialect() -> None:
    assert one_layer("Activation", dialect="19.05", params={"function": "ReLu"}) == []
    assert one_layer("Activation", dialect="19.05", params={"activationFunction": "ReLu"}) == [
        "there is no parameter 'activationFunction' in a ActivationDescriptor (did you mean 'function'?)"
    ]


# Slots


@pytest.mark.parametrize(
    ("slots", "shown"),
    [
        (None, "None"),
        ((), "()"),
        (7, "7"),
        (((0,),), "((0,),)"),
        (((0, -1),), "((0, -1),)"),
        (((0, "a"),), "((0, 'a'),)"),
        (((0, True),), "((0, True),)"),
        ((0, 0), "(0, 0)"),
    ],
)
def test_slots_of_an_edge(slots: Any, shown: str) -> None:
    graph = sample()
    graph.edges[3, 4]["slots"] = slots
    assert told(graph) == [
        f"layer 4 'y': the edge from layer 3 has slots {shown}: "
        "it is a tuple of (output slot, input slot) pairs, as connect makes them"
    ]


def test_an_edge_without_slots() -> None:
    graph = sample()
    del graph.edges[3, 4]["slots"]
    assert told(graph)[0].startswith("layer 4 'y': the edge from layer 3 has slots None")


def test_connections() -> None:
    graph = sample()
    graph.edges[3, 4]["slots"] = ((1, 0),)
    assert told(graph) == ["layer 4 'y': input slot 0 is connected to output slot 1 of layer 3, which has 1 output"]
    graph.edges[3, 4]["slots"] = ((0, 1),)
    assert told(graph) == ["layer 4 'y': input slot 0 is not connected, and slot 1 is: connect it"]
    graph.edges[3, 4]["slots"] = ((0, 0), (0, 0))
    assert told(graph) == ["layer 4 'y': more than one connection ends at input slot 0: disconnect one"]
    graph.remove_edge(3, 4)
    assert told(graph) == ["layer 4 'y': it has 0 inputs: Output has 1"]
    graph.nodes[4]["unconnected"] = (0,)
    assert told(graph) == ["layer 4 'y': input slots (0,) are not connected: connect them"]


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ([1], "overrides is [1]: it is a dict of (flag, TensorInfo or None) by input slot"),
        ({3: (True, None)}, "overrides names input slot 3, which is not connected"),
        ({"0": (True, None)}, "overrides names input slot '0', which is not connected"),
        ({0: True}, "the override of input slot 0 is True: it is (flag, TensorInfo or None)"),
        ({0: (1, None)}, "the override of input slot 0 is (1, None): it is (flag, TensorInfo or None)"),
        ({0: (True, 5)}, "the override of input slot 0 is 5: it must be a TensorInfo"),
    ],
)
def test_overrides(overrides: Any, text: str) -> None:
    assert changed(3, overrides=overrides) == [f"layer 3 'conv': {text}"]


def test_overrides_of_a_dialect() -> None:
    assert changed(3, overrides=FrozenDict({0: (True, INFO), 2: (False, None)})) == []
    assert one_layer("Floor", dialect="19.05", overrides={0: (True, None)}) == [
        "the 19.05 dialect cannot hold overrides"
    ]


# Slot counts and weights


@pytest.mark.parametrize("kind", sorted(set(slot_facts()) - {"Input", "Output"}))
def test_slot_counts_of_every_type(kind: str) -> None:
    """One slot too many at either side is told, whatever else is."""
    facts, layer = slot_facts()[kind], schema().layers[kind]
    many = 9
    found = one_layer(kind, many, params={} if layer.descriptor else EMPTY, outputs=((1,),) * many)
    for what, counts in (("input", facts["inputs"]), ("output", facts["outputs"])):
        if isinstance(counts, str):
            assert f"it has 9 {what}s, and its {counts} is 0" in found
        else:
            wanted = " or ".join(map(str, counts if isinstance(counts, list) else [counts]))
            assert f"it has 9 {what}s: {kind} has {wanted}" in found


def test_counts_by_descriptor() -> None:
    params = {"numInputs": 2, "numOutputs": 3}
    assert one_layer("StandIn", 2, params=params, outputs=((1,),) * 3) == []
    assert one_layer("StandIn", 1, params=params, outputs=((1,),) * 3) == ["it has 1 input, and its numInputs is 2"]
    assert one_layer("StandIn", 2, params=params) == ["it has 1 output, and its numOutputs is 3"]
    assert one_layer("StandIn", 2, params={"numInputs": "2"}) == ["parameter numInputs is '2': it must be an int"]


BIAS = {"biasEnabled": True}
WEIGHTED: list[tuple[str, int, dict[str, Any], tuple[str, ...], str | None]] = [
    ("Convolution2d", 1, {}, ("weights",), None),
    ("Convolution2d", 1, BIAS, ("weights", "biases"), None),
    ("Convolution2d", 1, BIAS, ("weights",), "it lacks the constant 'biases', which Convolution2d needs"),
    ("Convolution2d", 1, {}, (), "it lacks the constant 'weights', which Convolution2d needs"),
    ("Convolution2d", 1, {}, ("weights", "biases"), None),
    ("Convolution2d", 2, {}, (), None),
    ("Convolution2d", 3, BIAS, (), None),
    ("Convolution2d", 2, BIAS, (), "it has 2 inputs, and its biasEnabled is true: connect the bias to input slot 2"),
    ("Convolution2d", 3, {}, (), "it has 3 inputs, and its biasEnabled is false: input slot 2 is too many"),
    (
        "FullyConnected",
        2,
        {},
        ("weights",),
        "it has weights both as constants and on input slot 1: take one of them away",
    ),
    ("Convolution3d", 1, {}, (), "it has 1 input: Convolution3d has 2 or 3"),
    ("TransposeConvolution2d", 1, {}, ("weights",), None),
    ("TransposeConvolution2d", 2, {}, ("weights",), "it has 2 inputs: TransposeConvolution2d has 1"),
]


@pytest.mark.parametrize(("kind", "inputs", "params", "fields", "text"), WEIGHTED)
def test_weights(kind: str, inputs: int, params: dict[str, Any], fields: tuple[str, ...], text: str | None) -> None:
    found = one_layer(kind, inputs, params=params, constants={field: Tensor.of([1]) for field in fields})
    assert found == ([] if text is None else [text])


def test_weights_of_a_dialect() -> None:
    assert one_layer("Convolution2d", 2, dialect="19.02", params={}) == [
        "the 19.02 dialect has no weights on input slots: make them constants"
    ]


# Whatever is in a graph


class Hostile:
    """An object whose every question raises."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("no")

    __eq__ = __lt__ = __len__ = __iter__ = __bool__ = __repr__ = __str__ = __getitem__ = _refuse
    __hash__ = object.__hash__


ODD: list[Any] = [
    None,
    0,
    -1,
    1.5,
    float("nan"),
    True,
    "text",
    b"bytes",
    [],
    [None],
    {},
    {1: 2, "b": None},
    (1, (2, (3,))),
    {1, 2},
    object(),
    Hostile(),
    [Hostile()],
    {"strideX": Hostile()},
    np.ones((2, 2)),
    np.float32(1),
    lambda: None,
    int,
    TensorInfo,
    TensorInfo(None),  # type: ignore[arg-type]
    (TensorInfo((Hostile(),)),),  # type: ignore[arg-type]
    {"weights": TensorInfo((1,))},
]


@pytest.mark.parametrize(
    "attribute", ["type", "name", "params", "constants", "outputs", "binding_id", "overrides", "unconnected", "own"]
)
@pytest.mark.parametrize("key", range(5))
def test_nothing_raises_whatever_a_layer_holds(attribute: str, key: int) -> None:
    for value in ODD:
        graph = sample()
        graph.nodes[key][attribute] = value
        for problem in validate(graph):
            assert problem.message


@pytest.mark.parametrize("attribute", ["dialect", "feature_versions", "inputs", "outputs", "fusions"])
def test_nothing_raises_whatever_the_graph_holds(attribute: str) -> None:
    for value in ODD:
        graph = sample()
        graph.graph[attribute] = value
        for problem in validate(graph):
            assert problem.message


def test_nothing_raises_whatever_an_edge_holds() -> None:
    for value in ODD:
        graph = sample()
        graph.edges[3, 4]["slots"] = value
        assert validate(graph)


REAL_CHANGES: list[Callable[[Network], Any]] = [
    lambda graph: graph.remove_node(0),
    lambda graph: graph.remove_node(3),
    lambda graph: disconnect(graph, 3, 0),
    lambda graph: disconnect(graph, 4, 0),
    lambda graph: graph.add_node(9),
    lambda graph: graph.add_edge(4, 3),
]


@pytest.mark.parametrize("change", REAL_CHANGES)
def test_what_networkx_lets_a_user_do(change: Callable[[Network], Any]) -> None:
    graph = sample()
    change(graph)
    with pytest.raises(ModelError):
        require_valid(graph)
