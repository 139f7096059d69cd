"""Handmade networks, layer by layer.

>>> net = Net(form="member")
>>> x = net.input((1, 4, 4, 2))
>>> c = net.conv(x, weights=np.ones((3, 1, 1, 2)), bias=[0, 0, 0], name="conv")
>>> r = net.activation(c, "ReLu")
>>> y = net.output(r)
>>> net.graph.nodes[c]["outputs"][0].shape
(1, 4, 4, 3)

Every method returns the key of its layer. A source is a key (its output slot 0) or a pair of key
and output slot. Values become tensors of the layer's data type; a Tensor is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import networkx as nx
import numpy as np

from fusion_engine.network import EMPTY, FrozenDict, Network, Source, connect, new_network
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo

At = int | tuple[int, int]
Values = Any
"""A Tensor, or what NumPy makes an array of."""

BINARY = {
    "Addition": "Add",
    "Subtraction": "Sub",
    "Multiplication": "Mul",
    "Division": "Div",
    "Minimum": "Minimum",
    "Maximum": "Maximum",
}
"""Elementwise layers in their old spelling -> operation of their new one."""


def frozen(value: Any) -> Any:
    """Dicts as FrozenDicts and lists as tuples, all the way down (literals of a test: never deep)."""
    if isinstance(value, dict):
        return FrozenDict({key: frozen(v) for key, v in value.items()})
    return tuple(frozen(v) for v in value) if isinstance(value, list | tuple) else value


class Net:
    """A network under construction; ``graph`` is the network so far.

    Parameters
    ----------
    dialect, feature_versions
        Of the graph; the versions default to (1, 1, 1) in the current dialect and to zeros in older ones.
    form
        How convolutions and fully connected layers hold their weights where a call does not say:
        ``"member"`` or ``"constant"`` (Constant layers on input slots 1 and 2).
    data_type
        Of inputs and Constants where a call does not say.
    spelling
        ``"old"`` makes Addition layers, ``"new"`` ElementwiseBinary ones, and so on.
    layout
        dataLayout where a call does not say.
    """

    def __init__(
        self,
        dialect: str = "current",
        feature_versions: tuple[int, int, int] | None = None,
        *,
        form: str = "constant",
        data_type: str = "Float32",
        spelling: str = "old",
        layout: str = "NHWC",
    ) -> None:
        if feature_versions is None:
            feature_versions = (1, 1, 1) if dialect == "current" else (0, 0, 0)
        self.graph: Network = new_network(dialect, feature_versions)
        self.form = form
        self.data_type = data_type
        self.spelling = spelling
        self.layout = layout

    # The general case

    def info(self, source: At) -> TensorInfo:
        """TensorInfo of an output slot."""
        key, slot = source if isinstance(source, tuple) else (source, 0)
        found: TensorInfo = self.graph.nodes[key]["outputs"][slot]
        return found

    def layer(
        self,
        kind: str,
        *inputs: At,
        outputs: Sequence[TensorInfo | tuple[int, ...] | None] | None = None,
        params: dict[str, Any] | None = None,
        constants: dict[str, Tensor] | None = None,
        name: str | None = None,
        **attributes: Any,
    ) -> int:
        """Any layer: its inputs in slot order.

        ``outputs`` holds TensorInfos, or shapes that get type and quantization of the first input;
        left out, there is one output like the first input. ``name`` defaults to ``type_key``.
        """
        key = self.graph.number_of_nodes()
        like = self.info(inputs[0]) if inputs else TensorInfo((), self.data_type)
        infos = [like] if outputs is None else outputs
        self.graph.add_node(
            key,
            type=kind,
            name=f"{kind.lower()}_{key}" if name is None else name,
            params=FrozenDict(frozen(params)) if params else EMPTY,
            constants=FrozenDict(constants) if constants else EMPTY,
            outputs=tuple(replace(like, shape=o) if isinstance(o, tuple) else o for o in infos),
            **attributes,
        )
        for slot, source in enumerate(inputs):
            source_key, output_slot = source if isinstance(source, tuple) else (source, 0)
            connect(self.graph, source_key, key, output_slot, slot)
        return key

    # Ends and Constants

    def input(
        self,
        shape: Sequence[int],
        data_type: str | None = None,
        *,
        binding_id: int | None = None,
        name: str | None = None,
        listed: bool = True,
        **quantization: Any,
    ) -> int:
        """An Input; ``quantization`` are fields of TensorInfo. Binding ids count up from 0."""
        info = TensorInfo(tuple(shape), data_type or self.data_type, **quantization)
        return self._bindable("Input", (), info, binding_id, name, listed)

    def output(self, source: At, *, binding_id: int | None = None, name: str | None = None, listed: bool = True) -> int:
        """An Output."""
        return self._bindable("Output", (source,), None, binding_id, name, listed)

    def _bindable(
        self,
        kind: str,
        inputs: tuple[At, ...],
        info: TensorInfo | None,
        binding_id: int | None,
        name: str | None,
        listed: bool,
    ) -> int:
        ids = self.graph.graph["inputs" if kind == "Input" else "outputs"]
        key = self.layer(
            kind,
            *inputs,
            outputs=() if info is None else (info,),
            name=name,
            binding_id=self._count(kind) if binding_id is None else binding_id,
        )
        if listed:
            self.graph.graph["inputs" if kind == "Input" else "outputs"] = (*ids, key)
        return key

    def _count(self, kind: str) -> int:
        return sum(node["type"] == kind for node in self.graph.nodes.values())

    def tensor(self, values: Values, data_type: str | None = None, **quantization: Any) -> Tensor:
        """A Tensor of the net's data type, or of one given; a Tensor as it is."""
        return values if isinstance(values, Tensor) else Tensor.of(values, data_type or self.data_type, **quantization)

    def constant(
        self, values: Values, data_type: str | None = None, *, name: str | None = None, **quantization: Any
    ) -> int:
        """A Constant layer."""
        tensor = self.tensor(values, data_type, **quantization)
        return self.layer("Constant", outputs=(tensor.info,), constants={"input": tensor}, name=name)

    # Layers with weights. ``weights`` and ``bias`` may be a layer: its key or a Source (shared or computed).

    def conv(
        self,
        x: At,
        weights: Values,
        bias: Values | None = None,
        *,
        form: str | None = None,
        layout: str | None = None,
        output: TensorInfo | None = None,
        name: str | None = None,
        **params: Any,
    ) -> int:
        """Convolution2d; weights OHWI for NHWC, OIHW for NCHW."""
        layout = layout or self.layout
        params = {"strideX": 1, "strideY": 1, **params, "dataLayout": layout}
        shape = self._weights_shape(weights)
        kernel = shape[1:3] if layout == "NHWC" else shape[2:4]
        out = output or self._windowed(x, layout, kernel, params, shape[0])
        return self._weighted("Convolution2d", x, weights, bias, form, out, params, name)

    def depthwise(
        self,
        x: At,
        weights: Values,
        bias: Values | None = None,
        *,
        form: str | None = None,
        layout: str | None = None,
        output: TensorInfo | None = None,
        name: str | None = None,
        **params: Any,
    ) -> int:
        """DepthwiseConvolution2d; weights [M,I,H,W] where weightsLayoutScheme is 0, else [1,H,W,I*M]."""
        layout = layout or self.layout
        params = {"strideX": 1, "strideY": 1, **params, "dataLayout": layout}
        shape = self._weights_shape(weights)
        old = self.graph.graph["feature_versions"][1] == 0
        kernel, channels = (shape[2:4], shape[0] * shape[1]) if old else (shape[1:3], shape[3])
        out = output or self._windowed(x, layout, kernel, params, channels)
        return self._weighted("DepthwiseConvolution2d", x, weights, bias, form, out, params, name)

    def transpose_conv(
        self,
        x: At,
        weights: Values,
        bias: Values | None = None,
        *,
        layout: str | None = None,
        output: TensorInfo | None = None,
        name: str | None = None,
        **params: Any,
    ) -> int:
        """TransposeConvolution2d; weights OHWI for NHWC, OIHW for NCHW, always members."""
        layout = layout or self.layout
        params = {"strideX": 1, "strideY": 1, **params, "dataLayout": layout}
        shape = self._weights_shape(weights)
        kernel = shape[1:3] if layout == "NHWC" else shape[2:4]
        n, h, w, _ = self._nhwc(self.info(x).shape, layout)
        h = params["strideY"] * (h - 1) + kernel[0] - params.get("padTop", 0) - params.get("padBottom", 0)
        w = params["strideX"] * (w - 1) + kernel[1] - params.get("padLeft", 0) - params.get("padRight", 0)
        out = output or replace(self.info(x), shape=self._in_layout((n, h, w, shape[0]), layout))
        return self._weighted("TransposeConvolution2d", x, weights, bias, "member", out, params, name)

    def conv3d(
        self,
        x: At,
        weights: Values,
        bias: Values | None = None,
        *,
        output: TensorInfo | None = None,
        name: str | None = None,
        **params: Any,
    ) -> int:
        """Convolution3d in NDHWC; weights [D,H,W,I,O], always Constant layers."""
        params = {"strideX": 1, "strideY": 1, "strideZ": 1, **params, "dataLayout": "NDHWC"}
        shape = self._weights_shape(weights)
        sizes = self.info(x).shape
        pads = (("padFront", "padBack"), ("padTop", "padBottom"), ("padLeft", "padRight"))
        extents = tuple(
            (size + params.get(a, 0) + params.get(b, 0) - (params.get(f"dilation{axis}", 1) * (k - 1) + 1))
            // params[f"stride{axis}"]
            + 1
            for size, k, axis, (a, b) in zip(sizes[1:4], shape[:3], "ZYX", pads, strict=True)
        )
        out = output or replace(self.info(x), shape=(sizes[0], *extents, shape[4]))
        return self._weighted("Convolution3d", x, weights, bias, "constant", out, params, name)

    def fully_connected(
        self,
        x: At,
        weights: Values,
        bias: Values | None = None,
        *,
        form: str | None = None,
        output: TensorInfo | None = None,
        name: str | None = None,
        **params: Any,
    ) -> int:
        """FullyConnected; weights [I,O], or [O,I] with ``transposeWeightsMatrix=True``."""
        shape = self._weights_shape(weights)
        size = shape[0] if params.get("transposeWeightsMatrix", False) else shape[1]
        out = output or replace(self.info(x), shape=(self.info(x).shape[0], size))
        return self._weighted("FullyConnected", x, weights, bias, form, out, params, name)

    def _weights_shape(self, weights: Values) -> tuple[int, ...]:
        if isinstance(weights, int | Source):
            return self.info(weights).shape
        return weights.info.shape if isinstance(weights, Tensor) else np.shape(weights)

    def _weighted(
        self,
        kind: str,
        x: At,
        weights: Values,
        bias: Values | None,
        form: str | None,
        output: TensorInfo,
        params: dict[str, Any],
        name: str | None,
    ) -> int:
        params = {**params, "biasEnabled": bias is not None}
        info = self.info(x)
        bias_type = info.data_type if info.data_type in FLOATS else "Signed32"
        given = {"weights": (weights, info.data_type), "bias": (bias, bias_type)}
        if (form or self.form) == "member":
            fields = {"weights": "weights", "bias": "biases"}
            constants = {fields[f]: self.tensor(v, t) for f, (v, t) in given.items() if v is not None}
            return self.layer(kind, x, outputs=(output,), params=params, constants=constants, name=name)
        base = f"{kind.lower()}_{self.graph.number_of_nodes()}" if name is None else name
        inputs = [x]
        for field, (values, data_type) in given.items():
            if isinstance(values, int | Source):
                inputs.append(values)
            elif values is not None:
                inputs.append(self.constant(values, data_type, name=f"{base}/{field}"))
        return self.layer(kind, *inputs, outputs=(output,), params=params, name=base)

    # Layers without weights

    def batch_norm(
        self,
        x: At,
        gamma: Values,
        beta: Values,
        mean: Values,
        variance: Values,
        *,
        eps: float = 0.001,
        layout: str | None = None,
        data_type: str | None = None,
        name: str | None = None,
    ) -> int:
        """BatchNormalization."""
        values = {"mean": mean, "variance": variance, "beta": beta, "gamma": gamma}
        constants = {field: self.tensor(v, data_type or self.info(x).data_type) for field, v in values.items()}
        params = {"eps": eps, "dataLayout": layout or self.layout}
        return self.layer("BatchNormalization", x, params=params, constants=constants, name=name)

    def activation(
        self,
        x: At,
        function: str = "ReLu",
        a: float = 0.0,
        b: float = 0.0,
        *,
        output: TensorInfo | None = None,
        name: str | None = None,
    ) -> int:
        """Activation."""
        field = "activationFunction" if self.graph.graph["dialect"] == "current" else "function"
        params = {field: function, "a": a, "b": b}
        return self.layer("Activation", x, outputs=None if output is None else (output,), params=params, name=name)

    def binary(
        self,
        kind: str,
        x: At,
        y: At,
        *,
        spelling: str | None = None,
        output: TensorInfo | None = None,
        name: str | None = None,
    ) -> int:
        """An elementwise layer by its old name (``"Addition"``, ``"Minimum"``), in either spelling."""
        shape = np.broadcast_shapes(self.info(x).shape, self.info(y).shape)
        outputs = (output or self.info(x).reshaped(shape),)
        if (spelling or self.spelling) == "old":
            return self.layer(kind, x, y, outputs=outputs, name=name)
        return self.layer("ElementwiseBinary", x, y, outputs=outputs, params={"operation": BINARY[kind]}, name=name)

    def addition(self, x: At, y: At, **options: Any) -> int:
        """Addition; see `binary`."""
        return self.binary("Addition", x, y, **options)

    def multiplication(self, x: At, y: At, **options: Any) -> int:
        """Multiplication; see `binary`."""
        return self.binary("Multiplication", x, y, **options)

    def pad(
        self,
        x: At,
        pads: Sequence[tuple[int, int]],
        value: float = 0.0,
        mode: str = "Constant",
        *,
        name: str | None = None,
    ) -> int:
        """Pad; ``pads`` are (before, after) per dimension."""
        shape = tuple(size + a + b for size, (a, b) in zip(self.info(x).shape, pads, strict=True))
        params = {"padList": [n for pair in pads for n in pair], "padValue": value, "paddingMode": mode}
        return self.layer("Pad", x, outputs=(shape,), params=params, name=name)

    def pool(
        self,
        x: At,
        kernel: tuple[int, int],
        algorithm: str = "Max",
        *,
        stride: tuple[int, int] | None = None,
        layout: str | None = None,
        output: TensorInfo | None = None,
        name: str | None = None,
        **params: Any,
    ) -> int:
        """Pooling2d; ``kernel`` and ``stride`` are (height, width), the stride as the kernel unless given."""
        layout = layout or self.layout
        down, across = stride or kernel
        sizes = {"poolType": algorithm, "poolHeight": kernel[0], "poolWidth": kernel[1]}
        params = {**sizes, "strideX": across, "strideY": down, **params, "dataLayout": layout}
        out = output or self._windowed(x, layout, kernel, params, self._nhwc(self.info(x).shape, layout)[3])
        return self.layer("Pooling2d", x, outputs=(out,), params=params, name=name)

    def reshape(self, x: At, shape: Sequence[int], *, name: str | None = None) -> int:
        """Reshape."""
        return self.layer("Reshape", x, outputs=(tuple(shape),), params={"targetShape": list(shape)}, name=name)

    def permute(self, x: At, mappings: Sequence[int], *, name: str | None = None) -> int:
        """Permute: ``mappings[i]`` is where dimension i goes."""
        shape = [0] * len(mappings)
        for size, to in zip(self.info(x).shape, mappings, strict=True):
            shape[to] = size
        return self.layer("Permute", x, outputs=(tuple(shape),), params={"dimMappings": list(mappings)}, name=name)

    def transpose(self, x: At, mappings: Sequence[int], *, name: str | None = None) -> int:
        """Transpose: ``mappings[i]`` is where dimension i of the result comes from."""
        shape = tuple(self.info(x).shape[of] for of in mappings)
        return self.layer("Transpose", x, outputs=(shape,), params={"dimMappings": list(mappings)}, name=name)

    def splitter(self, x: At, axis: int, sizes: Sequence[int], *, name: str | None = None) -> int:
        """Splitter: one output per size along ``axis``."""
        shape = self.info(x).shape
        shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        origins = [[0] * len(shape) for _ in sizes]
        for i in range(len(sizes)):
            origins[i][axis] = sum(sizes[:i])
        views = {"concatAxis": axis, "numViews": len(sizes), "numDimensions": len(shape), "viewOrigins": origins}
        return self.layer("Splitter", x, outputs=shapes, params={"origins": views, "viewSizes": shapes}, name=name)

    def concat(self, *xs: At, axis: int, name: str | None = None) -> int:
        """Concat along ``axis``."""
        shapes = [self.info(x).shape for x in xs]
        origins = [[0] * len(shapes[0]) for _ in xs]
        for i in range(len(xs)):
            origins[i][axis] = sum(shape[axis] for shape in shapes[:i])
        params = {
            "concatAxis": axis,
            "numViews": len(xs),
            "numDimensions": len(shapes[0]),
            "viewOrigins": origins,
        }
        whole = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
        return self.layer("Concat", *xs, outputs=(whole,), params=params, name=name)

    def stand_in(self, *xs: At, outputs: Sequence[TensorInfo | tuple[int, ...]], name: str | None = None) -> int:
        """StandIn."""
        params = {"numInputs": len(xs), "numOutputs": len(outputs)}
        return self.layer("StandIn", *xs, outputs=outputs, params=params, name=name)

    # Shapes

    @staticmethod
    def _nhwc(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
        return shape if layout == "NHWC" else (shape[0], *shape[2:], shape[1])

    @staticmethod
    def _in_layout(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
        return shape if layout == "NHWC" else (shape[0], shape[3], *shape[1:3])

    def _windowed(self, x: At, layout: str, kernel: Sequence[int], params: dict[str, Any], channels: int) -> TensorInfo:
        """Output of a convolution or pooling: floor((size + pads - window) / stride) + 1.

        A pooling may round up; its last window is left out where it begins behind input and front padding.
        """
        n, h, w, _ = self._nhwc(self.info(x).shape, layout)
        extents = []
        for size, k, axis, (a, b) in (
            (h, kernel[0], "Y", ("padTop", "padBottom")),
            (w, kernel[1], "X", ("padLeft", "padRight")),
        ):
            window, stride = params.get(f"dilation{axis}", 1) * (k - 1) + 1, params[f"stride{axis}"]
            room = size + params.get(a, 0) + params.get(b, 0) - window
            count = (-(-room // stride) if params.get("outputShapeRounding") == "Ceiling" else room // stride) + 1
            behind = "poolType" in params and (count - 1) * stride >= size + params.get(a, 0)
            extents.append(count - behind)
        return replace(self.info(x), shape=self._in_layout((n, extents[0], extents[1], channels), layout))


def shuffled(graph: Network, seed: int) -> Network:
    """The same network under other keys, its layers and connections inserted in another order."""
    random = Random(seed)
    old = list(graph.nodes)
    new = random.sample(range(3 * len(old) + 5), len(old))
    key_of = dict(zip(old, new, strict=True))
    random.shuffle(old)
    other: Network = nx.DiGraph(**graph.graph)
    for field in ("inputs", "outputs"):
        other.graph[field] = tuple(key_of[key] for key in graph.graph[field])
    other.add_nodes_from((key_of[key], dict(graph.nodes[key])) for key in old)
    edges = list(graph.edges(data=True))
    random.shuffle(edges)
    other.add_edges_from((key_of[u], key_of[v], dict(data)) for u, v, data in edges)
    return other
