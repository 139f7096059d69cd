"""Laws of opaque layers and groups on random networks: what is fused comes back, in memory and to the byte."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_engine import group, opaque
from fusion_engine.armnn.reader import loads
from fusion_engine.armnn.writer import dumps
from fusion_engine.canonical import canonical_order
from fusion_engine.compare import difference
from fusion_engine.folds import Refused
from fusion_engine.network import Network
from fusion_engine.recipes import decode, encode, fault_of, read_recipe
from fusion_engine.unfusing import unfuse
from fusion_engine.validation import validate
from fusion_engine.workspace import Workspace
from tests.support.matches import random_match
from tests.support.nets import shuffled
from tests.support.strategies import networks

ENDS = ("Input", "Output", "Constant")


def rewritten(graph: Network, seed: int, rewrites: int, groups: bool) -> Network:
    """A network after some random opaque fusions, fusions over fusions among them, and groups."""
    random = Random(seed)
    work = Workspace(graph)
    for number in range(rewrites):
        roots = [key for key in work.order() if work.type(key) not in ENDS]
        roots = [key for key in roots if not group.is_grouped(work, key)]
        if not roots:
            break
        match = random_match(work, random.choice(roots), random)
        if any(group.is_grouped(work, key) for key in match.layers):
            continue
        if groups and random.random() < 0.3:
            rule = SimpleNamespace(name=f"rule {number}", group=random.choice(["Block", "Other"]))
            group.apply(work, match, group.check(work, match, rule))
        else:
            code = random.choice([0, 17, -(2**31)])
            rule = SimpleNamespace(name=f"rule {number}", into=random.choice(["Fused", "Conv_2d"]), code=code)
            try:
                opaque.apply(work, match, opaque.check(work, match, rule))
            except Refused as refused:
                assert "levels" in refused.reason  # noqa: PT017
    opaque.settle(work)
    return work.graph


cases = given(networks(), st.integers(0, 2**32 - 1), st.integers(1, 8), st.booleans())


@settings(max_examples=150, deadline=None)
@cases
def test_unfuse_undoes_fuse(graph: Network, seed: int, rewrites: int, groups: bool) -> None:
    before = shuffled(graph, 3)
    fused = rewritten(graph, seed, rewrites, groups)
    assert difference(before, graph) is None
    assert validate(fused) == ()
    again = unfuse(fused)
    assert difference(graph, again) is None
    names = [graph.nodes[key]["name"] for key in canonical_order(graph)]
    assert [again.nodes[key]["name"] for key in canonical_order(again)] == names
    for field in ("dialect", "feature_versions"):
        assert again.graph[field] == graph.graph[field]


@settings(max_examples=150, deadline=None)
@cases
def test_unfuse_undoes_fuse_to_the_byte_after_saving(graph: Network, seed: int, rewrites: int, groups: bool) -> None:
    fused = rewritten(graph, seed, rewrites, groups)
    written = dumps(fused)
    again = loads(written)
    assert dumps(unfuse(again)) == dumps(graph)
    assert dumps(unfuse(fused)) == dumps(graph)
    assert dumps(unfuse(unfuse(again))) == dumps(graph)
    for key, node in again.nodes(data=True):
        if node["type"] == "StandIn" and fault_of(again, key) is None:
            recipe = read_recipe(again, key)
            assert recipe is not None
            assert decode(encode(recipe)) == recipe


@settings(max_examples=60, deadline=None)
@cases
def test_numbering_changes_nothing(graph: Network, seed: int, rewrites: int, groups: bool) -> None:
    fused = rewritten(graph, seed, rewrites, groups)
    assert dumps(rewritten(shuffled(graph, seed), seed, rewrites, groups)) == dumps(fused)
    assert dumps(unfuse(shuffled(fused, seed))) == dumps(graph)
