"""A gate against becoming slower: ``python -m benchmarks.gate [--update]``; less than a minute.

What is compared are instructions, which valgrind's cachegrind counts to the same number however busy the machine is,
divided by those of a fixed piece of Python: figures in *units* hold for other processors and, about, for other releases
of Python. `LIMITS` are ratios that must hold whatever was measured before; ``gate.json`` keeps the figures of this
version, which may grow by `TOLERANCE`. Exit code 1 where one does not hold. Where there is no valgrind, nothing is
compared, and it says so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["LIMITS", "TOLERANCE", "faults", "main", "ratios"]

ROOT = Path(__file__).resolve().parents[1]
STORED = Path(__file__).with_name("gate.json")

TOLERANCE = 1.10
"""How much a figure may grow: more than another patch release of Python or NumPy makes of it."""

SMALL, LARGE = 250, 1_000

LIMITS = {
    "slope of load": 1.1,
    "slope of fuse": 1.1,
    "slope of save": 1.1,
    "slope of search": 1.1,
    "100 rules to 1": 1.5,
}
"""Slopes on log-log from 250 to 1,000 layers, and `fuse` with 99 rules that do not match before the one that does."""

NOTHING = "nothing"
"""Steps of the process that every other one also takes."""


def _child(model: str, steps: str) -> None:
    """What is counted: imports and a first use, then the steps on a model."""
    import fusion_engine as fe
    from benchmarks.worker import TRIPLE, _matches, _rules, _walk, _warm_up

    _warm_up()
    one, hundred = _rules("batch-norm"), _rules("batch-norm+99")
    triple = fe.FusingRule(TRIPLE, into="Triple")
    default = fe.load_rules("armnn")
    _matches(fe.load(model), triple)
    done = steps.split("+")
    if "unit" in done:
        _unit()
    if "load" not in done:
        return
    graph = fe.load(model)
    _walk(graph)
    if "search" in done:
        _matches(graph, triple)
    if "rules" in done:
        fe.fuse(graph, hundred)
    if "rule" in done:
        fe.fuse(graph, one)
    if "fuse" in done:
        fused = fe.fuse(graph, default)
        if "save" in done:
            fe.dumps(fused)


def _unit() -> int:
    """A fixed piece of work: a thousand dicts made and looked up."""
    nodes = {key: {"type": "even" if key % 2 else "odd", "next": key + 1} for key in range(1_000)}
    return sum(nodes[node["next"]]["type"] == "odd" for node in nodes.values() if node["next"] in nodes)


STEPS = {
    SMALL: ("load", "load+search", "load+fuse", "load+fuse+save"),
    LARGE: ("load", "load+search", "load+fuse", "load+fuse+save", "load+rule", "load+rules"),
}


def _count(model: Path, steps: str) -> int:
    """Instructions of a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    child = [sys.executable, "-m", "benchmarks.gate", "--child", str(model), steps]
    done = subprocess.run([*command, *child], capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"{' '.join(child)}: {done.stderr.strip()[-600:]}")
    return int(found[1].replace(",", ""))


def measure() -> dict[str, float]:
    """Figures of this version, in units: of each stage and size, and of `fuse` with 1 and with 100 rules."""
    from benchmarks.harness import worker

    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        models = {}
        for layers in (SMALL, LARGE):
            made = worker("prepare", "chain", layers, place)
            if made.error is not None:
                raise SystemExit(made.error)
            models[layers] = Path(place) / f"chain-{layers}.armnn"
        wanted = [(layers, steps) for layers in (LARGE, SMALL) for steps in (*STEPS[layers], NOTHING)]
        wanted.append((SMALL, "unit"))
        counts = dict(zip(wanted, pool.map(lambda one: _count(models[one[0]], one[1]), wanted), strict=True))
    unit = counts[SMALL, "unit"] - counts[SMALL, NOTHING]
    figures = {}
    for layers in (SMALL, LARGE):

        def between(after: str, before: str, layers: int = layers) -> float:
            return round((counts[layers, after] - counts[layers, before]) / unit, 1)

        figures[f"load {layers}"] = between("load", NOTHING)
        figures[f"search {layers}"] = between("load+search", "load")
        figures[f"fuse {layers}"] = between("load+fuse", "load")
        figures[f"save {layers}"] = between("load+fuse+save", "load+fuse")
        if layers == LARGE:
            figures["1 rule"] = between("load+rule", "load")
            figures["100 rules"] = between("load+rules", "load")
    return figures


def ratios(figures: dict[str, float]) -> dict[str, float]:
    """What `LIMITS` bounds."""
    found = {
        f"slope of {stage}": math.log(figures[f"{stage} {LARGE}"] / figures[f"{stage} {SMALL}"])
        / math.log(LARGE / SMALL)
        for stage in ("load", "fuse", "save", "search")
    }
    found["100 rules to 1"] = figures["100 rules"] / figures["1 rule"]
    return found


def faults(figures: dict[str, float], stored: dict[str, float]) -> list[str]:
    """What does not hold, each in words."""
    found = [
        f"{name} takes {figures[name]:.1f} units, {100 * (figures[name] / before - 1):.0f} % more than the "
        f"{before:.1f} kept in {STORED.name}"
        for name, before in stored.items()
        if name in figures and figures[name] > TOLERANCE * before
    ]
    for name, value in ratios(figures).items():
        if value > LIMITS[name]:
            found.append(f"{name} is {value:.3f}, more than {LIMITS[name]:g}")
    return found


def main() -> int:
    """Compare, or keep the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description="Compare instruction counts.")
    parser.add_argument("--update", action="store_true", help="keep the figures of this version")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(*options.child)
        return 0
    if shutil.which("valgrind") is None:
        print("gate: nothing compared: there is no valgrind here")
        return 0
    figures = measure()
    kept = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {"figures": {}}
    print("gate: instructions in units of a thousand dicts made and looked up")
    for name, value in figures.items():
        before = kept["figures"].get(name)
        change = "" if before is None else f"{100 * (value / before - 1):+7.1f} % of {before:,.1f}"
        print(f"  {name:<14}{value:>10,.1f}  {change}")
    for name, value in ratios(figures).items():
        print(f"  {name:<18}{value:>6.2f}  at most {LIMITS[name]:g}")
    if options.update:
        made_with = f"Python {platform.python_version()}, {platform.machine()}"
        STORED.write_text(json.dumps({"made_with": made_with, "figures": figures}, indent=2) + "\n", "utf-8")
        print(f"gate: {STORED} is written")
        return 0
    found = faults(figures, kept["figures"])
    for fault in found:
        print(f"gate: {fault}")
    print("gate: does not hold" if found else "gate: holds")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
