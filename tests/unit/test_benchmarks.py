"""The benchmarks' own arithmetic, and that their workloads are what they say."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import fusion_engine as fe
from benchmarks import gate, workloads
from benchmarks.checklist import Claim, claims
from benchmarks.harness import Measured, fresh, interleaved, median, slope
from benchmarks.tables import START, checklist, page

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", workloads.WORKLOADS)
@pytest.mark.parametrize("layers", [7, 60])
def test_a_workload_computes_the_same_as_plan_network_file_and_fused(name: str, layers: int) -> None:
    plan = workloads.plan(name, layers)
    expected = workloads.evaluate(plan, workloads.image())
    graph = fe.loads(fe.dumps(workloads.network(plan)))
    for found, wanted in zip(workloads.evaluate_network(graph, workloads.image()), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    fused = fe.fuse(graph, [rule for rule in fe.load_rules("armnn") if rule.name == "batch-norm"])
    assert len(fused.graph["fusions"]) == plan.folds
    for found, wanted in zip(workloads.evaluate_network(fused, workloads.image()), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_every_layer_of_a_workload_counts() -> None:
    plan = workloads.plan("chain", 30)
    before = workloads.evaluate(plan, workloads.image())[0]
    step = plan.steps[0]
    plan.steps[0] = workloads.Step(step.kind, step.sources, (step.arrays[0], step.arrays[1] + np.float32(0.1)))
    assert np.abs(workloads.evaluate(plan, workloads.image())[0] - before).max() > 0.05


def test_shapes_have_what_they_are_named_for() -> None:
    fan_out = workloads.network(workloads.plan("fan-out", 400))
    assert max(degree for _, degree in fan_out.out_degree()) == 100
    shared = workloads.network(workloads.plan("shared-weights", 30))
    assert sorted(kind for _, kind in shared.nodes(data="type") if kind == "Constant") == ["Constant"] * 2
    near = fe.fuse(workloads.network(workloads.plan("near-misses", 40)), fe.load_rules("armnn"))
    assert near.graph["fusions"] == ()
    assert sum(refusal.rule == "batch-norm" for refusal in near.graph["refusals"]) == 10


@pytest.mark.parametrize("count", [1, 10, 100])
def test_rules_that_do_not_match_do_not(count: int) -> None:
    texts = workloads.rule_texts(count)
    assert len(set(texts)) == count
    rules = [fe.FusingRule(text, into=f"Other{number}") for number, text in enumerate(texts)]
    assert fe.fuse(workloads.chain(12), rules).graph["fusions"] == ()


def test_large_weights_fold_few() -> None:
    graph = workloads.large_weights(64)
    assert fe.validate(graph) == ()
    fused = fe.fuse(graph, fe.load_rules("armnn"))
    assert {fusion.rule for fusion in fused.graph["fusions"]} == {"batch-norm"}
    assert (
        sum(tensor.data.nbytes for _, node in graph.nodes(data=True) for tensor in node["constants"].values()) > 2**25
    )


def test_slope() -> None:
    assert slope([(10, 3.0), (100, 30.0), (1000, 300.0)]) == pytest.approx(1)
    assert slope([(10, 1.0), (100, 100.0)]) == pytest.approx(2)


def test_a_fresh_process_is_measured() -> None:
    text = 'data = bytearray(b\'x\' * 60_000_000); sum(range(3_000_000)); print(\'{"stages": {"load": 0.5}, "n": 3}\')'
    found = fresh([sys.executable, "-c", text])
    assert found.error is None
    assert found.stages == {"load": 0.5}
    assert found.answer == {"n": 3}
    assert found.cpu > 0.02
    assert found.peak > 57


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("raise SystemExit('no such thing')", "no such thing"),
        ('print(\'{"error": "not installed: it"}\'); raise SystemExit(1)', "not installed: it"),
        ("while True: pass", "not done in 1 s"),
    ],
)
def test_a_process_that_fails_says_why(text: str, error: str) -> None:
    assert fresh([sys.executable, "-c", text], 1).error == error


def test_medians_and_failures() -> None:
    runs = [Measured(wall, 1.0, 2.0, {"load": wall}, {"load": 0.0}) for wall in (5.0, 1.0, 2.0)]
    assert median(runs).wall == 2.0
    assert median(runs).stages == {"load": 2.0}
    assert median([runs[0], Measured(error="x")]).error == "x"


def test_works_run_in_turn_and_failed_or_slow_ones_once() -> None:
    order: list[str] = []

    def work(name: str, result: Measured) -> Measured:
        order.append(name)
        return result

    interleaved(
        {
            "a": lambda: work("a", Measured(1.0, 1.0, 1.0)),
            "slow": lambda: work("slow", Measured(99.0, 1.0, 1.0)),
            "bad": lambda: work("bad", Measured(error="x")),
        },
        3,
    )
    assert order == ["a", "slow", "bad", "a", "a"]


def test_claims_compare_the_right_way_round() -> None:
    def stages(load: float, fuse: float, save: float) -> Measured:
        found = {"load": load, "fuse": fuse, "save": save}
        return Measured(1.0, 1.0, 1.0, found, found)

    results = {"chain 10000": {"ours-armnn": stages(0.1, 0.1, 0.1), "23.08": stages(1.0, 1.0, 1.0)}}
    claim = next(claim for claim in claims(results) if "23.08" in claim.text)
    assert claim.wall == pytest.approx(10)
    assert claim.holds(claim.wall) == "yes"
    assert claim.holds(7.9) == "no"
    assert claim.holds(math.nan) == "–"
    assert Claim("", 1.0, 1.0, 1.1).holds(1.2) == "no"
    slopes = {f"chain {n}": {"ours-armnn": stages(n, n**1.5, n)} for n in (100, 1_000, 10_000)}
    values = {claim.text: claim.wall for claim in claims(slopes)}
    assert values["slope of load, rules `armnn`"] == pytest.approx(1)
    assert values["slope of fuse, rules `armnn`"] == pytest.approx(1.5)


def test_without_results_nothing_is_claimed() -> None:
    assert all(claim.holds(claim.wall) == "–" for claim in claims({}))
    assert "yes" not in checklist({})
    assert "## What must hold" in page({}, "A machine.", 1)


def test_the_readme_has_the_place_for_the_table() -> None:
    assert START in (ROOT / "README.md").read_text("utf-8")


def test_the_gate_tells_what_does_not_hold() -> None:
    good = {f"{stage} {size}": float(size) for stage in ("load", "fuse", "save", "search") for size in (250, 1000)}
    good |= {"1 rule": 10.0, "100 rules": 12.0}
    assert gate.faults(good, good) == []
    assert gate.faults({**good, "load 1000": 1090.0}, good) == []
    (slower,) = gate.faults({**good, "1 rule": 11.5}, good)
    assert slower == "1 rule takes 11.5 units, 15 % more than the 10.0 kept in gate.json"
    (steep,) = gate.faults({**good, "fuse 1000": 4600.0, "fuse 250": 1000.0}, {})
    assert steep == "slope of fuse is 1.101, more than 1.1"
    (many,) = gate.faults({**good, "100 rules": 15.1}, {})
    assert many == "100 rules to 1 is 1.510, more than 1.5"
