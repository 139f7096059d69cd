"""The network's attributes and the small edits that keep it right."""

from __future__ import annotations

import pickle
from itertools import islice
from types import ModuleType
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.errors import ModelError
from fusion_engine.network import (
    EMPTY,
    FrozenDict,
    Names,
    Network,
    Source,
    Use,
    bare_copy,
    complete_params,
    connect,
    consumers,
    default_params,
    describe,
    disconnect,
    edges_into,
    fresh_keys,
    new_network,
    param,
    sources,
)
from fusion_engine.schema import schema
from tests.support.nets import Net


def three() -> Network:
    graph = new_network()
    graph.add_nodes_from((key, {"type": "Floor", "name": f"n{key}"}) for key in range(3))
    return graph


def test_a_new_network() -> None:
    assert new_network().graph == {
        "inputs": (),
        "outputs": (),
        "dialect": "current",
        "feature_versions": (1, 1, 1),
    }
    assert new_network("19.05", (0, 0, 0)).graph["dialect"] == "19.05"


def test_connect_gathers_pairs_on_one_edge() -> None:
    graph = three()
    connect(graph, 0, 1, output_slot=1, input_slot=1)
    connect(graph, 0, 1, output_slot=0, input_slot=2)
    connect(graph, 0, 1, output_slot=1, input_slot=0)
    assert graph.edges[0, 1]["slots"] == ((1, 0), (1, 1), (0, 2))
    connect(graph, 2, 1, input_slot=3)
    assert edges_into(graph, 1) == [(0, Source(0, 1)), (1, Source(0, 1)), (2, Source(0, 0)), (3, Source(2, 0))]
    assert sources(graph, 1) == [Source(0, 1), Source(0, 1), Source(0, 0), Source(2, 0)]
    assert consumers(graph, 0) == [Use(0, 1, 2), Use(1, 1, 0), Use(1, 1, 1)]
    assert consumers(graph, 1) == edges_into(graph, 0) == []


def test_connect_refuses() -> None:
    graph = three()
    connect(graph, 0, 1)
    with pytest.raises(ModelError) as caught:
        connect(graph, 2, 1)
    assert str(caught.value) == "layer 1 'n1': input slot 0 is connected to layer 0 already: disconnect it first"
    with pytest.raises(ModelError, match=r"^there is no layer 7 to connect: add it with add_node first$"):
        connect(graph, 7, 1, 0, 1)
    with pytest.raises(ModelError, match=r"^there is no layer 8 to connect"):
        connect(graph, 1, 8)
    assert list(graph.edges) == [(0, 1)]


def test_disconnect_is_the_inverse_of_connect() -> None:
    graph = three()
    connect(graph, 0, 1, 0, 0)
    connect(graph, 0, 1, 3, 1)
    assert disconnect(graph, 1, 1) == Source(0, 3)
    assert graph.edges[0, 1]["slots"] == ((0, 0),)
    assert disconnect(graph, 1, 0) == Source(0, 0)
    assert not graph.edges
    with pytest.raises(ModelError) as caught:
        disconnect(graph, 1, 0)
    assert str(caught.value) == "layer 1 'n1': input slot 0 is not connected"


def test_describe() -> None:
    graph = three()
    graph.add_node(7)
    assert describe(graph, 2) == "layer 2 'n2'"
    assert describe(graph, 7) == "layer 7 ''"


def test_the_same_layer_on_two_slots_and_two_slots_of_one_layer() -> None:
    net = Net()
    x = net.input((1, 4))
    twice = net.addition(x, x)
    split = net.splitter(x, 1, [1, 3])
    swapped = net.layer("Subtraction", (split, 1), (split, 0))
    assert net.graph.edges[x, twice]["slots"] == ((0, 0), (0, 1))
    assert sources(net.graph, swapped) == [Source(split, 1), Source(split, 0)]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 2),
        lambda d: d.__delitem__("a"),
        lambda d: d.update(a=2),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.setdefault("b", 1),
        lambda d: d.__ior__({"a": 2}),
    ],
)
def test_a_frozen_dict_cannot_be_changed(change: Any) -> None:
    frozen = FrozenDict(a=1)
    with pytest.raises(TypeError, match="immutable: set a new FrozenDict on the node instead"):
        change(frozen)
    assert frozen == {"a": 1}


def test_a_frozen_dict_is_a_value() -> None:
    frozen = FrozenDict(a=1, b=(2,))
    assert hash(frozen) == hash(FrozenDict(b=(2,), a=1))
    assert frozen.with_(a=3) == {"a": 3, "b": (2,)}
    assert frozen["a"] == 1
    copied = pickle.loads(pickle.dumps(frozen))
    assert copied == frozen
    assert type(copied) is FrozenDict
    assert EMPTY == {}


def test_param_takes_the_default_where_the_node_has_none() -> None:
    net = Net()
    conv = net.layer("Convolution2d", net.input((1, 1, 1, 1)), params={"strideX": 2})
    assert [param(net.graph, conv, name) for name in ("strideX", "strideY", "dilationX", "dataLayout")] == [
        2,
        0,
        1,
        "NCHW",
    ]
    net.graph.nodes[conv]["params"] = None
    assert param(net.graph, conv, "strideX") == 0
    for name in ("eps", "weights", ""):
        with pytest.raises(KeyError):
            param(net.graph, conv, name)


def test_param_in_older_dialects() -> None:
    net = Net("19.05")
    relu = net.layer("Activation", net.input((1,)), params={"function": "ReLu"})
    assert param(net.graph, relu, "activationFunction") == param(net.graph, relu, "function") == "ReLu"
    net.graph.nodes[relu]["params"] = EMPTY
    assert param(net.graph, relu, "activationFunction") == param(net.graph, relu, "function") == "Sigmoid"
    net = Net("19.02")
    conv = net.layer("Convolution2d", net.input((1, 1, 1, 1)), params={})
    assert param(net.graph, conv, "dilationX") == 1


def test_default_and_complete_params() -> None:
    facts = schema()
    views = facts.layers["Splitter"].descriptor
    assert views is not None
    origins = {"concatAxis": 0, "numViews": 0, "numDimensions": 0, "viewOrigins": ()}
    assert default_params(views, facts) == {"origins": origins, "viewSizes": (), "hasAxis": False, "axis": 0}
    completed = complete_params(views, {"origins": {"numViews": 2}, "axis": 3}, facts)
    assert completed == {"origins": {**origins, "numViews": 2}, "viewSizes": (), "hasAxis": False, "axis": 3}
    assert list(completed) == [field.name for field in views.fields]


def test_bare_copy_shares_values_and_nothing_else() -> None:
    net = Net(form="member")
    x = net.input((1, 1, 1, 1))
    conv = net.conv(x, [[[[1.0]]]])
    copy = bare_copy(net.graph)
    assert copy.nodes[conv]["constants"] is net.graph.nodes[conv]["constants"]
    copy.nodes[conv]["name"] = "other"
    copy.edges[x, conv]["slots"] = ((0, 5),)
    copy.graph["inputs"] = ()
    copy.remove_node(x)
    assert net.graph.nodes[conv]["name"] == "convolution2d_1"
    assert net.graph.edges[x, conv]["slots"] == ((0, 0),)
    assert net.graph.graph["inputs"] == (x,)
    assert type(copy) is type(net.graph)


def test_fresh_keys() -> None:
    assert list(islice(fresh_keys(three()), 3)) == [3, 4, 5]
    assert next(fresh_keys(new_network())) == 0


def test_names() -> None:
    names = Names(["a", "a#2", ""])
    assert [names.unique("a"), names.unique("a"), names.unique("b"), names.unique("")] == ["a#3", "a#4", "b", "#2"]
    names.release("a#2")
    assert names.unique("a") == "a#2"
    names.take("c")
    assert names.unique("c") == "c#2"


def test_public_names_survive_the_import_of_every_module() -> None:
    """A module of the package that is called like a public function would hide it once imported."""
    from importlib import import_module
    from pkgutil import walk_packages

    for module in walk_packages(fe.__path__, "fusion_engine."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    assert [name for name in fe.__all__ if isinstance(getattr(fe, name), ModuleType)] == []
