"""What docs/rules.md shows can be used as it stands there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fusion_engine.language.parser import MAX_NESTING
from fusion_engine.language.rule import FusingRule
from fusion_engine.language.rulefile import load_rules
from fusion_engine.language.sources import MAX_BYTES
from fusion_engine.language.vocabulary import MAX_LAYERS

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FILES = [text for kind, text in BLOCKS if kind == "toml"]
VOCABULARY = tomllib.loads(FILES[1])["layers"]


@pytest.mark.parametrize("text", [line for kind, text in BLOCKS if kind == "rule" for line in text.splitlines()])
def test_rules(text: str) -> None:
    assert FusingRule(text).patterns


@pytest.mark.parametrize(
    "text", [line for kind, text in BLOCKS if kind == "rule-with-vocabulary" for line in text.splitlines()]
)
def test_rules_with_the_vocabulary(text: str) -> None:
    assert FusingRule(text, vocabulary=VOCABULARY).patterns


@pytest.mark.parametrize(
    ("text", "actions"), [(FILES[0], ["ConvRelu"]), (FILES[1], ["batch-norm", "ConvRelu", "Residual"])]
)
def test_files(text: str, actions: list[str], tmp_path: Path) -> None:
    path = tmp_path / "page.toml"
    path.write_text(text, "utf-8")
    assert [rule.into or rule.fold or rule.group for rule in load_rules(path)] == actions


def test_limits() -> None:
    assert f"At most {MAX_NESTING:,} brackets" in PAGE
    assert f"{MAX_BYTES // 2**20} MiB" in PAGE
    assert f"{MAX_LAYERS:,} layers" in PAGE
