"""What is in a network at a glance, and what to be careful about."""

from __future__ import annotations

from dataclasses import replace

import fusion_engine as fe
from fusion_engine.overview import cautions, overview
from fusion_engine.tensor import Tensor
from tests.support.nets import Net


def test_weights_that_share_memory_count_once() -> None:
    net = Net(form="member")
    shared, own = Tensor.of([[[[1]]]]), Tensor.of([1.0])
    x = net.input((1, 1, 1, 1))
    net.output(net.conv(net.conv(x, shared, own), shared))
    assert overview(net.graph)["weights_bytes"] == 8


def test_ends_in_order_and_unlisted_ones_last() -> None:
    net = Net()
    first = net.input((1, 2), listed=False, name="unlisted")
    second = net.input((3,), binding_id=-7, name="listed")
    splitter = net.splitter(second, 0, [1, 2])
    net.output((splitter, 1), name="two")
    net.output((splitter, 0), name="one")
    net.graph.nodes[first]["outputs"] = (None,)
    found = overview(net.graph)
    assert [(end["name"], end["binding_id"], end["listed"], end["shape"]) for end in found["inputs"]] == [
        ("listed", -7, True, [3]),
        ("unlisted", 0, False, None),
    ]
    assert [(end["name"], end["shape"]) for end in found["outputs"]] == [("two", [2]), ("one", [1])]


def test_an_output_without_a_source() -> None:
    net = Net()
    key = net.output(net.input((1,)))
    net.graph.remove_edge(0, key)
    assert overview(net.graph)["outputs"][0]["shape"] is None


def test_opaque_layers_and_groups() -> None:
    """Two chains into one opaque kind, one into a group; a name that only looks like a group's is none."""
    net = Net(form="member")
    x = net.input((1, 2, 2, 1))
    for function in ("ReLu", "ReLu", "TanH"):
        x = net.activation(net.conv(x, [[[[1]]]]), function)
    net.output(net.activation(x, name="Looks:1/like"))
    text = 'Activation[activationFunction == "{}"]{{Convolution2d}}'
    rules = [
        fe.FusingRule(text.format("ReLu"), into="ConvRelu"),
        fe.FusingRule(text.format("TanH"), group="ConvTanh"),
    ]
    found = overview(fe.fuse(net.graph, rules))
    assert found["opaque"] == {"ConvRelu": 2}
    assert found["groups"] == {"ConvTanh": 1}
    assert found["types"]["StandIn"] == 2


def test_untagged_constants() -> None:
    net = Net()
    assert cautions(net.graph) == ()
    for data_type in ("Float16", "QAsymmS8", "QAsymmS8"):
        net.constant(replace(Tensor.of([1], data_type), untagged=True), name="c")
    (caution,) = cautions(net.graph)
    assert caution.startswith("2 constants without a payload type, the first in layer 1 'c': ")
    assert "no Arm NN loads it" in caution
