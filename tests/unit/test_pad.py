"""The fold pad: what is added, which values are neutral, and every refusal."""

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
from fusion_engine.tensor import TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.evaluate import evaluate
from tests.support.folding import count, fold, refusal
from tests.support.nets import Net

LOWEST = float(np.finfo(np.float32).min)

SIDES = {"padTop": 1, "padBottom": 2, "padLeft": 3, "padRight": 4}


def around(layout: str, *pads: tuple[int, int]) -> list[tuple[int, int]]:
    """A pad list of these pads on the spatial axes."""
    return [(0, 0), *pads, (0, 0)] if layout in ("NHWC", "NDHWC") else [(0, 0), (0, 0), *pads]


def padded(net: Net, layout: str = "NHWC", value: float = 0.0, **options: Any) -> int:
    """An Input of 3 x 3 with two channels, and a Pad with other pads on each side."""
    x = net.input((1, 3, 3, 2) if layout == "NHWC" else (1, 2, 3, 3), **options)
    return net.pad(x, around(layout, (1, 2), (3, 4)), value, name="pad")


def fields(graph: Any, key: int, *names: str) -> list[Any]:
    return [graph.nodes[key]["params"][name] for name in names]


def check(net: Net, root: int) -> Any:
    """The fold's verdict on a layer and the Pad below it."""
    workspace = Workspace(net.graph)
    return find_fold("pad").check(workspace, Match(root, (root, workspace.inputs(root)[0][1].layer), (), (), (), ()))


# Added


@pytest.mark.parametrize("own", [0, 5])
@pytest.mark.parametrize("form", ["member", "constant"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("kind", ["conv", "depthwise", "pool"])
def test_pads_are_added_to_the_layers_own(kind: str, layout: str, form: str, own: int) -> None:
    net = Net(form=form, layout=layout, feature_versions=(1, 0, 0))
    pad = padded(net, layout)
    pads = {"padTop": own, "padLeft": own + 1} if own else {}
    if kind == "pool":
        root = net.pool(pad, (5, 5), "Average", stride=(1, 1), **pads)
    else:
        make = net.conv if kind == "conv" else net.depthwise
        root = make(pad, np.ones((2, 2, 2, 2)), name="root", **pads)
    net.output(root)
    fused = fold(net.graph, "pad")
    assert fields(fused, root, *SIDES) == [1 + own, 2, 3 + (own + 1 if own else 0), 4]
    assert fused.nodes[root]["name"] == net.graph.nodes[root]["name"]
    assert fused.nodes[root]["outputs"] == net.graph.nodes[root]["outputs"]
    assert count(fused, "Pad") == 0
    assert not fe.validate(fused)
    x = np.random.default_rng(1).uniform(-1, 1, net.info(0).shape)
    before, after = evaluate(net.graph, {0: x})[0], evaluate(fused, {0: x})[0]
    assert np.abs(before - after).max() <= 1e-12 * np.abs(before).max()


@pytest.mark.parametrize("layout", ["NDHWC", "NCDHW"])
def test_convolution_3d(layout: str) -> None:
    net = Net()
    x = net.input((1, 2, 2, 2, 1) if layout == "NDHWC" else (1, 1, 2, 2, 2))
    pad = net.pad(x, around(layout, (1, 2), (3, 4), (5, 6)))
    root = net.conv3d(pad, np.ones((1, 1, 1, 1, 1)), output=replace(net.info(pad)), padFront=7)
    net.graph.nodes[root]["params"] = net.graph.nodes[root]["params"].with_(dataLayout=layout)
    net.output(root)
    fused = fold(net.graph, "pad")
    assert fields(fused, root, "padFront", "padBack", *SIDES) == [8, 2, 3, 4, 5, 6]


def test_computed_weights_do_not_matter() -> None:
    net = Net()
    pad = padded(net)
    weights, bias = net.input((1, 1, 1, 2)), net.input((1,))
    root = net.conv(pad, Source(weights, 0), Source(bias, 0))
    net.output(root)
    assert fields(fold(net.graph, "pad"), root, *SIDES) == [1, 2, 3, 4]


def test_pads_that_the_file_leaves_out_are_zero() -> None:
    net = Net()
    root = net.conv(padded(net), np.ones((1, 1, 1, 2)))
    net.output(root)
    assert "padTop" not in net.graph.nodes[root]["params"]
    assert fields(fold(net.graph, "pad"), root, "padTop") == [1]


def test_a_file_of_release_19_05() -> None:
    net = Net("19.05", form="member")
    pad = padded(net)
    net.graph.nodes[pad]["params"] = FrozenDict(padList=net.graph.nodes[pad]["params"]["padList"])
    root = net.conv(pad, np.ones((1, 1, 1, 2)))
    net.output(root)
    fused = fold(net.graph, "pad")
    assert fields(fused, root, *SIDES) == [1, 2, 3, 4]
    assert fe.dumps(fused)


def test_pads_of_pads() -> None:
    net = Net()
    pad = net.pad(padded(net), around("NHWC", (1, 1), (1, 1)))
    root = net.conv(pad, np.ones((1, 1, 1, 2)))
    net.output(root)
    assert fields(fold(net.graph, "pad"), root, *SIDES) == [2, 3, 4, 5]


# The neutral value


def test_all_twos_under_a_kernel_of_ones() -> None:
    """Padding with 1 adds 5 ones to four twos: 13 everywhere, where zeros would give 8."""
    for value, expected in ((0.0, 8), (1.0, 13)):
        net = Net()
        root = net.conv(net.pad(net.input((1, 2, 2, 1)), around("NHWC", (1, 1), (1, 1)), value), np.ones((1, 3, 3, 1)))
        net.output(root)
        x = np.full((1, 2, 2, 1), 2.0)
        assert np.all(evaluate(net.graph, {0: x})[0] == expected)
        if value:
            assert refusal(net.graph, "pad").endswith("writes 1: the pads of a layer are zeros")
        else:
            assert np.all(evaluate(fold(net.graph, "pad"), {0: x})[0] == expected)


@pytest.mark.parametrize("mode", ["Reflect", "Symmetric"])
def test_other_modes(mode: str) -> None:
    net = Net()
    net.output(
        net.conv(net.pad(net.input((1, 4, 4, 1)), around("NHWC", (1, 1), (1, 1)), mode=mode), np.ones((1, 1, 1, 1)))
    )
    assert f"has the paddingMode {mode}" in refusal(net.graph, "pad")


@pytest.mark.parametrize(
    ("data_type", "offset", "value", "folds"),
    [
        ("QAsymmU8", 128, 128, True),
        ("QAsymmU8", 128, 0, False),
        ("QAsymmS8", -5, -5, True),
        ("QAsymmS8", -5, 251, False),
        ("QAsymmS8", -5, 0, False),
        ("QuantisedAsymm8", 7, 7, True),
        ("QSymmS16", 0, 0, True),
    ],
)
def test_zero_point_of_a_quantized_convolution(data_type: str, offset: int, value: float, folds: bool) -> None:
    grid = {"quantization_scale": 0.5, "quantization_offset": offset}
    net = Net(data_type=data_type)
    pad = padded(net, "NHWC", value, **grid)
    root = net.conv(pad, net.tensor(np.full((1, 1, 1, 2), 9), **grid))
    net.output(root)
    if folds:
        assert fields(fold(net.graph, "pad"), root, *SIDES) == [1, 2, 3, 4]
    else:
        assert f"the zero point of its {data_type} is {offset}" in refusal(net.graph, "pad")


@pytest.mark.parametrize("pads", [((0, 0), (1, 1), (1, 1), (0, 1)), ((1, 0), (0, 0), (0, 0), (0, 0))])
def test_batch_and_channel_pads(pads: Any) -> None:
    net = Net()
    pad = net.pad(net.input((1, 2, 2, 1)), pads)
    net.output(net.conv(pad, np.ones((1, 1, 1, net.info(pad).shape[3]))))
    assert f"pads the {'batch axis 0' if pads[0][0] else 'channel axis 3'}" in refusal(net.graph, "pad")


def max_pool(value: float, **options: Any) -> tuple[Net, int]:
    net = Net(data_type=options.pop("data_type", "Float32"))
    grid = options.pop("grid", {})
    root = net.pool(net.pad(net.input((1, 2, 2, 1), **grid), around("NHWC", (1, 1), (1, 1)), value), (2, 2), **options)
    net.output(root)
    return net, root


def test_max_pooling_of_negative_numbers() -> None:
    """A zero is more than any of them: only the lowest value changes nothing."""
    x = np.array([[-1, -2], [-3, -4.0]]).reshape(1, 2, 2, 1)
    net, _ = max_pool(0.0)
    assert evaluate(net.graph, {0: x})[0].reshape(-1).tolist() == [0, 0, 0, 0]
    assert "the pads of a maximum are below -3.40282e+38, the lowest Float32" in refusal(net.graph, "pad")
    for value in (-np.inf, LOWEST):
        net, root = max_pool(value)
        fused = fold(net.graph, "pad")
        assert evaluate(fused, {0: x})[0].reshape(-1).tolist() == [-1, -2, -3, -4]
        assert fields(fused, root, "padTop", "padBottom") == [1, 1]
        assert "paddingMethod" not in fused.nodes[root]["params"]


@pytest.mark.parametrize(
    ("data_type", "value", "folds"),
    [
        ("QAsymmU8", 0, True),
        ("QAsymmU8", 10, False),
        ("QAsymmS8", -128, True),
        ("QAsymmS8", 10, False),
        ("QSymmS16", -32768, True),
        ("Float16", -65504, True),
        ("Float16", -65000, False),
    ],
)
def test_lowest_value_of_a_maximum(data_type: str, value: float, folds: bool) -> None:
    offset = 0 if data_type == "QSymmS16" else 10
    grid = {"quantization_scale": 0.5, "quantization_offset": offset} if data_type != "Float16" else {}
    net, _ = max_pool(value, data_type=data_type, grid=grid)
    if folds:
        fold(net.graph, "pad")
    else:
        assert "lowest" in refusal(net.graph, "pad")


def test_a_window_of_padding_alone() -> None:
    """Arm NN gives 0 for it; over a Pad it is the lowest value."""
    net = Net()
    x = net.input((1, 2, 2, 1))
    net.output(net.pool(net.pad(x, around("NHWC", (2, 0), (0, 0)), LOWEST), (2, 2)))
    assert "has a window of padding alone along axis 1" in refusal(net.graph, "pad")
    net = Net()
    x = net.input((1, 2, 2, 1))
    net.output(net.pool(net.pad(x, around("NHWC", (0, 0), (0, 2)), LOWEST), (2, 2)))
    assert "has 2 windows along axis 2 and would have 1" in refusal(net.graph, "pad")


def average(own: dict[str, Any] | None = None, kind: str = "Average", **options: Any) -> tuple[Net, int]:
    """One value, a Pad of one on each side, and pooling of 3 x 3."""
    net = Net(data_type=options.get("data_type", "Float32"))
    x = net.input((1, 1, 1, 1), **options.get("grid", {}))
    root = net.pool(net.pad(x, around("NHWC", *options.get("pads", [(1, 1), (1, 1)]))), (3, 3), kind, **(own or {}))
    net.output(root)
    return net, root


@pytest.mark.parametrize(("kind", "expected"), [("Average", 4 / 9), ("L2", np.sqrt(16 / 9))])
@pytest.mark.parametrize("method", ["IgnoreValue", "Exclude", None])
def test_average_counts_the_padding(kind: str, expected: float, method: str | None) -> None:
    net, root = average({} if method is None else {"paddingMethod": method}, kind)
    fused = fold(net.graph, "pad")
    assert fields(fused, root, "paddingMethod") == ["IgnoreValue"]
    for graph in (net.graph, fused):
        assert evaluate(graph, {0: [[[[4]]]]})[0].item() == pytest.approx(expected, rel=1e-15)


def test_average_with_pads_of_its_own() -> None:
    own = {"padTop": 1, "padBottom": 1, "padLeft": 1, "padRight": 1}
    net, root = average({**own, "paddingMethod": "IgnoreValue"})
    fused = fold(net.graph, "pad")
    assert fields(fused, root, "padTop", "padRight") == [2, 2]
    assert np.allclose(evaluate(net.graph, {0: [[[[4]]]]})[0], evaluate(fused, {0: [[[[4]]]]})[0], rtol=1e-15)
    net, root = average({**own, "paddingMethod": "Exclude"})
    assert "has pads of its own under paddingMethod Exclude" in refusal(net.graph, "pad")


def test_average_under_a_pad_on_one_side() -> None:
    net, root = average(pads=[(0, 2), (0, 2)], own={"paddingMethod": "Exclude", "strideX": 1, "strideY": 1})
    fused = fold(net.graph, "pad")
    assert fields(fused, root, *SIDES, "paddingMethod") == [0, 2, 0, 2, "IgnoreValue"]
    assert evaluate(fused, {0: [[[[4]]]]})[0].item() == pytest.approx(4 / 9, rel=1e-15)


def test_average_of_a_quantized_tensor_is_left_to_the_backends() -> None:
    net, _ = average(data_type="QAsymmU8", grid={"quantization_scale": 1.0})
    assert "is Average pooling of QAsymmU8" in refusal(net.graph, "pad")


def test_global_pooling() -> None:
    net, root = average()
    net.graph.nodes[root]["params"] = net.graph.nodes[root]["params"].with_(strideX=0, strideY=0)
    assert fields(fold(net.graph, "pad"), root, "padTop") == [1]


# What else is refused


def _no_descriptor(net: Net) -> None:
    net.graph.nodes[1]["params"] = None


def _requantized(net: Net) -> None:
    net.graph.nodes[0]["outputs"] = (replace(net.info(0), data_type="Float16"),)


def _other_shape(net: Net) -> None:
    net.graph.nodes[1]["params"] = net.graph.nodes[1]["params"].with_(padList=(0, 0, 1, 1, 1, 1, 0, 0))


def _short_list(net: Net) -> None:
    net.graph.nodes[1]["params"] = net.graph.nodes[1]["params"].with_(padList=(0, 0, 1, 2, 3, 4))


def _no_info(net: Net) -> None:
    net.graph.nodes[0]["outputs"] = (None,)


def _unknown_shape(net: Net) -> None:
    net.graph.nodes[0]["outputs"] = (replace(net.info(0), dimension_specificity=(True, False, True, True)),)


def _layout(net: Net) -> None:
    net.graph.nodes[3]["params"] = net.graph.nodes[3]["params"].with_(dataLayout="NDHWC")


def _override(net: Net) -> None:
    net.graph.nodes[3]["overrides"] = FrozenDict({0: (True, TensorInfo((1, 9, 9, 2)))})  # type: ignore[dict-item]


def _too_far(net: Net) -> None:
    net.graph.nodes[3]["params"] = net.graph.nodes[3]["params"].with_(padTop=0xFFFFFFFF)


def _per_axis(net: Net) -> None:
    for key in (0, 1):
        info = replace(net.info(key), data_type="QAsymmS8", quantization_scales=(1.0, 2.0), quantization_dim=3)
        net.graph.nodes[key]["outputs"] = (info,)


def _signed(net: Net) -> None:
    for key in (0, 1):
        net.graph.nodes[key]["outputs"] = (replace(net.info(key), data_type="Signed32"),)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_no_descriptor, "layer 1 'pad' has no descriptor"),
        (_requantized, "changes data type or quantization"),
        (_other_shape, "other than its padList (0, 0, 1, 1, 1, 1, 0, 0)"),
        (_short_list, "other than its padList"),
        (_no_info, "has no TensorInfo"),
        (_unknown_shape, "a tensor of unknown shape"),
        (_layout, "is NDHWC and takes a tensor of rank 4"),
        (_override, "overrides the TensorInfo of its input"),
        (_too_far, "would have a padTop of 4294967296"),
        (_per_axis, "with a quantization per axis"),
        (_signed, "gives Signed32, which no layer with pads takes"),
    ],
)
def test_odd_layers(change: Callable[[Net], None], reason: str) -> None:
    net = Net()
    root = net.conv(padded(net), np.ones((1, 1, 1, 2)))
    change(net)
    with pytest.raises(Refused) as caught:
        check(net, root)
    assert reason in caught.value.reason


def test_an_override_of_the_pads_input_moves_up() -> None:
    net = Net()
    pad = padded(net)
    root = net.conv(pad, np.ones((1, 1, 1, 2)))
    net.output(root)
    override = (True, net.info(0))
    net.graph.nodes[pad]["overrides"] = FrozenDict({0: override})  # type: ignore[dict-item]
    assert fold(net.graph, "pad").nodes[root]["overrides"] == {0: override}


def test_a_second_reader_of_the_pad() -> None:
    net = Net()
    pad = padded(net)
    net.output(net.conv(pad, np.ones((1, 1, 1, 2))))
    net.output(net.pool(pad, (2, 2), "Average"))
    refused = fe.fuse(net.graph, fe.load_rules("armnn")).graph["refusals"]
    assert {"is used elsewhere too" in refusal.reason for refusal in refused if refusal.rule == "pad"} == {True}


def test_match_of_other_layers() -> None:
    net = Net()
    root = net.activation(padded(net))
    with pytest.raises(Refused, match="the match holds Activation, Pad"):
        check(net, root)
