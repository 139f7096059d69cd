"""The matcher finds what the definition says, in its order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_engine import fuse
from fusion_engine.errors import FuseError, RuleError
from fusion_engine.language.rule import FusingRule
from fusion_engine.match import compile_rule, explain, machine
from fusion_engine.network import Network
from fusion_engine.workspace import Workspace
from tests.support.naive import Naive
from tests.support.nets import shuffled
from tests.support.patterns import Patterns, random_network, tangled_network, tangled_text

MADE = FusingRule("Activation{Addition}", into="Made")


def case(random: Random) -> tuple[Network, FusingRule]:
    """A network, now and then with opaque layers of ours in it, and a rule read off it."""
    graph = random_network(random)
    if random.random() < 0.3:
        graph = fuse(graph, MADE)
    patterns = Patterns(graph, random)
    while True:
        texts = [patterns.text(random.choice(list(graph))) for _ in range(random.choice([1, 1, 1, 2]))]
        try:
            return graph, FusingRule(texts, 2, into="It", results=("Made",), ordered=random.random() < 0.2)
        except RuleError:
            continue  # a condition names what the layer type has not


def check(graph: Network, rule: FusingRule) -> int:
    workspace = Workspace(graph)
    matcher = compile_rule(rule)
    naive = Naive(workspace.graph, rule, workspace.layout)
    count = 0
    for root in graph:
        try:
            found = list(matcher.matches(workspace, root))
        except FuseError:
            continue  # more than 10,000 steps: the definition has an answer, but the limit comes first
        expected = naive.matches(root)
        assert found == expected, (rule.texts, root)
        assert (explain(matcher, workspace, root) is None) == bool(expected)
        assert not expected or graph.nodes[root]["type"] in matcher.root_types
        count += len(found)
    return count


@pytest.fixture(params=[-1, 10**9], ids=["with memory", "without memory"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matcher that remembers from its first step on, and one that never does."""
    monkeypatch.setattr(machine, "REMEMBER_AFTER", request.param)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_same_bindings_in_the_same_order(seed: int) -> None:
    check(*case(Random(seed)))


@pytest.mark.usefixtures("memory")
def test_many_seeds_and_that_they_bite() -> None:
    counts = Counter(min(check(*case(Random(seed))), 3) for seed in range(1500))
    assert all(counts[number] > 100 for number in range(4)), counts


def test_a_memory_changes_neither_bindings_nor_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """On texts of many groups and ranges over networks of much sharing."""
    found: Counter[int] = Counter()
    for seed in range(700):
        random = Random(seed)
        graph = tangled_network(random)
        try:
            rule = FusingRule(tangled_text(random), into="It", ordered=random.random() < 0.2)
        except RuleError:
            continue
        workspace, matcher = Workspace(graph), compile_rule(rule)
        for root in graph:
            told = []
            for after in (-1, 10**9, random.randint(0, 9)):
                monkeypatch.setattr(machine, "REMEMBER_AFTER", after)
                try:
                    miss = explain(matcher, workspace, root)
                    told.append((list(matcher.matches(workspace, root)), miss and replace(miss, failure=None)))
                except FuseError:
                    pass  # without a memory more often than with one
            if len(told) == 3:
                assert told[0] == told[1] == told[2], (rule.text, root)
                found[min(len(told[0][0]), 2)] += 1
    assert all(found[number] > 30 for number in range(3)), found


@pytest.mark.parametrize("seed", range(60))
def test_keys_and_insertion_order_decide_nothing(seed: int) -> None:
    graph, rule = case(Random(seed))
    other = shuffled(graph, seed)
    matcher = compile_rule(rule)
    names = [
        [[work.name(key) for _, key in match.bound] for root in work.order() for match in matcher.matches(work, root)]
        for work in (Workspace(graph), Workspace(other))
    ]
    assert names[0] == names[1]
