"""verify: right folds are verified, wrong ones are caught, what cannot be told is said to be so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import engine
from fusion_engine.folds import Fold, find_fold
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Network, Source, connect, disconnect
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

RULES = {rule.name: rule for rule in fe.load_rules("armnn")}


def conv_net(above: Callable[[Net, int], int], *, seed: int = 3, data_type: str = "Float32") -> Network:
    """Input, a 3x3 convolution of 2 to 4 channels, something above it, ReLu, Output."""
    random = np.random.default_rng(seed)
    net = Net(data_type=data_type)
    x = net.input((1, 6, 5, 2))
    conv = net.conv(x, random.uniform(-1, 1, (4, 3, 3, 2)), random.uniform(-1, 1, 4), name="conv")
    net.output(net.activation(above(net, conv), name="relu"))
    return net.graph


def normed(net: Net, x: int) -> int:
    random = np.random.default_rng(8)
    drawn = [random.uniform(-1, 1, 4) for _ in range(3)]
    return net.batch_norm(x, *drawn, random.uniform(0.1, 2, 4), name="norm")


def checked(graph: Network, rule: str | fe.FusingRule, status: str = "verified") -> fe.Verification:
    """What verify says of a network after one rule, which must fire."""
    fused = fe.fuse(graph, RULES[rule] if isinstance(rule, str) else rule)
    assert fused.graph["fusions"], fused.graph["refusals"]
    found = fe.verify(graph, fused)
    assert found.status == status, found.regions
    assert [check.fusion for check in found.fusions] == list(fused.graph["fusions"])
    return found


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


# What cannot be told


def rewired(graph: Network, reader: int, slot: int, source: int) -> Network:
    """The network with one input read from another layer; what nothing reads any more is gone."""
    found = graph.copy()
    disconnect(found, reader, slot)
    connect(found, source, reader, 0, slot)
    gone = [key for key in found if found.nodes[key]["type"] != "Output" and not found.out_degree(key)]
    while gone:
        found.remove_nodes_from(gone)
        gone = [key for key in found if found.nodes[key]["type"] != "Output" and not found.out_degree(key)]
    return found


@pytest.mark.parametrize("records", [False, True])
def test_stand_ins_of_two_names_are_two_functions(records: bool) -> None:
    net = Net()
    x = net.input((1, 4))
    one, other = (net.stand_in(x, outputs=[(1, 4)], name=name) for name in ("Foo", "Bar"))
    minus = net.binary("Subtraction", one, other, name="minus")
    net.output(minus)
    after = rewired(net.graph, minus, 1, one)
    assert other not in after
    if records:
        after.graph["fusions"] = ()
    else:
        after.nodes[minus]["name"] = "another"
    assert fe.verify(net.graph, after).status != "verified"
    assert fe.verify(net.graph, net.graph.copy()).status == "verified"


def test_a_region_that_cannot_be_expressed_is_unverified() -> None:
    net = Net()
    x = net.input((1, 4))
    foreign = net.stand_in(x, outputs=[(1, 4)], name="foreign")
    net.output(net.activation(foreign, name="relu"))
    found = checked(net.graph, rule_of(dropped, "Activation{StandIn}", below=True), "unverified")
    (check,) = found.fusions
    assert check.status == "unverified"
    assert check.difference is None
    assert check.reason is not None
    assert "StandIn layer 1 'foreign' cannot be expressed: there is no expression for StandIn" in check.reason


def test_a_difference_under_a_layer_that_nothing_is_known_of_is_a_failure() -> None:
    """The region can be run and differs; what is above it cannot be looked at."""
    net = Net()
    foreign = net.stand_in(net.input((1, 4)), outputs=[(1, 4)], name="foreign")
    net.output(net.activation(net.activation(foreign, name="relu"), "Square"))
    checked(net.graph, rule_of(dropped, 'Activation[activationFunction == "ReLu"]'), "failed")


def test_what_is_too_large_is_not_run() -> None:
    net = Net()
    x = net.input((2**15, 2**14))
    net.output(net.activation(net.activation(x), "BoundedReLu", 1.0, -1.0))
    found = checked(net.graph, "activation-chain", "unverified")
    assert (
        found.regions[0].reason == "Input layer 0 'input_0' cannot be expressed: it gives more than 268435456 elements"
    )


def test_records_that_fuse_did_not_leave() -> None:
    graph = conv_net(normed)
    fused = fe.fuse(graph, RULES["batch-norm"])
    for wrong in (3, (1,)):
        fused.graph["fusions"] = wrong
        with pytest.raises(fe.VerifyError, match="is not what fuse leaves"):
            fe.verify(graph, fused)


def test_nothing_but_nan_proves_nothing() -> None:
    net = Net()
    product = net.multiplication(net.input((1, 4)), net.constant([np.nan], name="nan"))
    net.output(product)
    fused = fe.fuse(net.graph, ())
    key = next(k for k, node in fused.nodes(data=True) if node["type"] == "Constant")
    fused.nodes[key]["constants"] = FrozenDict(input=Tensor.of([-np.nan]))
    found = fe.verify(net.graph, fused)
    assert found.status == "unverified"
    assert found.regions[0].reason == "it gave no finite number to compare"


# What is wrong


def rule_of(apply: Callable[..., int | None], text: str, **options: Any) -> fe.FusingRule:
    """A rule whose fold does as it is told; the fixture `anything_goes` lets the engine find it."""
    rule = fe.FusingRule(text, fold="batch-norm", name=f"wrong {len(FOLDS)}")
    FOLDS[rule.name] = Fold(lambda workspace, match: None, lambda w, m, p: apply(w, m, p, **options))
    return rule


FOLDS: dict[str, Fold] = {}


@pytest.fixture(autouse=True)
def anything_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine takes the folds of `rule_of`, by the rule's name."""
    of = engine._Runner.of.__func__  # type: ignore[attr-defined]

    def with_own(cls: Any, rule: fe.FusingRule) -> Any:
        runner = of(cls, rule)
        runner.fold = FOLDS.get(rule.name, runner.fold)
        return runner

    monkeypatch.setattr(engine._Runner, "of", classmethod(with_own))


def dropped(workspace: Workspace, match: Match, plan: None, below: bool = False) -> int | None:
    """Drop the root (and with ``below`` what feeds it), whatever it does."""
    source = workspace.inputs(match.root)[0][1]
    if below:
        under = source.layer
        source = workspace.inputs(under)[0][1]
    for use in workspace.uses(match.root):
        workspace.disconnect(use.layer, use.input_slot)
        workspace.connect(source, use.layer, use.input_slot)
    workspace.remove(match.root)
    if below:
        workspace.remove(under)
    return None


def test_a_shift_with_the_wrong_sign_is_caught() -> None:
    """Through the fold that ships, given the negative of the bias that it would make."""
    shift = find_fold("shift")

    def apply(workspace: Workspace, match: Match, plan: Any) -> int:
        constant = workspace.source(match.root, 1)
        assert constant is not None
        values = workspace.tensor(constant.layer)
        assert values is not None
        workspace.set(constant.layer, constants=FrozenDict(input=values.with_data(-values.data)))
        found = shift.apply(workspace, match, shift.check(workspace, match))
        assert found is not None
        return found

    graph = conv_net(lambda net, x: net.addition(x, net.constant([0.5, -0.25, 2, 0.125]), name="shifted"))
    checked(graph, "shift")
    (check,) = checked(graph, rule_of(apply, "Addition{Convolution2d, Constant}"), "failed").fusions
    assert check.difference is not None
    assert check.difference > 0.05
    assert check.reason is not None
    assert "what layer 5 'shifted' gave before and layer 5 'shifted' gives after differ by" in check.reason


def test_a_wrong_fold_is_told_of_in_its_own_region_only() -> None:
    """The other convolution of the network was folded rightly."""
    graph = conv_net(lambda net, x: normed(net, net.conv(normed(net, x), np.ones((4, 1, 1, 4)), name="second")))
    fused = fe.fuse(graph, RULES["batch-norm"])
    conv = next(k for k, n in fused.nodes(data=True) if n["type"] == "Convolution2d" and n["outputs"][0].shape[1] == 4)
    bias = next(key for key in fused.pred[conv] if fused.edges[key, conv]["slots"] == ((0, 2),))
    tensor: Tensor = fused.nodes[bias]["constants"]["input"]
    fused.nodes[bias]["constants"] = FrozenDict(input=tensor.with_data(tensor.data + np.float32(0.01)))
    found = fe.verify(graph, fused)
    assert sorted(check.status for check in found.fusions) == ["failed", "verified"]
    assert sorted(region.status for region in found.regions) == ["failed", "verified"]


def test_a_relu_that_is_dropped_is_caught() -> None:
    graph = conv_net(lambda net, x: x)
    checked(graph, rule_of(dropped, "Activation{Convolution2d}"), "failed")


def replaced(kind: str, params: dict[str, Any], **attributes: Any) -> Callable[..., int]:
    """A fold that makes the root another layer over what fed the layer below it."""

    def apply(workspace: Workspace, match: Match, plan: None) -> int:
        root = match.root
        below = workspace.inputs(root)[0][1].layer
        source = workspace.inputs(below)[0][1]
        for slot, _ in workspace.inputs(root):
            fed = workspace.disconnect(root, slot)
            workspace.drop_unused([fed.layer])
        workspace.remove(below)
        workspace.set(root, type=kind, params=FrozenDict(params), **attributes)
        workspace.connect(source, root, 0)
        return root

    return apply


def test_relu_under_relu1_is_no_relu1() -> None:
    net = Net()
    net.output(net.activation(net.activation(net.input((1, 3))), "BoundedReLu", 1, -1))
    right = {"activationFunction": "BoundedReLu", "a": 1.0, "b": 0.0}
    text = "Activation{Activation}"
    checked(net.graph, rule_of(replaced("Activation", right), text), "verified")
    checked(net.graph, rule_of(replaced("Activation", {**right, "b": -1.0}), text), "failed")


def test_two_permutes_of_a_cube_are_not_always_the_identity() -> None:
    """The shape cannot tell: all extents are the same."""
    net = Net()
    x = net.input((3, 3, 3))
    net.output(net.activation(net.permute(net.permute(x, (1, 2, 0)), (1, 2, 0), name="both")))
    text = "Permute{Permute}"
    checked(net.graph, rule_of(replaced("Permute", {"dimMappings": (2, 0, 1)}), text), "verified")
    checked(net.graph, rule_of(replaced("Permute", {"dimMappings": (1, 2, 0)}), text), "failed")
    checked(net.graph, rule_of(dropped, text, below=True), "failed")


def test_a_zero_pad_is_no_part_of_a_maximum() -> None:
    net = Net()
    x = net.input((1, 2, 2, 1))
    pool = net.pool(net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]), (2, 2), "Max")
    net.output(pool)
    pads = dict.fromkeys(("padLeft", "padRight", "padTop", "padBottom"), 1)
    params = {**net.graph.nodes[pool]["params"], **pads}
    checked(net.graph, rule_of(replaced("Pooling2d", params), "Pooling2d{Pad}"), "failed")


def test_the_divisor_of_an_average_over_pads() -> None:
    net = Net()
    x = net.input((1, 1, 1, 1))
    pool = net.pool(net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]), (3, 3), "Average")
    net.output(pool)
    pads = dict.fromkeys(("padLeft", "padRight", "padTop", "padBottom"), 1)
    params = {**net.graph.nodes[pool]["params"], **pads}
    for method, status in (("IgnoreValue", "verified"), ("Exclude", "failed")):
        wrong = replaced("Pooling2d", {**params, "paddingMethod": method})
        checked(net.graph, rule_of(wrong, "Pooling2d{Pad}"), status)


def test_a_pad_with_a_value_of_its_own() -> None:
    net = Net()
    x = net.input((1, 2, 2, 1))
    conv = net.conv(net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], 1.0), np.ones((1, 3, 3, 1)), form="member")
    net.output(conv)
    pads = dict.fromkeys(("padLeft", "padRight", "padTop", "padBottom"), 1)
    params = {**net.graph.nodes[conv]["params"], **pads}
    checked(net.graph, rule_of(replaced("Convolution2d", params), "Convolution2d{Pad}"), "failed")


def test_a_quantized_clamp_is_met_at_its_corners() -> None:
    """Inside the range of the type nothing shows but at the bound itself: one step of 255."""
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 70), quantization_scale=1 / 255, quantization_offset=0)
    net.output(net.activation(net.activation(x, "BoundedReLu", 1.0, 0.0, name="clamp"), "Square", name="square"))
    checked(net.graph, rule_of(dropped, "Activation[a == 1]{?}"))
    for bound, status in ((253.4 / 255, "failed"), (254.4 / 255, "verified")):
        net = Net(data_type="QAsymmU8")
        x = net.input((1, 70), quantization_scale=1 / 255, quantization_offset=0)
        clamp = net.activation(x, "BoundedReLu", bound, 0.0, name="clamp")
        net.output(net.reshape(clamp, (70, 1)))
        found = checked(net.graph, rule_of(dropped, "Activation"), status)
        assert found.regions[0].unit == "quanta"
        assert found.regions[0].difference == (2.0 if status == "failed" else 1.0)


def shrunk(how: str, by: float, net: Net, x: int) -> int:
    """The input, made smaller."""
    if how == "conv":
        return net.conv(x, np.full((1, 1, 1, 1), by), None, name="small")
    if how == "norm":
        return net.batch_norm(x, [0.3], [by], [0.0], [1.0], name="small")
    if how == "constant":
        return net.binary("Multiplication", x, net.constant([[[[by]]]]), name="small")
    return net.activation(x, "Linear", by, 0.0, name="small")


@pytest.mark.parametrize("by", [1.0, 0.1, 1e-2, 1e-6, 1e-9])
@pytest.mark.parametrize("how", ["conv", "norm", "linear", "constant"])
@pytest.mark.parametrize("function", ["BoundedReLu", "TanH"])
def test_what_is_dropped_under_small_numbers_is_caught(how: str, by: float, function: str) -> None:
    """Where the inputs are small, nothing shows: they must not be."""
    net = Net()
    small = shrunk(how, by, net, net.input((1, 2, 2, 1)))
    bounds = (6.0, -6.0) if function == "BoundedReLu" else (1.0, 1.0)
    last = net.activation(net.activation(small, function, *bounds, name="clamp"), "Abs", name="last")
    net.output(last)
    assert fe.verify(net.graph, rewired(net.graph, last, 0, small)).status == "failed"


@pytest.mark.parametrize("by", [1.0, 0.1, 1e-6])
def test_what_is_dropped_below_a_small_number_in_one_region_is_caught(by: float) -> None:
    """The convolution is in no pair: it is within the region from the start."""
    net = Net()
    x = net.input((1, 2, 2, 1))
    clamp = net.activation(shrunk("conv", by, net, x), "BoundedReLu", 6.0, -6.0, name="clamp")
    net.output(net.activation(clamp, "Abs", name="last"))
    other = Net()
    x = other.input((1, 2, 2, 1))
    other.output(other.activation(other.activation(x, "Linear", by, 0.0, name="other"), "Abs", name="last"))
    found = fe.verify(net.graph, other.graph)
    assert next(layer.type for layer in found.regions[0].before if layer.type != "Constant") == "Convolution2d"
    assert found.status == "failed"


def test_where_values_cannot_come_to_a_bound_nothing_is_said() -> None:
    """A root does grow, but no number has one as large as the bound; that it ends nowhere is not seen."""
    net = Net()
    root = net.activation(net.activation(net.input((1, 8)), "Abs"), "Sqrt", name="root")
    last = net.activation(net.activation(root, "BoundedReLu", 1e25, -1e25, name="clamp"), "Abs", name="last")
    net.output(last)
    found = fe.verify(net.graph, rewired(net.graph, last, 0, root))
    assert found.status == "unverified"
    assert "values do not come to where" in (found.regions[0].reason or "")


def bounded_by(net: Net, x: int, bound: Any) -> int:
    kind = net.data_type
    if isinstance(bound, tuple):
        return net.activation(x, "BoundedReLu", *bound, name="bound")
    return net.binary("Minimum", x, net.constant([bound], kind), name="bound")


@pytest.mark.parametrize(
    ("data_type", "bound"),
    [
        ("Float32", (2e6, -2e6)),
        ("Float32", (1e20, -1e20)),
        ("Float32", [2e6]),
        ("Float32", [5e3, 6e3, 4e3, 7e3]),
        ("Float32", [9e9, 8e9, 7e9, 6e9]),
        ("Signed32", [1000]),
        ("Signed32", [2_000_000]),
        ("Signed32", [2_000_000_000]),
        ("Signed32", [5000, 6000, 4000, 7000]),
    ],
)
def test_bounds_far_away_are_met(data_type: str, bound: Any) -> None:
    net = Net(data_type=data_type)
    x = net.input((1, 4))
    last = net.reshape(bounded_by(net, x, bound), (4,), name="last")
    net.output(last)
    assert fe.verify(net.graph, rewired(net.graph, last, 0, x)).status == "failed"
    assert fe.verify(net.graph, net.graph.copy()).status == "verified"


def test_another_quantization_is_another_tensor() -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 4), quantization_scale=0.5, quantization_offset=3)
    finer = TensorInfo((1, 4), "QAsymmU8", 0.25, 3)
    net.output(net.activation(net.activation(x, output=finer, name="relu"), "Square", name="square"))
    found = checked(net.graph, rule_of(dropped, 'Activation[activationFunction == "ReLu"]'), "failed")
    assert found.fusions[0].reason is not None
    assert "Float" not in found.fusions[0].reason


@pytest.mark.parametrize("change", ["gone", "id", "order", "type"])
def test_the_networks_ends_must_stay(change: str) -> None:
    net = Net()
    x = net.input((1, 4))
    net.output(net.activation(x, name="a"), name="one")
    last = net.output(net.activation(x, "TanH", name="b"), name="two")
    after = fe.fuse(net.graph, ())
    if change == "gone":
        after.remove_node(last)
        after.graph["outputs"] = after.graph["outputs"][:1]
    elif change == "id":
        after.nodes[last]["binding_id"] = 17
    elif change == "order":
        after.graph["outputs"] = after.graph["outputs"][::-1]
    else:
        after.nodes[x]["outputs"] = (replace(net.info(x), data_type="Float16"),)
    found = fe.verify(net.graph, after)
    assert found.status == "failed"
    assert found.failures


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
