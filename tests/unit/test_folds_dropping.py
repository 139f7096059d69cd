"""Folds that drop layers: reshapes, equal siblings, quantize pairs, dead ends, identity layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict
from fusion_engine.tensor import TensorInfo
from tests.support.nets import Net
from tests.support.structural import SHIPPED, apply, evaluate, fold, reason, same_outputs, types, untouched

U8 = {"quantization_scale": 0.1, "quantization_offset": 10}

# reshapes


def test_a_run_of_reshapes_is_one() -> None:
    net = Net()
    at = net.input((2, 3, 4))
    for number in range(500):
        at = net.reshape(at, ((6, 4), (2, 12), (24,))[number % 3], name=f"r{number}")
    net.output(at)
    fused = fold(net.graph, "reshapes")
    assert types(fused) == ["Reshape"]
    assert fused.nodes[500] == net.graph.nodes[500]
    same_outputs(net.graph, fused)


def test_there_and_back_is_none() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 3, 4)))
    net.output(net.reshape(net.reshape(x, (24,)), (2, 3, 4)))
    fused = fold(net.graph, "reshapes")
    assert types(fused) == ["Floor"]
    (fusion,) = fused.graph["fusions"]
    assert (fusion.result, [layer.index for layer in fusion.layers]) == ("nothing", [3, 2])


def test_to_its_own_shape_is_none_with_an_open_extent_too() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 3, 4)))
    net.output(net.layer("Reshape", x, params={"targetShape": (2, 0xFFFFFFFF, 4)}))
    assert types(fold(net.graph, "reshapes")) == ["Floor"]


def test_a_shared_reshape_goes_with_its_last_reader() -> None:
    net = Net()
    lower = net.reshape(net.input((2, 3, 4)), (24,))
    net.output(net.reshape(lower, (4, 6)))
    net.output(net.reshape(lower, (3, 8)))
    fused = fold(net.graph, "reshapes")
    assert types(fused) == ["Reshape", "Reshape"]
    same_outputs(net.graph, fused)


def test_reshapes_refused() -> None:
    net = Net()
    lower = net.reshape(net.input((2, 3, 4), name="x"), (24,))
    net.output(net.reshape(lower, (4, 6)))
    net.output(net.layer("Floor", lower))
    assert "'reshape_1' is used elsewhere too: layer 4" in reason(net.graph, "reshapes")
    net = Net()
    net.output(net.reshape(net.reshape(net.input((2, 3, 4)), (24,)), (2, 3, 4)))
    assert "nothing is left between Input" in reason(net.graph, "reshapes")
    net = Net()
    x = net.layer("Floor", net.input((2, 3, 4)))
    net.output(net.layer("Reshape", x, params={"targetShape": (4, 6)}))
    assert "makes (4, 6) of (2, 3, 4), but its output's TensorInfo has (2, 3, 4)" in reason(net.graph, "reshapes")


def test_a_reshape_that_requantizes_stays() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 3), "QAsymmU8", **U8))
    out = TensorInfo((2, 3), "QAsymmU8", 0.2, 10)
    net.output(net.layer("Reshape", x, outputs=(out,), params={"targetShape": (2, 3)}))
    assert "gives QAsymmU8 of scale 0.2 and offset 10 and layer 1" in reason(net.graph, "reshapes")


# equal-siblings


def test_equal_siblings_of_each_kind() -> None:
    net = Net()
    x = net.layer("Floor", net.input((1, 2, 3, 5)))
    firsts = [net.permute(x, (0, 2, 3, 1), name="p"), net.reshape(x, (30,), name="r")]
    firsts.append(net.layer("Quantize", x, outputs=(TensorInfo((1, 2, 3, 5), "QAsymmU8", 0.1, 10),), name="q"))
    firsts.append(net.layer("Dequantize", firsts[2], outputs=(TensorInfo((1, 2, 3, 5)),), name="d"))
    others = [net.transpose(x, (0, 3, 1, 2)), net.reshape(x, (30,))]
    others.append(net.layer("Quantize", x, outputs=(TensorInfo((1, 2, 3, 5), "QAsymmU8", 0.1, 10),)))
    others.append(net.layer("Dequantize", firsts[2], outputs=(TensorInfo((1, 2, 3, 5)),)))
    for one, other in zip(firsts, others, strict=True):
        net.output(one)
        net.output(net.layer("Floor", other))
    fused = fold(net.graph, "equal-siblings")
    assert sorted(node["name"] for node in fused.nodes.values() if node["name"] in "prqd") == ["d", "p", "q", "r"]
    assert sorted(types(fused)) == sorted(["Floor", "Permute", "Reshape", "Quantize", "Dequantize", *["Floor"] * 4])
    same_outputs(net.graph, fused)


def test_the_first_of_many_stands_for_all() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 6)))
    for number in range(300):
        net.output(net.reshape(x, (12,) if number % 2 else (3, 4), name=f"r{number}"))
    fused = fold(net.graph, "equal-siblings")
    assert [node["name"] for node in fused.nodes.values() if node["type"] == "Reshape"] == ["r0", "r1"]
    assert [len(fusion.layers) for fusion in fused.graph["fusions"]] == [150, 150]
    same_outputs(net.graph, fused)


@pytest.mark.parametrize("what", ["shape", "scale", "type", "slot", "mapping"])
def test_siblings_that_differ_stay(what: str) -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 2, 2)))
    if what == "shape":
        pair = [net.reshape(x, (8,)), net.reshape(x, (2, 4))]
    elif what == "mapping":
        pair = [net.permute(x, (1, 2, 0)), net.transpose(x, (1, 2, 0))]
    elif what == "slot":
        halves = net.splitter(x, 0, (1, 1))
        pair = [net.reshape((halves, slot), (4,)) for slot in (0, 1)]
    else:
        infos = (TensorInfo((2, 2, 2), "QAsymmU8", 0.1), TensorInfo((2, 2, 2), "QAsymmU8", 0.2))
        if what == "type":
            infos = (infos[0], TensorInfo((2, 2, 2), "QSymmS16", 0.1))
        pair = [net.layer("Quantize", x, outputs=(info,)) for info in infos]
    for one in pair:
        net.output(one)
    untouched(net.graph, "equal-siblings")


# quantize-pairs


def quantized(info: TensorInfo, between: str = "Float32", out: TensorInfo | None = None) -> Net:
    """Quantized input, Floor, Dequantize, Quantize, Output."""
    net = Net()
    x = net.layer(
        "Floor",
        net.input(
            info.shape,
            info.data_type,
            quantization_scale=info.quantization_scale,
            quantization_offset=info.quantization_offset,
        ),
    )
    back = net.layer("Dequantize", x, outputs=(TensorInfo(info.shape, between),))
    net.output(net.layer("Quantize", back, outputs=(out or info,)))
    return net


@pytest.mark.parametrize("data_type", ["QAsymmU8", "QuantisedAsymm8", "QAsymmS8", "QSymmS8", "QSymmS16"])
def test_a_pair_goes(data_type: str) -> None:
    info = TensorInfo((300, 300), data_type, 0.037, 0 if "Symm" in data_type and "A" not in data_type else 3)
    net = quantized(info)
    fused = fold(net.graph, "quantize-pairs")
    assert types(fused) == ["Floor"]
    assert [layer.type for layer in fused.graph["fusions"][0].layers] == ["Quantize", "Dequantize"]


def test_a_shared_dequantize_stays() -> None:
    net = quantized(TensorInfo((2, 3), "QAsymmU8", 0.1, 10))
    net.output(net.layer("Floor", 2))
    fused = fold(net.graph, "quantize-pairs")
    assert types(fused) == ["Floor", "Dequantize", "Floor"]
    same_outputs(net.graph, fused)


@pytest.mark.parametrize(
    ("info", "between", "out", "words"),
    [
        (TensorInfo((2,), "QAsymmU8", 0.1, 10), "Float32", TensorInfo((2,), "QAsymmU8", 0.2, 10), "scale 0.2"),
        (TensorInfo((2,), "QAsymmU8", 0.1, 10), "Float32", TensorInfo((2,), "QAsymmU8", 0.1, 9), "offset 9"),
        (TensorInfo((2,), "QAsymmU8", 0.1, 10), "Float32", TensorInfo((2,), "QAsymmS8", 0.1, 10), "gives QAsymmS8"),
        (TensorInfo((2,), "QSymmS16", 0.1), "Float16", None, "does not hold every number"),
        (TensorInfo((2,), "QAsymmU8", 1000.0), "Float16", None, "does not hold every number"),
        (TensorInfo((2,), "QAsymmU8", 0.0), "Float32", None, "does not hold every number"),
        (TensorInfo((2,), "Signed32"), "Float32", None, "makes Float32 of Signed32"),
    ],
)
def test_pairs_that_lose_something_stay(info: TensorInfo, between: str, out: TensorInfo | None, words: str) -> None:
    assert words in reason(quantized(info, between, out).graph, "quantize-pairs")


def test_eight_bits_survive_float16() -> None:
    assert types(fold(quantized(TensorInfo((2,), "QAsymmU8", 0.1, 10), "Float16").graph, "quantize-pairs")) == ["Floor"]


def test_dequantize_over_quantize_rounds_and_stays() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 3)))
    q = net.layer("Quantize", x, outputs=(TensorInfo((2, 3), "QAsymmU8", 0.1, 10),))
    net.output(net.layer("Dequantize", q, outputs=(TensorInfo((2, 3)),)))
    untouched(net.graph, "quantize-pairs")


# dead-ends


def test_dead_ends_go_with_all_that_only_they_need() -> None:
    net = Net()
    x, unused = net.input((1, 4), name="x"), net.input((1, 4), name="unused")
    live = net.activation(x)
    net.output(live, name="y")
    dead = net.addition(live, net.multiplication(unused, net.constant([2.0])))
    halves = net.splitter(dead, 1, (2, 2))
    net.layer("Floor", (halves, 1))
    net.constant([1.0], name="never")
    fused = fold(net.graph, "dead-ends")
    assert types(fused) == ["Activation"]
    assert [node["name"] for node in fused.nodes.values() if node["type"] == "Input"] == ["x", "unused"]
    assert not [node for node in fused.nodes.values() if node["type"] == "Constant"]
    assert {fusion.result for fusion in fused.graph["fusions"]} == {"nothing"}
    assert sorted(len(fusion.layers) for fusion in fused.graph["fusions"]) == [1, 5]


def test_a_dead_chain_of_any_length_goes_at_once() -> None:
    net = Net()
    x = net.input((2, 2))
    net.output(net.activation(x))
    at = x
    for _ in range(3000):
        at = net.layer("Floor", at)
    fused = fold(net.graph, "dead-ends")
    assert len(fused) == 3
    assert len(fused.graph["fusions"]) == 1


def test_a_dead_diamond_and_two_sinks() -> None:
    net = Net()
    x = net.input((2, 2))
    net.output(net.activation(x))
    top = net.layer("Floor", x)
    net.addition(net.layer("Floor", top), top)
    net.layer("Floor", top)
    assert len(fold(net.graph, "dead-ends")) == 3


def test_outputs_that_nobody_lists_are_outputs() -> None:
    net = Net()
    x = net.input((2, 2))
    net.output(net.activation(x))
    net.output(net.layer("Floor", x), listed=False)
    untouched(net.graph, "dead-ends")


def test_a_layer_without_outputs_stays() -> None:
    net = Net()
    x = net.input((2, 2))
    net.output(net.activation(x))
    net.stand_in(net.layer("Floor", x), outputs=(), name="probe")
    assert "'probe' has no outputs" in reason(net.graph, "dead-ends")


def test_a_network_without_an_output_stays() -> None:
    net = Net()
    net.layer("Floor", net.input((2, 2)))
    assert "the network has no Output" in reason(net.graph, "dead-ends")


# identity-layers


def around(kind: str, shape: tuple[int, ...], params: dict[str, Any], out: Any = None, **options: Any) -> Net:
    """Input, Floor, a layer, Output."""
    net = Net(**options)
    x = net.layer("Floor", net.input(shape))
    net.output(net.layer(kind, x, outputs=None if out is None else (out,), params=params, name="it"))
    return net


VIEWS = {"numViews": 1, "numDimensions": 2, "viewOrigins": ((0, 0),)}
WHOLE = {"begin": (0, 0), "end": (3, 4), "stride": (1, 1)}


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("Pad", {"padList": (0, 0, 0, 0), "padValue": 7.0}),
        ("Slice", {"begin": (0, 0), "size": (3, 4)}),
        ("StridedSlice", WHOLE),
        ("StridedSlice", {**WHOLE, "begin": (2, -4), "end": (9, 1), "beginMask": 1, "endMask": 2}),
        ("Concat", {**VIEWS, "concatAxis": 1}),
        ("Merger", {**VIEWS, "concatAxis": 1}),
        ("Splitter", {"origins": VIEWS, "viewSizes": ((3, 4),)}),
        ("Cast", {}),
    ],
)
def test_identities_by_their_parameters(kind: str, params: dict[str, Any]) -> None:
    net = around(kind, (3, 4), params)
    fused = fold(net.graph, "identity-layers")
    assert types(fused) == ["Floor"]
    same_outputs(net.graph, fused)


@pytest.mark.parametrize(
    ("params", "goes"),
    [
        ({"axis": (1, 2), "keepDims": True}, True),
        ({"axis": (1,), "keepDims": True}, True),
        ({"axis": (0, 1), "keepDims": True}, False),
        ({"axis": (), "keepDims": True}, False),
    ],
)
@pytest.mark.parametrize("kind", ["Mean", "Reduce"])
def test_means_over_ones(kind: str, params: dict[str, Any], goes: bool) -> None:
    out = tuple(1 if not params["axis"] or axis in params["axis"] else n for axis, n in enumerate((3, 1, 1, 5)))
    net = around(kind, (3, 1, 1, 5), params, out)
    if goes:
        assert types(fold(net.graph, "identity-layers")) == ["Floor"]
    else:
        untouched(net.graph, "identity-layers")


def test_a_mean_that_drops_its_axes_stays() -> None:
    untouched(around("Mean", (3, 1), {"axis": (1,), "keepDims": False}, (3,)).graph, "identity-layers")


@pytest.mark.parametrize(
    ("kind", "params", "out"),
    [
        ("Pad", {"padList": (0, 0, 0, 1)}, (3, 5)),
        ("Slice", {"begin": (0, 1), "size": (3, 3)}, (3, 3)),
        ("StridedSlice", {**WHOLE, "stride": (1, 2)}, (3, 2)),
        ("StridedSlice", {**WHOLE, "stride": (1, -1), "begin": (0, 3), "end": (3, -5)}, (3, 4)),
        ("StridedSlice", {**WHOLE, "end": (3, -1)}, (3, 3)),
        ("StridedSlice", {**WHOLE, "begin": (1, 0)}, (2, 4)),
        ("StridedSlice", {**WHOLE, "shrinkAxisMask": 1}, (4,)),
        ("Splitter", {"origins": {**VIEWS, "viewOrigins": ((0, 1),)}, "viewSizes": ((3, 3),)}, (3, 3)),
        ("Cast", {}, TensorInfo((3, 4), "Float16")),
    ],
)
def test_layers_that_do_something_stay(kind: str, params: dict[str, Any], out: Any) -> None:
    untouched(around(kind, (3, 4), params, out).graph, "identity-layers")


@pytest.mark.parametrize("spelling", ["old", "new"])
@pytest.mark.parametrize(
    ("kind", "value", "first", "goes"),
    [
        ("Multiplication", 1.0, False, True),
        ("Multiplication", 1.0, True, True),
        ("Addition", 0.0, False, True),
        ("Addition", -0.0, True, True),
        ("Subtraction", 0.0, False, True),
        ("Division", 1.0, False, True),
        ("Subtraction", 0.0, True, False),
        ("Division", 1.0, True, False),
        ("Multiplication", 0.0, False, False),
        ("Addition", 1.0, False, False),
        ("Multiplication", 1.0000001, False, False),
        ("Minimum", 0.0, False, False),
    ],
)
@pytest.mark.parametrize("shape", [(), (1, 1), (3, 4)])
def test_neutral_operands(kind: str, value: float, first: bool, goes: bool, spelling: str, shape: Any) -> None:
    net = Net(spelling=spelling)
    x = net.layer("Floor", net.input((3, 4)))
    c = net.constant(np.full(shape, value))
    net.output(net.binary(kind, *((c, x) if first else (x, c))))
    if not goes:
        untouched(net.graph, "identity-layers")
        return
    fused = fold(net.graph, "identity-layers")
    assert types(fused) == ["Floor"]
    assert not [node for node in fused.nodes.values() if node["type"] == "Constant"]
    same_outputs(net.graph, fused)


def test_a_neutral_operand_that_spreads_the_other_stays() -> None:
    net = Net()
    x = net.layer("Floor", net.input((1, 4)))
    net.output(net.addition(x, net.constant(np.zeros((3, 4)))))
    assert "gives shape (3, 4) and layer 1" in reason(net.graph, "identity-layers")


@pytest.mark.parametrize("data_type", ["QAsymmU8", "QAsymmS8", "QSymmS16"])
def test_neutral_operands_by_their_real_value(data_type: str) -> None:
    """Stored 14 with scale 0.25 and offset 10 is 1; stored 10 is 0; stored 1 is neither."""
    offset = 0 if data_type == "QSymmS16" else 10
    given = {"quantization_scale": 0.25, "quantization_offset": offset}
    for kind, stored, goes in (("Multiplication", 4, True), ("Addition", 0, True), ("Multiplication", 1, False)):
        net = Net()
        x = net.layer("Floor", net.input((2, 300), data_type, quantization_scale=0.1, quantization_offset=offset))
        c = net.constant([stored + offset], data_type, **given)
        net.output(net.binary(kind, x, c))
        if goes:
            fused = fold(net.graph, "identity-layers")
            assert types(fused) == ["Floor"]
            same_outputs(net.graph, fused)
        else:
            untouched(net.graph, "identity-layers")


def test_an_identity_that_requantizes_stays() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 3), "QAsymmU8", **U8))
    info = net.info(x)
    net.output(net.addition(x, net.constant([10], "QAsymmU8", **U8), output=replace(info, quantization_scale=0.2)))
    assert "scale 0.2 and offset 10 and layer 1" in reason(net.graph, "identity-layers")


def test_ends_of_the_network() -> None:
    """Names and binding ids of the ends stay; nothing between them is refused."""
    net = Net()
    x = net.input((2, 3), name="x", binding_id=5)
    net.output(net.addition(x, net.constant([0.0])), name="y", binding_id=9)
    assert "nothing is left between Input layer 0 'x' and Output layer 3 'y'" in reason(net.graph, "identity-layers")
    net = Net()
    x = net.input((2, 3), name="x", binding_id=5)
    net.output(net.activation(net.addition(x, net.constant([0.0]))), name="y", binding_id=9)
    fused = fold(net.graph, "identity-layers")
    assert types(fused) == ["Activation"]
    assert list(evaluate(fused, {5: np.zeros((2, 3), np.float32)})) == [(9, "y")]


def test_a_tap_reads_what_the_layer_read() -> None:
    net = Net()
    x = net.layer("Floor", net.input((2, 3)))
    same = net.multiplication(x, net.constant([1.0]))
    net.output(same)
    net.output(net.addition(same, same))
    net.output(net.activation(same))
    fused = fold(net.graph, "identity-layers")
    assert types(fused) == ["Floor", "Addition", "Activation"]
    same_outputs(net.graph, fused)


def test_an_overridden_input_is_refused() -> None:
    net = around("Pad", (3, 4), {"padList": (0, 0, 0, 0)})
    net.graph.nodes[2]["overrides"] = FrozenDict({0: (True, TensorInfo((4, 3)))})
    assert "overrides the TensorInfo of its input" in reason(net.graph, "identity-layers")


def test_folds_name_what_they_take() -> None:
    """A rule may give a fold a match of its own: other layers than it takes are refused, by name."""
    net = Net()
    net.output(net.activation(net.activation(net.input((2, 3))), name="top"))
    for fold_name in (
        "permutes",
        "permute-as-reshape",
        "permute-upward",
        "reshapes",
        "equal-siblings",
        "constants",
        "quantize-pairs",
        "space-depth",
        "identity-layers",
    ):
        rule = fe.FusingRule("Activation{Activation}", fold=fold_name)
        (refusal,) = fe.fuse(net.graph, rule).graph["refusals"] or (None,)
        if fold_name == "constants":
            assert refusal is None
        else:
            assert refusal is not None
            assert "'top'" in refusal.reason


def test_everything_shipped_at_once_reaches_its_end_in_few_passes() -> None:
    net = Net()
    x = net.input((1, 2, 3, 5))
    p = net.permute(net.multiplication(x, net.constant([1.0])), (0, 2, 3, 1))
    r = net.reshape(net.reshape(net.permute(net.activation(p), (0, 3, 1, 2)), (30,)), (5, 6))
    net.output(net.reshape(r, (30, 1)))
    fused = apply(net.graph, *SHIPPED)
    assert types(fused) == ["Activation", "Reshape"]
    same_outputs(net.graph, fused)
