"""Measure this project beside its peers: ``python -m benchmarks.run [NAME...] [--quick] [--write]``.

Prints each benchmark's table as soon as it is measured and, at the end, what must hold. With ``--write``, all
benchmarks are run and ``docs/benchmarks.md`` and the README's table are written. What is not installed (peers: ``pip
install '.[bench]'``; real Arm NN; the corpus) is skipped, and the tables say so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict, replace

from benchmarks.harness import PLACE, Measured
from benchmarks.measures import BENCHMARKS, Scale
from benchmarks.tables import checklist, print_section, write

QUICK = Scale(repeats=3, largest=10_000, limit=20.0, mebibytes=256, every=20)
RESULTS = PLACE / "results.json"


def main() -> None:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description="Measure fusion-engine and its peers."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer runs, smaller networks: minutes, and less exact")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md and the README's table")
    parser.add_argument("--repeats", type=int, help="runs of each tool, whose median counts")
    parser.add_argument("--from-last", action="store_true", help="measure nothing: tables of the last run")
    parser.add_argument("--peers-up-to", type=int, metavar="LAYERS", help="longest chain that peers fold")
    options = parser.parse_args()
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name}: {', '.join(BENCHMARKS)}")
    if options.write and (options.names or options.quick):
        parser.error("--write is for all benchmarks at full scale: numbers in one table come from one run")
    scale = QUICK if options.quick else Scale()
    if options.repeats:
        scale = replace(scale, repeats=options.repeats)
    if options.peers_up_to:
        scale = replace(scale, peers=options.peers_up_to)
    if options.from_last:
        kept = json.loads(RESULTS.read_text("utf-8"))
        machine, repeats = kept["machine"], kept["repeats"]
        results = {
            name: {tool: Measured(**one) for tool, one in section.items()} for name, section in kept["results"].items()
        }
    else:
        results, machine, repeats = {}, _machine(), scale.repeats
        print(machine, flush=True)
        for name in options.names or BENCHMARKS:
            for title, section in BENCHMARKS[name](scale).items():
                results[title] = section
                if not title.startswith(("command", "corpus ")):
                    print_section(title, section)
            _keep(results, machine, repeats)
    print(f"\n{checklist(results)}\n\nload average at the end: {os.getloadavg()[0]:.1f}")
    if options.write:
        for path in write(results, machine, repeats):
            print(f"{path} is written")


def _keep(results: dict[str, dict[str, Measured]], machine: str, repeats: int) -> None:
    """Keep what was measured so far for ``--from-last``."""
    PLACE.mkdir(parents=True, exist_ok=True)
    plain = {name: {tool: asdict(one) for tool, one in section.items()} for name, section in results.items()}
    RESULTS.write_text(json.dumps({"machine": machine, "repeats": repeats, "results": plain}), "utf-8")


def _machine() -> str:
    """What the numbers were made on."""
    model = "unknown processor"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.release().split('-')[0]}; load average at the start {load:.1f}."
    )


if __name__ == "__main__":
    main()
