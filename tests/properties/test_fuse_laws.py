"""Laws of `fuse` and `unfuse` as a whole: generated rules on generated networks."""

from __future__ import annotations

from random import Random

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

import fusion_engine as fe
from fusion_engine.errors import FuseError, RuleError
from fusion_engine.language.rule import FusingRule
from fusion_engine.network import FrozenDict, Network, edges_into
from tests.support.nets import shuffled
from tests.support.patterns import Patterns, random_network
from tests.support.trees import pattern_text


def case(seed: int) -> tuple[Network, list[FusingRule]]:
    """A network, and one to three rules read off it that make opaque layers or groups."""
    random = Random(seed)
    graph = random_network(random)
    for key, node in graph.nodes(data=True):
        if node["type"] == "Concat":  # the networks are for matching: as they come they cannot be saved
            views = len(edges_into(graph, key))
            node["params"] = FrozenDict(numViews=views, numDimensions=0, viewOrigins=((),) * views)
    patterns = Patterns(graph, random)
    rules: list[FusingRule] = []
    wanted = random.randint(1, 3)
    while len(rules) < wanted:
        text = patterns.text(random.choice(list(graph)))
        action = {random.choice(["into", "into", "group"]): f"Made{len(rules)}"}
        try:
            rules.append(FusingRule(text, 2, ordered=random.random() < 0.2, **action))  # type: ignore[arg-type]
        except RuleError:
            continue  # a condition names what the layer type has not
    return graph, rules


def fused(graph: Network, rules: list[FusingRule]) -> Network | None:
    """What the rules make, or None where one takes more steps than are allowed."""
    try:
        return fe.fuse(graph, rules)
    except FuseError:
        return None


def check(seed: int) -> int:
    """All laws on the case of a seed; gives the number of fusions."""
    graph, rules = case(seed)
    before = fe.dumps(graph)
    result = fused(graph, rules)
    if result is None:
        return 0
    written = fe.dumps(result)

    # A network like any other: no cycle, every slot connected once, the ends as they were.
    assert fe.dumps(graph) == before
    assert nx.is_directed_acyclic_graph(result)
    assert fe.validate(result) == ()
    for key in result:
        slots = [slot for slot, _ in edges_into(result, key)]
        assert slots == list(range(len(slots)))
    for ends in ("inputs", "outputs"):
        assert [(result.nodes[key]["name"], result.nodes[key]["binding_id"]) for key in result.graph[ends]] == [
            (graph.nodes[key]["name"], graph.nodes[key]["binding_id"]) for key in graph.graph[ends]
        ]
        assert [result.nodes[key]["outputs"] for key in result.graph[ends]] == [
            graph.nodes[key]["outputs"] for key in graph.graph[ends]
        ]

    # Again it changes nothing, and it does not matter how layers are numbered, nor whether the file came between.
    again = fused(result, rules)
    assert again is not None
    assert again.graph["fusions"] == ()
    assert fe.dumps(again) == written
    other = fused(shuffled(graph, seed), rules)
    assert other is not None
    assert fe.dumps(other) == written
    loaded = fused(fe.loads(before), rules)
    assert loaded is not None
    assert fe.dumps(loaded) == written

    # Undone it is what it was, to the byte.
    assert fe.dumps(fe.unfuse(result)) == before
    assert fe.dumps(fe.unfuse(fe.loads(written))) == before

    # A rule is its text and its options.
    for rule in rules:
        options = {"into": rule.into} if rule.into else {"group": rule.group}
        same = FusingRule(rule.text, rule.syntax_version, ordered=rule.ordered, **options)  # type: ignore[arg-type]
        assert [list(map(pattern_text, found)) for found in same.patterns] == [
            list(map(pattern_text, found)) for found in rule.patterns
        ]
    return len(result.graph["fusions"])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_laws(seed: int) -> None:
    check(seed)


def test_many_seeds_fuse() -> None:
    counts = [check(seed) for seed in range(120)]
    assert sum(count > 0 for count in counts) > 30
    assert sum(count > 1 for count in counts) > 5
