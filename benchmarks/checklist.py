"""What must hold, and whether it does: numbers of one run held against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.harness import Measured, slope

__all__ = ["STAGES", "Claim", "claims"]

Results = Mapping[str, Mapping[str, Measured]]

STAGES = ("load", "fuse", "save")
NOTHING = Measured(error="not measured")
WRITTEN_IN_PYTHON = ("onnxscript", "torch.fx")
MATCHERS = ("networkx", "nncf", "onnxscript-match")
FOLDERS = ("onnxscript", "onnxoptimizer", "torch.fx")
"""Peers that fold in memory."""
FILES = ("onnxscript", "onnxruntime", "onnxoptimizer", "onnxsim")
"""Peers that go from file to file."""


@dataclass(frozen=True)
class Claim:
    """Something that must hold.

    Attributes
    ----------
    text
        What.
    wall, cpu
        The number found, from wall and from processor time; NaN where it was not measured.
    limit
        The number allowed: at most, or at least where ``least``.
    note
        What the numbers were made from.
    least
        Whether ``limit`` is the least allowed.
    """

    text: str
    wall: float
    cpu: float
    limit: float
    note: str = ""
    least: bool = False

    def holds(self, value: float) -> str:
        """yes, no, or – where there is no number."""
        if math.isnan(value):
            return "–"
        return "yes" if (value >= self.limit if self.least else value <= self.limit) else "no"


def _get(results: Results, section: str, tool: str) -> Measured:
    return results.get(section, {}).get(tool, NOTHING)


def _both(value: Callable[[bool], float]) -> tuple[float, float]:
    return value(False), value(True)


def _ratio(first: float, second: float) -> float:
    return first / second if second else math.nan


def _process(measured: Measured, cpu: bool) -> float:
    return measured.cpu if cpu else measured.wall


def claims(results: Results) -> list[Claim]:
    """Everything that must hold, with what was measured."""
    return [
        *_corpus(results),
        *_chains(results),
        *_peers(results),
        *_growth(results),
        *_rules(results),
        *_large(results),
    ]


def _corpus(results: Results) -> Iterator[Claim]:
    commands = {name: one for name, one in results.get("command", {}).items() if name != "python"}
    start = _get(results, "command", "python")

    def command(cpu: bool) -> float:
        times = [_process(one, cpu) for one in commands.values() if one.error is None]
        return (max(times) if times else math.nan) - _process(start, cpu)

    failed = sum(one.error is not None for one in commands.values())
    yield Claim(
        "the `fuse` command on the slowest file under 5 MB, over a bare interpreter start, s",
        *_both(command),
        0.5,
        f"{len(commands)} files, {failed} failed; each once, the slowest again",
    )
    ours, theirs = _get(results, "ssd", "ours-warm"), _get(results, "ssd", "20.08")
    yield Claim(
        "the SSD through load, fuse and save, warm, to 20.08's three stages",
        *_both(lambda cpu: _ratio(ours.seconds(cpu=cpu), theirs.seconds(cpu=cpu))),
        2.0,
        f"{_ms(ours.seconds())} to {_ms(theirs.seconds())}",
    )
    copy, fuse = _get(results, "directory", "cp"), _get(results, "directory", "ours-armnn")
    models = len(_get(results, "corpus", "ours-armnn").stages)

    def directory(cpu: bool) -> float:
        return _ratio(_process(fuse, cpu), 3 * _process(copy, cpu) + 0.020 * models)

    yield Claim(
        "the whole directory in one command, to 3 × `cp -r` + 20 ms a model",
        *_both(directory),
        1.0,
        f"{_ms(fuse.wall)}, {_ms(copy.wall)}, {models} models",
    )


def _chains(results: Results) -> Iterator[Claim]:
    ours, theirs = _get(results, "chain 10000", "ours-armnn"), _get(results, "chain 10000", "23.08")
    yield Claim(
        "chain of 10,000: 23.08's three stages to ours",
        *_both(lambda cpu: _ratio(theirs.seconds(*STAGES, cpu=cpu), ours.seconds(*STAGES, cpu=cpu))),
        8.0,
        f"{_ms(theirs.seconds())} to {_ms(ours.seconds())}; all rules of `armnn`",
        least=True,
    )
    longest, old = _get(results, "chain 60000", "ours-armnn"), _get(results, "chain 60000", "20.08")
    yield Claim(
        "chain of 60,000: ours to 20.08's three stages, which fold nothing",
        *_both(lambda cpu: _ratio(longest.seconds(*STAGES, cpu=cpu), old.seconds(*STAGES, cpu=cpu))),
        2.0,
        f"{_ms(longest.seconds())} to {_ms(old.seconds())}; all rules of `armnn`",
    )


def _fastest(
    section: Mapping[str, Measured], tools: tuple[str, ...], stages: tuple[str, ...], cpu: bool
) -> tuple[float, str]:
    """The least time that a tool takes for some stages, and its name."""
    times = [(section[tool].seconds(*stages, cpu=cpu), tool) for tool in tools if tool in section]
    return min(((value, tool) for value, tool in times if not math.isnan(value)), default=(math.nan, "none"))


def _peers(results: Results) -> Iterator[Claim]:
    section = results.get("peers 10000", {})
    parts: list[tuple[str, Mapping[str, Measured], str, tuple[str, ...], tuple[str, ...]]] = [
        ("search", results.get("match 10000", {}), "ours-match", MATCHERS, ()),
        ("fold in memory", section, "ours-batch-norm", FOLDERS, ("fuse",)),
        ("fold from file to file", section, "ours-batch-norm", FILES, ()),
    ]
    for what, section, tool, peers, stages in parts:
        python = tuple(peer for peer in peers if peer in (*WRITTEN_IN_PYTHON, *MATCHERS))
        for kind, among in (("fastest peer written in Python", python), ("fastest peer of all", peers)):

            def ratio(
                cpu: bool,
                among: tuple[str, ...] = among,
                section: Mapping[str, Measured] = section,
                tool: str = tool,
                stages: tuple[str, ...] = stages,
            ) -> float:
                theirs, _ = _fastest(section, among, stages, cpu)
                return _ratio(theirs, section.get(tool, NOTHING).seconds(*stages, cpu=cpu))

            theirs, name = _fastest(section, among, stages, False)
            ours = section.get(tool, NOTHING).seconds(*stages)
            if among != python or kind.endswith("Python"):
                note = f"{name}, {_ms(theirs)} to {_ms(ours)}"
                yield Claim(f"chain of 10,000: {what}, {kind} to ours", *_both(ratio), 5.0, note, least=True)
    match = _get(results, "match 10000", "ours-match")
    walk, bare = _get(results, "match 10000", "walk"), _get(results, "match 10000", "bare-walk")
    yield Claim(
        "chain of 10,000: matching to the dict walk",
        *_both(lambda cpu: _ratio(match.seconds("match", cpu=cpu), walk.seconds(cpu=cpu))),
        3.0,
        f"{_ms(match.seconds('match'))} to {_ms(walk.seconds())}, by NetworkX's look-ups (in the dicts inside it "
        f"{_ms(bare.seconds())}); the Workspace takes {_ms(match.seconds('workspace'))} more, once for all rules",
    )


def _growth(results: Results) -> Iterator[Claim]:
    sizes = sorted(int(name.split()[1]) for name in results if name.startswith("chain "))
    sizes = [size for size in sizes if size >= 1_000]
    for tool in ("ours-armnn", "ours-batch-norm"):
        for stage in STAGES:

            def grown(cpu: bool, tool: str = tool, stage: str = stage) -> float:
                points = [(size, _get(results, f"chain {size}", tool).seconds(stage, cpu=cpu)) for size in sizes]
                return _slope(points)

            rules = tool.removeprefix("ours-")
            note = f"{sizes[0]:,} to {sizes[-1]:,} layers" if sizes else ""
            yield Claim(f"slope of {stage}, rules `{rules}`", *_both(grown), 1.1, note)
    lengths = sorted(int(name.split()[1]) for name in results if name.startswith("match "))

    def search(cpu: bool) -> float:
        points = [(size, _get(results, f"match {size}", "ours-match").seconds(cpu=cpu)) for size in lengths]
        return _slope(points)

    yield Claim(
        "slope of search, Workspace and matching",
        *_both(search),
        1.1,
        f"{lengths[0]:,} to {lengths[-1]:,} layers" if lengths else "",
    )


def _slope(points: list[tuple[int, float]]) -> float:
    known = [(size, value) for size, value in points if value > 0]
    return slope(known) if len(known) > 1 else math.nan


def _rules(results: Results) -> Iterator[Claim]:
    found = _get(results, "rules", "ours-rules")
    for count, limit in (("100", 1.5), ("1000", 3.0)):
        yield Claim(
            f"{int(count):,} rules of which 1 matches, to that rule alone",
            *_both(lambda cpu, count=count: _ratio(found.seconds(count, cpu=cpu), found.seconds("1", cpu=cpu))),  # type: ignore[misc]
            limit,
            f"{_ms(found.seconds(count))} to {_ms(found.seconds('1'))}; `fuse` on the chain of 10,000",
        )


def _large(results: Results) -> Iterator[Claim]:
    ours, copy, file = (_get(results, "large", name) for name in ("ours-armnn", "cp", "file"))

    def ratio(cpu: bool) -> float:
        return _ratio(ours.seconds(*STAGES, cpu=cpu), _process(copy, cpu))

    size = "1 GiB" if math.isnan(file.peak) else f"{file.peak:,.0f} MiB"
    yield Claim(
        f"{size} of weights: load, fuse and save, to `cp`",
        *_both(ratio),
        1.5,
        f"{_ms(ours.seconds())} to {_ms(copy.wall)}",
    )
    part = 100 * ours.peak / file.peak
    yield Claim(f"{size} of weights: peak memory in % of the file", part, part, 10.0, f"{ours.peak:,.0f} MiB")


def _ms(seconds: float) -> str:
    if math.isnan(seconds):
        return "–"
    return f"{1000 * seconds:.3g} ms" if seconds < 0.1 else f"{1000 * seconds:,.0f} ms"
