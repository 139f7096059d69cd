"""A network's outputs in float64 by NumPy, from the definitions of the layers: a judge that shares nothing with folds.

Quantized tensors are real numbers on their grid: every layer's result is rounded to the grid of its
output's TensorInfo, halves away from zero, and held within the range of its type. Float results are
left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import networkx as nx
import numpy as np

from fusion_engine.network import Network, edges_into, param
from fusion_engine.tensor import Tensor, TensorInfo

Array = np.ndarray[Any, np.dtype[np.float64]]

UFUNCS = {
    "Addition": np.add,
    "Subtraction": np.subtract,
    "Multiplication": np.multiply,
    "Division": np.divide,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}

PADS = (("padFront", "padBack", "Z"), ("padTop", "padBottom", "Y"), ("padLeft", "padRight", "X"))


def evaluate(graph: Network, inputs: Mapping[int, Any]) -> dict[int, Array]:
    """Values of every Output, by its binding id.

    ``inputs`` are the values of the Inputs by binding id: real numbers, of a quantized one too.
    """
    values = layer_values(graph, inputs)
    return {graph.nodes[key]["binding_id"]: values[key] for key in graph if graph.nodes[key]["type"] == "Output"}


def layer_values(graph: Network, inputs: Mapping[int, Any]) -> dict[int, Array]:
    """Values of every layer by its key, of an Output those it reads."""
    values: dict[int, Array] = {}
    for key in nx.topological_sort(graph):
        node = graph.nodes[key]
        operands = {slot: values[source.layer] for slot, source in edges_into(graph, key)}
        if node["type"] == "Output":
            values[key] = operands[0]
            continue
        if node["type"] == "Input":
            result = np.asarray(inputs[node["binding_id"]], np.float64)
        else:
            result = compute(graph, key, operands)
        info = node["outputs"][0]
        assert result.shape == info.shape, (node["type"], result.shape, info.shape)
        values[key] = on_grid(result, info)
    return values


def compute(graph: Network, key: int, operands: dict[int, Array]) -> Array:
    """The result of one layer."""
    kind = graph.nodes[key]["type"]
    match kind:
        case "Constant":
            return real(graph.nodes[key]["constants"]["input"])
        case "ElementwiseBinary":
            return np.asarray(UFUNCS[param(graph, key, "operation")](operands[0], operands[1]))
        case "Activation":
            function, a, b = (param(graph, key, name) for name in ("activationFunction", "a", "b"))
            return activation(function, float(np.float32(a)), float(np.float32(b)), operands[0])
        case "BatchNormalization":
            return batch_norm(graph, key, operands[0])
        case "Pad":
            pads = param(graph, key, "padList")
            value = param(graph, key, "padValue")
            info = graph.nodes[key]["outputs"][0]
            if "Q" in info.data_type:
                value = info.quantization_scale * (value - info.quantization_offset)
            return np.pad(operands[0], list(zip(pads[::2], pads[1::2], strict=True)), constant_values=value)
        case "Pooling2d":
            return pooling(graph, key, operands[0])
    if kind in UFUNCS:
        return np.asarray(UFUNCS[kind](operands[0], operands[1]))
    return weighted(graph, key, operands)


def real(tensor: Tensor) -> Array:
    """The numbers that a tensor stands for."""
    values = tensor.data.astype(np.float64)
    if "Q" in tensor.info.data_type or tensor.info.data_type == "Signed32":
        scale = tensor.info.quantization_scale or 1.0
        return np.asarray(scale * (values - tensor.info.quantization_offset))
    return values


def on_grid(values: Array, info: TensorInfo) -> Array:
    """Values as the tensor of a layer can hold them."""
    if "Q" not in info.data_type:
        return values
    scale, offset, limits = info.quantization_scale, info.quantization_offset, np.iinfo(info.dtype)
    steps = np.copysign(np.floor(np.abs(values / scale) + 0.5), values)
    return np.asarray(scale * (np.clip(steps + offset, limits.min, limits.max) - offset))


def activation(function: str, a: float, b: float, x: Array) -> Array:
    """An activation function."""
    with np.errstate(all="ignore"):
        return np.asarray(
            {
                "Sigmoid": lambda: 1 / (1 + np.exp(-x)),
                "TanH": lambda: a * np.tanh(b * x),
                "Linear": lambda: a * x + b,
                "ReLu": lambda: np.maximum(0, x),
                "BoundedReLu": lambda: np.minimum(a, np.maximum(b, x)),
                "SoftReLu": lambda: np.log(1 + np.exp(x)),
                "LeakyReLu": lambda: np.where(x > 0, x, a * x),
                "Abs": lambda: np.abs(x),
                "Sqrt": lambda: np.sqrt(x),
                "Square": lambda: x * x,
                "Elu": lambda: np.where(x >= 0, x, a * (np.exp(x) - 1)),
                "HardSwish": lambda: x * np.clip(x + 3, 0, 6) / 6,
            }[function]()
        )


def batch_norm(graph: Network, key: int, x: Array) -> Array:
    axis = 1 if param(graph, key, "dataLayout") in ("NCHW", "NCDHW") else x.ndim - 1
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    constants = graph.nodes[key]["constants"]
    gamma, beta, mean, variance = (real(constants[f]).reshape(shape) for f in ("gamma", "beta", "mean", "variance"))
    eps = np.float64(np.float32(param(graph, key, "eps")))
    return np.asarray(gamma * (x - mean) / np.sqrt(variance + eps) + beta)


def pooling(graph: Network, key: int, x: Array) -> Array:
    """Max, average or L2 pooling, its number of windows from the TensorInfo of its output."""
    nchw = param(graph, key, "dataLayout") == "NCHW"
    x = x.transpose(0, 2, 3, 1) if nchw else x
    shape = graph.nodes[key]["outputs"][0].shape
    heights, widths = shape[2:4] if nchw else shape[1:3]
    top, left = param(graph, key, "padTop"), param(graph, key, "padLeft")
    bottom, right = param(graph, key, "padBottom"), param(graph, key, "padRight")
    method, kind = param(graph, key, "paddingMethod"), param(graph, key, "poolType")
    out = np.zeros((x.shape[0], heights, widths, x.shape[3]))
    for i, j in product(range(heights), range(widths)):
        y, z = i * param(graph, key, "strideY") - top, j * param(graph, key, "strideX") - left
        ends = (y + param(graph, key, "poolHeight"), z + param(graph, key, "poolWidth"))
        area = (min(ends[0], x.shape[1] + bottom) - y) * (min(ends[1], x.shape[2] + right) - z)
        seen = x[:, max(y, 0) : max(ends[0], 0), max(z, 0) : max(ends[1], 0)]
        if not seen.size:
            continue  # a window of padding alone gives 0
        if method == "Exclude":
            area = seen.shape[1] * seen.shape[2]
        out[:, i, j] = {
            "Max": lambda seen=seen: seen.max((1, 2)),
            "Average": lambda seen=seen, area=area: seen.sum((1, 2)) / area,
            "L2": lambda seen=seen, area=area: np.sqrt((seen**2).sum((1, 2)) / area),
        }[kind]()
    return out.transpose(0, 3, 1, 2) if nchw else out


def weighted(graph: Network, key: int, operands: dict[int, Array]) -> Array:
    """A convolution of any kind or a fully connected layer."""
    node = graph.nodes[key]
    kind = node["type"]
    parameters = [
        real(node["constants"][field]) if field in node["constants"] else operands.get(slot)
        for slot, field in ((1, "weights"), (2, "biases"))
    ]
    weights = parameters[0]
    assert weights is not None
    bias = 0.0 if parameters[1] is None else parameters[1].reshape(-1)
    assert (parameters[1] is not None) == param(graph, key, "biasEnabled")
    x = operands[0]
    if kind == "FullyConnected":
        kernel = weights.T if param(graph, key, "transposeWeightsMatrix") else weights
        return np.asarray((x.reshape(-1, len(kernel)) @ kernel + bias).reshape(node["outputs"][0].shape))
    layout = param(graph, key, "dataLayout")
    first = layout in ("NCHW", "NCDHW")
    x = np.moveaxis(x, 1, -1) if first else x
    out = slide(graph, key, x, _kernel(graph, key, weights, x.shape[-1])) + bias
    return np.moveaxis(out, -1, 1) if first else out


def _kernel(graph: Network, key: int, weights: Array, channels: int) -> Array:
    """Weights as [*space, I, O], of a depthwise convolution [H, W, I, M]."""
    kind = graph.nodes[key]["type"]
    if kind == "Convolution3d":
        return weights
    if kind == "DepthwiseConvolution2d":
        if graph.graph["feature_versions"][1] == 0:
            return weights.transpose(2, 3, 1, 0)
        return weights.reshape(*weights.shape[1:3], channels, -1)
    return weights.transpose(1, 2, 3, 0) if param(graph, key, "dataLayout") == "NHWC" else weights.transpose(2, 3, 1, 0)


def slide(graph: Network, key: int, x: Array, kernel: Array) -> Array:
    """The kernel over ``x`` ([N, *space, I])."""
    space = kernel.shape[:-2]
    names = PADS[3 - len(space) :]
    pads = [(param(graph, key, before), param(graph, key, after)) for before, after, _ in names]
    strides = [param(graph, key, f"stride{axis}") for *_, axis in names]
    if graph.nodes[key]["type"] == "TransposeConvolution2d":
        full = [s * (n - 1) + k for n, k, s in zip(x.shape[1:-1], space, strides, strict=True)]
        out = np.zeros((len(x), *full, kernel.shape[-1]))
        for at in product(*map(range, space)):
            window = tuple(slice(a, a + s * (n - 1) + 1, s) for a, n, s in zip(at, x.shape[1:-1], strides, strict=True))
            out[(slice(None), *window)] += x @ kernel[at]
        crop = tuple(slice(before, n - after) for n, (before, after) in zip(full, pads, strict=True))
        return out[(slice(None), *crop)]
    dilations = [param(graph, key, f"dilation{axis}") for *_, axis in names]
    depthwise = graph.nodes[key]["type"] == "DepthwiseConvolution2d"
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    walks = list(zip(space, strides, dilations, strict=True))
    sizes = [(n - (d * (k - 1) + 1)) // s + 1 for n, (k, s, d) in zip(padded.shape[1:-1], walks, strict=True)]
    out = np.zeros((len(x), *sizes, kernel.shape[-1] * (kernel.shape[-2] if depthwise else 1)))
    for at in product(*map(range, space)):
        window = tuple(
            slice(d * a, d * a + s * (n - 1) + 1, s) for a, n, (_, s, d) in zip(at, sizes, walks, strict=True)
        )
        piece = padded[(slice(None), *window)]
        out += (piece[..., None] * kernel[at]).reshape(out.shape) if depthwise else piece @ kernel[at]
    return out
