"""Law: `fuse` does what its definition says, however much it leaves out, prepares and remembers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.errors import RuleError, RuleLoopError
from fusion_engine.folds import batched
from fusion_engine.language.rule import FusingRule
from fusion_engine.match import index
from fusion_engine.network import Network
from tests.properties.test_structure_laws import Pieces
from tests.support.nets import Net
from tests.support.patterns import Patterns, random_network
from tests.support.plain_engine import plain_fuse

SHIPPED = {name: fe.load_rules(name) for name in ("armnn", "npu")}


def check(graph: Network, rules: list[FusingRule]) -> tuple[int, int]:
    """Compare; returns how many fusions and refusals there were."""
    fused = fe.fuse(graph, rules)
    expected, fusions, refusals = plain_fuse(graph, rules)
    assert list(fused.graph["fusions"]) == fusions
    assert list(fused.graph["refusals"]) == refusals
    assert {key: node["type"] for key, node in fused.nodes.items()} == {
        key: node["type"] for key, node in expected.nodes.items()
    }
    assert fe.difference(fused, expected) is None
    return len(fusions), len(refusals)


@pytest.mark.parametrize("reverse", [False, True])
def test_folds_that_move_and_drop(reverse: bool) -> None:
    made: Counter[str] = Counter()
    for seed in range(60):
        rules = list(reversed(SHIPPED["armnn"])) if reverse else SHIPPED["armnn"]
        graph = Pieces(seed, 10 + seed).net.graph
        made.update(fusions=check(graph, rules)[0])
    assert made["fusions"] > 300


def blocks(seed: int) -> Network:
    """Convolutions of several kinds, batch norms and activations of few shapes, some of which must be refused."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    old = random.random() < 0.3
    net = Net(
        feature_versions=(1, 0, 0) if old else (1, 1, 1),
        form="member" if old else random.choice(["member", "constant"]),
        data_type=random.choice(["Float32", "Float32", "Float16"]),
        layout=random.choice(["NHWC", "NCHW"]),
    )
    last = net.layout == "NHWC"
    at = net.input((1, 4, 4, 2) if last else (1, 2, 4, 4))
    taps = []
    for _ in range(random.randint(6, 30)):
        bias = None if random.random() < 0.4 else numbers.normal(size=2)
        kind = random.choice(["conv", "conv", "depthwise", "transpose"])
        if kind == "depthwise":
            weights = numbers.normal(size=(1, 2, 1, 1) if old else (1, 1, 1, 2))
        else:
            weights = numbers.normal(size=(2, 1, 1, 2) if last else (2, 2, 1, 1))
        weights *= 0.99 * np.finfo(net.data_type.lower()).max / 9 if random.random() < 0.1 else 1
        make = {"conv": net.conv, "depthwise": net.depthwise, "transpose": net.transpose_conv}[kind]
        at = make(at, weights, bias)
        if random.random() < 0.1:
            taps.append(at)
        gamma, beta, mean = (numbers.normal(size=2) for _ in range(3))
        at = net.batch_norm(at, gamma, beta, mean, numbers.uniform(0.01 if random.random() < 0.9 else -1, 2, 2))
        if random.random() < 0.2:
            at = net.batch_norm(at, beta, mean, gamma, numbers.uniform(0.1, 2, 2))
        if random.random() < 0.7:
            at = net.activation(at, random.choice(["ReLu", "Linear", "TanH"]))
    for key in (at, *taps):
        net.output(net.activation(key, "Abs"))
    return net.graph


@pytest.mark.parametrize("few", [4, 10**9], ids=["in a batch", "one by one"])
def test_folds_of_batch_norms_to_the_bit(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "FEW", few)
    made: Counter[str] = Counter()
    plans = batched.plans

    def counted(*arguments: Any) -> Iterator[Any]:
        for plan in plans(*arguments):
            made["planned"] += 1
            yield plan

    monkeypatch.setattr(batched, "plans", counted)
    for seed in range(60):
        fusions, refusals = check(blocks(seed), SHIPPED["armnn"])
        made.update(fusions=fusions, refusals=refusals)
    assert made["fusions"] > 500, made
    assert made["refusals"] > 50, made
    assert made["planned"] > 300 if few == 4 else not made["planned"], made


@pytest.mark.parametrize("few", [0, 10**9], ids=["groups", "no groups"])
def test_rules_of_all_kinds(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FEW", few)
    made: Counter[str] = Counter()
    for seed in range(250):
        random = Random(seed)
        graph = random_network(random)
        patterns = Patterns(graph, random)
        rules: list[FusingRule] = []
        while len(rules) < 5:
            text = patterns.text(random.choice(list(graph)))
            try:
                name = f"R{len(rules)}"
                action = {"into": name} if random.random() < 0.7 else {"group": name}
                rules.append(FusingRule(text, 2, name=name, **action, results=("Made",)))  # type: ignore[arg-type]
            except RuleError:
                continue
        rules.insert(random.randint(0, 5), FusingRule("Activation{Activation|Addition}", 2, into="Made"))
        rules.insert(random.randint(0, 6), FusingRule("Activation{Made}", 2, into="Outer", results=("Made",)))
        try:
            fusions, refusals = check(graph, [*rules, *SHIPPED["armnn"]] if seed % 3 == 0 else rules)
        except RuleLoopError:
            continue
        made.update(fusions=fusions, refusals=refusals)
    assert made["fusions"] > 200
    assert made["refusals"] > 100


def test_opaque_layers_after_folds() -> None:
    rules = [*SHIPPED["armnn"], *SHIPPED["npu"]]
    made = sum(check(blocks(seed), rules)[0] for seed in range(15))
    assert made > sum(check(blocks(seed), SHIPPED["armnn"])[0] for seed in range(15)) + 20
