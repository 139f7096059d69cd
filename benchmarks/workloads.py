"""Networks that the benchmarks share."""

from __future__ import annotations

import numpy as np

import fusion_engine as fe
from fusion_engine.network import EMPTY, FrozenDict, Network
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["chain", "weights"]

_SHAPE = TensorInfo((1, 4, 4, 2))


def chain(layers: int) -> Network:
    """Input, then Convolution2d, BatchNormalization and Activation in turn (weights as members), Output."""
    graph = fe.new_network(feature_versions=(1, 0, 0))
    source = np.random.default_rng(1)
    conv = FrozenDict(strideX=1, strideY=1, dataLayout="NHWC", biasEnabled=True)
    kinds = (
        ("Convolution2d", conv, ("weights", (2, 1, 1, 2)), ("biases", (2,))),
        ("BatchNormalization", FrozenDict(eps=1.0), *((f, (2,)) for f in ("mean", "variance", "beta", "gamma"))),
        ("Activation", FrozenDict(activationFunction="ReLu")),
    )
    graph.add_node(0, type="Input", name="in", binding_id=0, outputs=(_SHAPE,), params=EMPTY, constants=EMPTY)
    for key in range(1, layers + 1):
        kind, params, *fields = kinds[(key - 1) % 3]
        tensors = FrozenDict((f, Tensor.of(source.random(shape, np.float32))) for f, shape in fields)
        graph.add_node(key, type=kind, name=f"l{key}", outputs=(_SHAPE,), params=params, constants=tensors)
        graph.add_edge(key - 1, key, slots=((0, 0),))
    last = layers + 1
    graph.add_node(last, type="Output", name="out", binding_id=0, outputs=(), params=EMPTY, constants=EMPTY)
    graph.add_edge(layers, last, slots=((0, 0),))
    graph.graph.update(inputs=(0,), outputs=(last,))
    return graph


def weights(mebibytes: int) -> Network:
    """One Constant of so many MiB, and an Output."""
    graph = fe.new_network()
    tensor = Tensor.of(np.zeros(mebibytes * 2**18, np.float32))
    graph.add_node(0, type="Constant", outputs=(tensor.info,), constants=FrozenDict(input=tensor))
    graph.add_node(1, type="Output", binding_id=0, outputs=())
    fe.connect(graph, 0, 1)
    graph.graph["outputs"] = (1,)
    return graph
