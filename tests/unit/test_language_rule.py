from __future__ import annotations

import copy
import copyreg
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from fusion_engine.errors import RuleError
from fusion_engine.folds import Fold
from fusion_engine.language.pattern import AnyInput
from fusion_engine.language.resolve import MARKED
from fusion_engine.language.rule import FusingRule
from fusion_engine.language.vocabulary import MAX_LAYERS
from tests.support.trees import pattern_text
from tests.unit.test_language_parser import BRACES, from_deep_stack

DEEP = BRACES[0].replace("a", "Softmax")


def test_attributes() -> None:
    rule = FusingRule(
        ["Activation{conv}", "Softmax"],
        1,
        name="n",
        into="I",
        code=-5,
        ordered=True,
        marked="fused",
        vocabulary={"conv": "Convolution2d"},
        results=["Other", "I"],
        source="file.toml",
    )
    assert rule.texts == ("Activation{conv}", "Softmax")
    assert rule.text == "Activation{conv}"
    assert (rule.syntax_version, rule.name, rule.into, rule.fold, rule.group) == (1, "n", "I", None, None)
    assert (rule.code, rule.ordered, rule.marked, rule.source) == (-5, True, "fused", "file.toml")
    assert rule.vocabulary == (("conv", "Convolution2d"),)
    assert rule.results == ("I", "Other")
    assert [[pattern_text(layer) for layer in layers] for layers in rule.patterns] == [
        ["(Activation#0 in=((Convolution2d#1 kept)))"],
        ["(Softmax#2)"],
    ]


def test_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        FusingRule("Softmax").name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "options", "into"),
    [
        ("Activation{Convolution2d}", {}, "Activation_Convolution2d"),
        ("Addition{Convolution2d, Convolution2d}", {}, "Addition_Convolution2d_Convolution2d"),
        ("Activation{Convolution2d|FullyConnected:0~1}", {}, "Activation_Convolution2d_FullyConnected"),
        ("Addition{(Pad, ?), Constant}", {}, "Addition_Pad"),
        ("Activation{Addition{Pad{Softmax}!, Floor}}", {}, "Activation_Addition_Floor"),
        ("Activation{(Pad, Softmax)!, Floor}", {}, "Activation_Floor"),
        ("Activation{Addition{Pad!, Floor{Softmax}}!}", {"marked": "fused"}, "Activation_Addition_Pad"),
        ("Activation{(Pad, Softmax)!, Floor}", {"marked": "fused"}, "Activation_Pad_Softmax"),
        ("a{b}", {"vocabulary": {"a": "Activation", "b": "Pad"}}, "a_b"),
        ("a{b}", {"vocabulary": {"a": "Activation", "b": "Pad", "a_b": "Softmax"}}, "Fused_a_b"),
        ("Softmax", {}, "Fused_Softmax"),
        ("Constant", {}, "Fused_Constant"),
        ("Stem", {"results": ["Stem"]}, "Fused_Stem"),
        ("Activation{Pad}", {"results": ["Activation_Pad"]}, "Activation_Pad"),
    ],
)
def test_default_into(text: str, options: dict[str, Any], into: str) -> None:
    rule = FusingRule(text, **options)
    assert rule.into == into
    assert rule.name == into


@pytest.mark.parametrize(
    ("options", "name"),
    [({"into": "A"}, "A"), ({"group": "B"}, "B"), ({"fold": "batch-norm"}, "batch-norm"), ({"name": "c"}, "c")],
)
def test_default_name(options: dict[str, Any], name: str) -> None:
    assert FusingRule("BatchNormalization{Convolution2d}", **options).name == name


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"text": 5}, "text of a rule is a str or a sequence of str, not int '5'"),
        ({"text": ["Softmax", None]}, "text of a rule is a str or a sequence of str"),
        ({"text": []}, "the rule needs a match"),
        ({"syntax_version": 3}, "there is no syntax version 3: it is 1 or 2"),
        ({"syntax_version": True}, "syntax_version of a rule is an int, not bool"),
        ({"syntax_version": "1"}, "syntax_version of a rule is an int, not str"),
        ({"name": ""}, "name of a rule is a str that is not empty"),
        ({"into": "Softmax"}, "'Softmax' is a layer type of Arm NN"),
        ({"into": ""}, "letters, digits and _ only"),
        ({"into": "1a"}, "letters, digits and _ only"),
        ({"into": "é"}, "letters, digits and _ only"),
        ({"into": "v", "vocabulary": {"v": "Pad"}}, "is a name of the vocabulary"),
        ({"group": "a/b"}, "letters, digits and _ only"),
        ({"into": "A", "group": "B"}, "one action: into, fold or group"),
        ({"into": "A", "fold": "batch-norm"}, "one action: into, fold or group"),
        ({"fold": "batch-norms"}, r"there is no fold 'batch-norms' \(did you mean 'batch-norm'"),
        ({"fold": "batch-norm", "text": []}, "the fold 'batch-norm' needs a match"),
        ({"code": 2**31}, "does not fit: it is stored as a 32-bit integer"),
        ({"code": -(2**31) - 1}, "does not fit"),
        ({"code": 1.0}, "code of a rule is an int, not float"),
        ({"code": False}, "code of a rule is an int, not bool"),
        ({"code": 1, "group": "A"}, "code goes with into only"),
        ({"ordered": 1}, "ordered of a rule is a bool"),
        ({"marked": "kep"}, r'marked is "kept" or "fused", not .kep. \(did you mean .kept.'),
        ({"vocabulary": ["a"]}, "vocabulary of a rule is a mapping of str to str"),
        ({"vocabulary": {"a": 1}}, "vocabulary of a rule is a mapping of str to str"),
        ({"vocabulary": {"Pad": "Softmax"}}, "would hide the layer type Pad"),
        ({"vocabulary": {"a": "a"}}, "'a' refers to itself"),
        ({"vocabulary": {"a": "b{a, a}", "b": "Pad"}}, "'a' refers to itself"),
        ({"vocabulary": {"unused": "Foo"}}, "in the vocabulary name 'unused': 'Foo' is no layer type"),
        ({"vocabulary": {"R": "Pad"}, "results": ["R"]}, "'R' is the result of a rule too"),
        ({"results": ["Pad"]}, "'Pad' cannot be the result of a rule"),
        ({"results": ["no name"]}, "'no name' cannot be the result of a rule"),
        ({"results": "Pad"}, "results of a rule is a sequence of str"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        FusingRule(**{"text": "Softmax", **arguments})


@pytest.mark.parametrize("code", [-(2**31), 2**31 - 1])
def test_code_takes_every_int32(code: int) -> None:
    assert FusingRule("Softmax", code=code).code == code


def test_a_rule_must_not_match_its_own_result() -> None:
    for text in ("Activation{Own}", "Activation{Own!}", "Activation{(Pad, Own)}"):
        with pytest.raises(RuleError, match="matches its own result 'Own'") as caught:
            FusingRule(text, into="Own")
        assert caught.value.column == text.index("Own") + 1
    with pytest.raises(RuleError, match="matches its own result 'Own'") as caught:
        FusingRule("Activation{Pad, own}", into="Own", vocabulary={"own": "Softmax{Own, ?}"})
    assert caught.value.column == 17


def test_a_fold_with_roots_needs_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Fold(lambda *_: None, lambda *_: 0, frozenset({"Softmax"}))
    monkeypatch.setattr("fusion_engine.folds.fold_names", lambda: ("rooted",))
    monkeypatch.setattr("fusion_engine.folds.find_fold", {"rooted": fold}.__getitem__)
    rule = FusingRule(fold="rooted")
    assert (rule.texts, rule.text, rule.patterns, rule.name) == ((), "", (), "rooted")
    assert len(FusingRule("Softmax", fold="rooted").patterns) == 1
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_errors_of_all_texts_are_told() -> None:
    with pytest.raises(RuleError) as caught:
        FusingRule(["Foo{Bar}", "Softmax", "Pad{"], name="mine")
    told = [caught.value, *caught.value.others]
    assert [(error.text, error.column) for error in told] == [("Foo{Bar}", 1), ("Foo{Bar}", 5), ("Pad{", 5)]
    assert [error.rule for error in told] == ["mine"] * 3


def test_all_that_is_wrong_with_a_rule_is_told_at_once() -> None:
    with pytest.raises(RuleError) as caught:
        FusingRule(
            "a{Foo, Pad[x == 1]}", into="Softmax", marked="kep", vocabulary={"a": "Bar", "Pad": "Floor"}, name="n"
        )
    told = [caught.value, *caught.value.others]
    assert [error.reason.split(":")[0] for error in told] == [
        "into = 'Softmax' is a layer type of Arm NN",
        "marked is \"kept\" or \"fused\", not 'kep' (did you mean 'kept'?)",
        "the vocabulary name 'Pad' would hide the layer type Pad",
        "in the vocabulary name 'a'",
        "'Foo' is no layer type, vocabulary name or result of a rule given in results=[...] (did you mean 'Floor'?)",
    ]
    assert {error.rule for error in told} == {"n"}
    assert [error.placed for error in told] == [False, False, False, True, True]


def test_an_error_of_a_shared_vocabulary_bears_the_name_of_its_own_rule() -> None:
    def error(name: str) -> RuleError:
        with pytest.raises(RuleError) as caught:
            FusingRule("Softmax", name=name, vocabulary={"a": "Bar"})
        return caught.value

    assert [error.rule for error in (error("one"), error("two"))] == ["one", "two"]
    assert error("one") is not error("one")


def test_errors_are_copied_whatever_others_have_registered_for_exceptions() -> None:
    with pytest.raises(RuleError) as caught:
        FusingRule("Softmax{", name="one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(copyreg.dispatch_table, RuleError, lambda error: (lambda: error, ()))
        again = copy.copy(caught.value)
    assert again is not caught.value
    assert (str(again), again.rule) == (str(caught.value), "one")


@pytest.mark.parametrize(("text", "column"), [("", 1), ("  ", 3), ("# nothing", 10)])
def test_the_error_of_a_text_without_a_rule_shows_its_place(text: str, column: int) -> None:
    with pytest.raises(RuleError) as caught:
        FusingRule(text)
    caret = " " * (column - 1) + "^"
    assert (
        str(caught.value) == f"line 1, column {column}: expected a layer type, found the end\n    {text}\n    {caret}"
    )


def test_equality_is_that_of_text_and_options() -> None:
    rule = FusingRule("Softmax", into="A", source="one.toml")
    assert rule == FusingRule("Softmax", into="A", source="two.toml")
    assert hash(rule) == hash(FusingRule("Softmax", into="A"))
    others = [
        FusingRule("Softmax ", into="A"),
        FusingRule("Softmax", 1, into="A"),
        FusingRule("Softmax", group="A"),
        FusingRule("Softmax", into="A", code=1),
        FusingRule("Softmax", into="A", ordered=True),
        FusingRule("Softmax", into="A", marked="fused"),
        FusingRule("Softmax", into="A", name="B"),
        FusingRule("Softmax", into="A", vocabulary={"x": "Pad"}),
        FusingRule(["Softmax", "Pad"], into="A"),
    ]
    assert len({rule, *others}) == len(others) + 1


@pytest.mark.parametrize("marked", MARKED)
def test_pickled_and_copied_rules_are_equal(marked: str) -> None:
    rule = FusingRule(
        ["x{Stem}", "fp16|Pad"], into="A", code=3, marked=marked, vocabulary={"x": "Activation|Pad"}, results=["Stem"]
    )
    for twin in (pickle.loads(pickle.dumps(rule)), copy.copy(rule), copy.deepcopy(rule)):
        assert twin == rule
        assert twin.source == rule.source
        assert [[pattern_text(p) for p in ps] for ps in twin.patterns] == [
            [pattern_text(p) for p in ps] for ps in rule.patterns
        ]


def test_the_deepest_rule_can_be_used_like_any_other() -> None:
    def use() -> FusingRule:
        rule = FusingRule(DEEP)
        assert rule == FusingRule(DEEP)
        assert len({rule, pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)}) == 1
        assert repr(rule).startswith("FusingRule('Softmax{Softmax{")
        assert repr(rule.patterns).startswith("((<PatternLayer>,)")
        return rule

    rule = use()
    assert from_deep_stack(use, 150) == rule
    layer, depth = rule.patterns[0][0], 1
    while layer.inputs is not None:
        below = layer.inputs[0].choices[0]
        assert not isinstance(below, AnyInput)
        layer, depth = below, depth + 1  # type: ignore[assignment]
    assert depth == 1001


# The vocabulary is bounded


def doubling(text: str, names: int) -> dict[str, str]:
    """Names each of which uses the one before twice."""
    return {"a0": "Activation"} | {f"a{i}": text.replace("@", f"a{i - 1}") for i in range(1, names)}


@pytest.mark.parametrize(
    "text", ["@|@", "Addition{@, @}", "Activation{@|@}", '@[name == "x"]|@', "fp16|@|@", "Pad{(@, @)}"]
)
def test_vocabulary_that_grows_without_bound_is_refused_at_once(text: str) -> None:
    with pytest.raises(RuleError, match=f"more than {MAX_LAYERS} layers"):
        FusingRule("Softmax{a59}", vocabulary=doubling(text, 60))
    assert FusingRule("Softmax{a3, ?}", vocabulary=doubling(text, 4)).patterns


def test_many_uses_of_a_large_name_are_refused() -> None:
    names = doubling("Addition{@, @}", 12)
    uses = MAX_LAYERS // (2**12 - 1)
    assert FusingRule("Softmax{" + ", ".join(["a11"] * uses) + "}", vocabulary=names).patterns
    with pytest.raises(RuleError, match=f"more than {MAX_LAYERS} layers"):
        FusingRule("Softmax{" + ", ".join(["a11"] * (uses + 1)) + "}", vocabulary=names)


def test_a_long_chain_of_names() -> None:
    names = {"a0": "Activation"} | {f"a{i}": f"a{i - 1}" for i in range(1, 5000)}
    assert [pattern_text(p) for p in FusingRule("a4999", vocabulary=names).patterns[0]] == ["(Activation#0)"]


def test_a_text_of_its_own_is_not_bounded() -> None:
    rule = FusingRule("Softmax{" + "|".join(["Pad"] * 30_000) + "}")
    assert rule.patterns[0][0].inputs is not None
    assert len(rule.patterns[0][0].inputs[0].choices) == 30_000


def test_a_test_of_a_vocabulary_name_says_where_it_is_written() -> None:
    text = "Pad{leaky[a == 1]}"
    rule = FusingRule(text, vocabulary={"leaky": "Activation[ b == 2 ]"})
    items = rule.patterns[0][0].inputs
    assert items is not None
    layer = items[0].choices[0]
    assert not isinstance(layer, AnyInput)
    tests = layer.constraint.parts  # type: ignore[union-attr]
    assert [text[t.span.start : t.span.end] for t in tests] == ["leaky", "a == 1"]
    assert tests[0].definition.name == "leaky"
    assert (tests[0].definition.span.start, tests[0].definition.span.end) == (12, 18)
    assert tests[1].definition is None
