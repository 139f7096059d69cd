"""Running one rule of those that ship, and what came of it."""

from __future__ import annotations

from functools import cache

import fusion_engine as fe
from fusion_engine.network import Network

ARITHMETIC = ("batch-norm", "batch-norm-chain", "scale", "shift", "pad", "clamp", "activation-chain", "noop-activation")
"""The folds that compute new constants or parameters, in the order in which they ship."""


@cache
def rule(name: str) -> fe.FusingRule:
    """The rule of that name in ``rules/armnn.toml``."""
    (found,) = [rule for rule in fe.load_rules("armnn") if rule.name == name]
    return found


def fold(graph: Network, *names: str) -> Network:
    """The network after the rules of these names, which must have fired, and nothing refused."""
    fused = fe.fuse(graph, [rule(name) for name in names])
    assert {fusion.rule for fusion in fused.graph["fusions"]} == set(names)
    assert not fused.graph["refusals"]
    return fused


def refusal(graph: Network, name: str) -> str:
    """The one reason for which a rule leaves the network as it is."""
    fused = fe.fuse(graph, rule(name))
    assert fe.equal(graph, fused)
    assert not fused.graph["fusions"]
    (found,) = fused.graph["refusals"]
    return str(found.reason)


def count(graph: Network, kind: str) -> int:
    """How many layers of a type there are."""
    return sum(node["type"] == kind for node in graph.nodes.values())
