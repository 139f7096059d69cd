"""verify: right folds, opaque layers and groups are verified; the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.tensor import Tensor
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from tests.support.verified import (
    RULES,
    anything_goes,  # noqa: F401 - a fixture
    checked,
    conv_net,
    dropped,
    normed,
    rewired,
    rule_of,
)

pytestmark = pytest.mark.usefixtures("anything_goes")


# What is right


def test_a_right_fold_is_verified() -> None:
    found = checked(conv_net(normed), "batch-norm")
    (region,) = found.regions
    assert [layer.type for layer in region.before if layer.type != "Constant"] == [
        "Convolution2d",
        "BatchNormalization",
    ]
    assert [layer.type for layer in region.after if layer.type != "Constant"] == ["Convolution2d"]
    assert region.unit == "relative"
    assert region.tolerance == 1e-5
    assert region.difference is not None
    assert 0 < region.difference < 1e-6
    (check,) = found.fusions
    assert (check.status, check.difference, check.reason) == ("verified", region.difference, None)
    assert (found.count("verified"), found.count("failed"), found.failures) == (1, 0, ())


def test_half_precision_has_its_own_tolerance() -> None:
    (check,) = checked(conv_net(normed, data_type="Float16"), "batch-norm").fusions
    assert check.tolerance == 2e-3
    assert check.difference is not None
    assert check.difference > 1e-5


def test_a_tensor_without_dimensions() -> None:
    net = Net()
    x = net.input((), dimensionality=2)
    net.output(net.activation(net.activation(x, name="first"), "BoundedReLu", 1, -1))
    (region,) = checked(net.graph, "activation-chain").regions
    assert region.difference == 0.0


def test_a_network_that_was_not_changed() -> None:
    graph = conv_net(normed)
    found = fe.verify(graph, fe.fuse(graph, RULES["reshapes"]))
    assert (found.status, found.regions, found.fusions) == ("verified", (), ())


def test_the_seed_decides_the_values() -> None:
    graph = conv_net(normed)
    fused = fe.fuse(graph, RULES["batch-norm"])
    same = [fe.verify(graph, fused, seed=4).regions[0].difference for _ in range(2)]
    assert same[0] == same[1] != fe.verify(graph, fused, seed=5).regions[0].difference


def test_a_file_without_records_is_told_by_names_and_connections() -> None:
    graph = conv_net(normed)
    fused = fe.loads(fe.dumps(fe.fuse(graph, RULES["batch-norm"])))
    found = fe.verify(graph, fused)
    assert (found.status, found.fusions) == ("verified", ())
    (region,) = found.regions
    assert [layer.type for layer in region.before if layer.type != "Constant"] == [
        "Convolution2d",
        "BatchNormalization",
    ]


def test_names_that_say_nothing_do_not_matter() -> None:
    graph = conv_net(normed)
    for key in graph:
        graph.nodes[key]["name"] = ""
    fused = fe.loads(fe.dumps(fe.fuse(graph, RULES["batch-norm"])))
    assert fe.verify(graph, fused).status == "verified"
    bias = next(
        key for key, node in fused.nodes(data=True) if node["type"] == "Constant" and node["outputs"][0].shape == (4,)
    )
    tensor: Tensor = fused.nodes[bias]["constants"]["input"]
    fused.nodes[bias]["constants"] = FrozenDict(input=tensor.with_data(-tensor.data))
    assert fe.verify(graph, fused).status == "failed"


def test_chained_fusions_share_their_region() -> None:
    graph = conv_net(lambda net, x: normed(net, normed(net, x)))
    found = checked(graph, "batch-norm")
    assert len(found.fusions) == 2
    assert len(found.regions) == 1
    assert {check.difference for check in found.fusions} == {found.regions[0].difference}


def test_dead_layers_may_go() -> None:
    net = Net()
    x = net.input((1, 4))
    net.activation(net.activation(x, "TanH"))
    net.output(net.activation(x))
    (check,) = checked(net.graph, "dead-ends").fusions[:1]
    assert (check.status, check.difference) == ("verified", 0.0)


def test_equal_siblings_are_one_value() -> None:
    """Their consumers read another layer than before; chains of them, too."""
    net = Net()
    x = net.activation(net.input((2, 3, 4)), name="first")
    chains = [net.transpose(net.transpose(x, (1, 0, 2)), (0, 2, 1)) for _ in range(2)]
    net.output(net.activation(chains[0], "Sigmoid"))
    net.output(net.activation(chains[1], "TanH", 1.0, 1.0))
    found = checked(net.graph, "equal-siblings")
    assert {region.difference for region in found.regions} <= {0.0}


def test_what_a_clamp_needs_to_know_is_looked_up_above_it() -> None:
    """A ReLu over a Sigmoid is superfluous, one over an Input is not."""
    for below, status in (("Sigmoid", "verified"), ("TanH", "failed")):
        net = Net()
        bounded = net.activation(net.input((1, 8, 8, 2)), below, 1.0, 1.0, name="bounded")
        relu = net.activation(bounded, name="relu")
        net.output(net.activation(relu, "Square", name="square"))
        checked(net.graph, rule_of(dropped, 'Activation[activationFunction == "ReLu"]{?}'), status)


def test_a_relu_of_what_is_too_small_to_be_seen_is_still_one() -> None:
    """A square never is below 0, however far one goes; a ReLu over it is superfluous."""
    net = Net()
    square = net.activation(net.activation(net.input((1, 8)), "Linear", 1e-3, 0.0), "Square", name="square")
    relu = net.activation(square, name="relu")
    last = net.activation(relu, "Abs", name="last")
    net.output(last)
    assert fe.verify(net.graph, rewired(net.graph, last, 0, square)).status == "verified"


@pytest.mark.parametrize("bound", [3.4028234663852886e38, float("inf")])
def test_a_bound_that_no_number_reaches_is_none(bound: float) -> None:
    net = Net()
    clamp = net.activation(net.input((1, 8)), "BoundedReLu", bound, 0.0, name="clamp")
    net.output(clamp)
    after = net.graph.copy()
    after.nodes[clamp]["params"] = after.nodes[clamp]["params"].with_(activationFunction="ReLu")
    assert fe.verify(net.graph, after).status == "verified"


def test_a_layer_that_takes_up_what_another_lost_is_judged_by_its_output() -> None:
    """A factor moves from below a convolution into its weights: what feeds it is not the same, what it gives is."""
    random = np.random.default_rng(2)
    net = Net()
    x = net.input((1, 4, 4, 1))
    scaled = net.multiplication(x, net.constant([2.0]), name="scaled")
    weights = random.uniform(-1, 1, (3, 2, 2, 1)).astype(np.float32)
    conv = net.conv(scaled, weights, name="conv")
    net.output(net.activation(conv))

    def absorb(workspace: Workspace, match: Match, plan: None, factor: float) -> int:
        workspace.disconnect(conv, 0)
        workspace.connect(Source(x, 0), conv, 0)
        old = workspace.disconnect(conv, 1)
        new = workspace.add_constant("doubled", Tensor.of(weights * factor))
        workspace.connect(Source(new, 0), conv, 1)
        workspace.remove(scaled)
        workspace.drop_unused([old.layer])
        return conv

    for factor, status in ((2, "verified"), (0.5, "failed")):
        checked(net.graph, rule_of(absorb, "Convolution2d{Multiplication}", factor=factor), status)


# Opaque layers and groups


@pytest.mark.parametrize("made", [{"into": "ConvNorm"}, {"group": "ConvNorm"}])
def test_opaque_layers_and_groups_are_verified_by_what_they_expand_to(made: dict[str, str]) -> None:
    graph = conv_net(normed)
    rule = fe.FusingRule("BatchNormalization{Convolution2d}", **made)  # type: ignore[arg-type]
    found = checked(graph, rule)
    assert found.regions == ()
    assert found.fusions[0].difference == 0.0


def test_an_opaque_layer_over_a_fold() -> None:
    graph = conv_net(normed)
    fused = fe.fuse(graph, [RULES["batch-norm"], fe.FusingRule("Activation{Convolution2d}", into="ConvRelu")])
    assert len(fused.graph["fusions"]) == 2
    found = fe.verify(graph, fused)
    assert found.status == "verified"
    assert len(found.regions) == 1
    assert all(check.difference == found.regions[0].difference for check in found.fusions)


def test_an_opaque_layer_whose_constant_was_changed_is_caught() -> None:
    graph = conv_net(normed)
    fused = fe.fuse(graph, fe.FusingRule("BatchNormalization{Convolution2d}", into="ConvNorm"))
    key = next(k for k, node in fused.nodes(data=True) if node["name"].endswith("/gamma"))
    tensor: Tensor = fused.nodes[key]["constants"]["input"]
    fused.nodes[key]["constants"] = FrozenDict(input=tensor.with_data(tensor.data * np.float32(1.01)))
    found = fe.verify(graph, fused)
    assert found.status == "failed"
    assert found.fusions[0].status == "failed"


def test_other_peoples_stand_ins_are_left_alone() -> None:
    """A layer that nothing is known of bounds regions like any other."""
    net = Net()
    x = net.stand_in(net.input((1, 4, 4, 2)), outputs=[(1, 4, 4, 2)], name="foreign")
    conv = net.conv(x, np.ones((4, 1, 1, 2)))
    net.output(net.stand_in(normed(net, conv), outputs=[(1, 4, 4, 4)]))
    checked(net.graph, "batch-norm")


# The call


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -1}, "a seed is an int of at least 0, not -1"),
        ({"seed": 1.5}, "a seed is an int of at least 0, not 1.5"),
        ({"tolerance": float("nan")}, "a tolerance is a number of at least 0, not nan"),
        ({"tolerance": -1}, "a tolerance is a number of at least 0, not -1"),
        ({"tolerance": "1"}, "a tolerance is a number of at least 0, not '1'"),
    ],
)
def test_what_makes_no_sense(options: dict[str, Any], words: str) -> None:
    graph = conv_net(normed)
    with pytest.raises(fe.VerifyError) as caught:
        fe.verify(graph, graph, **options)
    assert str(caught.value) == words


def test_what_is_no_network() -> None:
    with pytest.raises(fe.VerifyError, match=r"a network is a networkx\.DiGraph, not int"):
        fe.verify(3, conv_net(normed))  # type: ignore[arg-type]


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    graph = conv_net(normed)
    with pytest.raises(fe.VerifyError, match=r"pip install 'armnn-fusion-engine\[verify\]'"):
        fe.verify(graph, graph)


def test_a_tolerance_of_ones_own() -> None:
    graph = conv_net(normed)
    fused = fe.fuse(graph, RULES["batch-norm"])
    found = fe.verify(graph, fused, tolerance=0)
    assert found.status == "failed"
    assert found.regions[0].tolerance == 0
    assert fe.verify(graph, fused, tolerance=1e-6).status == "verified"


def test_the_networks_stay_as_they_are() -> None:
    graph = conv_net(normed)
    fused = fe.fuse(graph, fe.FusingRule("BatchNormalization{Convolution2d}", into="ConvNorm"))
    before, after = fe.dumps(graph), fe.dumps(fused)
    fe.verify(graph, fused)
    assert (fe.dumps(graph), fe.dumps(fused)) == (before, after)


def test_a_deep_chain_is_no_matter_of_recursion() -> None:
    """All of it is one region: no name, no key and nothing that is the same tells its layers apart."""
    net = Net()
    x = net.input((2,))
    for _ in range(3000):
        x = net.activation(x, "Linear", 1.0, 0.0, name="")
    net.output(x)
    other = Net()
    y = other.input((2,))
    other.output(other.reshape(other.reshape(y, (2, 1), name=""), (2,), name=""))
    found = fe.verify(net.graph, other.graph)
    assert found.status == "verified"
    assert len(found.regions[0].before) == 3000
