"""equal and difference: what counts, what does not, and that the text names both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from fusion_engine.compare import difference, equal
from fusion_engine.errors import ModelError
from fusion_engine.network import FrozenDict, Network, connect, disconnect
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net, shuffled


def sample() -> Net:
    """Keys: 0 x, 1 conv, 2 splitter, 3 sub, 4 y."""
    net = Net(form="member")
    x = net.input((1, 2, 2, 2), name="x", binding_id=3)
    conv = net.conv(x, np.ones((2, 1, 1, 2)), [1, 2], name="conv")
    split = net.splitter(conv, 3, [1, 1], name="split")
    net.output(net.layer("Subtraction", (split, 0), (split, 1), name="sub"), name="y", binding_id=7)
    return net


def changed(key: int, **attributes: Any) -> Network:
    graph = sample().graph
    graph.nodes[key].update(attributes)
    return graph


def told(other: Network, ours: Network | None = None) -> str:
    ours = sample().graph if ours is None else ours
    text = difference(ours, other)
    assert text is not None
    assert not equal(ours, other)
    assert difference(other, ours) is not None
    return text


def test_a_network_equals_itself_and_its_shuffles() -> None:
    graph = sample().graph
    assert difference(graph, graph) is None
    for seed in range(5):
        assert difference(graph, shuffled(graph, seed)) is None
        assert equal(shuffled(graph, seed), graph)


@pytest.mark.parametrize(
    ("key", "attributes", "text"),
    [
        (3, {"type": "Addition"}, "type is 'Subtraction' in the one and 'Addition' in the other"),
        (3, {"name": "s"}, "name is 'sub' in the one and 's' in the other"),
        (4, {"binding_id": 8}, "binding_id is 7 in the one and 8 in the other"),
        (0, {"binding_id": None}, "binding_id is 3 in the one and None in the other"),
        (3, {"outputs": ()}, "the number of outputs is 1 in the one and 0 in the other"),
        (
            3,
            {"overrides": FrozenDict({1: (True, None)})},
            "isOverridden of input slot 1 is False in the one and True",
        ),
        (3, {"unconnected": (2,)}, "the list of unconnected input slots is () in the one and (2,) in the other"),
    ],
)
def test_attributes(key: int, attributes: dict[str, Any], text: str) -> None:
    name = sample().graph.nodes[key]["name"]
    found = told(changed(key, **attributes))
    assert found.startswith(f"layer {key} {name!r} and layer {key} {attributes.get('name', name)!r}: {text}")


def test_parameters_after_defaults() -> None:
    whole = sample().graph.nodes[1]["params"]
    partial = {k: v for k, v in whole.items() if k not in ("biasEnabled", "dataLayout")}
    partial |= {"biasEnabled": True, "dataLayout": 0, "padLeft": np.int64(0), "dilationX": 1}
    assert difference(sample().graph, changed(1, params=partial)) is None
    found = told(changed(1, params={**partial, "dilationX": 2}))
    assert found == "layer 1 'conv' and layer 1 'conv': parameter dilationX is 1 in the one and 2 in the other"
    assert "parameter dataLayout is 'NHWC' in the one and 'NCHW' in" in told(
        changed(1, params={**whole, "dataLayout": 1})
    )


def test_nested_parameters() -> None:
    whole = sample().graph.nodes[2]["params"]
    assert difference(sample().graph, changed(2, params={**whole, "hasAxis": False})) is None
    other = {**whole, "origins": {**whole["origins"], "concatAxis": 2}}
    assert "parameter origins.concatAxis is 3 in the one and 2 in the other" in told(changed(2, params=other))
    other = {**whole, "viewSizes": [[1, 2, 2, 1], [1, 2, 2, 2]]}
    assert "parameter viewSizes is ((1, 2, 2, 1), (1, 2, 2, 1)) in the one and [[1," in told(changed(2, params=other))


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        (0.1, float(np.float32(0.1)), True),
        (0.1, np.float32(0.1), True),
        (1, 1.0, True),
        (float("nan"), float("nan"), True),
        (0.0, -0.0, False),
        (0.1, 0.1000001, False),
        (1e39, float("inf"), False),
    ],
)
def test_floats_as_the_wire_stores_them(ours: float, theirs: float, same: bool) -> None:
    def build(value: float) -> Network:
        net = Net()
        net.output(net.layer("Activation", net.input((1,)), params={"a": value}))
        return net.graph

    assert equal(build(ours), build(theirs)) is same


def test_missing_descriptor_is_an_empty_one() -> None:
    """Gather may go without; its axis is 0 then."""

    def build(params: Any) -> Network:
        net = Net()
        gather = net.layer("Gather", net.input((2, 2)), net.input((1,)))
        net.graph.nodes[gather]["params"] = params
        net.output(gather)
        return net.graph

    assert equal(build(None), build({}))
    assert equal(build(None), build({"axis": 0}))
    assert not equal(build(None), build({"axis": 1}))


def test_former_field_names_and_the_dialect() -> None:
    def build(dialect: str, params: dict[str, Any]) -> Network:
        net = Net(dialect, (0, 0, 0))
        net.output(net.layer("Activation", net.input((1,)), params=params))
        return net.graph

    old = build("19.05", {"function": "ReLu"})
    assert equal(old, build("current", {"activationFunction": "ReLu"}))
    assert "parameter activationFunction is 'ReLu' in the one and 'TanH'" in told(
        build("current", {"activationFunction": "TanH"}), old
    )


INFO = TensorInfo((1, 2, 2, 1), "QAsymmU8", 0.5, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shape", (1, 4, 1, 1)),
        ("data_type", "QAsymmS8"),
        ("data_type", "QuantisedAsymm8"),
        ("quantization_scale", 0.25),
        ("quantization_offset", 4),
        ("quantization_scales", (0.5,)),
        ("quantization_dim", 3),
        ("dimensionality", 0),
        ("dimension_specificity", (True, True, True, False)),
        ("is_constant", True),
    ],
)
def test_every_field_of_a_tensor_info(field: str, value: Any) -> None:
    ours = changed(3, outputs=(INFO,))
    other = replace(INFO, **{field: value})
    expected = f"{field} of output 0 is {getattr(INFO, field)!r} in the one and {value!r} in the other"
    assert told(changed(3, outputs=(other,)), ours) == f"layer 3 'sub' and layer 3 'sub': {expected}"


def test_tensor_infos_absent_and_empty() -> None:
    absent, empty = changed(3, outputs=(None,)), changed(3, outputs=(TensorInfo((), "Float16", 1),))
    assert equal(absent, empty)
    assert not equal(absent, changed(3, outputs=(TensorInfo((), "Float16", 0.0),)))


def test_tensors_by_their_bits() -> None:
    def build(values: list[float], data_type: str = "Float32") -> Network:
        net = Net()
        net.output(net.constant(values, data_type, name="c"), name="y")
        return net.graph

    assert equal(build([1.0, float("nan")]), build([1.0, float("nan")]))
    assert told(build([0.0, -0.0]), build([0.0, 0.0])) == (
        "layer 0 'c' and layer 0 'c': the values of constant input differ: "
        f"element [1] is {np.float32(0.0)!r} in the one and {np.float32(-0.0)!r} in the other"
    )
    assert "data_type of output 0 is 'Float32' in the one and 'Signed32' in the other" in told(
        build([0.0, 0.0], "Signed32"), build([0.0, 0.0])
    )


def test_constants_there_and_not() -> None:
    constants = sample().graph.nodes[1]["constants"]
    bare = changed(1, constants=FrozenDict(weights=constants["weights"]))
    assert told(bare) == "layer 1 'conv' and layer 1 'conv': constant biases is there in the one and not in the other"
    assert "constant biases is there in the other and not in the one" in told(sample().graph, bare)


def test_sharing_of_memory_and_the_untagged_flag_do_not_count() -> None:
    def build(shared: bool, untagged: bool) -> Network:
        net = Net()
        tensor = Tensor(TensorInfo((2,)), np.ones(2, np.float32), untagged=untagged)
        other = tensor if shared else Tensor.of([1, 1])
        net.output(net.addition(net.constant(tensor, name="a"), net.constant(other, name="b"), name="c"), name="y")
        return net.graph

    assert equal(build(True, True), build(False, False))


def test_a_transposed_view_has_other_bytes() -> None:
    values = np.arange(4, dtype=np.float32).reshape(2, 2)

    def build(data: Any) -> Network:
        net = Net()
        net.output(net.constant(Tensor(TensorInfo((2, 2)), data), name="c"), name="y")
        return net.graph

    assert not equal(build(values), build(values.T))


def test_what_feeds_a_slot() -> None:
    other = sample().graph
    source = disconnect(other, 3, 1)
    connect(other, source.layer, 3, 0, 1)
    assert told(other) == (
        "layer 3 'sub' and layer 3 'sub': the output slot that feeds input slot 1 is 1 in the one and 0 in the other"
    )
    other = sample().graph
    disconnect(other, 3, 1)
    assert told(other) == ("layer 3 'sub' and layer 3 'sub': input slot 1 is connected in the one and not in the other")


def test_one_layer_used_twice_is_not_two_alike() -> None:
    def build(shared: bool) -> Network:
        net = Net()
        x = net.input((1,), name="x")
        first = net.layer("Floor", x, name="f")
        second = first if shared else net.layer("Floor", x, name="f")
        net.output(net.addition(first, second, name="sum"), name="y")
        return net.graph

    assert told(build(False), build(True)) == (
        "layer 2 'sum' and layer 3 'sum': what feeds input slot 1: it is layer 1 'f' in the one and layer 2 'f' in the "
        "other, of which the first stands for layer 1 'f' of the other elsewhere"
    )
    assert "of which the second stands for layer 1 'f' of the one elsewhere" in told(build(True), build(False))


def test_order_of_inputs_and_outputs() -> None:
    def build(names: str) -> Network:
        net = Net()
        keys = [net.input((1,), name=name, binding_id=ord(name)) for name in "ab"]
        for key, name in zip(keys, "pq", strict=True):
            net.output(key, name=name, binding_id=ord(name))
        net.graph.graph["inputs"] = tuple(keys if names[0] == "a" else keys[::-1])
        net.graph.graph["outputs"] = (2, 3) if names[1] == "p" else (3, 2)
        return net.graph

    assert "name is 'a' in the one and 'b' in the other" in told(build("bp"), build("ap"))
    assert "name is 'p' in the one and 'q' in the other" in told(build("aq"), build("ap"))


def test_numbers_of_the_network() -> None:
    for field, value, text in (
        ("feature_versions", (1, 0, 1), "feature_versions is (1, 1, 1) in the one and (1, 0, 1) in the other"),
        ("inputs", (), "the number of inputs is 1 in the one and 0 in the other"),
        ("outputs", (), "the number of outputs is 1 in the one and 0 in the other"),
    ):
        other = sample().graph
        other.graph[field] = value
        assert told(other) == text


def test_records_and_warnings_do_not_count() -> None:
    other = sample().graph
    other.graph.update(fusions=(1,), refusals=(2,), warnings=("w",))
    assert equal(sample().graph, other)


def dead(*uses: int, last: str = "f") -> Network:
    """Dead Floors alike, so many over each of some Constants alike."""
    net = Net()
    net.output(net.input((1,), name="x"), name="y")
    for count in uses:
        constant = net.constant([1.0], name="c")
        for _ in range(count):
            key = net.layer("Floor", constant, name="f")
    net.graph.nodes[key]["name"] = last
    return net.graph


def test_layers_that_reach_no_output() -> None:
    assert equal(dead(2, 2), shuffled(dead(2, 2), 1))
    assert (
        told(dead(2, 2), dead(2, 1)) == "the number of layers that reach no Output is 5 in the one and 6 in the other"
    )
    assert told(dead(2, 2, last="g"), dead(2, 2)) in (
        f"of the layers that reach no Output, layer {key} 'f' is in the one only, and layer 7 'g' in the other only: "
        "name is 'f' in the one and 'g' in the other"
        for key in (3, 4, 6, 7)
    )
    assert told(dead(3, 1), dead(2, 2)) == (
        "the layers that reach no Output are alike one by one and not connected alike"
    )


def test_malformed_networks_are_a_model_error() -> None:
    other = sample().graph
    del other.edges[2, 3]["slots"]
    with pytest.raises(
        ModelError, match=r"layer 3 'sub': the second network cannot be compared: the edge from layer 2"
    ):
        difference(sample().graph, other)
    with pytest.raises(ModelError, match=r"the first network cannot be compared: a network is a networkx\.DiGraph"):
        difference(nx.MultiDiGraph(), other)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"the second network cannot be compared: a network is a networkx\.DiGraph"):
        equal(sample().graph, None)  # type: ignore[arg-type]


def test_a_deep_network_takes_no_stack() -> None:
    def chain(last: str) -> Network:
        net = Net()
        x = net.input((1,))
        for _ in range(20_000):
            x = net.layer("Floor", x, name="f")
        net.graph.nodes[1]["name"] = last
        net.output(x)
        return net.graph

    assert equal(chain("f"), chain("f"))
    assert told(chain("g"), chain("f")) == ("layer 1 'f' and layer 1 'g': name is 'f' in the one and 'g' in the other")


def test_of_long_lists_the_first_entry_that_differs_is_told() -> None:
    def scaled(scales: tuple[float, ...]) -> TensorInfo:
        return TensorInfo((len(scales),), "QSymmS8", quantization_scales=scales)

    nets = []
    for last in (1.0, 2.0):
        net = Net(data_type="QSymmS8")
        net.output(net.input((20,), name="x"))
        net.graph.nodes[0]["outputs"] = (scaled((*(0.5,) * 19, last)),)
        nets.append(net.graph)
    text = difference(*nets)
    assert text is not None
    assert "entry 19 of quantization_scales of output 0 is 1.0 in the one and 2.0 in the other" in text
