"""Outputs of networks whose layers move, select, scale and combine values, by NumPy from their definitions.

The structural folds are judged by it: exactly, since every value in between is kept in the type its
TensorInfo says. A tensor is its stored numbers; `real` and `stored` go between these and real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import networkx as nx
import numpy as np

import fusion_engine as fe
from fusion_engine.language.rule import FusingRule
from fusion_engine.network import Network, edges_into, param
from fusion_engine.tensor import TensorInfo

Array = np.ndarray[Any, np.dtype[Any]]

SHIPPED = {rule.name: rule for rule in fe.load_rules("armnn")}
"""The rules of armnn.toml by name."""


def apply(graph: Network, *names: str) -> Network:
    """``graph`` fused by some of the shipped rules."""
    return fe.fuse(graph, [SHIPPED[name] for name in names])


def fold(graph: Network, *names: str) -> Network:
    """The same, where something must fire and the result must be valid, the same when fused again, and written."""
    rules: list[FusingRule] = [SHIPPED[name] for name in names]
    fused = fe.fuse(graph, rules)
    assert fused.graph["fusions"], fused.graph["refusals"]
    assert fe.validate(fused) == ()
    data = fe.dumps(fused)
    assert fe.dumps(fe.fuse(fe.loads(data), rules)) == data
    return fused


def reason(graph: Network, name: str) -> str:
    """Why a shipped rule leaves a network as it is; of several refusals all reasons."""
    fused = apply(graph, name)
    assert fe.equal(fused, graph)
    assert fused.graph["refusals"]
    return "; ".join(refusal.reason for refusal in fused.graph["refusals"])


def untouched(graph: Network, *names: str) -> None:
    """The rules leave a network as it is and have nothing to say about it."""
    fused = apply(graph, *names)
    assert fe.equal(fused, graph)
    assert fused.graph["fusions"] == fused.graph["refusals"] == ()


def types(graph: Network) -> list[str]:
    """Types of the layers that compute, in canonical order."""
    order = nx.lexicographical_topological_sort(graph)
    return [t for t in (graph.nodes[key]["type"] for key in order) if t not in ("Input", "Output", "Constant")]


def drawn(graph: Network, seed: int = 0) -> dict[int, Array]:
    """Random stored numbers for every Input, by binding id."""
    random = np.random.default_rng(seed)
    found = {}
    for node in graph.nodes.values():
        if node["type"] == "Input":
            info = node["outputs"][0]
            if info.dtype.kind == "f":
                values = random.uniform(-4, 4, info.shape)
            elif info.data_type == "Boolean":
                values = random.integers(0, 2, info.shape)
            else:
                limits = np.iinfo(info.dtype)
                values = random.integers(max(limits.min, -1000), min(limits.max, 1000) + 1, info.shape)
            found[node["binding_id"]] = values.astype(info.dtype)
    return found


def same_outputs(before: Network, after: Network, seed: int = 0) -> None:
    """Both give the same numbers on drawn inputs: names and binding ids too, +0 and -0 alike."""
    inputs = drawn(before, seed)
    first, second = evaluate(before, inputs), evaluate(after, inputs)
    assert list(first) == list(second)
    for key, values in first.items():
        assert values.dtype == second[key].dtype
        np.testing.assert_array_equal(values, second[key])


def evaluate(graph: Network, inputs: Mapping[int, Array]) -> dict[tuple[int, str], Array]:
    """Stored numbers of every Output by binding id and name, in the network's order."""
    values: dict[tuple[int, int], Array] = {}
    found: dict[int, Array] = {}
    for key in nx.topological_sort(graph):
        node = graph.nodes[key]
        if node["type"] == "Input":
            values[key, 0] = np.asarray(inputs[node["binding_id"]])
            continue
        sources = [source for _, source in edges_into(graph, key)]
        operands = [values[source.layer, source.slot] for source in sources]
        if node["type"] == "Output":
            found[key] = operands[0]
            continue
        infos = [graph.nodes[source.layer]["outputs"][source.slot] for source in sources]
        results = compute(graph, key, operands, infos)
        for slot, (info, result) in enumerate(zip(node["outputs"], results, strict=True)):
            assert result.shape == info.shape, (node["type"], result.shape, info.shape)
            assert result.dtype == info.dtype, (node["type"], result.dtype, info.dtype)
            values[key, slot] = result
    return {(graph.nodes[key]["binding_id"], graph.nodes[key]["name"]): found[key] for key in graph.graph["outputs"]}


def compute(graph: Network, key: int, operands: list[Array], infos: list[TensorInfo]) -> list[Array]:
    """The outputs of one layer."""
    node = graph.nodes[key]
    kind = node["type"]
    if kind == "Constant":
        return [node["constants"]["input"].data]
    if kind in MOVES:
        return MOVES[kind](graph, key, operands[0])
    if kind in ("Concat", "Merger"):
        return [np.concatenate(operands, param(graph, key, "concatAxis"))]
    output = node["outputs"][0]
    return [stored(OPERATIONS[kind](graph, key, *map(real, operands, infos)), output)]


def real(values: Array, info: TensorInfo) -> Array:
    """The numbers that stored ones stand for, in float64."""
    wide = values.astype(np.float64)
    if "Q" not in info.data_type:
        return wide
    if not info.quantization_scales:
        return np.asarray((wide - info.quantization_offset) * np.float64(np.float32(info.quantization_scale)))
    shape = [-1 if axis == info.quantization_dim else 1 for axis in range(wide.ndim)]
    return np.asarray(wide * np.float32(info.quantization_scales).astype(np.float64).reshape(shape))


def stored(values: Array, info: TensorInfo) -> Array:
    """Real numbers as a tensor of that TensorInfo holds them."""
    if "Q" not in info.data_type:
        return values.astype(info.dtype)
    limits = np.iinfo(info.dtype)
    steps = values / np.float64(np.float32(info.quantization_scale))
    near = np.trunc(steps + np.copysign(0.5, steps)) + info.quantization_offset
    return np.clip(near, limits.min, limits.max).astype(info.dtype)


def _permute(graph: Network, key: int, x: Array) -> list[Array]:
    """Element at i goes to where each of its indices goes."""
    mapping = param(graph, key, "dimMappings")
    out = np.empty([x.shape[mapping.index(axis)] for axis in range(x.ndim)], x.dtype)
    for index in np.ndindex(*x.shape):
        at = [0] * x.ndim
        for axis, to in enumerate(mapping):
            at[to] = index[axis]
        out[tuple(at)] = x[index]
    return [out]


def _transpose(graph: Network, key: int, x: Array) -> list[Array]:
    return [x.transpose(param(graph, key, "dimMappings"))]


def _reshape(graph: Network, key: int, x: Array) -> list[Array]:
    return [x.reshape([-1 if n == 0xFFFFFFFF else n for n in param(graph, key, "targetShape")])]


def _blocks(graph: Network, key: int, x: Array) -> list[Array]:
    """BatchToSpaceNd and SpaceToBatchNd on NHWC: batch (by * b + bx) * N + n holds offset (by, bx) of image n."""
    (down, across) = param(graph, key, "blockShape")
    if graph.nodes[key]["type"] == "SpaceToBatchNd":
        n, h, w, c = x.shape
        parts = x.reshape(n, h // down, down, w // across, across, c).transpose(2, 4, 0, 1, 3, 5)
        return [parts.reshape(n * down * across, h // down, w // across, c)]
    n, h, w, c = x.shape
    parts = x.reshape(down, across, n // (down * across), h, w, c).transpose(2, 3, 0, 4, 1, 5)
    return [parts.reshape(n // (down * across), h * down, w * across, c)]


def _depth_to_space(graph: Network, key: int, x: Array) -> list[Array]:
    """Output (y, x, c) is input (y // b, x // b, ((y % b) * b + x % b) * C + c)."""
    b = param(graph, key, "blockSize")
    n, h, w, c = x.shape
    out = np.empty((n, h * b, w * b, c // b**2), x.dtype)
    for y, z in np.ndindex(h * b, w * b):
        first = ((y % b) * b + z % b) * out.shape[3]
        out[:, y, z] = x[:, y // b, z // b, first : first + out.shape[3]]
    return [out]


def _space_to_depth(graph: Network, key: int, x: Array) -> list[Array]:
    b = param(graph, key, "blockSize")
    n, h, w, c = x.shape
    out = np.empty((n, h // b, w // b, c * b**2), x.dtype)
    for y, z in np.ndindex(h, w):
        first = ((y % b) * b + z % b) * c
        out[:, y // b, z // b, first : first + c] = x[:, y, z]
    return [out]


def _pad(graph: Network, key: int, x: Array) -> list[Array]:
    pads = param(graph, key, "padList")
    value = param(graph, key, "padValue")
    return [np.pad(x, list(zip(pads[::2], pads[1::2], strict=True)), constant_values=np.asarray(value, x.dtype))]


def _slice(graph: Network, key: int, x: Array) -> list[Array]:
    begin, size = param(graph, key, "begin"), param(graph, key, "size")
    return [x[tuple(slice(b, b + n) for b, n in zip(begin, size, strict=True))]]


def _strided_slice(graph: Network, key: int, x: Array) -> list[Array]:
    """Without the masks that add or drop axes."""
    fields = (param(graph, key, field) for field in ("begin", "end", "stride"))
    masks = param(graph, key, "beginMask"), param(graph, key, "endMask")
    index = tuple(
        slice(None if masks[0] >> axis & 1 else b, None if masks[1] >> axis & 1 else e, s)
        for axis, (b, e, s) in enumerate(zip(*fields, strict=True))
    )
    return [x[index]]


def _splitter(graph: Network, key: int, x: Array) -> list[Array]:
    origins, sizes = param(graph, key, "origins")["viewOrigins"], param(graph, key, "viewSizes")
    return [
        x[tuple(slice(o, o + n) for o, n in zip(origin, size, strict=True))]
        for origin, size in zip(origins, sizes, strict=True)
    ]


MOVES: dict[str, Callable[[Network, int, Array], list[Array]]] = {
    "Permute": _permute,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "BatchToSpaceNd": _blocks,
    "SpaceToBatchNd": _blocks,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Pad": _pad,
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "Splitter": _splitter,
}


def _activation(graph: Network, key: int, x: Array) -> Array:
    a, b = (np.float64(np.float32(param(graph, key, name))) for name in ("a", "b"))
    with np.errstate(all="ignore"):
        found: Array = {
            "Sigmoid": lambda: 1 / (1 + np.exp(-x)),
            "TanH": lambda: a * np.tanh(b * x),
            "Linear": lambda: a * x + b,
            "ReLu": lambda: np.maximum(0, x),
            "BoundedReLu": lambda: np.minimum(a, np.maximum(b, x)),
            "LeakyReLu": lambda: np.where(x > 0, x, a * x),
            "Abs": lambda: np.abs(x),
            "Sqrt": lambda: np.sqrt(x),
            "Square": lambda: x * x,
            "Elu": lambda: np.where(x >= 0, x, a * (np.exp(x) - 1)),
            "HardSwish": lambda: x * np.minimum(6, np.maximum(0, x + 3)) / 6,
            "SoftReLu": lambda: np.log(1 + np.exp(x)),
        }[param(graph, key, "activationFunction")]()
    return found


def _mean(graph: Network, key: int, x: Array) -> Array:
    axes: Iterable[int] = param(graph, key, "axis") or range(x.ndim)
    return np.asarray(x.mean(tuple(axes), keepdims=param(graph, key, "keepDims")))


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": lambda x, y: x / y,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "SqDiff": lambda x, y: (x - y) ** 2,
    "Power": lambda x, y: x**y,
}
_UNARY: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Neg": lambda x: -x,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Ceil": np.ceil,
    "Floor": np.floor,
}

OPERATIONS: dict[str, Callable[..., Array]] = {
    "Activation": _activation,
    "Mean": _mean,
    "Quantize": lambda graph, key, x: x,
    "Dequantize": lambda graph, key, x: x,
    "Cast": lambda graph, key, x: np.trunc(x) if "Signed" in graph.nodes[key]["outputs"][0].data_type else x,
    "ElementwiseBinary": lambda graph, key, x, y: _BINARY[param(graph, key, "operation")](x, y),
    "ElementwiseUnary": lambda graph, key, x: _UNARY[param(graph, key, "operation")](x),
    "Comparison": lambda graph, key, x, y: {"Greater": x > y, "Equal": x == y}[param(graph, key, "operation")],
    "Addition": lambda graph, key, x, y: x + y,
    "Subtraction": lambda graph, key, x, y: x - y,
    "Multiplication": lambda graph, key, x, y: x * y,
    "Division": lambda graph, key, x, y: x / y,
    "Minimum": lambda graph, key, x, y: np.minimum(x, y),
    "Maximum": lambda graph, key, x, y: np.maximum(x, y),
    "Abs": lambda graph, key, x: np.abs(x),
    "Rsqrt": lambda graph, key, x: 1 / np.sqrt(x),
    "Floor": lambda graph, key, x: np.floor(x),
}
