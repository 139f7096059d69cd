"""Build a chain of Arm NN layers with NetworkX: each layer reads the one added before it.

A network here is an ordinary ``networkx.DiGraph``; this module shows everything that one needs to
know about it to make an .armnn file from the weights of another framework. All tensors are Float32
and NHWC.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

import fusion_engine as fe
from fusion_engine import FrozenDict, Tensor, TensorInfo

__all__ = ["Chain", "same_padding"]

Array = npt.NDArray[np.float32]


class Chain:
    """A network under construction.

    Parameters
    ----------
    shape
        Shape of the one input, ``(batch, height, width, channels)``.
    name
        Name of the input layer.
    weights
        How layers hold their weights: ``"members"`` of the layer itself, which every release reads
        for these layers, or ``"inputs"``, Constant layers on input slots 1 and 2, which is what
        converters write since release 22.05 and older ones cannot read.

    Attributes
    ----------
    graph
        The network so far.
    """

    def __init__(self, shape: tuple[int, ...], name: str, *, weights: str = "members") -> None:
        if weights not in ("members", "inputs"):
            raise ValueError(f"weights must be 'members' or 'inputs', not {weights!r}")
        self._members = weights == "members"
        # The second number tells how depthwise weights are laid out: 0 is [M, I, H, W], 1 is [1, H, W, I*M].
        versions = (1, 0, 0) if self._members else (1, 1, 1)
        self.graph: nx.DiGraph[int] = nx.DiGraph(inputs=(0,), outputs=(), dialect="current", feature_versions=versions)
        self.graph.add_node(0, type="Input", name=name, binding_id=0, outputs=(TensorInfo(shape),))
        self._last = 0
        self._shape = shape

    def _add(self, kind: str, name: str, outputs: tuple[TensorInfo, ...], **attributes: Any) -> int:
        key = self.graph.number_of_nodes()
        self.graph.add_node(key, type=kind, name=name, outputs=outputs, **attributes)
        return key

    def _layer(
        self,
        kind: str,
        name: str,
        shape: tuple[int, ...],
        params: dict[str, Any] | None = None,
        constants: dict[str, Array] | None = None,
    ) -> None:
        """Add a layer that reads the last one."""
        tensors = {field: Tensor.of(values) for field, values in (constants or {}).items()}
        key = self._add(
            kind, name, (TensorInfo(shape),), params=FrozenDict(params or {}), constants=FrozenDict(tensors)
        )
        fe.connect(self.graph, self._last, key)
        self._last, self._shape = key, shape

    def _weighted(
        self, kind: str, name: str, shape: tuple[int, ...], params: dict[str, Any], weights: Array, bias: Array | None
    ) -> None:
        """Add a layer with weights, in the form asked for."""
        params = {**params, "biasEnabled": bias is not None}
        tensors = {"weights": weights} if bias is None else {"weights": weights, "biases": bias}
        if self._members:
            self._layer(kind, name, shape, params, tensors)
            return
        sources = []
        for field, values in tensors.items():
            tensor = Tensor.of(values, is_constant=True)
            constants = FrozenDict(input=tensor)
            sources.append(self._add("Constant", f"{name}/{field}", (tensor.info,), constants=constants))
        self._layer(kind, name, shape, params)
        for slot, source in enumerate(sources, start=1):
            fe.connect(self.graph, source, self._last, input_slot=slot)

    def _window(
        self, kernel: tuple[int, int], stride: int, padding: tuple[int, int, int, int]
    ) -> tuple[dict[str, Any], int, int]:
        """Descriptor fields of a sliding window, and height and width of what it gives."""
        top, bottom, left, right = padding
        params = {"padTop": top, "padBottom": bottom, "padLeft": left, "padRight": right}
        _, height, width, _ = self._shape
        height = (height + top + bottom - kernel[0]) // stride + 1
        width = (width + left + right - kernel[1]) // stride + 1
        return {**params, "strideX": stride, "strideY": stride, "dataLayout": "NHWC"}, height, width

    def convolution(
        self,
        name: str,
        weights: Array,
        bias: Array | None = None,
        *,
        stride: int = 1,
        padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        """Convolution2d; ``weights`` [O, H, W, I], ``padding`` top, bottom, left, right."""
        params, height, width = self._window(weights.shape[1:3], stride, padding)
        shape = (self._shape[0], height, width, weights.shape[0])
        self._weighted("Convolution2d", name, shape, params, weights, bias)

    def depthwise(
        self,
        name: str,
        weights: Array,
        *,
        stride: int = 1,
        padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        """DepthwiseConvolution2d, one filter a channel, no bias; ``weights`` [H, W, I]."""
        params, height, width = self._window(weights.shape[:2], stride, padding)
        shape = (self._shape[0], height, width, self._shape[3])
        laid_out = weights.transpose(2, 0, 1)[np.newaxis] if self._members else weights[np.newaxis]
        self._weighted("DepthwiseConvolution2d", name, shape, params, laid_out, None)

    def batch_norm(self, name: str, *, mean: Array, variance: Array, beta: Array, gamma: Array, eps: float) -> None:
        """BatchNormalization: ``gamma * (x - mean) / sqrt(variance + eps) + beta`` per channel."""
        constants = {"mean": mean, "variance": variance, "beta": beta, "gamma": gamma}
        self._layer("BatchNormalization", name, self._shape, {"eps": eps, "dataLayout": "NHWC"}, constants)

    def relu(self, name: str) -> None:
        """Activation ReLu."""
        self._layer("Activation", name, self._shape, {"activationFunction": "ReLu"})

    def relu6(self, name: str) -> None:
        """Activation BoundedReLu with the upper bound 6 and the lower bound 0."""
        self._layer("Activation", name, self._shape, {"activationFunction": "BoundedReLu", "a": 6.0, "b": 0.0})

    def pool(self, name: str, algorithm: str, size: tuple[int, int], stride: int) -> None:
        """Pooling2d without padding; ``algorithm`` is ``"Max"`` or ``"Average"``."""
        params, height, width = self._window(size, stride, (0, 0, 0, 0))
        params |= {"poolType": algorithm, "poolHeight": size[0], "poolWidth": size[1]}
        self._layer("Pooling2d", name, (self._shape[0], height, width, self._shape[3]), params)

    def flatten(self, name: str) -> None:
        """Reshape to [batch, everything else]."""
        shape = (self._shape[0], int(np.prod(self._shape[1:])))
        self._layer("Reshape", name, shape, {"targetShape": shape})

    def fully_connected(self, name: str, weights: Array, bias: Array) -> None:
        """FullyConnected; ``weights`` [O, I]."""
        shape = (self._shape[0], weights.shape[0])
        params = {"transposeWeightsMatrix": True, "constantWeights": True}
        self._weighted("FullyConnected", name, shape, params, weights, bias)

    def softmax(self, name: str) -> None:
        """Softmax over the last axis."""
        self._layer("Softmax", name, self._shape, {"beta": 1.0, "axis": -1})

    def output(self, name: str) -> nx.DiGraph[int]:
        """End the chain in an Output; returns the network."""
        key = self._add("Output", name, (), binding_id=0)
        fe.connect(self.graph, self._last, key)
        self.graph.graph["outputs"] = (key,)
        return self.graph


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Padding before and after one axis so that ``ceil(size / stride)`` positions come out.

    Where it is odd, the larger half comes after, as in TensorFlow's ``SAME``.

    Examples
    --------
    >>> same_padding(64, 3, 2)
    (0, 1)
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2
