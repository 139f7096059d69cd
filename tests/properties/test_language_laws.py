from __future__ import annotations

import math
import tempfile
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fusion_engine.errors import RuleError
from fusion_engine.language.parser import SCOPE_WORDS, parse, parse_alternatives, unparse
from fusion_engine.language.rule import FusingRule
from fusion_engine.language.rulefile import read_rules
from fusion_engine.language.tomlplaces import locations
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
)
from tests.support.trees import tree_text

HERE = Span(0, 0)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name not in SCOPE_WORDS)
WHOLE = st.integers(0, 10**18 - 1)


def constants() -> st.SearchStrategy[Constant]:
    strings = st.text(st.characters(exclude_characters="\r\n"), max_size=5)
    return st.one_of(
        st.integers(-(10**18) + 1, 10**18 - 1).map(lambda value: Constant("int", value, HERE)),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda value: Constant("float", value, HERE)),
        strings.map(lambda value: Constant("string", value, HERE)),
        st.lists(WHOLE, min_size=2, max_size=3).map(lambda value: Constant("dimension", tuple(value), HERE)),
    )


def conditions() -> st.SearchStrategy[Condition]:
    parameters = st.lists(NAMES, min_size=1, max_size=2).map(lambda parts: Parameter(".".join(parts), HERE))
    values = st.one_of(constants(), parameters)
    comparisons = st.builds(
        Comparison, values, st.sampled_from(["<", ">", "<=", ">=", "==", "<>"]), values, st.just(HERE)
    )

    def longer(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        # `a && b || c` is Or(And(a, b), c) with and without parentheses, so an And in an Or is one case.
        return st.one_of(st.builds(And, parts, st.just(HERE)), st.builds(Or, parts, st.just(HERE)))

    return st.recursive(comparisons, longer, max_leaves=6)


def rules(scoped: bool) -> st.SearchStrategy[Rule]:
    scopes: st.SearchStrategy[Scope | None] = st.none()
    if scoped:
        types = st.sampled_from([None, "fp16", "fp32"])
        layouts = st.sampled_from([None, "nchw", "nhwc"])
        built = st.builds(Scope, types, layouts, st.just(HERE)).filter(lambda scope: scope.data_type or scope.layout)
        scopes = st.one_of(st.none(), built)

    def with_inputs(items: st.SearchStrategy[tuple[Item, ...] | None]) -> st.SearchStrategy[Rule]:
        return st.builds(Rule, scopes, NAMES, st.just(HERE), st.one_of(st.none(), conditions()), items, st.just(HERE))

    def deeper(inner: st.SearchStrategy[Rule]) -> st.SearchStrategy[Rule]:
        bodies: st.SearchStrategy[Any] = st.one_of(inner, st.just(AnyLayer(HERE)))
        items = item_lists(bodies)
        bodies = st.one_of(bodies, st.builds(Group, items, st.just(HERE)))
        return with_inputs(item_lists(bodies))

    return st.recursive(with_inputs(st.none()), deeper, max_leaves=8)


def item_lists(bodies: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Item, ...]]:
    choices = st.lists(st.builds(Element, bodies, st.booleans(), st.just(HERE)), min_size=1, max_size=3).map(tuple)
    ranges = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3))).map(
        lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
    )
    items = st.tuples(choices, ranges).map(lambda made: Item(made[0], made[1][0], made[1][1], HERE))
    return st.lists(items, min_size=1, max_size=3).map(tuple)


@given(rules(scoped=True))
def test_text_of_a_tree_gives_the_tree_again_in_version_2(tree: Rule) -> None:
    assert tree_text(parse(unparse(tree), 2)) == tree_text(tree)


@given(rules(scoped=False))
def test_text_of_a_tree_gives_the_tree_again_in_version_1(tree: Rule) -> None:
    assert tree_text(parse(unparse(tree), 1)) == tree_text(tree)


PIECES = st.sampled_from(
    [
        *'{}[]()|!?:~,.#"\\<>=&$ \t\n\r',
        *("&&", "||", "==", "<>", "<=", "0", "1", "2", "-3", "0.5", "1e-3", "3x3", "3x3x3", '"ReLu"', '"x', "\ufeff"),
        *("Activation", "Convolution2d", "Addition", "Pad", "conv", "Stem", "fp16", "nchw", "fp16|", "|nchw|"),
        *("activationFunction", "strideX", "kernel", "act", "act.alpha", "output.n", "input1.dataType", "padList"),
        *("Activation{", "Addition{", "Convolution2d[", "}", "]", "?", "ReLu"),
    ]
)
TEXTS = st.one_of(
    st.text(max_size=30), st.lists(PIECES, max_size=25).map("".join), st.lists(PIECES, max_size=25).map(" ".join)
)


def error_of(call: Callable[[], Any]) -> RuleError | None:
    try:
        call()
    except RuleError as error:
        return error
    return None


@given(TEXTS, st.sampled_from([1, 2]))
def test_any_text_is_a_rule_or_a_rule_error_inside_the_text(text: str, version: int) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for read in (parse, parse_alternatives):
        error = error_of(partial(read, text, version))
        if error is not None:
            assert 1 <= error.line <= len(lines)
            assert 1 <= error.column <= len(lines[error.line - 1]) + 1
            assert str(error)


@given(TEXTS, TEXTS, st.sampled_from([1, 2]), st.sampled_from(["kept", "fused"]))
def test_any_text_and_vocabulary_make_a_rule_or_a_rule_error(text: str, layer: str, version: int, marked: str) -> None:
    error = error_of(lambda: FusingRule(text, version, vocabulary={"conv": layer}, results=["Stem"], marked=marked))
    if error is None:
        tree = parse(text, version)
        assert tree_text(parse(unparse(tree), version)) == tree_text(tree)
    else:
        told = [error, *error.others]
        in_text = [one for one in told if not one.reason.startswith("in the vocabulary name")]
        assert told[len(told) - len(in_text) :] == in_text
        for part in (told[: len(told) - len(in_text)], in_text):
            assert part == sorted(part, key=lambda one: (one.line, one.column))


# TOML documents


BARE = st.from_regex(r"[a-z0-9_-]{1,4}", fullmatch=True)
PLAIN = st.text(st.sampled_from("ab[]{}#,=. "), max_size=6)


def rendered(draw: Any, value: Any) -> str:
    """A value in one of TOML's spellings."""
    if isinstance(value, str):
        spellings = [f"'{value}'", f'"{value}"', f"'''{value}'''", f'"""\n{value}"""']
        return str(draw(st.sampled_from(spellings)))
    blank = draw(st.sampled_from(["", " ", "\n", " # [{'\n"]))
    if isinstance(value, list):
        comma = "," if value and draw(st.booleans()) else ""
        return f"[{blank}" + f"{blank},{blank}".join(rendered(draw, one) for one in value) + f"{blank}{comma}{blank}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {rendered(draw, one)}" for key, one in value.items()) + " }"
    return str(value)


@st.composite
def tomls(draw: Any) -> str:
    leaves = st.one_of(PLAIN, st.integers(-99, 99))
    values = st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(BARE, inner, max_size=2)),
        max_leaves=6,
    )
    tables = draw(st.dictionaries(BARE, st.lists(st.dictionaries(BARE, values, max_size=3), max_size=3), max_size=3))
    lines = []
    for name, many in tables.items():
        for table in many:
            lines.append(draw(st.sampled_from([f"[[{name}]]", f"[[ '{name}' ]] # [x]", f'[["{name}"]]'])))
            lines += [f"{key} = {rendered(draw, value)}" for key, value in table.items()]
    return "\n".join(lines)


@given(tomls())
def test_every_string_of_a_document_is_found(text: str) -> None:
    found = locations(text)
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), tomllib.loads(text))]
    paths = set()
    while stack:
        path, value = stack.pop()
        paths.add(path)
        if isinstance(value, dict):
            stack += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            stack += [((*path, i), inner) for i, inner in enumerate(value)]
        elif isinstance(value, str):
            inside = found[path].inside
            assert inside is not None
            assert text.startswith(value, inside)
    assert set(found) == paths - {()}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_to_the_bit(value: float) -> None:
    tree = parse(f"a[x == {value!r}]")
    again = parse(unparse(tree))
    assert isinstance(again.condition, Comparison)
    assert isinstance(again.condition.right, Constant)
    found = again.condition.right.value
    assert isinstance(found, float)
    assert (found, math.copysign(1, found)) == (value, math.copysign(1, value))


TOML_PIECES = st.sampled_from(
    [
        *("[[rule]]\n", "[layers]\n", "[rule]\n", "match = ", "into = ", "fold = ", "group = ", "name = ", "code = "),
        *(
            "syntax = ",
            "marked = ",
            "ordered = ",
            "conv = ",
            "rule = ",
            "x",
            ".",
            "=",
            "[",
            "]",
            "{",
            "}",
            ",",
            "\n",
            "\r\n",
        ),
        *(
            '"Softmax"\n',
            "'conv{?}'\n",
            '"A"\n',
            "'Foo'\n",
            "'''\nPad{\nA}'''\n",
            '"a\\"b"\n',
            "1\n",
            "2\n",
            "true\n",
            "1.5\n",
        ),
        *(
            '"batch-norm"\n',
            '"fused"\n',
            '"',
            "'",
            "\\",
            "#",
            "é",
            "\udc80",
            "\0",
            "1979-05-27\n",
            '["Softmax", "conv"]\n',
        ),
    ]
)


@given(
    st.one_of(st.binary(max_size=40), st.lists(TOML_PIECES, max_size=20).map("".join)),
    st.sampled_from(["toml", "rules"]),
)
def test_any_file_is_rules_or_rule_errors(content: bytes | str, suffix: str) -> None:
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"any.{suffix}"
        path.write_bytes(data)
        rules, errors = read_rules([path])
    for error in errors:
        assert error.source == str(path)
        assert str(error)
    assert all(rule.patterns for rule in rules)
