"""convert: what older optimizers and backends insist on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import edges_into
from fusion_engine.tensor import Tensor
from tests.support.converted import fed, named
from tests.support.nets import Net


@pytest.mark.parametrize(
    ("data_type", "bias", "weight_scale", "bias_scale", "expected"),
    [
        ("Float32", [1.0], 0.0, 1.0, 0.0),
        ("QAsymmU8", [0], 0.5, 0.75, 0.25),
        ("QAsymmU8", [3], 0.5, 0.75, 0.75),
        ("QAsymmU8", [0], 0.5, 0.25, 0.25),
    ],
    ids=["floats", "zeros", "values", "right"],
)
def test_scales_of_biases(
    data_type: str, bias: list[float], weight_scale: float, bias_scale: float, expected: float
) -> None:
    net = Net(data_type=data_type)
    x = net.input((1, 1, 1, 1), quantization_scale=0.5)
    weights = net.tensor(np.ones((1, 1, 1, 1)), quantization_scale=weight_scale)
    held = Tensor.of(bias, "Float32" if data_type == "Float32" else "Signed32", quantization_scale=bias_scale)
    key = net.conv(x, weights, held)
    net.output(key)
    found = fe.convert(net.graph, "20.08").nodes[key]["constants"]["biases"].info
    assert found.quantization_scale == expected
    assert fe.equal(fe.convert(net.graph, "23.08"), net.graph)


def test_per_axis_scales_of_biases() -> None:
    net = Net(data_type="QAsymmS8")
    x = net.input((1, 1, 1, 1), quantization_scale=0.5)
    weights = net.tensor(np.ones((2, 1, 1, 1)), "QSymmS8", quantization_scales=(1.0, 2.0))
    key = net.conv(x, weights, Tensor.of([0, 0], "Signed32", quantization_scales=(9.0, 9.0)))
    net.output(key)
    assert fe.convert(net.graph, "20.08").nodes[key]["constants"]["biases"].info.quantization_scales == (0.5, 1.0)


def test_ranks_of_constants() -> None:
    net = Net()
    x, c = net.input((1, 2, 3)), net.constant([1, 2, 3], name="c")
    key = net.layer("Prelu", x, c, outputs=[(1, 2, 3)])
    net.output(key)
    net.output(c, name="c, too")
    found = fe.convert(net.graph, "20.08")
    (_, (made, _)) = edges_into(found, key)[1]
    assert found.nodes[made]["name"] == "c#2"
    assert found.nodes[made]["outputs"][0].shape == (1, 1, 3)
    assert found.nodes[made]["constants"]["input"].memory == net.graph.nodes[c]["constants"]["input"].memory
    assert fed(found, named(found, "c, too")) == {0: "Constant"}
    assert fe.equal(fe.convert(net.graph, "22.02"), fe.convert(net.graph, "23.08"))


def test_ranks_of_what_is_computed() -> None:
    net = Net()
    x, y = net.input((1, 2, 3)), net.input((3,))
    key = net.layer("Subtraction", y, x, outputs=[(1, 2, 3)], name="minus")
    net.output(key)
    found = fe.convert(net.graph, "20.08")
    reshape = named(found, "minus/operand")
    assert found.nodes[reshape]["params"] == {"targetShape": (1, 1, 3)}
    assert [source.layer for _, source in edges_into(found, key)] == [reshape, x]


@pytest.mark.parametrize(
    ("pad", "conv", "apart"),
    [
        ({"padList": [0, 0, 1, 1, 1, 1, 0, 0]}, {}, False),
        ({"padList": [0, 0, 1, 1, 1, 1, 0, 0], "padValue": 2.0}, {}, True),
        ({"padList": [0, 0, 0, 0, 0, 0, 1, 1]}, {}, True),
        ({"padList": [1, 0, 0, 0, 0, 0, 0, 0]}, {}, True),
        ({"padList": [0, 0, 1, 1, 1, 1, 0, 0]}, {"padLeft": 1}, True),
    ],
    ids=["folds right", "value", "channels", "batches", "own padding"],
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_pads(pad: dict[str, Any], conv: dict[str, Any], apart: bool, layout: str) -> None:
    lists = pad["padList"]
    if layout == "NCHW":
        lists = [*lists[:2], *lists[6:], *lists[2:6]]
    net = Net(layout=layout)
    shape = [4, 4, 4, 4]
    padded = tuple(size + lists[2 * axis] + lists[2 * axis + 1] for axis, size in enumerate(shape))
    x = net.layer("Pad", net.input(shape), outputs=[padded], params={**pad, "padList": lists})
    channels = padded[3] if layout == "NHWC" else padded[1]
    weights = np.ones((1, 1, 1, channels) if layout == "NHWC" else (1, channels, 1, 1))
    key = net.conv(x, weights, name="conv", **conv)
    net.output(key)
    found = fe.convert(net.graph, "20.08")
    assert fed(found, key)[0] == ("Reshape" if apart else "Pad")
    if apart:
        reshape = found.nodes[named(found, "conv/padded")]
        assert reshape["outputs"] == net.graph.nodes[x]["outputs"]
        assert reshape["params"] == {"targetShape": padded}
    assert fed(fe.convert(net.graph, "23.08"), key)[0] == "Pad"


@pytest.mark.parametrize("data_type", ["QAsymmU8", "QuantisedAsymm8", "QAsymmS8", "QSymmS16"])
@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_pads_of_quantized_tensors_write_stored_values(data_type: str, offset: int, value: float) -> None:
    net = Net(data_type=data_type)
    x = net.input((1, 3, 3, 1), quantization_scale=0.5, quantization_offset=offset)
    weights = net.tensor(np.ones((1, 1, 1, 1)), quantization_scale=0.5)
    key = net.conv(net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], value), weights)
    net.output(key)
    assert fed(fe.convert(net.graph, "22.02"), key)[0] == ("Pad" if value == offset else "Reshape")


@pytest.mark.parametrize("mode", ["Constant", "Reflect", "Symmetric"])
@pytest.mark.parametrize("kind", ["conv", "depthwise", "pool"])
@pytest.mark.parametrize("release", ["21.11", "22.02", "23.08", "24.08"])
def test_pads_of_other_modes(mode: str, kind: str, release: str) -> None:
    net = Net(feature_versions=(1, 1, 1))
    x = net.pad(net.input((1, 3, 3, 1)), [(0, 0), (1, 1), (1, 1), (0, 0)], mode=mode)
    key = net.pool(x, (2, 2), "Average") if kind == "pool" else getattr(net, kind)(x, np.ones((1, 2, 2, 1)))
    net.output(key)
    found = fe.convert(net.graph, release)
    assert fed(found, key)[0] == ("Pad" if mode == "Constant" else "Reshape")
    assert fe.equal(fe.convert(found, release), found)


def test_a_pad_of_nothing_stays_whatever_its_mode() -> None:
    net = Net()
    key = net.conv(net.pad(net.input((1, 3, 3, 1)), [(0, 0)] * 4, mode="Reflect"), np.ones((1, 1, 1, 1)))
    net.output(key)
    assert fed(fe.convert(net.graph, "23.08"), key)[0] == "Pad"


@pytest.mark.parametrize("kind", ["conv", "depthwise"])
@pytest.mark.parametrize("layouts", [("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "NHWC"), ("NCHW", "NCHW")])
@pytest.mark.parametrize("release", ["20.08", "20.11", "23.08"])
def test_batch_norms_of_the_other_layout(kind: str, layouts: tuple[str, str], release: str) -> None:
    net = Net()
    x = net.input((1, 2, 2, 2))
    weights = {"NHWC": (2, 1, 1, 2), "NCHW": (2, 2, 1, 1)}[layouts[0]] if kind == "conv" else (1, 1, 1, 2)
    conv = getattr(net, kind)(x, np.ones(weights), layout=layouts[0])
    key = net.batch_norm(conv, [1, 2], [0, 1], [0, 0], [1, 1], layout=layouts[1], name="bn")
    net.output(key)
    found = fe.convert(net.graph, release)
    apart = layouts[0] != layouts[1] and release != "20.08"
    assert fed(found, key)[0] == ("Reshape" if apart else net.graph.nodes[conv]["type"])
    if apart:
        reshape = found.nodes[named(found, "bn/convolved")]
        assert (reshape["params"], reshape["outputs"]) == ({"targetShape": (1, 2, 2, 2)}, found.nodes[conv]["outputs"])
