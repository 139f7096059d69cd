"""What a layer holds, as text that is safe to show: for boxes, and for what a click brings up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fusion_engine.console import counted, printable
from fusion_engine.network import EMPTY, Network, complete_params, consumers, param
from fusion_engine.overview import layer_list
from fusion_engine.recipe_values import params_to_json
from fusion_engine.recipes import read_recipe
from fusion_engine.schema import WEIGHTED, schema
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["details", "headline", "info_text", "shape_text", "slot_text"]

MOST_VALUES = 12
"""Elements that a constant may have for its values to be shown."""

_KINDS = {
    "Activation": "activationFunction",
    "Comparison": "operation",
    "ElementwiseBinary": "operation",
    "ElementwiseUnary": "operation",
    "LogicalBinary": "operation",
    "Pooling2d": "poolType",
    "Pooling3d": "poolType",
    "Reduce": "reduceOperation",
    "Resize": "method",
}
"""Layer types that say little without one of their parameters."""


def headline(graph: Network, key: int) -> str:
    """The type of a layer and what tells it from others of its type; for an opaque layer its result."""
    node = graph.nodes[key]
    kind: str = node["type"]
    if kind == "StandIn":
        recipe = read_recipe(graph, key)
        return kind if recipe is None else printable(recipe["result"])
    if kind not in _KINDS:
        return printable(kind)
    return printable(f"{kind} · {param(graph, key, _KINDS[kind])}")


def shape_text(info: TensorInfo | None) -> str:
    """Shape and data type in short.

    Examples
    --------
    >>> shape_text(TensorInfo((1, 8, 8, 16))), shape_text(TensorInfo((), "Signed32")), shape_text(None)
    ('1×8×8×16 Float32', 'scalar Signed32', 'unknown shape')
    """
    if info is None:
        return "unknown shape"
    return f"{_extents(info)} {info.data_type}"


def info_text(info: TensorInfo | None) -> str:
    """Shape, data type and quantization.

    Examples
    --------
    >>> info_text(TensorInfo((1, 8), "QAsymmU8", quantization_scale=0.5, quantization_offset=3))
    '1×8 QAsymmU8, scale 0.5, offset 3'
    """
    if info is None:
        return "unknown shape"
    text = shape_text(info)
    if info.quantization_scales:
        return f"{text}, {counted(len(info.quantization_scales), 'scale')} along dimension {info.quantization_dim}"
    if info.canonical_type.startswith("Q"):
        text += f", scale {_number(info.quantization_scale)}, offset {info.quantization_offset}"
    return text


def _extents(info: TensorInfo) -> str:
    specific = info.dimension_specificity or (True,) * len(info.shape)
    extents = [str(n) if known else "?" for n, known in zip(info.shape, specific, strict=False)]
    return "×".join(extents) or ("scalar" if info.dimensionality else "unknown shape")


def slot_text(kind: str, slot: int) -> str:
    """What an input slot is called: ``weights``, ``bias`` or its number."""
    if kind in WEIGHTED and slot in (1, 2):
        return ("weights", "bias")[slot - 1]
    return f"input {slot}"


def details(graph: Network) -> dict[int, dict[str, Any]]:
    """All of every layer as plain data that goes into JSON; every text is safe to show.

    Returns
    -------
    dict
        By layer: ``type``, ``name``, ``title`` (see `headline`); ``binding`` where the layer has a
        binding id; ``inputs``: lists of slot name, layer (None where nothing feeds the slot), output
        slot and text of the tensor; ``outputs``: lists of text and, per use, layer and slot name;
        ``params``: lists of name, value, and whether it is the schema's default; ``constants``: lists of
        field, text and values; ``recipe`` where it is an opaque layer made here.

    Raises
    ------
    ValueError
        Where a parameter is none of its layer type.
    """
    return {found["layer"]: _details(graph, found) for found in layer_list(graph)}


def _details(graph: Network, found: dict[str, Any]) -> dict[str, Any]:
    key, node = found["layer"], graph.nodes[found["layer"]]
    told: dict[str, Any] = {
        "type": printable(node["type"]),
        "name": printable(node.get("name", "")),
        "title": headline(graph, key),
        "inputs": [_input(graph, node["type"], slot, source) for slot, source in enumerate(found["inputs"])],
        "outputs": _outputs(graph, key),
        "params": _params(graph, node["type"], found["params"]),
        "constants": [
            [printable(field), *_tensor(tensor)] for field, tensor in (node.get("constants") or EMPTY).items()
        ],
    }
    if node.get("binding_id") is not None:
        told["binding"] = node["binding_id"]
    recipe = read_recipe(graph, key) if node["type"] == "StandIn" else None
    if recipe is not None:
        told["recipe"] = _recipe(recipe)
    return told


def _input(graph: Network, kind: str, slot: int, source: Mapping[str, int] | None) -> list[Any]:
    name = slot_text(kind, slot)
    if source is None:
        return [name, None, 0, "not connected"]
    infos = graph.nodes[source["layer"]].get("outputs", ())
    info = infos[source["slot"]] if source["slot"] < len(infos) else None
    return [name, source["layer"], source["slot"], info_text(info)]


def _outputs(graph: Network, key: int) -> list[list[Any]]:
    infos = graph.nodes[key].get("outputs", ())
    uses: list[list[list[Any]]] = [[] for _ in infos]
    for use in consumers(graph, key):
        if use.slot < len(uses):
            uses[use.slot].append([use.layer, slot_text(graph.nodes[use.layer]["type"], use.input_slot)])
    return [[info_text(info), of] for info, of in zip(infos, uses, strict=True)]


def _params(graph: Network, kind: str, params: Mapping[str, Any] | None) -> list[list[Any]]:
    if params is None:
        return [["descriptor", "missing", False]]
    known = schema().layers.get(kind) or schema(graph.graph["dialect"]).layers[kind]
    defaults = {}
    if known.descriptor is not None:
        defaults = params_to_json(known, complete_params(known.descriptor, {}, schema())) or {}
    return [[printable(name), _value(value), value == defaults.get(name)] for name, value in params.items()]


def _value(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _tensor(tensor: Tensor) -> list[str]:
    """Text and, where there are few, values of a constant."""
    values = ""
    if 0 < tensor.info.elements <= MOST_VALUES:
        tensor.require_intact()
        values = ", ".join(_number(one) for one in tensor.data.ravel())
    return [info_text(tensor.info), values]


def _number(value: Any) -> str:
    """A number in the fewest digits that tell it from others of its type."""
    return str(np.float32(value)) if isinstance(value, float) else str(value)


def _recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What a click tells of a recipe: its rule, and the layers it was made from with their parameters."""
    return {
        "rule": printable(recipe["rule"]),
        "result": printable(recipe["result"]),
        "code": recipe["code"],
        "layers": [
            [
                printable(layer["recipe"]["result"] if "recipe" in layer else layer["type"]),
                printable(layer["name"]),
                [[printable(name), _value(value)] for name, value in (layer["params"] or {}).items()],
            ]
            for layer in recipe["layers"]
        ],
    }
