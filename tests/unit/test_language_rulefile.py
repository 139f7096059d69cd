from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fusion_engine.errors import RuleError
from fusion_engine.folds import OWN
from fusion_engine.language.rulefile import check_file, load_rules, read_rules
from fusion_engine.language.sources import MAX_BYTES, read_source, shipped_names
from fusion_engine.language.tomlplaces import MAX_DEPTH, locations, too_deep
from fusion_engine.resources import folder
from fusion_engine.schema import schema
from tests.unit.test_language_golden import GOLDEN
from tests.unit.test_language_parser import from_deep_stack

RULE = '[[rule]]\nmatch = "Softmax"\ninto = "A"\n'


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


# Sources


def test_shipped_names() -> None:
    assert shipped_names() == ("armnn", "npu", "nvneural")
    for name in shipped_names():
        assert read_source(name).name == f"{name}.toml"
        assert all(rule.source == f"{name}.toml" for rule in load_rules(name))


def test_a_path_is_taken_as_str_and_as_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "my.toml", RULE)
    write(tmp_path / "plain", RULE)
    write(tmp_path / "npu", RULE)
    monkeypatch.chdir(tmp_path)
    for source in (path, str(path), "my.toml", "./my.toml", "plain", Path("plain"), Path("npu"), "./npu"):
        (rule,) = load_rules(source)
        assert (rule.into, rule.source) == ("A", os.fspath(source))
    with pytest.raises(RuleError, match=r"there are no rules 'my' \(did you mean the file 'my.toml'\?\)"):
        load_rules("my")
    assert len(load_rules("npu")) > 1  # a shipped name comes first: ./npu means the file


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("npuu", r"there are no rules 'npuu' \(did you mean 'npu'.*shipped names armnn, npu, nvneural"),
        ("", "there are no rules ''"),
        ("missing.toml", "cannot be read: No such file or directory .*armnn, npu, nvneural"),
        ("no/such/folder", "cannot be read: No such file"),
        (Path("missing"), "cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
        ("nul\0.toml", "cannot be read: embedded null"),
        (None, "loaded by name or path, not from NoneType"),
        (["npu"], "loaded by name or path, not from list"),
    ],
)
def test_sources_that_are_none(source: Any, reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        load_rules(source)
    assert len(check_file(source)) == 1


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    (error,) = check_file(write(tmp_path / "rules.json", "{}"))
    assert "ends in .toml or .rules" in error.reason


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "closed.toml", RULE)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    (error,) = check_file(path)
    assert "Permission denied" in error.reason


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    (error,) = check_file(write(tmp_path / "huge.toml", "#" * (MAX_BYTES + 1)))
    assert error.reason == f"the rule file is larger than {MAX_BYTES} bytes: split it"
    assert check_file(write(tmp_path / "large.toml", RULE + "#" * (MAX_BYTES - len(RULE)))) == []


# Loading


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("a.toml", "", "begin each with [[rule]]"),
        ("a.toml", "[layers]\nrelu = 'Activation'\n", "begin each with [[rule]]"),
        ("a.rules", "# nothing\n\n", "write one on a line"),
    ],
)
def test_a_file_without_a_rule_is_an_error_wherever_it_is_read(tmp_path: Path, name: str, text: str, hint: str) -> None:
    path = write(tmp_path / name, text)
    (error,) = check_file(path)
    assert f"there is no rule in the file: {hint}" in error.reason
    assert (error.line, error.column) == (1, 1)
    with pytest.raises(RuleError, match="there is no rule in the file"):
        load_rules(path)
    with pytest.raises(RuleError, match="there is no rule in the file"):
        load_rules("armnn", path)


def test_results_are_known_across_the_files_of_a_call(tmp_path: Path) -> None:
    top = write(tmp_path / "top.toml", '[[rule]]\nmatch = "Pooling2d{ConvRelu, Activation_Pad}"\ninto = "Top"\n')
    low = write(tmp_path / "low.toml", '[[rule]]\nmatch = "Activation{Convolution2d}"\ninto = "ConvRelu"\n')
    lines = write(tmp_path / "low.rules", "Activation{Pad}\n")
    assert [rule.into for rule in load_rules(top, low, lines)] == ["Top", "ConvRelu", "Activation_Pad"]
    assert [error.column for error in check_file(top)] == [20, 30]
    assert check_file(top, results=["ConvRelu", "Activation_Pad"]) == []


def test_the_result_of_a_wrong_rule_is_known_all_the_same(tmp_path: Path) -> None:
    text = '[[rule]]\nmatch = "Foo"\ninto = "A"\nx = 1\n[[rule]]\nmatch = "Softmax{A}"\ninto = "B"\n'
    assert [error.line for error in check_file(write(tmp_path / "a.toml", text))] == [2, 4]


def test_load_rules_raises_the_first_error_with_the_others(tmp_path: Path) -> None:
    one = write(tmp_path / "one.rules", "Softmax\nPad{\nFoo\n")
    two = write(tmp_path / "two.rules", "Bar\n")
    with pytest.raises(RuleError) as caught:
        load_rules(one, two)
    told = [caught.value, *caught.value.others]
    assert [(error.source, error.line) for error in told] == [(str(one), 2), (str(one), 3), (str(two), 1)]
    rules, errors = read_rules([one, two])
    assert [rule.text for rule in rules] == ["Softmax"]
    assert [str(error) for error in errors] == [str(error) for error in told]


def test_an_error_shows_file_line_and_caret(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", "[[rule]]\nname = 'n'\nmatch = 'conv{bn{relu'\ninto = 'A'\n")
    (error,) = check_file(path)
    assert str(error) == (
        f"{path}:3:22 (rule 'n'): expected }} to close 'bn{{', found the end\n"
        "    match = 'conv{bn{relu'\n"
        "                         ^"
    )


def test_the_error_of_an_empty_text_shows_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", "[[rule]]\nmatch = ''\n")
    (error,) = check_file(path)
    assert str(error) == (
        f"{path}:2:10 (rule '#1'): expected a layer type, found the end\n    match = ''\n             ^"
    )


def test_names_that_cannot_be_results_are_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="'Pad' cannot be the result of a rule"):
        check_file(write(tmp_path / "a.toml", RULE), results=["Pad"])


def test_a_rule_is_checked_against_its_options_in_spite_of_a_wrong_vocabulary(tmp_path: Path) -> None:
    text = (
        "[layers]\nbad = 'Foo'\n[[rule]]\nmatch = 'Softmax[fp == 1]{bad!, ?!}'\nmarked = 'fused'\ncode = 4294967296\n"
    )
    errors = check_file(write(tmp_path / "a.toml", text))
    assert [(error.line, error.column) for error in errors] == [(2, 8), (4, 18), (4, 34), (6, 8)]


def test_an_error_in_an_escaped_text_shows_the_text_and_where_it_begins(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", '[[rule]]\nmatch = "Softmax[name == \\"x\\"]{"\ninto = "A"\n')
    (error,) = check_file(path)
    assert (error.line, error.column, error.outer) == (1, 22, (2, 9))
    assert str(error) == (
        f"{path}:2:9: line 1, column 22 of the text that begins there (rule '#1'): "
        "expected a layer type, ? or (, found the end\n"
        '    Softmax[name == "x"]{\n'
        "                         ^"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[[rule]]\nmatch = "Softmax\ninto = "A"\n', 2),
        ("[[rule]]\nmatch = 1\ninto =", 3),
        ("syntax = 1\nsyntax = 2\n", 2),
        ("a = 1 2", 1),
        ("\n\n[[rule]", 3),
        ("x = " + "1" * 5000, 1),
        ("x = 1979-99-99", 1),
    ],
)
def test_what_is_no_toml(tmp_path: Path, text: str, line: int) -> None:
    (error,) = check_file(write(tmp_path / "a.toml", text))
    assert error.line == line
    assert error.reason.startswith("the file is no TOML: ")
    assert "(at" not in error.reason


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 100_000,
        "x = " + "[" * 500 + "]" * 500,
        "x = " + "{a=" * 500 + "1" + "}" * 500,
        "rule = [" + "{match = [" * 60,
        "a." * 100_000 + "b = 1",
        "[" + "a." * 100_000 + "b]",
        "['a'" + ' . "b"' * 300 + "]",
    ],
    ids=lambda text: text[:12],
)
def test_deep_toml(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.toml", text)
    for errors in (check_file(path), from_deep_stack(lambda: check_file(path), 200)):
        assert [error.reason for error in errors] == [
            f"nested too deep: at most {MAX_DEPTH} brackets may be open at once"
        ]


@pytest.mark.parametrize(
    "text",
    [
        "[[rule]]\n" * 20_000,
        "x = " + "[1]," * 50_000,
        "x = '" + "'" * 100_000,
        'x = """' + '""' * 50_000,
        "a" * 200_000,
        "a-" * 100_000,
        "x = [" + '"", ' * 50_000 + "]",
        "x = " + "[" * 90 + "]" * 90,
        "# " * 100_000,
        ".rules",
    ],
    ids=lambda text: text[:12],
)
def test_hostile_toml_gives_rule_errors_and_no_exception(tmp_path: Path, text: str) -> None:
    assert all(isinstance(error, RuleError) for error in check_file(write(tmp_path / "a.toml", text)))


def test_a_thousand_rules_over_a_large_vocabulary(tmp_path: Path) -> None:
    layers = "[layers]\n" + "".join(f'n{i} = "Activation{{Convolution2d}}|Convolution2d"\n' for i in range(300))
    rules = "".join(f'[[rule]]\nmatch = "Pooling2d{{n{i % 300}{{?}}}}"\ninto = "R{i}"\n' for i in range(1000))
    assert len(load_rules(write(tmp_path / "a.toml", layers + rules))) == 1000


# Where things stand in a TOML document


def documents() -> list[Any]:
    shipped = [pytest.param((folder("rules") / f"{n}.toml").read_text("utf-8"), id=n) for n in shipped_names()]
    paths = [path for path in sorted((GOLDEN / "files").glob("*.toml")) if path.name != "not_utf8.toml"]
    return [*shipped, *(pytest.param(path.read_bytes().decode("utf-8-sig"), id=path.name) for path in paths)]


@pytest.mark.parametrize("text", documents())
def test_every_value_is_found_where_it_stands(text: str) -> None:
    found = locations(text)
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), tomllib.loads(text))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict):
            stack += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            stack += [((*path, i), inner) for i, inner in enumerate(value)]
        if path:
            place = found[path]
            if isinstance(path[-1], str):
                assert path[-1] in text[place.key : place.key + len(path[-1]) + 20]
            if place.inside is not None:
                assert text[place.inside :].replace("\r\n", "\n").startswith(value)
            elif isinstance(value, str):
                assert text[place.value] == '"'
                assert "\\" in text[place.value :].split("\n")[0]


def test_locations_of_dotted_keys_and_nested_tables() -> None:
    text = "[a.b]\nc.d = [1, {e = 'x'}, [ ]]\n[[f]]\ng = 1\n[[f.h]]\ni = 2\n[[f]]\n[f.j]\nk = '''\nl'''\n"
    found = locations(text)

    def shown(*path: str | int) -> str:
        return text[found[path].key : found[path].key + 3]

    assert shown("a", "b") == "[a."
    assert shown("a", "b", "c") == shown("a", "b", "c", "d") == "c.d"
    assert shown("a", "b", "c", "d", 1) == "{e "
    assert shown("a", "b", "c", "d", 1, "e") == "e ="
    assert shown("a", "b", "c", "d", 2) == "[ ]"
    assert shown("f", 0) == "[[f"
    assert shown("f", 0, "h", 0, "i") == "i ="
    assert shown("f", 1, "j", "k") == "k ="
    inside = found["f", 1, "j", "k"].inside
    assert inside is not None
    assert text[inside] == "l"
    assert found["f", 1].key > found["f", 0, "h", 0].key


def test_depth_counts_neither_strings_nor_comments() -> None:
    assert too_deep("a = '" + "[" * 200 + "' # " + "[" * 200) is None
    assert too_deep('a = """' + "[" * 200 + '"""\n' + "[[rule]]\n" * 200) is None
    assert too_deep("a = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH) is None
    assert too_deep("a = " + "[" * (MAX_DEPTH + 1)) == 4 + MAX_DEPTH


# What ships


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_files_explain_every_rule(name: str) -> None:
    lines = (folder("rules") / f"{name}.toml").read_text("utf-8").split("\n")
    assert lines[0].startswith("# ")
    for i, line in enumerate(lines):
        if line == "[[rule]]" and lines[i - 1]:
            assert lines[i - 1].startswith("# ")
    assert check_file(name) == []


def test_npu_rules_make_opaque_layers_longest_first() -> None:
    rules = load_rules("npu")
    assert all(rule.into and rule.fold is None and rule.group is None for rule in rules)
    assert [rule.code for rule in rules] == list(range(1, len(rules) + 1))
    depths = [rule.text.count("{") - rule.text.count("{?") for rule in rules]
    assert depths == sorted(depths, reverse=True)


def test_nvneural_rules_have_both_syntax_versions_and_scopes() -> None:
    rules = load_rules("nvneural")
    assert {rule.syntax_version for rule in rules} == {1, 2}
    assert any(rule.text.startswith("fp16|nhwc|") for rule in rules if rule.syntax_version == 2)
    assert all(name not in schema().layers for rule in rules for name, _ in rule.vocabulary)


def test_the_default_rules_fold() -> None:
    """Nothing but folds, and every fold of the package."""
    assert {rule.fold for rule in load_rules("armnn")} == set(OWN)
