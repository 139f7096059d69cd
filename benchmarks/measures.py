"""The named benchmarks: what runs beside what. Each gives what it measured by section and tool."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import PLACE, ROOT, Measured, armnn_time, fresh, interleaved, run_of, worker

__all__ = ["BENCHMARKS", "CORPUS", "SHAPES", "SIZES", "SSD", "Scale"]

Section = dict[str, Measured]
Work = Callable[[], Measured]

CORPUS = ROOT.parent / "shared" / "corpus"
SSD = "public/ssd_mobilenet_v3_small_coco_2019_08_14.armnn"
SHAPES = ("fan-out", "residual", "shared-weights", "near-misses")
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
ARMNN_LIMIT = {"20.08": 60_000, "23.08": 30_000}
"""Layers of the longest chain that a release is given: more than 20.08 can read, more than 23.08 does in a minute."""

FOLDERS = ("onnxscript", "onnxruntime", "onnxoptimizer", "onnxsim", "torch.fx")
MATCHERS = ("networkx", "nncf", "onnxscript-match")
RELEASES = ("20.08", "23.08")


@dataclass(frozen=True)
class Scale:
    """How much is measured.

    Attributes
    ----------
    repeats
        Runs of each work, whose median counts.
    largest
        Layers of the longest chain.
    limit
        Seconds after which a run is ended.
    mebibytes
        Size of the large weights.
    peers
        Layers of the longest chain that peers fold.
    every
        Of the corpus's files, those that are run by a command of their own: one in so many.
    """

    repeats: int = 5
    largest: int = 100_000
    limit: float = 60.0
    mebibytes: int = 1024
    peers: int = 100_000
    every: int = 1


class _Workload:
    """A workload's files, and the works of the tools on them."""

    def __init__(self, name: str, layers: int, limit: float) -> None:
        self.name, self.layers, self.limit = name, layers, limit
        self.base = PLACE / "workloads" / f"{name}-{layers}"
        made = worker("prepare", name, layers, self.base.parent, limit=600)
        if made.error is not None:
            raise SystemExit(f"{name} {layers}: {made.error}")
        self.before = int(made.answer["layers"])
        self.after = self.before - int(made.answer["folds"])
        self.armnn, self.onnx, self.expected = (self.base.with_suffix(end) for end in (".armnn", ".onnx", ".npy"))

    def out(self, tool: str, end: str) -> Path:
        """Where a tool writes its result."""
        return self.base.with_name(f"{self.base.name}-{tool}{end}")

    def ours(self, rules: str) -> Work:
        """Load, fuse and save by some rules."""
        return run_of("ours", self.armnn, self.out(f"ours-{rules}", ".armnn"), rules, limit=600)

    def release(self, release: str) -> Work:
        """Real Arm NN's stages."""
        return lambda: armnn_time(release, self.armnn, self.limit)

    def matcher(self, tool: str) -> Work:
        """A tool that only searches."""
        return run_of(tool, self.onnx if tool.startswith("onnx") else self.armnn, limit=self.limit)

    def folder(self, tool: str) -> Work:
        """A peer that folds."""
        if tool == "torch.fx":
            return run_of(tool, self.name, self.layers, self.expected, limit=self.limit)
        return run_of(tool, self.onnx, self.out(tool, ".onnx"), limit=self.limit)

    def checked(self, section: Section) -> Section:
        """The section, in which a tool whose result has other layers or other outputs has an error instead.

        What this project gets wrong ends the run.
        """
        wanted = self.layers // 3 if self.name == "chain" else None
        found = {}
        for tool, measured in section.items():
            fault = measured.error
            if fault is None and "matches" in measured.answer:
                fault = None if measured.answer["matches"] == wanted else f"{measured.answer['matches']} matches"
            elif fault is None:
                fault = self._fault(tool, measured)
            if fault is not None and tool.startswith(("ours", "walk", "bare-walk")):
                raise SystemExit(f"{self.name} {self.layers}: {tool}: {fault}")
            found[tool] = Measured(error=fault) if fault is not None else measured
        return found

    def _fault(self, tool: str, measured: Measured) -> str | None:
        after = self.after
        if tool.startswith("ours"):
            check = worker("check-network", self.out(tool, ".armnn"), self.expected, limit=600)
        elif tool in RELEASES:
            if self.layers > 3_000:
                return None
            check = worker("check-armnn", self.armnn, self.expected, tool, limit=600)
            after = self.before if tool == "20.08" else self.after
        elif tool == "torch.fx":
            check = measured
        else:
            check = worker("check-onnx", self.out(tool, ".onnx"), self.expected, limit=600)
        if check.error is not None:
            return f"its result: {check.error}"
        left = int(check.answer["layers"])
        return None if left == after else f"leaves {left:,} layers, not {after:,}"


def chain(scale: Scale) -> dict[str, Section]:
    """The stages on chains of all sizes, beside real Arm NN."""
    found = {}
    for layers in (*(size for size in SIZES if size <= scale.largest), *([60_000] if scale.largest > 60_000 else [])):
        workload = _Workload("chain", layers, scale.limit)
        works = {"ours-armnn": workload.ours("armnn"), "ours-batch-norm": workload.ours("batch-norm")}
        works |= {name: workload.release(name) for name in RELEASES if layers <= ARMNN_LIMIT[name]}
        found[f"chain {layers}"] = workload.checked(interleaved(works, scale.repeats))
    return found


def match(scale: Scale) -> dict[str, Section]:
    """The search for conv, norm and ReLU in a row, beside the walk and what others search with."""
    found = {}
    for layers in (1_000, 10_000, 100_000):
        if layers <= scale.largest:
            workload = _Workload("chain", layers, scale.limit)
            works = {tool: workload.matcher(tool) for tool in ("walk", "bare-walk", "ours-match", *MATCHERS)}
            found[f"match {layers}"] = workload.checked(interleaved(works, scale.repeats))
    return found


def peers(scale: Scale) -> dict[str, Section]:
    """Folding batch norms on chains, beside peers; one that is not done in time is given no longer chain."""
    found: dict[str, Section] = {}
    late: Section = {}
    for layers in (1_000, 10_000, 100_000):
        if layers <= min(scale.peers, scale.largest):
            section = _beside("chain", layers, scale, tuple(tool for tool in FOLDERS if tool not in late))
            late |= {
                tool: Measured(error=f"{one.error}: {layers:,} layers")
                for tool, one in section.items()
                if one.error is not None and one.error.startswith("not done")
            }
            found[f"peers {layers}"] = section | {tool: one for tool, one in late.items() if tool not in section}
    return found


def shapes(scale: Scale) -> dict[str, Section]:
    """The other shapes, beside everybody."""
    layers, scale = min(3_000, scale.largest), replace(scale, limit=min(scale.limit, 15.0))
    return {f"{name} {layers}": _beside(name, layers, scale, (*RELEASES, *FOLDERS)) for name in SHAPES}


def _beside(name: str, layers: int, scale: Scale, tools: tuple[str, ...]) -> Section:
    workload = _Workload(name, layers, scale.limit)
    works = {"ours-armnn": workload.ours("armnn"), "ours-batch-norm": workload.ours("batch-norm")}
    for tool in tools:
        works[tool] = workload.release(tool) if tool in RELEASES else workload.folder(tool)
    return workload.checked(interleaved(works, scale.repeats))


def rules(scale: Scale) -> dict[str, Section]:
    """One rule that matches behind others that do not."""
    layers = min(10_000, scale.largest)
    workload = _Workload("chain", layers, scale.limit)
    work = run_of("ours-rules", workload.armnn, 1, 10, 100, 1_000, limit=600)
    return {"rules": interleaved({"ours-rules": work}, min(scale.repeats, 3))}


def large(scale: Scale) -> dict[str, Section]:
    """Large weights, beside cp and a program that reads and writes the bytes."""
    model = PLACE / "workloads" / f"large-{scale.mebibytes}.armnn"
    out = PLACE / "large-out.armnn"
    made = worker("prepare-large", scale.mebibytes, model, limit=600)
    if made.error is not None:
        raise SystemExit(f"large weights: {made.error}")

    def clean(work: Work) -> Work:
        def cleaned() -> Measured:
            out.unlink(missing_ok=True)
            os.sync()
            return work()

        return cleaned

    fresh(["cksum", model])  # a warm cache
    works = {
        "cp": clean(lambda: fresh(["cp", model, out])),
        "read-write": clean(run_of("read-write", model, out)),
        "ours-armnn": clean(run_of("ours", model, out)),
    }
    found = interleaved(works, scale.repeats)
    found["file"] = Measured(peak=model.stat().st_size / 2**20)
    out.unlink(missing_ok=True)
    model.unlink()
    return {"large": found}


def corpus(scale: Scale) -> dict[str, Section]:
    """Real networks: one by one in a warm process, each by a command of its own, all by one command."""
    if not CORPUS.is_dir():
        return {}
    out = PLACE / "corpus-out"
    models = sorted(path for path in CORPUS.rglob("*.armnn"))
    found: dict[str, Section] = {}

    def emptied(work: Work) -> Work:
        def cleaned() -> Measured:
            shutil.rmtree(out, ignore_errors=True)
            return work()

        return cleaned

    single = PLACE / "one.armnn"
    single.parent.mkdir(parents=True, exist_ok=True)
    ours = run_of("ours-corpus", CORPUS, single, limit=600)
    found["corpus"] = interleaved({"ours-armnn": ours}, min(scale.repeats, 3))
    for release in RELEASES:
        times = {str(path.relative_to(CORPUS)): armnn_time(release, path) for path in models}
        found[f"corpus {release}"] = {name: one for name, one in times.items() if one.error is None}
    works = {"ours-warm": run_of("ours-warm", CORPUS / SSD, single)}
    works |= {release: (lambda release=release: armnn_time(release, CORPUS / SSD)) for release in RELEASES}
    found["ssd"] = interleaved(works, scale.repeats)
    command = [sys.executable, "-m", "fusion_engine", "fuse"]
    found["directory"] = interleaved(
        {
            "cp": emptied(lambda: fresh(["cp", "-r", CORPUS, out])),
            "ours-armnn": emptied(lambda: fresh([*command, CORPUS, "--out", out], 600)),
        },
        scale.repeats,
    )
    small = [path for path in models if path.stat().st_size < 5_000_000][:: scale.every]
    works = {str(path.relative_to(CORPUS)): _command(command, path, out) for path in small}
    once = interleaved(works, 1)
    slowest = sorted(once, key=lambda name: -once[name].cpu if once[name].error is None else 0.0)[:5]
    start: Mapping[str, Work] = {"python": lambda: fresh([sys.executable, "-c", "pass"])}
    found["command"] = once | interleaved({**start, **{name: works[name] for name in slowest}}, scale.repeats)
    shutil.rmtree(out, ignore_errors=True)
    return found


def _command(command: list[str], path: Path, out: Path) -> Work:
    return lambda: fresh([*command, path, "--out", out])


BENCHMARKS: dict[str, Callable[[Scale], dict[str, Section]]] = {
    "corpus": corpus,
    "chain": chain,
    "match": match,
    "peers": peers,
    "shapes": shapes,
    "rules": rules,
    "large": large,
}
