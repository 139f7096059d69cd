"""The matcher's plain twin: the definition of docs/rules.md written down, with no thought of speed or depth.

It recurses, builds every binding as a tree, and looks at conflicts when a tree is whole. Nothing of
``fusion_engine.match`` is used but the records of the result, so that the two can be compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fusion_engine.language.pattern import (
    AllOf,
    AnyInput,
    Constraint,
    Operand,
    PatternElement,
    PatternItem,
    PatternLayer,
    Test,
)
from fusion_engine.language.rule import FusingRule
from fusion_engine.match.binding import Edge, Match
from fusion_engine.network import Network, Source, param, sources
from fusion_engine.recipes import read_recipe

BINARY = {
    "Addition": "Add",
    "Subtraction": "Sub",
    "Multiplication": "Mul",
    "Division": "Div",
    "Minimum": "Minimum",
    "Maximum": "Maximum",
}
COMMUTATIVE = ("Add", "Mul", "Minimum", "Maximum")
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Tree:
    """A bound pattern layer: what it was laid on, and per edge what took it (None: the pattern leaves inputs open)."""

    pattern: PatternLayer
    source: Source
    edges: list[tuple[Edge, Tree | None]] | None


@dataclass(frozen=True)
class Around:
    """What a layer of a pattern is in: the bindings of the layers above, and the layouts of their scopes."""

    bound: dict[int, Source]
    layouts: tuple[str, ...] = ()


class Naive:
    """Every match of a rule in a network, by definition.

    Parameters
    ----------
    layout
        The layout common to the network.
    """

    def __init__(self, graph: Network, rule: FusingRule, layout: str | None) -> None:
        self.graph = graph
        self.rule = rule
        self.layout = layout

    def matches(self, root: int) -> list[Match]:
        """The bindings at a root in order, equal ones once."""
        found: dict[Match, None] = {}
        for alternatives in self.rule.patterns:
            for pattern in alternatives:
                for tree in self.layer(pattern, Source(root, 0), Around({})):
                    match = self.match(tree)
                    if match is not None:
                        found[match] = None
        return list(found)

    # A pattern layer on a layer

    def layer(self, pattern: PatternLayer, source: Source, around: Around) -> Iterator[Tree]:
        if not self.is_type(pattern, source.layer):
            return
        if pattern.data_type is not None and self.data_type(source) != pattern.data_type:
            return
        if pattern.layout is not None:
            around = Around(around.bound, (*around.layouts, pattern.layout))
        own = self.own_layout(source.layer)
        if own is not None and any(own != wanted for wanted in around.layouts):
            return
        around = Around({**around.bound, pattern.id: source}, around.layouts)
        if pattern.constraint is not None and not self.holds(pattern.constraint, around.bound):
            return
        for tree in self.with_inputs(pattern, source, around):
            if pattern.layout is None or self.layout == pattern.layout or self.has_layout(tree):
                yield tree

    def with_inputs(self, pattern: PatternLayer, source: Source, around: Around) -> Iterator[Tree]:
        if pattern.inputs is None:
            yield Tree(pattern, source, None)
            return
        stored = self.data_inputs(source.layer)
        orders = [stored]
        if self.commutes(source.layer) and not self.rule.ordered and stored[0].source != stored[1].source:
            orders.append(stored[::-1])
        for edges in orders:
            for taken in self.items(pattern.inputs, edges, around):
                if len(taken) == len(edges):
                    yield Tree(pattern, source, taken)

    # Items on a run of edges: each way to lay them on the first few, as what took which edge

    def items(
        self, items: tuple[PatternItem, ...], edges: list[Edge], around: Around
    ) -> Iterator[list[tuple[Edge, Any]]]:
        if not items:
            yield []
            return
        for taken in self.repeats(items[0], 0, edges, around):
            for rest in self.items(items[1:], edges[len(taken) :], around):
                yield taken + rest

    def repeats(
        self, item: PatternItem, count: int, edges: list[Edge], around: Around
    ) -> Iterator[list[tuple[Edge, Any]]]:
        if item.high is None or count < item.high:
            for choice in item.choices:
                for taken in self.element(choice, edges, around):
                    if not taken:
                        yield []  # took no input: the end of the loop
                        continue
                    for more in self.repeats(item, count + 1, edges[len(taken) :], around):
                        yield taken + more
        if count >= item.low:
            yield []

    def element(self, element: PatternElement, edges: list[Edge], around: Around) -> Iterator[list[tuple[Edge, Any]]]:
        if isinstance(element, AnyInput):
            if edges:
                yield [(edges[0], element)]
        elif isinstance(element, PatternLayer):
            if edges:
                for tree in self.layer(element, edges[0].source, around):
                    yield [(edges[0], tree)]
        else:
            yield from self.items(element.items, edges, around)

    # What a whole tree amounts to

    def match(self, tree: Tree) -> Match | None:
        trees = list(self.trees(tree))
        named = [(t, self.graph.nodes[t.source.layer]["type"] == "Constant") for t in trees]
        layers = list(dict.fromkeys(t.source.layer for t, constant in named if not t.pattern.kept and not constant))
        constants = list(dict.fromkeys(t.source.layer for t, constant in named if not t.pattern.kept and constant))
        kept = list(dict.fromkeys(t.source.layer for t, _ in named if t.pattern.kept))
        passed = [edge.source.layer for t in trees for edge, by in t.edges or () if isinstance(by, AnyInput)]
        if any(key in kept or key in passed for key in layers):
            return None
        own = {
            edge
            for t in trees
            for edge, by in t.edges or ()
            if isinstance(by, Tree) and not by.pattern.kept and edge.source.layer in constants
        }
        edges = [
            edge
            for edge in self.edges(tree)
            if edge.layer in layers and edge.source.layer not in layers and edge not in own
        ]
        bound = tuple((t.pattern.id, t.source.layer) for t in trees)
        return Match(
            tree.source.layer,
            tuple(layers),
            tuple(kept),
            tuple(constants),
            tuple(dict.fromkeys(edges)),
            bound,
        )

    def trees(self, tree: Tree) -> Iterator[Tree]:
        """Depth first, left to right."""
        yield tree
        for _, by in tree.edges or ():
            if isinstance(by, Tree):
                yield from self.trees(by)

    def edges(self, tree: Tree) -> Iterator[Edge]:
        """Every edge of a tree, depth first, left to right; of a layer with open inputs all its data inputs."""
        if tree.edges is None:
            yield from self.data_inputs(tree.source.layer)
        for edge, by in tree.edges or ():
            yield edge
            if isinstance(by, Tree):
                yield from self.edges(by)

    # The network

    def type(self, key: int) -> str:
        name: str = self.graph.nodes[key]["type"]
        return name

    def is_type(self, pattern: PatternLayer, key: int) -> bool:
        name = self.type(key)
        made = read_recipe(self.graph, key) if name == "StandIn" else None
        if pattern.result:
            return made is not None and made["result"] == pattern.type
        if name == "StandIn":
            return pattern.type == "StandIn" and made is None
        if name == pattern.type:
            return True
        if pattern.type == "ElementwiseBinary":
            return name in BINARY
        return name == "ElementwiseBinary" and self.operation(key) == BINARY.get(pattern.type)

    def operation(self, key: int) -> Any:
        if self.type(key) == "ElementwiseBinary":
            return param(self.graph, key, "operation")
        return BINARY.get(self.type(key))

    def commutes(self, key: int) -> bool:
        return self.operation(key) in COMMUTATIVE and len(self.data_inputs(key)) == 2

    def data_inputs(self, key: int) -> list[Edge]:
        name = self.type(key)
        made = read_recipe(self.graph, key) if name == "StandIn" else None
        found = [Edge(source, key, slot) for slot, source in enumerate(sources(self.graph, key))]
        if made is not None:
            return found[: made["inputs"]]
        if name in ("Convolution2d", "DepthwiseConvolution2d", "Convolution3d", "FullyConnected"):
            return [e for e in found if e.input_slot not in (1, 2) or self.type(e.source.layer) != "Constant"]
        return found

    def own_layout(self, key: int) -> str | None:
        if self.type(key) in ("Convolution2d", "Pooling2d", "BatchNormalization"):
            layout: str = param(self.graph, key, "dataLayout")
            return layout
        return None

    def has_layout(self, tree: Tree) -> bool:
        return any(self.own_layout(t.source.layer) is not None for t in self.trees(tree))

    def data_type(self, source: Source) -> str | None:
        infos = self.graph.nodes[source.layer]["outputs"]  # none of an Output
        return str(infos[source.slot].data_type) if source.slot < len(infos) else None

    # Conditions: some names, enough to see that they read the right layer and slot

    def holds(self, constraint: Constraint, bound: dict[int, Source]) -> bool:
        if isinstance(constraint, Test):
            left, right = self.value(constraint.left, bound), self.value(constraint.right, bound)
            return left is not None and right is not None and OPERATORS[constraint.op](left, right)
        parts = [self.holds(part, bound) for part in constraint.parts]
        return all(parts) if isinstance(constraint, AllOf) else any(parts)

    def value(self, side: Any, bound: dict[int, Source]) -> Any:
        if not isinstance(side, Operand):
            return side
        source = bound[side.at]
        if side.name == "name":
            return self.graph.nodes[source.layer]["name"]
        if side.name == "operation":
            return self.operation(source.layer)
        if side.name == "output.dataType":
            return self.data_type(source)
        if side.name == "output.c":
            return self.channels(source, source.layer)
        if side.name == "input.c":
            edges = self.data_inputs(source.layer)
            return self.channels(edges[0].source, source.layer) if edges else None
        return param(self.graph, source.layer, side.name)

    def channels(self, source: Source, layer: int) -> int | None:
        """Channels of an output, by the layout of a layer that it belongs to or feeds."""
        infos = self.graph.nodes[source.layer]["outputs"]
        shape = infos[source.slot].shape if source.slot < len(infos) else ()
        axis = {"NHWC": 3, "NCHW": 1}.get(self.own_layout(layer) or self.layout or "")
        return None if len(shape) != 4 or axis is None else int(shape[axis])
