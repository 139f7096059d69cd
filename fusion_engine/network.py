"""The network: what a node and an edge of the ``networkx.DiGraph`` carry, and small edits that keep it right.

Nodes are layers under int keys (the layer index at loading, any unused int later):

==================  ==========================================================================
``type``            LayerType name as spelled in the file
``name``            layer name, default ``""``; bytes that are no UTF-8 as surrogate escapes
``params``          the descriptor by field, a FrozenDict; enum values by name, vectors as
                    tuples; None where the file lacks a descriptor that the type has
``constants``       member tensors by field, a FrozenDict of Tensor
``outputs``         TensorInfo per output slot (None where the file lacks one)
``binding_id``      Input and Output only
``overrides``       input slot -> (isOverridden, TensorInfo or None); only where the file has any
``unconnected``     input slots without a connection; only where there are any
==================  ==========================================================================

An edge carries ``slots``, the tuple of its (output slot, input slot) pairs. The graph carries
``inputs`` and ``outputs`` (node keys in order), ``dialect`` and ``feature_versions`` (the three
numbers of FeatureCompatibilityVersions). Attribute values are immutable and shared by graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

import networkx as nx

from fusion_engine.errors import ModelError
from fusion_engine.naming import layer_place
from fusion_engine.schema import Field, Schema, Table, schema

__all__ = [
    "EMPTY",
    "FrozenDict",
    "Network",
    "Source",
    "Storage",
    "Use",
    "bare_copy",
    "complete_params",
    "connect",
    "consumers",
    "default_params",
    "describe",
    "disconnect",
    "edges_into",
    "new_network",
    "param",
    "sources",
]

Network: TypeAlias = "nx.DiGraph[int]"
"""The type of every network here; NetworkX's own class, nothing added."""


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed: what ``params`` and ``constants`` hold.

    Examples
    --------
    >>> FrozenDict(strideX=1)["strideX"]
    1
    """

    __slots__ = ()

    def _frozen(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("layer attributes are immutable: set a new FrozenDict on the node instead")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _frozen

    def __ior__(self, other: Any) -> NoReturn:  # type: ignore[misc]
        self._frozen(other)

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenDict, (dict(self),))

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def with_(self, **changes: Any) -> FrozenDict:
        """A copy with some entries set."""
        return FrozenDict({**self, **changes})


EMPTY = FrozenDict()


class Source(NamedTuple):
    """What feeds an input slot: a layer and its output slot."""

    layer: int
    slot: int


class Storage(NamedTuple):
    """What in a file real readers abort on, though it says clearly enough what is meant.

    ``graph["storage"]`` has it, of the file that a network was read from, where there is such; a file that
    is written has none of it. Every layer has a key, which is its index in the file.

    Attributes
    ----------
    unnamed
        Layers without a layerName; an empty one is a name.
    misplaced
        Layers that read another layer whose index is no position in the file, or that of an Output:
        readers take the index for a position and look for an output slot there.
    first
        Whether the layer at the first position has the index 0.
    """

    unnamed: tuple[int, ...] = ()
    misplaced: tuple[int, ...] = ()
    first: bool = True


class Use(NamedTuple):
    """One use of a layer's output: its slot, the consumer and the consumer's input slot."""

    slot: int
    layer: int
    input_slot: int


def new_network(dialect: str = "current", feature_versions: tuple[int, int, int] = (1, 1, 1)) -> Network:
    """An empty network.

    Examples
    --------
    >>> new_network().graph["feature_versions"]
    (1, 1, 1)
    """
    return nx.DiGraph(inputs=(), outputs=(), dialect=dialect, feature_versions=feature_versions)


def connect(graph: Network, source: int, target: int, output_slot: int = 0, input_slot: int = 0) -> None:
    """Connect an output slot of ``source`` to an input slot of ``target``.

    Pairs between the same two layers gather in the ``slots`` of their one edge.

    Raises
    ------
    ModelError
        Where a layer is missing or the input slot is connected already.
    """
    for key in (source, target):
        if key not in graph:
            raise ModelError(f"there is no layer {key} to connect: add it with add_node first")
    for other, data in graph.pred[target].items():
        if any(pair[1] == input_slot for pair in data["slots"]):
            raise ModelError(
                f"input slot {input_slot} is connected to layer {other} already: disconnect it first",
                place=describe(graph, target),
            )
    pairs = graph.edges[source, target]["slots"] if graph.has_edge(source, target) else ()
    graph.add_edge(source, target, slots=tuple(sorted((*pairs, (output_slot, input_slot)), key=lambda p: (p[1], p[0]))))


def disconnect(graph: Network, target: int, input_slot: int) -> Source:
    """Take the connection off an input slot; returns what fed it.

    Raises
    ------
    ModelError
        Where nothing is connected there.
    """
    for source, data in list(graph.pred[target].items()):
        for pair in data["slots"]:
            if pair[1] == input_slot:
                rest = tuple(p for p in data["slots"] if p != pair)
                if rest:
                    graph.edges[source, target]["slots"] = rest
                else:
                    graph.remove_edge(source, target)
                return Source(source, pair[0])
    raise ModelError(f"input slot {input_slot} is not connected", place=describe(graph, target))


def edges_into(graph: Network, layer: int) -> list[tuple[int, Source]]:
    """(input slot, Source) of every connected input of a layer, in slot order."""
    own: Any = graph  # its dict rather than the view: see `inside`
    found = [(i, Source(source, o)) for source, data in own._pred[layer].items() for o, i in data["slots"]]
    if len(found) > 1:
        found.sort()
    return found


def sources(graph: Network, layer: int) -> list[Source]:
    """What feeds a layer's inputs, in slot order (unconnected slots left out)."""
    return [source for _, source in edges_into(graph, layer)]


def consumers(graph: Network, layer: int) -> list[Use]:
    """Every use of a layer's outputs, ordered by output slot; among those in no promised order."""
    own: Any = graph
    found = [Use(o, target, i) for target, data in own._succ[layer].items() for o, i in data["slots"]]
    if len(found) > 1:
        found.sort()
    return found


def warnings_of(graph: Network) -> tuple[str, ...]:
    """What ``graph["warnings"]`` says; nothing where a user has put something else there."""
    found: Any = graph.graph.get("warnings", ())
    return tuple(text for text in found if isinstance(text, str)) if isinstance(found, tuple | list) else ()


class Inside(NamedTuple):
    """A graph's own dicts: attributes by key, edge attributes by source and target, and by target and source."""

    nodes: dict[int, dict[str, Any]]
    succ: dict[int, dict[int, dict[str, Any]]]
    pred: dict[int, dict[int, dict[str, Any]]]


def inside(graph: Network) -> Inside:
    """The dicts behind ``graph.nodes``, ``graph.succ`` and ``graph.pred``.

    NetworkX's views cost ten times what a dict costs. Its own algorithms and views use these names, which
    have been the same since release 2.0.
    """
    own: Any = graph
    return Inside(own._node, own._succ, own._pred)


def describe(graph: Network, layer: int) -> str:
    """``layer 14 'relu_3'``: how messages name a layer."""
    return layer_place(layer, graph.nodes[layer].get("name", ""))


def default_params(table: Table, facts: Schema) -> dict[str, Any]:
    """Every field of a descriptor at its schema default: enums by name, vectors empty."""
    return {f.name: default_value(f, facts) for f in table.fields}


def complete_params(table: Table, params: Mapping[str, Any], facts: Schema) -> dict[str, Any]:
    """A descriptor with every field of its table, nested ones too: what ``params`` leaves out at its default."""
    found = {f.name: params[f.name] if f.name in params else default_value(f, facts) for f in table.fields}
    for f in table.fields:
        if f.kind == "table" and not facts.tables[f.type].wrapped:
            found[f.name] = complete_params(facts.tables[f.type], found[f.name], facts)
    return found


def default_value(field: Field, facts: Schema) -> Any:
    """The value of an absent descriptor field."""
    if field.kind == "enum":
        return facts.enums[field.type].names.get(field.default, field.default)
    if field.kind == "scalar":
        return field.default
    if field.kind == "table":
        inner = facts.tables[field.type]
        return () if inner.wrapped else FrozenDict(default_params(inner, facts))
    return "" if field.kind == "string" else ()


def param(graph: Network, layer: int, name: str) -> Any:
    """A descriptor field of a layer, at its schema default where the node leaves it out.

    The field goes by its name of release 24.08 or by that of the network's dialect (an Activation's
    ``function`` became ``activationFunction``).

    Raises
    ------
    KeyError
        Where the layer's type has no such field in the current schema.
    """
    own: Any = graph
    node = own._node[layer]
    params: Mapping[str, Any] | None = node.get("params")
    if params and name in params:
        return params[name]
    facts = schema(graph.graph.get("dialect", "current"))
    for known in (facts, schema()):
        kind = known.layers.get(node["type"])
        if kind is not None and kind.descriptor is not None and name in kind.descriptor.by_name:
            field = kind.descriptor.by_name[name]
            if params and field.former is not None and field.former in params:
                return params[field.former]
            return default_value(field, known)
    raise KeyError(name)


def bare_copy(graph: Network) -> Network:
    """A copy that shares every attribute value: nodes, edges and graph attributes may be changed in it."""
    copy: Network = nx.DiGraph()
    copy.graph.update(graph.graph)
    old, new = inside(graph), inside(copy)
    new.nodes.update([(key, data.copy()) for key, data in old.nodes.items()])
    pred = new.pred
    pred.update([(key, {}) for key in old.nodes])
    for source, targets in old.succ.items():
        row = new.succ[source] = {target: data.copy() for target, data in targets.items()}
        for target, edge in row.items():
            pred[target][source] = edge
    return copy


def fresh_keys(graph: Network) -> Iterator[int]:
    """Ints that no layer of the graph has, ascending from the largest + 1."""
    key = max(graph.nodes, default=-1) + 1
    while True:
        yield key
        key += 1


class Names:
    """The names in use in a network, to make new ones that are unique."""

    def __init__(self, names: Iterable[str]) -> None:
        self._used = set(names)
        self._counts: dict[str, int] = {}
        """By wanted name a number from which on those below are taken."""

    def unique(self, wanted: str) -> str:
        """``wanted``, or where it is taken ``wanted#2``, ``wanted#3``; taken from then on."""
        name = wanted
        if name in self._used:
            count = self._counts.get(wanted, 2)
            while (name := f"{wanted}#{count}") in self._used:
                count += 1
            self._counts[wanted] = count
        self._used.add(name)
        return name

    def take(self, name: str) -> None:
        """Count a name as used."""
        self._used.add(name)

    def release(self, name: str) -> None:
        """Let a name be used again."""
        self._used.discard(name)
        self._counts.pop(name.rpartition("#")[0], None)
