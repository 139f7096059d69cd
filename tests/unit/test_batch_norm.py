"""The batch-norm fold: exact numbers per kind of layer, weight form and layout; and every refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.folds import Refused, find_fold
from fusion_engine.match.binding import Edge, Match
from fusion_engine.network import Source, connect, disconnect
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.weights import layer_bias, layer_weights
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

FOLD = find_fold("batch-norm")

BN_K = {"gamma": [4, 3], "beta": [1, -1], "mean": [0.5, 0.25], "variance": [3, 8], "eps": 1.0}
"""Scale [2, 1], shift [0, -1.25]."""


def match_of(workspace: Workspace, norm: int) -> Match:
    source = workspace.source(norm, 0)
    assert source is not None
    below = source.layer
    inputs = tuple(Edge(s, below, slot) for slot, s in workspace.data_inputs(below))
    return Match(norm, (norm, below), (), (), inputs, ())


def fold(net: Net, norm: int) -> Workspace:
    workspace = Workspace(net.graph)
    match = match_of(workspace, norm)
    assert FOLD.apply(workspace, match, FOLD.check(workspace, match)) == norm
    return workspace


def refusal(net: Net, norm: int) -> str:
    workspace = Workspace(net.graph)
    with pytest.raises(Refused) as caught:
        FOLD.check(workspace, match_of(workspace, norm))
    assert workspace.revision == 0
    return caught.value.reason


def parameters(workspace: Workspace, key: int) -> tuple[np.ndarray, np.ndarray]:
    weights, bias = layer_weights(workspace, key), layer_bias(workspace, key)
    assert weights is not None
    assert bias is not None
    return weights.tensor.data, bias.tensor.data


def small(form: str = "member", bias: Any = (0.5, 0.5), **options: Any) -> tuple[Net, int, int]:
    """Input, 1x1 convolution to two channels with weights 1, batch norm BN-K, Output."""
    net = Net(form=form)
    x = net.input((1, 1, 1, 1))
    conv = net.conv(x, np.ones((2, 1, 1, 1)), bias, name="conv")
    norm = net.batch_norm(conv, **{**BN_K, **options}, name="norm")
    net.output(norm)
    return net, conv, norm


# Numbers


@pytest.mark.parametrize("form", ["member", "constant"])
def test_bias_is_scaled_too(form: str) -> None:
    net, conv, norm = small(form)
    workspace = fold(net, norm)
    weights, bias = parameters(workspace, norm)
    assert weights.tolist() == [[[[2]]], [[[1]]]]
    assert bias.tolist() == [1, -0.75]
    assert weights.dtype == bias.dtype == np.float32
    assert conv not in workspace.graph
    assert workspace.type(norm) == "Convolution2d"
    assert workspace.name(norm) == "norm"


@pytest.mark.parametrize("form", ["member", "constant"])
def test_layer_without_bias_gets_one(form: str) -> None:
    net, _, norm = small(form, bias=None)
    workspace = fold(net, norm)
    _, bias = parameters(workspace, norm)
    assert bias.tolist() == [0, -1.25]
    assert workspace.param(norm, "biasEnabled") is True
    if form == "member":
        assert workspace.inputs(norm) == ((0, Source(0, 0)),)
        assert list(workspace.constants(norm)) == ["weights", "biases"]
    else:
        (_, _), (one, weights), (two, added) = workspace.inputs(norm)
        assert (one, two) == (1, 2)
        assert workspace.name(weights.layer) == "conv/weights"
        assert workspace.name(added.layer) == "norm/bias"
        assert not workspace.constants(norm)


def test_weights_constant_and_bias_member_keep_their_forms() -> None:
    net, conv, norm = small("constant", bias=None)
    node = net.graph.nodes[conv]
    node["params"] = node["params"].with_(biasEnabled=True)
    node["constants"] = node["constants"].with_(biases=Tensor.of([0.5, 0.5]))
    workspace = fold(net, norm)
    weights, bias = parameters(workspace, norm)
    assert weights.reshape(-1).tolist() == [2, 1]
    assert bias.tolist() == [1, -0.75]
    assert [slot for slot, _ in workspace.inputs(norm)] == [0, 1]
    assert list(workspace.constants(norm)) == ["biases"]


@pytest.mark.parametrize(
    ("gamma", "weights", "bias"), [([0, 3], [0, 1], [1, -0.75]), ([-4, 3], [-2, 1], [1, -0.75])], ids=["zero", "below"]
)
def test_gamma_of_zero_and_below(gamma: list[float], weights: list[float], bias: list[float]) -> None:
    net, _, norm = small(gamma=gamma)
    found = parameters(fold(net, norm), norm)
    assert found[0].reshape(-1).tolist() == weights
    assert found[1].tolist() == bias


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_transposed_convolution_is_scaled_on_axis_0(layout: str) -> None:
    net = Net(layout=layout)
    x = net.input((1, 1, 1, 2) if layout == "NHWC" else (1, 2, 1, 1))
    weights = np.reshape([[1, 10], [100, 1000]], (2, 1, 1, 2) if layout == "NHWC" else (2, 2, 1, 1))
    norm = net.batch_norm(net.transpose_conv(x, weights), **BN_K)
    net.output(norm)
    workspace = fold(net, norm)
    found, bias = parameters(workspace, norm)
    assert found.reshape(2, 2).tolist() == [[2, 20], [100, 1000]]
    assert bias.tolist() == [0, -1.25]
    assert workspace.type(norm) == "TransposeConvolution2d"


@pytest.mark.parametrize("form", ["member", "constant"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_depthwise_output_channel_is_i_times_m(form: str, layout: str) -> None:
    """Two input channels, multiplier 3: weights of scheme 0 and scheme 1 hold the same kernel."""
    statistics = {"gamma": np.arange(1, 7), "beta": np.zeros(6), "mean": np.zeros(6), "variance": np.ones(6)}
    found = []
    for scheme in (0, 1):
        net = Net(form=form, layout=layout, feature_versions=(1, scheme, 1))
        x = net.input((1, 1, 1, 2) if layout == "NHWC" else (1, 2, 1, 1))
        kernel = np.ones((3, 2, 1, 1)) if scheme == 0 else np.ones((1, 1, 1, 6))
        norm = net.batch_norm(net.depthwise(x, kernel), **statistics, eps=0.0)
        net.output(norm)
        weights, _ = parameters(fold(net, norm), norm)
        found.append(weights.transpose(2, 3, 1, 0).reshape(-1) if scheme == 0 else weights.reshape(-1))
    assert found[0].tolist() == found[1].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_fully_connected(transposed: bool, layout: str) -> None:
    net = Net()
    x = net.input((3, 2))
    weights = np.array([[1, 10], [100, 1000]])
    full = net.fully_connected(x, weights, [0.5, 0.5], transposeWeightsMatrix=transposed)
    norm = net.batch_norm(full, **BN_K, layout=layout)
    net.output(norm)
    found, bias = parameters(fold(net, norm), norm)
    assert found.tolist() == ([[2, 20], [100, 1000]] if transposed else [[2, 10], [200, 1000]])
    assert bias.tolist() == [1, -0.75]


@pytest.mark.parametrize(
    ("shape", "layout", "folds"),
    [
        ((3, 1, 1, 2), "NHWC", True),
        ((3, 2, 1, 1), "NCHW", True),
        ((3, 1, 1, 2), "NCHW", False),
        ((3, 2, 1, 1), "NHWC", False),
        ((1, 1, 3, 2), "NHWC", False),
        ((2,), "NHWC", False),
        ((3, 1, 2), "NHWC", False),
    ],
)
def test_fully_connected_of_other_ranks(shape: tuple[int, ...], layout: str, folds: bool) -> None:
    net = Net()
    full = net.fully_connected(net.input((3, 2)), np.ones((2, 2)), output=TensorInfo(shape))
    norm = net.batch_norm(full, **BN_K, layout=layout)
    net.output(norm)
    if folds:
        assert parameters(fold(net, norm), norm)[0].tolist() == [[2, 1], [2, 1]]
    else:
        assert "along the channels" in refusal(net, norm)


@pytest.mark.parametrize("layout", ["NHWC", "NDHWC"])
def test_convolution_3d_is_scaled_on_axis_4(layout: str) -> None:
    net = Net()
    x = net.input((1, 1, 1, 1, 2))
    conv = net.conv3d(x, np.reshape([[1, 10], [100, 1000]], (1, 1, 1, 2, 2)))
    norm = net.batch_norm(conv, **BN_K, layout=layout)
    net.output(norm)
    weights, bias = parameters(fold(net, norm), norm)
    assert weights.reshape(2, 2).tolist() == [[2, 10], [200, 1000]]
    assert bias.tolist() == [0, -1.25]


def test_eps_is_the_float32_of_it() -> None:
    net, _, norm = small(bias=None, variance=[0, 0], eps=0.001, gamma=[1, 1], mean=[1, 1], beta=[0, 0])
    weights, _ = parameters(fold(net, norm), norm)
    assert weights.reshape(-1).tolist() == [np.float32(1 / np.sqrt(np.float64(np.float32(0.001))))] * 2


# Types


def half(gamma: float, variance: float, eps: float, weight: float = 1.0, **options: Any) -> tuple[Net, int]:
    net = Net(data_type="Float16")
    conv = net.conv(net.input((1, 1, 1, 1)), [[[[weight]]]], [0])
    norm = net.batch_norm(conv, [gamma], [0], [0], [variance], eps=eps, **options)
    net.output(norm)
    return net, norm


def test_half_precision_is_computed_in_double() -> None:
    net, norm = half(1e-3, 0, 1e-8)
    weights, bias = parameters(fold(net, norm), norm)
    assert weights.dtype == bias.dtype == np.float16
    assert float(weights.reshape(-1)[0]) == 10.0078125  # the Float16 nearest to 0.0010004 / 1e-4 = 10.00404


def test_overflow_of_half_precision_is_refused() -> None:
    net, norm = half(60, 1e-6, 1e-7, weight=2)
    assert "overflow in Float16" in refusal(net, norm)
    assert "would hold 113" in refusal(net, norm)


def test_overflow_of_single_precision_is_refused() -> None:
    net, _, norm = small(gamma=[3e38, 1], variance=[0.0, 1.0], eps=1e-3)
    assert "overflow in Float32" in refusal(net, norm)


def test_single_precision_statistics_over_a_half_precision_layer() -> None:
    net, norm = half(1e-3, 0, 1e-8, data_type="Float32")
    weights, bias = parameters(fold(net, norm), norm)
    assert weights.dtype == bias.dtype == np.float16
    assert float(weights.reshape(-1)[0]) == 10.0


def test_new_constants_have_the_infos_of_the_old_ones() -> None:
    net, conv, norm = small("constant")
    for _, source in Workspace(net.graph).parameter_inputs(conv):
        node = net.graph.nodes[source.layer]
        info = replace(
            node["outputs"][0], is_constant=True, dimension_specificity=(True,) * len(node["outputs"][0].shape)
        )
        node["outputs"] = (info,)
        node["constants"] = node["constants"].with_(input=Tensor(info, node["constants"]["input"].data))
    before = [net.graph.nodes[s.layer]["outputs"] for _, s in Workspace(net.graph).parameter_inputs(conv)]
    workspace = fold(net, norm)
    after = [workspace.outputs(source.layer) for _, source in workspace.parameter_inputs(norm)]
    assert after == before
    for _, source in workspace.parameter_inputs(norm):
        tensor = workspace.tensor(source.layer)
        assert tensor is not None
        assert tensor.info == workspace.outputs(source.layer)[0]


def test_root_keeps_its_tensor_info_and_the_input_its_override() -> None:
    net, conv, norm = small()
    info = replace(net.info(norm), quantization_offset=7)
    net.graph.nodes[norm]["outputs"] = (info,)
    net.graph.nodes[conv]["overrides"] = {0: (True, TensorInfo((1, 1, 1, 1)))}
    workspace = fold(net, norm)
    assert workspace.outputs(norm) == (info,)
    assert workspace.graph.nodes[norm]["overrides"] == {0: (True, TensorInfo((1, 1, 1, 1)))}


# Sharing


def shared(second: float | None) -> tuple[Net, int, list[int]]:
    """Two convolutions of one Constant 3, batch norms of scale 2 and ``second``, or none on the second."""
    net = Net()
    weights = net.constant([[[[3]]]], name="W")
    ends = []
    for scale in (2.0, second):
        x = net.input((1, 1, 1, 1))
        end = net.conv(x, weights)
        if scale is not None:
            end = net.batch_norm(end, [scale], [0], [0], [1], eps=0)
        net.output(end)
        ends.append(end)
    return net, weights, ends


def test_shared_weights_stay_for_the_other_layer() -> None:
    net, weights, (first, second) = shared(None)
    workspace = fold(net, first)
    assert layer_weights(workspace, first).tensor.data.item() == 6  # type: ignore[union-attr]
    assert workspace.source(second, 1) == Source(weights, 0)
    assert workspace.tensor(weights).data.item() == 3  # type: ignore[union-attr]
    assert workspace.name(weights) == "W"
    assert workspace.name(workspace.source(first, 1).layer) == "W#2"  # type: ignore[union-attr]


def test_shared_weights_fold_into_both() -> None:
    net, weights, ends = shared(5)
    workspace = Workspace(net.graph)
    for end in ends:
        match = match_of(workspace, end)
        FOLD.apply(workspace, match, FOLD.check(workspace, match))
    found = [workspace.source(end, 1).layer for end in ends]  # type: ignore[union-attr]
    assert [workspace.tensor(key).data.item() for key in found] == [6, 15]  # type: ignore[union-attr]
    assert [workspace.name(key) for key in found] == ["W#2", "W"]
    assert weights not in workspace.graph


def test_shared_members_and_statistics() -> None:
    net = Net(form="member")
    weights, one = Tensor.of([[[[3]]]]), Tensor.of([1.0])
    scale = Tensor.of([2.0])
    norms = []
    for _ in range(2):
        conv = net.conv(net.input((1, 1, 1, 1)), weights)
        norms.append(net.batch_norm(conv, scale, one, one, one, eps=0))
        net.output(norms[-1])
    workspace = fold(net, norms[0])
    assert workspace.constants(norms[0])["weights"].data.item() == 6
    below = workspace.source(norms[1], 0)
    assert below is not None
    assert workspace.constants(below.layer)["weights"] is weights
    assert weights.data.item() == 3


def test_caller_graph_is_as_it_was() -> None:
    net, _, norm = small("constant")
    before = {key: dict(data) for key, data in net.graph.nodes(data=True)}
    edges = sorted((u, v, data["slots"]) for u, v, data in net.graph.edges(data=True))
    fold(net, norm)
    assert dict(net.graph.nodes(data=True)) == before
    assert sorted((u, v, data["slots"]) for u, v, data in net.graph.edges(data=True)) == edges


# Refusals


def test_variance_plus_eps_not_positive() -> None:
    net, _, norm = small(variance=[3, -1], eps=1.0)
    assert refusal(net, norm) == (
        f"variance + eps of layer {norm} 'norm' is 0 in channel 1 (variance -1, eps 1): it must be a positive number"
    )


@pytest.mark.parametrize("variance", [float("nan"), float("inf"), -2.0])
def test_bad_variance(variance: float) -> None:
    net, _, norm = small(variance=[variance, 1])
    assert "in channel 0" in refusal(net, norm)


def test_nan_result() -> None:
    net, conv, norm = small(mean=[float("nan"), 0])
    assert refusal(net, norm) == f"NaN in Float32: the bias of layer {conv} 'conv'"


@pytest.mark.parametrize("missing", ["gamma", "beta", "mean", "variance"])
def test_missing_statistic(missing: str) -> None:
    net, _, norm = small()
    node = net.graph.nodes[norm]
    node["constants"] = type(node["constants"])({k: v for k, v in node["constants"].items() if k != missing})
    assert refusal(net, norm) == f"{missing} of layer {norm} 'norm' is missing"


def test_size_of_a_statistic() -> None:
    net, _, norm = small(gamma=[1, 2, 3])
    assert refusal(net, norm) == f"gamma of layer {norm} 'norm' has shape (3,) for 2 output channels"


def test_size_of_the_bias() -> None:
    net, conv, norm = small(bias=[1, 2, 3])
    assert refusal(net, norm) == f"the bias of layer {conv} 'conv' has 3 values for 2 output channels"


def test_output_channels_of_weights_and_output() -> None:
    net, conv, norm = small()
    for key in (conv, norm):
        net.graph.nodes[key]["outputs"] = (TensorInfo((1, 1, 1, 4)),)
    assert "its weights have 2 output channels" in refusal(net, norm)


@pytest.mark.parametrize("kind", ["weights", "bias"])
@pytest.mark.parametrize("computed", ["input", "Dequantize"])
def test_computed_parameters(kind: str, computed: str) -> None:
    net = Net()
    x = net.input((1, 1, 1, 1))
    shape = (2, 1, 1, 1) if kind == "weights" else (2,)
    if computed == "input":
        made = net.input(shape, name="w")
    else:
        made = net.layer(
            "Dequantize", net.constant(np.zeros(shape), "QAsymmS8"), outputs=(TensorInfo(shape),), name="w"
        )
    conv = net.conv(
        x,
        Source(made, 0) if kind == "weights" else np.ones((2, 1, 1, 1)),
        Source(made, 0) if kind == "bias" else None,
        name="c",
    )
    norm = net.batch_norm(conv, **BN_K)
    net.output(norm)
    verb, feeder = {"weights": "are", "bias": "is"}[kind], {"input": "Input"}.get(computed, computed)
    assert refusal(net, norm) == f"the {kind} of layer {conv} 'c' {verb} computed by {feeder} layer {made} 'w'"


def test_layouts_differ() -> None:
    net, conv, norm = small(layout="NCHW")
    assert refusal(net, norm) == f"layer {conv} 'conv' is NHWC and layer {norm} 'norm' NCHW"


def test_unknown_layout() -> None:
    net, _, norm = small(layout=9)
    assert "unknown dataLayout 9" in refusal(net, norm)


def test_quantized() -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 1, 1, 1), quantization_scale=0.1)
    norm = net.batch_norm(net.conv(x, np.ones((2, 1, 1, 1)), [0, 0]), **BN_K, data_type="Float32")
    net.output(norm)
    assert "QAsymmU8 does not fold, only Float32 and Float16 do" in refusal(net, norm)


def test_quantized_weights_and_per_axis() -> None:
    net, conv, norm = small()
    node = net.graph.nodes[conv]
    old = node["constants"]["weights"]
    node["constants"] = node["constants"].with_(weights=Tensor.of(old.data, "QSymmS8"))
    assert (
        refusal(net, norm) == f"the weights of layer {conv} 'conv': QSymmS8 does not fold, only Float32 and Float16 do"
    )
    info = replace(old.info, quantization_scales=(1.0, 2.0))
    node["constants"] = node["constants"].with_(weights=Tensor(info, old.data))
    assert "per-axis quantization" in refusal(net, norm)


def test_untagged_half_precision() -> None:
    net, norm = half(1, 1, 1)
    conv = Workspace(net.graph).source(norm, 0)
    assert conv is not None
    constant = Workspace(net.graph).source(conv.layer, 1)
    assert constant is not None
    node = net.graph.nodes[constant.layer]
    node["constants"] = node["constants"].with_(input=replace(node["constants"]["input"], untagged=True))
    assert "Float16 without a payload type" in refusal(net, norm)


def test_types_differ() -> None:
    net, _, norm = small()
    net.graph.nodes[norm]["outputs"] = (replace(net.info(norm), data_type="Float16"),)
    assert "gives Float32 and layer" in refusal(net, norm)


def test_shapes_differ() -> None:
    net, _, norm = small()
    net.graph.nodes[norm]["outputs"] = (TensorInfo((1, 2, 2, 2)),)
    assert "gives shape (1, 1, 1, 2) and layer" in refusal(net, norm)


@pytest.mark.parametrize("which", ["input", "conv", "norm"])
def test_missing_tensor_info(which: str) -> None:
    net, conv, norm = small()
    key = {"input": 0, "conv": conv, "norm": norm}[which]
    net.graph.nodes[key]["outputs"] = (None,)
    assert refusal(net, norm) == f"the output of layer {key} {net.graph.nodes[key]['name']!r} has no TensorInfo"


def _bias_disabled(net: Net, conv: int) -> None:
    node = net.graph.nodes[conv]
    node["params"] = node["params"].with_(biasEnabled=False)


def _bias_missing(net: Net, conv: int) -> None:
    node = net.graph.nodes[conv]
    node["constants"] = type(node["constants"])(weights=node["constants"]["weights"])


def _no_weights(net: Net, conv: int) -> None:
    node = net.graph.nodes[conv]
    node["constants"] = type(node["constants"])(biases=node["constants"]["biases"])


def _no_descriptor(net: Net, conv: int) -> None:
    net.graph.nodes[conv]["params"] = None


def _fourth_input(net: Net, conv: int) -> None:
    connect(net.graph, net.constant([1]), conv, 0, 3)


def _weights_twice(net: Net, conv: int) -> None:
    connect(net.graph, net.constant(np.ones((2, 1, 1, 1))), conv, 0, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_bias_disabled, "has a bias although its biasEnabled is false"),
        (_bias_missing, "has no bias although its biasEnabled is true"),
        (_no_weights, "has no weights"),
        (_no_descriptor, "has no descriptor"),
        (_fourth_input, "has inputs on slots [0, 3]"),
        (_weights_twice, "both as member and on input slot 1"),
    ],
)
def test_odd_layers(change: Callable[[Net, int], None], reason: str) -> None:
    net, conv, norm = small()
    change(net, conv)
    assert reason in refusal(net, norm)


def test_match_of_other_layers() -> None:
    net, conv, norm = small()
    workspace = Workspace(net.graph)
    with pytest.raises(Refused, match=r"the match holds BatchNormalization$"):
        FOLD.check(workspace, Match(norm, (norm,), (conv,), (), (), ()))
    net = Net()
    relu = net.activation(net.input((1, 1, 1, 2)))
    norm = net.batch_norm(relu, **BN_K)
    assert "the match holds BatchNormalization, Activation" in refusal(net, norm)


def test_depthwise_weights_of_the_other_scheme() -> None:
    net = Net()
    depthwise = net.depthwise(net.input((1, 1, 1, 1)), np.ones((1, 1, 1, 2)))
    norm = net.batch_norm(depthwise, **BN_K)
    net.output(norm)
    source = Workspace(net.graph).source(depthwise, 1)
    assert source is not None
    tensor = Tensor.of(np.ones((2, 1, 1, 2)))
    net.graph.nodes[source.layer].update(constants=net.graph.nodes[source.layer]["constants"].with_(input=tensor))
    assert "where [1,H,W,I*M] is the layout of this file" in refusal(net, norm)


# Through fuse

RULE = fe.FusingRule("BatchNormalization{Convolution2d}", name="bn", fold="batch-norm")
OPAQUE = fe.FusingRule("Activation{Convolution2d}", name="cr", into="ConvRelu")


@pytest.mark.parametrize("rules", [[RULE, OPAQUE], [OPAQUE, RULE]], ids=["fold-first", "opaque-first"])
def test_a_layer_between_keeps_them_apart(rules: list[fe.FusingRule]) -> None:
    """Convolution, ReLu, batch norm: neither over the ReLu, nor into a convolution fused with it."""
    net = Net(form="member")
    relu = net.activation(net.conv(net.input((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), [0.0]))
    net.output(net.batch_norm(relu, [2], [1], [0], [1], eps=0))
    fused = fe.fuse(net.graph, rules)
    assert [fusion.rule for fusion in fused.graph["fusions"]] == ["cr"]
    kept = [node["type"] for _, node in fused.nodes(data=True)]
    assert kept.count("BatchNormalization") == kept.count("StandIn") == 1


def test_two_consumers_and_network_outputs_are_refused() -> None:
    for tap in ("output", "layer"):
        net, conv, norm = small()
        net.output(conv if tap == "output" else net.pool(conv, (1, 1)), name="tap")
        fused = fe.fuse(net.graph, RULE)
        assert fused.graph["fusions"] == ()
        (refusal_,) = fused.graph["refusals"]
        assert refusal_.rule == "bn"
        assert (refusal_.layer.index, refusal_.layer.name) == (norm, "norm")
        assert "layer 1 'conv' is " in refusal_.reason
        assert fe.equal(fused, net.graph)


def test_one_branch_of_an_addition_is_no_match() -> None:
    net = Net(form="member")
    x = net.input((1, 1, 1, 1))
    added = net.addition(net.conv(x, np.ones((2, 1, 1, 1))), net.conv(x, np.ones((2, 1, 1, 1))))
    net.output(net.batch_norm(added, **BN_K))
    fused = fe.fuse(net.graph, RULE)
    assert fused.graph["fusions"] == fused.graph["refusals"] == ()


@pytest.mark.parametrize("form", ["member", "constant"])
def test_norms_on_norms_fold_one_after_the_other(form: str) -> None:
    net, _, norm = small(form)
    end = net.graph.graph["outputs"][0]
    source = net.batch_norm(norm, [1, 2], [0, 1], [0, 0], [1, 1], eps=0, name="second")
    disconnect(net.graph, end, 0)
    connect(net.graph, source, end)
    fused = fe.fuse(net.graph, RULE)
    assert [fusion.layers[0].name for fusion in fused.graph["fusions"]] == ["norm", "second"]
    weights, bias = parameters(Workspace(fused), source)
    assert weights.reshape(-1).tolist() == [2, 2]
    assert bias.tolist() == [1, -0.5]
    assert fe.equal(fe.fuse(fused, RULE), fused)
    assert fe.dumps(fe.fuse(fused, RULE)) == fe.dumps(fused)


def test_unchanged_tensors_are_those_of_the_caller() -> None:

    net, _, norm = small("constant")
    other = net.constant(np.arange(4.0), name="other")
    net.output(other)
    fused = fe.fuse(net.graph, RULE)
    assert fused.nodes[other]["constants"]["input"] is net.graph.nodes[other]["constants"]["input"]
    assert fused.nodes[norm]["type"] == "Convolution2d"
