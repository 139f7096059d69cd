"""What was measured, as tables: ``docs/benchmarks.md`` and the short one in the README."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.checklist import STAGES, Claim, Results, claims
from benchmarks.harness import ROOT, Measured, slope

__all__ = ["checklist", "page", "print_section", "write"]

PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
START, END = "<!-- benchmarks: written by python -m benchmarks.run --write -->", "<!-- end of benchmarks -->"

NAMES = {
    "ours-armnn": "fusion-engine, rules `armnn`",
    "ours-batch-norm": "fusion-engine, rule `batch-norm`",
    "ours-match": "fusion-engine",
    "ours-warm": "fusion-engine, warm process",
    "ours-rules": "fusion-engine",
    "20.08": "Arm NN 20.08 (folds nothing)",
    "23.08": "Arm NN 23.08",
    "walk": "a walk by NetworkX's look-ups",
    "bare-walk": "a walk over the dicts inside",
    "networkx": "NetworkX, VF2",
    "nncf": "NNCF's matcher",
    "onnxscript-match": "onnxscript's rewriter",
    "onnxscript": "onnxscript's rewriter",
    "onnxruntime": "onnxruntime, basic level",
    "onnxoptimizer": "onnxoptimizer",
    "onnxsim": "onnxsim",
    "torch.fx": "torch.fx",
    "cp": "`cp`",
    "read-write": "read and write the bytes",
    "python": "a bare interpreter start",
}

TEXT = """# Benchmarks

Written by `python -m benchmarks.run --write`. {machine}

Each run is a fresh process; numbers are the median over {repeats} of them, all tools in turn. *ms* are the stages' own
wall time without process start and imports, *CPU ms* the same in processor time, *peak* the process's largest resident
memory. Ratios are wall times to the first row. Arm NN's stages are deserialize, Optimize for CpuRef and serialize, on
the very same `.armnn`; ONNX and PyTorch get the same network layer by layer. Of every tool that folds, the number of
layers left and the outputs were held against the workload's; one that leaves others says so instead of a time. So
does Arm NN 23.08 with shared weights: its Optimize folds the batch norm of one convolution into the Constant that the
others read too.

## What must hold

{checklist}

## Growth: chains of convolution, batch norm and ReLU

Milliseconds by number of layers, and the slope on log-log from 1,000 layers on.

{growth}

{sections}
"""

CORPUS_TEXT = """## The corpus

Milliseconds per model for load, fuse and save, in one warm process; Arm NN's three stages in a fresh process per
model, of those that it loads.

{table}
"""


def _ms(seconds: float) -> str:
    if math.isnan(seconds):
        return "–"
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def checklist(results: Results, *, short: bool = False) -> str:
    """The claims as a table; ``short`` leaves out what the numbers come from."""
    found = [claim for claim in claims(results) if not (short and math.isnan(claim.wall))]
    head = ["", "limit", "wall", "holds", "CPU", "holds", *([] if short else ["from"])]
    return _table(head, (_row(claim, short) for claim in found))


def _row(claim: Claim, short: bool) -> list[str]:
    sign = "≥" if claim.least else "≤"
    row = [claim.text, f"{sign} {claim.limit:g}"]
    for value in (claim.wall, claim.cpu):
        row += [_number(value), claim.holds(value)]
    return row if short else [*row, claim.note]


def print_section(name: str, section: Mapping[str, Measured]) -> None:
    """A section, on standard output."""
    print(f"\n{name}\n{_section(section)}", flush=True)


def _section(section: Mapping[str, Measured]) -> str:
    """Tools, their stages and ratios to the first."""
    stages = sorted({name for measured in section.values() for name in measured.stages}, key=_place)
    if len(stages) > 6:
        return _corpus_row({"": section})
    if "ours-rules" in section:
        return _by_number(section["ours-rules"])
    first = next(iter(section.values()))
    base = first.seconds() if first.stages else first.wall
    rows = []
    for tool, measured in section.items():
        if tool == "file":
            continue
        if measured.error is not None:
            rows.append([NAMES.get(tool, tool), measured.error, *[""] * (len(stages) + 4)])
            continue
        wall = measured.seconds() if measured.stages else measured.wall
        cpu = measured.seconds(cpu=True) if measured.stages else measured.cpu
        rows.append(
            [
                NAMES.get(tool, tool),
                *(_ms(measured.stages[stage]) if stage in measured.stages else "" for stage in stages),
                *(_ms(value) for value in (wall, cpu)),
                f"{wall / base:.2f}×",
                _ms(measured.wall),
                f"{measured.peak:,.0f} MiB",
            ]
        )
    return _table(["", *stages, "ms", "CPU ms", "ratio", "process ms", "peak"], rows)


def _place(stage: str) -> tuple[int, str]:
    order = ("workspace", "match", "load", "fuse", "save", "all")
    return (order.index(stage) if stage in order else len(order), stage)


def _by_number(measured: Measured) -> str:
    """A row for each number of rules."""
    if measured.error is not None:
        return measured.error
    first = measured.stages["1"]
    rows = (
        [f"{int(count):,}", _ms(seconds), _ms(measured.cpu_stages[count]), f"{seconds / first:.2f}×"]
        for count, seconds in measured.stages.items()
    )
    return _table(["rules", "ms", "CPU ms", "ratio"], rows)


def _corpus_row(corpora: Mapping[str, Mapping[str, Measured]]) -> str:
    rows = []
    for name, section in corpora.items():
        per_model = (
            section["ours-armnn"].stages if "ours-armnn" in section else {k: m.seconds() for k, m in section.items()}
        )
        times = sorted(per_model.values())
        if len(times) > 1:
            last = statistics.quantiles(times, n=20)[18]
            row = [str(len(times)), _ms(statistics.median(times)), _ms(last), _ms(times[-1]), _ms(sum(times))]
            rows.append([NAMES.get(name, name) or "fusion-engine", *row])
    return _table(["", "models", "median", "95th percentile", "most", "all"], rows)


def _growth(results: Results) -> str:
    sizes = sorted(int(name.split()[1]) for name in results if name.startswith("chain "))
    rows = []
    for tool in ("ours-armnn", "ours-batch-norm", "20.08", "23.08"):
        for stage in STAGES:
            found = [(size, results[f"chain {size}"].get(tool)) for size in sizes]
            times = [(size, one.seconds(stage) if one is not None else math.nan) for size, one in found]
            points = [(size, value) for size, value in times if size >= 1_000 and value > 0]
            steep = f"{slope(points):.2f}" if len(points) > 1 else "–"
            rows.append([f"{NAMES[tool]}: {stage}", *(_ms(value) for _, value in times), steep])
    return _table(["", *(f"{size:,}" for size in sizes), "slope"], rows)


_TITLES = {
    "ssd": "The SSD of the corpus: 473 layers, 52 batch norms",
    "directory": "The whole corpus by one command",
    "rules": "`fuse` by number of rules of which one matches, chain of 10,000",
    "large": "Large weights",
}


def page(results: Results, machine: str, repeats: int) -> str:
    """The page of all tables."""
    sections = []
    for name, section in results.items():
        kind, _, size = name.partition(" ")
        if kind in ("chain", "corpus", "command"):
            continue
        title = _TITLES.get(name) or {
            "match": f"Search for conv, norm, ReLU in a row: chain of {int(size or 0):,}",
            "peers": f"Folding batch norms: chain of {int(size or 0):,}",
        }.get(kind, f"{kind.replace('-', ' ').capitalize()}, {int(size or 0):,} layers")
        sections.append(f"## {title}\n\n{_section(section)}")
    corpora = {"ours-armnn": "corpus", "20.08": "corpus 20.08", "23.08": "corpus 23.08"}
    table = _corpus_row({tool: results[name] for tool, name in corpora.items() if name in results})
    sections.insert(0, CORPUS_TEXT.format(table=table).strip())
    return TEXT.format(
        machine=machine,
        repeats=repeats,
        checklist=checklist(results),
        growth=_growth(results),
        sections="\n\n".join(sections),
    )


def write(results: Results, machine: str, repeats: int) -> list[Path]:
    """Write the page, and the short table into the README where it has a place for it."""
    PAGE.write_text(page(results, machine, repeats), "utf-8")
    readme = README.read_text("utf-8")
    if START not in readme or END not in readme:
        return [PAGE]
    before, rest = readme.split(START, 1)
    _, after = rest.split(END, 1)
    README.write_text(f"{before}{START}\n\n{checklist(results, short=True)}\n\n{END}{after}", "utf-8")
    return [PAGE, README]
