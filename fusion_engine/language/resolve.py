"""Syntax tree to pattern: names looked up, the vocabulary expanded, marks turned into ``kept``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from fusion_engine.errors import RuleError
from fusion_engine.language.parser import parse
from fusion_engine.language.pattern import (
    AllOf,
    AnyInput,
    AnyOf,
    Constraint,
    Operand,
    PatternElement,
    PatternGroup,
    PatternItem,
    PatternLayer,
    Side,
    Test,
)
from fusion_engine.language.steps import Steps, run
from fusion_engine.language.tokens import fail, place
from fusion_engine.language.tree import AnyLayer, Element, Group, Item, Rule, Scope, Span
from fusion_engine.language.vocabulary import MAX_LAYERS, Head, Link, Vocabulary

__all__ = ["MARKED", "Resolver"]

MARKED = ("kept", "fused")
"""What a mark may mean."""

_DATA_TYPES = {"fp16": "Float16", "fp32": "Float32"}


class _Place(NamedTuple):
    """Where an element is written: in the rule, or in the text of a vocabulary name used at ``use``."""

    definition: str | None = None
    use: Span | None = None


_HERE = _Place()


class _Fate(NamedTuple):
    """What becomes of the layer around an element: ``kept``, and whether a group around it is marked."""

    kept: bool
    marked: bool = False


@dataclass
class Resolver:
    """Makes the patterns of one rule.

    Parameters
    ----------
    vocabulary
        What its names stand for; nothing is made of names that are wrong.
    own
        The rule's own ``into`` name, or None.
    marked
        ``"kept"`` or ``"fused"``: what a mark means.
    hint
        Says in the error of an unknown name how the results of other rules are made known.
    """

    vocabulary: Vocabulary
    own: str | None
    marked: str
    hint: str = ""

    def __post_init__(self) -> None:
        self._next_id = 0
        self._left = MAX_LAYERS

    def patterns(self, text: str, syntax_version: int) -> tuple[PatternLayer, ...]:
        """The root alternatives of a text, in order.

        Raises
        ------
        RuleError
            Where the text is wrong; ``others`` are further errors of the same text.
        """
        rule = parse(text, syntax_version)
        walk = _Walk(self, text)
        found: list[PatternLayer] = run(walk.layers(rule, _HERE, _Fate(False)))
        if walk.errors:
            first, *others = sorted(walk.errors, key=lambda error: (error.line, error.column))
            first.others = tuple(others)
            raise first
        return tuple(found)

    def new_id(self) -> int:
        """The next id: ids ascend in text order, over all texts of the rule."""
        self._next_id += 1
        return self._next_id - 1

    def afford(self, count: int) -> bool:
        """Whether the rule may have that many more layers from its vocabulary."""
        self._left -= count
        return self._left >= 0


class _Walk:
    """The walk over one text."""

    def __init__(self, resolver: Resolver, text: str) -> None:
        self.resolver = resolver
        self.text = text
        self.errors: list[RuleError] = []
        self._reported: set[tuple[int, str]] = set()

    def report(self, offset: int, reason: str) -> None:
        if (offset, reason) not in self._reported:
            self._reported.add((offset, reason))
            line, column = place(self.text, offset)
            self.errors.append(RuleError(reason, text=self.text, line=line, column=column))

    def spend(self, offset: int, count: int) -> None:
        if not self.resolver.afford(count):
            fail(self.text, offset, f"with its vocabulary the rule has more than {MAX_LAYERS} layers: simplify it")

    # Elements

    def items(self, items: tuple[Item, ...], at: _Place, fate: _Fate) -> Steps[tuple[PatternItem, ...]]:
        found: list[PatternItem] = []
        for item in items:
            choices: list[PatternElement] = []
            for element in item.choices:
                choices += yield self.element(element, at, fate)
            found.append(PatternItem(tuple(choices), item.low, item.high, at.use or item.span))
        return tuple(found)

    def element(self, element: Element, at: _Place, fate: _Fate) -> Steps[list[PatternElement]]:
        marked = element.marked or fate.marked
        if element.marked and self.resolver.marked == "fused":
            self.check_mark(element, at, fate)
        body = element.body
        if isinstance(body, AnyLayer):
            if marked and self.resolver.marked == "fused" and not element.marked:
                self.report(element.span.start, "the mark of the group falls on ?, which is never fused")
            return [AnyInput(at.use or body.span)]
        if isinstance(body, Group):
            items: tuple[PatternItem, ...] = yield self.items(body.items, at, fate._replace(marked=marked))
            return [PatternGroup(items, at.use or body.span)]
        if self.resolver.marked == "kept":
            kept = fate.kept or marked
        else:
            kept = fate.kept or not (marked or at.definition is not None)
        layers: list[PatternElement] = yield self.layers(body, at, _Fate(kept))
        return layers

    def check_mark(self, element: Element, at: _Place, fate: _Fate) -> None:
        """Report a mark that says "fused" where nothing can be."""
        offset = element.span.end - 1
        if at.use is not None:
            self.report(at.use.start, f'{at.definition!r} holds a mark, which a rule with marked = "fused" cannot use')
        elif isinstance(element.body, AnyLayer):
            self.report(offset, "a mark on ?, which is never fused")
        elif fate.kept:
            self.report(offset, "a mark below a layer that is not marked: only what hangs together can be fused")

    # Layers

    def layers(self, rule: Rule, at: _Place, fate: _Fate) -> Steps[list[PatternLayer]]:
        """A pattern for every alternative that the layer's name stands for."""
        found: list[PatternLayer] = []
        own, hint = self.resolver.own, self.resolver.hint
        heads = self.resolver.vocabulary.heads(rule, at.definition, self.report, self.spend, own, hint)
        if not heads and rule.inputs is not None:
            yield self.items(rule.inputs, at, fate)  # for what is wrong there
        for head in heads:
            found += [(yield self.layer(head, 0, [], rule, at, fate))]
        return found

    def layer(self, head: Head, i: int, ids: list[int], rule: Rule, at: _Place, fate: _Fate) -> Steps[PatternLayer]:
        """The pattern of a chain from its link ``i`` down; ``ids`` are those of the links above."""
        link = head.links[i]
        here = at if link.definition == at.definition else _Place(link.definition, at.use or rule.type_span)
        self.check_link(link, rule, here)
        ids.append(self.resolver.new_id())
        own_id = ids[i]
        fate = _Fate(fate.kept or link.kept)
        inside = _Place(link.items_by, here.use)
        inputs: tuple[PatternItem, ...] | None = None
        if i + 1 == len(head.links) and rule.inputs is not None:
            inputs = yield self.items(rule.inputs, at, fate)
        elif link.items is not None and link.hole is None:
            inputs = yield self.items(link.items, inside, fate)
        elif link.items is not None and link.hole is not None:
            before: tuple[PatternItem, ...] = yield self.items(link.items[: link.hole], inside, fate)
            below: PatternLayer = yield self.layer(head, i + 1, ids, rule, at, fate)
            after: tuple[PatternItem, ...] = yield self.items(link.items[link.hole + 1 :], inside, fate)
            inputs = (*before, PatternItem((below,), 1, 1, below.span), *after)
        tests = [run(_bound(test, ids, i - lowest, here.use)) for test, lowest in link.tests]
        data_type, layout, possible = _scoped(link.scopes)
        span = here.use or rule.span
        if not possible:
            tests.append(Test(None, "==", None, span))
        constraint = None if not tests else tests[0] if len(tests) == 1 else AllOf(tuple(tests))
        return PatternLayer(own_id, link.type, link.result, constraint, data_type, layout, inputs, fate.kept, span)

    def check_link(self, link: Link, rule: Rule, here: _Place) -> None:
        start = (here.use or rule.type_span).start
        if here.use is not None:
            self.spend(start, 1)
        if link.result and link.type == self.resolver.own:
            self.report(start, f"the rule matches its own result {link.type!r}: it would never come to an end")
        if link.kept and self.resolver.marked == "fused":
            self.report(start, f'{link.definition!r} holds a mark, which a rule with marked = "fused" cannot use')


def _bound(constraint: Constraint, ids: list[int], shift: int, use: Span | None) -> Steps[Constraint]:
    """A constraint whose operands name ids, where they named positions in a chain that began at ``shift``."""

    def side(value: Side) -> Side:
        return replace(value, at=ids[value.at + shift]) if isinstance(value, Operand) else value

    if isinstance(constraint, Test):
        span = constraint.span if use is None or constraint.definition is None else use
        return replace(constraint, left=side(constraint.left), right=side(constraint.right), span=span)
    parts: list[Constraint] = []
    for part in constraint.parts:
        parts += [(yield _bound(part, ids, shift, use))]
    return AllOf(tuple(parts)) if isinstance(constraint, AllOf) else AnyOf(tuple(parts))


def _scoped(scopes: tuple[Scope, ...]) -> tuple[str | None, str | None, bool]:
    """DataType and layout that scopes on one layer ask for, and whether they can all hold."""
    types = {_DATA_TYPES[scope.data_type] for scope in scopes if scope.data_type}
    layouts = {scope.layout.upper() for scope in scopes if scope.layout}
    possible = len(types) <= 1 and len(layouts) <= 1
    return min(types, default=None), min(layouts, default=None), possible
