"""Text of a fusing rule to its syntax tree, and back.

The grammar is that of NvNeural's fusing rules, syntax versions 1 and 2. Version 2 has scopes, and
with them one ambiguity of the printed grammar: ``fp16|a`` could be two alternatives. Here a scope
word and its bar are a scope where a name follows that is no scope word itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from fusion_engine.language.steps import Steps, run
from fusion_engine.language.tokens import Token, Tokens, fail
from fusion_engine.language.tree import (
    And,
    AnyLayer,
    Comparison,
    Condition,
    Constant,
    Element,
    Group,
    Item,
    Or,
    Parameter,
    Rule,
    Scope,
    Span,
    Value,
)

__all__ = [
    "MAX_NESTING",
    "SCOPES_ARE",
    "SCOPE_WORDS",
    "SYNTAX_VERSIONS",
    "parse",
    "parse_alternatives",
    "scope_like",
    "unparse",
]

SYNTAX_VERSIONS = (1, 2)

MAX_NESTING = 1000
"""Most braces and parentheses that may be open at once."""

DATA_TYPE_SCOPES = ("fp16", "fp32")
LAYOUT_SCOPES = ("nchw", "nhwc")
SCOPE_WORDS = frozenset({*DATA_TYPE_SCOPES, *LAYOUT_SCOPES})
SCOPES_ARE = 'scopes are fp16| and fp32|, |nchw| and |nhwc|, or both, as fp16|nchw|; others are conditions, as \
[output.dataType == "QAsymmU8"]'
"""What is said of a word that was meant for a scope."""

_SCOPE_LIKE = re.compile(r"(?:b?fp?|float|u?int|[qs][a-z]*|f)[0-9]+|n[dchw]{2,4}", re.IGNORECASE)

_BEHIND_ROOT = {
    "!": "the root is never kept: marks stand in braces",
    ":": "ranges stand in braces",
    ",": "a rule has one root: what feeds it stands in braces",
    "|": "a rule has one root: give alternatives as a list of matches, each of them whole",
    "{": "braces come once, and last",
    "[": "a condition stands before the braces",
}
"""What may be wrong behind the root, by the sign that is found there."""

_BEFORE_ROOT = {
    "?": "the root has a type: ? stands in braces",
    "(": "the root has a type: groups stand in braces",
    "|": SCOPES_ARE,
}
"""What may be wrong where the root's type is missing."""

_COMPARISONS = frozenset({"<", ">", "<=", ">=", "==", "<>"})
_MISTAKEN = {"=": " (equal is ==)", "!": " (not equal is <>)"}


def parse(text: str, syntax_version: int = 2) -> Rule:
    """The syntax tree of a rule.

    Parameters
    ----------
    text
        The rule; whitespace and ``#`` comments between tokens are free.
    syntax_version
        1, or 2 (with scopes such as ``fp16|nchw|``).

    Raises
    ------
    RuleError
        At the first place where the text stops being a rule.

    Examples
    --------
    >>> parse("Activation{Convolution2d!|?}").type
    'Activation'
    """
    parser = _Parser(text, syntax_version)
    rule: Rule = run(parser.rule(rooted=True))
    if parser.tokens.peek().kind != "end":
        parser.tokens.fail("the end of the rule", parser.behind_root(rule))
    return rule


def parse_alternatives(text: str, syntax_version: int = 2) -> tuple[Rule, ...]:
    """The alternatives ``rule {"|" rule}`` that a vocabulary name stands for.

    Raises
    ------
    RuleError
        At the first place where the text stops being that.
    """
    parser = _Parser(text, syntax_version)
    rules = [run(parser.rule())]
    while parser.tokens.take_if("|"):
        rules.append(run(parser.rule()))
    parser.finish("| or the end of the definition")
    return tuple(rules)


def scope_like(word: str) -> bool:
    """Whether a name that is no layer type looks as if it was meant for a scope.

    Examples
    --------
    >>> [word for word in ("fp8", "NHCW", "int8", "ReLu6", "conv") if scope_like(word)]
    ['fp8', 'NHCW', 'int8']
    """
    return word.lower() in SCOPE_WORDS or _SCOPE_LIKE.fullmatch(word) is not None


class _Parser:
    """Recursive descent, one method a production, run as `Steps`."""

    def __init__(self, text: str, syntax_version: int) -> None:
        self.text = text
        self.tokens = Tokens(text)
        self.scoped = syntax_version == 2
        self.open: list[Token] = []
        self.depth = 0

    def behind_root(self, rule: Rule) -> str:
        """What may be meant by what stands behind a rule that could have ended."""
        kind = self.tokens.peek().kind
        bare = rule.condition is None and rule.inputs is None
        if kind == "|" and bare:
            if rule.type in SCOPE_WORDS and not self.scoped:
                return "scopes belong to syntax version 2"
            if rule.type in DATA_TYPE_SCOPES:
                return "the data type comes before the layout, as fp16|nchw|"
            if scope_like(rule.type):
                return f"{rule.type!r} is no scope: {SCOPES_ARE}"
        if kind == "[" and rule.inputs is None:
            return "a layer has one condition: join its tests by &&"
        return _BEHIND_ROOT.get(kind, "")

    def finish(self, expected: str) -> None:
        if self.tokens.peek().kind != "end":
            self.tokens.fail(expected)

    # Brackets

    def enter(self) -> None:
        """Take an opening bracket."""
        token = self.tokens.take()
        if token.kind != "[":  # these never nest
            self.depth += 1
        if self.depth > MAX_NESTING:
            fail(self.text, token.span.start, f"nested too deep: at most {MAX_NESTING} brackets may be open at once")
        self.open.append(token)

    def leave(self, closing: str, also: str = "") -> Token:
        """Take the closing bracket; ``also`` says what else could stand there."""
        opening = self.open.pop()
        self.depth -= opening.kind != "["
        found = self.tokens.take_if(closing)
        if found is None:
            if self.tokens.peek().kind == "end":
                before = re.search(r"[A-Za-z0-9_]*$", self.text[: opening.span.start])
                name = before[0][-40:] if before else ""
                self.tokens.fail(f"{closing} to close '{name}{opening.text}'")
            self.tokens.fail(also + closing)
        return found

    # Layers

    def rule(self, *, rooted: bool = False) -> Steps[Rule]:
        scope = self.scope(rooted) if self.scoped else None
        name = self.tokens.take_if("id")
        if name is None:
            self.tokens.fail("a layer type", _BEFORE_ROOT.get(self.tokens.peek().kind, "") if rooted else "")
        start = scope.span.start if scope else name.span.start
        end = name.span.end
        condition: Condition | None = None
        if self.tokens.peek().kind == "[":
            self.enter()
            condition = yield self.condition()
            end = self.leave("]", "&&, || or ").span.end
        inputs: tuple[Item, ...] | None = None
        if self.tokens.peek().kind == "{":
            self.enter()
            inputs = yield self.items()
            end = self.leave("}", ", or ").span.end
        return Rule(scope, name.text, name.span, condition, inputs, Span(start, end))

    def items(self) -> Steps[tuple[Item, ...]]:
        found: list[Item] = []
        while True:
            item: Item = yield self.item()
            found.append(item)
            if not self.tokens.take_if(","):
                return tuple(found)

    def item(self) -> Steps[Item]:
        choices: list[Element] = []
        while True:
            element: Element = yield self.element()
            choices.append(element)
            if not self.tokens.take_if("|"):
                break
        start, end = choices[0].span.start, choices[-1].span.end
        low: int = 1
        high: int | None = 1
        if self.tokens.take_if(":"):
            low, high, end = self.range()
        return Item(tuple(choices), low, high, Span(start, end))

    def range(self) -> tuple[int, int | None, int]:
        """``from ["~" [to]]`` as low, high and where it ends."""
        first = self.count()
        low = _integer(self.text, first)
        tilde = self.tokens.take_if("~")
        if tilde is None:
            return low, low, first.span.end
        if self.tokens.peek().kind in (",", "}", ")", "end"):
            return low, None, tilde.span.end
        last = self.count()
        high = _integer(self.text, last)
        if low > high:
            fail(
                self.text, first.span.start, f"the range {low}~{high} holds no count: its first number is the smallest"
            )
        return low, high, last.span.end

    def count(self) -> Token:
        token = self.tokens.peek()
        if token.kind != "integer" or not token.text[0].isdigit():
            self.tokens.fail("a whole number without a sign")
        return self.tokens.take()

    def element(self) -> Steps[Element]:
        token = self.tokens.peek()
        body: Rule | AnyLayer | Group
        if token.kind == "?":
            body = AnyLayer(self.tokens.take().span)
        elif token.kind == "(":
            self.enter()
            items: tuple[Item, ...] = yield self.items()
            body = Group(items, Span(token.span.start, self.leave(")", ", or ").span.end))
        elif token.kind == "id" or (self.scoped and self.scope_at(0)):
            body = yield self.rule()
        elif token.kind == "|":
            self.tokens.fail("a layer type, ? or ( (a lone | neither parts alternatives nor makes a scope)")
        else:
            self.tokens.fail("a layer type, ? or (")
        mark = self.tokens.take_if("!")
        return Element(body, mark is not None, Span(body.span.start, mark.span.end if mark else body.span.end))

    # Scopes

    def scope_at(self, distance: int, rooted: bool = False) -> tuple[str | None, str | None, int] | None:
        """Data type, layout and number of tokens of the scope that begins there, or None."""

        def word(offset: int, words: tuple[str, ...]) -> str | None:
            token = self.tokens.peek(distance + offset)
            return token.text if token.kind == "id" and token.text in words else None

        def bar(offset: int) -> bool:
            return self.tokens.peek(distance + offset).kind == "|"

        if bar(0):
            layout = word(1, LAYOUT_SCOPES)
            return (None, layout, 3) if layout and bar(2) else None
        data_type = word(0, DATA_TYPE_SCOPES)
        layout = None if data_type else word(0, LAYOUT_SCOPES)
        if not (data_type or layout) or not bar(1):
            return None
        length = 2
        if data_type and (layout := word(2, LAYOUT_SCOPES)) and bar(3):
            length = 4
        elif data_type:
            layout = None
        after = self.tokens.peek(distance + length)
        named = after.kind == "id" and after.text not in SCOPE_WORDS
        return (data_type, layout, length) if named or rooted else None

    def scope(self, rooted: bool) -> Scope | None:
        found = self.scope_at(0, rooted)
        if found is None:
            return None
        data_type, layout, length = found
        taken = [self.tokens.take() for _ in range(length)]
        return Scope(data_type, layout, Span(taken[0].span.start, taken[-1].span.end))

    # Conditions

    def condition(self) -> Steps[Condition]:
        parts: list[Condition] = []
        while True:
            part: Condition = yield self.conjunction()
            parts.append(part)
            if self.tokens.peek().kind != "|":
                return _joined(Or, parts)
            bar = self.tokens.take()
            if self.tokens.peek().kind != "|" or self.tokens.peek().span.start != bar.span.end:
                fail(self.text, bar.span.start, "expected ||, found '|' (alternatives stand in braces)")
            self.tokens.take()

    def conjunction(self) -> Steps[Condition]:
        parts: list[Condition] = []
        while True:
            part: Condition = yield self.operand()
            parts.append(part)
            if not self.tokens.take_if("&&"):
                return _joined(And, parts)

    def operand(self) -> Steps[Condition]:
        if self.tokens.peek().kind == "(":
            self.enter()
            inner: Condition = yield self.condition()
            self.leave(")", "&&, || or ")
            return inner
        left = self.value(" or (")
        token = self.tokens.peek()
        if token.kind not in _COMPARISONS:
            self.tokens.fail(f"a comparison: == <> < > <= or >={_MISTAKEN.get(token.kind, '')}")
        self.tokens.take()
        right = self.value()
        return Comparison(left, token.kind, right, Span(left.span.start, right.span.end))

    def value(self, also: str = "") -> Value:
        token = self.tokens.peek()
        read = _VALUES.get(token.kind)
        if read is not None:
            kind = "int" if token.kind == "integer" else token.kind
            return Constant(kind, read(self.text, self.tokens.take()), token.span)
        if token.kind != "id":
            self.tokens.fail(f"a value{also}")
        self.tokens.take()
        if not self.tokens.take_if("."):
            return Parameter(token.text, token.span)
        part = self.tokens.take_if("id")
        if part is None:
            self.tokens.fail("a name after the dot")
        return Parameter(f"{token.text}.{part.text}", Span(token.span.start, part.span.end))


def _joined(kind: type[And] | type[Or], parts: list[Condition]) -> Condition:
    if len(parts) == 1:
        return parts[0]
    return kind(tuple(parts), Span(parts[0].span.start, parts[-1].span.end))


# Values


def _integer(text: str, token: Token) -> int:
    return _whole(text, token, token.text)


def _whole(text: str, token: Token, digits: str) -> int:
    if len(digits.lstrip("+-").lstrip("0")) > 18:
        fail(text, token.span.start, "the number is too large: at most 18 digits")
    return int(digits)


def _float(text: str, token: Token) -> float:
    value = float(token.text)
    if math.isinf(value):
        fail(text, token.span.start, "the number is too large for a 64-bit float")
    return value


def _string(text: str, token: Token) -> str:
    return re.sub(r"\\(.)", r"\1", token.text[1:-1])


def _dimension(text: str, token: Token) -> tuple[int, ...]:
    return tuple(_whole(text, token, part) for part in token.text.split("x"))


Reader: TypeAlias = Callable[[str, Token], "int | float | str | tuple[int, ...]"]

_VALUES: dict[str, Reader] = {"integer": _integer, "float": _float, "string": _string, "dimension": _dimension}


# Back to text

_Part: TypeAlias = "str | Rule | Item | Element | Condition"


def unparse(rule: Rule) -> str:
    """The canonical text of a tree: parsing it gives the same tree but for spans.

    Examples
    --------
    >>> unparse(parse("Activation [ a>=.5 ]{ Convolution2d : 0~1 , ? }"))
    'Activation[a >= 0.5]{Convolution2d:0~1, ?}'
    """
    written: list[str] = []
    stack: list[_Part] = [rule]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            written.append(part)
        else:
            stack.extend(reversed(_parts(part)))
    return "".join(written)


def _parts(node: Rule | Item | Element | Condition) -> list[_Part]:
    if isinstance(node, Rule):
        parts: list[_Part] = [_scope_text(node.scope) + node.type]
        if node.condition is not None:
            parts += ["[", node.condition, "]"]
        return parts if node.inputs is None else [*parts, "{", *_list(", ", node.inputs), "}"]
    if isinstance(node, Item):
        return [*_list("|", node.choices), _range_text(node)]
    if isinstance(node, Element):
        mark = "!" if node.marked else ""
        if isinstance(node.body, Group):
            return ["(", *_list(", ", node.body.items), ")" + mark]
        return ["?" + mark] if isinstance(node.body, AnyLayer) else [node.body, mark]
    if isinstance(node, Comparison):
        return [f"{_value_text(node.left)} {node.op} {_value_text(node.right)}"]
    nested = (And, Or) if isinstance(node, And) else (Or,)
    written: list[_Part] = []
    for part in node.parts:
        if written:
            written.append(" && " if isinstance(node, And) else " || ")
        written += ["(", part, ")"] if isinstance(part, nested) else [part]
    return written


def _list(between: str, nodes: Sequence[Item] | Sequence[Element]) -> list[_Part]:
    written: list[_Part] = []
    for node in nodes:
        written += [between, node] if written else [node]
    return written


def _scope_text(scope: Scope | None) -> str:
    if scope is None:
        return ""
    return (scope.data_type or "") + (f"|{scope.layout}|" if scope.layout else "|")


def _range_text(item: Item) -> str:
    if item.high is None:
        return f":{item.low}~"
    if item.low != item.high:
        return f":{item.low}~{item.high}"
    return "" if item.low == 1 else f":{item.low}"


def _value_text(value: Value) -> str:
    if isinstance(value, Parameter):
        return value.name
    if isinstance(value.value, str):
        return '"' + value.value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value.value, tuple):
        return "x".join(str(extent) for extent in value.value)
    return repr(value.value)
