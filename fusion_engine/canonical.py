"""The canonical order of a network's layers, which decides positions in files and the order of matching.

It does not depend on node keys or on the order in which nodes and edges were added: renumbering and
reordering a network changes nothing. Where layers reach an Output, connections alone decide, and
the cost is a walk. Only the others are told apart by what they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, TypeAlias

from fusion_engine.content import Digester
from fusion_engine.network import Network, inside
from fusion_engine.partition import refined_order

__all__ = ["canonical_order", "digest", "feeders", "incoming"]

_slot = itemgetter(0)


Feeders: TypeAlias = "Mapping[int, Sequence[tuple[int, ...]]]"
"""Per layer (input slot, source, ...) of what feeds it, by slot; a source may be there once or once for each slot."""


def canonical_order(graph: Network, fed_by: Feeders | None = None) -> list[int]:
    """Every layer once, in canonical order.

    The Inputs come first, in the order of ``graph.graph["inputs"]``. Then what the listed Outputs
    need: the post-order of a walk from the Outputs in their order, through the inputs of each layer
    by slot. Then layers that reach no listed Output (unlisted Inputs and Outputs among them), in the
    same way from the layers without consumers, those ordered by `digest`. Last the Outputs.

    Layers that reach no Output and have equal digests are ordered by how they share sources and
    consumers. What is left is interchangeable, so that its order shows nowhere; the limit is
    connected parts of such layers that are alike from every layer's view and yet not symmetric (see
    `fusion_engine.partition`).

    Parameters
    ----------
    graph
        The network.
    fed_by
        What `incoming` gives, or the connections of every layer by input slot, where that is known.

    Returns
    -------
    list of int
        Node keys. Sources come before their consumers in any network without cycles; in one with
        cycles the order is some order of all its layers.

    Examples
    --------
    >>> from fusion_engine.network import connect, new_network
    >>> graph = new_network()
    >>> for key, kind in [(5, "Output"), (7, "Floor"), (2, "Input")]:
    ...     graph.add_node(key, type=kind)
    >>> connect(graph, 2, 7), connect(graph, 7, 5)
    (None, None)
    >>> graph.graph.update(inputs=(2,), outputs=(5,))
    >>> canonical_order(graph)
    [2, 7, 5]
    """
    sources = incoming(graph) if fed_by is None else fed_by
    inputs = _listed(graph, "inputs", sources)
    outputs = [key for key in _listed(graph, "outputs", sources) if key not in inputs]
    order = list(inputs)
    seen = {*inputs, *outputs}
    for output in outputs:
        _walk([entry[1] for entry in sources[output]], sources, seen, order)
    if len(order) + len(outputs) < len(sources):
        roots = _dead_roots(graph, [key for key in sources if key not in seen], order)
        _walk(roots, sources, seen, order)
    order += outputs
    return order


def digest(graph: Network, keys: Collection[int], order: Sequence[int]) -> dict[int, bytes]:
    """Digests of layers and all above them, for layers that reach no Output.

    Parameters
    ----------
    graph
        The network.
    keys
        The layers to digest; with a layer all its consumers must be among them.
    order
        The canonical order of the other layers that they read: these count by their position.

    Returns
    -------
    dict
        16 bytes per key: of type, name, parameters with defaults, TensorInfos, bytes of constants,
        and per input slot the digest or position of its source. A layer on a cycle or below one
        counts as itself there.
    """
    position = {key: number for number, key in enumerate(order)}
    digester = Digester(graph)
    found: dict[int, bytes] = {}

    def of(key: int) -> bytes:
        above = [
            (i, o, position[source] if source in position else found.get(source, b""))
            for source, data in graph.pred[key].items()
            for o, i in _pairs(data)
        ]
        above.sort(key=repr)
        return blake2b(digester.layer(key) + repr(above).encode(), digest_size=16).digest()

    ready, cyclic = _sources_first(graph, keys)
    for key in ready:
        found[key] = of(key)
    found.update([(key, of(key)) for key in cyclic])
    return found


def _listed(graph: Network, name: str, known: Mapping[int, Any]) -> dict[int, None]:
    """The listed Inputs or Outputs that exist, each once, in their order."""
    listed = graph.graph.get(name, ())
    found: dict[int, None] = {}
    for key in listed if isinstance(listed, tuple | list) else ():
        if isinstance(key, int) and key in known:
            found[key] = None
    return found


def incoming(graph: Network) -> dict[int, list[tuple[int, int]]]:
    """Per layer (first input slot, source) of every layer that feeds it, by slot."""
    found: dict[int, list[tuple[int, int]]] = {key: [] for key in graph}
    several = []
    for source, targets in inside(graph).succ.items():
        for target, data in targets.items():
            entries = found[target]
            entries.append((_first_slot(data), source))
            if len(entries) == 2:
                several.append(entries)
    for entries in several:
        entries.sort(key=_slot)
    return found


def feeders(graph: Network, layer: int) -> list[tuple[int, int]]:
    """What `incoming` has for one layer."""
    own: Any = graph
    found = [(_first_slot(data), source) for source, data in own._pred[layer].items()]
    if len(found) > 1:
        found.sort(key=_slot)
    return found


def _first_slot(data: Mapping[str, Any]) -> int:
    """The first input slot of an edge's pairs, whatever they are."""
    slots: Any = data.get("slots")
    try:
        slot = slots[0][1] if len(slots) == 1 else min(pair[1] for pair in slots)
    except (TypeError, IndexError, KeyError, ValueError):
        slot = None
    return slot if type(slot) is int else min((pair[1] for pair in _pairs(data)), default=0)


def _pairs(data: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The (output slot, input slot) pairs of an edge; what is no such pair is left out."""
    slots = data.get("slots")
    if not isinstance(slots, tuple | list):
        return []
    return [
        (pair[0], pair[1])
        for pair in slots
        if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(n, int) for n in pair)
    ]


def _walk(roots: Iterable[int], fed_by: Feeders, seen: set[int], order: list[int]) -> None:
    """Append to ``order`` the post-order of the walk upwards from each root, past what was seen.

    Most layers have one source: a run of these is walked at once.
    """
    for root in roots:
        path: list[int] = []
        forks: list[tuple[int, Iterator[tuple[int, ...]]]] = [(0, iter([(0, root)]))]
        """Length of the path up to a layer of several sources, and the sources still to be met."""
        while forks:
            length, sources = forks[-1]
            done = path[length:]
            del path[length:]
            done.reverse()
            order += done
            for entry in sources:
                if entry[1] not in seen:
                    break
            else:
                forks.pop()
                continue
            key = entry[1]
            while key not in seen:
                seen.add(key)
                path.append(key)
                above = fed_by[key]
                if len(above) != 1:
                    forks.append((len(path), iter(above)))
                    break
                key = above[0][1]


def _dead_roots(graph: Network, dead: Collection[int], order: Sequence[int]) -> list[int]:
    """The layers to walk from so that all dead ones are met: the sinks, then what only cycles reach."""
    digests = digest(graph, dead, order)
    if len(set(digests.values())) == len(digests):
        ranked = sorted(digests, key=digests.__getitem__)
    else:
        ranked = _ranked(digests, _connections(graph, dead))
    return [key for key in ranked if not graph.succ[key]] + ranked


_Connections: TypeAlias = "dict[int, list[tuple[int, tuple[int, int, int]]]]"
"""Per layer (other layer, (0 its consumer or 1 its source, output slot, input slot))."""


def _ranked(digests: Mapping[int, bytes], connections: _Connections) -> list[int]:
    """Layers by digest; those that have one digest by the connected part they lie in and their place there."""
    ranks: dict[int, tuple[bytes, bytes, int, int]] = {}
    for number, part in enumerate(_parts(connections)):
        cells: dict[bytes, list[int]] = {}
        for key in part:
            cells.setdefault(digests[key], []).append(key)
        order = refined_order([cells[found] for found in sorted(cells)], connections)
        position = {key: at for at, key in enumerate(order)}
        told = [(digests[key], sorted((label, position[other]) for other, label in connections[key])) for key in order]
        certificate = blake2b(repr(told).encode(), digest_size=16).digest()
        ranks.update((key, (digests[key], certificate, number, position[key])) for key in part)
    return sorted(ranks, key=ranks.__getitem__)


def _parts(connections: _Connections) -> Iterator[list[int]]:
    """The connected parts."""
    seen: set[int] = set()
    for key in connections:
        if key not in seen:
            seen.add(key)
            part = [key]
            for member in part:
                for other, _ in connections[member]:
                    if other not in seen:
                        seen.add(other)
                        part.append(other)
            yield part


def _connections(graph: Network, keys: Collection[int]) -> _Connections:
    """The connections among layers, noted at both ends."""
    found: _Connections = {key: [] for key in keys}
    for source in keys:
        for target, data in graph.succ[source].items():
            for o, i in _pairs(data) if target in found else ():
                found[source].append((target, (1, o, i)))
                found[target].append((source, (0, o, i)))
    return found


def _sources_first(graph: Network, keys: Collection[int]) -> tuple[list[int], list[int]]:
    """The layers with sources before their consumers; and those that are on a cycle or below one."""
    waiting = dict.fromkeys(keys, 0)
    for key in waiting:
        for source in graph.pred[key]:
            waiting[key] += source in waiting
    ready = [key for key, count in waiting.items() if not count]
    for key in ready:
        for target in graph.succ[key]:
            if target in waiting:
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
    return ready, [key for key, count in waiting.items() if count]
