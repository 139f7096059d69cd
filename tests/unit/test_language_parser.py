from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fusion_engine.errors import RuleError
from fusion_engine.language.parser import MAX_NESTING, parse, parse_alternatives, unparse
from fusion_engine.language.tokens import place
from fusion_engine.language.tree import Comparison, Constant, Rule, Span
from tests.support.trees import tree_text

BRACES = ("a{" * MAX_NESTING + "a" + "}" * MAX_NESTING, "a{" * (MAX_NESTING + 1) + "a" + "}" * (MAX_NESTING + 1))
GROUPS = tuple("a{" + "(" * (n - 1) + "a" + ")" * (n - 1) + "}" for n in (MAX_NESTING, MAX_NESTING + 1))
PARENTHESES = tuple("a[" + "(" * n + "x == 1" + ")" * n + "]" for n in (MAX_NESTING, MAX_NESTING + 1))


def from_deep_stack(call: Callable[[], Any], spare: int = 100) -> Any:
    """The result of a call that finds only ``spare`` frames left on Python's stack."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back

    def dive(levels: int) -> Any:
        return dive(levels - 1) if levels else call()

    return dive(sys.getrecursionlimit() - depth - spare)


@pytest.mark.parametrize(("deep", "too_deep"), [BRACES, GROUPS, PARENTHESES], ids=["braces", "groups", "parentheses"])
def test_nesting_limit(deep: str, too_deep: str) -> None:
    assert len(tree_text(parse(deep))) > 10
    with pytest.raises(RuleError, match="nested too deep") as caught:
        parse(too_deep)
    brackets = [i for i, sign in enumerate(too_deep) if sign in "{("]
    assert caught.value.column == brackets[MAX_NESTING] + 1


@pytest.mark.parametrize(("deep", "too_deep"), [BRACES, GROUPS, PARENTHESES], ids=["braces", "groups", "parentheses"])
def test_nesting_limit_does_not_depend_on_the_caller(deep: str, too_deep: str) -> None:
    assert tree_text(from_deep_stack(lambda: parse(deep))) == tree_text(parse(deep))
    assert from_deep_stack(lambda: unparse(parse(deep))) == unparse(parse(deep))
    with pytest.raises(RuleError, match="nested too deep"):
        from_deep_stack(lambda: parse(too_deep))


@pytest.mark.parametrize(
    "text",
    [
        "a{" + "a|" * 50_000 + "a}",
        "a{" + "(a, b!):2~3, " * 20_000 + "a}",
        "a[" + "1 == 1 && " * 30_000 + "1 == 1]",
        'a[b == "' + "\\" * 100_000,
        'a[b == "' + "x" * 100_000,
        'a[b == "' + '\\"' * 50_000 + '"]',
        '"' * 100_000,
        "(" * 100_000,
        "a{(" * 100_000,
        "a" * 100_000 + "!",
        "1" * 100_000,
        "a[b == " + "1" * 100_000 + "]",
        "a[b == " + "1x" * 50_000 + "]",
        "a[b == " + "1." * 50_000 + "]",
        "#" * 100_000,
        "# x\n" * 25_000,
        " \t" * 50_000 + "a",
        "\r" * 100_000,
        "a{fp16|nchw|" * 300 + "fp16|" * 20_000,
        "|" * 100_000,
        "a." * 50_000,
    ],
    ids=lambda text: f"{text[:12]}...",
)
def test_hostile_text_raises_nothing_but_rule_errors(text: str) -> None:
    with contextlib.suppress(RuleError):
        parse(text)


def test_sixty_backslashes_and_no_closing_quote() -> None:
    with pytest.raises(RuleError, match='expected "'):
        parse('conv[name=="' + "\\" * 60)


def test_spans() -> None:
    text = " fp16|a[ x == 1 ]{ b ! : 2~, ?}"
    rule = parse(text)

    def cut(span: Span) -> str:
        return text[span.start : span.end]

    assert rule.scope is not None
    assert rule.inputs is not None
    assert isinstance(rule.condition, Comparison)
    assert isinstance(rule.condition.right, Constant)
    assert cut(rule.span) == "fp16|a[ x == 1 ]{ b ! : 2~, ?}"
    assert cut(rule.scope.span) == "fp16|"
    assert cut(rule.type_span) == "a"
    assert cut(rule.condition.span) == "x == 1"
    assert cut(rule.condition.left.span) == "x"
    assert cut(rule.inputs[0].span) == "b ! : 2~"
    assert cut(rule.inputs[0].choices[0].span) == "b !"
    assert cut(rule.inputs[0].choices[0].body.span) == "b"
    assert cut(rule.inputs[1].span) == "?"
    assert rule.condition.right.kind == "int"


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, (1, 1)), (2, (1, 3)), (3, (2, 1)), (4, (3, 1)), (6, (4, 1)), (7, (4, 2))]
)
def test_place_counts_every_line_end(offset: int, expected: tuple[int, int]) -> None:
    assert place("ab\n\rc\rd", offset) == expected


def test_nodes_compare_by_identity_and_show_short() -> None:
    first, second = parse(BRACES[0]), parse(BRACES[0])
    assert first != second
    assert len({first, second}) == 2
    assert repr(first) == f"<Rule 0:{len(BRACES[0])}>"
    assert isinstance(first, Rule)


@pytest.mark.parametrize(
    ("text", "trees"),
    [
        ("Convolution2d", ["(Convolution2d)"]),
        ("Activation{Convolution2d}|Convolution2d", ["(Activation in=((Convolution2d)))", "(Convolution2d)"]),
        ("fp16|a|fp32|b", ["(a scope=fp16/)", "(b scope=fp32/)"]),
    ],
)
def test_alternatives_of_a_vocabulary_name(text: str, trees: list[str]) -> None:
    assert [tree_text(tree) for tree in parse_alternatives(text)] == trees


@pytest.mark.parametrize(("text", "column"), [("a|", 3), ("a|?", 3), ("a!", 2), ("(a)", 1), ("a:2", 2), ("", 1)])
def test_no_alternatives(text: str, column: int) -> None:
    with pytest.raises(RuleError) as caught:
        parse_alternatives(text)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_message_shows_the_line_a_caret_and_what_was_expected() -> None:
    with pytest.raises(RuleError) as caught:
        parse("a{\n\tb{c d}\n}")
    assert str(caught.value) == "line 2, column 6: expected , or }, found 'd'\n    \tb{c d}\n    \t    ^"


def test_byte_order_mark_counts_in_the_column_and_takes_no_room_above_the_caret() -> None:
    with pytest.raises(RuleError) as caught:
        parse("\ufeffa{b")
    assert caught.value.column == 5
    assert str(caught.value).endswith("\n    \ufeffa{b\n       ^")


def test_unparse_is_canonical() -> None:
    text = 'fp16|nchw|A [ (x==.5||y<>"q\\"")&&(z<=2x3 ) ]{ (b,c!) ! :0~ , |nhwc|d:2|e }'.replace(":2|e", "|e:2")
    assert unparse(parse(text)) == 'fp16|nchw|A[(x == 0.5 || y <> "q\\"") && z <= 2x3]{(b, c!)!:0~, |nhwc|d|e:2}'
