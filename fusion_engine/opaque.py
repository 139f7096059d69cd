"""Opaque layers: a match becomes one StandIn that carries everything in what Arm NN shows and keeps.

The StandIn stands at the root's key. Its inputs are the match's outside inputs, then Constants (the
tensors of the consumed layers and the Constants that were theirs), then the Constant with the recipe
(`fusion_engine.recipes`), from which `unfuse` brings everything back.

Names: the StandIn ``<into>:<name of the root>``; a Constant made from a member tensor ``<StandIn>/<name
of its layer>/<field>``, where the layer's name is empty its type; the recipe ``<StandIn>/recipe``; each
made unique with ``#2``, ``#3``. A Constant layer that was there stays the layer it is.

`settle` runs once when all rules are done: only then is it known what the network must be written as.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fusion_engine import recipes
from fusion_engine.folds import Refused
from fusion_engine.match.binding import Match
from fusion_engine.network import EMPTY, FrozenDict, Source, default_value
from fusion_engine.recipe_values import Wrong, info_to_json, params_to_json
from fusion_engine.schema import WEIGHTED, schema, slots_fit
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.weights import weights_layout
from fusion_engine.workspace import PARAMETER_SLOTS, Workspace

__all__ = ["WARNING", "OpaquePlan", "OpaqueRule", "apply", "check", "former", "settle", "to_dialect"]

WARNING = "opaque layers: "
"""How the warnings of `settle` begin."""


class OpaqueRule(Protocol):
    """What this module needs of a rule."""

    @property
    def name(self) -> str:
        """Name of the rule."""

    @property
    def into(self) -> str | None:
        """Name of the result."""

    @property
    def code(self) -> int:
        """Number for the backend, a 32-bit integer."""


@dataclass(frozen=True)
class _Part:
    """A Constant of the StandIn: a layer that is there (``source``), or a member tensor to make one of."""

    source: Source | None
    tensor: Tensor | None
    name: str


@dataclass(frozen=True)
class OpaquePlan:
    """What `check` found and `apply` makes.

    Attributes
    ----------
    result
        The ``into`` name.
    code
        For the backend: the quantization offset of the recipe's Constant.
    recipe, data
        The recipe, and its bytes.
    inputs
        Sources of the data inputs.
    parts
        The Constants, in the order of the StandIn's inputs.
    overrides
        Overridden TensorInfos by input slot of the StandIn, as a node has them.
    emptied
        Keys of the Constants with the recipes of consumed StandIns, which go.
    """

    result: str
    code: int
    recipe: dict[str, Any]
    data: bytes
    inputs: tuple[Source, ...]
    parts: tuple[_Part, ...]
    overrides: dict[Any, Any]
    emptied: tuple[int, ...]


def check(workspace: Workspace, match: Match, rule: OpaqueRule) -> OpaquePlan:
    """What a match becomes; changes nothing.

    Raises
    ------
    Refused
        Where a consumed layer is an Input or Output or has unconnected input slots, where nothing
        is consumed, where recipes would nest deeper than 16 levels, and where the recipe is too large.
    ValueError
        Where a layer holds what its type does not have, which `validate` tells.
    """
    for key in match.layers:
        _refuse_layer(workspace, key)
    if match.root not in match.layers:
        raise Refused(f"{workspace.describe(match.root)} is a Constant: it cannot be the root of an opaque layer")
    content = _Content(workspace, match)
    dialect, versions = former(workspace)
    recipe = {
        "format": recipes.FORMAT,
        "version": recipes.VERSION,
        "rule": rule.name,
        "result": str(rule.into),
        "code": int(rule.code),
        "dialect": dialect,
        "featureVersions": list(versions),
        "inputs": len(match.inputs),
        "constants": content.constants,
        "layers": [content.layer(key) for key in match.layers],
        "outputs": list(range(len(workspace.outputs(match.root)))),
    }
    levels = recipes.nesting(recipe)
    if levels > recipes.MAX_NESTING:
        raise Refused(f"fusions over fusions nest to {recipes.MAX_NESTING} levels, and this would be level {levels}")
    try:
        recipes.check(recipe)
    except Wrong as wrong:
        raise Refused(f"what would be fused cannot be written down: {wrong.reason}") from None
    data = recipes.encode(recipe)
    if len(data) > recipes.MAX_BYTES:
        raise Refused(f"the recipe would have {len(data)} bytes, more than {recipes.MAX_BYTES}")
    return OpaquePlan(
        str(rule.into),
        int(rule.code),
        recipe,
        data,
        tuple(edge.source for edge in match.inputs),
        tuple(content.parts),
        content.overrides(),
        tuple(content.emptied),
    )


def _refuse_layer(workspace: Workspace, key: int) -> None:
    kind = workspace.type(key)
    if kind in ("Input", "Output"):
        raise Refused(
            f"{workspace.describe(key)} is an {kind}, which belongs to the network's users: "
            "mark it with ! in the rule to keep it"
        )
    slots = [slot for slot, _ in workspace.inputs(key)]
    if slots != list(range(len(slots))) or workspace.graph.nodes[key].get("unconnected"):
        raise Refused(f"{workspace.describe(key)} has input slots that nothing is connected to")
    if not slots_fit(kind, len(slots), len(workspace.outputs(key))):
        raise Refused(f"{workspace.describe(key)} has not the slots of a {kind}: it could not be saved either")


class _Content:
    """The consumed layers of a match as a recipe tells them."""

    def __init__(self, workspace: Workspace, match: Match) -> None:
        self.workspace = workspace
        self.match = match
        self.constants: list[dict[str, Any]] = []
        self.parts: list[_Part] = []
        self.emptied: list[int] = []
        self._positions = {key: number for number, key in enumerate(match.layers)}
        self._data = {(edge.layer, edge.input_slot): number for number, edge in enumerate(match.inputs)}
        self._on_slot: dict[tuple[int, int], int] = {}
        self._named: dict[int, int] = {}
        for key in match.layers:
            self._members(key)
            self._parameters(key)
        self._named_constants()

    def _members(self, key: int) -> None:
        workspace = self.workspace
        held = workspace.constants(key)
        for path in schema().layers[workspace.type(key)].tensors:
            field = path[-1]
            tensor = held.get(field)
            if tensor is not None:
                layout = _layout(workspace, key, tensor, field)
                self.constants.append({"layer": self._positions[key], "field": field, "layout": layout})
                label = workspace.name(key) or workspace.type(key)
                self.parts.append(_Part(None, tensor, f"{label}/{field}"))

    def _parameters(self, key: int) -> None:
        parameters = list(self.workspace.parameter_inputs(key))
        if self.workspace.recipe(key) is not None:
            _, own = parameters.pop()
            self.emptied.append(own.layer)
        for slot, source in parameters:
            self._on_slot[key, slot] = self._constant(key, slot, source)

    def _named_constants(self) -> None:
        """The Constants that the pattern names, each where it is used first."""
        named = set(self.match.constants)
        uses: dict[int, tuple[int, int, Source]] = {}
        for key in self.match.layers:
            for slot, source in self.workspace.inputs(key):
                if source.layer in named and (key, slot) not in self._on_slot and (key, slot) not in self._data:
                    uses.setdefault(source.layer, (key, slot, source))
        for constant in self.match.constants:
            if constant in uses:
                self._named[constant] = self._constant(*uses[constant])

    def _constant(self, key: int, slot: int, source: Source) -> int:
        workspace = self.workspace
        tensor = workspace.tensor(source.layer)
        parameters = PARAMETER_SLOTS.get(workspace.type(key), ())
        field = {1: "weights", 2: "biases"}.get(slot, "") if slot in parameters else ""
        entry = {
            "layer": self._positions[key],
            "slot": slot,
            "name": workspace.name(source.layer),
            "layout": _layout(workspace, key, tensor, field),
        }
        self.constants.append(entry)
        self.parts.append(_Part(source, None, ""))
        return len(self.constants) - 1

    def layer(self, key: int) -> dict[str, Any]:
        """A consumed layer."""
        workspace = self.workspace
        node = workspace.graph.nodes[key]
        name = workspace.name(key)
        name.encode("utf-8", "surrogateescape")
        overrides = node.get("overrides") or EMPTY
        found: dict[str, Any] = {
            "type": workspace.type(key),
            "name": name,
            "params": params_to_json(schema().layers[workspace.type(key)], node.get("params")),
            "inputs": [
                self._reference(key, slot, source)
                for slot, source in workspace.inputs(key)
                if not self._is_own_recipe(key, slot)
            ],
            "outputs": [info_to_json(info) for info in workspace.outputs(key)],
            "overrides": [
                {"slot": int(slot), "isOverridden": bool(overrides[slot][0]), "info": info_to_json(overrides[slot][1])}
                for slot in sorted(overrides)
            ],
        }
        recipe = workspace.recipe(key)
        return found if recipe is None else found | {"recipe": recipe}

    def _is_own_recipe(self, key: int, slot: int) -> bool:
        return self.workspace.recipe(key) is not None and slot == len(self.workspace.inputs(key)) - 1

    def _reference(self, key: int, slot: int, source: Source) -> dict[str, int]:
        if (key, slot) in self._data:
            return {"input": self._data[key, slot]}
        if (key, slot) in self._on_slot:
            return {"constant": self._on_slot[key, slot]}
        if source.layer in self._positions:
            return {"layer": self._positions[source.layer], "slot": source.slot}
        return {"constant": self._named[source.layer]}

    def overrides(self) -> dict[Any, Any]:
        """Overridden TensorInfos of what the StandIn's inputs were connected to, by the StandIn's slots."""
        edges = [(edge.layer, edge.input_slot) for edge in self.match.inputs]
        layers = self.match.layers
        edges += [(layers[entry["layer"]], entry.get("slot", -1)) for entry in self.constants]
        found = {}
        for number, (key, slot) in enumerate(edges):
            held: Mapping[Any, Any] = self.workspace.graph.nodes[key].get("overrides") or EMPTY
            if slot in held:
                found[number] = held[slot]
        return found


def _layout(workspace: Workspace, key: int, tensor: Tensor | None, field: str) -> str | None:
    """The axes of a layer's tensor, a letter each as in `weights_layout`; None where that is not known.

    A bias and batch norm's tensors are ``C``.
    """
    kind = workspace.type(key)
    layout = None
    if kind == "BatchNormalization" or (field == "biases" and kind in WEIGHTED):
        layout = "C"
    elif field == "weights":
        layout = weights_layout(workspace, key)
    return layout if layout and tensor is not None and len(tensor.info.shape) == len(layout) else None


def apply(workspace: Workspace, match: Match, plan: OpaquePlan, name: str | None = None) -> int:
    """Make the StandIn that `check` planned, at the root's key, which is returned; its name may be given."""
    root = match.root
    name_of_root, outputs = workspace.name(root), workspace.outputs(root)
    workspace.rewire(root, ())
    for key in match.layers:
        if key != root:
            workspace.remove(key)
    workspace.drop_unused(plan.emptied)
    if name is None:
        name = workspace.names.unique(f"{plan.result}:{name_of_root}")
    inputs = list(plan.inputs)
    for part in plan.parts:
        if part.source is not None:
            inputs.append(part.source)
        elif part.tensor is not None:
            inputs.append(Source(workspace.add_constant(f"{name}/{part.name}", part.tensor), 0))
    inputs.append(Source(_add_recipe(workspace, f"{name}/recipe", plan), 0))
    params = FrozenDict(numInputs=len(inputs), numOutputs=len(outputs))
    workspace.unset(root, "overrides")
    workspace.set(root, type="StandIn", name=name, params=params, constants=EMPTY)
    if plan.overrides:
        workspace.set(root, overrides=FrozenDict(sorted(plan.overrides.items())))
    workspace.rewire(root, inputs)
    return root


def _add_recipe(workspace: Workspace, name: str, plan: OpaquePlan) -> int:
    values = np.frombuffer(plan.data, np.uint8)
    info = TensorInfo(values.shape, "QAsymmU8", quantization_scale=1.0, quantization_offset=plan.code)
    tensor = Tensor(info, values)
    recipes.remember(tensor, plan.recipe)
    return workspace.add_constant(name, tensor)


# What the network is written as


def former(workspace: Workspace) -> tuple[str, tuple[int, int, int]]:
    """Dialect and featureVersions of the network before anything in it was fused.

    A network that has opaque layers may be written otherwise than it was; their recipes tell.
    """
    found: tuple[str, tuple[int, int, int]] | None = workspace.memo.get("opaque.former")
    if found is None:
        graph = workspace.graph.graph
        bindings, scheme, as_inputs = graph.get("feature_versions", (1, 1, 1))
        found = (graph.get("dialect", "current"), (int(bindings), int(scheme), int(as_inputs)))
        first = _first(workspace, (k for k in workspace.of_type("StandIn") if workspace.recipe(k) is not None))
        recipe = None if first is None else workspace.recipe(first)
        if recipe is not None:
            found = (recipe["dialect"], tuple(recipe["featureVersions"]))
        workspace.memo["opaque.former"] = found
    return found


def settle(workspace: Workspace) -> tuple[str, ...]:
    """Let a network with opaque layers be what it can be written as; called once, when all rules are done.

    Networks of the seed, 19.02 and 19.05 dialects become current ones: these have no StandIn. Where
    ``weightsLayoutScheme`` is 0 it becomes 1, since Arm NN from release 22.05 on permutes every Constant
    of a file with scheme 0, unless a depthwise convolution is left whose weights it describes.

    Returns
    -------
    tuple of str
        Warnings: which releases cannot read the result.
    """
    if all(workspace.recipe(key) is None for key in workspace.of_type("StandIn")):
        return ()
    warnings = []
    graph = workspace.graph.graph
    dialect = graph.get("dialect", "current")
    if dialect != "current":
        to_dialect(workspace, "current")
        warnings.append(
            f"{WARNING}there is no StandIn in the {dialect} dialect, so the network is written as a current one: "
            "releases before 19.11 cannot read it"
        )
    bindings, scheme, as_inputs = graph.get("feature_versions", (1, 1, 1))
    if scheme == 0:
        left = _first(workspace, workspace.of_type("DepthwiseConvolution2d"))
        if left is None:
            graph["feature_versions"] = (bindings, 1, as_inputs)
        else:
            warnings.append(
                f"{WARNING}weightsLayoutScheme stays 0 for the sake of {workspace.describe(left)}, a depthwise "
                "convolution that no rule fused: releases from 22.05 on cannot read the network, since with scheme 0 "
                "they permute its Constants; --release 23.08 carries it to one of them"
            )
    return tuple(warnings)


def _first(workspace: Workspace, keys: Iterable[int]) -> int | None:
    found = set(keys)
    if len(found) < 2:
        return next(iter(found), None)
    return next(key for key in workspace.order() if key in found)


def to_dialect(workspace: Workspace, dialect: str) -> str | None:
    """Let a network be of another dialect: descriptors get the field names of that one's schema.

    Returns
    -------
    str or None
        What the dialect cannot express; the network is as it was then.
    """
    changes = {}
    facts = schema(dialect)
    for key in workspace.order():
        kind = workspace.type(key)
        if kind not in facts.layers:
            return f"{workspace.describe(key)} is a {kind}, which the {dialect} dialect does not have"
        params = workspace.graph.nodes[key].get("params")
        if params:
            moved, lost = _params_in(dialect, kind, params)
            if lost:
                return f"{workspace.describe(key)} has {lost} set, which the {dialect} dialect's {kind} does not have"
            if moved != params:
                changes[key] = moved
    for key, moved in changes.items():
        workspace.set(key, params=moved)
    workspace.graph.graph["dialect"] = dialect
    return None


def _params_in(dialect: str, kind: str, params: FrozenDict) -> tuple[FrozenDict, str]:
    """A descriptor by the names of a dialect, and the first field that has a value and no place there."""
    table = schema(dialect).layers[kind].descriptor
    fields = {} if table is None else table.by_name
    newest = schema().layers[kind].descriptor
    known = {} if newest is None else newest.by_name
    successors = {field.former: field.name for field in known.values() if field.former is not None}
    found = {}
    for name, value in params.items():
        field = known.get(successors.get(name, name))
        names = [name] if field is None else [field.name, field.former]
        target = next((wanted for wanted in names if wanted in fields), None)
        if target is not None:
            found[target] = value
        elif field is None or value != default_value(field, schema()):
            return EMPTY, name
    return FrozenDict(found), ""
