"""Edges of folds, each a number or a shape beside one that folds: what a small fault in a check would let through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import engine
from fusion_engine.armnn import files
from fusion_engine.folds import Inapplicable, Refused, batched, find_fold
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.folding import rule
from tests.support.nets import Net
from tests.support.structural import apply, fold, reason, same_outputs, types, untouched

MANY = max(engine.MANY, batched.FEW) + 2
"""So many batch norms are folded at once."""

# reshapes


@pytest.mark.parametrize(
    ("target", "out", "words"),
    [
        ((4, 6), (4, 3, 2), "makes (4, 6) of (2, 3, 4), but its output's TensorInfo has (4, 3, 2)"),
        ((4, 3), (4, 6), "makes (4, 3) of (2, 3, 4), but its output's TensorInfo has (4, 6)"),
        ((2**32 - 1, 5), (4, 6), "makes (4294967295, 5) of (2, 3, 4)"),
        ((2**32 - 1, 2**32 - 1), (4, 6), "makes (4294967295, 4294967295) of (2, 3, 4)"),
        ((4, 5), (4, 5), "makes (4, 5) of (2, 3, 4)"),
    ],
)
def test_target_shapes_that_are_not_the_outputs(target: Any, out: Any, words: str) -> None:
    net = Net()
    lower = net.reshape(net.input((3, 8)), (2, 3, 4))
    net.output(net.layer("Reshape", lower, outputs=(out,), params={"targetShape": target}))
    assert words in reason(net.graph, "reshapes")


# space-depth


def spaced(small: tuple[int, ...], large: tuple[int, ...], block: int = 2) -> Net:
    """DepthToSpace from ``small`` to ``large``, written with permutes around a BatchToSpaceNd."""
    net = Net()
    swapped = (small[3], small[1], small[2], small[0])
    below = net.layer("Permute", net.input(small), outputs=(swapped,), params={"dimMappings": (3, 1, 2, 0)})
    between = (large[3], large[1], large[2], large[0])
    params = {"blockShape": (block, block), "dataLayout": "NHWC", "crops": (0, 0, 0, 0)}
    middle = net.layer("BatchToSpaceNd", below, outputs=(between,), params=params)
    net.output(net.layer("Permute", middle, outputs=(large,), params={"dimMappings": (3, 1, 2, 0)}))
    return net


def test_every_extent_counts_in_depth_and_space() -> None:
    right = (3, 10, 14, 2)
    assert types(fold(spaced((3, 5, 7, 8), right).graph, "space-depth")) == ["DepthToSpace"]
    for axis in range(4):
        wrong = tuple(n + (i == axis) for i, n in enumerate(right))
        assert "which no DepthToSpace of block 2 does" in reason(spaced((3, 5, 7, 8), wrong).graph, "space-depth")
    assert "which no DepthToSpace" in reason(spaced((3, 5, 7, 10), right).graph, "space-depth")  # 10 is not 2 * 4
    assert types(fold(spaced((1, 2, 2, 18), (1, 6, 6, 2), 3).graph, "space-depth")) == ["DepthToSpace"]
    assert "which no DepthToSpace" in reason(spaced((1, 2, 2, 18), (1, 6, 6, 3), 3).graph, "space-depth")


@pytest.mark.parametrize("block", [(2,), (2, 2, 2), (0, 0), ()])
def test_blocks_that_are_no_square(block: tuple[int, ...]) -> None:
    net = spaced((3, 5, 7, 8), (3, 10, 14, 2))
    params = net.graph.nodes[2]["params"]
    net.graph.nodes[2]["params"] = FrozenDict({**params, "blockShape": block, "crops": (0, 0) * len(block)})
    assert f"has the block {block}, which is no square" in reason(net.graph, "space-depth")


# equal-siblings


def test_the_record_of_siblings_names_the_one_that_stays_first() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 6)))
    kept = net.reshape(x, (12,), name="kept")
    net.output(kept)
    net.output(net.layer("Floor", net.reshape(x, (12,), name="gone")))
    (fusion,) = fold(net.graph, "equal-siblings").graph["fusions"]
    assert [layer.name for layer in fusion.layers] == ["kept", "gone"]
    assert fusion.result == "Reshape"


# identity-layers


@pytest.mark.parametrize("field", ["begin", "end", "stride"])
def test_a_slice_with_lists_that_are_too_short_stays(field: str) -> None:
    params = {"begin": (0, 0), "end": (3, 4), "stride": (1, 1)}
    net = Net()
    x = net.layer("Floor", net.input((3, 4)))
    net.output(net.layer("StridedSlice", x, params={**params, field: params[field][:1]}))
    untouched(net.graph, "identity-layers")


# constants


def test_integers_without_elements() -> None:
    net = Net()
    none = Tensor(TensorInfo((0,), "Signed32"), np.zeros(0, np.int32))
    keys = [net.layer("Constant", outputs=(none.info,), constants={"input": none}) for _ in range(2)]
    net.output(net.addition(*keys))
    fused = fold(net.graph, "constants")
    assert types(fused) == []
    same_outputs(net.graph, fused)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_the_largest_and_smallest_integer_are_no_overflow(value: int) -> None:
    def sum_of(one: int, other: int) -> Net:
        net = Net()
        tensors = [Tensor.of([number], "Signed32") for number in (one, other)]
        keys = [net.layer("Constant", outputs=(t.info,), constants={"input": t}) for t in tensors]
        net.output(net.addition(*keys))
        return net

    away = 1 if value > 0 else -1
    fused = fold(sum_of(value - away, away).graph, "constants")
    (constant,) = (node for node in fused.nodes.values() if node["type"] == "Constant")
    assert constant["constants"]["input"].data.tolist() == [value]
    assert "overflow in Signed32" in reason(sum_of(value, away).graph, "constants")


# Many batch norms at once


def test_weights_that_vanish_are_refused_in_a_batch_too() -> None:
    """One of many alike: the others fold, it says what it says alone."""

    def blocks(*weights: float) -> Net:
        net = Net(form="member")
        at = net.input((1, 1, 1, 1))
        for number, weight in enumerate(weights):
            at = net.conv(at, np.full((1, 1, 1, 1), weight), [0.5], name=f"conv{number}")
            at = net.batch_norm(at, [1e-10], [1.0], [0.0], [1.0], name=f"norm{number}")
            at = net.activation(at, "ReLu")
        net.output(at)
        return net

    many = blocks(*[1.0] * MANY, 1e-30, 1.0)
    fused = fe.fuse(many.graph, rule("batch-norm"))
    assert len(fused.graph["fusions"]) == MANY + 1
    (refused,) = fused.graph["refusals"]
    assert "underflow in Float32: the weights of layer" in refused.reason
    assert f"'conv{MANY}'" in refused.reason
    (alone,) = fe.fuse(blocks(1e-30).graph, rule("batch-norm")).graph["refusals"]
    assert alone.reason.partition(":")[0] == refused.reason.partition(":")[0]


@pytest.mark.parametrize(
    ("shape", "folds"),
    [((2,), True), ((1, 2), True), ((2, 1), True), ((1, 1, 1, 2), True), ((1,), False), ((3,), False)],
)
@pytest.mark.parametrize("count", [1, MANY])
def test_shapes_of_statistics(shape: tuple[int, ...], folds: bool, count: int) -> None:
    """A value for each channel along one axis, whichever; one by one and in a batch."""
    net = Net(form="member")
    info = TensorInfo(shape, "Float32")
    gamma = Tensor(info, np.resize(np.float32([4, 3]), shape))
    for _ in range(count):
        conv = net.conv(net.input((1, 1, 1, 1)), np.ones((2, 1, 1, 1)), [0.5, 0.5])
        norm = net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8])
        held = net.graph.nodes[norm]["constants"]
        net.graph.nodes[norm]["constants"] = FrozenDict({**held, "gamma": gamma})
        net.output(norm)
    fused = fe.fuse(net.graph, rule("batch-norm"))
    assert len(fused.graph["fusions"]) == count * folds
    assert len(fused.graph["refusals"]) == count * (not folds)
    for refused in fused.graph["refusals"]:
        assert f"has shape {shape} for 2 output channels" in refused.reason


def channels_of_weights(count: int) -> Net:
    """So many pairs whose weights, bias and statistics are of 2 channels under an output of 3."""
    net = Net(form="member")
    for _ in range(count):
        out = TensorInfo((1, 1, 1, 3))
        conv = net.conv(net.input((1, 1, 1, 1)), np.ones((2, 1, 1, 1)), [0.5, 0.5], output=out)
        net.output(net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8]))
    return net


@pytest.mark.parametrize("count", [1, MANY])
def test_channels_of_weights_and_of_the_output_differ(count: int) -> None:
    refused = fe.fuse(channels_of_weights(count).graph, rule("batch-norm")).graph["refusals"]
    assert len(refused) == count
    assert all("channels" in one.reason for one in refused)


def test_batches_of_one() -> None:
    """Weights as large as a batch may be are folded one after the other, to the same bits."""

    def net() -> Net:
        made, random = Net(form="member"), np.random.default_rng(4)
        for _ in range(MANY):
            conv = made.conv(made.input((1, 1, 1, 3)), random.normal(size=(2, 1, 1, 3)))
            made.output(made.batch_norm(conv, *random.uniform(0.5, 2, (4, 2))))
        return made

    whole = fe.fuse(net().graph, rule("batch-norm"))
    assert len(whole.graph["fusions"]) == MANY
    chunks: list[int] = []

    def counted(jobs: Sequence[Any], axes: tuple[int, ...]) -> Iterator[Any]:
        chunks.append(len(jobs))
        yield from plans(jobs, axes)

    plans = batched._plans
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched, "_plans", counted)
        patch.setattr(batched, "_CHUNK", 1)
        assert fe.dumps(fe.fuse(net().graph, rule("batch-norm"))) == fe.dumps(whole)
    assert chunks == [1] * MANY


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"quantization_scales": (1.0, 2.0), "quantization_dim": 3}, "Float32 with a per-axis quantization does not"),
        ({"data_type": "Signed32"}, "Signed32 does not fold, only Float32 and Float16 do"),
        ({"data_type": "QAsymmU8"}, "QAsymmU8 does not fold, only Float32 and Float16 do"),
    ],
)
def test_tensors_that_are_no_plain_floats(which: int, info: dict[str, Any], words: str) -> None:
    """Before the two layers, between them, after them."""
    net = Net(form="member")
    x = net.input((1, 1, 1, 2))
    conv = net.conv(x, np.ones((2, 1, 1, 2)), [0.5, 0.5])
    norm = net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8])
    net.output(norm)
    key = (x, conv, norm)[which]
    net.graph.nodes[key]["outputs"] = (replace(net.info(key), **info),)
    (refused,) = fe.fuse(net.graph, rule("batch-norm")).graph["refusals"]
    assert f"the output of layer {key} " in refused.reason
    assert words in refused.reason


def test_data_types_before_the_layer() -> None:
    net = Net(form="member")
    x = net.input((1, 1, 1, 1), data_type="Float16")
    conv = net.conv(x, Tensor.of(np.ones((2, 1, 1, 1))), Tensor.of([0.5, 0.5]), output=TensorInfo((1, 1, 1, 2)))
    net.output(net.batch_norm(conv, *([Tensor.of([1.0, 2.0])] * 4)))
    (refused,) = fe.fuse(net.graph, rule("batch-norm")).graph["refusals"]
    assert "gives Float32 and layer 0 'input_0' Float16" in refused.reason


def test_four_channels_in_a_square_are_no_channels() -> None:
    net = Net(form="member")
    conv = net.conv(net.input((1, 1, 1, 1)), np.ones((4, 1, 1, 1)), [0.5] * 4)
    norm = net.batch_norm(conv, [1] * 4, [1] * 4, [1] * 4, [1] * 4)
    held = net.graph.nodes[norm]["constants"]
    net.graph.nodes[norm]["constants"] = FrozenDict({**held, "mean": Tensor.of(np.ones((2, 2), np.float32))})
    net.output(norm)
    (refused,) = fe.fuse(net.graph, rule("batch-norm")).graph["refusals"]
    assert "mean of layer" in refused.reason
    assert "has shape (2, 2) for 4 output channels" in refused.reason


# Words


@pytest.mark.parametrize(
    ("slot", "words"), [(0, "the TensorInfo of its input 0"), (1, "the TensorInfo of its input 1")]
)
def test_which_input_is_overridden(slot: int, words: str) -> None:
    net = Net()
    x = net.input((1, 4))
    root = net.binary("Minimum", net.binary("Maximum", x, net.constant([0.0])), net.constant([6.0]))
    net.graph.nodes[root]["overrides"] = FrozenDict({slot: (True, TensorInfo((9,)))})  # type: ignore[dict-item]
    net.output(root)
    assert words in reason(net.graph, "clamp")


def test_an_activation_over_one_of_two_inputs_is_no_chain() -> None:
    net = Net()
    x = net.input((1, 4))
    inner = net.layer("Activation", x, x, params={"activationFunction": "ReLu"})
    outer = net.activation(inner, "ReLu")
    net.output(outer)
    match = Match(outer, (outer, inner), (), (), (), ())
    with pytest.raises(Refused, match="inputs"):
        find_fold("activation-chain").check(Workspace(net.graph), match)
    assert apply(net.graph, "activation-chain").graph["fusions"] == ()


def clamped() -> tuple[Net, int, int]:
    """Minimum over Maximum, constants last; the keys of both."""
    net = Net()
    inner = net.binary("Maximum", net.input((1, 4)), net.constant([0.0]))
    outer = net.binary("Minimum", inner, net.constant([6.0]))
    net.output(outer)
    return net, inner, outer


def test_an_override_of_the_inner_layer_of_a_clamp() -> None:
    """Of its data input or its constant, on whichever slot: another TensorInfo is refused, the same one moves up."""
    for slot in (0, 1):
        net, inner, _ = clamped()
        net.graph.nodes[inner]["overrides"] = FrozenDict({slot: (True, TensorInfo((9,)))})  # type: ignore[dict-item]
        assert f"overrides the TensorInfo of its input {slot}" in reason(net.graph, "clamp")
    net, inner, outer = clamped()
    net.graph.nodes[inner]["overrides"] = FrozenDict({0: (True, net.info(0))})  # type: ignore[dict-item]
    assert fold(net.graph, "clamp").nodes[outer]["overrides"] == {0: (True, net.info(0))}


def test_overrides_of_the_outer_layer_of_a_clamp_go_with_its_inputs() -> None:
    net, inner, outer = clamped()
    held = {0: (True, net.info(inner)), 1: (False, None)}
    net.graph.nodes[outer]["overrides"] = FrozenDict(held)  # type: ignore[arg-type]
    assert "overrides" not in fold(net.graph, "clamp").nodes[outer]


def test_an_override_of_an_outer_activation() -> None:
    net = Net()
    inner = net.activation(net.input((1, 4)), "ReLu")
    outer = net.activation(inner, "ReLu")
    net.output(outer)
    net.graph.nodes[outer]["overrides"] = FrozenDict({0: (True, TensorInfo((9,)))})  # type: ignore[dict-item]
    assert reason(net.graph, "activation-chain").endswith("overrides the TensorInfo of its input")


def test_an_override_of_one_norm_among_many() -> None:
    """A batch leaves it out, and it is refused as it is alone."""
    net = Net(form="member")
    at = net.input((1, 1, 1, 1))
    norms = []
    for _ in range(MANY):
        at = net.batch_norm(net.conv(at, np.ones((1, 1, 1, 1)), [0.5]), [2.0], [1.0], [0.0], [1.0])
        norms.append(at)
        at = net.activation(at, "ReLu")
    net.output(at)
    net.graph.nodes[norms[3]]["overrides"] = FrozenDict({0: (True, TensorInfo((9,)))})  # type: ignore[dict-item]
    fused = fe.fuse(net.graph, rule("batch-norm"))
    assert len(fused.graph["fusions"]) == MANY - 1
    (refused,) = fused.graph["refusals"]
    assert "overrides the TensorInfo of its input" in refused.reason
    tensors = [t for node in fused.nodes.values() for t in (node.get("constants") or {}).values()]
    assert len(tensors) > 2 * MANY
    assert not any(tensor.data.flags.writeable for tensor in tensors)


@pytest.mark.parametrize("eps", ["0.1", b"0.1", 1 + 0j])
def test_what_is_no_epsilon_is_told_in_a_batch_too(eps: Any) -> None:
    net = Net(form="member")
    at = net.input((1, 1, 1, 1))
    for _ in range(MANY):
        at = net.batch_norm(net.conv(at, np.ones((1, 1, 1, 1)), [0.5]), [2.0], [1.0], [0.0], [1.0])
    net.output(at)
    params = net.graph.nodes[at]["params"]
    net.graph.nodes[at]["params"] = FrozenDict({**params, "eps": eps})
    with pytest.raises(fe.ModelError, match="parameter eps is"):
        fe.fuse(net.graph, rule("batch-norm"))


def test_many_layers_without_weights() -> None:
    """No input channels, so that there is nothing to multiply; the bias is folded all the same."""
    net = Net(form="member")
    x = net.input((1, 1, 1, 0))
    for _ in range(MANY):
        conv = net.conv(x, np.ones((2, 1, 1, 0)), [0.5, 1.5], output=TensorInfo((1, 1, 1, 2)))
        norm = net.batch_norm(conv, [2.0, 2.0], [1.0, 1.0], [0.0, 0.0], [3.0, 3.0], eps=1.0)
        net.output(net.activation(norm, "ReLu"))
    fused = fe.fuse(net.graph, rule("batch-norm"))
    biases = [node["constants"]["biases"].data.tolist() for node in fused.nodes.values() if node["type"][:4] == "Conv"]
    assert biases == [[1.5, 2.5]] * MANY


@pytest.mark.parametrize(
    ("field", "data_type", "words"),
    [("gamma", "Signed32", "Signed32 does not fold"), ("variance", "QAsymmU8", "QAsymmU8 does not fold")],
)
def test_statistics_of_other_types(field: str, data_type: str, words: str) -> None:
    net = Net(form="member")
    conv = net.conv(net.input((1, 1, 1, 1)), np.ones((2, 1, 1, 1)), [0.5, 0.5])
    norm = net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8])
    held = net.graph.nodes[norm]["constants"]
    net.graph.nodes[norm]["constants"] = FrozenDict({**held, field: Tensor.of([1, 1], data_type)})
    net.output(norm)
    (refused,) = fe.fuse(net.graph, rule("batch-norm")).graph["refusals"]
    assert f"{field} of layer" in refused.reason
    assert words in refused.reason


def test_weights_of_another_rank_are_not_called_computed() -> None:
    net = Net()
    conv = net.conv(net.input((1, 1, 1, 1)), np.ones((2, 1, 1, 1)), [0.5, 0.5])
    constant = 1
    for key, node in net.graph.nodes.items():
        if node["type"] == "Constant" and node["outputs"][0].shape == (2, 1, 1, 1):
            constant = key
    info = TensorInfo((2, 1, 1), "Float32")
    held = {"input": Tensor(info, np.ones((2, 1, 1), np.float32))}
    net.graph.nodes[constant].update(outputs=(info,), constants=FrozenDict(held))
    net.output(net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8]))
    (refused,) = fe.fuse(net.graph, rule("batch-norm")).graph["refusals"]
    assert "has a dataLayout or a rank of weights that Convolution2d does not have" in refused.reason


def test_a_transposed_convolution_has_no_weights_on_slots() -> None:
    net = Net(form="member")
    conv = net.transpose_conv(net.input((1, 1, 1, 1)), np.ones((2, 1, 1, 1)), [0.5, 0.5])
    weights = net.constant(np.ones((2, 1, 1, 1)))
    fe.connect(net.graph, weights, conv, 0, 1)
    net.output(net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8]))
    (refused,) = fe.fuse(net.graph, rule("batch-norm")).graph["refusals"]
    assert "has inputs on slots [0, 1]; known are [0]" in refused.reason


# pad


def test_a_pad_that_requantizes_stays() -> None:
    """One data type, another scale or offset."""
    for after in (TensorInfo((1, 4, 4, 1), "QAsymmU8", 0.25, 10), TensorInfo((1, 4, 4, 1), "QAsymmU8", 0.5, 9)):
        net = Net(data_type="QAsymmU8", form="member")
        x = net.input((1, 2, 2, 1), quantization_scale=0.5, quantization_offset=10)
        pad = net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], float(after.quantization_offset))
        net.graph.nodes[pad]["outputs"] = (after,)
        net.output(net.pool(pad, (2, 2), "Max"))
        assert "changes data type or quantization" in reason(net.graph, "pad")


# permute-upward


def test_the_record_of_a_permute_that_moved_up() -> None:
    net = Net()
    lower = net.transpose(net.input((1, 2, 3, 5)), (0, 2, 3, 1), name="lower")
    root = net.transpose(net.activation(lower, "ReLu", name="relu"), (0, 2, 3, 1), name="root")
    net.graph.nodes[root]["overrides"] = FrozenDict({0: (False, net.info(lower))})  # type: ignore[dict-item]
    net.output(root)
    fused = fold(net.graph, "permute-upward")
    (fusion,) = fused.graph["fusions"]
    assert fusion.result == "Transpose"
    assert "overrides" not in fused.nodes[root]


# Dequantize over constants


def test_constants_that_are_neither_floats_nor_quantized() -> None:
    net = Net()
    held = Tensor.of([1, 0], "Boolean")
    constant = net.layer("Constant", outputs=(held.info,), constants={"input": held})
    out = TensorInfo((2,), "Float32")
    net.output(net.layer("Dequantize", constant, outputs=(out,)))
    assert "Boolean is neither a float nor quantized" in reason(net.graph, "constants")


@pytest.mark.parametrize(("axis", "scales"), [(2, (0.5, 0.25)), (1, (0.5, 0.25)), (0, (0.5, 0.25, 1.0))])
def test_scales_of_an_axis_that_does_not_fit(axis: int, scales: tuple[float, ...]) -> None:
    held = Tensor.of(np.ones((2, 3)), "QSymmS8", quantization_scales=scales, quantization_dim=axis)
    net = Net()
    constant = net.layer("Constant", outputs=(held.info,), constants={"input": held})
    net.output(net.layer("Dequantize", constant, outputs=(TensorInfo((2, 3)),)))
    assert f"{len(scales)} scales for axis {axis} of (2, 3)" in reason(net.graph, "constants")


def test_scales_of_the_first_axis() -> None:
    held = Tensor.of([[1, 2], [3, -4]], "QSymmS8", quantization_scales=(0.5, 0.25), quantization_dim=0)
    net = Net()
    constant = net.layer("Constant", outputs=(held.info,), constants={"input": held})
    real = net.layer("Dequantize", constant, outputs=(TensorInfo((2, 2)),))
    net.output(real)
    found = fold(net.graph, "constants").nodes[real]["constants"]["input"]
    assert found.data.tolist() == [[0.5, 1.0], [0.75, -1.0]]


def test_a_constant_beside_something_else_is_no_matter() -> None:
    net = Net()
    x = net.input((1, 2))
    for pair in ((x, net.constant([1.0, 2.0])), (net.constant([1.0, 2.0]), x)):
        root = net.addition(*pair)
        net.output(root)
        with pytest.raises(Inapplicable, match="not over Constants only"):
            find_fold("constants").check(Workspace(net.graph), Match(root, (root,), (), (), (), ()))
    untouched(net.graph, "constants")


# Slices


def test_a_slice_of_a_part_is_nothing_to_speak_of() -> None:
    net = Net()
    x = net.layer("Floor", net.input((3, 4)))
    net.output(net.layer("Slice", x, outputs=((2, 4),), params={"begin": (0, 0), "size": (2, 4)}))
    net.output(net.layer("Slice", x, outputs=((3, 4),), params={"begin": (0, 1), "size": (3, 4)}))
    untouched(net.graph, "identity-layers")


# noop-activation


@pytest.mark.parametrize("data_type", ["Float32", "Float16"])
@pytest.mark.parametrize(
    ("function", "a", "b", "gone"),
    [
        ("Linear", 1.0, 0.0, True),
        ("Linear", 2.0, 0.0, False),
        ("Linear", 1.0, 1.0, False),
        ("Abs", 0.0, 0.0, False),
        ("BoundedReLu", float("inf"), float("-inf"), True),
        ("BoundedReLu", 6.0, -6.0, False),
    ],
)
def test_activations_of_floats_that_do_nothing(function: str, a: float, b: float, gone: bool, data_type: str) -> None:
    """Of many that do something, which a scan leaves out at a glance, the rule finds those that do not."""
    net = Net(data_type=data_type)
    at = net.input((1, 4))
    for _ in range(5):
        at = net.activation(net.activation(at, "TanH", 1.0, 1.0), "ReLu")
    net.output(net.layer("Floor", net.activation(at, function, a, b)))
    fused = fe.fuse(net.graph, rule("noop-activation"))
    assert types(fused) == ["Activation"] * (10 if gone else 11) + ["Floor"]


# Weights in a file that changes


def constants_of(name: str, net: Net) -> int:
    """A layer that the fold of this name would fold, if its Constants could be trusted."""
    x = net.input((1, 2, 2, 2))
    if name == "clamp":
        return net.binary("Minimum", net.binary("Maximum", x, net.constant([0.0])), net.constant([6.0]))
    if name == "constants":
        return net.addition(x, net.layer("Floor", net.constant([1.5, 2.5])))
    if name == "identity-layers":
        return net.layer("Floor", net.multiplication(x, net.constant([1.0, 1.0])))
    conv = net.conv(x, np.ones((2, 1, 1, 2)), [0.5, 0.5])
    if name == "batch-norm":
        return net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8])
    return net.binary("Multiplication" if name == "scale" else "Addition", conv, net.constant([2.0, 3.0]))


@pytest.mark.parametrize("name", ["clamp", "constants", "identity-layers", "batch-norm", "scale", "shift"])
def test_numbers_of_a_file_that_changed_are_not_folded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    net.output(constants_of(name, net))
    path = tmp_path / "model.armnn"
    fe.save(net.graph, path)
    monkeypatch.setattr(files, "READ_WHOLE", 16)
    graph = fe.load(path)
    assert fe.fuse(graph, rule(name)).graph["fusions"]
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(fe.ModelError, match="changed while in use"):
        fe.fuse(graph, rule(name))
