"""A small interpreter of networks in NumPy: it runs what the examples are made of, and nothing else.

It is there to show that fusing keeps a network's outputs without Arm NN at hand. It takes any
batch size, whatever the file says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from fusion_engine.network import param, sources

__all__ = ["run"]

Array = npt.NDArray[Any]


class _Layer:
    """A layer with the arrays on its input slots; all arithmetic is in the inputs' own dtype."""

    def __init__(self, graph: nx.DiGraph[int], key: int, inputs: list[Array]) -> None:
        self._graph, self._key, self.inputs = graph, key, inputs
        self.node: dict[str, Any] = graph.nodes[key]

    def __getitem__(self, field: str) -> Any:
        """A descriptor field."""
        return param(self._graph, self._key, field)

    def tensor(self, field: str, slot: int | None = None) -> Array:
        """A constant: the layer's own member, or what is on an input slot."""
        members = self.node.get("constants") or {}
        if slot is None or field in members:
            return np.asarray(members[field].data, dtype=self.inputs[0].dtype)
        return self.inputs[slot]

    @property
    def bias(self) -> Array | float:
        """The bias where there is one, else 0."""
        return self.tensor("biases", 2) if self["biasEnabled"] else 0.0

    def windows(self, kernel: tuple[int, int], fill: float) -> Array:
        """The padded input under each position of a window, [N, H, W, C, kernel height, kernel width]."""
        if self["dataLayout"] != "NHWC":
            raise NotImplementedError(f"{self.node['name']}: only NHWC is interpreted here")
        pads = ((0, 0), (self["padTop"], self["padBottom"]), (self["padLeft"], self["padRight"]), (0, 0))
        padded = np.pad(self.inputs[0], pads, constant_values=fill)
        return sliding_window_view(padded, kernel, axis=(1, 2))[:, :: self["strideY"], :: self["strideX"]]


def _convolution(layer: _Layer) -> Array:
    weights = layer.tensor("weights", 1)
    windows = layer.windows(weights.shape[1:3], 0.0)
    return np.tensordot(windows, weights, axes=((4, 5, 3), (1, 2, 3))) + layer.bias


def _depthwise(layer: _Layer) -> Array:
    weights, channels = layer.tensor("weights", 1), layer.inputs[0].shape[3]
    if layer._graph.graph.get("feature_versions", (1, 1, 1))[1] == 0:  # [M, I, H, W]
        weights = weights.transpose(2, 3, 1, 0)
    else:  # [1, H, W, I * M]
        weights = weights.reshape(*weights.shape[1:3], channels, -1)
    windows = layer.windows(weights.shape[:2], 0.0)
    products: Array = np.einsum("nyxchw,hwcm->nyxcm", windows, weights)
    result: Array = products.reshape(*products.shape[:3], -1) + layer.bias
    return result


def _batch_norm(layer: _Layer) -> Array:
    scale = layer.tensor("gamma") / np.sqrt(layer.tensor("variance") + layer.inputs[0].dtype.type(layer["eps"]))
    result: Array = (layer.inputs[0] - layer.tensor("mean")) * scale + layer.tensor("beta")
    return result


def _activation(layer: _Layer) -> Array:
    function = layer["activationFunction"]
    if function == "ReLu":
        return np.maximum(layer.inputs[0], 0.0)
    if function == "BoundedReLu":
        return np.clip(layer.inputs[0], layer["b"], layer["a"])
    raise NotImplementedError(f"{layer.node['name']}: activation {function} is not interpreted here")


def _pooling(layer: _Layer) -> Array:
    algorithm, kernel = layer["poolType"], (layer["poolHeight"], layer["poolWidth"])
    padded = any(layer[f"pad{side}"] for side in ("Left", "Right", "Top", "Bottom"))
    result: Array
    if algorithm == "Max":
        result = layer.windows(kernel, -np.inf).max(axis=(4, 5))
    elif algorithm == "Average" and not padded:
        result = layer.windows(kernel, 0.0).mean(axis=(4, 5))
    else:
        raise NotImplementedError(
            f"{layer.node['name']}: {algorithm} pooling{' with padding' if padded else ''} is not interpreted here"
        )
    return result


def _reshape(layer: _Layer) -> Array:
    return layer.inputs[0].reshape(len(layer.inputs[0]), *layer["targetShape"][1:])


def _fully_connected(layer: _Layer) -> Array:
    weights = layer.tensor("weights", 1)
    rows = layer.inputs[0].reshape(len(layer.inputs[0]), -1)
    return rows @ (weights.T if layer["transposeWeightsMatrix"] else weights) + layer.bias


def _softmax(layer: _Layer) -> Array:
    exponents = np.exp(layer["beta"] * (layer.inputs[0] - layer.inputs[0].max(axis=layer["axis"], keepdims=True)))
    result: Array = exponents / exponents.sum(axis=layer["axis"], keepdims=True)
    return result


LAYERS: dict[str, Callable[[_Layer], Array]] = {
    "Activation": _activation,
    "BatchNormalization": _batch_norm,
    "Constant": lambda layer: layer.node["constants"]["input"].data,
    "Convolution2d": _convolution,
    "DepthwiseConvolution2d": _depthwise,
    "FullyConnected": _fully_connected,
    "Output": lambda layer: layer.inputs[0],
    "Pooling2d": _pooling,
    "Reshape": _reshape,
    "Softmax": _softmax,
}


def run(graph: nx.DiGraph[int], **inputs: Array) -> dict[str, Array]:
    """Run a network.

    Parameters
    ----------
    graph
        A network whose layers have one output and are of the types in `LAYERS`.
    **inputs
        Values by name of the Input; float64 or float32 decides in which of them all is computed.

    Returns
    -------
    dict
        Values by name of the Output.

    Raises
    ------
    NotImplementedError
        Where a layer is of another type.
    """
    dtype = np.result_type(*inputs.values())
    values: dict[int, Array] = {}
    for key in nx.topological_sort(graph):
        node = graph.nodes[key]
        if node["type"] == "Input":
            values[key] = inputs[node["name"]]
        elif node["type"] in LAYERS:
            arrays = [values[source.layer] for source in sources(graph, key)]
            values[key] = np.asarray(LAYERS[node["type"]](_Layer(graph, key, arrays)), dtype=dtype)
        else:
            raise NotImplementedError(f"{node['name']}: layers of type {node['type']} are not interpreted here")
    return {graph.nodes[key]["name"]: values[key] for key in graph.graph["outputs"]}
