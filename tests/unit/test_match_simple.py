"""Simple patterns against the machine, their plain twin: same matches, same order, at every root."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import fusion_engine as fe
from fusion_engine.errors import RuleError
from fusion_engine.language.rule import FusingRule
from fusion_engine.match import compile_rule
from fusion_engine.match.index import RootIndex
from fusion_engine.match.simple import MOST_EDGES
from fusion_engine.network import FrozenDict
from fusion_engine.workspace import Workspace
from tests.support.nets import Net
from tests.support.patterns import Patterns, random_network

MADE = FusingRule("Activation{Addition}", into="Made")


def rules(patterns: Patterns, random: Random, roots: list[int], count: int) -> list[FusingRule]:
    """Rules read off a network."""
    found: list[FusingRule] = []
    while len(found) < count:
        texts = [patterns.text(random.choice(roots)) for _ in range(random.choice([1, 1, 1, 2]))]
        try:
            found.append(FusingRule(texts, 2, into="It", results=("Made",), ordered=random.random() < 0.2))
        except RuleError:
            continue  # a condition names what the layer type has not
    return found


def test_matches_are_those_of_the_machine_and_no_root_is_given_up_wrongly() -> None:
    found: Counter[int] = Counter()
    left = 0
    for seed in range(500):
        random = Random(seed)
        graph = random_network(random)
        if random.random() < 0.3:
            graph = fe.fuse(graph, MADE)
        workspace = Workspace(graph)
        matchers = [compile_rule(rule) for rule in rules(Patterns(graph, random), random, list(graph), 6)]
        simple = [matcher for matcher in matchers if matcher.simple is not None]
        index = RootIndex(workspace, (matcher.root_types for matcher in simple))
        for matcher in simple:
            assert matcher.simple is not None
            hopeful = set(index.hopeful(matcher.simple, matcher.root_types, None))
            near = set(index.hopeful(matcher.simple, matcher.root_types, set(graph)))
            assert hopeful <= near  # groups know descriptors too
            for root in graph:
                expected = [*dict.fromkeys(matcher._machine(workspace, root, None))]
                assert list(matcher.matches(workspace, root)) == expected, (seed, matcher.rule.texts, root)
                assert not expected or root in hopeful, (seed, matcher.rule.texts, root)
                left += root not in hopeful
                found[min(len(expected), 3)] += 1
    assert all(found[number] > 10 for number in range(4)), found
    assert left > 1000


def test_groups_follow_edits() -> None:
    for seed in range(150):
        random = Random(seed)
        graph = random_network(random)
        workspace = Workspace(graph)
        matchers = [compile_rule(rule) for rule in rules(Patterns(graph, random), random, list(graph), 8)]
        index = RootIndex(workspace, (m.root_types for m in matchers if m.simple is not None))
        for _ in range(4):
            for matcher in matchers:
                if matcher.simple is not None:
                    fresh = RootIndex(workspace, (m.root_types for m in matchers if m.simple is not None))
                    told = set(index.hopeful(matcher.simple, matcher.root_types, None))
                    assert told == set(fresh.hopeful(matcher.simple, matcher.root_types, None))
            key = random.choice([k for k in workspace.graph if workspace.type(k) not in ("Input", "Output")])
            if random.random() < 0.5:
                workspace.set(key, type="Floor", params=FrozenDict())
            elif not workspace.uses(key):
                workspace.remove(key)
            elif workspace.inputs(key):
                workspace.rewire(key, [source for _, source in workspace.inputs(key)[:-1]])


@pytest.mark.parametrize(
    "text",
    [
        "Concat{?:0~3, Floor}",  # a range that is not the last
        "Concat{Floor:2~3}",
        "Concat{(Floor, Floor)|Floor}",
        "fp32|Floor{Floor}",
        "Floor{" * 70 + "Floor" + "}" * 70,
        "Concat{" + ", ".join(["Floor|Softmax"] * 7) + "}",  # 128 variants
    ],
)
def test_what_is_not_simple(text: str) -> None:
    assert compile_rule(FusingRule(text, into="It")).simple is None


def test_a_layer_bound_twice_and_very_many_inputs_are_left_to_the_machine() -> None:
    net = Net()
    floor = net.layer("Floor", net.input((1, 4)))
    total = net.layer("Addition", floor, floor)
    wide = net.layer("Concat", *[floor] * (MOST_EDGES + 1), outputs=((1, 4),))
    workspace = Workspace(net.graph)
    for text, root in (("Addition{Floor, Floor}", total), ("Concat{?:1~}", wide)):
        matcher = compile_rule(FusingRule(text, into="It"))
        assert matcher.simple is not None
        (match,) = matcher.matches(workspace, root)
        assert match == next(matcher._machine(workspace, root, None))
        assert match.layers == ((total, floor) if root == total else (wide,))


def test_a_chain_down_to_very_many_inputs_is_left_to_the_machine_where_the_first_match_is_wanted() -> None:
    net = Net()
    x = net.input((1, 4))
    wide = [net.layer("Concat", *[x] * count, outputs=((1, 4),)) for count in (3, MOST_EDGES + 1)]
    few, many = (net.layer("Floor", key) for key in wide)
    workspace = Workspace(net.graph)
    matcher = compile_rule(FusingRule("Floor{Concat}", into="It"))
    assert matcher.simple is not None
    assert matcher.simple.only is not None
    found = list(matcher.first(workspace, [few, many]))
    assert [match.layers for match in found] == [(few, wide[0]), (many, wide[1])]
    assert [len(match.inputs) for match in found] == [3, MOST_EDGES + 1]
    assert found == [next(matcher._machine(workspace, key, None)) for key in (few, many)]
