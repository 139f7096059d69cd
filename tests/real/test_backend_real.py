"""A backend of real Arm NN 23.08 runs opaque layers: same bits as the layers they were made of on CpuRef."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.backend import SOURCES, Arrays, Backend, Ran, Rejected, inputs_of
from tests.support.nets import Net
from tests.support.real_armnn import RealArmnn

NPU = fe.load_rules("npu")
"""The shipped rules: every one of them makes layers that the backend runs."""

FUNCTIONS = {
    "ReLu": (0.0, 0.0),
    "BoundedReLu": (0.75, -0.25),
    "LeakyReLu": (0.1, 0.0),
    "Linear": (0.5, 0.25),
    "Abs": (0.0, 0.0),
    "Square": (0.0, 0.0),
    "Sqrt": (0.0, 0.0),
    "Sigmoid": (0.0, 0.0),
    "TanH": (1.5, 0.5),
    "Elu": (0.5, 0.0),
    "HardSwish": (0.0, 0.0),
}
"""Arm NN's activations with an ``a`` and ``b``; of SoftReLu there is a test of its own."""

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without bias": {"bias": False},
    "stride": {"strideX": 2, "strideY": 3},
    "padding": {"padLeft": 1, "padRight": 3, "padTop": 2, "padBottom": 0},
    "dilation": {"dilationX": 2, "dilationY": 3},
    "everything": {"strideX": 2, "padLeft": 2, "padTop": 1, "padBottom": 3, "dilationX": 3, "dilationY": 2},
}
"""Parameters of convolutions, as options of `Net.conv`; ``bias`` is left out where it is False."""

DTYPE = {"QAsymmU8": "u1", "QAsymmS8": "i1"}


def stand_ins(graph: Network) -> list[int]:
    return [key for key, node in graph.nodes.items() if node["type"] == "StandIn"]


def same_bits(left: Arrays, right: Arrays) -> None:
    assert left.keys() == right.keys()
    for key, values in left.items():
        assert right[key].shape == values.shape
        if right[key].tobytes() != values.tobytes():
            np.testing.assert_array_equal(right[key], values, f"output {key}")
            pytest.fail(f"output {key}: equal values of other bits")


def checked(
    backend: Backend,
    graph: Network,
    rules: Sequence[fe.FusingRule] = NPU,
    *,
    layers: int,
    inputs: Mapping[int, npt.NDArray[Any]] | None = None,
    **options: object,
) -> Ran:
    """Fuse and run: ``layers`` StandIns, all claimed, compiled and run once, outputs to the bit those of CpuRef."""
    fused = fe.fuse(graph, rules)
    names = sorted(fused.nodes[key]["name"] for key in stand_ins(fused))
    assert len(names) == layers
    data = inputs_of(graph) if inputs is None else inputs
    plain = backend.run(fe.dumps(graph), data, ["CpuRef"])
    assert not plain.events
    ran = backend.run(fe.dumps(fused), data, **options)
    same_bits(plain.outputs, ran.outputs)
    assert sorted(event["name"] for event in ran.of("compiled")) == names
    assert sorted(event["name"] for event in ran.of("ran")) == names
    assert not ran.of("rejected")
    return ran


def random(*shape: int, seed: int = 3) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def integers(*shape: int, dtype: str, seed: int = 3) -> npt.NDArray[Any]:
    bounds = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(bounds.min, bounds.max, shape, dtype, endpoint=True)


def picture(layout: str, height: int, width: int, channels: int) -> tuple[int, ...]:
    return (2, height, width, channels) if layout == "NHWC" else (2, channels, height, width)


def kernel(layout: str, outputs: int, inputs: int) -> tuple[int, ...]:
    return (outputs, 2, 3, inputs) if layout == "NHWC" else (outputs, inputs, 2, 3)


# Convolutions


@pytest.mark.parametrize("function", ["ReLu", "BoundedReLu"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_convolutions(backend: Backend, layout: str, case: str, function: str) -> None:
    net = Net(layout=layout)
    params = dict(CASES[case])
    bias = random(4) if params.pop("bias", True) else None
    x = net.input(picture(layout, 9, 11, 3))
    conv = net.conv(x, random(*kernel(layout, 4, 3)), bias, **params)
    net.output(net.activation(conv, function, *FUNCTIONS[function]))
    ran = checked(backend, net.graph, layers=1)
    (compiled,) = ran.of("compiled")
    assert compiled["layers"] == ["Activation", "Convolution2d"]
    assert compiled["constants"] == (2 if bias is None else 3)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_activations(backend: Backend, function: str) -> None:
    net = Net()
    conv = net.conv(net.input((1, 6, 6, 3)), random(4, 3, 3, 3), random(4))
    net.output(net.activation(conv, function, *FUNCTIONS[function]))
    checked(backend, net.graph, layers=1)


def test_what_arm_nn_mistakes_as_a_layer_is_right_in_an_opaque_one(backend: Backend) -> None:
    """Arm NN reads SoftReLu, ln(1 + e^x), as Sigmoid; the recipe says what was meant."""
    net = Net()
    net.output(net.activation(net.addition(net.input((2, 8)), net.input((1, 8))), "SoftReLu"))
    data = inputs_of(net.graph)
    x = (data[0] + data[1]).astype(np.float64)
    plain = backend.run(fe.dumps(net.graph), data, ["CpuRef"]).outputs[0]
    fused = backend.run(fe.dumps(fe.fuse(net.graph, NPU)), data).outputs[0]
    np.testing.assert_allclose(plain, 1 / (1 + np.exp(-x)), rtol=1e-6)
    np.testing.assert_allclose(fused, np.log1p(np.exp(x)), rtol=1e-6)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_weights_that_are_members_in_files_of_older_releases(backend: Backend, layout: str) -> None:
    net = Net("current", (1, 0, 0), form="member", layout=layout)
    conv = net.conv(net.input(picture(layout, 6, 7, 3)), random(*kernel(layout, 4, 3)), random(4), strideX=2)
    # [M,I,H,W]: output channel i*M + m
    deep = net.depthwise(net.activation(conv, "ReLu"), random(2, 4, 2, 2), random(8), padTop=1)
    last = net.activation(deep, "BoundedReLu", 6.0)
    net.output(last)
    checked(backend, net.graph, layers=2)


def test_depthwise_convolution_with_a_multiplier(backend: Backend) -> None:
    net = Net()
    deep = net.depthwise(net.input((1, 6, 7, 3)), random(1, 2, 3, 6), random(6), dilationX=2, strideY=2, padLeft=1)
    net.output(net.activation(deep, "ReLu"))
    checked(backend, net.graph, layers=1)


@pytest.mark.parametrize("algorithm", ["Max", "Average"])
@pytest.mark.parametrize("method", ["Exclude", "IgnoreValue"])
def test_padding_and_pooling_in_one_layer(backend: Backend, algorithm: str, method: str) -> None:
    net = Net()
    pad = net.pad(net.input((1, 6, 7, 3)), [(0, 0), (1, 2), (2, 0), (0, 0)])
    act = net.activation(net.conv(pad, random(4, 2, 2, 3), random(4)), "ReLu")
    pool = net.pool(act, (3, 2), algorithm, stride=(2, 1), padTop=1, padLeft=1, padRight=1, paddingMethod=method)
    net.output(pool)
    ran = checked(backend, net.graph, layers=1)
    assert ran.of("compiled")[0]["layers"] == ["Pooling2d", "Activation", "Convolution2d", "Pad"]


# Quantized tensors


def quantized_conv(data_type: str, layout: str, *, per_axis: bool, bias: bool) -> Network:
    """conv with another scale on its output -> BoundedReLu, where some values saturate."""
    net = Net(layout=layout)
    middle = {"QAsymmU8": 128, "QAsymmS8": 0}[data_type]
    x = net.input(picture(layout, 7, 8, 3), data_type, quantization_scale=0.01, quantization_offset=middle + 7)
    scales = (0.02, 0.01, 0.03, 0.005)
    if per_axis:
        info = TensorInfo(kernel(layout, 4, 3), "QSymmS8", quantization_scales=scales, quantization_dim=0)
        bias_info = TensorInfo((4,), "Signed32", quantization_scales=tuple(np.float32(0.01) * s for s in scales))
    else:
        info = TensorInfo(kernel(layout, 4, 3), data_type, 0.02, middle - 3)
        bias_info = TensorInfo((4,), "Signed32", 0.01 * 0.02)
    dtype = DTYPE.get(info.data_type, "i1")
    weights = net.constant(Tensor(info, integers(*info.shape, dtype=dtype)))
    held = net.constant(Tensor(bias_info, np.array([5000, -8000, 200, 0], "<i4")))
    output = TensorInfo((), data_type, 0.11, middle - 20)
    shape = picture(layout, 6, 4, 4)
    conv = net.conv(
        x,
        weights,
        held if bias else None,
        output=replace(output, shape=shape),
        padTop=1,
        padLeft=1,
        strideX=2,
        dilationY=2,
    )
    net.output(net.activation(conv, "BoundedReLu", 6.0, -3.0))
    return net.graph


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("per_axis", [True, False])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("data_type", DTYPE)
def test_quantized_convolutions(backend: Backend, data_type: str, layout: str, per_axis: bool, bias: bool) -> None:
    graph = quantized_conv(data_type, layout, per_axis=per_axis, bias=bias)
    ran = checked(backend, graph, layers=1)
    values = next(iter(ran.outputs.values()))
    assert len(np.unique(values)) > 20  # the clamp leaves something to compare


@pytest.mark.parametrize("data_type", DTYPE)
def test_quantized_fully_connected_and_addition(backend: Backend, data_type: str) -> None:
    net = Net()
    x = net.input((2, 6), data_type, quantization_scale=0.05, quantization_offset=3)
    weights = net.constant(Tensor(TensorInfo((5, 6), data_type, 0.03, 1), integers(5, 6, dtype=DTYPE[data_type])))
    bias = net.constant(Tensor(TensorInfo((5,), "Signed32", 0.0015), np.arange(-200, 300, 100, "<i4")))
    info = TensorInfo((2, 5), data_type, 0.2, 5)
    full = net.fully_connected(x, weights, bias, transposeWeightsMatrix=True, output=info)
    y = net.input((1, 5), data_type, quantization_scale=0.1, quantization_offset=-4)
    added = net.addition(net.activation(full, "ReLu"), y, output=replace(info, quantization_scale=0.3))
    net.output(net.activation(added, "BoundedReLu", 9.0, -6.0))
    checked(backend, net.graph, layers=2)


# Fully connected, addition


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("form", ["constant", "member"])
def test_fully_connected(backend: Backend, form: str, transposed: bool, bias: bool) -> None:
    net = Net("current", (1, 1, 1) if form == "constant" else (1, 0, 0), form=form)
    weights = random(4, 6) if transposed else random(6, 4)
    x = net.input((3, 1, 2, 3))  # rows of six numbers
    full = net.fully_connected(
        x, weights, random(4) if bias else None, transposeWeightsMatrix=transposed, output=TensorInfo((3, 4))
    )
    net.output(net.activation(full, "BoundedReLu", 1.0, -1.0))
    checked(backend, net.graph, layers=1)


@pytest.mark.parametrize("spelling", ["old", "new"])
@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (1, 3, 1)), ((1, 1, 4), (2, 3, 1))])
def test_additions(backend: Backend, shapes: tuple[tuple[int, ...], tuple[int, ...]], spelling: str) -> None:
    net = Net(spelling=spelling)
    x, y = (net.input(shape) for shape in shapes)
    net.output(net.activation(net.addition(x, y), "ReLu"))
    checked(backend, net.graph, layers=1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_zeros_infinities_and_no_numbers(backend: Backend, function: str) -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, 3e38, -1.0], np.float32)
    net = Net()
    x, y = net.input((8, 1)), net.input((1, 8))
    net.output(net.activation(net.addition(x, y), function, *FUNCTIONS[function]))
    checked(backend, net.graph, layers=1, inputs={0: special.reshape(8, 1), 1: special.reshape(1, 8)})


# Constants, codes, several layers


def two_kinds() -> Network:
    """conv -> ReLu and fully connected -> ReLu, with a layer for CpuRef before, between and after."""
    net = Net()
    x = net.layer("Floor", net.input((1, 4, 4, 2)), name="before")
    act = net.activation(net.conv(x, random(3, 2, 2, 2), random(3), name="conv"), "ReLu", name="one")
    flat = net.reshape(act, (1, 27), name="between")
    full = net.fully_connected(flat, random(27, 5), random(5), name="full")
    other = net.activation(full, "ReLu", name="two")
    net.output(net.layer("Softmax", other, params={"beta": 1.0}, name="after"))
    return net.graph


def test_two_kinds_of_layer_and_their_codes(backend: Backend) -> None:
    data = {0: random(1, 4, 4, 2) * 5}
    ran = checked(backend, two_kinds(), layers=2, inputs=data)
    assert [(e["name"], e["result"], e["code"]) for e in ran.of("compiled")] == [
        ("ConvActivation:one", "ConvActivation", 7),
        ("FullyConnectedActivation:two", "FullyConnectedActivation", 9),
    ]
    # IsLayerSupported sees TensorInfos only: the offset of the last input is the rule's code.
    assert {(e["code"], e["inputs"], e["outputs"], e["answer"]) for e in ran.of("asked")} == {
        (7, 4, 1, True),
        (9, 4, 1, True),
    }


@pytest.mark.parametrize("code", [-(2**31), -1, 0, 300, 2**31 - 1])
def test_a_code_is_any_number(backend: Backend, code: int) -> None:
    net = Net()
    net.output(net.activation(net.addition(net.input((2, 3)), net.input((2, 3))), "ReLu"))
    rule = fe.FusingRule("Activation{Addition}", into="Sum", code=code)
    ran = checked(backend, net.graph, [rule], layers=1, Codes=str(code))
    assert {event["code"] for event in [*ran.of("asked"), *ran.of("compiled")]} == {code}


def test_constants_that_only_opaque_layers_read_are_gone(backend: Backend) -> None:
    ran = checked(backend, two_kinds(), layers=2)
    assert len(ran.of("constant")) == 6
    assert not any(event["kept"] for event in ran.of("constant"))


def test_constants_that_the_backend_does_not_claim(backend: Backend) -> None:
    ran = checked(backend, two_kinds(), layers=2, ClaimConstants=False)
    assert not ran.of("constant")  # they were never shown to it, yet it read them


@pytest.mark.parametrize("claim", [True, False])
def test_a_constant_shared_by_two_opaque_layers(backend: Backend, claim: bool) -> None:
    net = Net()
    weights, bias = net.constant(random(3, 2, 2, 2)), net.constant(random(3))
    for stride in (1, 2):
        conv = net.conv(net.input((1, 5, 5, 2)), weights, bias, strideX=stride)
        net.output(net.activation(conv, "ReLu"))
    checked(backend, net.graph, layers=2, ClaimConstants=claim)


@pytest.mark.parametrize("claim", [True, False])
def test_a_constant_shared_with_an_ordinary_layer(backend: Backend, claim: bool) -> None:
    net = Net()
    weights, bias = net.constant(random(3, 2, 2, 2), name="w"), net.constant(random(3), name="b")
    x = net.input((1, 5, 5, 2))
    net.output(net.activation(net.conv(x, weights, bias), "ReLu"))
    net.output(net.conv(x, weights, bias, strideX=2))
    ran = checked(backend, net.graph, layers=1, ClaimConstants=claim)
    kept = {event["name"]: event["kept"] for event in ran.of("constant")}
    recipe = {name: False for name in kept if name.endswith("/recipe")}
    assert kept == ({"w": True, "b": True, **recipe} if claim else {})


def test_a_constant_among_the_data(backend: Backend) -> None:
    net = Net()
    net.output(net.activation(net.addition(net.input((2, 3)), net.constant(random(1, 3), name="c")), "ReLu"))
    ran = checked(backend, net.graph, layers=1)
    assert {"event": "constant", "name": "c", "kept": True} in ran.events


def test_a_chain_of_opaque_layers_and_one_with_many_readers(backend: Backend) -> None:
    net = Net()
    x = last = net.input((1, 5, 5, 3))
    for i in range(6):
        last = net.activation(net.conv(last, random(3, 1, 1, 3, seed=i), random(3, seed=i)), "ReLu")
        net.output(last)
    net.output(net.activation(net.addition(x, last), "ReLu"))
    checked(backend, net.graph, layers=7)


# What is rejected


def failure(backend: Backend, graph: Network, *backends: str, **options: object) -> Rejected:
    with pytest.raises(Rejected) as caught:
        backend.run(fe.dumps(graph), inputs_of(graph), backends or ("Example", "CpuRef"), **options)
    return caught.value


def test_cpuref_alone_runs_no_opaque_layer(backend: Backend) -> None:
    failed = failure(backend, fe.fuse(two_kinds(), NPU), "CpuRef")
    assert failed.stage == "optimize"
    assert "Layer of type StandIn is not supported on any preferred backend [CpuRef ]" in failed.reason


def test_optimize_throws_where_the_code_is_not_supported(backend: Backend) -> None:
    failed = failure(backend, fe.fuse(two_kinds(), NPU), Codes="7")
    assert failed.stage == "optimize"
    assert failed.reason.startswith("Failed to assign a backend to each layer")
    assert "the Example backend has no code 9" in failed.reason
    assert {(e["code"], e["answer"]) for e in failed.events if e["event"] == "asked"} == {(7, True), (9, False)}


def test_optimize_throws_where_a_recipe_is_not_implemented(backend: Backend) -> None:
    """The backend claimed it by its TensorInfos, and finds in OptimizeSubgraphView what it cannot do."""
    net = Net()
    x = net.input((1, 6, 6, 2))
    net.output(net.pool(net.conv(x, random(3, 2, 2, 2), name="conv"), (2, 2), "L2", name="pool"))
    net.output(net.activation(net.conv(x, random(3, 2, 2, 2)), "ReLu", name="fine"))
    failed = failure(backend, fe.fuse(net.graph, NPU))
    assert failed.stage == "optimize"
    assert failed.reason.startswith("Failed to apply the backend-specific optimizations")
    rejected = [(event["name"], event["reason"]) for event in failed.events if event["event"] == "rejected"]
    assert rejected == [("ConvPool:pool", "pooling of type L2")]


def test_a_layer_that_fails_takes_its_neighbours_with_it(backend: Backend) -> None:
    """Layers that the backend sees in one view: none is replaced where one fails, and Arm NN does not crash."""
    net = Net()
    act = net.activation(net.conv(net.input((1, 6, 6, 2)), random(3, 2, 2, 2)), "ReLu")
    net.output(net.pool(net.conv(act, random(3, 2, 2, 3)), (2, 2), "L2"))
    failed = failure(backend, fe.fuse(net.graph, NPU))
    assert failed.stage == "optimize"
    assert [event["event"] for event in failed.events] == ["asked", "asked", "rejected"]


@pytest.mark.parametrize("data_type", ["Float32", "QAsymmU8"])
def test_a_stand_in_of_somebody_else(backend: Backend, data_type: str) -> None:
    net = Net()
    x = net.input((1, 4), data_type, quantization_scale=1.0)
    net.output(net.stand_in(x, outputs=[(1, 4)]))
    failed = failure(backend, net.graph)
    assert failed.stage == "optimize"
    assert "the StandIn has no recipe" in failed.reason


def test_bytes_that_are_no_recipe(backend: Backend) -> None:
    net = Net()
    last = net.constant(Tensor(TensorInfo((9,), "QAsymmU8", 1.0), np.frombuffer(b"no recipe", "u1")))
    net.output(net.stand_in(net.input((1, 4)), last, outputs=[(1, 4)], name="theirs"))
    failed = failure(backend, net.graph)
    assert failed.stage == "optimize"
    assert [event["event"] for event in failed.events] == ["asked", "rejected"]


# Real networks

CORPUS = {
    "arm-nn-23.08/coral_mobilenet_v1_0.25_128_uint8.armnn": 27,
    "arm-nn-23.08/flutter_text_classification_fp32.armnn": 1,
    "arm-nn-23.08/mlperf_tiny_ad01_int8.armnn": 9,
    "arm-nn-23.08/mlperf_tiny_kws_dscnn_fp32.armnn": 9,
    "arm-nn-23.08/mlperf_tiny_kws_dscnn_int8.armnn": 9,
    "arm-nn-23.08/mlperf_tiny_resnet8_fp32.armnn": 7,
    "arm-nn-23.08/mlperf_tiny_resnet8_int8.armnn": 7,
    "arm-nn-23.08/mlperf_tiny_streaming_wakeword_int8.armnn": 4,
    "arm-nn-23.08/mlperf_tiny_vww_mbv1_fp32.armnn": 27,
    "arm-nn-23.08/mp_face_detection_short_range.armnn": 16,
    "arm-nn-23.08/terryky_blazeface_front_fp32.armnn": 17,
    # Files of 20.08: their weights are members, their depthwise weights [M,I,H,W].
    "arm-nn-20.08/mlperf_tiny_kws_dscnn_int8.armnn": 9,
    "arm-nn-20.08/mlperf_tiny_resnet8_fp32.armnn": 7,
    "arm-nn-20.08/mlperf_tiny_vww_mbv1_fp32.armnn": 27,
    "handmade-20.08/int8_per_axis.armnn": 2,
    "handmade-23.08/conv_act_variety.armnn": 13,
    "handmade-23.08/diamonds.armnn": 3,
    "handmade-23.08/fc_activation_mlp.armnn": 3,
    "handmade-23.08/fc_from_4d_input.armnn": 1,
    "handmade-23.08/layernorm_sqrt_div.armnn": 1,
    "handmade-23.08/pad_conv_with_own_padding.armnn": 1,
    "handmade-23.08/residual_add_relu.armnn": 2,
    "handmade-23.08/uint8_per_tensor_net.armnn": 1,
}
"""Networks, and how many opaque layers rules/npu.toml makes in each."""


@pytest.mark.parametrize("file", CORPUS)
def test_real_networks_from_end_to_end(backend: Backend, corpus: Path, file: str) -> None:
    checked(backend, fe.load(corpus / file), layers=CORPUS[file])


UNREADABLE = {
    "arm-nn-20.08/armnn_delegate_mock_model_uint8.armnn": (3, 0.0),
    "arm-nn-20.08/t2o_mobilenet_v1_0.25_128_uint8.armnn": (14, 0.0),
    "arm-nn-20.08/terryky_blazeface_front_fp32.armnn": (33, 0.0),
    "arm-nn-20.08/tfsupport_automl_labeler_uint8.armnn": (18, 0.0),
    "public/ssd_mobilenet_v3_small_coco_2019_08_14.armnn": (57, 1e-5),
}
"""Networks of older releases, how many opaque layers are made in each, and how far outputs may be off, relative to
their largest value: two releases with two C libraries have run them."""


@pytest.mark.parametrize("file", UNREADABLE)
def test_networks_that_release_23_08_cannot_read_run_there_when_fused(
    backend: Backend, real_armnn: RealArmnn, corpus: Path, file: str
) -> None:
    """23.08 permutes the Constants of such files; with all depthwise convolutions fused there is no reason to."""
    layers, tolerance = UNREADABLE[file]
    graph = fe.load(corpus / file)
    data = inputs_of(graph)
    assert failure(backend, fe.fuse(graph, NPU)).stage == "deserialize"

    fused = fe.fuse(graph, [*NPU, fe.FusingRule("DepthwiseConvolution2d{?}", into="Depthwise", code=13)])
    assert len(stand_ins(fused)) == layers
    ran = backend.run(fe.dumps(fused), data)
    assert len(ran.of("ran")) == layers
    plain = real_armnn.run(fe.dumps(graph), "20.08", inputs={f"#{key}": values for key, values in data.items()})
    for output in plain.outputs:
        assert ran.outputs[output.id].shape == output.values.shape
        values, right = (array.astype(np.float64) for array in (ran.outputs[output.id], output.values))
        assert np.abs(values - right).max() <= tolerance * np.abs(right).max()


def test_four_headers_are_all_that_the_package_lacks(backend: Backend) -> None:
    """Every other header that the backend needs is there: `stubs` has no more than what is missing."""
    headers = backend.libraries.parents[1] / "include"
    missing = {path.name for path in (SOURCES / "stubs").iterdir()}
    assert missing == {"ExecutionData.hpp", "ISubgraphViewConverter.hpp", "Profiling.hpp", "WorkingMemDescriptor.hpp"}
    assert not missing & {path.name for path in headers.rglob("*.hpp")}
