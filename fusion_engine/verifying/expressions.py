"""Every layer type that can be written in ONNX operators, and writing part of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from fusion_engine.errors import FusionEngineError
from fusion_engine.network import EMPTY, Network, Source, describe, edges_into, param
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.verifying import elementwise, moving, reducing, weighted
from fusion_engine.verifying.layer import MOST_ELEMENTS, Inexpressible, Layer, Value
from fusion_engine.verifying.onnxgraph import OnnxGraph, carried

__all__ = ["EXPRESSIONS", "LayerInexpressible", "express", "output_info"]

EXPRESSIONS: dict[str, Callable[[Layer], list[str]]] = {
    **weighted.EXPRESSIONS,
    **elementwise.EXPRESSIONS,
    **moving.EXPRESSIONS,
    **reducing.EXPRESSIONS,
}
"""Layer type -> expression. Inputs and Constants are no part of it."""


class LayerInexpressible(Exception):
    """A layer cannot be written in ONNX operators.

    Attributes
    ----------
    key
        The layer.
    reason
        Which layer, of which type, and why.
    """

    def __init__(self, graph: Network, key: int, reason: str) -> None:
        self.key = key
        self.reason = f"{graph.nodes[key]['type']} {describe(graph, key)} cannot be expressed: {reason}"
        super().__init__(self.reason)


def output_info(graph: Network, source: Source) -> TensorInfo | None:
    """TensorInfo of an output slot, or None where the network lacks it or does not know its shape."""
    outputs = graph.nodes[source.layer].get("outputs") or ()
    info: TensorInfo | None = outputs[source.slot] if source.slot < len(outputs) else None
    return info if info is not None and info.known else None


def express(
    onnx: OnnxGraph, graph: Network, layers: Sequence[int], known: Mapping[Source, Value]
) -> dict[Source, Value]:
    """Write layers in ONNX operators.

    Parameters
    ----------
    onnx
        The ONNX graph that they are added to.
    graph
        The network.
    layers
        Sources before consumers.
    known
        Tensors that are in the ONNX graph already: all that the layers read from outside.

    Returns
    -------
    dict
        ``known`` and every output of the layers.

    Raises
    ------
    LayerInexpressible
        Where a layer cannot be written.
    """
    found = dict(known)
    for key in layers:
        infos = [output_info(graph, Source(key, slot)) for slot in range(len(graph.nodes[key].get("outputs") or ()))]
        outputs = tuple(info for info in infos if info is not None)
        if len(outputs) < len(infos):
            raise LayerInexpressible(graph, key, "the shape of its output is not known")
        if any(info.elements > MOST_ELEMENTS for info in outputs):
            raise LayerInexpressible(graph, key, f"its output has more than {MOST_ELEMENTS} elements")
        for slot, name in enumerate(_names(onnx, graph, key, outputs, found)):
            found[Source(key, slot)] = Value(name, outputs[slot])
    return found


def _names(
    onnx: OnnxGraph, graph: Network, key: int, outputs: tuple[TensorInfo, ...], found: Mapping[Source, Value]
) -> list[str]:
    """A layer's outputs in the ONNX graph."""
    node = graph.nodes[key]
    kind = node["type"]
    constants: Mapping[str, Tensor] = node.get("constants") or EMPTY
    refuse = partial(_refuse, graph, key)
    if kind == "Constant":
        tensor = constants.get("input")
        return [onnx.array(carried(tensor))] if tensor is not None else refuse("it holds no tensor")
    expression = EXPRESSIONS.get(kind)
    if expression is None:
        refuse(f"there is no expression for {kind}")
    sources = [source for _, source in edges_into(graph, key)]
    if not outputs:
        refuse("it has no output")
    if any(source not in found for source in sources):
        refuse("it reads an output that its source does not have")
    scheme = int(graph.graph.get("feature_versions", (1, 1, 1))[1])
    layer = Layer(
        onnx, kind, tuple(found[source] for source in sources), outputs, partial(param, graph, key), constants, scheme
    )
    try:
        names = expression(layer)
    except Inexpressible as error:
        refuse(error.reason)
    except FusionEngineError:
        raise
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
        refuse(f"its parameters and shapes do not fit each other ({type(error).__name__}: {error})")
    if len(names) != len(outputs):
        refuse(f"it has {len(outputs)} outputs")
    return names


def _refuse(graph: Network, key: int, reason: str) -> NoReturn:
    raise LayerInexpressible(graph, key, reason)
