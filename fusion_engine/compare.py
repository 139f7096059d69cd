"""Whether two networks are the same, and if not, where they differ.

What a file keeps counts; what only one writing of it decides does not: indices, the order of
layers, ``base.layerType``, the dialect, shared or repeated bytes, absent against empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np

from fusion_engine.canonical import canonical_order, digest
from fusion_engine.content import INFO_FIELDS, info_values, params_values, value_key
from fusion_engine.errors import ModelError
from fusion_engine.naming import shortened
from fusion_engine.network import EMPTY, Network, describe, edges_into
from fusion_engine.tensor import Tensor
from fusion_engine.validation import MALFORMED, validate

__all__ = ["difference", "equal"]

_ABSENT = "absent"


def equal(a: Network, b: Network) -> bool:
    """Whether two networks are the same; see `difference` for what counts.

    Raises
    ------
    ModelError
        Where a network is too malformed to be compared.
    """
    return difference(a, b) is None


def difference(a: Network, b: Network) -> str | None:
    """The first difference of two networks, walking up from their Outputs; None where they are equal.

    Compared are: the order of inputs and outputs; per layer its type as spelled, name, binding id,
    every parameter after defaults, the TensorInfos, the constants by type, shape and bytes (NaN and
    -0 by their bits), overrides; what feeds each input slot; which layers are one and which are
    several alike; feature_versions; and the layers that reach no Output.

    Returns
    -------
    str or None
        Names the layers on both sides and both values.

    Raises
    ------
    ModelError
        Where a network is too malformed to be compared.

    Examples
    --------
    >>> from fusion_engine.network import new_network
    >>> a, b = new_network(), new_network()
    >>> for graph, key, binding_id in [(a, 0, 5), (b, 7, 6)]:
    ...     graph.add_node(key, type="Input", name="x", binding_id=binding_id)
    ...     graph.graph["inputs"] = (key,)
    >>> print(difference(a, b))
    layer 0 'x' and layer 7 'x': binding_id is 5 in the one and 6 in the other
    """
    try:
        if all(isinstance(graph, nx.DiGraph) and not graph.is_multigraph() for graph in (a, b)):
            return next(_Comparison(a, b).differences(), None)
    except MALFORMED as error:
        raise _malformed(a, b) or error from error
    raise _malformed(a, b) or TypeError("networks are compared")


def _malformed(a: Network, b: Network) -> ModelError | None:
    """What is wrong with the first of two networks that has a problem."""
    for which, graph in (("first", a), ("second", b)):
        for problem in validate(graph):
            return ModelError(f"the {which} network cannot be compared: {problem.message}", place=problem.place)
    return None


def _versus(what: str, a: Any, b: Any) -> str:
    return f"{what} is {shortened(repr(a))} in the one and {shortened(repr(b))} in the other"


class _Comparison:
    """A walk over two networks that pairs their layers one to one."""

    def __init__(self, a: Network, b: Network) -> None:
        self.a = a
        self.b = b
        self.pair: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.pending: list[tuple[int, int]] = []
        self.same: set[tuple[int, int]] = set()

    def differences(self) -> Iterator[str]:
        """Differences, the first of which is to be told: behind it the pairing may be wrong."""
        a, b = self.a.graph, self.b.graph
        versions = [tuple(graph.get("feature_versions", (1, 1, 1))) for graph in (a, b)]
        if versions[0] != versions[1]:
            yield _versus("feature_versions", *versions)
        for listed in ("inputs", "outputs"):
            keys = [tuple(graph.get(listed, ())) for graph in (a, b)]
            if len(keys[0]) != len(keys[1]):
                yield _versus(f"the number of {listed}", len(keys[0]), len(keys[1]))
            for number, (x, y) in enumerate(zip(*keys, strict=False)):
                yield from self._meet(x, y, f"{listed}[{number}]")
                yield from self._walk()
        yield from self._dead()

    def _walk(self) -> Iterator[str]:
        while self.pending:
            x, y = self.pending.pop()
            where = f"{describe(self.a, x)} and {describe(self.b, y)}"
            yield from (f"{where}: {what}" for what in self._layers(self.a.nodes[x], self.b.nodes[y]))
            yield from self._inputs(x, y, where)

    def _meet(self, x: int, y: int, where: str) -> Iterator[str]:
        """Pair two layers, or find one of them paired with another."""
        if x in self.pair or y in self.back:
            if self.pair.get(x) != y:
                ours = f"{describe(self.a, x)} in the one and {describe(self.b, y)} in the other"
                yield f"{where}: it is {ours}, of which {self._elsewhere(x, y)}"
            return
        self.pair[x], self.back[y] = y, x
        self.pending.append((x, y))

    def _elsewhere(self, x: int, y: int) -> str:
        if x in self.pair:
            return f"the first stands for {describe(self.b, self.pair[x])} of the other elsewhere"
        return f"the second stands for {describe(self.a, self.back[y])} of the one elsewhere"

    def _inputs(self, x: int, y: int, where: str) -> Iterator[str]:
        ours, theirs = dict(edges_into(self.a, x)), dict(edges_into(self.b, y))
        for slot in sorted({*ours, *theirs}):
            if slot not in ours or slot not in theirs:
                has, lacks = ("the one", "the other") if slot in ours else ("the other", "the one")
                yield f"{where}: input slot {slot} is connected in {has} and not in {lacks}"
                continue
            (source, output), (other, other_output) = ours[slot], theirs[slot]
            yield from self._meet(source, other, f"{where}: what feeds input slot {slot}")
            if output != other_output:
                yield f"{where}: {_versus(f'the output slot that feeds input slot {slot}', output, other_output)}"

    def _dead(self) -> Iterator[str]:
        """The layers that reach no Output: each has its equal; then how they are connected."""
        left, digests = [], []
        for graph, paired in ((self.a, self.pair), (self.b, self.back)):
            order = canonical_order(graph) if len(graph) > len(paired) else []
            left.append([key for key in order if key not in paired])
            digests.append(digest(graph, left[-1], [key for key in order if key in paired]))
        if len(left[0]) != len(left[1]):
            yield _versus("the number of layers that reach no Output", len(left[0]), len(left[1]))
        surplus = Counter(digests[0].values())
        surplus.subtract(digests[1].values())
        ours = next((key for key in left[0] if surplus[digests[0][key]] > 0), None)
        theirs = next((key for key in left[1] if surplus[digests[1][key]] < 0), None)
        if ours is not None and theirs is not None:
            why = next(self._layers(self.a.nodes[ours], self.b.nodes[theirs]), "what is above them differs")
            yield (
                f"of the layers that reach no Output, {describe(self.a, ours)} is in the one only, "
                f"and {describe(self.b, theirs)} in the other only: {why}"
            )
        for x, y in zip(*left, strict=False):
            for _ in (*self._meet(x, y, ""), *self._walk()):
                yield "the layers that reach no Output are alike one by one and not connected alike"

    # Two layers

    def _layers(self, x: Mapping[str, Any], y: Mapping[str, Any]) -> Iterator[str]:
        if x is y:
            return
        for what, absent in (("type", None), ("name", ""), ("binding_id", None)):
            ours, theirs = x.get(what, absent), y.get(what, absent)
            if ours != theirs:
                yield _versus(what, ours, theirs)
        ours, theirs = (tuple(node.get("unconnected") or ()) for node in (x, y))
        if ours != theirs:
            yield _versus("the list of unconnected input slots", ours, theirs)
        yield from self._params(x, y)
        yield from self._infos("output", x.get("outputs") or (), y.get("outputs") or ())
        yield from self._constants(x.get("constants") or EMPTY, y.get("constants") or EMPTY)
        yield from self._overrides(x.get("overrides") or EMPTY, y.get("overrides") or EMPTY)

    def _params(self, x: Mapping[str, Any], y: Mapping[str, Any]) -> Iterator[str]:
        known = (id(x.get("params")), id(y.get("params")))
        if known[0] == known[1] or known in self.same:
            return
        ours, theirs = (params_values(node["type"], node.get("params")) for node in (x, y))
        for name in {**ours, **theirs}:
            one, other = ours.get(name, _ABSENT), theirs.get(name, _ABSENT)
            if value_key(one) != value_key(other):
                yield _versus(f"parameter {name}", one, other)
        self.same.add(known)

    def _infos(self, what: str, x: Sequence[Any], y: Sequence[Any]) -> Iterator[str]:
        if len(x) != len(y):
            yield _versus(f"the number of {what}s", len(x), len(y))
        for number, (one, other) in enumerate(zip(x, y, strict=False)):
            yield from self._info(f"{what} {number}", one, other)

    @staticmethod
    def _info(what: str, x: Any, y: Any) -> Iterator[str]:
        if x is y:
            return
        for name, ours, theirs in zip(INFO_FIELDS, info_values(x), info_values(y), strict=True):
            if value_key(ours) == value_key(theirs):
                continue
            if isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs) > _SHORT:
                at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if value_key(a) != value_key(b))
                yield _versus(f"entry {at} of {name} of {what}", ours[at], theirs[at])
            else:
                yield _versus(f"{name} of {what}", ours, theirs)

    def _constants(self, x: Mapping[str, Tensor], y: Mapping[str, Tensor]) -> Iterator[str]:
        for field in sorted({*x, *y}):
            if field not in x or field not in y:
                has, lacks = ("the one", "the other") if field in x else ("the other", "the one")
                yield f"constant {field} is there in {has} and not in {lacks}"
                continue
            ours, theirs = x[field], y[field]
            yield from self._info(f"constant {field}", ours.info, theirs.info)
            if ours.memory != theirs.memory and ours.tobytes() != theirs.tobytes():
                yield f"the values of constant {field} differ: {_first_difference(ours, theirs)}"

    def _overrides(self, x: Mapping[Any, Any], y: Mapping[Any, Any]) -> Iterator[str]:
        for slot in sorted({*x, *y}):
            ours, theirs = x.get(slot, (False, None)), y.get(slot, (False, None))
            if bool(ours[0]) != bool(theirs[0]):
                yield _versus(f"isOverridden of input slot {slot}", ours[0], theirs[0])
            yield from self._info(f"the override of input slot {slot}", ours[1], theirs[1])


_SHORT = 8
"""Lists up to this length are shown whole."""


def _first_difference(x: Tensor, y: Tensor) -> str:
    """The first element in which two tensors of one type and shape differ by their bits."""
    ours, theirs = (np.frombuffer(tensor.tobytes(), np.uint8) for tensor in (x, y))
    number = int(np.flatnonzero(ours != theirs)[0]) // x.info.dtype.itemsize
    at = tuple(int(i) for i in np.unravel_index(number, x.info.shape))
    return _versus(f"element {list(at)}", x.data.reshape(-1)[number], y.data.reshape(-1)[number])
