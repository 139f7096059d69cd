"""The matcher: a backtracking machine over a rule's pattern.

What is left to do is a linked list of goals that is never changed, so a choice point is a few
references: the goals, the inputs being matched and the place among them, and how much was bound.
Nothing recurses: neither the depth of the pattern nor that of the network matters to the stack.

A root that takes many steps gets a `Memory` (see there): then what cannot end well is tried once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fusion_engine.errors import FuseError
from fusion_engine.language.pattern import (
    AnyInput,
    PatternGroup,
    PatternItem,
    PatternLayer,
    parts_of,
)
from fusion_engine.language.tree import Span
from fusion_engine.match.binding import Edge, Match
from fusion_engine.match.conditions import Failure, Program, compile_constraint
from fusion_engine.match.memory import Failed, Memory
from fusion_engine.network import Source
from fusion_engine.schema import schema
from fusion_engine.spellings import SPELLINGS, spellings
from fusion_engine.workspace import Workspace

__all__ = [
    "COMMUTATIVE",
    "MAX_STEPS",
    "STEPS_PER_INPUT",
    "CompiledPattern",
    "Miss",
    "StepLimitError",
    "Steps",
    "commutes",
    "compile_patterns",
    "is_type",
    "types_of",
]

MAX_STEPS = 10_000
"""Most steps at one root, over all bindings tried there: elements laid on an input, and ways taken up again."""

STEPS_PER_INPUT = 8
"""Further steps for each data input of the layers that are looked into at a root."""

BINDINGS_PER_STEP = 16
"""A complete binding costs a step for so many layers and inputs that are bound."""

REMEMBER_AFTER = 256
"""Number of steps at a root from which on failures are remembered: most roots take few."""


class StepLimitError(FuseError):
    """A rule takes too many steps at a root."""


class Steps:
    """The steps taken at one root, and how many may be."""

    def __init__(self) -> None:
        self.taken = 0
        self.most = MAX_STEPS
        self._layers: set[int] = set()

    def look_into(self, layer: int, inputs: int) -> None:
        """Allow for the inputs of a layer, once."""
        if layer not in self._layers:
            self._layers.add(layer)
            self.most += STEPS_PER_INPUT * inputs


COMMUTATIVE = frozenset({"Addition", "Multiplication", "Maximum", "Minimum"})
"""Layers whose two inputs may be swapped, by their old spelling."""

_OLD_SPELLING = {(new.type, new.value): old for old, new in SPELLINGS.items()}
_LAYOUTS = {"NDHWC": "NHWC", "NCDHW": "NCHW"}
SCOPES = ("NCHW", "NHWC")
"""What a scope can say of the layout."""


class _Frame(NamedTuple):
    """The inputs that a pattern's items are laid on: those of ``layer``, in the order they are tried."""

    layer: int
    inputs: tuple[tuple[int, Source], ...]
    layouts: tuple[str, ...]


class _Bound(NamedTuple):
    """An entry of the record of what is bound: a pattern layer, or an input that was passed.

    ``pattern`` is None for an input: then ``source`` feeds ``input_slot`` of ``layer``, and ``taker``
    is the element that took it (None where the pattern leaves the layer's inputs open). For a
    pattern layer ``input_slot`` is the output slot that the pattern came through. ``depth`` is the
    number of pattern layers that are bound, up to this entry.
    """

    pattern: PatternLayer | None
    layer: int
    input_slot: int
    depth: int
    source: Source | None = None
    taker: PatternLayer | AnyInput | None = None

    @property
    def content(self) -> tuple[int, ...]:
        """Equal where the entries mean the same for what follows and for the match."""
        if self.pattern is not None:
            return self.layer, self.input_slot, self.pattern.id
        taker = self.taker
        code = -1 if taker is None else -2 if isinstance(taker, AnyInput) else -3 - taker.id
        return self.layer, self.input_slot, code


# Goals: (kind, what, next). ITEMS: (items, index). REPEAT: (item, count, place before). CHOICE: (item, index).
# AGAIN, with the inputs swapped: (pattern layer, source, layouts). END: (pattern layer, layer).
# RETURN: (frame, place). SCOPE: (layout, number bound before).
_Goal: TypeAlias = "tuple[int, Any, Any] | None"
ITEMS, REPEAT, CHOICE, END, RETURN, SCOPE, AGAIN = range(7)

_State: TypeAlias = "tuple[_Goal, _Frame | None, int, int]"


@dataclass
class Miss:
    """How far a failed match got: the most that was bound, and what failed there.

    Attributes
    ----------
    depth
        Number of pattern layers that were bound; -1 before anything failed.
    reason
        What failed, in words, as a sentence about ``layer``.
    text
        The match text that the spans count in.
    pattern
        The pattern layer that did not fit, or whose inputs did not; None where a ``?`` or a run of
        inputs did not.
    layer
        Key of the layer it was laid on.
    failure
        The condition's test, where it was one.
    """

    depth: int = -1
    reason: str = ""
    text: str = ""
    pattern: PatternLayer | None = None
    layer: int | None = None
    failure: Failure | None = None

    @property
    def span(self) -> Span | None:
        """Where the innermost part that failed stands in ``text``."""
        if self.failure is not None:
            return self.failure.test.span
        return None if self.pattern is None else self.pattern.span


@dataclass(frozen=True)
class CompiledPattern:
    """A pattern's root, and what was compiled for its layers (by their ids); ``text`` is what it is written in.

    ``dependent`` holds the ids of the layers whose conditions read other layers too.
    """

    root: PatternLayer
    types: frozenset[str]
    programs: dict[int, Program]
    dependent: frozenset[int]
    ordered: bool
    rule_name: str
    text: str

    def matches(self, workspace: Workspace, root: int, steps: Steps, miss: Miss | None) -> Iterator[Match]:
        """Every complete binding at a root, in the order of the definition."""
        run = _Run(self, workspace, root, steps, miss)
        yield from run.results()


def compile_patterns(
    roots: tuple[PatternLayer, ...], ordered: bool, rule_name: str, text: str
) -> tuple[CompiledPattern, ...]:
    """The root alternatives of a text, ready to run."""
    return tuple(_compiled(root, ordered, rule_name, text) for root in roots)


def _compiled(root: PatternLayer, ordered: bool, rule_name: str, text: str) -> CompiledPattern:
    programs = _programs(root)
    dependent = frozenset(identifier for identifier, program in programs.items() if program.reads - {identifier})
    return CompiledPattern(root, types_of(root), programs, dependent, ordered, rule_name, text)


def types_of(pattern: PatternLayer) -> frozenset[str]:
    """The layer types that what a pattern layer names can be spelled as."""
    return frozenset({"StandIn"} if pattern.result else spellings(pattern.type))


def _programs(root: PatternLayer) -> dict[int, Program]:
    return {
        part.id: compile_constraint(part.constraint)
        for part in parts_of([root])
        if isinstance(part, PatternLayer) and part.constraint is not None
    }


class _Run:
    """One root: the state of the machine."""

    def __init__(
        self, compiled: CompiledPattern, workspace: Workspace, root: int, steps: Steps, miss: Miss | None
    ) -> None:
        self.compiled = compiled
        self.workspace = workspace
        self.root = root
        self.steps = steps
        self.miss = miss
        self.bound: list[_Bound] = []
        self.choices: list[_State] = []
        self.goal: _Goal = None
        self.frame: _Frame | None = None
        self.place = 0
        self.memory: Memory | None = None

    @property
    def depth(self) -> int:
        """Number of pattern layers that are bound."""
        return self.bound[-1].depth if self.bound else 0

    def results(self) -> Iterator[Match]:
        """Run to the end of the choices."""
        alive = self._layer(self.compiled.root, Source(self.root, 0), ())
        while True:
            while alive and self.goal is not None:
                alive = self._step()
            if alive:
                match = self._complete()
                if match is not None:
                    yield match
            if self.memory is not None:
                self.memory.close(self.choices)
            if not self.choices:
                return
            self._count()
            self.goal, self.frame, self.place, length = self.choices.pop()
            del self.bound[length:]
            if self.memory is not None:
                self.memory.unbind(length)
            alive = True

    def _count(self) -> None:
        self.steps.taken += 1
        if self.steps.taken > self.steps.most:
            raise StepLimitError(
                f"rule {self.compiled.rule_name!r} takes more than {self.steps.most} steps at "
                f"{self.workspace.describe(self.root)}: write it with fewer alternatives and ranges"
            )
        if self.memory is None and self.steps.taken > REMEMBER_AFTER:
            self.memory = Memory()

    def _then(self, kind: int, what: Any, rest: _Goal, *key: int) -> _Goal:
        """A goal; ``key`` stands for ``what`` in the memory."""
        goal = (kind, what, rest)
        return goal if self.memory is None else self.memory.one((kind, id(rest), *key), goal)

    def _choice(self, goal: _Goal) -> None:
        self.choices.append((goal, self.frame, self.place, len(self.bound)))

    def _fail(self, reason: str, pattern: PatternLayer | None, layer: int, failure: Failure | None = None) -> bool:
        """Note a failure where it is the furthest so far; that of a condition has its own reason."""
        if self.miss is not None:
            self._missed((self.depth, (reason, pattern, layer, failure)))
        return False

    def _missed(self, failed: Failed) -> None:
        depth, (reason, pattern, layer, failure) = failed
        miss = self.miss
        if miss is not None and depth > miss.depth:
            miss.depth, miss.text = depth, self.compiled.text
            miss.reason = reason if failure is None else failure.reason
            miss.pattern, miss.layer, miss.failure = pattern, layer, failure
        if self.memory is not None:
            self.memory.note(failed)

    def _known_to_fail(self, key: Hashable) -> bool:
        """Whether the memory knows that; then the furthest failure there counts as met again."""
        memory = self.memory
        if memory is None or not memory.failed(key):
            return False
        found = memory.furthest(key, self.depth)
        if found is not None:
            self._missed(found)
        return True

    def _doubt(self) -> None:
        """Note that a failure is one of what was bound before, or no failure."""
        if self.memory is not None:
            self.memory.doubt()

    def _step(self) -> bool:
        """Work on the first goal; False where it fails."""
        assert self.goal is not None
        goal = self.goal
        kind, what, rest = goal
        self.goal = rest
        if kind == ITEMS:
            items, index = what
            if index + 1 < len(items):
                self.goal = self._then(ITEMS, (items, index + 1), rest, id(items), index + 1)
            self.goal = self._then(REPEAT, (items[index], 0, -1), self.goal, id(items[index]), 0, -1)
            return True
        if kind == REPEAT:
            return self._repeat(*what)
        if kind == CHOICE:
            return self._alternative(*what)
        if kind == END:
            return self._end(*what)
        if kind == RETURN:
            self.frame, self.place = what
            return self._return(id(goal))
        if kind == SCOPE:
            return self._scope(*what)
        pattern, source, layouts = what
        return self._inputs(pattern, source, layouts, swapped=True)

    def _return(self, ending: int) -> bool:
        """Go on after a pattern layer that was matched, where what follows is not known to fail."""
        memory = self.memory
        if memory is None:
            return True
        layer = memory.end_layer(ending)
        if self.miss is not None:
            return True  # another way to match the layer may get further
        key = (RETURN, id(self.goal), id(self.frame), self.place)
        if memory.failed(key):
            memory.cut()
            if layer is not None:
                del self.choices[layer.height :]
            return False
        memory.keep(self.goal, self.frame)
        memory.begin(key, len(self.choices), self.depth).layer = layer
        return True

    def _repeat(self, item: PatternItem, count: int, before: int) -> bool:
        """One more of the item where that is allowed, with going on without it as the alternative."""
        if before == self.place:
            return True  # the last one took no input: more of them would not either
        if item.high is not None and count >= item.high:
            return True
        memory = self.memory
        if memory is not None:
            key = (REPEAT, id(item), count, id(self.goal), id(self.frame), self.place)
            if self._known_to_fail(key):
                memory.cut()
                return False
            if memory.done((key, memory.prefix(self.bound))):
                return False
            memory.keep(self.goal, self.frame)
            memory.begin(key, len(self.choices), self.depth)
        if count >= item.low:
            self._choice(self.goal)
        after = count + 1 if item.high is not None else min(count + 1, item.low)  # beyond that none is counted
        again = self._then(REPEAT, (item, after, self.place), self.goal, id(item), after, self.place)
        self.goal = (CHOICE, (item, 0), again)
        return True

    def _alternative(self, item: PatternItem, index: int) -> bool:
        if index + 1 < len(item.choices):
            self._choice((CHOICE, (item, index + 1), self.goal))
        element = item.choices[index]
        self._count()
        if isinstance(element, PatternGroup):
            if element.items:
                self.goal = self._then(ITEMS, (element.items, 0), self.goal, id(element.items), 0)
            return True
        frame = self.frame
        assert frame is not None
        if self.place >= len(frame.inputs):
            pattern = element if isinstance(element, PatternLayer) else None
            return self._fail(f"it has only {_counted(len(frame.inputs))}", pattern, frame.layer)
        slot, source = frame.inputs[self.place]
        self.place += 1
        self.bound.append(_Bound(None, frame.layer, slot, self.depth, source, element))
        if isinstance(element, AnyInput):
            return True
        self.goal = self._then(RETURN, (frame, self.place), self.goal, id(frame), self.place)
        return self._layer(element, source, frame.layouts)

    def _end(self, pattern: PatternLayer, layer: int) -> bool:
        frame = self.frame
        assert frame is not None
        if self.place == len(frame.inputs):
            return True
        return self._fail(
            f"it has {_counted(len(frame.inputs))}, of which the pattern takes {self.place}", pattern, layer
        )

    def _layer(self, pattern: PatternLayer, source: Source, layouts: tuple[str, ...]) -> bool:
        """Bind a pattern layer to what feeds an input (or to the root) and go on with its inputs."""
        workspace, key = self.workspace, source.layer
        if not is_type(self.workspace, pattern, key):
            return self._fail(f"it is no {pattern.type}", pattern, key)
        memory = self.memory
        if memory is not None:
            known = (END, pattern.id, source, layouts)
            if self._known_to_fail(known):
                return False
            memory.begin_layer(known, len(self.choices), self.depth, id(self.goal))
        if pattern.layout is not None:
            layouts = (*layouts, pattern.layout)
            length = len(self.bound)
            scope = SCOPES.index(pattern.layout)
            self.goal = self._then(SCOPE, (pattern.layout, length), self.goal, scope, length)
        self.bound.append(_Bound(pattern, key, source.slot, self.depth + 1))
        if not self._in_scope(pattern, source, layouts):
            return False
        program = self.compiled.programs.get(pattern.id)
        if program is not None:
            failure = program.failure(workspace, self._where)
            if failure is not None:
                if pattern.id in self.compiled.dependent:
                    self._doubt()
                return self._fail("", pattern, key, failure)
        if not self.compiled.ordered and pattern.inputs is not None and commutes(self.workspace, key):
            self._choice((AGAIN, (pattern, source, layouts), self.goal))
        return self._inputs(pattern, source, layouts, swapped=False)

    def _inputs(self, pattern: PatternLayer, source: Source, layouts: tuple[str, ...], swapped: bool) -> bool:
        key = source.layer
        inputs = self.workspace.data_inputs(key)
        if pattern.inputs is None:
            if not pattern.kept:
                depth = self.depth
                self.bound.extend(_Bound(None, key, slot, depth, fed) for slot, fed in inputs)
            return True
        self.steps.look_into(key, len(inputs))
        frame = _Frame(key, inputs[::-1] if swapped else inputs, layouts)
        self.frame = frame if self.memory is None else self.memory.one((key, swapped, layouts), frame)
        self.place = 0
        self.goal = self._then(END, (pattern, key), self.goal, pattern.id, key)
        if pattern.inputs:
            self.goal = self._then(ITEMS, (pattern.inputs, 0), self.goal, id(pattern.inputs), 0)
        return True

    def _in_scope(self, pattern: PatternLayer, source: Source, layouts: tuple[str, ...]) -> bool:
        """Whether a layer is of the data type of its own scope and of the layouts of all that it is in."""
        if pattern.data_type is not None:
            info = self.workspace.info(source)
            if info is None or info.data_type != pattern.data_type:
                found = "of unknown type" if info is None else info.data_type
                return self._fail(f"its output is {found}, not {pattern.data_type}", pattern, source.layer)
        own = self._own_layout(source.layer) if layouts else None
        wanted = next((layout for layout in layouts if own not in (None, layout)), None)
        return wanted is None or self._fail(f"its dataLayout is {own}, not {wanted}", pattern, source.layer)

    def _own_layout(self, key: int) -> str | None:
        """The layer's own dataLayout as NHWC or NCHW; None of a layer without one."""
        name = self.workspace.type(key)
        kind = schema().layers.get(name)
        if kind is None or kind.descriptor is None or "dataLayout" not in kind.descriptor.by_name:
            return None
        if name == "StridedSlice":
            return None
        layout = self.workspace.param(key, "dataLayout")
        return _LAYOUTS.get(layout, str(layout))

    def _scope(self, layout: str, length: int) -> bool:
        """The end of a scoped element: where no layer in it has a layout, that of the network decides."""
        if self.workspace.layout == layout:
            return True
        layers = [entry for entry in self.bound[length:] if entry.pattern is not None]
        if any(self._own_layout(entry.layer) is not None for entry in layers):
            return True
        self._doubt()
        first = layers[0]
        return self._fail(
            f"the network's layout is {self.workspace.layout or 'mixed or unknown'}", first.pattern, first.layer
        )

    def _where(self, identifier: int) -> tuple[int, int]:
        """What a pattern layer is bound to: its last binding."""
        for entry in reversed(self.bound):
            if entry.pattern is not None and entry.pattern.id == identifier:
                return entry.layer, entry.input_slot
        raise KeyError(identifier)

    def _complete(self) -> Match | None:
        """The match of what is bound; None where a layer is bound as consumed and as something else."""
        self._doubt()
        self.steps.taken += len(self.bound) // BINDINGS_PER_STEP
        workspace = self.workspace
        layers: dict[int, None] = {}
        kept: dict[int, None] = {}
        constants: dict[int, None] = {}
        for entry in self.bound:
            if entry.pattern is not None:
                if entry.pattern.kept:
                    kept[entry.layer] = None
                elif workspace.type(entry.layer) == "Constant":
                    constants[entry.layer] = None
                else:
                    layers[entry.layer] = None
        outside: set[int] = set()
        edges: dict[Edge, bool] = {}
        for entry in self.bound:
            if entry.source is None:
                continue
            if isinstance(entry.taker, AnyInput):
                outside.add(entry.source.layer)
            edge = Edge(entry.source, entry.layer, entry.input_slot)
            named = isinstance(entry.taker, PatternLayer) and not entry.taker.kept and entry.source.layer in constants
            edges[edge] = edges.get(edge, False) or named
        conflict = next((key for key in layers if key in kept or key in outside), None)
        if conflict is not None:
            self._fail("it is bound as consumed, and as kept or by `?` too", None, conflict)
            return None
        inputs = tuple(
            edge
            for edge, named in edges.items()
            if edge.layer in layers and edge.source.layer not in layers and not named
        )
        bound = tuple((e.pattern.id, e.layer) for e in self.bound if e.pattern is not None)
        return Match(self.root, tuple(layers), tuple(kept), tuple(constants), inputs, bound)


def is_type(workspace: Workspace, pattern: PatternLayer, key: int) -> bool:
    """Whether a layer is what a pattern layer names, in whatever spelling."""
    found = workspace.type(key)
    if pattern.result:
        return found == "StandIn" and workspace.result(key) == pattern.type
    if found == pattern.type:
        return found != "StandIn" or workspace.recipe(key) is None
    if found in SPELLINGS and SPELLINGS[found].type == pattern.type:
        return True
    wanted = SPELLINGS.get(pattern.type)
    if wanted is None or wanted.type != found:
        return False
    return wanted.field is None or workspace.param(key, wanted.field) == wanted.value


def commutes(workspace: Workspace, key: int) -> bool:
    """Whether the two inputs of a layer may be swapped, and that makes a difference."""
    name = workspace.type(key)
    if name == "ElementwiseBinary":
        name = _OLD_SPELLING.get((name, workspace.param(key, "operation")), name)
    inputs = workspace.data_inputs(key)
    return name in COMMUTATIVE and len(inputs) == 2 and inputs[0][1] != inputs[1][1]


def _counted(inputs: int) -> str:
    return "1 data input" if inputs == 1 else f"{inputs} data inputs"
