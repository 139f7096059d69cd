"""Folds of Permute and Transpose: pairs and runs, as Reshape, through elementwise layers, around space and batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fusion_engine.folds.moves import inverse
from fusion_engine.network import FrozenDict
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net
from tests.support.structural import apply, drawn, evaluate, fold, reason, same_outputs, types, untouched

P = (0, 2, 3, 1)
Q = (0, 3, 1, 2)


def chain(shape: tuple[int, ...], *layers: tuple[str, tuple[int, ...]], **options: Any) -> Net:
    """Input, permutations, an Activation so that the last may go, Output."""
    net = Net(**options)
    at = net.input(shape)
    for number, (kind, mappings) in enumerate(layers):
        at = (net.permute if kind == "P" else net.transpose)(at, mappings, name=f"p{number}")
    net.output(net.activation(at, name="relu"), name="out")
    return net


# permutes


def test_the_two_conventions() -> None:
    """Shapes of both on (1, 2, 3, 5), and what cancels."""
    for kind, shape in (("P", (1, 5, 2, 3)), ("T", (1, 3, 5, 2))):
        net = chain((1, 2, 3, 5), (kind, P))
        assert net.info(1).shape == shape
        assert evaluate(net.graph, drawn(net.graph))[0, "out"].shape == shape
    gone = fold(chain((1, 2, 3, 5), ("P", P), ("T", P)).graph, "permutes")
    assert types(gone) == ["Activation"]
    kept = fold(chain((1, 2, 3, 5), ("P", P), ("P", P)).graph, "permutes")
    assert types(kept) == ["Permute", "Activation"]
    assert kept.nodes[2]["params"]["dimMappings"] == Q


@pytest.mark.parametrize(
    ("kinds", "kind", "mappings"),
    [("TT", "Transpose", (1, 2, 0)), ("PP", "Permute", (2, 0, 1)), ("PT", "Transpose", (1, 2, 0))],
)
def test_pairs_compose(kinds: str, kind: str, mappings: tuple[int, ...]) -> None:
    """[1, 0, 2] below [0, 2, 1]; the result is of the upper's kind. [1, 0, 2] is its own inverse."""
    net = chain((2, 3, 4), (kinds[0], (1, 0, 2)), (kinds[1], (0, 2, 1)))
    fused = fold(net.graph, "permutes")
    assert types(fused) == [kind, "Activation"]
    assert fused.nodes[2] == {**net.graph.nodes[2], "params": FrozenDict(dimMappings=mappings)}
    assert [fusion.layers[0].index for fusion in fused.graph["fusions"]] == [2]
    same_outputs(net.graph, fused)


@pytest.mark.parametrize("dialect", ["19.02", "19.05", "current"])
def test_a_run_shrinks_to_one_or_none(dialect: str) -> None:
    net = chain((2, 3, 4, 5), *([("P", (1, 2, 3, 0))] * 999), dialect=dialect)
    fused = fold(net.graph, "permutes")
    assert types(fused) == ["Permute", "Activation"]
    assert fused.nodes[999]["params"]["dimMappings"] == (3, 0, 1, 2)
    assert fused.nodes[999]["name"] == "p998"
    net = chain((2, 3, 4, 5), *([("P", (1, 2, 3, 0))] * 1000), dialect=dialect)
    fused = fold(net.graph, "permutes")
    assert types(fused) == ["Activation"]


def test_an_identity_goes_alone() -> None:
    fused = fold(chain((2, 3), ("T", (0, 1))).graph, "permutes")
    assert types(fused) == ["Activation"]
    assert [fusion.result for fusion in fused.graph["fusions"]] == ["nothing"]


@pytest.mark.parametrize("data_type", ["Float16", "Signed32", "QAsymmU8", "QAsymmS8", "QSymmS16", "Boolean"])
def test_every_data_type(data_type: str) -> None:
    net = Net()
    x = net.input((1, 2, 3, 5), data_type, quantization_scale=0.5, quantization_offset=0)
    net.output(net.permute(net.transpose(x, P), (1, 0, 2, 3)))
    fused = fold(net.graph, "permutes")
    assert types(fused) == ["Permute"]
    same_outputs(net.graph, fused)


def test_a_shared_lower_one_stays_for_the_others() -> None:
    net = Net()
    x = net.input((1, 2, 3, 5))
    lower = net.permute(x, P)
    net.output(net.layer("Floor", lower))
    net.output(net.activation(net.permute(lower, Q)))
    fused = fold(net.graph, "permutes")
    assert types(fused) == ["Permute", "Floor", "Activation"]
    same_outputs(net.graph, fused)


def test_a_shared_lower_one_goes_with_its_last_reader() -> None:
    net = Net()
    x = net.input((1, 2, 3, 5))
    lower = net.permute(x, P)
    net.output(net.permute(lower, (1, 0, 2, 3)))
    net.output(net.transpose(lower, (0, 1, 3, 2)))
    fused = fold(net.graph, "permutes")
    assert types(fused) == ["Permute", "Transpose"]
    same_outputs(net.graph, fused)


def test_shared_and_not_cancelling_is_refused() -> None:
    net = Net()
    lower = net.permute(net.input((1, 2, 3, 5)), P)
    net.output(net.layer("Floor", lower))
    net.output(net.permute(lower, P))
    assert "'permute_1' is used elsewhere too" in reason(net.graph, "permutes")


def test_nothing_left_between_input_and_output_is_refused() -> None:
    net = Net()
    x = net.input((1, 2, 3, 5), name="x")
    net.output(net.transpose(net.permute(x, P), P, name="t"), name="y")
    assert reason(net.graph, "permutes") == (
        "without layer 2 't' nothing is left between Input layer 0 'x' and Output layer 3 'y'"
    )


def test_another_quantization_in_between_is_refused() -> None:
    net = Net()
    x = net.input((1, 2, 3, 5), "QAsymmU8", quantization_scale=0.5)
    other = TensorInfo((1, 5, 2, 3), "QAsymmU8", 0.25)
    lower = net.layer("Permute", x, outputs=(other,), params={"dimMappings": P})
    net.output(net.layer("Permute", lower, outputs=(replace(other, shape=(1, 3, 5, 2)),), params={"dimMappings": P}))
    assert "scale 0.25 and offset 0, that of layer 0" in reason(net.graph, "permutes")


@pytest.mark.parametrize(
    ("mappings", "words"), [((0, 2, 3, 3), "no permutation"), ((0, 1, 2), "no permutation"), (Q, "do not make of")]
)
def test_mappings_that_are_none(mappings: tuple[int, ...], words: str) -> None:
    net = chain((1, 2, 3, 5), ("P", P), ("P", P))
    net.graph.nodes[2]["params"] = FrozenDict(dimMappings=mappings)
    assert words in reason(net.graph, "permutes")


def test_incomplete_layers_are_refused() -> None:
    net = chain((1, 2, 3, 5), ("P", P), ("P", P))
    net.graph.nodes[1]["outputs"] = (None,)
    assert "has no TensorInfo" in reason(net.graph, "permutes")
    net.graph.nodes[1]["outputs"] = (TensorInfo((1, 0, 2, 3), dimension_specificity=(True, False, True, True)),)
    assert "leaves open" in reason(net.graph, "permutes")
    net = chain((1, 2, 3, 5), ("P", P), ("P", P))
    net.graph.nodes[2]["overrides"] = FrozenDict({0: (True, TensorInfo((1, 2, 3, 5)))})
    assert "overrides the TensorInfo of its input" in reason(net.graph, "permutes")


# permute-as-reshape


@pytest.mark.parametrize("kind", ["P", "T"])
@pytest.mark.parametrize(
    ("shape", "mappings", "moves"),
    [
        ((1, 4, 5, 1), (0, 2, 3, 1), False),
        ((1, 4, 5, 1), (3, 1, 2, 0), False),
        ((1, 1, 1, 7), (0, 3, 1, 2), False),
        ((1, 4, 5, 2), (0, 2, 3, 1), True),
        ((1, 4, 5, 1), (0, 2, 1, 3), True),
    ],
)
def test_only_dimensions_of_one_move(shape: tuple[int, ...], mappings: tuple[int, ...], moves: bool, kind: str) -> None:
    net = chain(shape, (kind, mappings if kind == "P" else inverse(mappings)))
    if moves:
        untouched(net.graph, "permute-as-reshape")
        return
    fused = fold(net.graph, "permute-as-reshape")
    after = net.info(1).shape
    assert types(fused) == (["Activation"] if after == shape else ["Reshape", "Activation"])
    if after != shape:
        assert fused.nodes[1] == {
            **net.graph.nodes[1],
            "type": "Reshape",
            "params": FrozenDict(targetShape=after),
        }
    same_outputs(net.graph, fused)


def test_as_reshape_then_with_reshapes() -> None:
    net = Net()
    x = net.input((1, 4, 5, 1))
    net.output(net.reshape(net.permute(net.reshape(x, (1, 20, 1, 1)), (0, 2, 3, 1)), (20,), name="last"))
    fused = fold(net.graph, "permute-as-reshape", "reshapes")
    assert types(fused) == ["Reshape"]
    same_outputs(net.graph, fused)


def test_as_reshape_refuses_another_quantization() -> None:
    net = Net()
    x = net.input((1, 4, 5, 1), "QAsymmS8", quantization_scale=0.5)
    out = TensorInfo((1, 1, 4, 5), "QAsymmS8", 0.5, 3)
    net.output(net.layer("Transpose", x, outputs=(out,), params={"dimMappings": Q}))
    assert "scale 0.5 and offset 3, that of layer 0" in reason(net.graph, "permute-as-reshape")


# permute-upward


def between(*layers: str, upper: tuple[int, ...] = Q, constant: Any = None, **options: Any) -> Net:
    """Input, Permute P, elementwise layers (a binary one with a Constant), Permute, Output."""
    net = Net(**options)
    at = net.permute(net.input((1, 2, 3, 5)), P, name="lower")
    for name in layers:
        if name in ("ReLu", "Abs", "Sigmoid"):
            at = net.activation(at, name, name=name)
        elif name in ("Floor", "Abs_"):
            at = net.layer(name.rstrip("_"), at)
        else:
            c = net.constant(constant, name="c")
            at = net.binary(name, at, c, name=name)
    net.output(net.permute(at, upper, name="upper"), name="out")
    return net


@pytest.mark.parametrize("layers", [("ReLu",), ("Floor",), ("ReLu", "Floor", "Abs_")])
def test_upward_and_away(layers: tuple[str, ...]) -> None:
    net = between(*layers)
    fused = fold(net.graph, "permute-upward")
    assert len(types(fused)) == len(layers)
    top = net.graph.number_of_nodes() - 2
    assert fused.nodes[top]["name"] == "upper"
    assert fused.nodes[top]["outputs"] == net.graph.nodes[top]["outputs"]
    (fusion,) = fused.graph["fusions"]
    assert [layer.name for layer in fusion.layers[:: len(layers) + 1]] == ["upper", "lower"]
    same_outputs(net.graph, fused)


def test_upward_leaves_one() -> None:
    net = between("ReLu", upper=P)
    fused = fold(net.graph, "permute-upward")
    assert types(fused) == ["Activation", "Permute"]
    assert fused.nodes[3]["params"]["dimMappings"] == Q
    assert fused.nodes[2]["outputs"][0].shape == (1, 2, 3, 5)
    same_outputs(net.graph, fused)


@pytest.mark.parametrize("spelling", ["old", "new"])
@pytest.mark.parametrize("kind", ["Addition", "Subtraction", "Multiplication", "Division", "Minimum", "Maximum"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (5, 2, 3), (1, 5, 2, 3), (1, 1, 1, 1)])
def test_upward_with_a_constant(shape: tuple[int, ...], kind: str, spelling: str) -> None:
    values = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape)
    net = between(kind, constant=values, spelling=spelling)
    fused = fold(net.graph, "permute-upward")
    same_outputs(net.graph, fused)
    (constant,) = (node for node in fused.nodes.values() if node["type"] == "Constant")
    assert constant["name"] == "c"
    assert constant["outputs"][0].shape == constant["constants"]["input"].info.shape
    if values.size == 1:
        assert constant["constants"]["input"].data is net.graph.nodes[2]["constants"]["input"].data


def test_upward_with_the_constant_first_and_shared() -> None:
    net = Net()
    lower = net.permute(net.input((1, 2, 3, 5)), P)
    c = net.constant(np.arange(3), name="c")
    net.output(net.permute(net.binary("Subtraction", c, lower), Q))
    net.output(net.layer("Floor", c))
    fused = fold(net.graph, "permute-upward")
    same_outputs(net.graph, fused)
    assert sorted(node["name"] for node in fused.nodes.values() if node["type"] == "Constant") == ["c", "c#2"]


def test_upward_minds_the_layout_scheme() -> None:
    net = between("Addition", constant=np.arange(3), feature_versions=(1, 0, 0))
    assert fold(net.graph, "permute-upward").graph["feature_versions"] == (1, 1, 0)


def test_upward_of_two_alike() -> None:
    net = Net()
    x, y = net.input((1, 2, 3, 5)), net.input((1, 1, 3, 5))
    total = net.addition(net.permute(x, P), net.transpose(y, Q))
    net.output(net.permute(net.activation(total), Q))
    fused = fold(net.graph, "permute-upward")
    assert types(fused) == ["Addition", "Activation"]
    same_outputs(net.graph, fused)


def test_upward_of_one_on_both_inputs() -> None:
    net = Net()
    lower = net.permute(net.input((1, 2, 3, 5)), P)
    net.output(net.permute(net.multiplication(lower, lower), Q))
    fused = fold(net.graph, "permute-upward")
    assert types(fused) == ["Multiplication"]
    same_outputs(net.graph, fused)


def test_upward_through_quantize_and_dequantize() -> None:
    net = Net()
    lower = net.permute(net.input((1, 2, 3, 5)), P)
    quantized = net.layer("Quantize", lower, outputs=(TensorInfo((1, 5, 2, 3), "QAsymmU8", 0.1, 20),))
    back = net.layer("Dequantize", quantized, outputs=(TensorInfo((1, 5, 2, 3)),))
    net.output(net.permute(back, Q))
    fused = fold(net.graph, "permute-upward")
    assert types(fused) == ["Quantize", "Dequantize"]
    same_outputs(net.graph, fused)


def test_upward_refusals() -> None:
    net = between("ReLu")
    net.output(net.layer("Floor", 2), name="tap")
    assert "'ReLu' is used elsewhere too" in reason(net.graph, "permute-upward")
    net = between("ReLu")
    net.output(net.layer("Floor", 1), name="tap")
    assert "'lower' is used elsewhere too" in reason(net.graph, "permute-upward")
    net = Net()
    one, other = net.permute(net.input((1, 2, 2, 2)), P), net.permute(net.input((1, 2, 2, 2)), Q)
    net.output(net.permute(net.addition(one, other), Q))
    assert "permutes otherwise than" in reason(net.graph, "permute-upward")
    net = between("Addition", constant=np.ones((1, 1, 1, 3)))
    net.graph.nodes[2]["constants"] = FrozenDict(input=Tensor.of(np.ones((1, 1, 1, 1, 3))))
    net.graph.nodes[2]["outputs"] = (TensorInfo((1, 1, 1, 1, 3)),)
    assert "rank 5" in reason(net.graph, "permute-upward")
    net = between("Addition", constant=Tensor(TensorInfo((3,), "Float16"), np.ones(3, "f2"), untagged=True))
    assert "of no certain type" in reason(net.graph, "permute-upward")


def test_upward_stops_at_what_is_not_elementwise() -> None:
    net = Net()
    lower = net.permute(net.input((1, 2, 3, 5)), P)
    net.output(net.permute(net.layer("Softmax", lower), Q))
    other = net.permute(net.input((1, 2, 3, 5)), P)
    net.output(net.permute(net.addition(other, net.input((1, 5, 2, 3))), Q))
    untouched(net.graph, "permute-upward")


# space-depth

SWAP = (3, 1, 2, 0)


def space(kind: str = "BatchToSpaceNd", block: Any = (2, 2), **options: Any) -> Net:
    """Input, swap, BatchToSpaceNd or SpaceToBatchNd, swap, Output."""
    layout = options.pop("layout", "NHWC")
    margin = options.pop("margin", (0, 0, 0, 0))
    net = Net(**options)
    shape = (2, 2, 3, 8) if kind == "BatchToSpaceNd" else (2, 4, 6, 3)
    below = net.permute(net.input(shape), SWAP)
    n, h, w, c = net.info(below).shape
    scale = block[0] * block[1]
    out = (
        (n // scale, h * block[0], w * block[1], c) if kind[0] == "B" else (n * scale, h // block[0], w // block[1], c)
    )
    params = {"blockShape": block, "dataLayout": layout, "crops" if kind[0] == "B" else "padList": margin}
    middle = net.layer(kind, below, outputs=(out,), params=params, name="middle")
    net.output(net.permute(middle, SWAP, name="upper"))
    return net


@pytest.mark.parametrize(("kind", "becomes"), [("BatchToSpaceNd", "DepthToSpace"), ("SpaceToBatchNd", "SpaceToDepth")])
def test_space_and_depth(kind: str, becomes: str) -> None:
    net = space(kind)
    fused = fold(net.graph, "space-depth")
    assert types(fused) == [becomes]
    assert fused.nodes[3] == {
        **net.graph.nodes[3],
        "type": becomes,
        "params": FrozenDict(blockSize=2, dataLayout="NHWC"),
    }
    same_outputs(net.graph, fused)


def test_space_and_depth_before_other_permutes() -> None:
    net = Net()
    below = net.permute(net.transpose(net.input((3, 2, 2, 8)), (1, 2, 0, 3)), SWAP)
    middle = net.layer(
        "BatchToSpaceNd",
        below,
        outputs=((2, 4, 6, 2),),
        params={"blockShape": (2, 2), "crops": (0, 0, 0, 0), "dataLayout": "NHWC"},
    )
    net.output(net.transpose(middle, SWAP))
    fused = fold(net.graph, "space-depth", "permutes")
    assert types(fused) == ["Transpose", "DepthToSpace"]
    same_outputs(net.graph, fused)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": "NCHW"}, "is NCHW, not NHWC"),
        ({"margin": (1, 0, 0, 0)}, "crops (1, 0, 0, 0)"),
        ({"block": (2, 1)}, "no square"),
        ({"kind": "SpaceToBatchNd", "margin": (0, 0, 2, 0)}, "padList (0, 0, 2, 0)"),
        ({"feature_versions": (0, 0, 0)}, "release 19.11 or later"),
        ({"dialect": "19.05"}, "the 19.05 dialect has no DepthToSpace"),
    ],
)
def test_space_and_depth_refused(options: dict[str, Any], words: str) -> None:
    assert words in reason(space(**options).graph, "space-depth")


def test_a_file_with_a_later_layer_is_young_enough() -> None:
    """Abs and Slice came with 19.11, Stack with 19.08."""
    for kind, fires in (("Abs", True), ("Floor", False)):
        net = space(feature_versions=(0, 0, 0))
        net.output(net.layer(kind, 0))
        fused = apply(net.graph, "space-depth")
        assert bool(fused.graph["fusions"]) is fires


def test_another_permutation_is_no_swap() -> None:
    net = space()
    shape = net.info(2).shape
    net.graph.nodes[3]["params"] = FrozenDict(dimMappings=(0, 1, 2, 3))
    net.graph.nodes[3]["outputs"] = (TensorInfo(shape),)
    assert "does not swap batch and channels" in reason(net.graph, "space-depth")
