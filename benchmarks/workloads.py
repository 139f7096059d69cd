"""Networks that the benchmarks share, each for every tool in its own form.

A `Plan` says what is computed; `network`, `onnx_model` and `torch_module` write it as a network of this
project, as an ONNX model and as a PyTorch module, layer by layer, and `evaluate` computes it with NumPy in
float64, so that what a tool leaves can be held against it.

Every layer's data is one image of 4 × 4 pixels and 2 channels, so that what is timed is work on the graph.
Convolutions are 1 × 1 and keep the sum of the channels, batch norms scale by about 1: the data stays of one
magnitude however deep the network is, and no layer is without effect on the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import fusion_engine as fe
from fusion_engine.network import EMPTY, FrozenDict, Network
from fusion_engine.tensor import Tensor, TensorInfo

if TYPE_CHECKING:
    import onnx
    import torch

__all__ = [
    "WORKLOADS",
    "Plan",
    "Step",
    "chain",
    "evaluate",
    "evaluate_network",
    "image",
    "large_weights",
    "network",
    "onnx_model",
    "plan",
    "rule_texts",
    "torch_module",
    "weights",
]

Array = npt.NDArray[Any]

INPUT = -1
"""The source that is the network's input."""

HEIGHT, WIDTH, CHANNELS = 4, 4, 2
EPSILON = 1.0
_SHAPE = TensorInfo((1, HEIGHT, WIDTH, CHANNELS))
_CONV = FrozenDict(strideX=1, strideY=1, dataLayout="NHWC", biasEnabled=True)
_NORM = FrozenDict(eps=EPSILON, dataLayout="NHWC")
_RELU = FrozenDict(activationFunction="ReLu")
_NORM_FIELDS = ("mean", "variance", "beta", "gamma")


@dataclass(frozen=True)
class Step:
    """A layer of a plan.

    Attributes
    ----------
    kind
        ``conv``, ``norm``, ``relu`` or ``add``.
    sources
        Numbers of the steps that it reads, `INPUT` for the network's input.
    arrays
        float32; of a conv weights ``[output, input]`` and bias, of a norm mean, variance, beta and gamma.
    """

    kind: str
    sources: tuple[int, ...]
    arrays: tuple[Array, ...] = ()


@dataclass
class Plan:
    """What a workload computes.

    Attributes
    ----------
    steps
        The layers in an order in which each comes after what it reads.
    outputs
        Numbers of the steps that are the network's outputs.
    folds
        How many batch norms can be folded into the convolution below them.
    shared
        Whether all convolutions read one tensor of weights and one of biases.
    """

    steps: list[Step] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    folds: int = 0
    shared: bool = False
    _random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    _weights: tuple[Array, ...] | None = None

    def _add(self, kind: str, sources: tuple[int, ...], arrays: tuple[Array, ...] = ()) -> int:
        self.steps.append(Step(kind, sources, arrays))
        return len(self.steps) - 1

    def conv(self, source: int) -> int:
        """A convolution that keeps the sum of the channels."""
        if self._weights is None or not self.shared:
            part = np.float32(self._random.uniform(0.1, 0.9))
            square = np.array([[part, 1 - part], [1 - part, part]], np.float32)
            self._weights = (square, self._random.uniform(0, 0.01, CHANNELS).astype(np.float32))
        return self._add("conv", (source,), self._weights)

    def norm(self, source: int) -> int:
        """A batch norm that scales by 0.99 to 1.01 and shifts by little."""
        values = self._random.uniform(0, 1, (4, CHANNELS))
        variance = values[0].astype(np.float32)
        gamma = np.sqrt(variance + EPSILON) * (0.99 + 0.02 * values[1])
        shift = 0.01 * (values[2:] - 0.5)
        return self._add("norm", (source,), tuple(a.astype(np.float32) for a in (shift[0], variance, shift[1], gamma)))

    def relu(self, source: int) -> int:
        """A rectifier."""
        return self._add("relu", (source,))

    def add(self, first: int, second: int) -> int:
        """A sum."""
        return self._add("add", (first, second))


# The shapes


def _chain(plan: Plan, layers: int) -> None:
    """Convolution, batch norm and ReLu in turn."""
    last, kinds = INPUT, (plan.conv, plan.norm, plan.relu)
    for number in range(layers):
        last = kinds[number % 3](last)
    plan.outputs = (last,)
    plan.folds = (layers + 1) // 3


def _fan_out(plan: Plan, layers: int) -> None:
    """One layer that all branches read, each conv, norm, relu; their sum in pairs."""
    top = plan.relu(INPUT)
    ends = [plan.relu(plan.norm(plan.conv(top))) for _ in range(max(layers // 4, 1))]
    plan.folds = len(ends)
    while len(ends) > 1:
        pairs = [plan.add(*ends[place : place + 2]) for place in range(0, len(ends) - 1, 2)]
        ends = pairs + ends[2 * len(pairs) :]
    plan.outputs = (ends[0],)


def _residual(plan: Plan, layers: int) -> None:
    """Blocks of conv, norm, relu, conv, norm, a sum with the block's input, relu."""
    last = plan.relu(INPUT)
    for _ in range(max(layers // 7, 1)):
        inner = plan.relu(plan.norm(plan.conv(last)))
        last = plan.relu(_half(plan, last, plan.norm(plan.conv(inner))))
        plan.folds += 2
    plan.outputs = (last,)


def _half(plan: Plan, first: int, second: int) -> int:
    """A sum whose second summand is scaled so far down that sums in a row do not run away."""
    step = plan.steps[second]
    mean, variance, beta, gamma = step.arrays
    plan.steps[second] = Step(step.kind, step.sources, (mean, variance, beta * 0, gamma * np.float32(1e-3)))
    return plan.add(first, second)


def _shared_weights(plan: Plan, layers: int) -> None:
    """The chain, all of whose convolutions read the same Constants."""
    plan.shared = True
    _chain(plan, layers)


def _near_misses(plan: Plan, layers: int) -> None:
    """Blocks of conv, norm, a sum that reads the conv too, relu: every batch norm matches and none may be folded."""
    last = plan.relu(INPUT)
    for _ in range(max(layers // 4, 1)):
        conv = plan.conv(last)
        last = plan.relu(_half(plan, conv, plan.norm(conv)))
    plan.outputs = (last,)


WORKLOADS: dict[str, Callable[[Plan, int], None]] = {
    "chain": _chain,
    "fan-out": _fan_out,
    "residual": _residual,
    "shared-weights": _shared_weights,
    "near-misses": _near_misses,
}
"""What adds the layers of a shape to an empty plan, given about how many there are to be."""


def plan(name: str, layers: int) -> Plan:
    """The plan of a workload with about so many layers; the same at every call."""
    made = Plan()
    WORKLOADS[name](made, layers)
    return made


def image() -> Array:
    """The input, float64 of shape ``(1, 4, 4, 2)``, NHWC, all positive."""
    return (
        np.random.default_rng(2).uniform(0.5, 1.0, (1, HEIGHT, WIDTH, CHANNELS)).astype(np.float32).astype(np.float64)
    )


# What it computes


def _compute(kind: str, inputs: Sequence[Array], arrays: Sequence[Array]) -> Array:
    if kind == "conv":
        result: Array = inputs[0] @ arrays[0].T + arrays[1]
        return result
    if kind == "norm":
        mean, variance, beta, gamma = arrays
        return (inputs[0] - mean) / np.sqrt(variance + np.float64(EPSILON)) * gamma + beta
    if kind == "relu":
        return np.maximum(inputs[0], 0)
    return inputs[0] + inputs[1]


def evaluate(made: Plan, data: Array) -> list[Array]:
    """The outputs of a plan for an image ``(1, 4, 4, 2)``, in float64."""
    found: list[Array] = []
    for step in made.steps:
        inputs = [data if source == INPUT else found[source] for source in step.sources]
        found.append(_compute(step.kind, inputs, [array.astype(np.float64) for array in step.arrays]))
    return [found[number] for number in made.outputs]


_KINDS = {"Convolution2d": "conv", "BatchNormalization": "norm", "Activation": "relu", "Addition": "add"}


def evaluate_network(graph: Network, data: Array) -> list[Array]:
    """The same of a network that was loaded or fused: what its layers say, and nothing of the plan."""
    import networkx as nx

    found: dict[int, Array] = {}
    outputs: dict[int, Array] = {}
    for key in nx.topological_sort(graph):
        node = graph.nodes[key]
        slots = sorted(
            (into, source) for source, _, edge in graph.in_edges(key, data=True) for _, into in edge["slots"]
        )
        inputs = [found[source] for _, source in slots]
        held = node.get("constants", EMPTY)
        if node["type"] == "Input":
            found[key] = data
        elif node["type"] == "Output":
            outputs[key] = inputs[0]
        elif node["type"] == "Constant":
            found[key] = held["input"].data.astype(np.float64)
        else:
            kind = _KINDS[node["type"]]
            arrays = [tensor.data.astype(np.float64) for tensor in held.values()]
            if kind == "conv":
                named = {name: tensor.data.astype(np.float64) for name, tensor in held.items()}
                square, bias = (named["weights"], named["biases"]) if named else inputs[1:]
                arrays = [square.reshape(CHANNELS, CHANNELS), bias.reshape(CHANNELS)]
            elif kind == "norm":
                arrays = [held[name].data.astype(np.float64) for name in _NORM_FIELDS]
            found[key] = _compute(kind, inputs[:1] if kind == "conv" else inputs, arrays)
    return [outputs[key] for key in graph.graph["outputs"]]


# In each tool's form


def network(made: Plan) -> Network:
    """A plan as a network: weights are members, shared ones Constants that the layers read."""
    graph = fe.new_network(feature_versions=(1, 1, 1) if made.shared else (1, 0, 0))
    graph.add_node(0, type="Input", name="in", binding_id=0, outputs=(_SHAPE,), params=EMPTY, constants=EMPTY)
    constants: dict[int, int] = {}
    for number, step in enumerate(made.steps):
        key = number + 1
        held: FrozenDict = EMPTY
        if step.kind == "norm":
            held = FrozenDict(zip(_NORM_FIELDS, map(Tensor.of, step.arrays), strict=True))
        elif step.kind == "conv" and not made.shared:
            held = FrozenDict(weights=Tensor.of(_kernel(step)), biases=Tensor.of(step.arrays[1]))
        kind, params = {
            "conv": ("Convolution2d", _CONV),
            "norm": ("BatchNormalization", _NORM),
            "relu": ("Activation", _RELU),
            "add": ("Addition", EMPTY),
        }[step.kind]
        graph.add_node(key, type=kind, name=f"l{key}", outputs=(_SHAPE,), params=params, constants=held)
        for slot, source in enumerate(step.sources):
            fe.connect(graph, source + 1, key, 0, slot)
        if step.kind == "conv" and made.shared:
            for slot, array in ((1, _kernel(step)), (2, step.arrays[1])):
                at = len(made.steps) + 1 + slot
                if constants.setdefault(slot, at) not in graph:
                    tensor = Tensor.of(array)
                    held = FrozenDict(input=tensor)
                    info = TensorInfo(tensor.info.shape, is_constant=True)
                    graph.add_node(at, type="Constant", name=f"c{slot}", outputs=(info,), params=EMPTY, constants=held)
                fe.connect(graph, at, key, 0, slot)
    ends = []
    for place, number in enumerate(made.outputs):
        key = len(made.steps) + 4 + place
        graph.add_node(
            key, type="Output", name=f"out{place}", binding_id=place, params=EMPTY, constants=EMPTY, outputs=()
        )
        fe.connect(graph, number + 1, key)
        ends.append(key)
    graph.graph.update(inputs=(0,), outputs=tuple(ends))
    return graph


def _kernel(step: Step) -> Array:
    """Weights of a convolution as ``[O, H, W, I]``."""
    return step.arrays[0].reshape(CHANNELS, 1, 1, CHANNELS)


def onnx_model(made: Plan) -> onnx.ModelProto:
    """A plan as an ONNX model: NCHW, initializers, shared ones once."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, initializers, names = [], [], {}

    def initializer(name: str, array: Array) -> str:
        if id(array) not in names:
            names[id(array)] = name
            initializers.append(numpy_helper.from_array(array, name))
        return names[id(array)]

    for number, step in enumerate(made.steps):
        inputs = ["in" if source == INPUT else f"v{source}" for source in step.sources]
        name, attributes = f"l{number}", {}
        if step.kind == "conv":
            weight = initializer("w" if made.shared else f"{name}.w", step.arrays[0])
            inputs += [weight, initializer("b" if made.shared else f"{name}.b", step.arrays[1])]
            attributes = {"kernel_shape": [1, 1]}
        elif step.kind == "norm":
            mean, variance, beta, gamma = step.arrays
            for part, array in (("gamma", gamma), ("beta", beta), ("mean", mean), ("variance", variance)):
                inputs.append(initializer(f"{name}.{part}", array))
            attributes = {"epsilon": EPSILON}
        kind = {"conv": "Conv", "norm": "BatchNormalization", "relu": "Relu", "add": "Add"}[step.kind]
        nodes.append(helper.make_node(kind, inputs, [f"v{number}"], name=name, **attributes))
    for tensor in initializers:
        if tuple(tensor.dims) == (CHANNELS, CHANNELS):
            tensor.dims.extend((1, 1))
    shape = (1, CHANNELS, HEIGHT, WIDTH)
    ends = [helper.make_tensor_value_info(f"v{number}", TensorProto.FLOAT, shape) for number in made.outputs]
    start = helper.make_tensor_value_info("in", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "workload", [start], ends, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def torch_module(made: Plan) -> torch.nn.Module:
    """A plan as a PyTorch module in evaluation mode."""
    import torch

    def parameter(array: Array) -> torch.nn.Parameter:
        return torch.nn.Parameter(torch.from_numpy(array.copy()), requires_grad=False)

    class Workload(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            shared: dict[int, torch.nn.Parameter] = {}
            for number, step in enumerate(made.steps):
                layer: torch.nn.Module
                if step.kind == "conv":
                    layer = torch.nn.Conv2d(CHANNELS, CHANNELS, 1, device="meta")
                    kernel = parameter(step.arrays[0].reshape(CHANNELS, CHANNELS, 1, 1))
                    layer.weight = shared.setdefault(0, kernel) if made.shared else kernel
                    layer.bias = (
                        shared.setdefault(1, parameter(step.arrays[1])) if made.shared else parameter(step.arrays[1])
                    )
                elif step.kind == "norm":
                    mean, variance, beta, gamma = step.arrays
                    layer = torch.nn.BatchNorm2d(CHANNELS, EPSILON)
                    layer.weight, layer.bias = parameter(gamma), parameter(beta)
                    layer.running_mean, layer.running_var = map(torch.from_numpy, (mean.copy(), variance.copy()))
                elif step.kind == "relu":
                    layer = torch.nn.ReLU()
                else:
                    continue
                self.add_module(f"l{number}", layer)

        def forward(self, data: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found: list[torch.Tensor] = []
            for number, step in enumerate(made.steps):
                inputs = [data if source == INPUT else found[source] for source in step.sources]
                found.append(inputs[0] + inputs[1] if step.kind == "add" else getattr(self, f"l{number}")(*inputs))
            return tuple(found[number] for number in made.outputs)

    return Workload().eval()


# Of this project only


def chain(layers: int) -> Network:
    """Input, then Convolution2d, BatchNormalization and Activation in turn (weights as members), Output."""
    return network(plan("chain", layers))


def weights(mebibytes: int) -> Network:
    """One Constant of so many MiB, and an Output."""
    graph = fe.new_network()
    tensor = Tensor.of(np.zeros(mebibytes * 2**18, np.float32))
    graph.add_node(0, type="Constant", outputs=(tensor.info,), constants=FrozenDict(input=tensor))
    graph.add_node(1, type="Output", binding_id=0, outputs=())
    fe.connect(graph, 0, 1)
    graph.graph["outputs"] = (1,)
    return graph


def large_weights(mebibytes: int) -> Network:
    """A chain of three convolutions with batch norms, then fully connected layers of 32 MiB of random weights each."""
    graph = chain(9)
    last, (end,) = 9, graph.graph["outputs"]
    graph.remove_edge(last, end)
    size = 2896  # 2,896² float32 are 32 MiB but for 0.03 %
    random = np.random.default_rng(3)
    key = end
    rows = HEIGHT * WIDTH * CHANNELS
    params = FrozenDict(biasEnabled=False, transposeWeightsMatrix=True)
    for number in range(max(mebibytes // 32, 1) + 1):
        columns = size if number else rows
        key += 1
        held = FrozenDict(weights=Tensor.of(random.random((size, columns), np.float32)))
        graph.add_node(
            key,
            type="FullyConnected",
            name=f"fc{number}",
            outputs=(TensorInfo((1, size)),),
            params=params,
            constants=held,
        )
        fe.connect(graph, last, key)
        last = key
    fe.connect(graph, last, end)
    return graph


def rule_texts(count: int) -> list[str]:
    """Match texts of so many rules, none of which matches on the chain.

    In turn: a root that the chain lacks, a root that it has over an input that it lacks there, a root and
    an input that it has with a condition that fails.
    """
    return [
        (
            f"Pooling2d[poolWidth == {number}]{{Convolution2d}}",
            f"Activation{{DepthwiseConvolution2d[padLeft == {number}]}}",
            f"BatchNormalization{{Convolution2d[strideX == {number + 2}]}}",
        )[number % 3]
        for number in range(count)
    ]
