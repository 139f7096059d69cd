"""What was fused, as groups of layers to be shaded: from the records of `fuse`, recipes and name prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusion_engine.engine import Fusion, LayerRef, Refusal
from fusion_engine.group import group_of
from fusion_engine.network import Network
from fusion_engine.recipes import read_recipe

__all__ = ["FusedGroup", "Shading", "records_of", "refusals_of", "shade"]


@dataclass(frozen=True)
class FusedGroup:
    """Layers that fusions turned into one thing, or into none.

    Attributes
    ----------
    fusions
        What was done, in order.
    layers
        Every layer that took part, each once: keys in the graph given to `fuse`, and those of layers
        that an earlier fusion of the group had made.
    """

    fusions: tuple[Fusion, ...]
    layers: tuple[int, ...]

    @property
    def rule(self) -> str:
        """The rule that came last: the one that gives the group its colour."""
        return self.fusions[-1].rule

    @property
    def result(self) -> str:
        """What came out in the end."""
        return self.fusions[-1].result


@dataclass(frozen=True)
class Shading:
    """Which layers are shaded, and how.

    Attributes
    ----------
    groups
        In the order of their first fusions.
    rules
        Names of all rules that fired, in the order in which they first did: a rule's place here is
        the number of its colour.
    group_of, rule_of
        By layer: the place of its group in ``groups``, and the name of the last rule that took it.
    """

    groups: tuple[FusedGroup, ...] = ()
    rules: tuple[str, ...] = ()
    group_of: dict[int, int] = field(default_factory=dict)
    rule_of: dict[int, str] = field(default_factory=dict)

    def colour_of(self, key: int) -> int | None:
        """Number of a layer's colour; None where it is not shaded."""
        return self.rules.index(self.rule_of[key]) if key in self.rule_of else None


def shade(graph: Network, fusions: Sequence[Fusion] = ()) -> Shading:
    """The shading of a network in which, or from which, something was fused.

    Parameters
    ----------
    graph
        The network. Opaque layers and groups in it that no record tells of are shaded by what their
        recipes and name prefixes tell; a prefix names the group, not the rule.
    fusions
        The records of `fuse`. Fusions that share a layer are one group.
    """
    recorded = {layer.index for fusion in fusions for layer in fusion.layers}
    every = [*_carried(graph, recorded), *fusions]
    rules = tuple(dict.fromkeys(fusion.rule for fusion in every))
    groups = _connected(every)
    group_of_layer = {key: number for number, group in enumerate(groups) for key in group.layers}
    rule_of_layer = {layer.index: fusion.rule for fusion in every for layer in fusion.layers}
    return Shading(groups, rules, group_of_layer, rule_of_layer)


def records_of(graph: Network) -> tuple[Fusion, ...]:
    """What ``graph["fusions"]`` says; nothing where a user has put something else there."""
    found = graph.graph.get("fusions", ())
    return tuple(one for one in found if isinstance(one, Fusion)) if isinstance(found, tuple | list) else ()


def refusals_of(graph: Network) -> tuple[Refusal, ...]:
    """What ``graph["refusals"]`` says; nothing where a user has put something else there."""
    found = graph.graph.get("refusals", ())
    return tuple(one for one in found if isinstance(one, Refusal)) if isinstance(found, tuple | list) else ()


def _carried(graph: Network, recorded: set[int]) -> list[Fusion]:
    """Opaque layers and groups of a network as fusions, but those of layers that records tell of."""
    found: list[Fusion] = []
    grouped: dict[tuple[str, int], list[LayerRef]] = {}
    for key in sorted(graph.nodes):
        if key in recorded:
            continue
        name, kind = graph.nodes[key].get("name", ""), graph.nodes[key]["type"]
        layer = LayerRef(key, name, kind)
        group = group_of(name)
        if group is not None:
            grouped.setdefault((group.result, group.counter), []).append(layer)
        recipe = read_recipe(graph, key) if kind == "StandIn" else None
        if recipe is not None:
            found.append(Fusion(recipe["rule"], recipe["result"], (layer,)))
    return found + [Fusion(result, result, tuple(layers)) for (result, _), layers in grouped.items()]


def _connected(fusions: Sequence[Fusion]) -> tuple[FusedGroup, ...]:
    """Fusions gathered by the layers they share, each group's in their order."""
    parents = list(range(len(fusions)))

    def first(number: int) -> int:
        """The first fusion known to be of the same group."""
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    last_with: dict[int, int] = {}
    for number, fusion in enumerate(fusions):
        for layer in fusion.layers:
            a, b = first(number), first(last_with.get(layer.index, number))
            parents[max(a, b)] = min(a, b)
            last_with[layer.index] = number
    gathered: dict[int, list[Fusion]] = {}
    for number, fusion in enumerate(fusions):
        gathered.setdefault(first(number), []).append(fusion)
    return tuple(
        FusedGroup(tuple(parts), tuple(dict.fromkeys(layer.index for fusion in parts for layer in fusion.layers)))
        for parts in gathered.values()
    )
