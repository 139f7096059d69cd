"""A layer type that a release does not read becomes another one that means the same there.

Deprecated types and their successors (`fusion_engine.spellings`), and types that say with other words
what a newer one says: Transpose as the Permute with the inverse mapping, a Reduce that takes the mean
as Mean, square root, negation and absolute value as Activations (not of Signed32 or Signed64, which no
backend's Activation takes). All are exact. A spelling that the release reads is never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fusion_engine.network import EMPTY, FrozenDict, complete_params
from fusion_engine.releases.facts import Release
from fusion_engine.releases.needs import Obstacle
from fusion_engine.schema import schema
from fusion_engine.spellings import SPELLINGS, SUCCESSORS
from fusion_engine.workspace import Workspace

__all__ = ["run", "spelled"]

_ACTIVATIONS = {"Sqrt": ("Sqrt", 0.0), "Abs": ("Abs", 0.0), "Neg": ("Linear", -1.0)}
"""Activation (function, a) that an ElementwiseUnary's operation is: Linear is a * x + b."""


def run(workspace: Workspace, release: Release) -> tuple[Obstacle, ...]:
    """Spell every layer as the release reads it, where one of the spellings does."""
    for key in workspace.order():
        kind = workspace.type(key)
        if kind in release.layers and release.fault(workspace.graph, key) is None:
            continue
        for name, params in spelled(workspace, key):
            if name in release.layers and _speaks(release, name, params):
                workspace.set(key, type=name, params=params)
                break
    return ()


def _speaks(release: Release, name: str, params: FrozenDict) -> bool:
    """Whether a release has the enum values of a descriptor."""
    table = schema().layers[name].descriptor
    fields = () if table is None else table.fields
    return all(
        f"{field.type}.{params[field.name]}" in release.values
        for field in fields
        if field.kind == "enum" and field.name in params
    )


def spelled(workspace: Workspace, key: int) -> Iterator[tuple[str, FrozenDict]]:
    """The other types, with descriptors, that mean what a layer does, the nearest first."""
    kind = workspace.type(key)
    table = schema().layers[kind].descriptor
    params = workspace.graph.nodes[key].get("params")
    if table is not None and params is None:
        return
    said = {} if table is None or params is None else complete_params(table, params, schema())
    if kind in SPELLINGS:
        yield SPELLINGS[kind].type, _descriptor(SPELLINGS[kind].type, {**said, **_entry(kind)})
    for old in SUCCESSORS.get(kind, ()):
        entry = _entry(old)
        if all(said[field] == value for field, value in entry.items()):
            yield old, _descriptor(old, said)
    if kind == "ElementwiseUnary" and said["operation"] in _ACTIVATIONS and not _whole(workspace, key):
        function, a = _ACTIVATIONS[said["operation"]]
        yield "Activation", FrozenDict(activationFunction=function, a=a, b=0.0)
    elif kind == "Abs" and not _whole(workspace, key):
        yield "Activation", FrozenDict(activationFunction="Abs", a=0.0, b=0.0)
    elif kind == "Reduce" and said["reduceOperation"] == "Mean":
        yield "Mean", FrozenDict(axis=said["axis"], keepDims=said["keepDims"])
    elif kind == "Transpose":
        mappings = said["dimMappings"]
        yield "Permute", FrozenDict(dimMappings=tuple(sorted(range(len(mappings)), key=lambda dim: mappings[dim])))


def _whole(workspace: Workspace, key: int) -> bool:
    """Whether a layer computes whole numbers, which no backend's Activation takes."""
    source = workspace.source(key, 0)
    info = None if source is None else workspace.info(source)
    return info is not None and info.data_type.startswith("Signed")


def _entry(old: str) -> dict[str, str]:
    """What the successor's descriptor says of a deprecated type."""
    spelling = SPELLINGS[old]
    return {} if spelling.field is None or spelling.value is None else {spelling.field: spelling.value}


def _descriptor(name: str, said: dict[str, Any]) -> FrozenDict:
    """Of what is said, what the descriptor of a type has fields for."""
    table = schema().layers[name].descriptor
    return EMPTY if table is None else FrozenDict({f.name: said[f.name] for f in table.fields if f.name in said})
