"""The recipe of an opaque layer: what it was fused from, as canonical UTF-8 JSON in its last Constant input.

``docs/recipe.md`` describes the format, version 1. A recipe in memory is its JSON as plain dicts,
lists and scalars. Reading is strict: a StandIn counts as made here only where its recipe says what
the StandIn's slots are, all the way down; anything else is another tool's, or damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import networkx as nx
import numpy as np

from fusion_engine.errors import ModelError
from fusion_engine.network import Network, Source, describe, edges_into
from fusion_engine.recipe_values import Wrong, info_from_json, is_integer, params_from_json
from fusion_engine.schema import DIALECTS, schema, slots_fit
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = [
    "FORMAT",
    "MAX_BYTES",
    "MAX_NESTING",
    "VERSION",
    "check",
    "decode",
    "encode",
    "fault_of",
    "nesting",
    "read_recipe",
    "recipe",
    "remember",
]

FORMAT = "fusion-engine recipe"
"""What ``format`` says in every recipe."""

VERSION = 1
"""The format version that this module writes and reads."""

MAX_NESTING = 16
"""Recipes inside recipes, the outermost counted."""

MAX_BYTES = 1 << 24
"""Largest recipe that is written or read, in bytes."""

_MAX_DEPTH = 8 * MAX_NESTING
"""Brackets inside brackets; a recipe has fewer than 4 a level and 6 more."""

_KEYS = frozenset(
    {
        "code",
        "constants",
        "dialect",
        "featureVersions",
        "format",
        "inputs",
        "layers",
        "outputs",
        "result",
        "rule",
        "version",
    }
)
_LAYER_KEYS = frozenset({"inputs", "name", "outputs", "overrides", "params", "type"})
_MARK = f'"format":"{FORMAT}"'.encode()
_STRINGS = re.compile(rb'"(?:[^"\\]+|\\.)*+"?', re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udfff]")

_read: WeakKeyDictionary[Tensor, dict[str, Any] | str] = WeakKeyDictionary()
"""The recipe in a tensor, or why there is none, for as long as the tensor lives: StandIns are looked at often."""


def encode(recipe: Mapping[str, Any]) -> bytes:
    r"""The canonical bytes of a recipe: sorted keys, no spaces, UTF-8.

    Bytes of names that are no UTF-8, surrogate escapes in memory, are ``\udc80`` to ``\udcff``
    escapes in the JSON, which so stays valid UTF-8.

    Examples
    --------
    >>> encode({"b": [1, 0.1], "a": "caf\xe9\udcff"})
    b'{"a":"caf\xc3\xa9\\udcff","b":[1,0.1]}'
    """
    text = json.dumps(recipe, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8")


def decode(data: bytes) -> dict[str, Any]:
    """The recipe in ``data``, checked throughout; raises Wrong where it is none of this version.

    The cost is linear in the length of ``data``, whatever it holds.
    """
    _check_size(len(data))
    if _MARK not in data:
        raise Wrong("it is not marked as a recipe")
    if _depth(data) > _MAX_DEPTH:
        raise Wrong("its JSON is nested too deep")
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except Wrong:
        raise
    except ValueError as error:
        raise Wrong(f"it is no JSON: {error}") from None
    check(found)
    checked: dict[str, Any] = found
    return checked


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise Wrong(f"it has {size} bytes, and a recipe at most {MAX_BYTES}")


def _depth(data: bytes) -> int:
    """How deep brackets nest outside of strings."""
    codes = np.frombuffer(_STRINGS.sub(b"", data), np.uint8)
    opening = (codes == ord("{")) | (codes == ord("["))
    closing = (codes == ord("}")) | (codes == ord("]"))
    steps = opening.astype(np.int64) - closing
    return int(steps.cumsum().max(initial=0))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Wrong("it has a key twice")
    return found


def _no_constant(text: str) -> Any:
    raise Wrong(f"it has {text}, which JSON does not have")


# The content


def check(outermost: Any) -> None:
    """Raise Wrong where a recipe in memory is none that could be read again."""
    pending = [(outermost, 1)]
    while pending:
        found, level = pending.pop()
        if level > MAX_NESTING:
            raise Wrong(f"its recipes are nested deeper than {MAX_NESTING} levels")
        _check_head(found)
        _check_constants(found)
        for number, layer in enumerate(found["layers"]):
            try:
                _check_layer(layer)
            except Wrong as error:
                raise Wrong(f"its layer {number} {error.reason}") from None
            if "recipe" in layer:
                pending.append((layer["recipe"], level + 1))
        _check_wiring(found)


def _check_head(found: Any) -> None:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise Wrong("it is not marked as a recipe")
    version = found.get("version")
    if not is_integer(version, "I"):
        raise Wrong("it has no format version")
    if version != VERSION:
        raise Wrong(f"it is of format version {version}, and this release reads version {VERSION}: use a newer one")
    if found.keys() != _KEYS:
        raise Wrong(f"it does not hold exactly the keys {', '.join(sorted(_KEYS))}")
    for key in ("rule", "result"):
        _check_text(found[key], f"its {key}")
    if not is_integer(found["code"], "i"):
        raise Wrong("its code is no 32-bit integer")
    _check_former(found["dialect"], found["featureVersions"])
    if not is_integer(found["inputs"], "I"):
        raise Wrong("its number of inputs is none")
    for key in ("layers", "constants", "outputs"):
        if not isinstance(found[key], list):
            raise Wrong(f"its {key} are no list")
    if not found["layers"]:
        raise Wrong("it has no layers")


def _check_former(dialect: Any, versions: Any) -> None:
    if not isinstance(dialect, str) or dialect not in DIALECTS:
        raise Wrong("its dialect is none")
    if not isinstance(versions, list) or len(versions) != 3 or not all(is_integer(number, "I") for number in versions):
        raise Wrong("its featureVersions are not three numbers")


def _check_text(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise Wrong(f"{what} is not a text")
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Wrong(f"{what} has a surrogate that stands for no byte") from None


def _check_constants(found: dict[str, Any]) -> None:
    for number, constant in enumerate(found["constants"]):
        member = isinstance(constant, dict) and "field" in constant
        keys = {"layer", "layout", "field"} if member else {"layer", "layout", "slot", "name"}
        if not isinstance(constant, dict) or constant.keys() != keys:
            raise Wrong(f"its constant {number} does not say what it was")
        if constant["layout"] is not None:
            _check_text(constant["layout"], f"the layout of its constant {number}")
        if member:
            _check_text(constant["field"], f"the field of its constant {number}")
        else:
            _check_text(constant["name"], f"the name of its constant {number}")
        if not _below(constant["layer"], len(found["layers"])) or not (member or is_integer(constant["slot"], "I")):
            raise Wrong(f"its constant {number} was part of no layer")


def _below(value: Any, bound: int) -> bool:
    return is_integer(value, "I") and value < bound


def _check_layer(layer: Any) -> None:
    if not isinstance(layer, dict) or layer.keys() - {"recipe"} != _LAYER_KEYS:
        raise Wrong(f"does not hold exactly the keys {', '.join(sorted(_LAYER_KEYS))}")
    _check_text(layer["name"], "has a name that")
    kind = schema().layers.get(layer["type"]) if isinstance(layer["type"], str) else None
    if kind is None or kind.bindable or kind.name == "Constant":
        raise Wrong("is of a type that no opaque layer is made of")
    params_from_json(kind, layer["params"])
    for key in ("inputs", "outputs", "overrides"):
        if not isinstance(layer[key], list):
            raise Wrong(f"has {key} that are no list")
    for info in layer["outputs"]:
        info_from_json(info)
    _check_overrides(layer)
    if "recipe" in layer and kind.name != "StandIn":
        raise Wrong("has a recipe and is no StandIn")


def _resolves(found: dict[str, Any], reference: Any) -> bool:
    """Whether an input of a layer comes from somewhere in the recipe."""
    match reference:
        case {"input": number, **rest} if not rest:
            return _below(number, found["inputs"])
        case {"constant": number, **rest} if not rest:
            return _below(number, len(found["constants"])) and "slot" in found["constants"][number]
        case {"layer": number, "slot": slot, **rest} if not rest and _below(number, len(found["layers"])):
            return _below(slot, len(found["layers"][number]["outputs"]))
    return False


def _check_overrides(layer: dict[str, Any]) -> None:
    seen = set()
    for override in layer["overrides"]:
        if not isinstance(override, dict) or override.keys() != {"slot", "isOverridden", "info"}:
            raise Wrong("has an override that is none")
        slot = override["slot"]
        if not _below(slot, len(layer["inputs"])) or slot in seen or not isinstance(override["isOverridden"], bool):
            raise Wrong("has an override of no input slot")
        seen.add(slot)
        info_from_json(override["info"])


def _check_wiring(found: dict[str, Any]) -> None:
    """Every data input read once, every constant where it says, nested recipes fit, no cycles."""
    layers, constants = found["layers"], found["constants"]
    for number, layer in enumerate(layers):
        if not all(_resolves(found, reference) for reference in layer["inputs"]):
            raise Wrong(f"its layer {number} has an input that comes from nowhere")
    references = [reference for layer in layers for reference in layer["inputs"]]
    numbers = [reference["input"] for reference in references if "input" in reference]
    if len(numbers) != found["inputs"] or len(set(numbers)) != len(numbers):
        raise Wrong("its data inputs are not read once each")
    if not _counts_to(found["outputs"], len(layers[0]["outputs"])):
        raise Wrong("its outputs are not those of its first layer")
    members = set()
    for number, constant in enumerate(constants):
        layer = layers[constant["layer"]]
        if "slot" in constant:
            slot = constant["slot"]
            if slot >= len(layer["inputs"]) or layer["inputs"][slot] != {"constant": number}:
                raise Wrong(f"its constant {number} is not on the input slot that it names")
        else:
            member = (constant["layer"], constant["field"])
            fields = {path[-1] for path in schema().layers[layer["type"]].tensors}
            if member in members or constant["field"] not in fields:
                raise Wrong(f"its constant {number} was no tensor of its layer")
            members.add(member)
    for layer in layers:
        if "recipe" in layer:
            _check_nested(layer)
    _check_acyclic(layers)
    _check_shape(layers)


def _check_shape(layers: list[dict[str, Any]]) -> None:
    """Each layer has the slots of its type, and all but the root are there to be read."""
    read = {reference["layer"] for layer in layers for reference in layer["inputs"] if "layer" in reference}
    for number, layer in enumerate(layers):
        if not slots_fit(layer["type"], len(layer["inputs"]), len(layer["outputs"])):
            raise Wrong(f"its layer {number} has not the slots of a {layer['type']}")
        if number and number not in read:
            raise Wrong(f"its layer {number} is read by no other")


def _counts_to(values: list[Any], count: int) -> bool:
    return len(values) == count and all(
        is_integer(value, "I") and value == number for number, value in enumerate(values)
    )


def _check_nested(layer: dict[str, Any]) -> None:
    inner = layer["recipe"]
    _check_head(inner)
    data = inner["inputs"]
    last = layer["inputs"][data:]
    if len(layer["inputs"]) != data + len(inner["constants"]) or not all("constant" in reference for reference in last):
        raise Wrong("a recipe inside it does not fit the inputs of its layer")
    if len(layer["outputs"]) != len(inner["outputs"]):
        raise Wrong("a recipe inside it does not fit the outputs of its layer")


def _check_acyclic(layers: list[dict[str, Any]]) -> None:
    feeds: list[list[int]] = [[] for _ in layers]
    waiting = [0] * len(layers)
    for number, layer in enumerate(layers):
        for reference in layer["inputs"]:
            if "layer" in reference:
                feeds[reference["layer"]].append(number)
                waiting[number] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    done = 0
    while ready:
        done += 1
        for number in feeds[ready.pop()]:
            waiting[number] -= 1
            if not waiting[number]:
                ready.append(number)
    if done != len(layers):
        raise Wrong("its layers feed each other in a cycle")


def nesting(recipe: Mapping[str, Any]) -> int:
    """How many levels of recipes a recipe has, itself counted."""
    deepest = 0
    pending = [(recipe, 1)]
    while pending:
        found, level = pending.pop()
        deepest = max(deepest, level)
        pending.extend((layer["recipe"], level + 1) for layer in found["layers"] if "recipe" in layer)
    return deepest


# In a network


def read_recipe(graph: Network, key: int) -> Mapping[str, Any] | None:
    """The recipe of a StandIn that this project made, else None.

    Parameters
    ----------
    graph
        The network.
    key
        Any layer of it.

    Returns
    -------
    Mapping or None
        Not to be changed: it is shared. None where the layer is no StandIn, where its last input
        is no recipe of this format version, and where the recipe does not fit the StandIn's slots.
    """
    try:
        return _recipe_of(graph, key)
    except Wrong:
        return None


def fault_of(graph: Network, key: int) -> str | None:
    """Why a StandIn is not taken as made here; None where it is."""
    try:
        _recipe_of(graph, key)
    except Wrong as error:
        return error.reason
    return None


def recipe(graph: Network, layer: int) -> dict[str, Any]:
    """What an opaque layer was fused from, as ``docs/recipe.md`` describes it.

    Parameters
    ----------
    graph
        A network.
    layer
        Key of an opaque layer in it.

    Returns
    -------
    dict
        The recipe as plain data, a copy: dicts, lists, str, int, float, bool and None. Bytes of names
        that are no UTF-8 are surrogate escapes; what JSON has no number for is a str (``"inf"``).

    Raises
    ------
    ModelError
        Where there is no such layer, and where it is no StandIn that this project made, with the reason.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> fused = fe.fuse(fe.load("examples/models/digits.armnn"), fe.load_rules("npu"))
    >>> (key,) = (key for key, node in fused.nodes.items() if node["type"] == "StandIn")
    >>> [layer["type"] for layer in recipe(fused, key)["layers"]]
    ['Activation', 'FullyConnected']
    """
    from fusion_engine.validation import blaming  # stands above this module

    if not isinstance(graph, nx.DiGraph):
        raise ModelError(f"a network is a networkx.DiGraph, not {type(graph).__name__}: load one with load()")
    if layer not in graph:
        raise ModelError(f"there is no layer {layer!r} in the network: layers go by their keys, which are integers")
    with blaming(graph, "its recipes cannot be read"):
        try:
            _recipe_of(graph, layer)
        except Wrong as error:
            raise ModelError(
                f"it has no recipe: {error.reason}. Opaque layers are the StandIns that rules with into make",
                place=describe(graph, layer),
            ) from None
        return decode(_tensor_of(graph, edges_into(graph, layer)[-1][1]).tobytes())


def remember(tensor: Tensor, recipe: dict[str, Any]) -> None:
    """Note the recipe that a tensor holds, made just now by `encode`: it need not be read again."""
    _read[tensor] = recipe


def _recipe_of(graph: Network, key: int) -> dict[str, Any]:
    node = graph.nodes[key]
    if node.get("type") != "StandIn":
        raise Wrong("it is no StandIn")
    inputs = edges_into(graph, key)
    if not inputs:
        raise Wrong("it has no inputs, so no recipe")
    tensor = _tensor_of(graph, inputs[-1][1])
    if tensor.info.canonical_type != "QAsymmU8" or len(tensor.info.shape) != 1:
        raise Wrong("its last input is no recipe")
    found = _read.get(tensor)
    if found is None:
        found = _read[tensor] = _decoded(tensor)
    if isinstance(found, str):
        raise Wrong(f"its last input is no recipe that can be read: {found}")
    misfit = _misfit(graph, key, inputs, found)
    if misfit is not None:
        raise Wrong(f"its recipe does not fit it: {misfit}")
    return found


def _decoded(tensor: Tensor) -> dict[str, Any] | str:
    try:
        _check_size(tensor.data.nbytes)
        return decode(tensor.tobytes())
    except Wrong as error:
        return error.reason


def _tensor_of(graph: Network, source: Source) -> Tensor:
    node = graph.nodes[source.layer]
    tensor = (node.get("constants") or {}).get("input") if node.get("type") == "Constant" else None
    if not isinstance(tensor, Tensor):
        raise Wrong("its last input is no Constant, so it has no recipe")
    return tensor


def _misfit(graph: Network, key: int, inputs: list[tuple[int, Source]], found: dict[str, Any]) -> str | None:
    """What keeps a recipe from being that of a StandIn, if anything does."""
    wanted = found["inputs"] + len(found["constants"]) + 1
    if [slot for slot, _ in inputs] != list(range(wanted)):
        return f"it has {len(inputs)} connected inputs, and the recipe tells of {wanted}"
    for slot, source in inputs[found["inputs"] : -1]:
        node = graph.nodes[source.layer]
        if node.get("type") != "Constant" or not isinstance((node.get("constants") or {}).get("input"), Tensor):
            return f"its input slot {slot} is fed by no Constant"
    outputs = graph.nodes[key].get("outputs", ())
    recorded = found["layers"][0]["outputs"]
    if len(outputs) != len(recorded):
        return f"it has {len(outputs)} outputs, and the recipe tells of {len(recorded)}"
    for slot, (now, values) in enumerate(zip(outputs, recorded, strict=True)):
        then = info_from_json(values)
        if _gist(now) != _gist(then):
            return f"its output {slot} is {_shown(now)}, and the recipe tells of {_shown(then)}"
    return None


def _gist(info: TensorInfo | None) -> Any:
    return None if info is None else (info.shape, info.canonical_type)


def _shown(info: TensorInfo | None) -> str:
    return "without TensorInfo" if info is None else f"{info.canonical_type} {list(info.shape)}"
