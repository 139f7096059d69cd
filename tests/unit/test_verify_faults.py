"""verify: wrong folds are caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.folds import find_fold
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict
from fusion_engine.tensor import Tensor, TensorInfo
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
    replaced,
    rewired,
    rule_of,
)

pytestmark = pytest.mark.usefixtures("anything_goes")


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
