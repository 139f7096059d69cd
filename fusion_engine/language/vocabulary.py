"""The vocabulary of a rule file: names that stand for a type, a type with condition, alternatives or a whole pattern.

A name stands for alternatives, each a `Head`: a chain of layers from the top of a pattern down to its
lowest layer, to which braces after the name belong. ``Activation{Convolution2d|Pooling2d}`` has two:
Activation over Convolution2d, and Activation over Pooling2d.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from fusion_engine.errors import RuleError, nearest
from fusion_engine.language.conditions import Chain, Report, constraints
from fusion_engine.language.parser import SCOPE_WORDS, SCOPES_ARE, parse_alternatives, scope_like
from fusion_engine.language.pattern import Constraint
from fusion_engine.language.steps import Steps, run
from fusion_engine.language.tokens import place
from fusion_engine.language.tree import Group, Item, Rule, Scope
from fusion_engine.naming import quoted, shortened
from fusion_engine.schema import schema

__all__ = ["MAX_LAYERS", "Head", "Link", "Vocabulary", "name_fault", "named_rules", "vocabulary"]

MAX_LAYERS = 20_000
"""Most layers that the names of a vocabulary, or those used in one rule, may stand for together."""

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Spend: TypeAlias = Callable[[int, int], None]
"""Takes an offset in the text and the number of layers that are copied because of it."""


@dataclass(frozen=True, eq=False)
class Link:
    """A layer of a chain.

    Parameters
    ----------
    type
        Its LayerType, or an ``into`` name where ``result`` is true.
    result
        Whether ``type`` is an ``into`` name.
    definition
        The vocabulary name whose text names the layer, or None for a rule's own text.
    scopes
        The scopes that apply from this layer down, outermost first.
    tests
        Constraints to check here, each with the position in the chain that the ``at`` of its operands
        takes this layer for: ``at`` less that is how far up a layer lies.
    items, items_by
        What a definition says of the data inputs, or None; and which vocabulary name's it is.
    hole
        The item for which the next link of the chain stands, or None in the last link.
    kept
        Whether the definition marks the layer.
    """

    type: str
    result: bool
    definition: str | None
    scopes: tuple[Scope, ...] = ()
    tests: tuple[tuple[Constraint, int], ...] = ()
    items: tuple[Item, ...] | None = None
    items_by: str | None = None
    hole: int | None = None
    kept: bool = False


@dataclass(frozen=True, eq=False)
class Head:
    """One alternative of a name: its chain, and whether the last link is the one lowest layer of the pattern."""

    links: tuple[Link, ...]
    single: bool = True

    @property
    def open(self) -> bool:
        """Whether braces can follow: nothing says yet what feeds the lowest layer."""
        return self.links[-1].items is None

    def chain(self, vocabulary: bool) -> Chain:
        """What conditions are checked on."""
        types = tuple("StandIn" if link.result else link.type for link in self.links)
        return Chain(types, len(types) - 1 if self.single else None, vocabulary)


class _Part(NamedTuple):
    """A chain in the making: some links, and what is below them."""

    links: tuple[Link, ...]
    below: _Part | None
    single: bool

    def marked(self) -> _Part:
        """The same with its top kept."""
        return self._replace(links=(replace(self.links[0], kept=True), *self.links[1:]))


def name_fault(name: str, results: frozenset[str]) -> str | None:
    """Why a vocabulary may not define that name, or None."""
    if not _ID.fullmatch(name):
        return f"the vocabulary name {name!r} is not made of letters, digits and _"
    if name in schema().layers:
        return f"the vocabulary name {name!r} would hide the layer type {name}: choose another"
    if name in results:
        return f"the vocabulary name {name!r} is the result of a rule too: choose another"
    return None


def named_rules(node: Rule | Item) -> Iterator[Rule]:
    """Every named layer of a tree, in text order."""
    stack: list[Rule | Item] = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Rule):
            yield node
            stack.extend(reversed(node.inputs or ()))
            continue
        for choice in reversed(node.choices):
            if isinstance(choice.body, Rule):
                stack.append(choice.body)
            elif isinstance(choice.body, Group):
                stack.extend(reversed(choice.body.items))


@lru_cache(maxsize=64)
def vocabulary(
    definitions: tuple[tuple[str, str], ...],
    syntax_version: int,
    results: frozenset[str],
    undefined: frozenset[str] = frozenset(),
) -> Vocabulary:
    """The `Vocabulary` of those arguments, made once."""
    return Vocabulary(dict(definitions), syntax_version, results, undefined)


class Vocabulary:
    """Checked definitions.

    A name that is wrong, or that uses one that is, stands for nothing: where it is used no error is
    reported that would follow from that one.

    Parameters
    ----------
    definitions
        Text by name.
    syntax_version
        1 or 2.
    results
        The ``into`` names of the run.
    undefined
        Names that are meant to be defined, but not by a text.

    Attributes
    ----------
    problems
        (name, error) of everything that is wrong with the definitions, in their order; an error's line
        and column count in the text of that definition.
    """

    def __init__(
        self,
        definitions: Mapping[str, str],
        syntax_version: int,
        results: frozenset[str],
        undefined: frozenset[str] = frozenset(),
    ) -> None:
        self.results = results
        self.problems: list[tuple[str, RuleError]] = []
        self._texts = dict(definitions)
        self._meant = undefined.union(definitions)
        self._trees: dict[str, tuple[Rule, ...]] = {}
        self._heads: dict[str, tuple[Head, ...]] = {}
        self._left = MAX_LAYERS
        misnamed: list[str] = []
        for name, text in definitions.items():
            fault = name_fault(name, results)
            if fault:
                misnamed.append(name)
                self.problems.append((name, RuleError(fault)))
            try:
                self._trees[name] = parse_alternatives(text, syntax_version)
            except RuleError as error:
                self._add(name, error)
        ordered, circular = self._ordered([name for name in self._trees if name not in misnamed])
        for name in ordered:
            count = len(self.problems)
            heads = self._defined(name)
            if len(self.problems) == count and self._left >= 0 and not self._uses_wrong(name):
                self._heads[name] = heads
        for name in [*circular, *(name for name in misnamed if name in self._trees)]:
            self._defined(name)  # for what else is wrong there
        position = {name: i for i, name in enumerate(definitions)}
        self.problems.sort(key=lambda problem: (position[problem[0]], problem[1].line, problem[1].column))

    def heads(
        self,
        rule: Rule,
        definition: str | None,
        report: Report,
        spend: Spend,
        own: str | None = None,
        hint: str = "",
    ) -> tuple[Head, ...]:
        """What the name of a layer stands for, with its scope and condition, but without its braces.

        Parameters
        ----------
        rule
            The layer as written.
        definition
            The vocabulary name whose text this is, or None.
        report
            Gets every error; nothing stands for a name that is wrong.
        spend
            Counts the layers that are copied.
        own
            What the rule itself makes, which is not what an unknown name was meant to be.
        hint
            Says in the error of an unknown name how the results of other rules are made known.
        """
        start = rule.type_span.start
        named = rule.type in self._heads
        if named:
            heads = self._heads[rule.type]
            if rule.scope or rule.condition:
                spend(start, sum(len(head.links) for head in heads))
        elif rule.type in self._meant:
            return ()
        elif rule.type in schema().layers or rule.type in self.results:
            heads = (Head((Link(rule.type, rule.type in self.results, definition),)),)
        else:
            report(start, self._unknown(rule.type, own, hint))
            return ()
        if rule.inputs is not None and not all(head.open for head in heads):
            report(start, f"what {rule.type} stands for says already what feeds it: it takes no braces")
        if rule.scope is not None:
            scope = rule.scope
            heads = tuple(
                replace(head, links=(replace(head.links[0], scopes=(scope, *head.links[0].scopes)), *head.links[1:]))
                for head in heads
            )
        if rule.condition is None or not heads:
            return heads
        tests = constraints(rule.condition, rule.type, [head.chain(named) for head in heads], definition, report)
        return tuple(_tested(head, of_head) for head, of_head in zip(heads, tests, strict=True))

    # Definitions

    def _add(self, name: str, error: RuleError) -> None:
        reason = f"in the vocabulary name {name!r}: {error.reason}"
        self.problems.append((name, RuleError(reason, text=error.text, line=error.line, column=error.column)))

    def _report(self, name: str) -> Report:
        text = self._texts[name]

        def report(offset: int, reason: str) -> None:
            line, column = place(text, offset)
            self._add(name, RuleError(reason, text=text, line=line, column=column))

        return report

    def _spend(self, name: str) -> Spend:
        def spend(offset: int, count: int) -> None:
            self._left -= count
            if self._left < 0 <= self._left + count:
                self._report(name)(offset, f"the vocabulary stands for more than {MAX_LAYERS} layers: simplify it")

        return spend

    def _ordered(self, names: list[str]) -> tuple[list[str], list[str]]:
        """The names, each after those that its definition uses, and those that close a cycle, which is reported."""
        ordered: list[str] = []
        circular: list[str] = []
        state = dict.fromkeys(names, "new")
        for first in names:
            stack: list[tuple[str, Iterator[Rule]]] = []
            self._open(first, state, stack)
            while stack:
                name, uses = stack[-1]
                use = next(uses, None)
                if use is None:
                    stack.pop()
                    if state[name] == "open":
                        ordered.append(name)
                        state[name] = "done"
                elif state.get(use.type) == "open":
                    self._report(name)(use.type_span.start, _cycle([n for n, _ in stack], use.type))
                    if name not in circular:
                        circular.append(name)
                    state[name] = "wrong"
                else:
                    self._open(use.type, state, stack)
        return ordered, circular

    def _uses_wrong(self, name: str) -> bool:
        """Whether a definition uses a name that stands for nothing."""
        uses = (use.type for tree in self._trees[name] for use in named_rules(tree))
        return any(use in self._meant and use not in self._heads for use in uses)

    def _open(self, name: str, state: dict[str, str], stack: list[tuple[str, Iterator[Rule]]]) -> None:
        if state.get(name) == "new":
            state[name] = "open"
            stack.append((name, (use for tree in self._trees[name] for use in named_rules(tree))))

    def _defined(self, name: str) -> tuple[Head, ...]:
        """What a name stands for: the chains of each alternative, flat."""
        found: list[Head] = []
        for tree in self._trees[name]:
            parts: list[_Part] = run(self._spine(tree, name))
            for part in parts:
                links: list[Link] = []
                below: _Part | None = part
                while below is not None:
                    links += below.links
                    single, below = below.single, below.below
                self._spend(name)(tree.span.start, len(links))
                if self._left < 0:
                    return ()
                found.append(Head(tuple(links), single))
        return tuple(found)

    def _spine(self, rule: Rule, name: str) -> Steps[list[_Part]]:
        """The chains that begin with a layer of a definition."""
        report, spend = self._report(name), self._spend(name)
        if self._left < 0:
            return []
        heads = [head for head in self.heads(rule, name, report, spend) if rule.inputs is None or head.open]
        if rule.inputs is None:
            return [_Part(head.links, None, head.single) for head in heads]
        hole = _hole(rule.inputs)
        for i, item in enumerate(rule.inputs):
            for inner in named_rules(item) if i != hole else ():
                self.heads(inner, name, report, spend)
        uppers = [
            (*head.links[:-1], replace(head.links[-1], items=rule.inputs, items_by=name, hole=hole)) for head in heads
        ]
        if hole is None:
            single = not any(_names(item) for item in rule.inputs)
            return [_Part(links, None, single) for links in uppers]
        below: list[_Part] = []
        for choice in rule.inputs[hole].choices:
            assert isinstance(choice.body, Rule)
            parts: list[_Part] = yield self._spine(choice.body, name)
            below += [part.marked() for part in parts] if choice.marked else parts
        spend(rule.span.start, len(uppers) * len(below))
        return [_Part(links, part, part.single) for part in below for links in uppers] if self._left >= 0 else []

    def _unknown(self, name: str, own: str | None, hint: str) -> str:
        if name in SCOPE_WORDS:
            return f"{name!r} is no layer type: a scope such as fp16|nchw| stands right before one, in syntax version 2"
        if scope_like(name):
            return f"{quoted(name)} is neither a layer type nor a scope: {SCOPES_ARE}"
        known = sorted({*schema().layers, *self._texts, *self.results} - {own})
        return f"{quoted(name)} is no layer type, vocabulary name or result of a rule{hint}{type_meant(name, known)}"


_FUNCTIONS = (
    ("Activation", "activationFunction", "ActivationFunction"),
    ("ElementwiseUnary", "operation", "UnaryOperation"),
    ("ElementwiseBinary", "operation", "BinaryOperation"),
)
"""Layer types whose layers people call by the function that a field names: type, field, its enum."""


def type_meant(name: str, known: Sequence[str]) -> str:
    """What may have been meant by a name that is no layer type, as `nearest` says it.

    Examples
    --------
    >>> print(type_meant("Relu", ["Prelu"]))
     (did you mean Activation[activationFunction == "ReLu"]?)
    """
    folded = name.lower()
    for kind, field, enum in _FUNCTIONS if folded not in map(str.lower, known) else ():
        for value in schema().enums[enum].values:
            if value.lower() == folded:
                return f' (did you mean {kind}[{field} == "{value}"]?)'
    return nearest(name, known)


def _cycle(open_names: list[str], name: str) -> str:
    path = open_names[open_names.index(name) :]
    if len(path) == 1:
        return f"{quoted(name)} refers to itself"
    shown = path if len(path) <= 6 else [*path[:3], "...", *path[-2:]]
    return f"{quoted(name)} refers to itself: {' -> '.join(map(shortened, [*shown, name]))}"


def _names(item: Item) -> bool:
    """Whether an item names a layer."""
    return next(named_rules(item), None) is not None


def _hole(items: tuple[Item, ...]) -> int | None:
    """The one item that names layers, where each of its choices is one layer, taken once."""
    naming = [i for i, item in enumerate(items) if _names(item)]
    if len(naming) != 1:
        return None
    item = items[naming[0]]
    plain = (item.low, item.high) == (1, 1) and all(isinstance(choice.body, Rule) for choice in item.choices)
    return naming[0] if plain else None


def _tested(head: Head, tests: list[tuple[Constraint, int]]) -> Head:
    added: dict[int, list[tuple[Constraint, int]]] = {}
    for constraint, lowest in tests:
        added.setdefault(lowest, []).append((constraint, lowest))
    links = tuple(
        replace(link, tests=(*link.tests, *added[i])) if i in added else link for i, link in enumerate(head.links)
    )
    return replace(head, links=links)
