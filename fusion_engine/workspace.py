"""A network under rewriting: the graph with the look-ups that matching and folds need, kept right by its edits.

``fuse`` and ``unfuse`` work on a Workspace over a copy of the caller's graph. Reading goes through
its cached look-ups, every change through its methods, so no cache is ever stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fusion_engine.canonical import canonical_order, feeders, incoming
from fusion_engine.network import (
    EMPTY,
    FrozenDict,
    Names,
    Network,
    Source,
    Use,
    bare_copy,
    connect,
    consumers,
    describe,
    disconnect,
    edges_into,
    fresh_keys,
    inside,
    param,
)
from fusion_engine.recipes import read_recipe
from fusion_engine.schema import schema
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["PARAMETER_SLOTS", "Workspace", "common_layout"]

PARAMETER_SLOTS: dict[str, tuple[int, ...]] = {
    "FullyConnected": (1, 2),
    "Convolution2d": (1, 2),
    "DepthwiseConvolution2d": (1, 2),
    "Convolution3d": (1, 2),
}
"""Input slots that hold weights and bias when a Constant feeds them."""


def common_layout(graph: Network) -> str | None:
    """The dataLayout common to all layers that have one (StridedSlice not counted), else None.

    ``NDHWC`` and ``NCDHW`` count as ``NHWC`` and ``NCHW``.
    """
    found: set[Any] = set()
    seen: set[tuple[str, int]] = set()  # a type, and the id of a descriptor that several layers may share
    for key, node in inside(graph).nodes.items():
        name = node["type"]
        content = name, id(node.get("params"))
        if content in seen:
            continue
        seen.add(content)
        kind = schema().layers.get(name)
        if kind is None or kind.descriptor is None or name == "StridedSlice":
            continue
        if "dataLayout" in kind.descriptor.by_name:
            layout = param(graph, key, "dataLayout")
            found.add({"NDHWC": "NHWC", "NCDHW": "NCHW"}.get(layout, layout))
    only = found.pop() if len(found) == 1 else None
    return only if isinstance(only, str) else None


class Workspace:
    """A copy of a network with cached look-ups and the edits that keep them right.

    Parameters
    ----------
    graph
        The network; it stays as it is.
    reading
        Whether nothing will be edited: then the network itself is looked at instead of a copy, and must stay as it is
        meanwhile.

    Attributes
    ----------
    graph
        The copy. Read it freely; change it through the methods here only.
    inside
        Its own dicts: see `fusion_engine.network.inside`.
    layout
        The layout common to the network when the work began (see `common_layout`).
    names
        The layer names in use.
    revision
        Counts edits: equal numbers mean nothing changed in between.
    changes
        Keys of the layers that edits have touched, oldest first: those whose attributes, inputs or uses are others
        since, and the consumers of those whose attributes are. A key may stand there often, or be gone.
    memo
        What a kind of rewrite notes for its later rewrites of the same run, by its own key.
    """

    def __init__(self, graph: Network, *, reading: bool = False) -> None:
        self.graph: Network = graph if reading else bare_copy(graph)
        self.inside = inside(self.graph)
        self._nodes, self._succ, self._pred = self.inside
        self.layout = common_layout(graph)
        self._counts = Counter(() if reading else [node.get("name", "") for node in self._nodes.values()])
        self.names = Names(self._counts)
        self.revision = 0
        self.changes: list[int] = []
        self.memo: dict[str, Any] = {}
        self._fresh = fresh_keys(graph)
        self._sources: dict[int, tuple[tuple[int, Source], ...]] = {}
        self._data_inputs: dict[int, tuple[tuple[int, Source], ...]] = {}
        self._uses: dict[int, tuple[Use, ...]] = {}
        self._recipes: dict[int, Mapping[str, Any] | None] = {}
        self._types: dict[str, dict[int, None]] = {}
        types = self._types
        for key, node in self._nodes.items():
            name = node["type"]
            if name in types:
                types[name][key] = None
            else:
                types[name] = {key: None}
        self._order: list[int] | None = None
        self._incoming: dict[int, list[tuple[int, int]]] | None = None
        self._incoming_at = 0
        self._present: frozenset[str] = frozenset()
        self._types_at = -1

    # Reading

    def type(self, key: int) -> str:
        """LayerType name of a layer, as spelled in the file."""
        name: str = self._nodes[key]["type"]
        return name

    def name(self, key: int) -> str:
        """Name of a layer; may be empty."""
        name: str = self._nodes[key].get("name", "")
        return name

    def node(self, key: int) -> Mapping[str, Any]:
        """All attributes of a layer."""
        return self._nodes[key]

    def describe(self, key: int) -> str:
        """``layer 14 'relu_3'``."""
        return describe(self.graph, key)

    def param(self, key: int, name: str) -> Any:
        """A descriptor field, at its default where absent; KeyError where the type has none such."""
        return param(self.graph, key, name)

    def constants(self, key: int) -> FrozenDict:
        """Member tensors of a layer by field."""
        found: FrozenDict = self._nodes[key].get("constants") or EMPTY
        return found

    def outputs(self, key: int) -> tuple[TensorInfo | None, ...]:
        """TensorInfo per output slot."""
        found: tuple[TensorInfo | None, ...] = self._nodes[key].get("outputs", ())
        return found

    def info(self, source: Source) -> TensorInfo | None:
        """TensorInfo of an output slot, or None where the network lacks it."""
        outputs = self.outputs(source.layer)
        return outputs[source.slot] if source.slot < len(outputs) else None

    def tensor(self, key: int) -> Tensor | None:
        """The tensor of a Constant layer; None for any other layer."""
        found: Tensor | None = self.constants(key).get("input") if self.type(key) == "Constant" else None
        return found

    def inputs(self, key: int) -> tuple[tuple[int, Source], ...]:
        """(input slot, Source) of every connected input, in slot order."""
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = tuple(edges_into(self.graph, key))
        return found

    def feeders(self, key: int) -> Iterable[int]:
        """Keys of the layers that a layer reads, each once, in no promised order."""
        return self._pred[key].keys()

    def source(self, key: int, input_slot: int) -> Source | None:
        """What feeds an input slot, or None."""
        return next((source for slot, source in self.inputs(key) if slot == input_slot), None)

    def data_inputs(self, key: int) -> tuple[tuple[int, Source], ...]:
        """The inputs that are no parameters: what the items of a rule's braces match.

        Left out are Constants on `PARAMETER_SLOTS` and the constants of StandIns made here.
        """
        found = self._data_inputs.get(key)
        if found is None:
            found = self.inputs(key)
            kind = self._nodes[key]["type"]
            slots = PARAMETER_SLOTS.get(kind)
            if kind == "StandIn":
                recipe = self.recipe(key)
                found = found if recipe is None else found[: recipe["inputs"]]
            elif slots is not None and (len(found) != 1 or found[0][0] in slots):
                found = tuple(
                    [pair for pair in found if not (pair[0] in slots and self.type(pair[1].layer) == "Constant")]
                )
            self._data_inputs[key] = found
        return found

    def types_around(self, key: int) -> tuple[str, ...]:
        """The type of a layer, and those of the layers on its data inputs."""
        nodes = self._nodes
        kind = nodes[key]["type"]
        one = self.fed_by_one(key)
        if one is not None and kind != "StandIn":  # on slot 0 it is no parameter, whatever the types are
            return (kind, nodes[one[0]]["type"])
        return (kind, *[nodes[source[0]]["type"] for _, source in self.data_inputs(key)])

    def parameter_inputs(self, key: int) -> tuple[tuple[int, Source], ...]:
        """The inputs that `data_inputs` leaves out, in slot order."""
        data = set(self.data_inputs(key))
        return tuple(pair for pair in self.inputs(key) if pair not in data)

    def uses(self, key: int) -> tuple[Use, ...]:
        """Every use of a layer's outputs, Outputs among them, ordered by output slot."""
        found = self._uses.get(key)
        if found is None:
            found = self._uses[key] = tuple(consumers(self.graph, key))
        return found

    def used_by_only(self, key: int, layers: Collection[int]) -> bool:
        """Whether nothing but some layers reads a layer."""
        consumers = self._succ[key]
        return len(consumers) <= len(layers) and all(consumer in layers for consumer in consumers)

    def reads(self, key: int, kind: str) -> bool:
        """Whether a layer reads one of a type."""
        nodes = self._nodes
        return any(nodes[source]["type"] == kind for source in self._pred[key])

    def reading(self, keys: Iterable[int], kinds: Collection[str]) -> list[int]:
        """Those of some layers that read one of these types."""
        nodes, pred = self._nodes, self._pred
        found = []
        for key in keys:
            for source in pred[key]:
                if nodes[source]["type"] in kinds:
                    found.append(key)
                    break
        return found

    def reads_only(self, key: int, kind: str) -> bool:
        """Whether a layer reads something, and only layers of a type."""
        nodes = self._nodes
        for source in self._pred[key]:
            if nodes[source]["type"] != kind:
                return False
        return bool(self._pred[key])

    def only_source(self, key: int) -> Source | None:
        """What feeds a layer whose one input is on slot 0 and whose inputs are all connected; None of any other."""
        one = self.fed_by_one(key)
        return None if one is None or self._nodes[key].get("unconnected") else Source._make(one)

    def fed_by_one(self, key: int) -> tuple[int, int] | None:
        """Layer and output slot of the one connection that a layer has, where that is on slot 0; else None."""
        sources = self._pred[key]
        if len(sources) != 1:
            return None
        ((source, data),) = sources.items()
        slots = data["slots"]
        return (source, slots[0][0]) if len(slots) == 1 and slots[0][1] == 0 else None

    def recipe(self, key: int) -> Mapping[str, Any] | None:
        """The recipe of a StandIn that this project made, else None."""
        if self.type(key) != "StandIn":
            return None
        if key not in self._recipes:
            self._recipes[key] = read_recipe(self.graph, key)
        return self._recipes[key]

    def result(self, key: int) -> str | None:
        """The ``into`` name of a StandIn that this project made, else None."""
        recipe = self.recipe(key)
        return None if recipe is None else recipe["result"]

    def params(self, key: int) -> Mapping[str, Any] | None:
        """Descriptor of a layer as the node has it, None where it has none."""
        found: Mapping[str, Any] | None = self._nodes[key].get("params")
        return found

    def types(self) -> frozenset[str]:
        """The layer types that there are, in every spelling."""
        if self._types_at != len(self.changes):
            self._present = frozenset([name for name, keys in self._types.items() if keys])
            self._types_at = len(self.changes)
        return self._present

    def of_type(self, name: str) -> Iterable[int]:
        """Keys of the layers spelled so, in no promised order."""
        return self._types.get(name, {}).keys()

    def order(self) -> list[int]:
        """Every layer in canonical order, as the network stands now."""
        if self._order is None:
            self._order = canonical_order(self.graph, self._feeders())
        return self._order

    def _feeders(self) -> dict[int, list[tuple[int, int]]]:
        """What feeds each layer, as `canonical_order` walks it: renewed where edits were made since."""
        found = self._incoming
        if found is None:
            found = self._incoming = incoming(self.graph)
        else:
            for key in dict.fromkeys(self.changes[self._incoming_at :]):
                if key in self._nodes:
                    found[key] = feeders(self.graph, key)
                else:
                    found.pop(key, None)
        self._incoming_at = len(self.changes)
        return found

    # Changing

    def touch_all(self) -> None:
        """Note that something about the network as a whole is another, which may matter to any layer."""
        self._touch(*self._nodes)

    def _touch(self, *keys: int) -> None:
        self.revision += 1
        self._order = None
        self.changes += keys
        sources, data_inputs, uses, recipes = self._sources, self._data_inputs, self._uses, self._recipes
        for key in keys:
            sources.pop(key, None)
            data_inputs.pop(key, None)
            uses.pop(key, None)
            if recipes:
                recipes.pop(key, None)

    def _rename(self, old: str | None, new: str | None) -> None:
        if old is not None:
            self._counts[old] -= 1
            if not self._counts[old]:
                self.names.release(old)
        if new is not None:
            self._counts[new] += 1
            self.names.take(new)

    def add(
        self,
        type_name: str,
        name: str,
        outputs: tuple[TensorInfo | None, ...],
        params: FrozenDict = EMPTY,
        constants: FrozenDict = EMPTY,
    ) -> int:
        """Add a layer under a fresh key, not connected; returns the key."""
        key = next(self._fresh)
        self.graph.add_node(key, type=type_name, name=name, params=params, constants=constants, outputs=outputs)
        self._types.setdefault(type_name, {})[key] = None
        self._rename(None, name)
        self._touch(key)
        return key

    def add_constant(self, name: str, tensor: Tensor) -> int:
        """Add a Constant layer; its name is made unique; returns the key."""
        return self.add("Constant", self.names.unique(name), (tensor.info,), constants=FrozenDict(input=tensor))

    def set(self, key: int, **attributes: Any) -> None:
        """Set attributes of a layer (``type``, ``name``, ``params``, ``constants``, ``outputs``, ...)."""
        node = self._nodes[key]
        if "type" in attributes and attributes["type"] != node["type"]:
            del self._types[node["type"]][key]
            self._types.setdefault(attributes["type"], {})[key] = None
        if "name" in attributes:
            self._rename(node.get("name", ""), attributes["name"])
        node.update(attributes)
        self._touch(key)
        self._touch(*self._succ[key])

    def unset(self, key: int, *attributes: str) -> None:
        """Take attributes off a layer, where it has them."""
        for attribute in attributes:
            self._nodes[key].pop(attribute, None)
        self._touch(key)

    def connect(self, source: Source, target: int, input_slot: int) -> None:
        """Connect an output to a free input slot."""
        connect(self.graph, source.layer, target, source.slot, input_slot)
        self._touch(source.layer, target)

    def disconnect(self, target: int, input_slot: int) -> Source:
        """Free an input slot; returns what fed it."""
        source = disconnect(self.graph, target, input_slot)
        self._touch(source.layer, target)
        return source

    def rewire(self, key: int, inputs: Sequence[Source]) -> None:
        """Let a layer have these inputs, from slot 0 on, instead of those it has; costs what changes."""
        self._rewire(key, enumerate(inputs))

    def _rewire(self, key: int, inputs: Iterable[tuple[int, Source]]) -> None:
        former = list(self._pred[key])
        self.graph.remove_edges_from([(source, key) for source in former])
        slots: dict[int, list[tuple[int, int]]] = {}
        for number, source in inputs:
            slots.setdefault(source.layer, []).append((source.slot, number))
        self.graph.add_edges_from((source, key, {"slots": tuple(pairs)}) for source, pairs in slots.items())
        self._touch(key, *former, *slots)

    def remove(self, key: int) -> None:
        """Remove a layer and its connections."""
        neighbours = {*self._pred[key], *self._succ[key]}
        del self._types[self.type(key)][key]
        self._rename(self.name(key), None)
        self.graph.remove_node(key)
        self._touch(key, *neighbours)

    def take_over(self, key: int, layer: int, changes: Mapping[str, Any] = EMPTY) -> None:
        """Let ``layer`` stand where ``key`` stood: its key, its name, its consumers; ``key`` goes.

        The attributes and inputs of ``layer`` move to ``key``, so that whoever holds the key of a
        match's root still holds the key of its result. The outputs' TensorInfos of ``key`` stay.
        ``changes`` are attributes of the result in the place of those of ``layer``.
        """
        nodes, succ, pred = self.inside
        kept, moved = nodes[key], nodes.pop(layer)
        consumers, sources = succ.pop(layer), pred.pop(layer)
        touched = [key, *succ[key], layer, *consumers, *pred[key], *sources]
        for source in pred[key]:
            if source != layer:
                del succ[source][key]
        for target in consumers:
            if target not in (key, layer):
                del pred[target][layer]
        inputs: dict[int, dict[str, Any]] = {}
        for source, data in sources.items():
            if source == layer:
                continue
            del succ[source][layer]
            slots = data["slots"]
            edge = {"slots": tuple(slots) if len(slots) == 1 else tuple(sorted(slots, key=lambda pair: pair[::-1]))}
            inputs[source] = succ[source][key] = edge
        pred[key] = inputs
        types = self._types
        kind = moved["type"]
        del types[kind][layer]
        if kept["type"] != kind:
            del types[kept["type"]][key]
            types.setdefault(kind, {})[key] = None
        self._rename(moved.get("name", ""), None)
        name, outputs = kept.get("name", ""), kept.get("outputs", ())
        kept.pop("overrides", None)
        kept.update(moved)
        kept.update(changes)
        kept["name"], kept["outputs"] = name, outputs
        self._touch(*touched)

    def drop_unused(self, constants: Iterable[int]) -> None:
        """Remove those of the Constant layers that have no consumer left."""
        for key in constants:
            if key in self._nodes and self.type(key) == "Constant" and not self._succ[key]:
                self.remove(key)
