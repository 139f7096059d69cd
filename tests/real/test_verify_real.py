"""Verification's expressions judged by real Arm NN, and verification of what the shipped rules do to the corpus.

Every layer type that verification can run is run here by itself, in each layout, weight form and data
type that a release can run, and in the networks of the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net
from tests.support.real_armnn import RealArmnn

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from fusion_engine.verifying.expressions import EXPRESSIONS
from fusion_engine.verifying.measure import measure
from tests.support.onnxed import evaluate, random_inputs

OLD, NEW, BOTH = ("20.08",), ("23.08",), ("20.08", "23.08")

SKIPPED = {
    "handmade-20.08/pad_conv_must_not_fold.armnn": "20.08 folds pads that it must not",
    "handmade-20.08/pad_conv_with_own_padding.armnn": "20.08 folds pads that it must not",
    "handmade-20.08/zoo_fill_rank.armnn": "20.08 ignores the value of Fill",
}

DEEP_QUANTIZED = 8
"""Quanta by which a whole quantized network may be off: a sum that lies at half a quantum rounds either way.

Each layer alone is within one.
"""


def compare(graph: Network, real_armnn: RealArmnn, model: bytes | Path, release: str, quanta: float = 1.0) -> None:
    """The network by onnxruntime and by real Arm NN on the same inputs."""
    inputs = random_inputs(graph)
    named = {f"#{graph.nodes[key]['binding_id']}": values for key, values in inputs.items()}
    outputs = real_armnn.run(model, release, inputs=named).outputs
    found = evaluate(graph, inputs)
    assert len(found) == len(outputs)
    for key, ours, theirs in zip(graph.graph["outputs"], found, outputs, strict=True):
        source = next(iter(graph.pred[key]))
        slot = graph.edges[source, key]["slots"][0][0]
        info = graph.nodes[source]["outputs"][slot]
        result = measure([theirs.values.reshape(ours.shape)], [ours], info)
        allowed = quanta if result.unit == "quanta" else result.tolerance
        assert result.difference <= allowed, f"{theirs.name}: {result}"
        assert result.finite


# Layers one by one

Make = Callable[[Net], int]
CASES: dict[str, tuple[Make, dict[str, Any], tuple[str, ...]]] = {}
RANDOM = np.random.default_rng(3)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-1, 1, shape)


def case(name: str, make: Make, releases: tuple[str, ...] = BOTH, **options: Any) -> None:
    CASES[name] = (make, options, releases)


def shaped(layout: str, n: int, h: int, w: int, c: int) -> tuple[int, ...]:
    return (n, h, w, c) if layout == "NHWC" else (n, c, h, w)


for layout in ("NHWC", "NCHW"):
    shape = shaped(layout, 1, 7, 6, 3)
    kernel = (5, 3, 2, 3) if layout == "NHWC" else (5, 3, 3, 2)
    for form, releases in (("member", BOTH), ("constant", NEW)):
        options = {"layout": layout, "form": form, "feature_versions": (1, 0, 0) if form == "member" else (1, 1, 1)}
        windows = {"strideX": 2, "padTop": 1, "padRight": 2, "dilationY": 2}
        case(
            f"conv {layout} {form}",
            lambda net, s=shape, k=kernel, w=windows: net.conv(net.input(s), drawn(*k), drawn(5), **w),
            releases,
            **options,
        )
        weights = (2, 3, 3, 2) if form == "member" else (1, 3, 2, 6)
        case(
            f"depthwise {layout} {form}",
            lambda net, s=shape, k=weights, w=windows: net.depthwise(net.input(s), drawn(*k), drawn(6), **w),
            releases,
            **options,
        )
    case(
        f"transpose conv {layout}",
        lambda net, s=shape, k=kernel: net.transpose_conv(
            net.input(s), drawn(*k), drawn(5), strideX=2, strideY=3, padLeft=1, padBottom=2
        ),
        layout=layout,
    )
    case(
        f"batch norm {layout}",
        lambda net, s=shape: net.batch_norm(net.input(s), drawn(3), drawn(3), drawn(3), drawn(3) ** 2),
        layout=layout,
    )
    for kind in ("Max", "Average", "L2"):
        for method in ("IgnoreValue", "Exclude"):
            pads = {"padLeft": 1, "padTop": 2, "padBottom": 1}
            case(
                f"pool {kind} {method} {layout}",
                lambda net, s=shape, k=kind, m=method, p=pads: net.pool(
                    net.input(s), (3, 2), k, stride=(2, 1), paddingMethod=m, **p
                ),
                NEW if kind == "L2" else BOTH,
                layout=layout,
            )
    case(
        f"l2 normalization {layout}",
        lambda net, s=shape, o=layout: net.layer(
            "L2Normalization", net.input(s), params={"dataLayout": o, "eps": 1e-12}
        ),
        layout=layout,
    )
    case(
        f"instance normalization {layout}",
        lambda net, s=shape, o=layout: net.layer(
            "InstanceNormalization",
            net.input(s),
            params={"dataLayout": o, "eps": 0.01, "gamma": 1.5, "beta": 0.5},
        ),
        layout=layout,
    )
    blocks = {"blockShape": [2, 3], "dataLayout": layout}
    case(
        f"space to batch {layout}",
        lambda net, o=layout, b=blocks: net.layer(
            "SpaceToBatchNd",
            net.input(shaped(o, 2, 5, 6, 3)),
            outputs=(shaped(o, 12, 3, 3, 3),),
            params={**b, "padList": [1, 0, 2, 1]},
        ),
        layout=layout,
    )
    case(
        f"batch to space {layout}",
        lambda net, o=layout, b=blocks: net.layer(
            "BatchToSpaceNd",
            net.input(shaped(o, 12, 3, 3, 2)),
            outputs=(shaped(o, 2, 5, 7, 2),),
            params={**b, "crops": [0, 1, 2, 0]},
        ),
        layout=layout,
    )
    case(
        f"depth to space {layout}",
        lambda net, o=layout: net.layer(
            "DepthToSpace",
            net.input(shaped(o, 1, 2, 3, 8)),
            outputs=(shaped(o, 1, 4, 6, 2),),
            params={"blockSize": 2, "dataLayout": o},
        ),
        layout=layout,
    )
    case(
        f"space to depth {layout}",
        lambda net, o=layout: net.layer(
            "SpaceToDepth",
            net.input(shaped(o, 1, 4, 6, 2)),
            outputs=(shaped(o, 1, 2, 3, 8),),
            params={"blockSize": 2, "dataLayout": o},
        ),
        layout=layout,
    )
    for corners, half in ((False, False), (True, False), (False, True)):
        case(
            f"resize {layout} {corners} {half}",
            lambda net, o=layout, c=corners, h=half: net.layer(
                "Resize",
                net.input(shaped(o, 1, 3, 4, 2)),
                outputs=(shaped(o, 1, 7, 5, 2),),
                params={
                    "method": "Bilinear",
                    "dataLayout": o,
                    "targetHeight": 7,
                    "targetWidth": 5,
                    "alignCorners": c,
                    "halfPixelCenters": h,
                },
            ),
            layout=layout,
        )

for function in (
    "Sigmoid",
    "TanH",
    "Linear",
    "ReLu",
    "BoundedReLu",
    "LeakyReLu",
    "Abs",
    "Sqrt",
    "Square",
    "Elu",
    "HardSwish",
):
    case(
        f"activation {function}",
        lambda net, f=function: net.activation(
            net.activation(net.input((2, 50)), "Linear", 6.0, 6.0 if f == "Sqrt" else 0.0), f, 1.25, -0.5
        ),
    )

for operation in ("Addition", "Subtraction", "Multiplication", "Division", "Minimum", "Maximum"):
    for spelling, releases in (("old", BOTH), ("new", NEW)):
        case(
            f"{operation} {spelling}",
            lambda net, o=operation: net.binary(o, net.input((2, 3, 4)), net.input((1, 3, 1))),
            releases,
            spelling=spelling,
        )
    if operation != "Division":
        case(
            f"{operation} of integers",
            lambda net, o=operation: net.binary(o, net.input((2, 3), "Signed32"), net.input((2, 3), "Signed32")),
            NEW,
        )

for operation in ("Abs", "Exp", "Neg", "Sqrt", "Rsqrt", "Log", "Sin"):
    case(
        f"unary {operation}",
        lambda net, o=operation: net.layer(
            "ElementwiseUnary",
            net.activation(net.input((2, 30)), "Linear", 1.0, 1.5),
            params={"operation": o},
        ),
        NEW,
    )
for operation in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "NotEqual"):
    case(
        f"comparison {operation}",
        lambda net, o=operation: net.layer(
            "Comparison",
            net.layer("Floor", net.activation(net.input((4, 30)), "Linear", 3.0, 0.0)),
            net.layer("Floor", net.activation(net.input((4, 30)), "Linear", 3.0, 0.0)),
            outputs=(TensorInfo((4, 30), "Boolean"),),
            params={"operation": o},
        ),
    )
for operation in ("LogicalAnd", "LogicalOr"):
    case(
        f"logical {operation}",
        lambda net, o=operation: net.layer(
            "LogicalBinary", net.input((4, 5), "Boolean"), net.input((4, 5), "Boolean"), params={"operation": o}
        ),
        NEW,
    )

for name, axis, keep, out in (
    ("two axes", [1, 3], True, (2, 1, 4, 1)),
    ("one axis", [2], False, (2, 3, 5)),
    ("all axes", [], True, (1, 1, 1, 1)),
):
    case(
        f"mean of {name}",
        lambda net, a=axis, k=keep, o=out: net.layer(
            "Mean", net.input((2, 3, 4, 5)), outputs=(o,), params={"axis": a, "keepDims": k}
        ),
    )
    for operation in ("Sum", "Max", "Mean", "Min"):
        case(
            f"reduce {operation} of {name}",
            lambda net, a=axis, k=keep, o=out, r=operation: net.layer(
                "Reduce",
                net.input((2, 3, 4, 5)),
                outputs=(o,),
                params={"axis": a, "keepDims": k, "reduceOperation": r},
            ),
            NEW,
        )

case(
    "conv 3d",
    lambda net: net.conv3d(net.input((1, 4, 5, 6, 2)), drawn(2, 3, 2, 2, 3), drawn(3), padBack=1, strideY=2),
    NEW,
)
for form in ("member", "constant"):
    for flipped in (False, True):
        case(
            f"fully connected {form} {flipped}",
            lambda net, f=flipped: net.fully_connected(
                net.input((3, 2, 2, 1)), drawn(5, 4) if f else drawn(4, 5), drawn(5), transposeWeightsMatrix=f
            ),
            OLD if form == "member" else NEW,
            form=form,
        )
case("prelu", lambda net: net.layer("Prelu", net.input((2, 3, 4, 5)), net.constant(drawn(1, 1, 1, 5))))
case("floor", lambda net: net.layer("Floor", net.activation(net.input((2, 30)), "Linear", 9.0, 0.0)))
case("softmax", lambda net: net.layer("Softmax", net.input((3, 7)), params={"beta": 1.5, "axis": -1}))
case("log softmax", lambda net: net.layer("LogSoftmax", net.input((3, 7)), params={"beta": 1.5, "axis": 1}))
case("reshape", lambda net: net.reshape(net.input((2, 3, 4)), (6, 4)))
case("permute", lambda net: net.permute(net.input((1, 2, 3, 5)), (0, 2, 3, 1)))
case("transpose", lambda net: net.transpose(net.input((1, 2, 3, 5)), (0, 2, 3, 1)))
case("pad", lambda net: net.pad(net.input((1, 2, 3, 5)), [(0, 0), (1, 2), (3, 0), (0, 1)], 0.75))
case(
    "mirrored pad", lambda net: net.pad(net.input((1, 4, 4, 2)), [(0, 0), (1, 2), (2, 0), (0, 0)], 0.0, "Reflect"), NEW
)
case(
    "symmetric pad",
    lambda net: net.pad(net.input((1, 3, 4, 2)), [(0, 0), (1, 3), (2, 0), (0, 0)], 0.0, "Symmetric"),
    NEW,
)
case(
    "slice",
    lambda net: net.layer("Slice", net.input((4, 5)), outputs=((2, 3),), params={"begin": [1, 2], "size": [2, 3]}),
)
case(
    "strided slice",
    lambda net: net.layer(
        "StridedSlice",
        net.input((4, 6, 5)),
        outputs=((2, 3),),
        params={
            "begin": [-1, 1, 2],
            "end": [0, -1, 3],
            "stride": [-2, 2, 1],
            "endMask": 3,
            "shrinkAxisMask": 4,
            "dataLayout": "NHWC",
        },
    ),
)
case("concat", lambda net: net.concat(net.input((2, 3, 4)), net.input((2, 5, 4)), axis=1))
case(
    "stack",
    lambda net: net.layer(
        "Stack",
        net.input((2, 3)),
        net.input((2, 3)),
        outputs=((2, 2, 3),),
        params={"axis": 1, "numInputs": 2, "inputShape": [2, 3]},
    ),
)
case(
    "gather",
    lambda net: net.layer(
        "Gather", net.input((4, 3, 2)), net.constant([2, 0, 1], "Signed32"), outputs=((4, 3, 2),), params={"axis": 1}
    ),
    NEW,
)
case(
    "arg max",
    lambda net: net.layer(
        "ArgMinMax",
        net.input((3, 5, 2)),
        outputs=(TensorInfo((3, 2), "Signed32"),),
        params={"argMinMaxFunction": "Max", "axis": 1},
    ),
)
case(
    "channel shuffle",
    lambda net: net.layer("ChannelShuffle", net.input((2, 3, 6)), params={"numGroups": 3, "axis": 2}),
    NEW,
)
case(
    "batch matmul",
    lambda net: net.layer(
        "BatchMatMul",
        net.input((2, 3, 4)),
        net.input((2, 5, 4)),
        outputs=((2, 3, 5),),
        params={"transposeY": True},
    ),
    NEW,
)
case("shape", lambda net: net.layer("Shape", net.input((2, 3, 4)), outputs=(TensorInfo((3,), "Signed32"),)), NEW)


case(
    "rank",
    lambda net: net.layer("Rank", net.input((2, 3, 4)), outputs=(TensorInfo((), "Signed32", dimensionality=2),)),
    NEW,
)
case(
    "fill",
    lambda net: net.layer(
        "Fill", net.constant([2, 3], "Signed32"), outputs=(TensorInfo((2, 3)),), params={"value": 7.5}
    ),
    NEW,
)
case("cast down", lambda net: net.layer("Cast", _wide(net), outputs=(TensorInfo((2, 30), "Signed32"),)), NEW)
case("cast up", lambda net: net.layer("Cast", net.input((2, 3), "Signed32"), outputs=(TensorInfo((2, 3)),)), NEW)
case("second of a splitter", lambda net: net.addition((_split(net), 1), (net.graph.number_of_nodes() - 1, 0)))
case("old abs", lambda net: net.layer("Abs", net.input((2, 3))), NEW)
case("old rsqrt", lambda net: net.layer("Rsqrt", net.activation(net.input((2, 3)), "Linear", 1.0, 1.5)), NEW)
for kind in ("Equal", "Greater"):
    case(
        f"old {kind}",
        lambda net, k=kind: net.layer(
            k, net.layer("Floor", _wide(net)), net.layer("Floor", _wide(net)), outputs=(TensorInfo((2, 30), "Boolean"),)
        ),
    )
case(
    "old resize",
    lambda net: net.layer(
        "ResizeBilinear",
        net.input((1, 3, 4, 2)),
        outputs=((1, 7, 5, 2),),
        params={"dataLayout": "NHWC", "targetHeight": 7, "targetWidth": 5},
    ),
)


def _wide(net: Net) -> int:
    return net.activation(net.input((2, 30)), "Linear", 3.0, 0.0)


def _split(net: Net) -> int:
    return net.splitter(net.input((2, 6, 3)), 1, [3, 3])


def test_every_expression_is_judged() -> None:
    """Left out is what neither release knows, and what is another spelling of what is there."""
    seen = set()
    for make, options, _ in CASES.values():
        net = Net(**options)
        make(net)
        seen |= {node["type"] for node in net.graph.nodes.values()}
    assert set(EXPRESSIONS) - seen == {"Merger", "Tile"}


# Quantized: scales and offsets that differ on both sides

QUANTIZED = {"QAsymmU8": (0.05, 120), "QAsymmS8": (0.04, -7), "QSymmS16": (0.001, 0)}


def quantized(name: str, make: Callable[[Net, int, Callable[..., TensorInfo]], int], **options: Any) -> None:
    for kind, (scale, offset) in QUANTIZED.items():

        def build(net: Net, kind: str = kind, scale: float = scale, offset: int = offset) -> int:
            def info(shape: tuple[int, ...], factor: float = 1.5) -> TensorInfo:
                return TensorInfo(shape, kind, scale * factor, offset + 3 if offset else 0)

            x = net.input((1, 5, 4, 3), kind, quantization_scale=scale, quantization_offset=offset)
            return make(net, x, info)

        case(f"{name} {kind}", build, (("20.08", "23.08") if options.get("form") == "member" else NEW), **options)


for function in ("ReLu", "BoundedReLu", "LeakyReLu", "TanH", "Sigmoid", "Linear", "HardSwish", "Elu"):
    quantized(
        f"activation {function}",
        lambda net, x, info, f=function: net.activation(x, f, 1.25, -0.5, output=info((1, 5, 4, 3), 0.7)),
    )
quantized("addition", lambda net, x, info: net.addition(x, x, output=info((1, 5, 4, 3))))
quantized("multiplication", lambda net, x, info: net.multiplication(x, x, output=info((1, 5, 4, 3))))
for kind in ("Max", "Average"):
    quantized(
        f"pool {kind}",
        lambda net, x, info, k=kind: net.pool(x, (2, 2), k, output=info((1, 3, 2, 3), 1.0), padTop=1, stride=(2, 2)),
    )
quantized("pad", lambda net, x, info: net.pad(x, [(0, 0), (1, 1), (2, 0), (0, 0)], 17.0))
quantized(
    "requantizing concat",
    lambda net, x, info: _with_output(net, net.concat(x, x, axis=3), info((1, 5, 4, 6))),
)
quantized(
    "mean",
    lambda net, x, info: net.layer("Mean", x, outputs=(info((1, 1, 1, 3)),), params={"axis": [1, 2], "keepDims": True}),
)
quantized("dequantize", lambda net, x, info: net.layer("Dequantize", x, outputs=(TensorInfo((1, 5, 4, 3)),)))
quantized(
    "quantize",
    lambda net, x, info: net.layer(
        "Quantize", net.activation(net.input((40,)), "Linear", 9.0, 0.0), outputs=(info((40,)),)
    ),
)


def _with_output(net: Net, key: int, info: TensorInfo) -> int:
    net.graph.nodes[key]["outputs"] = (info,)
    return key


def _integers(kind: str, *shape: int) -> np.ndarray:
    return RANDOM.integers(-100, 100, shape) if kind != "QAsymmU8" else RANDOM.integers(0, 256, shape)


def quantized_conv(net: Net, x: int, info: Callable[..., TensorInfo], per_axis: bool) -> int:
    kind = net.info(x).data_type
    weights_kind = "QSymmS8" if per_axis or kind == "QSymmS16" else kind
    offset = 0 if weights_kind == "QSymmS8" else 4
    scale = net.info(x).quantization_scale
    values = _integers(weights_kind, 4, 2, 3, 3)
    if per_axis:
        scales = (0.01, 0.02, 0.03, 0.005)
        weights = Tensor.of(values, "QSymmS8", quantization_scales=scales)
        bias = Tensor.of([90, -50, 3, 7], "Signed32", quantization_scales=tuple(scale * s for s in scales))
    else:
        weights = Tensor.of(values, weights_kind, quantization_scale=0.01, quantization_offset=offset)
        bias = Tensor.of([90, -50, 3, 7], "Signed32", quantization_scale=scale * 0.01)
    return net.conv(x, weights, bias, output=info((1, 4, 2, 4), 3.0))


quantized("conv", lambda net, x, info: quantized_conv(net, x, info, False))
del CASES["conv QSymmS16"]  # not in CpuRef
CASES["per-axis conv QAsymmS8"] = (
    lambda net: quantized_conv(
        net,
        net.input((1, 5, 4, 3), "QAsymmS8", quantization_scale=0.04, quantization_offset=-7),
        lambda shape, factor=1.0: TensorInfo(shape, "QAsymmS8", 0.1, -4),
        True,
    ),
    {},
    NEW,
)


def half(name: str, make: Make) -> None:
    case(f"{name} Float16", make, NEW, data_type="Float16")


half("conv", lambda net: net.conv(net.input((1, 5, 4, 3)), drawn(4, 2, 3, 3), drawn(4)))
half("batch norm", lambda net: net.batch_norm(net.input((1, 5, 4, 3)), drawn(3), drawn(3), drawn(3), drawn(3) ** 2))
half("activation", lambda net: net.activation(net.input((2, 40)), "TanH", 1.0, 1.0))
half("pool", lambda net: net.pool(net.input((1, 6, 4, 3)), (2, 2), "Average"))
half("addition", lambda net: net.addition(net.input((2, 40)), net.input((2, 40))))


@pytest.mark.parametrize("name", CASES)
def test_layer(real_armnn: RealArmnn, name: str) -> None:
    make, options, releases = CASES[name]
    net = Net(**options)
    net.output(make(net))
    model = fe.dumps(net.graph)
    for release in releases:
        compare(fe.loads(model), real_armnn, model, release)


# The corpus


def test_corpus(real_armnn: RealArmnn, corpus: Path, manifest: dict[str, dict[str, Any]]) -> None:
    """Whole networks, each by the release that made it."""
    done = []
    for name, entry in manifest.items():
        if entry["bytes"] > 300_000 or entry["num_layers"] > 300 or name in SKIPPED:
            continue
        graph = fe.load(corpus / name)
        release = next((r for r in BOTH if r in entry["made_by"] and entry["run"].get(r, {}).get("runs")), None)
        if release is None or any(
            node["type"] not in EXPRESSIONS and node["type"] not in ("Input", "Output", "Constant")
            for node in graph.nodes.values()
        ):
            continue
        if any(
            node["type"] == "Resize" and node["params"].get("method") != "Bilinear" for node in graph.nodes.values()
        ):
            continue
        compare(graph, real_armnn, corpus / name, release, DEEP_QUANTIZED)
        done.append(name)
    assert len(done) > 70


def test_what_the_shipped_rules_do_to_the_corpus_is_verified(corpus: Path, manifest: dict[str, dict[str, Any]]) -> None:
    folds, both = fe.load_rules("armnn"), fe.load_rules("armnn", "npu")
    counts: Counter[str] = Counter()
    for name, entry in manifest.items():
        if entry["num_layers"] > 600:
            continue
        graph = fe.load(corpus / name)
        fused = fe.fuse(graph, both if "20.08" in name else folds)
        if fused.graph["fusions"]:
            found = fe.verify(graph, fused)
            assert found.status == "verified", (name, [r for r in found.regions if r.status != "verified"])
            counts.update(check.status for check in found.fusions)
    assert set(counts) == {"verified"}
    assert counts["verified"] > 500
