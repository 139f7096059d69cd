"""batch-norm judged by real Arm NN: networks run before and after, max|x-y| <= 1e-5 * max|x| per output in Float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import Network
from tests.support.nets import Net
from tests.support.real_armnn import RealArmnn

RULE = fe.FusingRule(
    "BatchNormalization{Convolution2d|DepthwiseConvolution2d|TransposeConvolution2d|FullyConnected|Convolution3d}",
    fold="batch-norm",
)

TOLERANCE = {"float32": 1e-5, "float16": 2e-3}
"""Of the largest value. Float16 keeps 11 bits; weights and outputs are rounded to them at other points."""

BOTH = ("20.08", "23.08")
NEW = ("23.08",)

CORPUS = {
    "handmade-20.08/bn_two_consumers.armnn": (1, BOTH),
    "handmade-20.08/conv_bias_bn_relu6_nchw.armnn": (1, BOTH),
    "handmade-20.08/conv_bn_relu_nhwc.armnn": (1, BOTH),
    "handmade-20.08/conv_two_consumers_nofuse.armnn": (0, BOTH),
    "handmade-20.08/deep_chain_2000.armnn": (666, BOTH),
    "handmade-20.08/dwconv_bn_relu6_nhwc.armnn": (1, BOTH),
    "handmade-20.08/fp16_conv_bn_relu.armnn": (1, BOTH),
    "handmade-20.08/residual_add_relu.armnn": (4, BOTH),
    "handmade-20.08/transpose_convolution.armnn": (1, BOTH),
    "handmade-20.08/wide_500_branches.armnn": (500, BOTH),
    "handmade-23.08/bn_two_consumers.armnn": (1, NEW),
    "handmade-23.08/conv_bias_bn_relu6_nchw.armnn": (1, NEW),
    "handmade-23.08/conv_bn_relu_nhwc.armnn": (1, NEW),
    "handmade-23.08/conv_two_consumers_nofuse.armnn": (0, NEW),
    "handmade-23.08/deep_chain_2000.armnn": (666, NEW),
    "handmade-23.08/dwconv_bn_relu6_nhwc.armnn": (1, NEW),
    "handmade-23.08/fp16_conv_bn_relu.armnn": (1, NEW),
    "handmade-23.08/new_fp16_weights_dequantize.armnn": (0, NEW),
    "handmade-23.08/residual_add_relu.armnn": (4, NEW),
    "handmade-23.08/transpose_convolution.armnn": (1, BOTH),
    "handmade-23.08/wide_500_branches.armnn": (500, NEW),
    "public/ssd_mobilenet_v3_small_coco_2019_08_14.armnn": (52, ("20.08",)),
}
"""Corpus file -> batch norms that fold, and the releases that run the file."""


def same_outputs(real_armnn: RealArmnn, before: Path | bytes, after: bytes, release: str, seed: int = 1) -> None:
    """Both run and give the same outputs, to the tolerance of their type."""
    first = real_armnn.run(before, release, seed=seed).outputs
    second = real_armnn.run(after, release, seed=seed).outputs
    assert [(o.id, o.name, o.values.shape) for o in first] == [(o.id, o.name, o.values.shape) for o in second]
    for x, y in zip(first, second, strict=True):
        expected, found = x.values.astype(np.float64), y.values.astype(np.float64)
        assert np.isfinite(expected).all()
        assert np.abs(expected).max() > 0
        assert np.abs(expected - found).max() <= TOLERANCE[x.values.dtype.name] * np.abs(expected).max(), x.name


def batch_norms(graph: Network) -> int:
    return sum(node["type"] == "BatchNormalization" for _, node in graph.nodes(data=True))


@pytest.mark.parametrize("name", CORPUS)
def test_corpus(real_armnn: RealArmnn, corpus: Path, name: str) -> None:
    count, releases = CORPUS[name]
    graph = fe.load(corpus / name)
    fused = fe.fuse(graph, RULE)
    assert len(fused.graph["fusions"]) == count
    assert batch_norms(fused) == batch_norms(graph) - count
    assert len(fused.graph["refusals"]) == batch_norms(fused)
    for release in releases:
        same_outputs(real_armnn, corpus / name, fe.dumps(fused), release)


def test_every_batch_norm_of_the_corpus_is_accounted_for(corpus: Path) -> None:
    found = {str(path.relative_to(corpus)) for path in corpus.rglob("*.armnn") if batch_norms(fe.load(path))}
    assert found == {*CORPUS, "handmade-23.08/new_dynamic_weights.armnn"}


def test_refusals_of_the_corpus(corpus: Path) -> None:
    """Two consumers, and weights that are not constant (23.08 crashes when it tries that one)."""
    for name, words in (
        ("handmade-20.08/conv_two_consumers_nofuse.armnn", "too: layer"),
        (
            "handmade-23.08/new_dynamic_weights.armnn",
            "weights of layer 3 'conv' are computed by Input layer 1 'weights'",
        ),
        ("handmade-23.08/new_fp16_weights_dequantize.armnn", "are computed by Dequantize layer 3"),
    ):
        graph = fe.load(corpus / name)
        fused = fe.fuse(graph, RULE)
        assert fused.graph["refusals"]
        for refusal in fused.graph["refusals"]:
            assert words in refusal.reason
        assert fe.equal(graph, fused)


def built(kind: str, layout: str, form: str, bias: bool) -> Net:
    """A layer of three input and six output channels with a batch norm over it, random parameters.

    One image: 20.08 crashes on a transposed convolution of two.
    """
    random = np.random.default_rng(7)

    def drawn(*shape: int) -> np.ndarray:
        return random.uniform(-1, 1, shape)

    net = Net(form=form, layout=layout, feature_versions=(1, 0, 0) if form == "member" else (1, 1, 1))
    x = net.input((1, 7, 6, 3) if layout == "NHWC" else (1, 3, 7, 6))
    size = 6
    values = drawn(size) if bias else None
    if kind == "DepthwiseConvolution2d":
        layer = net.depthwise(
            x, drawn(2, 3, 3, 2) if form == "member" else drawn(1, 3, 2, 6), values, padTop=1, strideX=2
        )
    else:
        make = net.conv if kind == "Convolution2d" else net.transpose_conv
        weights = drawn(size, 3, 2, 3) if layout == "NHWC" else drawn(size, 3, 3, 2)
        layer = make(x, weights, values, strideY=2)
    statistics = {"gamma": drawn(size), "beta": drawn(size), "mean": drawn(size), "variance": drawn(size) ** 2}
    net.output(net.batch_norm(layer, **statistics))
    return net


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("kind", "form", "releases"),
    [
        ("Convolution2d", "member", BOTH),
        ("Convolution2d", "constant", NEW),
        ("DepthwiseConvolution2d", "member", BOTH),
        ("DepthwiseConvolution2d", "constant", NEW),
        ("TransposeConvolution2d", "member", BOTH),
    ],
)
def test_built(real_armnn: RealArmnn, kind: str, form: str, releases: tuple[str, ...], layout: str, bias: bool) -> None:
    graph = built(kind, layout, form, bias).graph
    before = fe.dumps(graph)
    fused = fe.fuse(fe.loads(before), RULE)
    assert batch_norms(fused) == 0
    after = fe.dumps(fused)
    for release in releases:
        same_outputs(real_armnn, before, after, release, seed=3)
