"""The way back: opaque layers and groups undone, from what they carry themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from fusion_engine import opaque
from fusion_engine.collector import paused
from fusion_engine.errors import FuseError, ModelError
from fusion_engine.group import group_of
from fusion_engine.network import EMPTY, FrozenDict, Network, Source, warnings_of
from fusion_engine.recipe_values import info_from_json, params_from_json
from fusion_engine.recipes import fault_of
from fusion_engine.schema import schema
from fusion_engine.validation import blaming
from fusion_engine.workspace import Workspace

__all__ = ["Opened", "open_opaque", "unfuse"]


@dataclass(frozen=True)
class Opened:
    """An opaque layer that was undone.

    Attributes
    ----------
    name
        The name that it had.
    recipe
        What it was fused from.
    layers
        Keys of its layers now, in the recipe's order; the first is the key that it had.
    nested
        Whether it was inside another one.
    """

    name: str
    recipe: Mapping[str, Any]
    layers: tuple[int, ...]
    nested: bool


def unfuse(graph: Network) -> Network:
    """Undo opaque fusions and groups, all levels of them.

    Every StandIn that this project made becomes the layers it was fused from, with their names,
    parameters, tensors and TensorInfos; Constants that were made for it go. With the last of them
    the network is again of the dialect and featureVersions that it had. Names lose the prefixes of
    groups. For rules without folds, ``dumps(unfuse(loads(dumps(fuse(g))))) == dumps(g)``.

    Parameters
    ----------
    graph
        The network; it stays as it is.

    Returns
    -------
    networkx.DiGraph
        A new network, without ``fusions`` and ``refusals``. StandIns that this project did not make
        or whose recipe does not fit them are left as they are, and its ``graph["warnings"]`` says
        which and why.

    Raises
    ------
    FuseError
        Where what is given is no network.
    ModelError
        Where the network was changed since it was fused so that its opaque layers cannot come back:
        they tell of different dialects or featureVersions, or depthwise weights would be taken in
        the wrong layout; and where the network is not as `validate` wants it and so cannot be
        worked on.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> graph = fe.load("examples/models/digits.armnn")
    >>> rule = fe.FusingRule("BatchNormalization{Convolution2d}", into="ConvNorm")
    >>> fe.equal(fe.unfuse(fe.fuse(graph, rule)), graph)
    True
    """
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        raise FuseError(f"a network is a networkx.DiGraph, not {type(graph).__name__}: load one with load()")
    with blaming(graph, "cannot be unfused"), paused():
        return _unfuse(graph)


def _unfuse(graph: Network) -> Network:
    workspace = Workspace(graph)
    opened, notes = open_opaque(workspace)
    for key in list(workspace.graph):
        group = group_of(workspace.name(key))
        while group is not None:
            workspace.set(key, name=group.rest)
            group = group_of(group.rest)
    result = workspace.graph
    for record in ("fusions", "refusals", "statistics"):
        result.graph.pop(record, None)
    kept = [text for text in warnings_of(result) if not (opened and text.startswith(opaque.WARNING))]
    result.graph.pop("warnings", None)
    warnings = tuple(dict.fromkeys((*kept, *notes)))
    if warnings:
        result.graph["warnings"] = warnings
    return result


def open_opaque(workspace: Workspace) -> tuple[list[Opened], list[str]]:
    """Undo every opaque layer, and give the network its former dialect and featureVersions.

    Returns
    -------
    list of Opened, list of str
        What was undone, a layer before those inside it; and notes for the user.

    Raises
    ------
    ModelError
        As `unfuse` does.
    """
    notes: list[str] = []
    pending: list[tuple[int, Mapping[str, Any]]] = []
    if workspace.of_type("StandIn"):
        for key in workspace.order():
            if workspace.type(key) == "StandIn":
                recipe = workspace.recipe(key)
                if recipe is None:
                    notes.append(f"{workspace.describe(key)} is left as it is: {fault_of(workspace.graph, key)}")
                else:
                    pending.append((key, recipe))
        pending = _with_own_recipes(workspace, pending, notes)
    if not pending:
        return [], notes
    former = _former(workspace, pending)
    opened = _expand_all(workspace, pending)
    inner = [
        key
        for one in opened
        for key, layer in zip(one.layers, one.recipe["layers"], strict=True)
        if "recipe" not in layer
    ]
    notes += _come_back(workspace, former, inner)
    return opened, notes


def _with_own_recipes(
    workspace: Workspace, pending: list[tuple[int, Mapping[str, Any]]], notes: list[str]
) -> list[tuple[int, Mapping[str, Any]]]:
    """Those that have their recipe for themselves, as fusing gives it: a small file could multiply a shared one."""
    tensors = [workspace.tensor(workspace.inputs(key)[-1][1].layer) for key, _ in pending]
    recipes = [tensor and tensor.memory for tensor in tensors]
    users = Counter(recipes)
    for (key, _), held in zip(pending, recipes, strict=True):
        if users[held] > 1:
            notes.append(
                f"{workspace.describe(key)} is left as it is: {users[held]} StandIns share its recipe's bytes, and "
                "fusing gives each its own"
            )
    return [entry for entry, held in zip(pending, recipes, strict=True) if users[held] == 1]


def _former(workspace: Workspace, pending: list[tuple[int, Mapping[str, Any]]]) -> tuple[str, tuple[int, int, int]]:
    """What the network was before: every recipe, nested ones too, says the same."""
    found: tuple[str, tuple[int, int, int]] | None = None
    teller = pending[0][0]
    for key, outermost in pending:
        nested = [outermost]
        while nested:
            recipe = nested.pop()
            nested += [layer["recipe"] for layer in recipe["layers"] if "recipe" in layer]
            versions = recipe["featureVersions"]
            told = (recipe["dialect"], (versions[0], versions[1], versions[2]))
            if found is None:
                found, teller = told, key
            elif told != found:
                raise ModelError(
                    f"it was fused in a network of dialect {told[0]} with featureVersions {told[1]}, "
                    f"{workspace.describe(teller)} in one of dialect {found[0]} with {found[1]}: "
                    "layers of two networks cannot be undone together",
                    place=workspace.describe(key),
                )
    if found is None:
        raise ValueError("no recipes")
    return found


# Layers


def _expand_all(workspace: Workspace, outermost: list[tuple[int, Mapping[str, Any]]]) -> list[Opened]:
    """Put the layers in the StandIns' places; returns what was undone, outer before inner."""
    for key, _ in outermost:
        last = workspace.disconnect(key, len(workspace.inputs(key)) - 1)
        workspace.drop_unused([last.layer])
    opened = []
    pending = [(key, recipe, False) for key, recipe in reversed(outermost)]
    while pending:
        key, recipe, nested = pending.pop()
        name = workspace.name(key)
        keys = _expand(workspace, key, recipe)
        opened.append(Opened(name, recipe, tuple(keys), nested))
        for made, layer in zip(keys, recipe["layers"], strict=True):
            if "recipe" in layer:
                pending.append((made, layer["recipe"], True))
    return opened


def _expand(workspace: Workspace, key: int, recipe: Mapping[str, Any]) -> list[int]:
    """One StandIn, its recipe's Constant gone already, as its layers; the root keeps the key."""
    sources = [source for _, source in workspace.inputs(key)]
    data, constants = sources[: recipe["inputs"]], sources[recipe["inputs"] :]
    members: list[dict[str, Any]] = [{} for _ in recipe["layers"]]
    emptied = []
    for source, entry in zip(constants, recipe["constants"], strict=True):
        if "field" in entry:
            members[entry["layer"]][entry["field"]] = workspace.tensor(source.layer)
            emptied.append(source.layer)
    keys = [key, *[workspace.add(layer["type"], layer["name"], ()) for layer in recipe["layers"][1:]]]
    for made, layer, tensors in zip(keys, recipe["layers"], members, strict=True):
        _restore(workspace, made, layer, tensors)
    for made, layer in zip(keys, recipe["layers"], strict=True):
        workspace.rewire(made, [_source(reference, keys, data, constants) for reference in layer["inputs"]])
    workspace.drop_unused(emptied)
    return keys


def _source(reference: Mapping[str, int], keys: list[int], data: list[Source], constants: list[Source]) -> Source:
    """What a recipe's reference stands for."""
    if "input" in reference:
        return data[reference["input"]]
    if "constant" in reference:
        return constants[reference["constant"]]
    return Source(keys[reference["layer"]], reference["slot"])


def _restore(workspace: Workspace, key: int, layer: Mapping[str, Any], tensors: dict[str, Any]) -> None:
    """The attributes of a layer."""
    workspace.unset(key, "overrides", "unconnected")
    workspace.set(
        key,
        type=layer["type"],
        name=layer["name"],
        params=params_from_json(schema().layers[layer["type"]], layer["params"]),
        constants=FrozenDict(tensors) if tensors else EMPTY,
        outputs=tuple([info_from_json(info) for info in layer["outputs"]]),
    )
    if layer["overrides"]:
        overrides: dict[Any, Any] = {
            entry["slot"]: (entry["isOverridden"], info_from_json(entry["info"])) for entry in layer["overrides"]
        }
        workspace.set(key, overrides=FrozenDict(sorted(overrides.items())))


# The network


def _come_back(workspace: Workspace, former: tuple[str, tuple[int, int, int]], restored: list[int]) -> list[str]:
    """Give the network its former dialect and featureVersions; returns notes.

    Where featureVersions are not what fusing leaves, another tool has written the network since: then
    they stay, unless depthwise weights have come back that they say a wrong layout of.
    """
    dialect, versions = former
    graph = workspace.graph.graph
    present = tuple(graph.get("feature_versions", (1, 1, 1)))
    ours = (present[0], present[2]) == (versions[0], versions[2]) and present[1] in (versions[1], 1)
    if present[1] != versions[1]:
        changed = set(restored)
        beside = [key for key in workspace.of_type("DepthwiseConvolution2d") if (key in changed) != ours]
        if beside:
            key = next(key for key in workspace.order() if key in beside)
            raise ModelError(
                f"its weights would be taken in the wrong layout: the network says weightsLayoutScheme {present[1]} "
                f"and was fused with {versions[1]}; another tool has written or changed it since",
                place=workspace.describe(key),
            )
    notes = []
    if ours:
        graph["feature_versions"] = versions
    else:
        notes.append(
            f"featureVersions stay {present}: another tool wrote the network since it was fused with {versions}, so "
            "layers that hold their weights themselves may stand beside layers that have them on input slots"
        )
    if dialect != graph.get("dialect", "current"):
        fault = opaque.to_dialect(workspace, dialect)
        if fault is not None:
            notes.append(f"the network stays a {graph.get('dialect', 'current')} one, it was {dialect} once: {fault}")
    return notes
