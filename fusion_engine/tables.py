"""What the command line shows of a batch and of a model, in lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fusion_engine.console import counted, printable, reason_line
from fusion_engine.naming import layer_place, quoted, shortened
from fusion_engine.report import ModelReport, Report

if TYPE_CHECKING:
    from fusion_engine.gate import Gate

__all__ = ["MOST_REFUSALS", "gate_lines", "model_lines", "overview_lines", "reason", "statistics_lines", "summary_line"]

MOST_REFUSALS = 10
"""Refusals of a model that its table shows unless it is to show all; the report has all."""

_COLOURS = {"fused": "green", "unfused": "green", "converted": "green", "unchanged": "yellow", "failed": "red"}


def reason(model: ModelReport) -> str:
    """Why a model failed, without its path in front."""
    return reason_line((model.error or "").removeprefix(f"{model.path}: "))


def model_lines(
    model: ModelReport, paint: Callable[[str, str], str], done: str, dry_run: bool, *, verbose: bool = False
) -> list[str]:
    """What became of a model: a line, the table of its rules, its first refusals and its warnings.

    ``paint`` colours a text; ``done`` is the status of a model that was changed; ``verbose`` has all refusals, and
    how long the model took.
    """
    most = max(len(model.refusals), len(model.fusions)) if verbose else MOST_REFUSALS
    status = paint(model.status, _COLOURS[model.status])
    head = f"{printable(model.path)}: {status}"
    before, after = model.layers_before, model.layers_after
    if model.error is not None or before is None or after is None:
        return [f"{head}: {reason(model)}"]
    if model.status == "unchanged":
        head += f", 0 {done}, {counted(before.others, 'layer')} and {counted(before.constants, 'Constant')}"
        if done == "unfused":
            head += ": nothing in it was made by opaque rules or groups (what folds did stays)"
    else:
        head += f", {before.others} -> {after.others} layers, {before.constants} -> {after.constants} Constants"
    if model.output is not None:
        verb = "copied" if model.status == "unchanged" else "written"
        when = "would be " if dry_run else "" if model.recorded is None else "earlier "
        head += f", {when}{verb} to {printable(model.output)}"
    if verbose and model.seconds is not None:
        head += f", {model.seconds:.3f} s"
    lines = [head, *_rows(model)]
    for refusal in model.refusals[:most]:
        place = f"{printable(refusal.rule)} at {layer_place(refusal.layer.index, refusal.layer.name)}"
        lines.append(f"    refused: {place}: {reason_line(refusal.reason)}")
    if len(model.refusals) > most:
        lines.append(f"    refused: {len(model.refusals) - most} more: -v shows all")
    lines += _verification_lines(model, most)
    return lines + [f"    warning: {reason_line(warning)}" for warning in model.warnings]


def _verification_lines(model: ModelReport, most: int) -> list[str]:
    """How many fusions were verified, and the first that could not be and why."""
    found = model.verification
    if found is None or not found.fusions:
        return []
    lines = [f"    verified: {found.count('verified')} of {counted(len(found.fusions), 'fusion')}"]
    unverified = [check for check in found.fusions if check.status == "unverified"]
    for check in unverified[:most]:
        root = check.fusion.layers[0]
        place = f"{printable(check.fusion.rule)} at {layer_place(root.index, root.name)}"
        lines.append(f"    unverified: {place}: {reason_line(check.reason or '')}")
    if len(unverified) > most:
        lines.append(f"    unverified: {len(unverified) - most} more: -v shows all")
    return lines


def _rows(model: ModelReport) -> list[str]:
    """The table of rules and results of a model."""
    fused = Counter((fusion.rule, fusion.result) for fusion in model.fusions)
    refused = Counter(refusal.rule for refusal in model.refusals)
    keys = list(fused) + [(rule, "-") for rule in refused if rule not in {name for name, _ in fused}]
    if not keys:
        return []
    rows = [("rule", "result", "fused", "refused")]
    for rule, result in keys:
        rows.append((printable(rule), printable(result), str(fused[rule, result]), str(refused.pop(rule, 0))))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"    {rule:<{widths[0]}}  {result:<{widths[1]}}  {done:>{widths[2]}}  {not_done:>{widths[3]}}"
        for rule, result, done, not_done in rows
    ]


def statistics_lines(report: Report) -> list[str]:
    """A table of what each rule did in all models, and the seconds it took."""
    rows = [("rule", "tried", "fired", "refused", "seconds")]
    for rule, total in report.statistics.items():
        rows.append((printable(rule), str(total.tried), str(total.fired), str(total.refused), f"{total.seconds:.3f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def summary_line(report: Report, done: str) -> str:
    """The last line of a batch."""
    summary = report.summary()
    counts = ", ".join(f"{summary[status]} {status}" for status in (done, "unchanged", "failed"))
    made, refused = counted(summary["fusions"], "fusion"), counted(summary["refusals"], "refusal")
    told = [made, refused] if done == "fused" else []
    if summary["warnings"]:
        told.append(counted(summary["warnings"], "warning"))
    return f"{counted(summary['models'], 'model')}: {counts}" + (f"; {', '.join(told)}" if told else "")


def gate_lines(gate: Gate, *, known: bool) -> list[str]:
    """On what a run fails, where it does; ``known`` for what the baseline has."""
    shown: dict[str, list[str]] = {kind: [] for kind in gate.fail_on}
    for finding in gate.tripped:
        if len(shown[finding.kind]) < MOST_REFUSALS:
            words = f": {finding.words}" if finding.words else ""
            shown[finding.kind].append(f"new: {finding.kind}: {printable(finding.path)}{words}")
    lines = []
    for kind, some in shown.items():
        lines += some
        if gate.counts[kind] > len(some):
            lines.append(f"new: {kind}: {gate.counts[kind] - len(some)} more: --report FILE.json has all")
    if known:
        gone = f"; gone since: {gate.gone}: write it anew with --report FILE.json" if gate.gone else ""
        lines.append(f"known from the baseline: {counted(len(gate.known), 'finding')}{gone}")
    if gate.fail_on:
        lines.append("--fail-on: " + ", ".join(f"{gate.counts[kind]} {kind}" for kind in gate.fail_on))
    return lines


def overview_lines(found: dict[str, Any]) -> list[str]:
    """What `inspect` shows of an overview with its path and warnings."""
    versions = ", ".join(map(str, found["feature_versions"]))
    lines = [
        printable(found["path"]),
        f"dialect   {found['dialect']} (featureVersions {versions})",
        f"layers    {found['layers'] - found['constants']}, and {counted(found['constants'], 'Constant')}",
        f"weights   {found['weights_bytes']} bytes",
    ]
    for kind in ("inputs", "outputs"):
        for end in found[kind]:
            shape = "unknown shape" if end["shape"] is None else f"{end['data_type']} {end['shape']}"
            quantized = "" if end["scale"] is None else f", scale {end['scale']:.9g}, offset {end['offset']}"
            listed = "" if end["listed"] else ", not listed"
            lines.append(f"{kind[:-1]:<9} {quoted(end['name'])}, id {end['binding_id']}, {shape}{quantized}{listed}")
    for label, counts in ((label, found[label]) for label in ("types", "opaque", "groups")):
        names = [printable(shortened(name)) for name in counts]
        width = max(map(len, names), default=0)
        for name, count in zip(names, counts.values(), strict=True):
            lines.append(f"{label:<9} {name:<{width}}  {count}")
            label = ""
    lines += _reading_lines(found)
    lines += [f"warning   {reason_line(warning)}" for warning in found["warnings"]]
    return lines + _layer_lines(found["layer_list"]) if "layer_list" in found else lines


def _reading_lines(found: dict[str, Any]) -> list[str]:
    """Which releases read the network, and which do not, with the first reason of each."""
    if not found["loads_in"] and not found["cannot_load"]:
        return []
    lines = [f"loads in  {_releases(found['loads_in']) or 'no release'}"]
    for label, held in (("not in", found["cannot_load"]), ("care in", found["load_cautions"])):
        alike: dict[tuple[str, ...], list[str]] = {}
        for release, texts in held.items():
            alike.setdefault(tuple(texts), []).append(release)
        for texts, releases in alike.items():
            more = f"; and {len(texts) - 1} more: --json has all" if len(texts) > 1 else ""
            lines.append(f"{label:<9} {_releases(releases)}: {reason_line(texts[0])}{more}")
    return lines


def _releases(names: list[str]) -> str:
    """Releases as ranges: ``19.08 to 21.02, 23.08``."""
    from fusion_engine.releases.facts import release_names

    runs: list[list[str]] = []
    for name in release_names():
        if name not in names:
            runs.append([])
        elif runs:
            runs[-1].append(name)
        else:
            runs = [[name]]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs if run)


def _layer_lines(layers: list[dict[str, Any]]) -> list[str]:
    """A table of layers: index, type, name, where the inputs come from, what the outputs are."""
    rows = [("index", "type", "name", "inputs", "outputs")]
    for layer in layers:
        inputs = " ".join(
            "-" if source is None else f"{source['layer']}" + (f":{source['slot']}" if source["slot"] else "")
            for source in layer["inputs"]
        )
        outputs = "; ".join(
            "unknown" if info["shape"] is None else f"{info['data_type']} {info['shape']}" for info in layer["outputs"]
        )
        rows.append((str(layer["layer"]), layer["type"], quoted(layer["name"]), inputs, outputs))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["", *("  ".join([*map(str.ljust, row, widths), row[4]]).rstrip() for row in rows)]
