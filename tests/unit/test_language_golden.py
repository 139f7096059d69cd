"""The golden files of the rule language; add a case by adding lines to one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fusion_engine.errors import RuleError
from fusion_engine.language.parser import parse, unparse
from fusion_engine.language.rule import FusingRule
from fusion_engine.language.rulefile import read_rules
from tests.support.trees import pattern_text, tree_text

GOLDEN = Path(__file__).parents[1] / "golden" / "rules"
FILES = sorted(path.name for path in (GOLDEN / "files").iterdir() if path.suffix in (".toml", ".rules"))

ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\ufeff": "\ufeff", "\\u00a0": "\u00a0", "\\\\": "\\"}


@dataclass
class Case:
    line: int
    version: int
    text: str
    options: dict[str, Any]
    expected: list[str] = field(default_factory=list)


def cases(name: str) -> Iterator[Case]:
    options: dict[str, Any] = {}
    case: Case | None = None
    for number, line in enumerate((GOLDEN / name).read_text("utf-8").split("\n"), 1):
        head = re.match(r"([12])(e?):(?: (.*))?$", line)
        if line.startswith("-> ") and case is not None:
            case.expected.append(line[3:])
            continue
        if case is not None:
            yield case
            case = None
        word, _, rest = line.partition(" ")
        if head:
            text = head[3] or ""
            if head[2]:
                text = re.sub(r"\\(?:u[0-9a-f]{4}|.)", lambda found: ESCAPES[found[0]], text)
            case = Case(number, int(head[1]), text, dict(options))
        elif word == "layer":
            key, _, text = rest.partition(" = ")
            options["vocabulary"] = options.get("vocabulary", {}) | {key: text}
        elif word == "marked":
            options["marked"] = rest
        elif word == "results":
            options["results"] = rest.split()
        elif word == "clear":
            options = {}
        else:
            assert not line or line.startswith("#"), f"{name}:{number}: {line!r} is no case"
    if case is not None:
        yield case


def params(name: str) -> list[Any]:
    found = list(cases(name))
    assert len(found) > 20
    return [pytest.param(case, id=f"{name}:{case.line}") for case in found]


def errors_of(error: RuleError) -> list[str]:
    return [f"{fault.line}:{fault.column} {fault.reason}" for fault in (error, *error.others)]


@pytest.mark.parametrize("case", params("accepted.txt"))
def test_accepted(case: Case) -> None:
    tree = parse(case.text, case.version)
    assert [tree_text(tree)] == case.expected
    assert tree_text(parse(unparse(tree), case.version)) == tree_text(tree)


@pytest.mark.parametrize("case", params("rejected.txt"))
def test_rejected(case: Case) -> None:
    with pytest.raises(RuleError) as caught:
        FusingRule(case.text, case.version)
    assert errors_of(caught.value) == case.expected
    assert caught.value.text == case.text


@pytest.mark.parametrize("case", params("patterns.txt"))
def test_patterns(case: Case) -> None:
    assert found(case) == case.expected


def found(case: Case) -> list[str]:
    try:
        rule = FusingRule(case.text, case.version, **case.options)
    except RuleError as error:
        return errors_of(error)
    return [pattern_text(layer) for layer in rule.patterns[0]]


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_engine.folds.fold_names", lambda: ("batch-norm",))
    rules, errors = read_rules([GOLDEN / "files" / name])
    found = []
    for error in errors:
        place = f"{error.line}:{error.column}"
        if error.outer:
            place += f" in the text at {error.outer[0]}:{error.outer[1]}"
        found.append(f"{place} {f'({error.rule}) ' if error.rule else ''}{error.reason}")
    for rule in rules:
        action = next(key for key in ("into", "fold", "group") if getattr(rule, key))
        found.append(
            f"rule {rule.name}: {len(rule.texts)} texts, {action} {getattr(rule, action)}, code {rule.code}, "
            f"marked {rule.marked}, ordered {rule.ordered}, syntax {rule.syntax_version}"
        )
    expected = (GOLDEN / "files" / f"{name}.expected").read_text("utf-8").splitlines()
    assert found == expected
