"""What in a rule has a meaning of this project's own: what NvNeural's printed grammar does not say.

Its reference prints the syntax, and says what ``act.alpha``, dimensions, ``<>`` and the two-part scopes mean. Another
reader of the grammar may take all else differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from fusion_engine.errors import RuleError
from fusion_engine.language.parser import parse, parse_alternatives
from fusion_engine.language.rulefile import CheckedFile, PlacedRule
from fusion_engine.language.tree import AnyLayer, Comparison, Condition, Constant, Group, Item, Parameter, Rule, Span
from fusion_engine.linting.findings import Finding
from fusion_engine.match.machine import COMMUTATIVE
from fusion_engine.schema import schema
from fusion_engine.spellings import SPELLINGS

__all__ = ["judge_portability"]

_OURS = "this project's own: "

_ARGUMENTS = {
    "fold": "what a rule makes: an ordinary Arm NN layer, computed by a fold",
    "into": "what a rule makes: an opaque layer",
    "group": "what a rule makes: a group of layers",
    "code": "a number for the backend",
    "when": "a condition in Python",
    "ordered": "that inputs of commutative layers are swapped, or are not",
    "marked": "what ! means, and that it can be said",
}
"""What is said of an argument that a rule's file gives."""

_SYMMETRIC = COMMUTATIVE | {SPELLINGS[name].type for name in COMMUTATIVE}

_MEANINGS = {
    "braces": "that braces are the data inputs, all of them and in the order of the slots",
    "any": "that ? is never taken in",
    "alternatives": "that alternatives are tried from left to right, the next where one comes to nothing",
    "group": "that parentheses are a run of inputs",
    "range": "that a range repeats over inputs, as many as can be",
    "mark": "what ! means",
    "name": "what this name means in a condition",
    "order": "that dimensions compare extent by extent",
    "float": "that a literal is rounded to 32 bits before it is compared",
    "scope": "a scope of a layout without a bar before it",
    "swapped": "that the inputs of a commutative layer are also tried swapped",
    "type": "that a deprecated layer type and its successor match alike",
    "arm": "that layer types are Arm NN's",
}


def judge_portability(file: CheckedFile) -> Iterator[Finding]:
    """What of a file's rules and vocabulary has a meaning of this project's own: each kind once a text."""
    for placed in file.rules:
        yield from _of_rule(placed)
    for name, text in file.layers.items():
        with suppress(RuleError):  # of which it is told already
            trees = parse_alternatives(text, max((placed.rule.syntax_version for placed in file.rules), default=2))
            for span, reason in _told(list(trees), text, False):
                yield Finding("portable", file.fault_in_layer(name, span.start, reason))


def _of_rule(placed: PlacedRule) -> Iterator[Finding]:
    rule = placed.rule
    for argument, reason in _ARGUMENTS.items():
        if placed.has(argument):
            yield Finding("portable", placed.fault_of(argument, _OURS + reason))
    for index, text in enumerate(rule.texts):
        for span, reason in _told([parse(text, rule.syntax_version)], text, rule.ordered):
            yield Finding("portable", placed.fault_in_text(index, span.start, reason))


def _told(trees: list[Rule], text: str, ordered: bool) -> Iterator[tuple[Span, str]]:
    """The first place of each kind of construct in a text, with what is ours there and how often it comes again."""
    places: dict[str, list[Span]] = {}
    for tree in trees:
        for kind, span in _constructs(tree, text, ordered):
            places.setdefault(kind, []).append(span)
    for kind, spans in sorted(places.items(), key=lambda entry: (entry[1][0].start, entry[0])):
        again = len(spans) - 1
        more = "" if not again else f" (and {again} more here)"
        yield spans[0], f"{_OURS}{_MEANINGS[kind]}{more}"


def _constructs(tree: Rule, text: str, ordered: bool) -> Iterator[tuple[str, Span]]:
    stack: list[Rule | Item] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Rule):
            yield from _of_layer(node, text, ordered)
            stack.extend(reversed(node.inputs or ()))
            continue
        if len(node.choices) > 1:
            yield "alternatives", node.choices[1].span
        if (node.low, node.high) != (1, 1) or text[: node.span.end].rstrip().endswith((":1", "~1")):
            yield "range", node.span
        for choice in reversed(node.choices):
            if choice.marked:
                yield "mark", Span(choice.span.end - 1, choice.span.end)
            if isinstance(choice.body, AnyLayer):
                yield "any", choice.span
            elif isinstance(choice.body, Group):
                yield "group", choice.span
                stack.extend(reversed(choice.body.items))
            else:
                stack.append(choice.body)


def _of_layer(layer: Rule, text: str, ordered: bool) -> Iterator[tuple[str, Span]]:
    scope = layer.scope
    if scope is not None and scope.data_type is None and not text.startswith("|", scope.span.start):
        yield "scope", scope.span
    if layer.type in schema().layers:
        yield "arm", layer.type_span
    if layer.type in SPELLINGS or layer.type in {new.type for new in SPELLINGS.values()}:
        yield "type", layer.type_span
    if layer.inputs is not None:
        yield (
            "braces",
            Span(
                text.index("{", layer.type_span.end if layer.condition is None else layer.condition.span.end),
                layer.span.end,
            ),
        )
        if layer.type in _SYMMETRIC and not ordered:
            yield "swapped", layer.type_span
    if layer.condition is not None:
        yield from _of_condition(layer.condition)


def _of_condition(condition: Condition) -> Iterator[tuple[str, Span]]:
    stack = [condition]
    while stack:
        node = stack.pop()
        if not isinstance(node, Comparison):
            stack.extend(reversed(node.parts))
            continue
        for side in (node.left, node.right):
            if isinstance(side, Parameter):
                if side.name != "act.alpha":
                    yield "name", side.span
            elif side.kind == "float":
                yield "float", side.span
        if node.op not in ("==", "<>") and any(
            isinstance(side, Constant) and side.kind == "dimension" for side in (node.left, node.right)
        ):
            yield "order", node.span
