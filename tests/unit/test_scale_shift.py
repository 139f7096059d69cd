"""The folds scale, shift and batch-norm-chain: exact numbers per layer, form, spelling and order; every refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.folds import Refused, find_fold
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Source
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.weights import layer_bias, layer_weights
from fusion_engine.workspace import Workspace
from tests.support.folding import count, fold, refusal, rule
from tests.support.nets import Net

PER_CHANNEL = [3, 5]


def parameters(graph: Any, key: int) -> tuple[Any, Any]:
    """Weights and bias of a layer."""
    workspace = Workspace(graph)
    weights, bias = layer_weights(workspace, key), layer_bias(workspace, key)
    assert weights is not None
    return weights.tensor.data, None if bias is None else bias.tensor.data


def over_conv(
    kind: str, constant: Any, *, form: str = "member", bias: Any = (1, 2), swap: bool = False, **options: Any
):
    """A 1x1 convolution with weights [10, 20] to shape (1, 2, 2, 2), and an elementwise layer with a Constant."""
    net = Net(form=form)
    conv = net.conv(net.input((1, 2, 2, 1)), np.reshape([10, 20], (2, 1, 1, 1)), bias, name="conv")
    other = net.constant(constant, name="constant")
    root = net.binary(kind, *((other, conv) if swap else (conv, other)), name="root", **options)
    net.output(root)
    return net.graph, root


# What comes out


@pytest.mark.parametrize("spelling", ["old", "new"])
@pytest.mark.parametrize("form", ["member", "constant"])
@pytest.mark.parametrize(
    ("kind", "swap", "weights", "bias"),
    [
        ("Multiplication", False, [30, 100], [3, 10]),
        ("Multiplication", True, [30, 100], [3, 10]),
        ("Division", False, [10 / 3, 4], [1 / 3, 2 / 5]),
        ("Addition", False, [10, 20], [4, 7]),
        ("Addition", True, [10, 20], [4, 7]),
        ("Subtraction", False, [10, 20], [-2, -3]),
        ("Subtraction", True, [-10, -20], [2, 3]),
    ],
)
def test_operations(spelling: str, form: str, kind: str, swap: bool, weights: list[float], bias: list[float]) -> None:
    graph, root = over_conv(kind, PER_CHANNEL, form=form, swap=swap, spelling=spelling)
    fused = fold(graph, "scale" if kind in ("Multiplication", "Division") else "shift")
    found = parameters(fused, root)
    assert fused.nodes[root]["type"] == "Convolution2d"
    assert fused.nodes[root]["name"] == "root"
    assert fused.nodes[root]["outputs"] == graph.nodes[root]["outputs"]
    assert found[0].reshape(-1).tolist() == np.float32(weights).tolist()
    assert found[1].tolist() == np.float32(bias).tolist()
    names = [node["name"] for node in fused.nodes.values() if node["type"] == "Constant"]
    assert names == ([] if form == "member" else ["conv/weights", "conv/bias"])


def test_a_shift_leaves_the_weights_to_those_who_share_them() -> None:
    graph, root = over_conv("Addition", PER_CHANNEL)
    before = graph.nodes[1]["constants"]["weights"]
    assert fold(graph, "shift").nodes[root]["constants"]["weights"] is before


def test_layer_without_bias() -> None:
    for form in ("member", "constant"):
        graph, root = over_conv("Multiplication", PER_CHANNEL, bias=None, form=form)
        assert parameters(fold(graph, "scale"), root)[1].tolist() == [0, 0]
        graph, root = over_conv("Subtraction", PER_CHANNEL, bias=None, form=form)
        fused = fold(graph, "shift")
        assert parameters(fused, root)[1].tolist() == [-3, -5]
        assert fused.nodes[root]["params"]["biasEnabled"] is True


SHAPES = {
    "C": ((2,), True),
    "111C": ((1, 1, 1, 2), True),
    "1": ((1,), True),
    "scalar": ((), True),
    "1111": ((1, 1, 1, 1), True),
    "per width": ((1, 1, 2, 1), False),
    "per height": ((2, 1, 1), False),
    "per element": ((1, 2, 2, 2), False),
    "grows the batch": ((5, 1, 1, 2), False),
    "rank 5": ((1, 1, 1, 1, 2), False),
}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("kind", ["Multiplication", "Addition"])
def test_broadcast_along_the_channels_alone(kind: str, case: str) -> None:
    """A channel's extent equals those of height and width, so that only the axis tells them apart."""
    shape, folds = SHAPES[case]
    values = np.arange(3, 3 + int(np.prod(shape))).reshape(shape)
    graph, root = over_conv(kind, values)
    name = "scale" if kind == "Multiplication" else "shift"
    if not folds:
        reason = refusal(graph, name)
        assert f"layer 2 'constant' has shape {shape}" in reason
        assert "only axis 3 holds its channels" in reason
        return
    spread = np.broadcast_to(values.reshape(-1), 2)
    weights, bias = parameters(fold(graph, name), root)
    plain_weights, plain_bias = np.array([10, 20]), np.array([1, 2])
    assert weights.reshape(-1).tolist() == (plain_weights if name == "shift" else plain_weights * spread).tolist()
    assert bias.tolist() == (plain_bias + spread if name == "shift" else plain_bias * spread).tolist()


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_the_layout_says_which_axis(layout: str) -> None:
    for shape in ((1, 1, 1, 2), (1, 2, 1, 1), (2, 1, 1)):
        net = Net(layout=layout, form="member")
        nhwc = layout == "NHWC"
        x = net.input((1, 2, 2, 1) if nhwc else (1, 1, 2, 2))
        root = net.multiplication(net.conv(x, np.ones((2, 1, 1, 1))), net.constant(np.reshape([3, 5], shape)))
        net.output(root)
        if (shape[-1] == 2) == nhwc:
            assert parameters(fold(net.graph, "scale"), root)[0].reshape(-1).tolist() == [3, 5]
        else:
            assert f"axis {3 if nhwc else 1}" in refusal(net.graph, "scale")


@pytest.mark.parametrize("scheme", [0, 1])
def test_depthwise(scheme: int) -> None:
    net = Net(form="member", feature_versions=(1, scheme, 1))
    kernel = np.ones((3, 2, 1, 1) if scheme == 0 else (1, 1, 1, 6))
    root = net.multiplication(net.depthwise(net.input((1, 1, 1, 2)), kernel), net.constant(np.arange(1, 7)))
    net.output(root)
    weights, _ = parameters(fold(net.graph, "scale"), root)
    assert (weights.transpose(1, 0, 2, 3) if scheme == 0 else weights).reshape(-1).tolist() == [1, 2, 3, 4, 5, 6]


def test_transposed_convolution_on_axis_0() -> None:
    net = Net()
    weights = np.reshape([[1, 10], [100, 1000]], (2, 1, 1, 2))
    root = net.multiplication(net.transpose_conv(net.input((1, 1, 1, 2)), weights), net.constant([2, 1]))
    net.output(root)
    assert parameters(fold(net.graph, "scale"), root)[0].reshape(2, 2).tolist() == [[2, 20], [100, 1000]]


def test_convolution_3d_on_axis_4() -> None:
    net = Net()
    weights = np.reshape([[1, 10], [100, 1000]], (1, 1, 1, 2, 2))
    root = net.multiplication(net.conv3d(net.input((1, 1, 1, 1, 2)), weights), net.constant([2, 1]))
    net.output(root)
    assert parameters(fold(net.graph, "scale"), root)[0].reshape(2, 2).tolist() == [[2, 10], [200, 1000]]


@pytest.mark.parametrize("transposed", [False, True])
def test_fully_connected(transposed: bool) -> None:
    net = Net()
    weights = np.array([[1, 10], [100, 1000]])
    full = net.fully_connected(net.input((2, 2)), weights, transposeWeightsMatrix=transposed)
    root = net.multiplication(full, net.constant([2, 1]))
    net.output(root)
    expected = [[2, 20], [100, 1000]] if transposed else [[2, 10], [200, 1000]]
    assert parameters(fold(net.graph, "scale"), root)[0].tolist() == expected


@pytest.mark.parametrize(
    ("output", "constant", "folds"),
    [
        ((2, 1, 1, 4), (4,), True),
        ((2, 4, 1, 1), (4, 1, 1), True),
        ((2, 2, 2), (2, 2), True),
        ((2, 2, 2), (2,), True),
        ((2, 2, 2), (2, 2, 1), False),
        ((4,), (4,), False),
    ],
)
def test_fully_connected_counts_its_outputs_along_all_axes_but_the_batch(
    output: tuple[int, ...], constant: tuple[int, ...], folds: bool
) -> None:
    net = Net()
    full = net.fully_connected(net.input((2, 3)), np.ones((3, 4)), output=TensorInfo(output))
    values = np.arange(1, 1 + int(np.prod(constant))).reshape(constant)
    root = net.binary("Addition", full, net.constant(values), output=TensorInfo(output))
    net.output(root)
    if not folds:
        assert refusal(net.graph, "shift")
        return
    expected = np.broadcast_to(values.reshape(-1) if values.size == 4 else [1, 2, 1, 2], 4)
    assert parameters(fold(net.graph, "shift"), root)[1].tolist() == expected.tolist()


def test_into_a_batch_norm() -> None:
    """γ and β take factor and summand; μ, σ² and ε stay the tensors that they are."""
    net = Net()
    norm = net.batch_norm(net.input((1, 1, 1, 2)), [4, 3], [1, -1], [0.5, 0.25], [3, 8], eps=1.0)
    product = net.multiplication(net.constant([3, 5]), norm)
    root = net.binary("Subtraction", net.constant(1), product)
    net.output(root)
    fused = fold(net.graph, "scale", "shift")
    found = fused.nodes[root]["constants"]
    assert fused.nodes[root]["type"] == "BatchNormalization"
    assert found["gamma"].data.tolist() == [-12, -15]
    assert found["beta"].data.tolist() == [1 - 3, 1 + 5]
    assert found["mean"] is net.graph.nodes[norm]["constants"]["mean"]
    assert fused.nodes[root]["params"]["eps"] == 1.0


def test_a_shift_into_a_batch_norm_leaves_gamma() -> None:
    net = Net()
    norm = net.batch_norm(net.input((1, 1, 1, 2)), [4, 3], [1, -1], [0.5, 0.25], [3, 8])
    root = net.addition(norm, net.constant([10, 20]))
    net.output(root)
    found = fold(net.graph, "shift").nodes[root]["constants"]
    assert found["beta"].data.tolist() == [11, 19]
    assert found["gamma"] is net.graph.nodes[norm]["constants"]["gamma"]


def test_batch_norm_chain() -> None:
    net = Net()
    lower = net.batch_norm(net.input((1, 1, 1, 2)), [4, 3], [1, -1], [0.5, 0.25], [3, 8], eps=1.0)
    upper = net.batch_norm(lower, [2, 10], [7, 0], [1, 2], [0, 24], eps=1.0)  # scale [2, 2], shift [5, -4]
    net.output(upper)
    fused = fold(net.graph, "batch-norm-chain")
    found = fused.nodes[upper]["constants"]
    assert count(fused, "BatchNormalization") == 1
    assert found["gamma"].data.tolist() == [8, 6]
    assert found["beta"].data.tolist() == [2 * 1 + 5, 2 * -1 - 4]
    assert found["variance"].data.tolist() == [3, 8]
    assert fused.nodes[upper]["name"] == net.graph.nodes[upper]["name"]


def test_chains_meet_in_one_convolution() -> None:
    """((conv·3 − 1) / 2 + batch norm) and all of it again, rule by rule to the fixpoint."""
    net = Net(form="member")
    x = net.conv(net.input((1, 1, 1, 1)), np.ones((2, 1, 1, 1)), [1, 1])
    for _ in range(2):
        x = net.binary("Subtraction", net.multiplication(x, net.constant(3)), net.constant([1, 2]))
        x = net.binary("Division", x, net.constant(2))
        x = net.batch_norm(x, [4, 3], [1, -1], [0.5, 0.25], [3, 8], eps=1.0)
    net.output(x)
    fused = fold(net.graph, "batch-norm", "scale", "shift")
    weights, bias = parameters(fused, x)
    assert len(fused) == 3
    assert weights.reshape(-1).tolist() == [9, 2.25]
    expected = np.array([1.0, 1.0])
    for _ in range(2):
        expected = ((expected * 3 - [1, 2]) / 2) * [2, 1] + [0, -1.25]
    assert bias.tolist() == expected.tolist()


def test_half_precision_is_computed_in_double_and_stored_as_half() -> None:
    net = Net(data_type="Float16", form="member")
    conv = net.conv(net.input((1, 1, 1, 1)), np.full((1, 1, 1, 1), 3.0), [0.1])
    root = net.multiplication(conv, net.constant([1 / 3]))
    net.output(root)
    weights, bias = parameters(fold(net.graph, "scale"), root)
    third, tenth = float(np.float16(1 / 3)), float(np.float16(0.1))
    assert weights.dtype == bias.dtype == np.float16
    assert weights.reshape(-1).tolist() == [float(np.float16(3 * third))]
    assert bias.tolist() == [float(np.float16(tenth * third))]


def test_shared_weights_and_a_shared_constant() -> None:
    """Both layers over one Constant of weights fold; the operand goes with its last use."""
    net = Net()
    x, y = net.input((1, 1, 1, 1)), net.input((1, 1, 1, 1))
    weights, factor = net.constant(np.full((1, 1, 1, 1), 3.0)), net.constant([2])
    first = net.multiplication(net.conv(x, weights), factor)
    second = net.conv(y, weights)
    third = net.multiplication(net.conv(y, weights), factor)
    for key in (first, second, third):
        net.output(key)
    fused = fold(net.graph, "scale")
    assert [parameters(fused, key)[0].item() for key in (first, second, third)] == [6, 3, 6]
    assert factor not in fused
    assert weights in fused


def test_scale_and_offset_of_a_float_mean_nothing() -> None:
    """Real writers store 0 and 1 for the scale of one and the same float tensor."""
    graph, root = over_conv("Multiplication", PER_CHANNEL)
    graph.nodes[2]["outputs"] = (replace(graph.nodes[2]["outputs"][0], quantization_scale=1.0),)
    assert parameters(fold(graph, "scale"), root)[0].reshape(-1).tolist() == [30, 100]


def test_operand_that_others_read_stays() -> None:
    graph, root = over_conv("Multiplication", PER_CHANNEL)
    net_output = max(graph) + 1
    graph.add_node(net_output, type="Output", name="tap", binding_id=9, params=FrozenDict(), outputs=())
    fe.connect(graph, 2, net_output)
    graph.graph["outputs"] = (*graph.graph["outputs"], net_output)
    fused = fold(graph, "scale")
    assert 2 in fused
    assert parameters(fused, root)[0].reshape(-1).tolist() == [30, 100]


# What is refused


def test_division_of_a_constant_is_no_factor() -> None:
    graph, root = over_conv("Division", PER_CHANNEL, swap=True)
    assert not fe.fuse(graph, rule("scale")).graph["fusions"]
    workspace = Workspace(graph)
    with pytest.raises(Refused, match="divides a Constant by layer 1 'conv'"):
        find_fold("scale").check(workspace, Match(root, (root, 1), (), (2,), (), ()))


def test_division_by_zero() -> None:
    graph, _ = over_conv("Division", [2, 0])
    assert refusal(graph, "scale") == "layer 3 'root' divides by zero in channel 1"


def test_overflow_and_nan() -> None:
    graph, _ = over_conv("Multiplication", [1e38, 1])
    assert "overflow in Float32: the weights of layer 1 'conv' would hold 1e+39" in refusal(graph, "scale")
    graph, _ = over_conv("Addition", [np.nan, 1])
    assert refusal(graph, "shift") == "NaN in Float32: the bias of layer 1 'conv'"
    net = Net()
    norm = net.batch_norm(net.input((1, 1, 1, 1)), [3e38], [0], [0], [1])
    net.output(net.multiplication(norm, net.constant(2)))
    assert "overflow in Float32: gamma of layer 1" in refusal(net.graph, "scale")


def test_quantized() -> None:
    net = Net(data_type="QAsymmU8", form="member")
    grid = {"quantization_scale": 0.5, "quantization_offset": 3}
    x = net.input((1, 1, 1, 1), **grid)
    conv = net.conv(x, net.tensor(np.ones((1, 1, 1, 1)), **grid))
    net.output(net.multiplication(conv, net.constant([1], **grid)))
    assert "QAsymmU8 does not fold, only Float32 and Float16 do" in refusal(net.graph, "scale")


def test_a_layer_between_and_a_second_reader() -> None:
    net = Net(form="member")
    conv = net.conv(net.input((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))
    net.output(net.multiplication(net.activation(conv), net.constant([2])))
    assert not fe.fuse(net.graph, rule("scale")).graph["fusions"]
    graph, _ = over_conv("Multiplication", 2)
    key = max(graph) + 1
    graph.add_node(key, type="Output", name="tap", binding_id=9, params=FrozenDict(), outputs=())
    fe.connect(graph, 1, key)
    graph.graph["outputs"] = (*graph.graph["outputs"], key)
    assert "is an output of the network too" in refusal(graph, "scale")


def test_computed_weights() -> None:
    net = Net()
    weights = net.input((1, 1, 1, 1), name="w")
    conv = net.conv(net.input((1, 1, 1, 1)), Source(weights, 0))
    net.output(net.multiplication(conv, net.constant([2])))
    assert "are computed by Input layer 0 'w'" in refusal(net.graph, "scale")


def test_untagged_half_precision_operand() -> None:
    net = Net(data_type="Float16", form="member")
    conv = net.conv(net.input((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))
    constant = net.constant(replace(Tensor.of([2], "Float16"), untagged=True))
    net.output(net.multiplication(conv, constant))
    assert "since Arm NN 20.08 stores BFloat16 so" in refusal(net.graph, "scale")


def _grown(graph: Any, root: int) -> None:
    graph.nodes[root]["outputs"] = (TensorInfo((5, 2, 2, 2)),)


def _rank(graph: Any, root: int) -> None:
    graph.nodes[root]["outputs"] = (TensorInfo((1, 1, 2, 2, 2), dimension_specificity=(False,) * 5),)


def _type(graph: Any, root: int) -> None:
    graph.nodes[root]["outputs"] = (replace(graph.nodes[root]["outputs"][0], data_type="Float16"),)


def _override(graph: Any, root: int) -> None:
    graph.nodes[root]["overrides"] = FrozenDict({1: (True, TensorInfo((9,)))})  # type: ignore[dict-item]


def _other_info(graph: Any, root: int) -> None:
    graph.nodes[2]["outputs"] = (TensorInfo((1, 2)),)


def _unknown_rank(graph: Any, root: int) -> None:
    graph.nodes[1]["outputs"] = (TensorInfo((), dimensionality=0),)
    graph.nodes[root]["outputs"] = (TensorInfo((), dimensionality=0),)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_grown, "gives shape (1, 2, 2, 2) and layer 3 'root' (5, 2, 2, 2)"),
        (_rank, "gives rank 5 and layer 1 'conv' rank 4"),
        (_type, "gives Float32 and layer 3 'root' Float16"),
        (_override, "overrides the TensorInfo of its input 1"),
        (_other_info, "has another TensorInfo than its tensor"),
        (_unknown_rank, "unknown rank"),
    ],
)
def test_odd_tensors(change: Callable[[Any, int], None], reason: str) -> None:
    graph, root = over_conv("Multiplication", PER_CHANNEL)
    change(graph, root)
    with pytest.raises(Refused) as caught:
        find_fold("scale").check(Workspace(graph), Match(root, (root, 1), (), (2,), (), ()))
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("fold_name", "layers", "held"),
    [("scale", (3,), "Multiplication"), ("shift", (3, 1), "Multiplication, Convolution2d"), ("scale", (), "no layer")],
)
def test_match_of_other_layers(fold_name: str, layers: tuple[int, ...], held: str) -> None:
    graph, root = over_conv("Multiplication", PER_CHANNEL)
    with pytest.raises(Refused, match=f"the match holds {held}$"):
        find_fold(fold_name).check(Workspace(graph), Match(root, layers, (), (), (), ()))


def test_both_operands_are_layers() -> None:
    net = Net(form="member")
    x = net.input((1, 1, 1, 1))
    conv = net.conv(x, np.ones((1, 1, 1, 1)))
    squared, other = net.multiplication(conv, conv), net.multiplication(conv, x)
    for root, reason in ((squared, "does not take"), (other, "no Constant")):
        with pytest.raises(Refused, match=reason):
            find_fold("scale").check(Workspace(net.graph), Match(root, (root, conv), (), (), (), ()))


@pytest.mark.parametrize(
    ("upper", "reason"),
    [
        ({"layout": "NCHW"}, "is NHWC and layer 2"),
        ({"variance": [-3, 1]}, "variance + eps of layer 2"),
        ({"lower": [-3, 1]}, "variance + eps of layer 1"),
        ({"size": 1}, "for 2 output channels"),
    ],
)
def test_batch_norm_chain_refusals(upper: dict[str, Any], reason: str) -> None:
    net = Net()
    lower = net.batch_norm(net.input((1, 2, 2, 2)), [1, 1], [0, 0], [0, 0], upper.get("lower", [1, 1]))
    ones = [1] * upper.get("size", 2)
    options = {"layout": upper.get("layout", "NHWC")}
    net.output(net.batch_norm(lower, ones, ones, ones, upper.get("variance", ones), **options))
    assert reason in refusal(net.graph, "batch-norm-chain")


def test_the_graph_given_is_as_it_was() -> None:
    graph, _ = over_conv("Multiplication", PER_CHANNEL, form="constant")
    before = fe.dumps(graph)
    fold(graph, "scale")
    assert fe.dumps(graph) == before


@pytest.mark.parametrize(
    ("data_type", "weight", "kind", "constant"),
    [
        ("Float16", 1e-3, "Multiplication", 1e-5),
        ("Float16", 1e-3, "Division", 1e4),
        ("Float32", 1e-6, "Division", 3e38),
        ("Float32", 1e-30, "Multiplication", 1e-10),
    ],
)
def test_factors_that_vanish_are_refused(data_type: str, weight: float, kind: str, constant: float) -> None:
    """What they multiply may be large, so that their product is a number that counts."""
    net = Net(data_type=data_type)
    conv = net.conv(net.input((1, 2, 2, 1)), np.reshape([weight], (1, 1, 1, 1)), name="conv")
    net.output(net.binary(kind, conv, net.constant([constant]), name="root"))
    reason = refusal(net.graph, "scale")
    assert f"underflow in {data_type}: the weights of layer" in reason


def test_small_weights_beside_large_ones_may_vanish() -> None:
    net = Net(data_type="Float16")
    conv = net.conv(net.input((1, 2, 2, 1)), np.reshape([1.0, 1e-7], (2, 1, 1, 1)), [0.5, 1e-7])
    net.output(net.binary("Multiplication", conv, net.constant([0.5]), name="root"))
    fused = fold(net.graph, "scale")
    (key,) = (key for key, node in fused.nodes.items() if node["type"] == "Convolution2d")
    weights, _ = parameters(fused, key)
    assert weights.reshape(-1).tolist() == [0.5, float(np.float16(5e-8))]
