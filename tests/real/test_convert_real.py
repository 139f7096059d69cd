"""Conversions judged by real Arm NN: what one release wrote runs on the other and gives the same outputs.

Both CpuRefs compute floats in other orders: `test_the_engines_differ_by_as_much` states by how much on
files that both run as they are, and converted files stay within that. Quantized outputs are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict, Network
from fusion_engine.tensor import Tensor, TensorInfo
from tests.real.test_corpus import BY_FILE, FILES, digests, release_of
from tests.support.evaluate import layer_values
from tests.support.nets import Net
from tests.support.real_armnn import ArmnnFailed, Output, RealArmnn
from tests.unit.test_reader import stored

LARGEST = {"float32": 3.4e-6, "float16": 6.2e-5}
"""The largest difference of the two engines, in an output of values up to 6 and up to 0.5."""

_NONE = [pytest.param("", marks=pytest.mark.skip(reason="there is no corpus"))]
OLD = [file for file in FILES if release_of(BY_FILE[file]) == "20.08"] or _NONE
NEW = [file for file in FILES if release_of(BY_FILE[file]) == "23.08"] or _NONE

PARSED_ONLY = {"standin", "quantized_lstm_16bit", "t2o_transposeconv_samepad_stride2_fp32"}
"""CpuRef has no kernel for them, or the file's shape is not what Arm NN infers."""

REFUSED_BY_20_08 = {
    "arm-nn-23.08/coral_keras_lstm_mnist_int8.armnn": "UnidirectionalSequenceLstm",
    "arm-nn-23.08/coral_movenet_lightning_int8.armnn": "GatherNd",
    "arm-nn-23.08/dtln_noise_suppression_int8.armnn": "UnidirectionalSequenceLstm",
    "arm-nn-23.08/flutter_text_classification_fp32.armnn": "Cast",
    "arm-nn-23.08/mnist_lstm_float.armnn": "UnidirectionalSequenceLstm",
    "arm-nn-23.08/t2o_relu6_power_fp32.armnn": "ElementwiseBinary",
    "handmade-23.08/elementwise_unary.armnn": "ElementwiseUnary",
    "handmade-23.08/layernorm_softmax_decomposed.armnn": "ElementwiseUnary",
    "handmade-23.08/new_attention_block.armnn": "BatchMatMul",
    "handmade-23.08/new_dynamic_weights.armnn": "Convolution2d whose weights or bias are computed",
    "handmade-23.08/new_layer_zoo.armnn": "ChannelShuffle",
    "handmade-23.08/new_unidirectional_sequence_lstm.armnn": "UnidirectionalSequenceLstm",
}
"""What 20.08 cannot hold, and what the refusal names."""

PADS = {"pad_conv_must_not_fold": ("conv_value", "conv_channel"), "pad_conv_with_own_padding": ("conv",)}
"""Files in which the optimizer of 20.08 folds a Pad wrongly; their convolutions, in the output's order."""


def close(expected: Sequence[Output], found: Sequence[Output]) -> None:
    """The same outputs: floats within what the engines differ by, anything else equal."""
    assert [(o.id, o.name, o.values.shape) for o in found] == [(o.id, o.name, o.values.shape) for o in expected]
    for x, y in zip(expected, found, strict=True):
        if x.values.dtype.name in LARGEST:
            difference = np.abs(x.values.astype(np.float64) - y.values.astype(np.float64))
            assert difference.max() <= LARGEST[x.values.dtype.name], x.name
        else:
            np.testing.assert_array_equal(x.values, y.values)


def same_as_its_maker(real_armnn: RealArmnn, corpus: Path, file: str, converted: Network, release: str) -> None:
    """A converted file gives what the release that made it gives: by its run there, else by its direct run."""
    entry = BY_FILE[file]
    maker = release_of(entry)
    found = real_armnn.run(fe.dumps(converted), release)
    if entry["run"][maker]["runs"] and Path(file).stem != "zoo_fill_rank":
        if found.digests != digests(entry["run"][maker]):
            close(real_armnn.run(corpus / file, maker).outputs, found.outputs)
        return
    direct = entry.get("direct_run") or {}
    if "outputs" not in direct:
        # its maker has never run it, and the other release runs the file as it is
        assert found.digests == digests(entry["run"][release])
        return
    if found.digests != digests(direct):
        for stated, output in zip(direct["outputs"], found.answer["output_data"], strict=True):
            for name in ("min", "max", "mean"):
                assert abs(stated[name] - output[name]) <= LARGEST["float32"], (file, name)


@pytest.mark.parametrize("file", OLD)
def test_what_20_08_wrote_runs_on_23_08(real_armnn: RealArmnn, corpus: Path, file: str) -> None:
    name = Path(file).stem
    graph = fe.load(corpus / file)
    converted = fe.convert(graph, "23.08")
    assert converted.graph["feature_versions"] == (1, 1, 1)
    if name == "bf16_conv":
        assert any("BFloat16" in warning for warning in converted.graph["warnings"])
    elif name in PARSED_ONLY:
        assert real_armnn.parse(fe.dumps(converted), "23.08")["ok"]
    elif name in PADS:
        written_out(real_armnn, converted, "23.08", PADS[name])
    else:
        same_as_its_maker(real_armnn, corpus, file, converted, "23.08")


@pytest.mark.parametrize("file", NEW)
def test_what_23_08_wrote_runs_on_20_08_or_is_refused(real_armnn: RealArmnn, corpus: Path, file: str) -> None:
    name = Path(file).stem
    graph = fe.load(corpus / file)
    if file in REFUSED_BY_20_08:
        with pytest.raises(fe.ConversionError, match=r"Arm NN 20\.08 cannot hold it") as caught:
            fe.convert(graph, "20.08")
        assert REFUSED_BY_20_08[file] in str(caught.value)
        assert all(obstacle.layers for obstacle in caught.value.obstacles)
        return
    converted = fe.convert(graph, "20.08")
    if name == "bf16_conv":
        return
    if name == "t2o_transposeconv_samepad_stride2_fp32":
        same_as_its_maker(real_armnn, corpus, file, converted, "20.08")
    elif name in PARSED_ONLY or name == "mobilenet_v2_035_96_embedder_fp16":
        # the second has float inputs over int8 weights, which neither CpuRef takes
        assert real_armnn.parse(fe.dumps(converted), "20.08")["ok"]
    elif name in PADS:
        written_out(real_armnn, converted, "20.08", PADS[name])
    else:
        same_as_its_maker(real_armnn, corpus, file, converted, "20.08")


def written_out(real_armnn: RealArmnn, graph: Network, release: str, names: Sequence[str]) -> None:
    """The outputs of convolutions over Pads are those that their sums say."""
    (source,) = graph.graph["inputs"]
    shape = graph.nodes[source]["outputs"][0].shape
    image = np.random.RandomState(5).uniform(-1, 1, shape).astype(np.float32)
    found = real_armnn.run(fe.dumps(graph), release, inputs={"#0": image}).outputs[0].values
    rest = graph.subgraph(key for key in graph if graph.nodes[key]["type"] not in ("Concat", "Output"))
    values = layer_values(identities_dropped(rest), {0: image})
    keys = {graph.nodes[key]["name"]: key for key in graph}
    expected = np.concatenate([values[keys[name]] for name in names], axis=3)
    assert np.abs(expected - found).max() <= LARGEST["float32"]


def identities_dropped(graph: Network) -> Network:
    """The network with Reshapes to the same shape taken out: the evaluator of the tests has none."""
    again = graph.copy()
    for key in [key for key in again if again.nodes[key]["type"] == "Reshape"]:
        (before,), (after,) = again.pred[key], again.succ[key]
        again.remove_node(key)
        again.add_edge(before, after, slots=((0, 0),))
    return again


def test_the_engines_differ_by_as_much(real_armnn: RealArmnn, corpus: Path) -> None:
    """What LARGEST says, on files of 20.08 that both releases run as they are; quantized ones are equal."""
    largest = dict.fromkeys(LARGEST, 0.0)
    for file in OLD:
        runs = BY_FILE[str(file)]["run"]
        if not all(runs[release]["runs"] for release in ("20.08", "23.08")) or Path(str(file)).stem in PADS:
            continue
        if digests(runs["20.08"]) == digests(runs["23.08"]):
            continue
        both = [real_armnn.run(corpus / str(file), release).outputs for release in ("20.08", "23.08")]
        for x, y in zip(*both, strict=True):
            assert x.values.dtype.name in LARGEST, file
            difference = np.abs(x.values.astype(np.float64) - y.values.astype(np.float64)).max()
            largest[x.values.dtype.name] = max(largest[x.values.dtype.name], difference)
    for name, most in LARGEST.items():
        assert 0.9 * most < largest[name] <= most


@pytest.mark.parametrize(
    ("target", "runs_on"),
    [("20.05", "20.08"), ("20.11", "20.08"), ("21.05", "20.08"), ("22.05", "23.08"), ("24.08", "23.08")],
)
@pytest.mark.parametrize(
    "file",
    [
        "handmade-20.08/dwconv_bn_relu6_nhwc.armnn",
        "handmade-23.08/mul_add_const.armnn",
        "arm-nn-20.08/mlperf_tiny_kws_dscnn_int8.armnn",
        "arm-nn-23.08/t2o_prelu_fp32.armnn",
    ],
)
def test_neighbours_of_a_release(real_armnn: RealArmnn, corpus: Path, file: str, target: str, runs_on: str) -> None:
    """Files for releases with the same form as one of the two: each reads what its neighbours write."""
    converted = fe.convert(fe.load(corpus / file), target)
    assert converted.graph["feature_versions"] == ((1, 1, 1) if runs_on == "23.08" else (1, 0, 0))
    same_as_its_maker(real_armnn, corpus, file, converted, runs_on)


def test_fully_connected_of_21_08(real_armnn: RealArmnn, corpus: Path) -> None:
    """Of the layers with weights only these had them on input slots then; 23.08 reads that too."""
    file = "handmade-20.08/fc_activation_mlp.armnn"
    converted = fe.convert(fe.load(corpus / file), "21.08")
    assert sum(node["type"] == "Constant" for node in converted.nodes.values()) == 5
    same_as_its_maker(real_armnn, corpus, file, converted, "23.08")


def test_int8_files_that_loaded_nowhere_run_on_both(real_armnn: RealArmnn, corpus: Path) -> None:
    untagged = "arm-nn-20.08/mlperf_tiny_kws_dscnn_int8.armnn"
    scales = "arm-nn-20.08/terryky_blazeface_front_int8.armnn"
    stated = {untagged: BY_FILE[untagged]["direct_run"], scales: BY_FILE[scales]["run"]["23.08"]}
    for file, run in stated.items():
        for release in ("20.08", "23.08"):
            data = fe.dumps(fe.load(corpus / file), release=release)
            assert real_armnn.run(data, release).digests == digests(run), (file, release)


@pytest.mark.parametrize(
    ("file", "release"),
    [
        ("handmade-20.08/conv_bias_bn_relu6_nchw.armnn", "23.08"),
        ("handmade-20.08/dwconv_bn_relu6_nhwc.armnn", "23.08"),
        ("handmade-20.08/int8_per_axis.armnn", "23.08"),
        ("handmade-23.08/dwconv_bn_relu6_nhwc.armnn", "20.08"),
        ("arm-nn-23.08/mlperf_tiny_kws_dscnn_int8.armnn", "20.08"),
    ],
)
def test_opaque_layers_cross(real_armnn: RealArmnn, corpus: Path, file: str, release: str) -> None:
    graph = fe.load(corpus / file)
    normed = "BatchNormalization{Convolution2d|DepthwiseConvolution2d}"
    rules = [fe.FusingRule(f"Activation{{{normed}}}", into="ConvNormAct"), *fe.load_rules("npu")]
    converted = fe.loads(fe.dumps(fe.fuse(graph, rules), release=release))
    layers = real_armnn.parse(fe.dumps(converted), release)["layers"]
    assert layers["StandIn"] == sum(node["type"] == "StandIn" for node in converted.nodes.values()) > 0
    same_as_its_maker(real_armnn, corpus, file, fe.unfuse(converted), release)


# Files of 2019, whose releases cannot be run any more: values worked out by hand


def run_one(real_armnn: RealArmnn, data: bytes, release: str, **inputs: Any) -> list[float]:
    given = {f"#{name[1:]}": np.asarray(values, "<f4") for name, values in inputs.items()}
    values: list[float] = real_armnn.run(data, release, inputs=given).outputs[0].values.ravel().tolist()
    return values


def read_as(net: Net, dialect: str) -> Network:
    """The network that is read from the net's file."""
    graph = fe.loads(fe.dumps(net.graph))
    assert graph.graph["dialect"] == dialect
    return graph


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_the_seed_runs_today(real_armnn: RealArmnn, release: str) -> None:
    net = Net("seed", spelling="old")
    x = net.input((1, 2), binding_id=0)
    net.output(net.multiplication(net.addition(x, x), x), binding_id=0)
    data = fe.dumps(read_as(net, "seed"), release=release)
    assert run_one(real_armnn, data, release, _0=[[3, -2]]) == [18.0, 8.0]


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_19_02_runs_today(real_armnn: RealArmnn, release: str) -> None:
    """Depthwise with M = 2 over I = 2, then 1x1 convolution, bounded: channel i*2+m is x[i] * w[m][i]."""
    net = Net("19.02", form="member")
    x = net.input((1, 1, 1, 2), binding_id=0)
    depthwise = net.depthwise(x, np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(2, 2, 1, 1))
    kernel = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]], np.float32).reshape(4, 1, 1, 4)
    summed = net.conv(depthwise, kernel, [0.5, 0, 0, 0])
    bounded = net.layer("Activation", summed, params={"function": "BoundedReLu", "a": 100.0, "b": 0.0})
    net.output(bounded, binding_id=0)
    data = fe.dumps(read_as(net, "19.02"), release=release)
    # depthwise of (10, -1): 10*1, 10*3, -1*2, -1*4
    assert run_one(real_armnn, data, release, _0=[[[[10, -1]]]]) == [10.5, 30.0, 0.0, 34.0]


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_19_05_runs_today(real_armnn: RealArmnn, release: str) -> None:
    """Layers that were numbered otherwise, a Merger, and a DataType of the time."""
    net = Net("19.05", form="member", data_type="QuantisedAsymm8")
    x = net.input((1, 2), binding_id=0, quantization_scale=0.5, quantization_offset=10)
    real = net.layer("Dequantize", x, outputs=[TensorInfo((1, 2), "Float32")])
    params = {"concatAxis": 1, "numViews": 2, "numDimensions": 2, "viewOrigins": [[0, 0], [0, 2]]}
    net.output(net.layer("Merger", real, real, outputs=[(1, 4)], params=params), binding_id=0)
    data = fe.dumps(read_as(net, "19.05"), release=release)
    run = real_armnn.run(data, release, inputs={"#0": np.array([[12, 8]], "u1")})
    assert run.outputs[0].values.tolist() == [[1.0, -1.0, 1.0, -1.0]]


# One step at a time. What is written for 19.08 and 20.02 is a file that 20.08 reads too


def both_ways(operation: str) -> Net:
    net = Net(spelling="new")
    x, y = net.input((1, 2), binding_id=0), net.input((1, 2), binding_id=1)
    net.output(net.layer("ElementwiseBinary", x, y, params={"operation": operation}), binding_id=0)
    return net


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("Add", [5.0, 1.0]),
        ("Sub", [1.0, -3.0]),
        ("Mul", [6.0, -2.0]),
        ("Div", [1.5, -0.5]),
        ("Minimum", [2.0, -1.0]),
        ("Maximum", [3.0, 2.0]),
        ("SqDiff", [1.0, 9.0]),
    ],
)
@pytest.mark.parametrize("release", ["19.08", "20.08"])
def test_arithmetic(real_armnn: RealArmnn, operation: str, expected: list[float], release: str) -> None:
    data = fe.dumps(both_ways(operation).graph, release=release)
    assert run_one(real_armnn, data, "20.08", _0=[[3, -1]], _1=[[2, 2]]) == expected


@pytest.mark.parametrize(
    ("operation", "given", "expected"),
    [
        ("Abs", [-4.0, 9.0], [4.0, 9.0]),
        ("Rsqrt", [4.0, 16.0], [0.5, 0.25]),
        ("Sqrt", [4.0, 9.0], [2.0, 3.0]),
        ("Neg", [4.0, -9.0], [-4.0, 9.0]),
    ],
)
@pytest.mark.parametrize("release", ["19.08", "20.08"])
def test_unary(real_armnn: RealArmnn, operation: str, given: list[float], expected: list[float], release: str) -> None:
    net = Net()
    x = net.input((1, 2), binding_id=0)
    net.output(net.layer("ElementwiseUnary", x, params={"operation": operation}), binding_id=0)
    data = fe.dumps(net.graph, release=release)
    assert run_one(real_armnn, data, "20.08", _0=[given]) == expected


@pytest.mark.parametrize(("operation", "expected"), [("Equal", [0, 1]), ("Greater", [1, 0])])
def test_comparisons_of_19_08(real_armnn: RealArmnn, operation: str, expected: list[int]) -> None:
    net = Net()
    x, y = net.input((1, 2), binding_id=0), net.input((1, 2), binding_id=1)
    outputs = [TensorInfo((1, 2), "Boolean")]
    net.output(net.layer("Comparison", x, y, outputs=outputs, params={"operation": operation}), binding_id=0)
    converted = fe.convert(net.graph, "19.08")
    assert converted.nodes[2]["type"] == operation
    assert run_one(real_armnn, fe.dumps(converted), "20.08", _0=[[3, 2]], _1=[[2, 2]]) == expected


@pytest.mark.parametrize("mappings", [(0, 2, 3, 1), (3, 0, 2, 1)])
def test_transposes_of_20_02(real_armnn: RealArmnn, mappings: tuple[int, ...]) -> None:
    net = Net()
    x = net.input((2, 3, 4, 5), binding_id=0)
    net.output(net.transpose(x, mappings), binding_id=0)
    converted = fe.convert(net.graph, "20.02")
    assert converted.nodes[1]["type"] == "Permute"
    given = np.arange(120, dtype="<f4").reshape(2, 3, 4, 5)
    (output,) = real_armnn.run(fe.dumps(converted), "20.08", inputs={"#0": given}).outputs
    np.testing.assert_array_equal(output.values, given.transpose(mappings))


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_gather_of_older_files(real_armnn: RealArmnn, release: str) -> None:
    net = Net(feature_versions=(1, 0, 0))
    x = net.input((3, 1), binding_id=0)
    key = net.layer("Gather", x, net.constant([2, 0], "Signed32"), outputs=[(2, 1)])
    net.graph.nodes[key]["params"] = None
    net.output(key, binding_id=0)
    data = fe.dumps(net.graph, release=release)
    assert run_one(real_armnn, data, release, _0=[[5], [6], [7]]) == [7.0, 5.0]


def test_fill(real_armnn: RealArmnn) -> None:
    net = Net()
    net.output(net.addition(net.input((1, 2), binding_id=0), fill(net)), binding_id=0)
    assert run_one(real_armnn, fe.dumps(net.graph, release="20.08"), "20.08", _0=[[1, 2]]) == [3.5, 4.5]


def fill(net: Net) -> int:
    """A Fill of shape (1, 2) with 2.5."""
    shape = net.constant([1, 2], "Signed32")
    return net.layer("Fill", shape, outputs=[TensorInfo((1, 2))], params={"value": 2.5})


def test_a_pad_of_stored_zeros_is_not_folded_by_20_08(real_armnn: RealArmnn) -> None:
    """padValue of a quantized Pad is a stored value: 0 is no zero where the zero point is another."""
    net = Net(data_type="QAsymmU8")
    quantization = {"quantization_scale": 0.1, "quantization_offset": 128}
    padded = net.pad(net.input((1, 3, 3, 1), binding_id=0, **quantization), [(0, 0), (1, 1), (1, 1), (0, 0)])
    weights = net.tensor(np.full((1, 3, 3, 1), 138), **quantization)
    output = TensorInfo((1, 3, 3, 1), "QAsymmU8", 5.0, 128)
    net.output(net.conv(padded, weights, output=output), binding_id=0)
    given = {"#0": np.full((1, 3, 3, 1), 148, "u1")}
    for release in ("20.08", "23.08"):
        found = real_armnn.run(fe.dumps(net.graph, release=release), release, inputs=given).outputs[0].values
        assert found.ravel().tolist() == [117, 123, 117, 123, 132, 123, 117, 123, 117]


@pytest.mark.parametrize("kind", ["conv", "depthwise", "Average"])
@pytest.mark.parametrize("mode", ["Reflect", "Symmetric"])
def test_modes_of_pads_are_kept_from_the_optimizer(real_armnn: RealArmnn, kind: str, mode: str) -> None:
    net = Net()
    pad = net.pad(net.input((1, 3, 3, 1), binding_id=0), [(0, 0), (1, 1), (1, 1), (0, 0)], mode=mode)
    if kind == "Average":
        key = net.pool(pad, (2, 2), kind, stride=(1, 1))
    else:
        key = getattr(net, kind)(pad, np.full((1, 2, 2, 1), 0.25))
    net.output(key, binding_id=0)
    image = np.arange(9.0).reshape(3, 3)
    padded = np.pad(image, 1, mode="reflect" if mode == "Reflect" else "symmetric")
    expected = (padded[:-1, :-1] + padded[1:, :-1] + padded[:-1, 1:] + padded[1:, 1:]) / 4
    given = image.reshape(1, 3, 3, 1)
    assert run_one(real_armnn, fe.dumps(net.graph, release="23.08"), "23.08", _0=given) == expected.ravel().tolist()
    plainly = run_one(real_armnn, fe.dumps(net.graph), "23.08", _0=given)
    assert plainly != expected.ravel().tolist()  # why the Reshape is needed


@pytest.mark.parametrize("kind", ["conv", "depthwise"])
@pytest.mark.parametrize("layouts", [("NHWC", "NCHW"), ("NCHW", "NHWC")])
def test_batch_norms_of_the_other_layout(real_armnn: RealArmnn, kind: str, layouts: tuple[str, str]) -> None:
    net = Net()
    x = net.input((1, 2, 2, 2), binding_id=0)
    identity = np.eye(2).reshape((2, 1, 1, 2) if layouts[0] == "NHWC" else (2, 2, 1, 1))
    weights = identity if kind == "conv" else np.ones((1, 1, 1, 2))
    conv = getattr(net, kind)(x, weights, [0.0, 0.0], layout=layouts[0])
    norm = net.batch_norm(conv, [1, 4], [0, 0], [0, 0], [1, 1], layout=layouts[1], eps=0.0)
    net.output(norm, binding_id=0)
    given = np.arange(8.0).reshape(1, 2, 2, 2)
    expected = (given * np.reshape([1, 4], (1, 1, 1, 2) if layouts[1] == "NHWC" else (1, 2, 1, 1))).ravel().tolist()
    for release in ("20.08", "23.08"):
        assert run_one(real_armnn, fe.dumps(net.graph, release=release), release, _0=given) == expected
    assert run_one(real_armnn, fe.dumps(net.graph), "23.08", _0=given) != expected  # why the Reshape is needed


@pytest.mark.parametrize("operand", ["constant", "computed"])
def test_operands_of_unequal_rank(real_armnn: RealArmnn, operand: str) -> None:
    net = Net()
    x = net.input((1, 2, 1, 2), binding_id=0)
    y = net.constant([1.0, 10.0]) if operand == "constant" else net.activation(net.input((2,), binding_id=1), "ReLu")
    net.output(net.layer("Multiplication", x, y, outputs=[(1, 2, 1, 2)]), binding_id=0)
    inputs = {} if operand == "constant" else {"_1": [1.0, 10.0]}
    data = fe.dumps(net.graph, release="20.08")
    assert run_one(real_armnn, data, "20.08", _0=[[[[1, 2]], [[3, 4]]]], **inputs) == [1.0, 20.0, 3.0, 40.0]


@pytest.mark.parametrize("release", ["20.08", "23.08"])
@pytest.mark.parametrize("form", ["member", "constant"])
def test_depthwise_with_a_multiplier(real_armnn: RealArmnn, form: str, release: str) -> None:
    """Per-axis int8, M = 2 over I = 2, from both forms: channel i*2+m has scale and weight of its own."""
    scales = (0.5, 1.0, 2.0, 4.0)
    bias = Tensor.of([0, 0, 0, 8], "Signed32", quantization_scales=scales)
    stored = np.array([1, 2, 3, 4], np.int8)
    net = Net(form=form, feature_versions=(1, 0, 0) if form == "member" else (1, 1, 1), data_type="QAsymmS8")
    x = net.input((1, 1, 1, 2), binding_id=0, quantization_scale=1.0)
    if form == "member":
        info = TensorInfo((2, 2, 1, 1), "QSymmS8", quantization_scales=scales)
        weights = Tensor(info, stored.reshape(2, 2).T.reshape(2, 2, 1, 1))
    else:
        info = TensorInfo((1, 1, 1, 4), "QSymmS8", quantization_scales=scales, quantization_dim=3)
        weights = Tensor(info, stored.reshape(1, 1, 1, 4))
    out = TensorInfo((1, 1, 1, 4), "QAsymmS8", quantization_scale=0.5)
    net.output(net.depthwise(x, weights, bias, output=out), binding_id=0)
    data = fe.dumps(net.graph, release=release)
    run = real_armnn.run(data, release, inputs={"#0": np.array([[[[2, 1]]]], "i1")})
    # real: 2*0.5, 2*2, 1*6, 1*16 + 32; stored by a scale of 0.5
    assert run.outputs[0].values.ravel().tolist() == [2, 8, 12, 96]


def test_a_file_says_what_real_readers_do(real_armnn: RealArmnn, corpus: Path) -> None:
    """`loads_in` against the manifest: what does not parse is what has obstacles.

    Files whose Constants 23.08 permutes in silence parse there, and a Fill parses on 20.08.
    """
    silent = {
        ("handmade-20.08/layernorm_sqrt_div.armnn", "23.08"),
        ("handmade-20.08/mul_add_const.armnn", "23.08"),
        ("handmade-20.08/zoo_elementwise.armnn", "23.08"),
        ("handmade-20.08/zoo_fill_rank.armnn", "20.08"),
    }
    found = set()
    for file, entry in BY_FILE.items():
        loads = {one.release: one.loads for one in fe.loads_in(fe.load(corpus / file))}
        for release, run in entry["run"].items():
            parses = run["runs"] or run["stage"] != "deserialize"
            if parses != loads[release]:
                assert parses
                found.add((file, release))
    assert found == silent


NOT_HELD_BY_20_08 = {
    "elementwise_unary": "writes it and does not read it",
    "layernorm_softmax_decomposed": "writes it and does not read it",
    "pooling_l2": "aborts on pooling by L2",
    "zoo_fill_rank": "ignores the value",
    "pad_conv_must_not_fold": "its optimizer loses the padding",
    "pad_conv_with_own_padding": "its optimizer loses the padding",
    "terryky_blazeface_front_int8": "insists on other scales of biases",
}
"""Files of 20.08 that 20.08 itself does not run, or runs wrongly, and why."""


@pytest.mark.parametrize("file", OLD)
def test_there_and_back(corpus: Path, file: str) -> None:
    graph = fe.load(corpus / file)
    new = fe.loads(fe.dumps(graph, release="23.08"))
    if Path(file).stem in NOT_HELD_BY_20_08:
        assert not fe.equal(new, graph)
        return
    own = "20.08" if graph.graph["feature_versions"][0] else "19.11"
    assert fe.difference(fe.convert(new, own), graph) is None
    assert fe.dumps(new, release=own) == fe.dumps(fe.convert(graph, own))


@pytest.mark.usefixtures("corpus")
def test_the_table_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "convert.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if ".armnn | " in line]
    assert [row[0] for row in rows] == FILES
    assert {row[0] for row in rows if row[3].startswith("refused: ")} == set(REFUSED_BY_20_08)
    stuck = {Path(row[0]).stem for row in rows if row[3].startswith("does not run")}
    assert stuck == {*PARSED_ONLY, "mobilenet_v2_035_96_embedder_fp16"}


def parses(real_armnn: RealArmnn, data: bytes, release: str) -> bool:
    try:
        return bool(real_armnn.parse(data, release)["ok"])
    except ArmnnFailed:
        return False


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_order_of_layers_that_readers_abort_on(real_armnn: RealArmnn, order: tuple[int, ...]) -> None:
    data = stored(order)
    loads = {reading.release: reading.loads for reading in fe.loads_in(fe.loads(data))}
    assert {release: parses(real_armnn, data, release) for release in ("20.08", "23.08")} == {
        release: loads[release] for release in ("20.08", "23.08")
    }


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_layers_without_names_crash_readers(real_armnn: RealArmnn, release: str) -> None:
    data = stored((0, 1, 2, 3), (2,))
    assert not parses(real_armnn, data, release)
    assert [reading.release for reading in fe.loads_in(fe.loads(data)) if reading.loads] == []
    assert parses(real_armnn, fe.dumps(fe.loads(data), release=release), release)


def test_names_given(real_armnn: RealArmnn) -> None:
    """Layers without names get empty ones in the file: real readers crash where there is none at all."""
    net = Net()
    key = net.activation(net.input((1, 2), binding_id=0), "ReLu")
    net.output(key, binding_id=0)
    for node in net.graph.nodes.values():
        del node["name"]
    net.graph.nodes[key]["params"] = FrozenDict(activationFunction="ReLu")
    for release in ("20.08", "23.08"):
        assert run_one(real_armnn, fe.dumps(net.graph, release=release), release, _0=[[-1, 3]]) == [0.0, 3.0]
