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
from collections.abc import Callable
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

UNITS = 200
"""How often the unit is counted, so that a count is not off by what a process is off by."""

VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def _unit() -> int:
    """A fixed piece of work: a thousand dicts made and looked up."""
    nodes = {key: {"type": "even" if key % 2 else "odd", "next": key + 1} for key in range(1_000)}
    return sum(nodes[node["next"]]["type"] == "odd" for node in nodes.values() if node["next"] in nodes)


def _counted(name: str, work: Callable[[], object]) -> None:
    """Do a work in a forked process, whose count goes on from here; and nothing in another one."""
    for part, what in ((f"{name}:before", lambda: None), (f"{name}:after", work)):
        process = os.fork()
        if process == 0:
            what()
            os._exit(0)
        if os.waitpid(process, 0)[1] != 0:
            raise SystemExit(f"{name} failed")
        print(process, part, flush=True)


def _child(folder: str) -> None:
    """What is counted, each work in a forked process of its own."""
    import fusion_engine as fe
    from benchmarks.worker import TRIPLE, _matches, _rules, _walk, _warm_up
    from benchmarks.workloads import chain
    from fusion_engine.workspace import Workspace

    _warm_up()
    triple, default = fe.FusingRule(TRIPLE, into="Triple"), fe.load_rules("armnn")
    one, hundred = _rules("batch-norm"), _rules("batch-norm+99")
    _matches(Workspace(chain(300), reading=True), triple)
    fe.fuse(chain(300), hundred)
    _counted("unit", lambda: [_unit() for _ in range(UNITS)])
    for layers in (SMALL, LARGE):
        model = Path(folder) / f"chain-{layers}.armnn"
        _counted(f"load {layers}", lambda model=model: _walk(fe.load(model)))
        graph = fe.load(model)
        _walk(graph)
        _counted(f"search {layers}", lambda graph=graph: _matches(Workspace(graph, reading=True), triple))
        _counted(f"fuse {layers}", lambda graph=graph: fe.fuse(graph, default))
        if layers == LARGE:
            _counted("1 rule", lambda graph=graph: fe.fuse(graph, one))
            _counted("100 rules", lambda graph=graph: fe.fuse(graph, hundred))
        fused = fe.fuse(graph, default)
        _counted(f"save {layers}", lambda fused=fused: fe.dumps(fused))


def _run(*command: str) -> str:
    """What a program prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()[-600:]}")
    return done.stdout


def measure() -> dict[str, float]:
    """Figures of this version, in units: of each stage and size, and of `fuse` with 1 and with 100 rules."""
    with tempfile.TemporaryDirectory() as place:
        for layers in (SMALL, LARGE):
            _run(sys.executable, "-m", "benchmarks.worker", "prepare", "chain", str(layers), place)
        child = (sys.executable, "-m", "benchmarks.gate", "--child", place)
        _run(*child)  # so that all modules are compiled
        counts = {}
        for line in _run(*VALGRIND, f"--log-file={place}/%p.log", *child).splitlines():
            process, name = line.split(" ", 1)
            said = (Path(place) / f"{process}.log").read_text("utf-8")
            found = re.search(r"I\s+refs:\s+([\d,]+)", said)
            if found is None:
                raise SystemExit(f"valgrind counts no instructions: {said.strip()[-600:]}")
            counts[name] = int(found[1].replace(",", ""))
    names = [name.removesuffix(":after") for name in counts if name.endswith(":after")]
    taken = {name: counts[f"{name}:after"] - counts[f"{name}:before"] for name in names}
    unit = taken.pop("unit") / UNITS
    return {name: round(count / unit, 2) for name, count in taken.items()}


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
    parser.add_argument("--child", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(options.child)
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
