"""constants: moved bytes, dequantized and computed values, per-axis quantization, and every refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict, Network
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net
from tests.support.structural import evaluate, fold, reason, untouched

S8 = {"quantization_scale": 0.5, "quantization_offset": 2}


def over(kind: str, *constants: Tensor, out: Any = None, **params: Any) -> Net:
    """Constants, a layer over them, an Addition with the Input so that it is used."""
    net = Net()
    given = [net.constant(tensor, name=f"c{number}") for number, tensor in enumerate(constants)]
    outputs = None if out is None else (out,)
    net.output(net.layer(kind, *given, outputs=outputs, params=params, name="made"), name="out")
    return net


def made(net: Net) -> Tensor:
    """The tensor of the Constant that the layer became; all else is gone, its name and key are kept."""
    key = next(key for key, node in net.graph.nodes.items() if node["name"] == "made")
    fused = fold(net.graph, "constants")
    assert [node["type"] for node in fused.nodes.values()] == ["Constant", "Output"]
    node = fused.nodes[key]
    assert node["name"] == "made"
    tensor: Tensor = node["constants"]["input"]
    assert node["outputs"][0].shape == tensor.info.shape
    assert node["outputs"][0].quantization == tensor.info.quantization
    return tensor


# Moving


@pytest.mark.parametrize("data_type", ["Float16", "Float32", "Signed32", "QAsymmU8", "QSymmS16", "Boolean", "Signed64"])
def test_moved_bytes(data_type: str) -> None:
    values = np.arange(24).reshape(2, 3, 4)
    tensor = Tensor.of(values % 2 if data_type == "Boolean" else values, data_type)
    for kind, params, out in (
        ("Permute", {"dimMappings": (1, 2, 0)}, (4, 2, 3)),
        ("Transpose", {"dimMappings": (1, 2, 0)}, (3, 4, 2)),
        ("Reshape", {"targetShape": (6, 4)}, (6, 4)),
    ):
        net = over(kind, tensor, out=out, **params)
        expected = evaluate(net.graph, {})[0, "out"]
        found = made(net)
        assert found.info.data_type == data_type
        np.testing.assert_array_equal(found.data, expected)
    assert made(over("Permute", tensor, out=(4, 2, 3), dimMappings=(1, 2, 0))).data[3, 1, 2] == tensor.data[1, 2, 3]


def test_numbers_that_are_none_move_as_they_are() -> None:
    tensor = Tensor.of([[np.nan, np.inf], [-0.0, 1.0]])
    found = made(over("Transpose", tensor, out=(2, 2), dimMappings=(1, 0)))
    assert found.data.T.tobytes() == tensor.data.tobytes() or np.array_equal(
        found.data.T.view(np.uint32), tensor.data.view(np.uint32)
    )


@pytest.mark.parametrize(
    ("kind", "params", "out", "axis"),
    [
        ("Permute", {"dimMappings": (1, 2, 0)}, (4, 2, 3), 1),
        ("Transpose", {"dimMappings": (1, 2, 0)}, (3, 4, 2), 2),
        ("Reshape", {"targetShape": (2, 12)}, (2, 12), 0),
        ("Reshape", {"targetShape": (1, 2, 12)}, (1, 2, 12), 1),
    ],
)
def test_the_quantized_axis_goes_along(kind: str, params: dict[str, Any], out: Any, axis: int) -> None:
    tensor = Tensor.of(np.arange(24).reshape(2, 3, 4), "QSymmS8", quantization_scales=(0.5, 0.25), quantization_dim=0)
    net = over(kind, tensor, out=out, **params)
    found = made(net)
    assert (found.info.quantization_scales, found.info.quantization_dim) == ((0.5, 0.25), axis)
    assert found.info.shape[axis] == 2


def test_a_quantized_axis_that_dissolves_is_refused() -> None:
    tensor = Tensor.of(
        np.arange(24).reshape(2, 3, 4), "QSymmS8", quantization_scales=(0.5, 0.25, 1), quantization_dim=1
    )
    words = reason(over("Reshape", tensor, out=(6, 4), targetShape=(6, 4)).graph, "constants")
    assert "quantized along axis 1 of (2, 3, 4), which is no axis of (6, 4)" in words


# Computing


def test_dequantized_with_scale_and_offset() -> None:
    tensor = Tensor.of([[0, 2], [255, 3]], "QAsymmU8", **S8)
    found = made(over("Dequantize", tensor, out=TensorInfo((2, 2))))
    assert found.data.tolist() == [[-1, 0], [126.5, 0.5]]
    assert found.data.dtype == np.float32


def test_dequantized_per_axis() -> None:
    tensor = Tensor.of([[1, 2], [3, -4]], "QSymmS8", quantization_scales=(0.5, 0.25), quantization_dim=1)
    assert made(over("Dequantize", tensor, out=TensorInfo((2, 2)))).data.tolist() == [[0.5, 0.5], [1.5, -1]]


def test_dequantized_halves() -> None:
    tensor = Tensor.of([0.1, 65504, -0.0], "Float16")
    assert made(over("Dequantize", tensor, out=TensorInfo((3,)))).data.tolist() == [float(np.float16(0.1)), 65504, 0]


def test_dequantized_to_halves() -> None:
    tensor = Tensor.of([3], "QAsymmU8", quantization_scale=0.1)
    found = made(over("Dequantize", tensor, out=TensorInfo((1,), "Float16")))
    assert found.data.dtype == np.float16
    assert found.data[0] == np.float16(3 * np.float64(np.float32(0.1)))


@pytest.mark.parametrize(
    ("given", "data_type", "expected"),
    [
        (Tensor.of([1.9, -1.9, 0.0]), "Signed32", [1, -1, 0]),
        (Tensor.of([2**24 + 1, -5], "Signed32"), "Float32", [2.0**24, -5]),
        (Tensor.of([2**40 + 1, -5], "Signed64"), "Signed64", [2**40 + 1, -5]),
        (Tensor.of([7], "Signed32"), "Signed64", [7]),
        (Tensor.of([1.0 + 2**-11], "Float32"), "Float16", [1.0]),
    ],
)
def test_cast(given: Tensor, data_type: str, expected: list[float]) -> None:
    found = made(over("Cast", given, out=TensorInfo(given.info.shape, data_type)))
    assert found.info.data_type == data_type
    assert found.data.tolist() == expected


@pytest.mark.parametrize(
    ("given", "data_type", "words"),
    [
        (Tensor.of([2.0**31]), "Signed32", "overflow in Signed32"),
        (Tensor.of([1e5]), "Float16", "overflow in Float16"),
        (Tensor.of([np.nan]), "Signed32", "overflow in Signed32"),
        (Tensor.of([2**31], "Signed64"), "Signed32", "overflow in Signed32"),
        (Tensor.of([1], "QAsymmU8"), "Float32", "casts QAsymmU8 to Float32"),
    ],
)
def test_cast_refused(given: Tensor, data_type: str, words: str) -> None:
    assert words in reason(over("Cast", given, out=TensorInfo((1,), data_type)).graph, "constants")


def both(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """A layer in its two spellings."""
    new = {"Addition": "Add", "Subtraction": "Sub", "Multiplication": "Mul", "Division": "Div"}.get(kind, kind)
    return [(kind, {}), ("ElementwiseBinary", {"operation": new})]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Addition", [1.25, 2.5]),
        ("Subtraction", [0.75, -3.5]),
        ("Multiplication", [0.25, -1.5]),
        ("Division", [4, float(np.float32(-1 / 6))]),
        ("Minimum", [0.25, -0.5]),
        ("Maximum", [1, 3]),
    ],
)
def test_elementwise(kind: str, expected: list[float]) -> None:
    """x = [1, -0.5], y = [0.25, 3]; Subtraction and Division in the order of their slots."""
    for name, params in both(kind):
        net = over(name, Tensor.of([1.0, -0.5]), Tensor.of([0.25, 3.0]), **params)
        np.testing.assert_array_equal(evaluate(net.graph, {})[0, "out"], np.float32(expected))
        assert made(net).data.tolist() == expected


def test_elementwise_in_halves_is_stored_in_halves() -> None:
    found = made(over("Addition", Tensor.of([1.0], "Float16"), Tensor.of([2**-11], "Float16")))
    assert found.data.dtype == np.float16
    assert found.data.tolist() == [1]
    words = reason(over("Multiplication", *[Tensor.of([300.0], "Float16")] * 2).graph, "constants")
    assert "overflow in Float16: layer 2 'made' would hold 90000" in words


def test_elementwise_broadcasts() -> None:
    net = over("Addition", Tensor.of([[1.0], [2.0]]), Tensor.of([10.0, 20.0, 30.0]), out=(2, 3))
    assert made(net).data.tolist() == [[11, 21, 31], [12, 22, 32]]


def test_elementwise_of_quantized_goes_through_real_numbers() -> None:
    """0.5 * (9 - 2) + 0.25 * (3 + 1) = 4.5; in steps of 0.1 from -7: 38. 100 and more saturates at 127."""
    x = Tensor.of([9, 127], "QAsymmS8", **S8)
    y = Tensor.of([3, 127], "QAsymmS8", quantization_scale=0.25, quantization_offset=-1)
    out = TensorInfo((2,), "QAsymmS8", 0.1, -7)
    assert made(over("Addition", x, y, out=out)).data.tolist() == [38, 127]


def test_halves_of_a_step_round_away_from_zero() -> None:
    x = Tensor.of([1, -1, 3, -3], "QAsymmS8", quantization_scale=0.5)
    y = Tensor.of([0], "QAsymmS8", quantization_scale=0.5)
    out = TensorInfo((4,), "QAsymmS8", 1.0)
    assert made(over("Addition", x, y, out=out)).data.tolist() == [1, -1, 2, -2]


def test_elementwise_of_integers() -> None:
    x, y = Tensor.of([7, -7, 5], "Signed32"), Tensor.of([2, 2, -1], "Signed32")
    assert made(over("Division", x, y)).data.tolist() == [3, -3, -5]
    assert made(over("Multiplication", x, y)).data.tolist() == [14, -14, -5]
    zero = Tensor.of([0, 1, 1], "Signed32")
    assert "divided by zero" in reason(over("Division", x, zero).graph, "constants")
    large = Tensor.of([2**31 - 1], "Signed32")
    assert "overflow in Signed32" in reason(over("Addition", large, large).graph, "constants")
    assert "on Signed32 is not computed" in reason(
        over("ElementwiseBinary", x, y, operation="Power").graph, "constants"
    )


@pytest.mark.parametrize(
    ("kind", "params", "expected"),
    [
        ("Abs", {}, [4, 0.25]),
        ("ElementwiseUnary", {"operation": "Neg"}, [-4, 0.25]),
        ("ElementwiseUnary", {"operation": "Ceil"}, [4, 0]),
        ("ElementwiseUnary", {"operation": "Exp"}, np.exp([4, -0.25])),
        ("Floor", {}, [4, -1]),
        ("Activation", {"activationFunction": "ReLu"}, [4, 0]),
        ("Activation", {"activationFunction": "BoundedReLu", "a": 1.0, "b": -0.125}, [1, -0.125]),
        ("Activation", {"activationFunction": "Linear", "a": 2.0, "b": 1.0}, [9, 0.5]),
        ("Activation", {"activationFunction": "LeakyReLu", "a": 0.5}, [4, -0.125]),
        ("Activation", {"activationFunction": "Sigmoid"}, 1 / (1 + np.exp([-4, 0.25]))),
        ("Activation", {"activationFunction": "TanH", "a": 2.0, "b": 0.5}, 2 * np.tanh([2, -0.125])),
        ("Activation", {"activationFunction": "Square"}, [16, 0.0625]),
        ("Activation", {"activationFunction": "SoftReLu"}, np.log(1 + np.exp([4, -0.25]))),
        ("Activation", {"activationFunction": "Elu", "a": 2.0}, [4, 2 * np.expm1(-0.25)]),
        ("Activation", {"activationFunction": "HardSwish"}, [4, -0.25 * 2.75 / 6]),
    ],
)
def test_one_operand(kind: str, params: dict[str, Any], expected: Any) -> None:
    found = made(over(kind, Tensor.of([4.0, -0.25]), **params))
    np.testing.assert_array_equal(found.data, np.float32(expected))


@pytest.mark.parametrize(
    ("kind", "params", "value", "words"),
    [
        ("ElementwiseUnary", {"operation": "Sqrt"}, -1.0, "NaN in Float32"),
        ("Rsqrt", {}, 0.0, "overflow in Float32"),
        ("ElementwiseUnary", {"operation": "Log"}, 0.0, "overflow in Float32"),
        ("ElementwiseUnary", {"operation": "LogicalNot"}, 0.0, "LogicalNot of layer 1 'made' is not computed"),
        ("Activation", {"activationFunction": "Gelu"}, 0.0, "Gelu of layer 1 'made' is not computed"),
    ],
)
def test_one_operand_refused(kind: str, params: dict[str, Any], value: float, words: str) -> None:
    assert words in reason(over(kind, Tensor.of([value]), **params).graph, "constants")


# What else is refused, and what stays


def test_only_some_constants_are_no_matter() -> None:
    net = Net()
    net.output(net.addition(net.input((2,)), net.constant([1.0, 2.0])))
    untouched(net.graph, "constants")


def test_a_shared_constant_stays_for_the_others() -> None:
    net = Net()
    c = net.constant([[1.0, 2.0]], name="c")
    net.output(net.reshape(c, (2,), name="made"))
    net.output(net.layer("Floor", net.addition(c, net.input((1, 2)))))
    fused = fold(net.graph, "constants")
    assert [node["name"] for node in fused.nodes.values() if node["type"] == "Constant"] == ["c", "made"]


def test_a_chain_of_layers_over_constants_is_one_constant() -> None:
    net = Net()
    c = net.layer("Dequantize", net.constant([[4, 6]], "QAsymmS8", **S8), outputs=(TensorInfo((1, 2)),))
    top = net.multiplication(net.reshape(net.transpose(c, (1, 0)), (2,)), net.constant([2.0]))
    net.output(net.addition(net.input((2,)), top))
    fused = fold(net.graph, "constants")
    assert fused.nodes[top]["constants"]["input"].data.tolist() == [2, 4]
    assert len(fused) == 4


def test_a_result_much_larger_than_its_operands_is_refused() -> None:
    x, y = Tensor.of(np.ones((400, 1))), Tensor.of(np.ones((1, 400)))
    words = reason(over("Addition", x, y, out=(400, 400)).graph, "constants")
    assert "would be a Constant of 160000 elements" in words


def test_a_bomb_is_refused_before_it_is_made() -> None:
    x, y = Tensor.of(np.ones((60000, 1, 1))), Tensor.of(np.ones((1, 60000, 1)))
    info = TensorInfo((60000, 60000, 65535))
    assert "many more than it is made from" in reason(over("Addition", x, y, out=info).graph, "constants")


@pytest.mark.parametrize("kind", ["Transpose", "Dequantize", "Reshape"])
def test_possible_bfloat16_is_left_alone(kind: str) -> None:
    tensor = Tensor(TensorInfo((2, 2), "Float16"), np.ones((2, 2), "f2"), untagged=True)
    params = {"Transpose": {"dimMappings": (1, 0)}, "Reshape": {"targetShape": (2, 2)}, "Dequantize": {}}[kind]
    net = over(kind, tensor, out=TensorInfo((2, 2)) if kind == "Dequantize" else None, **params)
    assert "Arm NN 20.08 stores BFloat16 so" in reason(net.graph, "constants")


def test_types_that_do_not_fit() -> None:
    x, y = Tensor.of([1.0]), Tensor.of([1.0], "Float16")
    assert "makes Float32 of Float16 and Float32" in reason(over("Addition", x, y).graph, "constants")
    bad = over(
        "Reshape", Tensor.of([1], "QAsymmU8", **S8), out=TensorInfo((1, 1), "QAsymmU8", 0.25), targetShape=(1, 1)
    )
    assert "of another quantization" in reason(bad.graph, "constants")
    assert "makes Float32 of Float32" in reason(over("Dequantize", x).graph, "constants")
    assert "makes Signed32 of" in reason(
        over("Dequantize", Tensor.of([1], "QAsymmU8", **S8), out=TensorInfo((1,), "Signed32")).graph, "constants"
    )
    assert "do not broadcast" in reason(over("Addition", x, x, out=(3,)).graph, "constants")
    wrong = over("Abs", x, out=(3,))
    assert "gives shape (3,) for a Constant of (1,)" in reason(wrong.graph, "constants")


def test_a_constant_that_lies_about_itself() -> None:
    net = over("Reshape", Tensor.of([1.0, 2.0]), out=(2, 1), targetShape=(2, 1))
    net.graph.nodes[0]["outputs"] = (TensorInfo((1, 2)),)
    assert "other shape, type or quantization than its output says" in reason(net.graph, "constants")


def weights_behind(*kinds: str) -> tuple[Network, np.ndarray[Any, Any]]:
    """A convolution whose weights pass through layers before they arrive as [2, 1, 1, 3]."""
    net = Net()
    x = net.input((1, 2, 2, 3))
    values = np.arange(6).reshape(3, 2) if "Transpose" in kinds else np.arange(6).reshape(2, 3)
    at = net.constant(values, "Float16" if "Dequantize" in kinds else "Float32", name="w")
    if "Dequantize" in kinds:
        at = net.layer("Dequantize", at, outputs=(TensorInfo(values.shape),))
    if "Transpose" in kinds:
        at = net.transpose(at, (1, 0))
    at = net.reshape(at, (2, 1, 1, 3))
    net.output(net.conv(x, at, [0.5, 0.25]))
    weights = values.T if "Transpose" in kinds else values
    return net.graph, weights.reshape(2, 1, 1, 3)


@pytest.mark.parametrize("kinds", [(), ("Dequantize",), ("Transpose",), ("Dequantize", "Transpose")])
def test_weights_become_bare(kinds: tuple[str, ...]) -> None:
    graph, weights = weights_behind(*kinds)
    fused = fold(graph, "constants")
    conv = next(key for key, node in fused.nodes.items() if node["type"] == "Convolution2d")
    source = next(u for u, _, data in fused.in_edges(conv, data=True) if (0, 1) in data["slots"])
    assert fused.nodes[source]["constants"]["input"].data.tolist() == weights.tolist()


def per_channel(versions: tuple[int, int, int], *, depthwise: bool = False, size: int = 3) -> Network:
    """A sum with one value per channel, reshaped to rank 4, with or without a depthwise convolution below it."""
    net = Net(feature_versions=versions, form="member")
    x = net.input((1, 3, 3, 3))
    if depthwise:
        x = net.depthwise(x, np.ones((1, 3, 1, 1)))
    net.output(net.addition(x, net.reshape(net.constant(np.arange(1, 1 + size)), (1, 1, 1, size), name="c")))
    return net.graph


def test_a_layout_scheme_that_would_permute_the_new_constant_becomes_1() -> None:
    """Releases from 22.05 on permute Constants of rank 4 where it is 0, and reject those of another rank."""
    assert fold(per_channel((1, 0, 0)), "constants").graph["feature_versions"] == (1, 1, 0)
    assert fold(per_channel((1, 1, 1)), "constants").graph["feature_versions"] == (1, 1, 1)
    assert fold(per_channel((1, 0, 0), size=1), "constants").graph["feature_versions"] == (1, 0, 0)


def test_the_layout_scheme_of_depthwise_weights_stays_and_is_told() -> None:
    fused = fold(per_channel((1, 0, 0), depthwise=True), "constants")
    assert fused.graph["feature_versions"] == (1, 0, 0)
    (warning,) = fused.graph["warnings"]
    assert "'c' becomes a Constant of rank 4 in a network of weightsLayoutScheme 0" in warning
    carried = fe.convert(fused, "23.08")  # which has it written as it is meant
    assert carried.graph["feature_versions"][1] == 1
    assert not any("weightsLayoutScheme" in text for text in carried.graph.get("warnings", ()))
    assert warning in fe.convert(fused, "20.08").graph["warnings"]
    assert fold(per_channel((1, 1, 0), depthwise=True), "constants").graph["warnings"] == ()


def test_what_arm_nn_takes_as_constant_stays_so() -> None:
    net = over("Reshape", Tensor.of([1.0, 2.0]), out=(2, 1), targetShape=(2, 1))
    node = net.graph.nodes[0]
    tensor = node["constants"]["input"]
    node["outputs"] = (replace(node["outputs"][0], is_constant=True),)
    node["constants"] = FrozenDict(input=Tensor(replace(tensor.info, is_constant=True), tensor.data))
    fused = fold(net.graph, "constants")
    assert fused.nodes[1]["outputs"][0].is_constant
    assert fused.nodes[1]["constants"]["input"].info.is_constant


def test_a_value_in_the_middle_that_float32_decides_is_left_to_the_engine() -> None:
    """0.3 / 0.2 is 1.5 in float32, and 1.49999999 of the same two numbers in float64."""
    net = Net(data_type="QAsymmS8")
    values = Tensor.of([-7, -4, 0], "QAsymmS8", quantization_scale=0.2, quantization_offset=-5)
    clamp = net.activation(net.constant(values, name="c"), "BoundedReLu", 0.5, 0.3, name="clamp")
    net.output(net.binary("Maximum", net.input((3,), quantization_scale=0.2, quantization_offset=-5), clamp))
    assert "lies in the middle between two numbers of QAsymmS8" in reason(net.graph, "constants")
