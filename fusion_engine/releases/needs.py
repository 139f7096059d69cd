"""What a network asks of a release, and what of that a release does not have.

A network is walked once; its needs are then held against as many releases as one likes. Descriptors
may have the field names of any dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as kept
from functools import cache
from typing import Any, NamedTuple

from fusion_engine.network import EMPTY, Network, Storage, default_value, describe, edges_into, inside
from fusion_engine.releases.facts import WEIGHT_TYPES, ReaderFault, Release, releases, since
from fusion_engine.schema import LayerType, Schema, Table, schema
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["MOST_NAMED", "Need", "Needs", "Obstacle", "needs_of"]

MOST_NAMED = 3
"""Layers that a message names; `Obstacle.layers` has all."""


@dataclass(frozen=True)
class Obstacle:
    """What keeps a release from reading a network as it is meant.

    Attributes
    ----------
    reason
        What is in the way.
    since
        The first release that has what is missing; None where no later one mends it.
    layers
        Keys of the layers it is about; empty where it is about the whole network.
    places
        The same layers as messages name them.
    """

    reason: str
    since: str | None = None
    layers: tuple[int, ...] = ()
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        later = "" if self.since is None else f" (possible since {self.since})"
        if not self.places:
            return f"{self.reason}{later}"
        named = ", ".join(self.places[:MOST_NAMED])
        more = len(self.places) - MOST_NAMED
        return f"{self.reason}{later}: {named}" + (f" and {more} more" if more > 0 else "")


class Need(NamedTuple):
    """A need of a layer: its kind, and what is needed.

    ``layers``, ``fields``, ``values``: names as in `Release`. ``form``: a layer type and where its
    weights are (``members``, ``inputs``, ``computed``). ``fault``: a `ReaderFault` that it meets.
    ``descriptor``: a layer type whose descriptor is missing. ``constant``, ``depthwise``, ``untagged``,
    ``override``: there is such a layer, the last one with an override without a TensorInfo. ``enum``: a
    value that no release has.
    """

    kind: str
    name: Any
    detail: str = ""


@dataclass
class Needs:
    """The needs of a network by layer type, and the layers that have them, in the order in which they were met."""

    graph: Network
    found: dict[tuple[str, Need], list[int]]
    _named: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[str, ...]]] = kept(
        default_factory=dict, repr=False, compare=False
    )

    def obstacles(self, release: Release, *, numbering: bool = True, written: bool = False) -> tuple[Obstacle, ...]:
        """What a release lacks.

        Parameters
        ----------
        release
            The release.
        numbering
            Whether the network's dialect counts, too: else it is going to be that of the release.
        written
            Whether it is about the file that `save` writes, not about that which was read: every constant
            gets its payload's type, every layer a name, and layers are stored in order.
        """
        graph = self.graph
        found = []
        if numbering and not _same_numbering(graph, release):
            dialect = graph.graph.get("dialect", "current")
            found.append(Obstacle(f"its layers are numbered as in the {dialect} dialect"))
        bindings, layout, as_inputs = graph.graph.get("feature_versions", (1, 1, 1))
        if bindings >= 1 and not release.binding_ids and (graph.graph.get("inputs") or graph.graph.get("outputs")):
            found.append(
                Obstacle("its inputIds and outputIds are binding ids, and the reader takes them as indices", "20.02")
            )
        if not written:
            found += _stored(graph, release)
        lacking: dict[tuple[str, str | None], dict[int, None]] = {}
        for (kind, need), keys in self.found.items():
            lack = None
            if need.kind == "untagged" and written:
                continue
            if need.kind == "layers" or kind in release.layers:
                lack = _lack(need, release, layout, as_inputs)
            if lack is not None:
                lacking.setdefault(lack, {}).update(dict.fromkeys(keys))
        for (reason, first), concerned in lacking.items():
            found.append(Obstacle(reason, first, *self._places(tuple(sorted(concerned)))))
        return tuple(found)

    def _places(self, layers: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Layers and how messages name them: one object for all releases, since reports keep them."""
        if layers not in self._named:
            self._named[layers] = (layers, tuple(describe(self.graph, key) for key in layers))
        return self._named[layers]


def _stored(graph: Network, release: Release) -> Iterator[Obstacle]:
    """What a reader aborts on in the file that a network was read from."""
    storage = graph.graph.get("storage")
    if not isinstance(storage, Storage):
        return
    for layers, reason in (
        (storage.unnamed, "a layer without a layerName, which readers crash on"),
        (storage.misplaced, "a layer whose input readers look for at a position where no layer with outputs is stored"),
    ):
        present = tuple(key for key in layers if key in graph)
        if present:
            yield Obstacle(reason, None, present, tuple(describe(graph, key) for key in present))
    if release.zero_first and not storage.first:
        yield Obstacle("the layer with index 0 is not the first of the file, and the reader aborts on that")


def needs_of(graph: Network) -> Needs:
    """What a network needs, from its layers in ascending order of their keys."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for key in sorted(graph):
        alike.setdefault(_signature(graph, key), []).append(key)
    found: dict[tuple[str, Need], list[int]] = {}
    for keys in alike.values():
        for need in dict.fromkeys(_layer(graph, keys[0])):
            found.setdefault((graph.nodes[keys[0]]["type"], need), []).extend(keys)
    for keys in found.values():
        keys.sort()
    return Needs(graph, found)


def _signature(graph: Network, key: int) -> tuple[Any, ...]:
    """Equal for layers that have the same needs: all that `_layer` looks at, immutable objects by their ids."""
    node = inside(graph).nodes[key]
    kind = node["type"]
    if kind not in schema().layers:
        return (kind,)
    constants, overrides = node.get("constants") or EMPTY, node.get("overrides") or EMPTY
    return (
        kind,
        id(node.get("params")),
        tuple(map(id, node.get("outputs", ()))),
        tuple([(field, id(tensor.info), tensor.untagged) for field, tensor in constants.items()]),
        tuple([(bool(overridden), id(info)) for overridden, info in overrides.values()]),
        tuple([fault for fault in _faults().get(kind, ()) if fault.concerns(graph, key)]),
        tuple(_weights(graph, key, kind)) if kind in WEIGHT_TYPES else (),
    )


def _layer(graph: Network, key: int) -> Iterator[Need]:
    node = graph.nodes[key]
    kind = schema().layers.get(node["type"])
    yield Need("layers", node["type"])
    if kind is None:
        return
    for fault in _faults().get(kind.name, ()):
        if fault.concerns(graph, key):
            yield Need("fault", fault)
    params = node.get("params")
    if kind.descriptor is not None and params is None:
        yield Need("descriptor", kind.name)
    elif kind.descriptor is not None:
        yield from _descriptor(kind.descriptor, params, f"{kind.name}Layer.descriptor")
    yield from _members(node.get("constants") or EMPTY, kind)
    for info in node.get("outputs", ()):
        yield from _info(info)
    for overridden, info in (node.get("overrides") or EMPTY).values():
        if overridden:
            yield Need("fields", "InputSlot.isOverridden", "an overridden TensorInfo on an input slot")
            if info is None:
                yield Need("override", True)
        yield from _info(info)
    yield from _kind(graph, key, kind)


def _members(constants: Mapping[str, Tensor], kind: LayerType) -> Iterator[Need]:
    for path in kind.tensors:
        tensor = constants.get(path[-1])
        if tensor is not None:
            holder = kind.table.name if len(path) == 1 else kind.table.by_name[path[0]].type
            yield Need("fields", f"{holder}.{path[-1]}", f"the tensor {path[-1]} of a {kind.name}")
            if tensor.untagged:
                yield Need("untagged", True)
            yield from _info(tensor.info)


def _kind(graph: Network, key: int, kind: LayerType) -> Iterator[Need]:
    if kind.name == "Constant":
        yield Need("constant", True)
    if kind.name == "DepthwiseConvolution2d":
        yield Need("depthwise", True)
    if kind.name in WEIGHT_TYPES:
        yield from _weights(graph, key, kind.name)


@cache
def _faults() -> dict[str, tuple[ReaderFault, ...]]:
    """The faults of all releases by layer type."""
    found: dict[str, dict[ReaderFault, None]] = {}
    for release in releases():
        for fault in release.faults:
            found.setdefault(fault.layer, {})[fault] = None
    return {layer: tuple(faults) for layer, faults in found.items()}


def _descriptor(outermost: Table, values: Any, place: str) -> Iterator[Need]:
    """What fields that are not at their defaults need; defaults are what older readers do."""
    facts = schema()
    pending = [(outermost, values)]
    while pending:
        table, given = pending.pop()
        for field in table.fields:
            name = field.name if field.name in given or field.former is None else field.former
            if name not in given:
                continue
            value = given[name]
            if field.kind == "table" and facts.tables[field.type].wrapped is None:
                pending.append((facts.tables[field.type], value))
            if value == default_value(field, facts):
                continue
            yield Need("fields", place, f"a descriptor of {place.removesuffix('Layer.descriptor')} that says something")
            yield Need("fields", f"{table.name}.{field.name}", f"{field.name} {_shown(value)} in a {table.name}")
            if field.kind == "enum":
                yield _enum(field.type, value)


def _enum(name: str, value: Any) -> Need:
    if isinstance(value, str):
        return Need("values", f"{name}.{value}", f"the {name} {value}")
    return Need("enum", f"{name} {value}")


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= 40 else f"{text[:37]}..."


def _info(info: TensorInfo | None) -> Iterator[Need]:
    if info is None:
        return
    yield _enum("DataType", info.data_type)
    if info.quantization_scales:
        yield Need("fields", "TensorInfo.quantizationScales", "per-axis quantization")
    if info.dimensionality != 1:
        what = "a scalar" if info.dimensionality == 2 else "a shape of unknown rank"
        yield Need("fields", "TensorInfo.dimensionality", what)
    if not all(info.dimension_specificity):
        yield Need("fields", "TensorInfo.dimensionSpecificity", "extents that are not known")


def _weights(graph: Network, key: int, kind: str) -> Iterator[Need]:
    held = graph.nodes[key].get("constants") or EMPTY
    fed = {slot: source.layer for slot, source in edges_into(graph, key)}
    for field, slot in (("weights", 1), ("biases", 2)):
        if field in held:
            yield Need("form", kind, "members")
        elif slot in fed:
            constant = graph.nodes[fed[slot]]["type"] == "Constant"
            yield Need("form", kind, "inputs" if constant else "computed")


# What of it a release lacks


def _lack(need: Need, release: Release, layout: int, as_inputs: int) -> tuple[str, str | None] | None:
    """Why a need is not met and since when it is, or None."""
    kind, name, detail = need
    match kind:
        case "layers" if name not in release.layers:
            return f"{name}: there is no such layer", since("layers", name)
        case "fields" if name not in release.fields:
            return detail, since("fields", name)
        case "values" if name not in release.values:
            return detail, since("values", name)
        case "fault" if name in release.faults:
            mended = next((r.name for r in releases()[release.number :] if name not in r.faults), None)
            return f"{name.layer} that {name.does}", mended
        case "descriptor" if f"{name}Layer.descriptor" in release.fields:
            return f"{name} without the descriptor that the reader wants", None
        case "untagged":
            return "a constant without its payload's type, as Arm NN 20.08 writes int8: no release reads it", None
        case "override":
            return "an input slot whose TensorInfo is overridden, and there is no other", None
        case "enum":
            return f"{name}, which no release up to {releases()[-1].name} has", None
        case "constant" if release.permutes and not layout:
            return "Constant layers, which the reader permutes where weightsLayoutScheme is 0", None
        case "depthwise" if layout and not release.layout:
            return "depthwise weights [1,H,W,I*M] (weightsLayoutScheme 1)", _since_form(lambda r: r.layout >= 1)
        case "form":
            return _lack_of_form(name, detail, release, as_inputs)
    return None


def _lack_of_form(name: str, present: str, release: Release, as_inputs: int) -> tuple[str, str | None] | None:
    wanted = release.form(name, as_inputs)
    if wanted == ("inputs" if present == "computed" else present):
        return None
    if present == "members":
        return f"{name} that holds its weights itself, and the reader looks for them on input slots", None
    what = "are computed by another layer" if present == "computed" else "come on input slots"
    if name in release.on_inputs:
        return f"{name} whose weights {what}, and constantTensorsAsInputs is 0", None
    return f"{name} whose weights or bias {what}", _since_form(lambda r: name in r.on_inputs)


def _since_form(has: Any) -> str | None:
    return next((release.name for release in releases() if has(release)), None)


def _same_numbering(graph: Network, release: Release) -> bool:
    """Whether a release reads the network's layers as what they are: tags and descriptors' slots agree."""
    ours, theirs = schema(graph.graph.get("dialect", "current")), schema(release.dialect)
    if ours is theirs:
        return True
    kinds = {node["type"] for _, node in graph.nodes(data=True)}
    return all(_wire(ours, kind) == _wire(theirs, kind) for kind in kinds if kind in theirs.layers)


def _wire(facts: Schema, kind: str) -> Any:
    """What a reader of a dialect goes by: tag, and slots of the fields that every dialect with this one has."""
    layer = facts.layers.get(kind)
    if layer is None:
        return None
    fields = () if layer.descriptor is None else layer.descriptor.fields
    return layer.tag, tuple((field.former or field.name, field.slot) for field in fields if field.name in _COMMON)


_COMMON = ("biasEnabled", "dataLayout", "padLeft", "strideX")
"""Fields whose slots tell the dialects' descriptors apart: those of convolutions moved in 19.05."""
