"""Carrying a network to a release of Arm NN: ``convert``.

A conversion opens the opaque layers, runs the steps in `fusion_engine.releases.passes`, looks what is
left that the release does not read, and where nothing is closes the opaque layers again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from fusion_engine import opaque
from fusion_engine.errors import ConversionError, FuseError, ModelError
from fusion_engine.folds import Refused
from fusion_engine.folds.moves import LAYOUT_WARNING
from fusion_engine.match.binding import Edge, Match
from fusion_engine.naming import layer_place
from fusion_engine.network import Network, warnings_of
from fusion_engine.releases.facts import Release, find_release, since
from fusion_engine.releases.needs import Obstacle, needs_of
from fusion_engine.releases.passes import PASSES, aliases
from fusion_engine.releases.passes.added import added_layers
from fusion_engine.releases.passes.untagged import BFLOAT16
from fusion_engine.releases.reading import cautions_of
from fusion_engine.unfusing import Opened, open_opaque
from fusion_engine.validation import blaming
from fusion_engine.workspace import Workspace

__all__ = ["convert"]

MOST_SHOWN = 12
"""Obstacles that the message of a `ConversionError` shows; the error has all."""


def convert(graph: Network, release: str) -> Network:
    """A network as a release of Arm NN writes and reads it, meaning the same.

    Weights go where the release looks for them, depthwise ones in its layout; binding ids,
    featureVersions, dialect and DataTypes become its own; layers that it does not read become others
    that mean the same, where there are such. Opaque layers stay opaque, and what `unfuse` gives is a
    network of the release. Spellings that the release reads stay.

    Parameters
    ----------
    graph
        The network; it stays as it is.
    release
        ``"20.08"``; ``"seed"`` for the schema of February 2019.

    Returns
    -------
    networkx.DiGraph
        A new network, whose ``graph["warnings"]`` has what the release's users should know.

    Raises
    ------
    ConversionError
        Where the release cannot hold the network, with every obstacle: what, where, and since which
        release it is possible. Nothing is approximated. Also where there is no such release.
    FuseError
        Where what is given is no network.
    ModelError
        Where the network is not as `validate` wants it and so cannot be worked on, or its opaque
        layers cannot be undone (see `unfuse`).

    Examples
    --------
    >>> import fusion_engine as fe
    >>> old = fe.load("examples/models/mobilenet-20.08.armnn")
    >>> new = fe.convert(old, "23.08")
    >>> new.graph["feature_versions"]
    (1, 1, 1)
    >>> fe.equal(fe.convert(new, "20.08"), old)
    True
    """
    target = find_release(release)
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        raise FuseError(f"a network is a networkx.DiGraph, not {type(graph).__name__}: load one with load()")
    with blaming(graph, "cannot be converted"):
        return _convert(graph, target)


def _convert(graph: Network, target: Release) -> Network:
    workspace = Workspace(graph)
    workspace.graph.graph.pop("storage", None)  # it is about the file that was read
    opened, notes = open_opaque(workspace)
    fault = opaque.to_dialect(workspace, "current")
    if fault is not None:
        raise ModelError(fault)
    obstacles = list(_opaque_obstacles(workspace, opened, target))
    for run in PASSES:
        obstacles += run(workspace, target)
    obstacles += needs_of(workspace.graph).obstacles(target, numbering=False)
    if obstacles:
        raise _refusal(target, _outside(obstacles, opened))
    added: dict[int, list[int]] = {}
    for key, (owner, _) in added_layers(workspace).items():
        added.setdefault(owner, []).append(key)
    for one in reversed(opened):
        _close(workspace, one, added)
    aliases.run(workspace, target)  # recipes are QAsymmU8
    opaque.settle(workspace)
    fault = opaque.to_dialect(workspace, target.dialect)
    if fault is not None:
        raise ModelError(fault)
    result = workspace.graph
    kept = [text for text in warnings_of(result) if not text.startswith(opaque.WARNING)]
    if result.graph.get("feature_versions", (1, 1, 1))[1]:
        kept = [text for text in kept if LAYOUT_WARNING not in text]
    for place in workspace.memo.get(BFLOAT16, ()):
        notes.append(
            f"{place}: its Float16 had no payload type, as Arm NN 20.08 writes BFloat16; it is written as Float16"
        )
    cautions = [f"Arm NN {target.name}: {caution}" for caution in cautions_of(result, target)]
    warnings = tuple(dict.fromkeys((*kept, *notes, *cautions)))
    result.graph.pop("warnings", None)
    if warnings:
        result.graph["warnings"] = warnings
    return result


def _refusal(target: Release, obstacles: list[Obstacle]) -> ConversionError:
    shown = [str(obstacle) for obstacle in obstacles[:MOST_SHOWN]]
    if len(obstacles) > MOST_SHOWN:
        shown.append(f"and {len(obstacles) - MOST_SHOWN} more")
    error = ConversionError(f"Arm NN {target.name} cannot hold it: {'; '.join(shown)}")
    error.obstacles = tuple(obstacles)
    return error


# Opaque layers


@dataclass(frozen=True)
class _Rule:
    """What a recipe tells of the rule that made it."""

    name: str
    into: str
    code: int


def _opaque_obstacles(workspace: Workspace, opened: list[Opened], target: Release) -> list[Obstacle]:
    if not opened or "StandIn" in target.layers:
        return []
    outermost = [one for one in opened if not one.nested]
    places = tuple(_place(one) for one in outermost)
    keys = tuple(one.layers[0] for one in outermost)
    return [
        Obstacle("opaque layers: there is no StandIn (unfuse them first)", since("layers", "StandIn"), keys, places)
    ]


def _place(one: Opened) -> str:
    return layer_place(one.layers[0], one.name)


def _with_layers(one: Opened) -> list[tuple[int, Mapping[str, Any]]]:
    return list(zip(one.layers, one.recipe["layers"], strict=True))


def _outside(obstacles: list[Obstacle], opened: list[Opened]) -> list[Obstacle]:
    """The obstacles with layers of opaque layers named as what they are in: those have no keys of their own."""
    holder: dict[int, Opened] = {}
    for one in opened:
        top = holder[one.layers[0]] if one.nested else one
        for key in one.layers:
            holder[key] = top
    found = []
    for obstacle in obstacles:
        keys, places = [], []
        for key, place in zip(obstacle.layers, obstacle.places, strict=True):
            if key in holder and place != _place(holder[key]):
                top = holder[key]
                keys.append(top.layers[0])
                places.append(f"{place.removeprefix(f'layer {key} ')} in {_place(top)}")
            else:
                keys.append(key)
                places.append(place)
        found.append(Obstacle(obstacle.reason, obstacle.since, tuple(keys), tuple(places)))
    return found


def _close(workspace: Workspace, one: Opened, added: Mapping[int, list[int]]) -> None:
    """Make an opaque layer again of what its layers have become; ``added`` are new layers by what they belong to."""
    keys = [*one.layers, *(key for owner in one.layers for key in added.get(owner, ()))]
    keys = [key for key in keys if key in workspace.graph]
    layers = [key for key in keys if workspace.type(key) != "Constant"]
    inside = set(keys)
    recipe = one.recipe
    constants = [key for key in keys if workspace.type(key) == "Constant"]
    for entry in recipe["constants"]:
        source = workspace.source(one.layers[entry["layer"]], entry["slot"]) if "slot" in entry else None
        if source is not None and workspace.type(source.layer) == "Constant":
            constants.append(source.layer)
    inside.update(constants)
    numbers = {
        (key, slot): reference["input"]
        for key, layer in _with_layers(one)
        for slot, reference in enumerate(layer["inputs"])
        if "input" in reference
    }
    edges = [
        Edge(source, key, slot)
        for key in layers
        for slot, source in workspace.data_inputs(key)
        if source.layer not in inside
    ]

    def number(edge: Edge) -> int:
        owner, first = added_layers(workspace).get(edge.layer, (edge.layer, 0))
        found: int = numbers.get((owner, first + edge.input_slot), len(numbers))
        return found

    edges.sort(key=number)
    match = Match(one.layers[0], tuple(layers), (), tuple(dict.fromkeys(constants)), tuple(edges), ())
    rule = _Rule(recipe["rule"], recipe["result"], recipe["code"])
    try:
        plan = opaque.check(workspace, match, rule)
    except Refused as refused:
        error = ConversionError(
            f"{_place(one)} cannot be made again of what its layers become (unfuse it first): {refused.reason}"
        )
        error.obstacles = (Obstacle(refused.reason, None, (one.layers[0],), (_place(one),)),)
        raise error from None
    opaque.apply(workspace, match, plan, one.name)
