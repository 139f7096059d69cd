"""The rules and names for users of NvNeural, and the page about them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.schema import schema
from tests.support.nets import Net

PAGE = (Path(__file__).parents[2] / "docs" / "nvneural.md").read_text("utf-8")
RULES = fe.load_rules("nvneural")
VOCABULARY = dict(RULES[0].vocabulary)
LAYERS = PAGE[PAGE.index("## Layers") : PAGE.index("### No counterpart")]


def conv(net: Net, x: int, channels: int, kernel: int = 3, **params: int) -> int:
    """A convolution that keeps height and width."""
    inputs = net.info(x).shape[1 if net.layout == "NCHW" else 3]
    shape = (channels, inputs, kernel, kernel) if net.layout == "NCHW" else (channels, kernel, kernel, inputs)
    pads = dict.fromkeys(("padLeft", "padRight", "padTop", "padBottom"), kernel // 2)
    return net.conv(x, np.ones(shape), np.ones(channels), **{**pads, **params})


def u_net(layout: str, data_type: str) -> Network:
    """Down by pooling, up by enlarging, with a way across: the shape of the network that the names come from."""
    net = Net(layout=layout, data_type=data_type)
    image = net.input((1, 3, 16, 16) if layout == "NCHW" else (1, 16, 16, 3), name="input")
    across = net.activation(conv(net, image, 8), "ReLu", name="enc_conv0")
    pool = net.pool(net.activation(conv(net, across, 8), "ReLu", name="enc_conv1"), (2, 2), name="pool1")
    deep = net.activation(conv(net, pool, 8), "ReLu", name="enc_conv2")
    shape = (1, 8, 16, 16) if layout == "NCHW" else (1, 16, 16, 8)
    params = {"targetHeight": 16, "targetWidth": 16, "method": "NearestNeighbor", "dataLayout": layout}
    large = net.layer("Resize", deep, outputs=(shape,), params=params, name="upsample1")
    both = net.concat(large, across, axis=1 if layout == "NCHW" else 3, name="conca1")
    wide = net.activation(conv(net, both, 16), "ReLu", name="dec_conv1a")
    net.output(conv(net, wide, 16), name="output")
    return net.graph


def results(graph: Network) -> list[tuple[str, str]]:
    """The rules that fired, and the names of their roots."""
    return [(fusion.rule, fusion.layers[0].name) for fusion in fe.fuse(graph, RULES).graph["fusions"]]


def test_a_u_net_in_single_precision() -> None:
    """Convolutions with their ReLu, the way up in one; the last convolution has no activation and stays."""
    assert results(u_net("NCHW", "Float32")) == [
        ("upsample-concatenation", "conca1"),
        ("conv-relu-fp32", "enc_conv0"),
        ("conv-relu-fp32", "enc_conv1"),
        ("conv-relu-fp32", "enc_conv2"),
        ("conv-relu-fp32", "dec_conv1a"),
    ]


def test_a_u_net_in_half_precision() -> None:
    """The first convolution has 3 input channels, too few for tensor cores; the last no activation."""
    fired = results(u_net("NHWC", "Float16"))
    assert fired[:2] == [("upsample-concatenation", "conca1"), ("conv-pool-fp16", "pool1")]
    assert fired[2:4] == [("conv-activation-tensor-core", "enc_conv2"), ("conv-activation-tensor-core", "dec_conv1a")]
    assert [rule for rule, _ in fired[4:]] == ["conv-tensor-core"]


def test_formats_that_no_kernel_is_written_for() -> None:
    """Single precision in NHWC: only rules of version 1, which have no scope."""
    assert results(u_net("NHWC", "Float32")) == [("upsample-concatenation", "conca1")]


@pytest.mark.parametrize("spelling", ["old", "new"])
def test_the_end_of_a_residual_block(spelling: str) -> None:
    net = Net(spelling=spelling)
    x = net.input((1, 4, 4, 3), name="x")
    total = net.addition(x, conv(net, x, 3, 1), name="sum")
    net.output(net.activation(total, "ReLu", name="relu"))
    assert results(net.graph) == [("conv-add-relu", "relu")]


@pytest.mark.parametrize(("slope", "fires"), [(0.1, True), (0.2, False)])
def test_act_alpha(slope: float, fires: bool) -> None:
    net = Net()
    x = net.input((1, 4, 4, 3), name="x")
    net.output(net.activation(conv(net, x, 3), "LeakyReLu", slope, name="leaky"))
    assert results(net.graph) == [("conv-leaky", "leaky")] * fires


def test_a_fully_connected_layer() -> None:
    net = Net()
    x = net.input((1, 4), name="x")
    net.output(net.activation(net.fully_connected(x, np.ones((4, 2))), "Sigmoid", name="sigmoid"))
    assert results(net.graph) == [("fully-connected-activation", "sigmoid")]


def test_opaque_layers_can_be_undone() -> None:
    graph = u_net("NCHW", "Float32")
    assert fe.equal(fe.unfuse(fe.fuse(graph, RULES)), graph)


def test_the_page_and_the_rules_name_the_same_layers() -> None:
    rows = [row.split("|")[1] for row in LAYERS.splitlines() if row.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(VOCABULARY)


def test_the_counterparts_are_layers_of_arm_nn() -> None:
    rows = [row.split("|") for row in LAYERS.splitlines() if row.startswith("| `")]
    types = [name.strip() for row in rows for name in row[3].split(",")]
    assert len(types) >= len(rows)
    assert all(name in schema().layers for name in types), types
    for row in rows:
        for name in re.findall(r"`(\w+)`", row[1]):
            assert any(kind.strip() in _expanded(name) for kind in row[3].split(",")), name


def _expanded(name: str) -> str:
    """The text that a name stands for, names of the vocabulary in it replaced."""
    text = VOCABULARY[name]
    return VOCABULARY.get(text, text)


@pytest.mark.parametrize(
    "text",
    [
        line
        for block in re.findall(r"^```rule\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
        for line in block.split("\n")
        if line
    ],
)
def test_the_rules_on_the_page(text: str) -> None:
    assert fe.FusingRule(text, into="Made", vocabulary=VOCABULARY).patterns


@pytest.mark.parametrize(
    "condition",
    [
        "convolution[kernel == 3x3 && kernel.w <= 5 && stride == 1x1 && channels >= 1 && biasEnabled == 1]",
        "convolution[padLeft == 1 && padRight == 1 && padTop == 1 && padBottom == 1 && output.shape == 16x16x8]",
        'pooling[poolType == "Max" && kernel == 2x2]',
        "concatenation[concatAxis == 1]",
        'upsample[method == "NearestNeighbor" && output.w == 16 && output.h == 16]',
    ],
)
def test_the_parameters_on_the_page(condition: str) -> None:
    """Each is a condition that holds somewhere in the U-net."""
    for name in re.findall(r"(\w+(?:\.\w+)?) [=<>]", condition):
        assert name in PAGE, name
    rule = fe.FusingRule(condition, into="Made", vocabulary=VOCABULARY)
    assert fe.fuse(u_net("NCHW", "Float32"), [rule]).graph["fusions"]
