"""Write ``docs/folds-corpus.md``: the corpus before and after the folds, beside real Arm NN's own optimizer.

``python -m benchmarks.folds_corpus``, with real Arm NN and the corpus beside the checkout (see
CONTRIBUTING.md). A few minutes.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import fusion_engine as fe
from tests.support.folded import NOT_OURS, Folded, difference, folded, layers, optimized, release_of
from tests.support.real_armnn import SHARED, RealArmnn, locate

CORPUS = SHARED / "corpus"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "folds-corpus.md"

TIMED = (
    "public/ssd_mobilenet_v3_small_coco_2019_08_14.armnn",
    "handmade-20.08/deep_chain_2000.armnn",
    "handmade-23.08/deep_chain_2000.armnn",
    "handmade-20.08/transpose_pairs.armnn",
    "handmade-23.08/transpose_pairs.armnn",
    "handmade-20.08/permute_inverse.armnn",
    "handmade-23.08/permute_inverse.armnn",
    "handmade-20.08/activation_chains.armnn",
    "handmade-23.08/activation_chains.armnn",
    "handmade-23.08/new_attention_block.armnn",
)

TEXT = """# The folds over the corpus

What the rules of `armnn.toml` make of the corpus of real networks: {files} files, of which {changed} change. Written by
`python -m benchmarks.folds_corpus`.

## Layers, and what real Arm NN's own optimizer leaves

Layers that compute, Inputs and Outputs among them; Constants are left out, since release 23.08 makes Constants of
weights that are members. The two last columns are what Arm NN 23.08's `Optimize` for its reference backend leaves of
the original and of our result; – where 23.08 does not load or optimize the file. All files are listed that the rules
change or of which `Optimize` leaves something else than what the file holds.

Of our results it drops nothing but {dropped}. These no rule covers: its reference backend goes
without a Reshape by giving the next layer's input slot a TensorInfo of its own, which only releases from 23.08 on can
read; and an Input that nothing reads is part of what the callers of a network know.

| file | before | after | 23.08 of the original | 23.08 of ours |
|---|--:|--:|--:|--:|
{rows}
| **all {files} files** | **{before}** | **{after}** | | |

## Outputs

Each result was run by the release that made its file (20.08 stands for the older ones), on CpuRef and seeded inputs,
beside the original: {ran} files, and every one that ran before runs. Where no weights were computed the outputs are
equal to the bit, +0 and −0 alike: {same} files. Where weights were computed, max|x − y| / max|x| of an output is at
most:

| type of the output | files | worst |
|---|--:|--:|
{worst}

## Rules that fired

| rule | times | files |
|---|--:|--:|
{rules}

## Run time

CpuRef's time for one inference after the folds, as a part of that before: the median of {repeats} runs of each, taken
in turn.

| file | release | after / before |
|---|---|--:|
{times}
"""

REPEATS = 7


def main() -> None:
    """Measure and write the page."""
    real_armnn = locate()
    if isinstance(real_armnn, str):
        raise SystemExit(real_armnn)
    entries = json.loads((CORPUS / "manifest.json").read_text("utf-8"))["files"]
    rows, dropped, totals = [], Counter[str](), [0, 0]
    fired, fired_in = Counter[str](), Counter[str]()
    worst: dict[str, list[float]] = {}
    ran = same = changed = 0
    for entry in entries:
        file = entry["file"]
        result = folded(CORPUS / file)
        before, after = layers(result.before), layers(result.after)
        totals[0] += before.total()
        totals[1] += after.total()
        changed += bool(result.rules)
        fired.update(result.rules)
        fired_in.update(result.rules.keys())
        original, left = optimized(real_armnn, CORPUS / file), optimized(real_armnn, result.data)
        if left is not None:
            dropped.update(after - left)
        if result.rules or (original is not None and original != before):
            counts = [
                f"{counter.total():,}" if counter is not None else "–" for counter in (before, after, original, left)
            ]
            rows.append(f"| {file.removesuffix('.armnn')} | " + " | ".join(counts) + " |")
        release = release_of(entry)
        if result.rules and entry["run"][release]["runs"]:
            ran += 1
            found = differences(real_armnn, CORPUS / file, result, release)
            if result.computes:
                for name, value in found.items():
                    worst.setdefault(name, []).append(value)
            elif any(found.values()):
                raise SystemExit(f"{file}: outputs differ by {found}")
            else:
                same += 1
    if not set(dropped) <= NOT_OURS:
        raise SystemExit(f"real Arm NN drops {dropped} of our results")
    PAGE.write_text(
        TEXT.format(
            files=len(entries),
            changed=changed,
            dropped=" and ".join(
                f"{count} {name}{'s' if count > 1 else ''}" for name, count in sorted(dropped.items())
            ),
            rows="\n".join(rows),
            before=f"{totals[0]:,}",
            after=f"{totals[1]:,}",
            ran=ran,
            same=same,
            worst="\n".join(
                f"| {name} | {len(values)} | {max(values):.1e} |"
                for name, values in sorted(worst.items(), reverse=True)
            ),
            rules="\n".join(
                f"| {rule.name} | {fired[rule.name]:,} | {fired_in[rule.name]} |" for rule in fe.load_rules("armnn")
            ),
            repeats=REPEATS,
            times="\n".join(timed(real_armnn, entry) for entry in entries if entry["file"] in TIMED),
        ),
        "utf-8",
    )
    print(f"{PAGE} is written")


def differences(real_armnn: RealArmnn, path: Path, result: Folded, release: str) -> dict[str, float]:
    """The largest difference by data type of the outputs."""
    before = real_armnn.run(path, release).outputs
    after = real_armnn.run(result.data, release).outputs
    found: dict[str, float] = {}
    for x, y in zip(before, after, strict=True):
        name = x.values.dtype.name.capitalize()
        found[name] = max(found.get(name, 0.0), difference(x, y))
    return found


def timed(real_armnn: RealArmnn, entry: dict[str, object]) -> str:
    """A row of the table of run times."""
    file, release = str(entry["file"]), release_of(entry)
    result = folded(CORPUS / file)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for model, found in zip((CORPUS / file, result.data), times, strict=True):
            found.append(float(real_armnn.run(model, release).answer["ms_run"]))
    before, after = map(statistics.median, times)
    return f"| {file.removesuffix('.armnn')} | {release} | {after / before:.2f} |"


if __name__ == "__main__":
    main()
