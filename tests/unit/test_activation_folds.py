"""The folds clamp, activation-chain and noop-activation: numbers, quantized grids, refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.folds import Inapplicable, Refused, find_fold
from fusion_engine.folds.activations import Function, bounds, compose, keeps
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.evaluate import activation, evaluate
from tests.support.folding import count, fold, refusal, rule
from tests.support.nets import Net

GRID = {"quantization_scale": 0.1, "quantization_offset": 10}


def function(graph: Any, key: int) -> tuple[str, float, float]:
    params = graph.nodes[key]["params"]
    return params["activationFunction"], params["a"], params["b"]


def results(graph: Any, values: list[float]) -> list[float]:
    return evaluate(graph, {0: np.reshape(values, (1, len(values)))})[0].reshape(-1).tolist()


# clamp


def clamped(
    outer: str = "Minimum",
    lower: Any = 0,
    upper: Any = 6,
    swaps: tuple[bool, bool] = (False, False),
    *,
    spelling: str = "old",
    data_type: str = "Float32",
    **grid: Any,
) -> tuple[Net, int]:
    """The outer of Minimum and Maximum over the other, each with its Constant on either side."""
    net = Net(data_type=data_type, spelling=spelling)
    x = net.input((1, 3), **grid)
    inner = "Maximum" if outer == "Minimum" else "Minimum"
    for kind, swap in zip((inner, outer), swaps, strict=True):
        bound = upper if kind == "Minimum" else lower
        constant = bound if isinstance(bound, int) and bound == -1 else net.constant(bound, **grid)
        x = net.binary(kind, *((constant, x) if swap else (x, constant)), name=kind.lower())
    net.output(x)
    return net, x


@pytest.mark.parametrize("spelling", ["old", "new"])
@pytest.mark.parametrize("outer", ["Minimum", "Maximum"])
@pytest.mark.parametrize("swaps", list(product([False, True], repeat=2)))
def test_clamps_however_written(outer: str, swaps: tuple[bool, bool], spelling: str) -> None:
    net, root = clamped(outer, swaps=swaps, spelling=spelling)
    fused = fold(net.graph, "clamp")
    assert fused.nodes[root]["type"] == "Activation"
    assert fused.nodes[root]["name"] == outer.lower()
    assert function(fused, root) == ("BoundedReLu", 6, 0)
    assert len(fused) == 3
    assert results(fused, [-3, 0.5, 9]) == results(net.graph, [-3, 0.5, 9]) == [0, 0.5, 6]
    assert not fe.validate(fused)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_shapes_of_a_number(shape: tuple[int, ...]) -> None:
    net, root = clamped(lower=np.full(shape, -1.5), upper=np.full(shape, 2.5))
    assert function(fold(net.graph, "clamp"), root) == ("BoundedReLu", 2.5, -1.5)


@pytest.mark.parametrize(("data_type", "kind"), [("QAsymmU8", "u1"), ("QAsymmS8", "i1"), ("QSymmS16", "i2")])
def test_quantized_bounds_are_the_numbers_they_stand_for(data_type: str, kind: str) -> None:
    net, root = clamped(lower=10, upper=70, data_type=data_type, **GRID)
    fused = fold(net.graph, "clamp")
    assert function(fused, root) == ("BoundedReLu", 6.0, 0.0)
    values = (np.arange(np.iinfo(kind).min, np.iinfo(kind).max + 1)[:: 1 if kind != "i2" else 97] - 10.0) * 0.1
    for three in values[: len(values) // 3 * 3].reshape(-1, 3).tolist():
        assert results(fused, three) == pytest.approx(results(net.graph, three), abs=1e-9)


def test_bounds_on_a_grid_of_their_own() -> None:
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 3), **GRID)
    lower = net.constant(4, quantization_scale=0.5, quantization_offset=2)
    low = net.binary("Maximum", x, lower)
    root = net.binary("Minimum", net.constant([90], quantization_scales=(0.25,), quantization_dim=0), low)
    net.graph.nodes[root]["outputs"] = (net.info(x),)
    net.output(root)
    assert function(fold(net.graph, "clamp"), root) == ("BoundedReLu", 22.5, 1.0)


def test_a_shared_bound_stays_for_the_others() -> None:
    net, root = clamped()
    net.output(net.binary("Maximum", 0, 1))
    fused = fold(net.graph, "clamp")
    assert count(fused, "Constant") == 1
    assert function(fused, root) == ("BoundedReLu", 6, 0)


def test_equal_bounds_and_one_constant_for_both() -> None:
    net = Net()
    x, c = net.input((1, 3)), net.constant([2])
    root = net.binary("Minimum", net.binary("Maximum", x, c), c)
    net.output(root)
    fused = fold(net.graph, "clamp")
    assert function(fused, root) == ("BoundedReLu", 2, 2)
    assert count(fused, "Constant") == 0


def test_the_data_inputs_override_moves_up() -> None:
    net, root = clamped(swaps=(True, False))
    override = (True, net.info(0))
    net.graph.nodes[2]["overrides"] = FrozenDict({1: override})  # type: ignore[dict-item]
    assert fold(net.graph, "clamp").nodes[root]["overrides"] == {0: override}


def test_files_of_release_19_05() -> None:
    net = Net("19.05")
    x = net.input((1, 3))
    root = net.binary("Minimum", net.binary("Maximum", x, net.constant([0])), net.constant([6]))
    net.output(root)
    fused = fold(net.graph, "clamp")
    assert fused.nodes[root]["params"] == {"function": "BoundedReLu", "a": 6, "b": 0}
    assert fe.dumps(fused)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lower": 7}, "the lower bound 7 of layer 4 'minimum' over layer 2 'maximum' is above the upper bound 6"),
        ({"upper": [6, 6, 6]}, "has shape (3,): a bound is one number"),
        ({"upper": [[[6]]]}, "gives shape (1, 1, 3), the output of layer 0 'input_0' has (1, 3)"),
        ({"upper": np.nan}, "holds nan, which is no bound"),
        ({"upper": np.inf}, "holds inf, which is no bound"),
        ({"upper": Tensor.of([6], "Float16")}, "is Float16 and bounds a tensor of Float32"),
        ({"upper": replace(Tensor.of([6], "Float16"), untagged=True), "data_type": "Float16"}, "stores BFloat16 so"),
        ({"data_type": "Signed32"}, "is Signed32, which does not fold"),
        ({"data_type": "QSymmS8", "quantization_scale": 1.0}, "of which there are no activations"),
        ({"data_type": "QAsymmU8"}, "has scale 0 and offset 0"),
    ],
)
def test_no_clamp(changes: dict[str, Any], reason: str) -> None:
    net, _ = clamped(**changes)
    assert reason in refusal(net.graph, "clamp")


@pytest.mark.parametrize("which", ["input", "between", "output"])
def test_tensors_that_differ(which: str) -> None:
    key = {"input": 0, "between": 2, "output": 4}[which]
    for change, reason in (
        ({"quantization_scale": 0.2}, "scale 0.2 and offset 10"),
        ({"data_type": "QAsymmS8"}, "gives QAsymm"),
        ({"shape": (2, 3)}, "gives shape"),
    ):
        net, _ = clamped(lower=10, upper=70, data_type="QAsymmU8", **GRID)
        net.graph.nodes[key]["outputs"] = (replace(net.info(key), **change),)
        workspace = Workspace(net.graph)
        with pytest.raises(Refused) as caught:
            find_fold("clamp").check(workspace, Match(4, (4, 2), (), (), (), ()))
        assert reason in caught.value.reason or which == "input"


@pytest.mark.parametrize("kinds", [("Minimum", "Minimum"), ("Maximum",), ("Minimum", "Addition"), ()])
def test_clamp_of_other_layers(kinds: tuple[str, ...]) -> None:
    net = Net()
    layers: list[int] = []
    x = net.input((1, 3))
    for kind in kinds:
        x = net.binary(kind, x, net.constant([1]))
        layers.insert(0, x)
    with pytest.raises(Refused, match="clamp takes a Minimum over a Maximum"):
        find_fold("clamp").check(Workspace(net.graph), Match(x, tuple(layers), (), (), (), ()))


def test_clamp_of_constants_and_of_computed_bounds() -> None:
    net = Net()
    inner = net.binary("Maximum", net.constant([1]), net.constant([2]))
    net.output(net.binary("Minimum", inner, net.constant([3])))
    assert "has 0 inputs that are no Constant" in refusal(net.graph, "clamp")
    net = Net()
    x = net.input((1,))
    root = net.binary("Minimum", net.binary("Maximum", x, net.input((1,))), net.constant([3]))
    net.output(root)
    assert not fe.fuse(net.graph, rule("clamp")).graph["fusions"]
    with pytest.raises(Refused, match="has 2 inputs that are no Constant"):
        find_fold("clamp").check(Workspace(net.graph), Match(root, (root, 2), (), (), (), ()))


# activation-chain: the functions

ALL = {
    "Sigmoid": [()],
    "TanH": [(1, 1), (2, -0.5)],
    "Linear": [(1, 0), (2, 3), (-1.5, 0)],
    "ReLu": [()],
    "BoundedReLu": [(6, 0), (1, -1), (6, -1), (-1, 1), (3, 2)],
    "SoftReLu": [()],
    "LeakyReLu": [(0.1,), (-0.5,), (1,)],
    "Abs": [()],
    "Sqrt": [()],
    "Square": [()],
    "Elu": [(1,), (-1,)],
    "HardSwish": [()],
}
FUNCTIONS = [Function(name, *map(float, np.float32(ab))) for name, given in ALL.items() for ab in given]


@pytest.mark.parametrize("inner", FUNCTIONS, ids=str)
@pytest.mark.parametrize("exact", [False, True])
def test_compositions_are_what_the_two_compute(inner: Function, exact: bool) -> None:
    """Over a dense range with all corners; bounds hold every value; NaN where the two give NaN."""
    x = np.concatenate([np.linspace(-12, 12, 4801), [0.0, 1e-30, -1e-30, 1e6, -1e6]])
    low, high = bounds(inner)
    y = activation(*inner, x)
    assert np.all((y >= low) & (y <= high) | np.isnan(y))
    for outer in FUNCTIONS:
        one = compose(outer, inner, exact=exact)
        if one is not None:
            expected = activation(*outer, y)
            rounded = 1e-12 if exact else 1e-7  # slopes are multiplied and stored as float32
            assert np.allclose(activation(*one, x), expected, rtol=rounded, atol=0, equal_nan=True), (outer, one)
        if keeps(outer, low, high) and not np.isnan(y).any():
            assert np.array_equal(activation(*outer, y), y)


@pytest.mark.parametrize(
    ("outer", "inner", "one"),
    [
        (Function("BoundedReLu", 1, -1), Function("ReLu"), Function("BoundedReLu", 1, 0)),
        (Function("ReLu"), Function("BoundedReLu", 6, -1), Function("BoundedReLu", 6, 0)),
        (Function("ReLu"), Function("LeakyReLu", 0.1), Function("ReLu")),
        (Function("BoundedReLu", 6, 0), Function("LeakyReLu", 0.1), Function("BoundedReLu", 6, 0)),
        (Function("BoundedReLu", 6, -1), Function("LeakyReLu", 0.1), None),
        (Function("ReLu"), Function("LeakyReLu", -0.1), None),
        (Function("ReLu"), Function("ReLu"), Function("ReLu")),
        (Function("BoundedReLu", 6, 0), Function("BoundedReLu", 3, -2), Function("BoundedReLu", 3, 0)),
        (Function("BoundedReLu", 6, 4), Function("BoundedReLu", 3, 0), Function("BoundedReLu", 4, 4)),
        (Function("BoundedReLu", 6, 0), Function("Sigmoid"), Function("Sigmoid")),
        (Function("BoundedReLu", 0.5, 0), Function("Sigmoid"), None),
        (Function("Abs"), Function("Square"), Function("Square")),
        (Function("ReLu"), Function("Sqrt"), None),
        (Function("Abs"), Function("ReLu"), Function("ReLu")),
        (Function("ReLu"), Function("Abs"), Function("Abs")),
        (Function("Linear", 1, 0), Function("HardSwish"), Function("HardSwish")),
        (Function("HardSwish"), Function("Linear", 1, 0), Function("HardSwish")),
        (Function("ReLu"), Function("HardSwish"), None),
        (Function("ReLu"), Function("Elu", 1), Function("ReLu")),
        (Function("Linear", 2, 1), Function("Linear", 3, 4), Function("Linear", 6, 9)),
        (Function("LeakyReLu", 0.5), Function("LeakyReLu", 0.5), Function("LeakyReLu", 0.25)),
        (Function("LeakyReLu", 0.5), Function("LeakyReLu", -2), Function("LeakyReLu", -2)),
        (Function("Linear", 3, 0), Function("TanH", 2, 5), Function("TanH", 6, 5)),
        (Function("TanH", 2, 5), Function("Linear", 3, 0), Function("TanH", 2, 15)),
        (Function("Linear", 3, 1), Function("TanH", 2, 5), None),
        (Function("Sigmoid"), Function("ReLu"), None),
    ],
    ids=str,
)
def test_chains(outer: Function, inner: Function, one: Function | None) -> None:
    net = Net()
    root = net.activation(net.activation(net.input((1, 7)), *inner), *outer, name="outer")
    net.output(root)
    if one is None:
        reason = refusal(net.graph, "activation-chain")
        assert f"{outer} of layer 2 'outer' over {inner} of layer 1" in reason
        assert "is no one activation function of Float32" in reason
        return
    fused = fold(net.graph, "activation-chain")
    assert count(fused, "Activation") == 1
    assert function(fused, root) == one
    assert fused.nodes[root]["name"] == "outer"
    values = [-3, -1, -0.5, 0, 0.5, 3, 9]
    assert results(fused, values) == pytest.approx(results(net.graph, values), nan_ok=True, rel=1e-6)


def test_relu_under_a_bounded_relu() -> None:
    net = Net()
    net.output(net.activation(net.activation(net.input((1, 3)), "ReLu"), "BoundedReLu", 1, -1))
    assert results(fold(net.graph, "activation-chain"), [-3, 0.5, 9]) == [0, 0.5, 1]


def test_many_activations_become_one() -> None:
    net = Net()
    x = net.input((1, 3))
    for i in range(50):
        x = net.activation(x, "BoundedReLu", 100 - i, -50 + i)
    net.output(x)
    assert function(fold(net.graph, "activation-chain"), x) == ("BoundedReLu", 51, -1)


def test_a_clamp_meets_the_activation_below_it() -> None:
    net = Net()
    x = net.activation(net.input((1, 3)), "ReLu")
    root = net.binary("Minimum", net.binary("Maximum", x, net.constant([-1])), net.constant([6]))
    net.output(root)
    fused = fold(net.graph, "clamp", "activation-chain")
    assert function(fused, root) == ("BoundedReLu", 6, 0)
    assert len(fused) == 3


def test_a_bound_survives_over_a_fully_connected_layer() -> None:
    net = Net()
    full = net.fully_connected(net.input((1, 1)), np.full((1, 1), 9.0))
    root = net.activation(full, "BoundedReLu", 6, 0)
    net.output(root)
    fused = fe.fuse(net.graph, fe.load_rules("armnn"))
    assert function(fused, root) == ("BoundedReLu", 6, 0)
    assert evaluate(fused, {0: [[1]]})[0].item() == 6


def test_quantized_chains_keep_to_the_grid() -> None:
    """Clamps, whose bounds lie between the values of the grid, and every value of it."""
    for outer, inner in product([Function("ReLu"), Function("BoundedReLu", 0.77, -0.33)], repeat=2):
        net = Net(data_type="QAsymmS8")
        x = net.input((1, 3), quantization_scale=0.1, quantization_offset=-7)
        root = net.activation(net.activation(x, *inner), *outer)
        net.output(root)
        fused = fold(net.graph, "activation-chain")
        for three in ((np.arange(-128, 127) + 7) * 0.1).reshape(-1, 3).tolist():
            assert results(fused, three) == results(net.graph, three)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (Function("Linear", 2, 1), Function("Linear", 3, 4)),
        (Function("LeakyReLu", 0.5), Function("LeakyReLu", 0.5)),
        (Function("Square"), Function("Abs")),
        (Function("TanH", 1, 1), Function("Linear", 3, 0)),
    ],
    ids=str,
)
def test_what_rounds_on_the_way_is_for_floats(outer: Function, inner: Function) -> None:
    net = Net(data_type="QAsymmU8")
    net.output(net.activation(net.activation(net.input((1, 3), **GRID), *inner), *outer))
    assert "is no one activation function of QAsymmU8" in refusal(net.graph, "activation-chain")


def test_requantizing_activations_stay() -> None:
    """A ReLu from one grid to another does more than its function."""
    for key in (1, 2):
        net = Net(data_type="QAsymmU8")
        root = net.activation(net.activation(net.input((1, 3), **GRID), "ReLu"), "ReLu")
        net.output(root)
        other = replace(net.info(key), quantization_scale=0.05, quantization_offset=0)
        net.graph.nodes[key]["outputs"] = (other,)
        assert "scale 0.05 and offset 0" in refusal(net.graph, "activation-chain")


def test_one_scale_for_each_channel() -> None:
    net = Net()
    info = TensorInfo((1, 3), "QAsymmS8", quantization_scales=(1.0, 2.0, 3.0), quantization_dim=1)
    x = net.layer("Input", outputs=(info,), binding_id=0)
    net.graph.graph["inputs"] = (x,)
    net.output(net.activation(net.activation(x, "ReLu"), "ReLu"))
    assert "is QAsymmS8 with a quantization per axis" in refusal(net.graph, "activation-chain")


@pytest.mark.parametrize(
    ("outer", "inner", "reason"),
    [
        (Function("Linear", 1e30, 0), Function("Linear", 1e30, 0), "overflow in Float32"),
        (Function("Linear", 1e-30, 0), Function("Linear", 1e-20, 0), "underflow in Float32"),
        (Function("ReLu"), Function("BoundedReLu", float("nan"), 0), "a and b must be numbers"),
        (Function("BoundedReLu", float("inf"), 0), Function("ReLu"), "a and b must be numbers"),
    ],
)
def test_numbers_that_are_none(outer: Function, inner: Function, reason: str) -> None:
    net = Net()
    net.output(net.activation(net.activation(net.input((1, 3)), *inner), *outer))
    assert reason in refusal(net.graph, "activation-chain")


def test_a_function_of_a_release_to_come() -> None:
    net = Net()
    relu = net.activation(net.input((1, 3)), name="later")
    net.graph.nodes[relu]["params"] = net.graph.nodes[relu]["params"].with_(activationFunction=77)
    net.output(net.activation(relu, "Linear", 1, 0))
    assert refusal(net.graph, "activation-chain") == "layer 1 'later' has the unknown activation function 77"


def test_chain_of_other_layers() -> None:
    net = Net()
    relu = net.activation(net.input((1, 3)))
    with pytest.raises(Refused, match=r"the match holds Activation$"):
        find_fold("activation-chain").check(Workspace(net.graph), Match(relu, (relu,), (), (), (), ()))


def test_an_inner_activation_that_others_read() -> None:
    net = Net()
    relu = net.activation(net.input((1, 3)))
    net.output(net.activation(relu))
    net.output(relu)
    assert "is an output of the network too" in refusal(net.graph, "activation-chain")


# noop-activation


def single(name: str, a: float = 0, b: float = 0, *, data_type: str = "Float32", **grid: Any) -> Net:
    """A Square, which nothing here folds, and over it an Activation."""
    net = Net(data_type=data_type)
    square = net.activation(net.input((1, 3), **grid), "Square", name="square")
    net.output(net.activation(square, name, a, b, name="act"))
    return net


def scale(highest: float, offset: int = 0) -> dict[str, Any]:
    """The grid of an unsigned byte whose highest value is ``highest``, as a converter writes it."""
    return {"quantization_scale": float(np.float32(highest / (255 - offset))), "quantization_offset": offset}


U8 = {"data_type": "QAsymmU8"}
GONE = [
    (Function("Linear", 1, 0), {}),
    (Function("Linear", 1, 0), {"data_type": "Float16"}),
    (Function("Linear", 1, 0), {**U8, **GRID}),
    (Function("ReLu"), {**U8, **scale(3)}),
    (Function("ReLu"), {"data_type": "QAsymmS8", "quantization_scale": 0.1, "quantization_offset": -128}),
    (Function("BoundedReLu", 6, 0), {**U8, **scale(6)}),
    (Function("BoundedReLu", 6, 0), {**U8, **scale(3)}),
    (Function("BoundedReLu", 6, 0), {**U8, **scale(6.01)}),
    (Function("BoundedReLu", 6, -6), {**U8, **scale(5, 100)}),
    (Function("Abs"), {**U8, **scale(3)}),
    (Function("LeakyReLu", 0.1), {**U8, **scale(3)}),
    (Function("Elu", 1), {**U8, **scale(3)}),
]
KEPT = [
    (Function("ReLu"), {}),
    (Function("Linear", 1, 1), {}),
    (Function("Linear", 2, 0), {}),
    (Function("BoundedReLu", 6, 0), {"data_type": "Float16"}),
    (Function("ReLu"), {**U8, **GRID}),
    (Function("ReLu"), {"data_type": "QSymmS16", "quantization_scale": 0.1}),
    (Function("BoundedReLu", 6, 0), {**U8, **scale(6.1)}),
    (Function("BoundedReLu", 6, 0.1), {**U8, **scale(6)}),
    (Function("Abs"), {**U8, **GRID}),
    (Function("Sigmoid"), {**U8, **scale(1)}),
]


@pytest.mark.parametrize(("kind", "options"), GONE, ids=str)
def test_gone(kind: Function, options: dict[str, Any]) -> None:
    net = single(*kind, **options)
    fused = fold(net.graph, "noop-activation")
    assert [node["name"] for node in fused.nodes.values()] == ["input_0", "square", "output_3"]
    if "quantization_scale" in options:
        low, high = np.iinfo(net.info(0).dtype).min, np.iinfo(net.info(0).dtype).max
        steps = np.arange(low, high + 1) - options.get("quantization_offset", 0)
        values = options["quantization_scale"] * steps[: len(steps) // 3 * 3].reshape(-1, 3)
        for three in [*values.tolist(), values[-1].tolist()]:
            assert results(fused, three) == pytest.approx(results(net.graph, three), rel=1e-6)


@pytest.mark.parametrize(("kind", "options"), KEPT, ids=str)
def test_kept(kind: Function, options: dict[str, Any]) -> None:
    net = single(*kind, **options)
    fused = fe.fuse(net.graph, rule("noop-activation"))
    assert fe.equal(net.graph, fused)
    assert not fused.graph["refusals"]  # an Activation that does something is no news
    with pytest.raises(Inapplicable) as caught:
        find_fold("noop-activation").check(Workspace(net.graph), Match(2, (2,), (), (), (), ()))
    assert f"layer 2 'act' is {kind}, which changes values of" in caught.value.reason


def _requantize(net: Net) -> None:
    net.graph.nodes[2]["outputs"] = (replace(net.info(2), quantization_scale=0.05),)


def _retype(net: Net) -> None:
    net.graph.nodes[2]["outputs"] = (replace(net.info(2), data_type="QAsymmS8"),)


def _reshape(net: Net) -> None:
    net.graph.nodes[2]["outputs"] = (replace(net.info(2), shape=(3, 1)),)


def _override(net: Net) -> None:
    net.graph.nodes[2]["overrides"] = FrozenDict({0: (True, TensorInfo((9,)))})  # type: ignore[dict-item]


def _no_info(net: Net) -> None:
    net.graph.nodes[1]["outputs"] = (None,)


def _no_descriptor(net: Net) -> None:
    net.graph.nodes[2]["params"] = None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_requantize, "gives scale 0.05 and offset 0"),
        (_retype, "gives QAsymmS8"),
        (_reshape, "gives shape (3, 1)"),
        (_override, "overrides the TensorInfo"),
        (_no_info, "has no TensorInfo"),
        (_no_descriptor, "has no descriptor"),
    ],
)
def test_odd_activations(change: Callable[[Net], None], reason: str) -> None:
    net = single("ReLu", **U8, **scale(6))
    change(net)
    with pytest.raises(Refused) as caught:
        find_fold("noop-activation").check(Workspace(net.graph), Match(2, (2,), (), (), (), ()))
    assert reason in caught.value.reason


def test_an_input_must_not_come_to_feed_an_output() -> None:
    net = Net()
    net.output(net.activation(net.input((1, 3)), "Linear", 1, 0))
    assert "nothing is left between" in refusal(net.graph, "noop-activation")


def test_every_reader_of_what_went_reads_what_it_read() -> None:
    net = Net()
    linear = net.activation(net.activation(net.input((1, 3)), "Square"), "Linear", 1, 0)
    total = net.addition(linear, linear)
    net.output(total)
    net.output(net.activation(linear, "TanH", 1, 1))
    fused = fold(net.graph, "noop-activation")
    assert linear not in fused
    assert fused.edges[1, total]["slots"] == ((0, 0), (0, 1))
    x = {0: [[1, 2, 3]]}
    before, after = evaluate(net.graph, x), evaluate(fused, x)
    assert {key: value.tolist() for key, value in after.items()} == {key: v.tolist() for key, v in before.items()}
