"""Later passes look only near what changed: as far as the deepest part of a pattern lies from its root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fusion_engine as fe
from fusion_engine.match import compile_rule
from fusion_engine.network import Network
from tests.support.nets import Net
from tests.support.plain_engine import plain_fuse

LEVELS = 9
DEEP = "Floor{" * LEVELS + "Made" + "}" * LEVELS


def tower() -> Network:
    """An Activation below nine Floors, and so much beside them that these are a small part."""
    net = Net()
    x = net.input((1, 4))
    at = net.activation(x, "ReLu", name="bottom")
    for number in range(LEVELS):
        at = net.layer("Floor", at, name=f"floor{number}")
    net.output(at, name="out")
    beside = net.input((1, 4))
    for _ in range(200):
        beside = net.layer("Rsqrt", beside)
    net.output(beside, name="beside")
    return net.graph


@pytest.mark.parametrize(
    "texts",
    [
        [DEEP],
        [DEEP, "Floor{Abs}"],
        ["Floor{Abs}", DEEP],
        ["Floor{(" * LEVELS + "Made" + ")}" * LEVELS],
        ["Floor{Abs|" * LEVELS + "Made" + "}" * LEVELS],
    ],
    ids=["one", "first of two", "second of two", "in groups", "an alternative"],
)
def test_what_a_later_rule_makes_far_below_is_found_in_the_next_pass(texts: list[str], tmp_path: Path) -> None:
    """The deep rule stands first, so that it finds its bottom in the second pass only."""
    path = tmp_path / "rules.toml"
    path.write_text(
        f'[[rule]]\nname = "deep"\nmatch = {json.dumps(texts)}\ninto = "Deep"\n'
        '[[rule]]\nname = "made"\nmatch = "Activation"\ninto = "Made"\n',
        "utf-8",
    )
    graph, rules = tower(), fe.load_rules(path)
    fused = fe.fuse(graph, rules)
    assert [fusion.rule for fusion in fused.graph["fusions"]] == ["made", "deep"]
    assert len(fused.graph["fusions"][1].layers) == LEVELS + 1
    expected, fusions, _ = plain_fuse(graph, rules)
    assert list(fused.graph["fusions"]) == fusions
    assert fe.difference(fused, expected) is None


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("Floor", 0),
        ("Floor{?}", 1),
        ("Floor{Floor}", 1),
        ("Floor{Floor{?}}", 2),
        (DEEP.replace("Made", "Abs"), LEVELS),
        ("Addition{Floor{Floor{Floor}}, ?}", 3),
        ("Addition{?, Floor{Floor{Floor}}}", 3),
        ("Addition{(Floor, Floor{Abs}):1~, ?:0~}", 2),
        ("Addition{((((Floor{Abs}))))|?, ?}", 2),
    ],
)
def test_depth(text: str, depth: int) -> None:
    assert compile_rule(fe.FusingRule(text, into="X")).depth == depth
