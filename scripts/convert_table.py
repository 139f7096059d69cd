"""Write the table of docs/convert.md: every corpus file carried to the other release and run there.

Run ``python scripts/convert_table.py`` beside ``../shared`` with real Arm NN installed;
``--check`` only compares and exits 1 on a difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

import fusion_engine as fe  # noqa: E402
from tests.support.real_armnn import SHARED, ArmnnFailed, RealArmnn, locate  # noqa: E402

PAGE = HERE / "docs" / "convert.md"
MARK = "<!-- the table: python scripts/convert_table.py -->\n"
HEAD = "| file | made by | carried to | there |\n|---|---|---|---|\n"


def main(arguments: list[str]) -> int:
    """Write the table, or with ``--check`` compare it; returns the exit code."""
    real = locate()
    if isinstance(real, str):
        print(real)
        return 1
    corpus = SHARED / "corpus"
    entries: list[dict[str, Any]] = json.loads((corpus / "manifest.json").read_text("utf-8"))["files"]
    rows = [row(real, corpus, entry) for entry in entries]
    text = PAGE.read_text("utf-8")
    written = text[: text.index(MARK) + len(MARK)] + HEAD + "".join(f"{line}\n" for line in rows)
    if "--check" in arguments:
        print("the table is up to date" if text == written else "out of date: run python scripts/convert_table.py")
        return 0 if text == written else 1
    PAGE.write_text(written, "utf-8")
    print(f"wrote {len(rows)} rows to {PAGE}")
    return 0


def row(real: RealArmnn, corpus: Path, entry: dict[str, Any]) -> str:
    """The row of a file."""
    maker = "23.08" if "23.08" in entry["made_by"] else "20.08"
    other = "20.08" if maker == "23.08" else "23.08"
    return f"| {entry['file']} | {maker} | {other} | {outcome(real, corpus, entry, maker, other)} |"


def outcome(real: RealArmnn, corpus: Path, entry: dict[str, Any], maker: str, other: str) -> str:
    """What becomes of a file in the other release."""
    try:
        data = fe.dumps(fe.load(corpus / entry["file"]), release=other)
    except fe.ConversionError as error:
        return "refused: " + "; ".join(dict.fromkeys(reason(obstacle) for obstacle in error.obstacles))
    try:
        run = real.run(data, other)
    except ArmnnFailed as failed:
        return f"does not run ({failed.reason.partition('.')[0].partition('|')[0].strip()[:100]})"
    own = entry["run"][maker]
    if own["runs"]:
        if run.digests == {output["id"]: output["fnv1a64"] for output in own["outputs"]}:
            return "runs, outputs equal"
        return "runs, " + difference(real.run(corpus / entry["file"], maker).outputs, run.outputs)
    direct = entry.get("direct_run") or {}
    if run.digests == {output["id"]: output["fnv1a64"] for output in direct.get("outputs", ())}:
        return f"runs, outputs equal to those of {maker} before it wrote the file, which it does not run"
    if entry["run"].get(other, {}).get("runs"):
        return f"runs; {maker} does not run the file"
    return f"runs; {maker} does not run its file" + ("" if direct.get("outputs") else " nor the network")


def reason(obstacle: fe.Obstacle) -> str:
    """An obstacle without its layers."""
    later = "" if obstacle.since is None else f" (possible since {obstacle.since})"
    return f"{obstacle.reason}{later}"


def difference(expected: Any, found: Any) -> str:
    """The largest difference of two runs, and the largest value that it is one of."""
    most = largest = 0.0
    for x, y in zip(expected, found, strict=True):
        a, b = x.values.astype(np.float64), y.values.astype(np.float64)
        most, largest = max(most, float(np.abs(a - b).max())), max(largest, float(np.abs(a).max()))
    return f"largest difference {most:.2g} in values up to {largest:.2g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
