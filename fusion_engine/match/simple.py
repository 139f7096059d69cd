"""Simple patterns as straight lists of steps: what most rules are, without the machine's choice points.

Why: the machine takes some 10 µs at a root, and most roots that a rule is laid on fail at once.

A pattern is simple where each item is taken exactly once (a `?` at the end may stand for a range), none is a
group, and nothing is scoped. It stands for a few *variants*, one for each choice of alternatives and of
inputs that are swapped, in the order in which the machine comes to them. Which of them may lie at a root is
told by the layer types of the root and of its inputs, and remembered for the next root with the same.

Bindings and their order are the machine's. A root at which a variant binds a layer twice, or very many
inputs, is left to the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fusion_engine.language.pattern import AnyInput, PatternLayer
from fusion_engine.match.binding import Edge, Match
from fusion_engine.match.conditions import Bound, Program
from fusion_engine.match.machine import COMMUTATIVE, MAX_STEPS, CompiledPattern, commutes, is_type, types_of
from fusion_engine.match.values import is_of_params
from fusion_engine.network import Source
from fusion_engine.workspace import Workspace

__all__ = ["LEFT", "SimplePatterns", "Variant", "lay_chain", "simple_patterns"]

MOST_VARIANTS = 64
"""Of a pattern; one that stands for more is no simple one."""

MOST_EDGES = 1_000
"""Inputs that a variant may pass at a root; with more the root is left to the machine, which counts them as steps."""

_MOST_KNOWN = 10_000
"""Surroundings that are remembered."""

_MAY_SWAP = COMMUTATIVE | {"ElementwiseBinary"}

_Taker: TypeAlias = "PatternLayer | AnyInput | None"
_Pending: TypeAlias = "tuple[tuple[Any, int, int, bool], ...]"

_Link: TypeAlias = "tuple[int, str, bool, frozenset[str], PatternLayer, Program | None]"
"""A step of a chain: id and type of the pattern layer, whether a layer of that very type is surely meant by it, the
types that a layer may have, the pattern layer and its condition. A plain tuple, since these unpack fastest."""


class Chain(NamedTuple):
    """The steps of a chain from the root down, the ids of their pattern layers, and whether any has a condition."""

    links: tuple[_Link, ...]
    names: tuple[int, ...]
    conditions: bool


LEFT = Match(-1, (), (), (), (), ())
"""Stands for a root that is left to the machine."""


@dataclass(frozen=True)
class _Step:
    """A place of a variant.

    Attributes
    ----------
    parent, place
        The step whose layer's inputs it looks at (-1 at the root), and at which of them.
    rest
        Whether it takes all inputs from there on.
    layer
        The pattern layer there; None for a `?`.
    types
        The layer types that it may have.
    swapped
        Whether it takes the layer's two inputs the other way round.
    low, high
        Number of data inputs that the layer must have; ``high`` is None for no bound. ``low`` is -1 where the
        pattern leaves the inputs open.
    program
        Its condition.
    local
        Whether that reads the layer's own descriptor only.
    """

    parent: int
    place: int
    rest: bool = False
    layer: PatternLayer | None = None
    types: frozenset[str] = frozenset()
    swapped: bool = False
    low: int = -1
    high: int | None = None
    program: Program | None = None
    local: bool = False


@dataclass(frozen=True)
class Variant:
    """One way in which a pattern may lie; ``steps`` in pattern order, the root first."""

    steps: tuple[_Step, ...]
    chain: Chain | None = None
    """The steps where it is one layer below the other, each with one data input, down to one that leaves its open."""

    def needs_of(self, present: frozenset[str]) -> bool:
        """Whether there are layers of the types that its steps need."""
        return not any(step.layer is not None and present.isdisjoint(step.types) for step in self.steps)

    def may_lie(self, types: tuple[str, ...]) -> bool:
        """Whether it may lie at a root of these types: that of the root, and those of its data inputs."""
        root = self.steps[0]
        if types[0] not in root.types or not _counts(root, len(types) - 1):
            return False
        for step in self.steps[1:]:
            if step.parent == 0 and step.layer is not None:
                place = len(types) - 2 - step.place if root.swapped else step.place
                if types[1 + place] not in step.types:
                    return False
        return True

    def may_lie_at(self, workspace: Workspace, root: int) -> bool:
        """Whether descriptors and types of the root and of its inputs, which `may_lie`, let it lie there."""
        inputs = workspace.data_inputs(root)
        for number, step in enumerate(self.steps):
            if step.layer is None or step.parent > 0:
                continue
            key = root
            if number:
                place = len(inputs) - 1 - step.place if self.steps[0].swapped else step.place
                key = inputs[place][1].layer
            if workspace.type(key) != "StandIn" and not is_type(workspace, step.layer, key):
                return False
            if step.local and step.program is not None and step.program.failure(workspace, _always(key)) is not None:
                return False
        return True


def _always(key: int) -> Bound:
    return lambda _: (key, 0)


class Unfit(Exception):
    """A root that is left to the machine."""


def _counts(step: _Step, inputs: int) -> bool:
    return step.low < 0 or (step.low <= inputs and (step.high is None or inputs <= step.high))


@dataclass(frozen=True)
class SimplePatterns:
    """The variants of all patterns of a rule, in the order they are tried.

    ``known`` are those that may lie at a root, by the layer types there.
    """

    variants: tuple[Variant, ...]
    known: dict[tuple[str, ...], tuple[Variant, ...]]
    below: frozenset[str] | None
    """Layer types of which a root must read one; None where it need not."""

    def possible(self, present: frozenset[str]) -> bool:
        """Whether the layer types of a network let any variant lie in it."""
        return any(variant.needs_of(present) for variant in self.variants)

    def at(self, workspace: Workspace, root: int) -> tuple[Variant, ...]:
        """The variants that the types at a root allow."""
        types = workspace.types_around(root)
        found = self.known.get(types)
        if found is None:
            found = tuple([variant for variant in self.variants if variant.may_lie(types)])
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[types] = found
        return found

    def hopeful(self, workspace: Workspace, roots: Iterable[int]) -> list[int]:
        """Those of the roots at which a variant may lie."""
        at = self.at
        if self.below is not None:
            roots = workspace.reading(roots, self.below)
        return [root for root in roots if at(workspace, root)]

    def matches(self, workspace: Workspace, root: int) -> list[Match] | None:
        """The matches at a root in order, equal ones once; None where the root is left to the machine."""
        found: list[Match] = []
        variants = self.variants if self.only else self.at(workspace, root)
        try:
            for variant in variants:
                match = _bind(workspace, variant, root)
                if match is not None and match not in found:
                    found.append(match)
        except Unfit:
            return None
        return found

    @property
    def only(self) -> Chain | None:
        """The chain that is all there is to match; None where there is more."""
        return self.variants[0].chain if len(self.variants) == 1 else None


def simple_patterns(compiled: tuple[CompiledPattern, ...]) -> SimplePatterns | None:
    """The patterns of a rule as variants; None where one of them is not simple."""
    found: list[Variant] = []
    for pattern in compiled:
        variants = _variants(pattern)
        if variants is None:
            return None
        found += variants
    steps = sum(2 * len(variant.steps) + 2 for variant in found)
    if not found or steps > MAX_STEPS // 4:
        return None
    below = [[step.types for step in variant.steps if step.parent == 0 and step.layer] for variant in found]
    types = frozenset().union(*(types for needed in below for types in needed)) if all(below) else None
    return SimplePatterns(tuple(found), {}, types)


def _variants(pattern: CompiledPattern) -> list[Variant] | None:
    """The variants of a pattern, or None where it is not simple."""
    found: list[Variant] = []
    stack: list[tuple[tuple[_Step, ...], _Pending]] = [((), (((pattern.root,), -1, 0, False),))]
    while stack:
        steps, pending = stack.pop()
        if len(steps) > MOST_VARIANTS or len(stack) > MOST_VARIANTS:
            return None
        if not pending:
            found.append(Variant(steps, _chain(steps)))
            if len(found) > MOST_VARIANTS:
                return None
            continue
        (choices, parent, place, rest), *later = pending
        ways: list[tuple[tuple[_Step, ...], _Pending]] = []
        for element in choices:
            if isinstance(element, AnyInput):
                ways.append(((*steps, _Step(parent, place, rest)), tuple(later)))
                continue
            placed = _placed(pattern, element, parent, place, len(steps))
            if placed is None:
                return None
            ways += [((*steps, step), (*inside, *later)) for step, inside in placed]
        stack += reversed(ways)
    return found


def _chain(steps: tuple[_Step, ...]) -> Chain | None:
    """The steps of a variant that is a chain; None of any other."""
    links: list[_Link] = []
    for number, step in enumerate(steps):
        layer, last = step.layer, number + 1 == len(steps)
        if layer is None or layer.kept or step.swapped or "Constant" in step.types or step.parent != number - 1:
            return None
        if (step.low, step.high) != ((-1, None) if last else (1, 1)):
            return None
        plain = layer.type != "StandIn" and not layer.result
        links.append((layer.id, layer.type, plain, step.types, layer, step.program))
    return Chain(tuple(links), tuple([link[0] for link in links]), any(link[-1] is not None for link in links))


def _placed(
    pattern: CompiledPattern, layer: Any, parent: int, place: int, number: int
) -> list[tuple[_Step, _Pending]] | None:
    """The steps that a pattern layer is, as it stands and swapped, each with what is inside; None where not simple."""
    if not isinstance(layer, PatternLayer) or layer.layout is not None or layer.data_type is not None:
        return None
    program = pattern.programs.get(layer.id)
    local = program is not None and layer.id not in pattern.dependent and all(map(is_of_params, program.names))
    types = types_of(layer)
    if layer.inputs is None:
        return [(_Step(parent, place, False, layer, types, program=program, local=local), ())]
    low = 0
    high: int | None = 0
    inside: list[tuple[Any, int, int, bool]] = []
    for index, item in enumerate(layer.inputs):
        once = item.low == item.high == 1
        last = index + 1 == len(layer.inputs) and len(item.choices) == 1 and isinstance(item.choices[0], AnyInput)
        if not once and not last:
            return None
        low += item.low
        high = None if item.high is None or high is None else high + item.high
        inside.append((item.choices, number, index, not once))
    steps = [_Step(parent, place, False, layer, types, False, low, high, program, local)]
    if not pattern.ordered and not types.isdisjoint(_MAY_SWAP):
        steps.append(_Step(parent, place, False, layer, types, True, low, high, program, local))
    return [(step, tuple(inside)) for step in steps]


def _bind(workspace: Workspace, variant: Variant, root: int) -> Match | None:
    """The match of a variant at a root, if it lies there; raises `Unfit`."""
    if variant.chain is not None:
        (found,) = lay_chain(workspace, variant.chain, (root,))
        if found is LEFT:
            raise Unfit
        return found
    binding = _Binding(workspace)
    at = root, 0
    for step in variant.steps:
        if step.parent >= 0:
            at = binding.follow(step)
        if step.layer is None:
            binding.keys.append(-1)
            binding.frames.append(())
        elif not binding.put(step, step.layer, *at):
            return None
    where = binding.where
    if (len(where) > 1 and len(where) != len({key for key, _ in where.values()})) or len(binding.edges) > MOST_EDGES:
        raise Unfit
    return _match(workspace, variant, root, where, binding.edges)


def lay_chain(workspace: Workspace, chain: Chain, roots: Iterable[int]) -> Iterator[Match | None]:
    """The match of a chain at each root; None where it does not lie there, `LEFT` where that is left to the machine.

    Nearly every layer of a chain has one connection, on slot 0, which is its data input whatever its type: of
    these nothing but the graph's own dicts is looked at. (It is `Workspace.fed_by_one`, written out, since calls would
    take a fifth of the time.)
    """
    nodes, _, pred = workspace.inside
    data_inputs = workspace.data_inputs
    links, names, conditions = chain
    last = links[-1]
    where: dict[int, tuple[int, int]] = {}
    for root in roots:
        source: tuple[int, int] = (root, 0)
        inputs: tuple[tuple[int, Source], ...] | None = None  # of the last layer, None where it is ``source`` alone
        keys: list[int] = []
        for link in links:
            identity, name, plain, types, layer, program = link
            key = source[0]
            kind = nodes[key]["type"]
            if (kind != name or not plain) and (kind not in types or not is_type(workspace, layer, key)):
                break
            keys.append(key)
            if conditions:
                where[identity] = source
                if program is not None and program.failure(workspace, where.__getitem__) is not None:
                    break
            above = pred[key]
            if len(above) == 1 and kind != "StandIn":
                ((feeder, edge),) = above.items()
                pairs = edge["slots"]
                if len(pairs) == 1 and pairs[0][1] == 0:
                    source, inputs = (feeder, pairs[0][0]), None
                    continue
            inputs = data_inputs(key)
            if link is not last:
                if len(inputs) != 1:
                    break
                source = inputs[0][1]
        else:
            if len(set(keys)) != len(keys) or (inputs is not None and len(inputs) > MOST_EDGES):
                yield LEFT
                continue
            below = ((0, Source._make(source)),) if inputs is None else inputs
            edges = tuple([Edge(feeder, key, slot) for slot, feeder in below if feeder[0] not in keys])
            yield Match(root, tuple(keys), (), (), edges, tuple(zip(names, keys, strict=True)))
            continue
        yield None


class _Binding:
    """What a variant is bound to so far.

    Attributes
    ----------
    keys, frames
        By step the layer's key, and its data inputs in the order that the pattern takes them.
    where
        (layer key, output slot that the pattern came through) by the id of the pattern layer.
    edges
        The inputs that were passed: layer, input slot, source, and what took it (None where the pattern leaves
        the layer's inputs open).
    """

    __slots__ = ("edges", "frames", "keys", "where", "workspace")

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.keys: list[int] = []
        self.frames: list[tuple[tuple[int, Source], ...]] = []
        self.where: dict[int, tuple[int, int]] = {}
        self.edges: list[tuple[int, int, Source, _Taker]] = []

    def follow(self, step: _Step) -> tuple[int, int]:
        """Pass the inputs that a step takes; the last one's source."""
        frame, above = self.frames[step.parent], self.keys[step.parent]
        if step.rest:
            self.edges += [(above, slot, source, _ANY) for slot, source in frame[step.place :]]
            return -1, 0
        slot, source = frame[step.place]
        self.edges.append((above, slot, source, _ANY if step.layer is None else step.layer))
        return source

    def put(self, step: _Step, layer: PatternLayer, key: int, slot: int) -> bool:
        """Lay a step on a layer; False where it does not fit."""
        workspace = self.workspace
        kind = workspace.type(key)
        if kind not in step.types:
            return False
        if (kind != layer.type or kind == "StandIn" or layer.result) and not is_type(workspace, layer, key):
            return False
        self.keys.append(key)
        self.where[layer.id] = (key, slot)
        if step.program is not None and step.program.failure(workspace, self.where.__getitem__) is not None:
            return False
        inputs = workspace.data_inputs(key)
        if step.low < 0:
            if not layer.kept:
                self.edges += [(key, number, source, None) for number, source in inputs]
            self.frames.append(())
            return True
        if step.swapped:
            if not commutes(workspace, key):
                return False
            inputs = inputs[::-1]
        self.frames.append(inputs)
        return _counts(step, len(inputs))


_ANY = AnyInput.__new__(AnyInput)
"""Stands for each `?`."""


def _match(
    workspace: Workspace,
    variant: Variant,
    root: int,
    where: dict[int, tuple[int, int]],
    edges: list[tuple[int, int, Source, _Taker]],
) -> Match | None:
    """The match of what is bound, each layer once; None where a layer is bound as consumed and as something else."""
    layers: list[int] = []
    kept: list[int] = []
    constants: list[int] = []
    bound: list[tuple[int, int]] = []
    for step in variant.steps:
        layer = step.layer
        if layer is None:
            continue
        key = where[layer.id][0]
        bound.append((layer.id, key))
        if layer.kept:
            kept.append(key)
        elif workspace.type(key) == "Constant":
            constants.append(key)
        else:
            layers.append(key)
    consumed = layers if len(layers) < 8 else set(layers)
    inputs: list[Edge] = []
    for key, input_slot, source, taker in edges:
        below = source.layer
        if taker is _ANY:
            if below in consumed:
                return None
        elif taker is not None and not taker.kept:  # type: ignore[union-attr]
            continue
        if key in consumed and below not in consumed:
            inputs.append(Edge(source, key, input_slot))
    return Match(root, tuple(layers), tuple(kept), tuple(constants), tuple(inputs), tuple(bound))
