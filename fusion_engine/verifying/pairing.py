"""Which layers of two networks stand for each other.

A pair says that both layers give the same values. What is proved with pairs rests on pairs that are
checked themselves, so a wrong one makes work or an unfounded alarm, never a false proof. Certain by
what `fuse` promises are layers with the same key and name that no fusion consumed below its root, and
Inputs and Outputs with the same binding id. Guesses are layers whose name is unique in both networks,
and layers that hold the same and are connected alike to a pair: those that do not prove true can be dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

from fusion_engine.content import info_values, params_values, value_key
from fusion_engine.network import EMPTY, Network, consumers, edges_into
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo

__all__ = ["Pairing", "value_numbers"]


class Pairing:
    """Pairs of layers of two networks, one to one. Constants are in none: their values are known.

    Parameters
    ----------
    before, after
        The networks.
    order
        The layers of ``before``, in canonical order.
    shared
        Keys that mean the same layer in both networks; None where nothing is known of that, and names tell.

    Attributes
    ----------
    forward, backward
        Key in ``before`` to key in ``after``, and back.
    guesses
        Those keys in ``before`` that are paired by guess.
    """

    def __init__(
        self, before: Network, after: Network, order: Iterable[int], shared: Iterable[int] | None = None
    ) -> None:
        self.before, self.after = before, after
        self.forward: dict[int, int] = {}
        self.backward: dict[int, int] = {}
        self._meanings: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
        self._bytes: dict[Hashable, bytes] = {}
        self._pending: deque[tuple[int, int]] = deque()
        self._by_key(sorted(shared or ()))
        self._by("binding_id", ("Input", "Output"), order)
        certain = set(self.forward)
        if shared is None:
            self._by("name", None, order)
        while self._pending:
            self._spread(*self._pending.popleft())
        self.guesses = self.forward.keys() - certain

    def drop(self, guesses: Iterable[int]) -> None:
        """Take back pairs, by their keys in ``before``."""
        for key in guesses:
            del self.backward[self.forward.pop(key)]
            self.guesses.discard(key)

    def holds_same(self, ours: int, theirs: int) -> bool:
        """Whether two layers of one type compute the same of the same inputs: names and connections aside.

        A StandIn computes what its name says.
        """
        x, y = self.before.nodes[ours], self.after.nodes[theirs]
        if x["type"] != y["type"] or _function(x) != _function(y):
            return False
        if x["type"] == "DepthwiseConvolution2d" and self._scheme(self.before) != self._scheme(self.after):
            return False  # the same member tensor means other weights
        fields = ("params", "constants", "outputs", "binding_id", "overrides")
        if all(x.get(field) is y.get(field) for field in fields):
            return True
        return self._meaning(0, ours) == self._meaning(1, theirs)

    @staticmethod
    def _scheme(graph: Network) -> Any:
        return graph.graph.get("feature_versions", (1, 1, 1))[1]

    def _meaning(self, side: int, key: int) -> bytes:
        """Digest of a layer's type, parameters, tensors and TensorInfos; renamed data types by their present names."""
        if key not in self._meanings[side]:
            node = (self.after if side else self.before).nodes[key]
            constants = node.get("constants") or EMPTY
            overrides = node.get("overrides") or EMPTY
            content = (
                node["type"],
                _function(node),
                [(name, value_key(value)) for name, value in params_values(node["type"], node.get("params")).items()],
                [_kind(info) for info in node.get("outputs") or ()],
                [(field, _kind(constants[field].info), self._digest(constants[field])) for field in sorted(constants)],
                [(slot, _kind(overrides[slot][1])) for slot in sorted(overrides) if overrides[slot][0]],
                node.get("binding_id"),
            )
            self._meanings[side][key] = blake2b(repr(content).encode("utf-8", "backslashreplace")).digest()
        return self._meanings[side][key]

    def _digest(self, tensor: Tensor) -> bytes:
        """Digest of a tensor's bytes; shared ones are read once."""
        if tensor.memory not in self._bytes:
            self._bytes[tensor.memory] = blake2b(tensor.tobytes(), digest_size=16).digest()
        return self._bytes[tensor.memory]

    def _meet(self, ours: int, theirs: int) -> None:
        ends = ("Input", "Output", "Constant")
        kinds = {self.before.nodes[ours]["type"], self.after.nodes[theirs]["type"]}
        if ours in self.forward or theirs in self.backward or "Constant" in kinds:
            return
        if len(kinds) > 1 and not kinds.isdisjoint(ends):
            return
        self.forward[ours], self.backward[theirs] = theirs, ours
        self._pending.append((ours, theirs))

    def _by_key(self, shared: Iterable[int]) -> None:
        for key in shared:
            if self.before.nodes[key].get("name", "") == self.after.nodes[key].get("name", ""):
                self._meet(key, key)

    def _by(self, attribute: str, types: tuple[str, ...] | None, order: Iterable[int]) -> None:
        """Pair layers in which an attribute is set and unique in both networks."""

        def values(graph: Network) -> dict[Hashable, list[int]]:
            found: dict[Hashable, list[int]] = {}
            for key, node in graph.nodes(data=True):
                if types is None or node["type"] in types:
                    kind = node["type"] if types is not None else None
                    found.setdefault((kind, node.get(attribute)), []).append(key)
            return found

        ours, theirs = values(self.before), values(self.after)
        for key in order:
            node = self.before.nodes[key]
            name = (node["type"] if types is not None else None, node.get(attribute))
            if name[1] not in (None, "") and len(ours.get(name, ())) == len(theirs.get(name, ())) == 1:
                self._meet(key, theirs[name][0])

    def _spread(self, ours: int, theirs: int) -> None:
        """Pair the layers around a pair that hold the same and are connected to it alike."""
        if self.holds_same(ours, theirs):
            sources = dict(edges_into(self.after, theirs))
            for slot, source in edges_into(self.before, ours):
                other = sources.get(slot)
                if other is not None and other.slot == source.slot and self._free(source.layer, other.layer):
                    self._meet(source.layer, other.layer)
        below = self._readers(1, self.after, theirs)
        for use, readers in self._readers(0, self.before, ours).items():
            others = below.get(use, [])
            if len(readers) == len(others) == 1:
                self._meet(readers[0], others[0])

    def _free(self, ours: int, theirs: int) -> bool:
        taken = ours in self.forward or theirs in self.backward
        return not taken and self.holds_same(ours, theirs) and self._weighed(0, ours) == self._weighed(1, theirs)

    def _weighed(self, side: int, key: int) -> Hashable:
        """What a layer holds, the Constants that feed it among it."""
        graph = self.after if side else self.before
        fed = [(slot, source.layer) for slot, source in edges_into(graph, key)]
        constants = [(slot, self._meaning(side, at)) for slot, at in fed if graph.nodes[at]["type"] == "Constant"]
        return (self._meaning(side, key), tuple(constants))

    def _readers(self, side: int, graph: Network, key: int) -> dict[Hashable, list[int]]:
        """The layers that read a layer and are in no pair, by slots and by what they hold."""
        paired = self.backward if side else self.forward
        found: dict[Hashable, list[int]] = {}
        for use in consumers(graph, key):
            if use.layer not in paired:
                found.setdefault((use.slot, use.input_slot, self._weighed(side, use.layer)), []).append(use.layer)
        return found


def value_numbers(graph: Network, order: Iterable[int]) -> dict[int, int]:
    """A number per layer, the same for layers that must give the same values.

    These are of one type, have the same parameters and TensorInfos, share their tensors' memory, and
    read the same values.

    Parameters
    ----------
    graph
        The network.
    order
        Its layers, sources before consumers.
    """
    known: dict[Hashable, int] = {}
    found: dict[int, int] = {}
    for key in order:
        node = graph.nodes[key]
        content: Hashable = key
        if node["type"] not in ("Input", "Output") and graph.in_degree(key):
            content = _content(node, tuple([(i, found[s], o) for i, (s, o) in edges_into(graph, key)]))
        found[key] = known.setdefault(content, len(known))
    return found


def _kind(info: TensorInfo | None) -> Hashable:
    """What makes tensors hold the same numbers in the same way."""
    if info is None:
        return None
    quantization = () if info.canonical_type in FLOATS else info.quantization
    return (info.known, info.shape, info.canonical_type, value_key(quantization))


def _function(node: Mapping[str, Any]) -> str:
    """What nothing but its name says of a layer: the function of a StandIn."""
    return str(node.get("name", "")) if node["type"] == "StandIn" else ""


def _content(node: Mapping[str, Any], sources: tuple[tuple[int, int, int], ...]) -> Hashable:
    params = params_values(node["type"], node.get("params"))
    constants = node.get("constants") or EMPTY
    overrides = node.get("overrides") or EMPTY
    return (
        node["type"],
        _function(node),
        sources,
        repr([(name, value_key(value)) for name, value in params.items()]),
        tuple([repr(value_key(info_values(info))) for info in node.get("outputs") or ()]),
        tuple([(field, constants[field].memory, repr(constants[field].info)) for field in sorted(constants)]),
        tuple([(slot, _kind(overrides[slot][1])) for slot in sorted(overrides) if overrides[slot][0]]),
    )
