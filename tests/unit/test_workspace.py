"""The workspace: look-ups that are never stale, and edits that keep the network right."""

from __future__ import annotations

import pytest

from fusion_engine.compare import difference
from fusion_engine.network import EMPTY, FrozenDict, Source, Use
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.validation import validate
from fusion_engine.workspace import Workspace, common_layout
from tests.support.nets import Net, shuffled


def sample() -> tuple[Net, dict[str, int]]:
    """x -> conv(weights, bias) -> relu -> y and z; conv -> aside."""
    net = Net()
    keys = {"x": net.input((1, 1, 1, 1), name="x")}
    keys["w"] = net.constant([[[[2.0]]]], name="w")
    keys["b"] = net.constant([1.0], name="b")
    keys["conv"] = net.conv(keys["x"], keys["w"], keys["b"], name="conv")
    keys["relu"] = net.activation(keys["conv"], name="relu")
    keys["y"] = net.output(keys["relu"], name="y")
    keys["z"] = net.output(keys["relu"], name="z")
    keys["aside"] = net.output(keys["conv"], name="aside")
    return net, keys


def consistent(work: Workspace) -> None:
    """Every cached look-up is that of a workspace made now."""
    fresh = Workspace(work.graph)
    for key in work.graph:
        assert work.inputs(key) == fresh.inputs(key)
        assert work.data_inputs(key) == fresh.data_inputs(key)
        assert sorted(work.uses(key)) == sorted(fresh.uses(key))
        assert work.recipe(key) == fresh.recipe(key)
        assert key in work.of_type(work.type(key))
    for kind in {work.type(key) for key in work.graph}:
        assert set(work.of_type(kind)) == set(fresh.of_type(kind))
    assert work.order() == fresh.order()


def test_the_callers_network_stays() -> None:
    net, keys = sample()
    before = shuffled(net.graph, 1)
    work = Workspace(net.graph)
    work.set(keys["conv"], name="other", params=EMPTY)
    work.remove(keys["relu"])
    work.add("Floor", "new", (TensorInfo((1,)),))
    assert difference(before, net.graph) is None


def test_reading() -> None:
    net, keys = sample()
    work = Workspace(net.graph)
    conv, relu = keys["conv"], keys["relu"]
    assert (work.type(conv), work.name(conv), work.describe(conv)) == ("Convolution2d", "conv", "layer 3 'conv'")
    assert work.param(conv, "strideX") == 1
    with pytest.raises(KeyError):
        work.param(conv, "a")
    assert work.constants(conv) == {}
    assert work.info(Source(conv, 0)) == TensorInfo((1, 1, 1, 1))
    assert work.info(Source(conv, 1)) is None
    found = work.tensor(keys["w"])
    assert found is not None
    assert found.data.tolist() == [[[[2.0]]]]
    assert work.tensor(conv) is None
    assert work.inputs(conv) == ((0, Source(keys["x"], 0)), (1, Source(keys["w"], 0)), (2, Source(keys["b"], 0)))
    assert work.source(conv, 1) == Source(keys["w"], 0)
    assert work.source(conv, 3) is None
    assert work.uses(conv) == (Use(0, relu, 0), Use(0, keys["aside"], 0))
    assert list(work.of_type("Activation")) == [relu]
    assert list(work.of_type("Softmax")) == []
    assert [work.name(key) for key in work.order()] == ["x", "w", "b", "conv", "relu", "y", "z", "aside"]


def test_data_inputs_leave_parameters_out() -> None:
    net, keys = sample()
    computed = net.layer("Floor", keys["w"], name="computed")
    other = net.conv(keys["x"], computed, keys["b"], name="other")
    added = net.addition(keys["conv"], keys["w"])
    work = Workspace(net.graph)
    assert work.data_inputs(keys["conv"]) == ((0, Source(keys["x"], 0)),)
    assert work.parameter_inputs(keys["conv"]) == ((1, Source(keys["w"], 0)), (2, Source(keys["b"], 0)))
    assert work.data_inputs(other) == ((0, Source(keys["x"], 0)), (1, Source(computed, 0)))
    assert work.parameter_inputs(other) == ((2, Source(keys["b"], 0)),)
    assert work.data_inputs(added) == work.inputs(added)


def test_data_inputs_follow_the_type_of_their_source() -> None:
    """What was a Constant and is one no more is a data input from then on."""
    net, keys = sample()
    work = Workspace(net.graph)
    assert len(work.data_inputs(keys["conv"])) == 1
    work.set(keys["w"], type="Floor")
    assert len(work.data_inputs(keys["conv"])) == 2
    consistent(work)


def test_take_over() -> None:
    net, keys = sample()
    work = Workspace(net.graph)
    conv, relu = keys["conv"], keys["relu"]
    work.set(relu, overrides=FrozenDict({0: (True, None)}))
    new = work.add("Floor", "made", (TensorInfo((9,)),))
    work.connect(Source(keys["x"], 0), new, 0)
    work.take_over(relu, new)
    assert new not in work.graph
    assert (work.type(relu), work.name(relu)) == ("Floor", "relu")
    assert work.outputs(relu) == (TensorInfo((1, 1, 1, 1)),)
    assert work.inputs(relu) == ((0, Source(keys["x"], 0)),)
    assert "overrides" not in work.graph.nodes[relu]
    assert [use.layer for use in work.uses(relu)] == [keys["y"], keys["z"]]
    assert [use.layer for use in work.uses(conv)] == [keys["aside"]]
    assert list(work.of_type("Activation")) == []
    assert work.names.unique("made") == "made"
    assert work.names.unique("relu") == "relu#2"
    consistent(work)
    assert validate(work.graph) == ()


def test_take_over_by_a_layer_below() -> None:
    """A fold gives the consumed layer the place of its root: conv, changed, stands where relu stood."""
    net, keys = sample()
    net.graph.remove_node(keys["aside"])
    net.graph.graph["outputs"] = (keys["y"], keys["z"])
    work = Workspace(net.graph)
    work.take_over(keys["relu"], keys["conv"])
    assert keys["conv"] not in work.graph
    assert [work.name(source.layer) for _, source in work.inputs(keys["relu"])] == ["x", "w", "b"]
    assert (work.type(keys["relu"]), work.name(keys["relu"])) == ("Convolution2d", "relu")
    consistent(work)
    assert validate(work.graph) == ()


def test_remove() -> None:
    net, keys = sample()
    work = Workspace(net.graph)
    assert work.uses(keys["conv"])
    assert work.inputs(keys["y"])
    work.remove(keys["relu"])
    assert work.uses(keys["conv"]) == (Use(0, keys["aside"], 0),)
    assert work.inputs(keys["y"]) == ()
    assert work.names.unique("relu") == "relu"
    consistent(work)


def test_names_are_counted() -> None:
    """A name that two layers have stays taken until both are gone."""
    net = Net()
    a, b = net.input((1,), name="n"), net.input((1,), name="n")
    work = Workspace(net.graph)
    work.remove(a)
    assert work.names.unique("n") == "n#2"
    work.set(b, name="m")
    assert work.names.unique("n") == "n"
    assert work.names.unique("m") == "m#2"


def test_constants() -> None:
    net, keys = sample()
    work = Workspace(net.graph)
    tensor = Tensor.of([5.0])
    new = work.add_constant("b", tensor)
    assert (work.type(new), work.name(new), work.outputs(new)) == ("Constant", "b#2", (tensor.info,))
    assert work.tensor(new) is tensor
    work.disconnect(keys["conv"], 2)
    work.connect(Source(new, 0), keys["conv"], 2)
    work.drop_unused([keys["w"], keys["b"], keys["conv"], 99, keys["b"]])
    assert keys["b"] not in work.graph
    assert keys["w"] in work.graph
    consistent(work)
    assert validate(work.graph) == ()


def test_set_and_unset() -> None:
    net, keys = sample()
    work = Workspace(net.graph)
    work.order()
    work.set(keys["relu"], type="Floor", params=EMPTY, name="floor", overrides=FrozenDict({0: (True, None)}))
    assert list(work.of_type("Floor")) == [keys["relu"]]
    assert list(work.of_type("Activation")) == []
    work.unset(keys["relu"], "overrides", "nothing")
    assert "overrides" not in work.graph.nodes[keys["relu"]]
    consistent(work)


def test_revision_counts_edits() -> None:
    net, keys = sample()
    work = Workspace(net.graph)
    seen = [work.revision]
    for edit in (
        lambda: work.set(keys["relu"], name="r"),
        lambda: work.unset(keys["relu"], "overrides"),
        lambda: work.disconnect(keys["relu"], 0),
        lambda: work.connect(Source(keys["conv"], 0), keys["relu"], 0),
        lambda: work.add("Floor", "f", ()),
        lambda: work.remove(keys["aside"]),
    ):
        edit()
        seen.append(work.revision)
    assert seen == sorted(set(seen))
    work.inputs(keys["conv"]), work.order(), work.uses(keys["conv"])
    assert work.revision == seen[-1]


def test_fresh_keys_are_never_used_again() -> None:
    net, _ = sample()
    work = Workspace(net.graph)
    first = work.add("Floor", "f", ())
    work.remove(first)
    assert work.add("Floor", "f", ()) == first + 1


@pytest.mark.parametrize(
    ("layers", "layout"),
    [
        ([], None),
        ([("Pooling2d", {"dataLayout": "NCHW"})], "NCHW"),
        ([("Pooling2d", {})], "NHWC"),
        ([("Convolution2d", {})], "NCHW"),
        ([("Pooling2d", {}), ("Convolution2d", {})], None),
        ([("Pooling2d", {"dataLayout": "NCHW"}), ("StridedSlice", {"dataLayout": "NHWC"})], "NCHW"),
        ([("Pooling2d", {}), ("Pooling3d", {"dataLayout": "NDHWC"})], "NHWC"),
        ([("Pooling3d", {"dataLayout": "NCDHW"}), ("Floor", {})], "NCHW"),
        ([("Pooling2d", {"dataLayout": 77})], None),
    ],
)
def test_common_layout(layers: list[tuple[str, dict[str, object]]], layout: str | None) -> None:
    net = Net()
    x = net.input((1, 1, 1, 1))
    for kind, params in layers:
        net.layer(kind, x, params=params)
    assert common_layout(net.graph) == layout
    assert Workspace(net.graph).layout == layout
