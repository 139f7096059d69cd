"""The mutants of ``scripts/mutate.py``: which there are, that each is another program, what becomes of functions."""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from tests.support.scripts import script

SOURCE = '''"""Words."""
LIMIT = 3 + 4
def inside(x: "int", low=1, high=7):
    """More words."""
    if not x:
        raise ValueError("no " + "x")
    return low <= x < high and x != 5
def total(values):
    found = []
    for value in values:
        if value > 2 or value == -1:
            continue
        found.append(max(value, 0))
    return sum(one for one in found if one)
'''


@pytest.fixture(name="mutate")
def _mutate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if sys.platform != "linux":
        pytest.skip("needs fork")
    module = script("mutate", monkeypatch)
    (tmp_path / "some.py").write_text(SOURCE, "utf-8")
    (tmp_path / "other.py").write_text("def f(x):\n    return x + 1\n", "utf-8")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def test_which_mutants_there_are(mutate: ModuleType) -> None:
    """None of module level, annotations, defaults, docstrings and texts of exceptions."""
    found = [mutate.difference(mutant).splitlines() for mutant in mutate.mutants_of("some.py")]
    assert {(lines[0].split(" ", 1)[1], lines[-1].strip("+ ")) for lines in found} == {
        ("condition", "if not not x:"),
        ("unary", "if x:"),
        ("statement", "pass"),
        ("return", "return None"),
        ("boolean", "return low <= x < high or x != 5"),
        ("operand left out", "return x != 5"),
        ("operand left out", "return low <= x < high"),
        ("comparison", "return low < x < high and x != 5"),
        ("comparison", "return low > x < high and x != 5"),
        ("comparison", "return low <= x <= high and x != 5"),
        ("comparison", "return low <= x >= high and x != 5"),
        ("comparison", "return low <= x < high and x == 5"),
        ("constant", "return low <= x < high and x != 6"),
        ("constant", "return low <= x < high and x != 4"),
        ("condition", "if not (value > 2 or value == -1):"),
        ("boolean", "if value > 2 and value == -1:"),
        ("operand left out", "if value == -1:"),
        ("operand left out", "if value > 2:"),
        ("comparison", "if value >= 2 or value == -1:"),
        ("comparison", "if value <= 2 or value == -1:"),
        ("comparison", "if value > 2 or value != -1:"),
        ("constant", "if value > 3 or value == -1:"),
        ("constant", "if value > 1 or value == -1:"),
        ("unary", "if value > 2 or value == 1:"),
        ("constant", "if value > 2 or value == -2:"),
        ("constant", "if value > 2 or value == -0:"),
        ("loop", "break"),
        ("arguments", "found.append(max(0, value))"),
        ("function", "found.append(min(value, 0))"),
        ("constant", "found.append(max(value, 1))"),
        ("filter left out", "return sum((one for one in found))"),
    }
    assert len({tuple(lines) for lines in found}) == len(found)


def test_each_mutant_is_another_program(mutate: ModuleType) -> None:
    plain = ast.dump(ast.parse(SOURCE))
    mutants = mutate.mutants_of("some.py")
    programs = [ast.dump(mutate.mutated(mutant)) for mutant in mutants]
    assert plain not in programs
    for mutant in mutants:
        compile(mutate.mutated(mutant), "some.py", "exec")
        assert 5 <= mutant.line <= 14
    with pytest.raises(ValueError, match="no mutant of this file"):
        mutate.mutated(mutate.Mutant("some.py", 10**6, 0, 1, "unary"))


def test_the_sample_is_that_of_the_seed_and_has_every_module(mutate: ModuleType) -> None:
    first, again, other = (mutate.sample(["other.py", "some.py"], 20, seed) for seed in (1, 1, 2))
    assert first == again != other
    counts = Counter(mutant.module for mutant in first)
    assert counts["other.py"] == 3
    assert 15 <= counts["some.py"] <= 20
    assert len(set(first)) == len(first)


def test_live_functions_become_the_mutant(mutate: ModuleType, tmp_path: Path) -> None:
    path = str(tmp_path / "some.py")
    space: dict[str, FunctionType] = {}
    exec(compile(SOURCE, path, "exec", dont_inherit=True), space)
    plugin = mutate.Plugin(tmp_path, [], 1.0, {})
    plugin.live[path] = [space["inside"], space["total"]]
    assert space["total"]([1, 2, 3, -1, 0]) == 3
    (mutant,) = (m for m in mutate.mutants_of("some.py") if "sum((one for one in found))" in mutate.difference(m))
    assert plugin.install(mutant)
    assert space["total"]([1, 2, 3, -1, 0]) == 3
    (mutant,) = (m for m in mutate.mutants_of("some.py") if "min(value, 0)" in mutate.difference(m))
    plugin = mutate.Plugin(tmp_path, [], 1.0, {})
    exec(compile(SOURCE, path, "exec", dont_inherit=True), space)
    plugin.live[path] = [space["inside"], space["total"]]
    assert plugin.install(mutant)
    assert space["total"]([1, 2, 3, -2, 0]) == -2
    assert space["inside"](3)
    plugin.live[path] = [space["inside"]]
    assert not plugin.install(mutant)


def test_a_summary_counts(mutate: ModuleType, tmp_path: Path) -> None:
    fates = ["killed", "killed", "timeout", "survived", "not reached", "untested"]
    entries = [
        {"module": f"a/{'b' if n % 2 else 'c'}/m.py", "node": n, "variant": 0, "line": 1, "kind": "unary", "fate": fate}
        for n, fate in enumerate(fates)
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    read = mutate.read_results(path)
    first, *rest = mutate.summary(read).splitlines()
    assert first == "5 mutants: 3 killed (1 by time), 1 survived, 1 reached by no test; score 60.0%"
    assert len(rest) == 2
    assert [mutant.node for mutant, _ in mutate.alive(read)] == [3, 4]
    assert mutate.read_results(tmp_path / "none.jsonl") == []
