"""Networks with opaque layers, and StandIns with any recipe at all."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from fusion_engine import opaque
from fusion_engine.network import FrozenDict, Network, bare_copy, edges_into
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.matches import match_of


def into(result: str, *, name: str = "a rule", code: int = 0) -> SimpleNamespace:
    """What `opaque` needs of a rule."""
    return SimpleNamespace(name=name, into=result, code=code)


def fuse_layers(
    graph: Network, layers: Sequence[int], result: str = "Fused", *, code: int = 0, constants: Sequence[int] = ()
) -> Network:
    """The network with ``layers``, root first, in one opaque layer."""
    work = Workspace(graph)
    match = match_of(work, layers, constants)
    opaque.apply(work, match, opaque.check(work, match, into(result, code=code)))
    work.graph.graph["warnings"] = opaque.settle(work)
    return work.graph


def recipe_key(graph: Network, stand_in: int) -> int:
    """Key of a StandIn's last input."""
    return edges_into(graph, stand_in)[-1][1].layer


def recipe_bytes(graph: Network, stand_in: int) -> bytes:
    """The bytes in a StandIn's last input."""
    tensor: Tensor = graph.nodes[recipe_key(graph, stand_in)]["constants"]["input"]
    return tensor.tobytes()


def with_recipe(graph: Network, stand_in: int, data: bytes, **info: object) -> Network:
    """The network with other bytes in a StandIn's recipe, and other fields in its TensorInfo."""
    values = np.frombuffer(data, np.uint8)
    fields: dict[str, object] = {"data_type": "QAsymmU8", "quantization_scale": 1.0, "shape": values.shape, **info}
    made = TensorInfo(**fields)  # type: ignore[arg-type]
    changed = bare_copy(graph)
    tensor = Tensor(made, values.view(made.dtype).reshape(made.shape))
    changed.nodes[recipe_key(graph, stand_in)].update(outputs=(made,), constants=FrozenDict(input=tensor))
    return changed
