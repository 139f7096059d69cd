"""Groups on real Arm NN: the same bits as without them in both releases, and a backend that goes by their prefixes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.group import group_of, prefix
from fusion_engine.network import Network
from tests.support.backend import Backend, inputs_of
from tests.support.nets import Net
from tests.support.real_armnn import RealArmnn

RULES = [
    fe.FusingRule("Activation{Convolution2d|DepthwiseConvolution2d|FullyConnected}", group="WeightedAct"),
    fe.FusingRule("Activation{Addition}", group="AddAct"),
]

OLD = {
    "arm-nn-20.08/coral_mobilenet_v1_0.25_128_uint8.armnn": 27,
    "arm-nn-20.08/mlperf_tiny_ad01_fp32.armnn": 9,
    "arm-nn-20.08/mlperf_tiny_resnet8_fp32.armnn": 7,
    "arm-nn-20.08/mlperf_tiny_vww_mbv1_fp32.armnn": 27,
    "arm-nn-20.08/planestrike_tf_fp32.armnn": 2,
    "handmade-20.08/diamonds.armnn": 3,
}
"""Networks of release 20.08, which both releases run, and how many groups the rules find in each."""

NEW = {
    "arm-nn-23.08/coral_mobilenet_v1_0.25_128_uint8.armnn": 27,
    "arm-nn-23.08/mlperf_tiny_kws_dscnn_int8.armnn": 9,
    "arm-nn-23.08/mlperf_tiny_resnet8_fp32.armnn": 7,
    "arm-nn-23.08/mp_face_detection_short_range.armnn": 17,
}
"""The same of release 23.08, whose weights are Constants."""


def prefixes(graph: Network) -> list[str]:
    """Prefix of every group."""
    found = set()
    for node in graph.nodes.values():
        group = group_of(node.get("name", ""))
        if group is not None:
            found.add(prefix(group.result, group.counter))
    return sorted(found)


def grouped(graph: Network, number: int) -> Network:
    made = fe.fuse(graph, RULES)
    assert len(prefixes(made)) == number
    return made


def residual() -> Network:
    """Two convolutions with ReLu, added, with a ReLu: two groups that feed a third."""
    net = Net("current", (1, 0, 0), form="member")
    random = np.random.default_rng(3)
    x = net.input((1, 5, 6, 3), name="x")
    ends = []
    for name in ("left", "right"):
        weights, bias = (random.uniform(-1, 1, shape) for shape in ((3, 3, 3, 3), 3))
        conv = net.conv(x, weights, bias, padLeft=1, padRight=1, padTop=1, padBottom=1, name=f"{name} conv")
        ends.append(net.activation(conv, "ReLu", name=f"{name} relu"))
    net.output(net.activation(net.addition(*ends, name="sum"), "BoundedReLu", 1.0, name="last"), name="y")
    return net.graph


# CpuRef


def same_in_both_releases(real_armnn: RealArmnn, plain: Network, made: Network) -> None:
    runs = [real_armnn.run(fe.dumps(graph), release) for graph in (plain, made) for release in ("20.08", "23.08")]
    assert len({tuple(sorted(run.digests.items())) for run in runs}) == 1
    assert all(run.answer["optimized_layers"] >= len(prefixes(made)) for run in runs)


def test_groups_have_the_same_bits_in_both_releases(real_armnn: RealArmnn) -> None:
    same_in_both_releases(real_armnn, residual(), grouped(residual(), 3))


@pytest.mark.parametrize("file", OLD)
def test_groups_in_real_networks_have_the_same_bits_in_both_releases(
    real_armnn: RealArmnn, corpus: Path, file: str
) -> None:
    graph = fe.load(corpus / file)
    same_in_both_releases(real_armnn, graph, grouped(graph, OLD[file]))


# A backend


def test_a_backend_knows_groups_by_their_prefixes(backend: Backend) -> None:
    made = grouped(residual(), 3)
    ran = backend.run(fe.dumps(made), inputs_of(made), Groups=True)
    first, second, third = prefix("AddAct", 1), prefix("WeightedAct", 1), prefix("WeightedAct", 2)
    found = {event["name"]: (event["result"], event["layers"]) for event in ran.of("compiled")}
    assert found == {
        first: ("AddAct", ["Activation", "ElementwiseBinary"]),  # as which 23.08 reads an Addition
        second: ("WeightedAct", ["Activation", "Convolution2d"]),
        third: ("WeightedAct", ["Activation", "Convolution2d"]),
    }
    assert {event["name"] for event in ran.of("ran")} == {first, second, third}
    plain = backend.run(fe.dumps(residual()), inputs_of(made), ["CpuRef"])
    assert plain.outputs[0].tobytes() == ran.outputs[0].tobytes()


@pytest.mark.parametrize("file", [*OLD, *NEW])
def test_a_backend_runs_the_groups_of_real_networks(backend: Backend, corpus: Path, file: str) -> None:
    graph = fe.load(corpus / file)
    made = grouped(graph, {**OLD, **NEW}[file])
    ran = backend.run(fe.dumps(made), inputs_of(graph), Groups=True)
    groups = [event["name"] for event in ran.of("compiled") if group_of(event["name"])]
    assert sorted(groups) == prefixes(made)
    assert not ran.of("rejected")
    plain = backend.run(fe.dumps(graph), inputs_of(graph), ["CpuRef"])
    assert {key: values.tobytes() for key, values in plain.outputs.items()} == {
        key: values.tobytes() for key, values in ran.outputs.items()
    }


@pytest.mark.parametrize(
    "wrong", ["Block:10123456789/", "Block:1/", "Block/", "", "Block:0%s/", "Block:12345678901%s/"]
)
def test_a_name_that_only_looks_like_a_prefix_is_none(backend: Backend, wrong: str) -> None:
    """The checksum says so, to a backend as to fusion-engine: each layer is compiled by itself."""
    start = wrong % prefix("Block", 1)[-11:-1] if "%" in wrong else wrong
    net = Net()
    conv = net.conv(net.input((1, 3, 3, 2)), np.ones((2, 2, 2, 2)), name=f"{start}conv")
    net.output(net.activation(conv, "ReLu", name=f"{start}relu"))
    assert not prefixes(net.graph)
    ran = backend.run(fe.dumps(net.graph), inputs_of(net.graph), Groups=True)
    assert [event["name"] for event in ran.of("compiled")] == [f"{start}conv", f"{start}relu"]


@pytest.mark.parametrize("rest", ["", "relu", "a/b", "conv:1/x", "\n", "caf\xe9", prefix("Inner", 3) + "x"])
@pytest.mark.parametrize("counter", [1, 9, 10, 123_456_789])
def test_every_prefix_is_known(backend: Backend, counter: int, rest: str) -> None:
    start = prefix("Conv_2d", counter)
    net = Net()
    conv = net.conv(net.input((1, 3, 3, 2)), np.ones((2, 2, 2, 2)), name=f"{start}{rest}1")
    net.output(net.activation(conv, "ReLu", name=f"{start}{rest}2"))
    ran = backend.run(fe.dumps(net.graph), inputs_of(net.graph), Groups=True)
    assert [(event["name"], event["result"]) for event in ran.of("compiled")] == [(start, "Conv_2d")]


def test_groups_that_the_backend_cannot_compile_run_on_cpuref(backend: Backend) -> None:
    """Unlike an opaque layer: the next backend gets them."""
    net = Net(data_type="Signed32")
    x, y, z = (net.input((2, 3)) for _ in range(3))
    net.output(net.addition(net.addition(x, y, name="inner"), z, name="outer"))
    made = fe.fuse(net.graph, [fe.FusingRule("Addition{Addition, ?}", group="Sum")])
    data = {key: np.arange(6, dtype="<i4").reshape(2, 3) * key for key in range(3)}
    ran = backend.run(fe.dumps(made), data, Groups=True)
    assert [(event["event"], event["name"]) for event in ran.events] == [("rejected", prefix("Sum", 1))]
    np.testing.assert_array_equal(ran.outputs[0], data[0] + data[1] + data[2])


def test_a_backend_that_does_not_ask_for_groups_leaves_them_alone(backend: Backend) -> None:
    made = grouped(residual(), 3)
    ran = backend.run(fe.dumps(made), inputs_of(made))
    assert not ran.of("compiled")
    plain = backend.run(fe.dumps(residual()), inputs_of(made), ["CpuRef"])
    assert plain.outputs[0].tobytes() == ran.outputs[0].tobytes()
