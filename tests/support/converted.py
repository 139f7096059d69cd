"""What tests of `convert` ask of its results."""

from __future__ import annotations

import numpy as np

from fusion_engine.network import Network, edges_into
from tests.support.nets import Net


def types(graph: Network) -> list[str]:
    """Types by key."""
    return [graph.nodes[key]["type"] for key in sorted(graph)]


def named(graph: Network, name: str) -> int:
    (key,) = [key for key, node in graph.nodes(data=True) if node["name"] == name]
    return int(key)


def fed(graph: Network, key: int) -> dict[int, str]:
    """Input slot -> type of what feeds it."""
    return {slot: graph.nodes[source.layer]["type"] for slot, source in edges_into(graph, key)}


def member_conv(bias: bool = True) -> Net:
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 2, 2, 1))
    net.output(net.conv(x, np.full((3, 1, 1, 1), 2.0), [1.0, 2.0, 3.0] if bias else None, name="conv"))
    return net


def chain() -> tuple[Net, list[int]]:
    """Conv, depthwise and ReLu over two inputs that are added before; keys of the last three, root first."""
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.addition(net.input((1, 2, 2, 2)), net.input((1, 2, 2, 2)))
    conv = net.conv(x, np.ones((2, 1, 1, 2)), [0.5, 1.0], name="conv")
    depthwise = net.depthwise(conv, np.arange(4).reshape(2, 2, 1, 1), name="dw")
    relu = net.activation(depthwise, "ReLu", name="relu")
    net.output(relu)
    return net, [relu, depthwise, conv]
