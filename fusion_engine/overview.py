"""What is in a network, at a glance: counts, ends, weights, and what to be careful about."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fusion_engine.console import counted
from fusion_engine.errors import ModelError
from fusion_engine.group import group_of
from fusion_engine.network import EMPTY, Network, describe, edges_into
from fusion_engine.recipe_values import params_to_json
from fusion_engine.recipes import read_recipe
from fusion_engine.report import readings_json
from fusion_engine.schema import schema
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["cautions", "layer_list", "overview", "readings"]


def overview(graph: Network) -> dict[str, Any]:
    """What `inspect` shows, as plain data that goes into JSON.

    Returns
    -------
    dict
        ``dialect``, ``feature_versions``; ``layers``, ``constants``: their numbers; ``types``,
        ``opaque``, ``groups``: numbers of layers by type, of opaque layers and groups made here by
        name, sorted; ``inputs``, ``outputs``: per Input and Output, in the file's order and the
        unlisted ones last, ``layer`` (key), ``name``, ``binding_id``, ``listed``, ``shape`` (None
        where the file has no TensorInfo), ``data_type``, ``scale``, ``offset`` (of quantized types,
        else None); ``weights_bytes``: bytes of constant data, shared ones once.
    """
    types = Counter(node["type"] for _, node in graph.nodes(data=True))
    recipes = (read_recipe(graph, key) for key, node in graph.nodes(data=True) if node["type"] == "StandIn")
    results = Counter(recipe["result"] for recipe in recipes if recipe is not None)
    groups = {found[:2] for _, node in graph.nodes(data=True) if (found := group_of(node.get("name", "")))}
    sizes = {tensor.memory: tensor.data.nbytes for _, tensor in _tensors(graph)}
    return {
        "dialect": graph.graph["dialect"],
        "feature_versions": list(graph.graph["feature_versions"]),
        "layers": len(graph),
        "constants": types["Constant"],
        "types": dict(sorted(types.items())),
        "opaque": dict(sorted(results.items())),
        "groups": dict(sorted(Counter(result for result, _ in groups).items())),
        "inputs": _ends(graph, "Input"),
        "outputs": _ends(graph, "Output"),
        "weights_bytes": sum(sizes.values()),
    }


def layer_list(graph: Network) -> list[dict[str, Any]]:
    """Every layer, ascending by key, as plain data that goes into JSON.

    Returns
    -------
    list of dict
        ``layer`` (key), ``type``, ``name``; ``inputs``: per input slot ``layer`` and ``slot`` of what
        feeds it, None where nothing does; ``outputs``: per output slot ``shape``, ``data_type``,
        ``scale``, ``offset``, all None where the file has no TensorInfo; ``params``: the descriptor's
        fields, each written out, None where the layer lacks its descriptor.
    """
    return [_layer(graph, key) for key in sorted(graph.nodes)]


def _layer(graph: Network, key: int) -> dict[str, Any]:
    node = graph.nodes[key]
    kind = schema().layers.get(node["type"]) or schema(graph.graph["dialect"]).layers[node["type"]]
    return {
        "layer": key,
        "type": node["type"],
        "name": node.get("name", ""),
        "inputs": _fed(graph, key),
        "outputs": [_info_as_json(info) for info in node.get("outputs", ())],
        "params": params_to_json(kind, node.get("params")),
    }


def _fed(graph: Network, key: int) -> list[dict[str, int] | None]:
    fed = dict(edges_into(graph, key))
    slots = range(max(fed, default=-1) + 1)
    return [{"layer": fed[slot].layer, "slot": fed[slot].slot} if slot in fed else None for slot in slots]


def readings(graph: Network) -> dict[str, Any]:
    """Which releases of Arm NN read a network as it stands: ``loads_in``, and ``cannot_load`` with reasons.

    Both are empty where the network is not as `validate` wants it.
    """
    from fusion_engine.releases.reading import loads_in

    try:
        return readings_json(loads_in(graph))
    except ModelError:
        return readings_json(())


def cautions(graph: Network) -> tuple[str, ...]:
    """What a user should know of a network that was read, beyond the reader's own warnings."""
    untagged = [key for key, tensor in _tensors(graph) if tensor.untagged and tensor.info.data_type != "Float16"]
    if not untagged:
        return ()
    return (
        f"{counted(len(untagged), 'constant')} without a payload type, the first in {describe(graph, untagged[0])}: "
        "Arm NN 20.08 writes int8 so, and no Arm NN loads it; a file written here has the type",
    )


def _tensors(graph: Network) -> list[tuple[int, Tensor]]:
    return [
        (key, tensor) for key in sorted(graph.nodes) for tensor in (graph.nodes[key].get("constants") or EMPTY).values()
    ]


def _ends(graph: Network, kind: str) -> list[dict[str, Any]]:
    listed = graph.graph["inputs" if kind == "Input" else "outputs"]
    every = {key for key, node in graph.nodes(data=True) if node["type"] == kind}
    others = sorted(every.difference(listed))
    return [_end(graph, key, True) for key in listed] + [_end(graph, key, False) for key in others]


def _end(graph: Network, key: int, listed: bool) -> dict[str, Any]:
    node = graph.nodes[key]
    return {
        "layer": key,
        "name": node.get("name", ""),
        "binding_id": node.get("binding_id"),
        "listed": listed,
        **_info_as_json(_info(graph, key)),
    }


def _info_as_json(info: TensorInfo | None) -> dict[str, Any]:
    """Shape, type and per-tensor quantization; each None where there is none."""
    if info is None:
        return dict.fromkeys(("shape", "data_type", "scale", "offset"))
    quantized = info.canonical_type.startswith("Q") and not info.quantization_scales
    return {
        "shape": list(info.shape),
        "data_type": info.data_type,
        "scale": info.quantization_scale if quantized else None,
        "offset": info.quantization_offset if quantized else None,
    }


def _info(graph: Network, key: int) -> TensorInfo | None:
    """TensorInfo of what an Input gives or an Output gets."""
    if graph.nodes[key]["type"] == "Input":
        outputs = graph.nodes[key].get("outputs", ())
    else:
        inputs = edges_into(graph, key)
        if not inputs:
            return None
        source = inputs[0][1]
        outputs = graph.nodes[source.layer].get("outputs", ())[source.slot :]
    found: TensorInfo | None = outputs[0] if outputs else None
    return found
