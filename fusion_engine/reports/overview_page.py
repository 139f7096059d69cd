"""A report as one HTML page that needs nothing else.

It holds no script, and its Content-Security-Policy lets none run and nothing load but its own style, told by its
SHA-256; names and reasons are put into it as text only.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any

from fusion_engine import __version__
from fusion_engine.console import counted, printable

__all__ = ["MOST_DETAILS", "MOST_SLOW", "report_page"]

MOST_SLOW = 20
"""Models among the slowest."""

MOST_DETAILS = 50
"""Refusals of a model that the page shows, and findings of a gate; the report in JSON has all."""

_Model = Mapping[str, Any]


def report_page(document: Mapping[str, Any]) -> str:
    """The HTML of a report."""
    models: Sequence[_Model] = document["models"]
    style = (resources.files("fusion_engine.reports") / "report.css").read_text("utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    title = f"fusion-engine {document['command']}: {counted(len(models), 'model')}"
    parts = [
        _totals(document),
        _gate(document["gate"]),
        _failures(models, document["gate"]),
        _rules(models),
        _slowest(models),
        _models(models),
        _files(document),
    ]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="fusion-engine {__version__}">
<link rel="icon" href="data:,">
<title>{_text(title)}</title>
<style>{style}</style>
</head>
<body>
<h1>{_text(title)}</h1>
{"".join(parts)}</body>
</html>
"""


def _text(text: str) -> str:
    """A text as HTML that shows it, whatever it holds."""
    return escape(printable(text))


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}">\n<h2>{title}</h2>\n{body}</section>\n'


def _table(heads: Sequence[str], rows: Iterable[str]) -> str:
    """A table; a head that begins with ``#`` is that of a column of numbers."""
    shown = "".join(f'<th class="number">{head[1:]}</th>' if head[0] == "#" else f"<th>{head}</th>" for head in heads)
    body = "".join(f"{row}\n" for row in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{shown}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'


def _number(value: object) -> str:
    return f'<td class="number">{value}</td>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3f}"


def _kind(model: _Model) -> str:
    """Class of a row: what became of the model."""
    status: str = model["status"]
    return status if status in ("unchanged", "failed") else "changed"


def _link(number: int, model: _Model) -> str:
    return f'<a href="#model-{number}">{_text(model["path"])}</a>'


def _reason(model: _Model) -> str:
    return _text((model["error"] or "").removeprefix(f"{model['path']}: "))


# Sections


def _totals(document: Mapping[str, Any]) -> str:
    summary: Mapping[str, int] = document["summary"]
    kinds = {status: status if status in ("unchanged", "failed") else "changed" for status in list(summary)[1:4]}
    tiles = [(name, str(count), kinds.get(name, "") if count else "") for name, count in summary.items()]
    measured = [model["seconds"] for model in document["models"] if model["seconds"] is not None]
    tiles.append(("seconds of work", f"{sum(measured):.1f}", ""))
    shown = "".join(f"<div><dt>{name}</dt><dd{_class(kind)}>{count}</dd></div>\n" for name, count, kind in tiles)
    return f'<dl class="totals">\n{shown}</dl>\n'


def _gate(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return ""
    lines = []
    if gate["fail_on"]:
        kinds = ", ".join(gate["fail_on"])
        found = counted(len(gate["tripped"]), "finding")
        lines.append(f"<p{_class('tripped' if gate['tripped'] else '')}>Fails on {kinds}: {found}.</p>\n")
    if gate["baseline"] is not None:
        known, gone = counted(len(gate["known"]), "finding"), gate["gone"]
        lines.append(f"<p>Baseline <code>{_text(gate['baseline'])}</code>: {known} known, {gone} gone.</p>\n")
    items = [f"<li>{_finding(finding)}</li>\n" for finding in gate["tripped"][:MOST_DETAILS]]
    items += _more(len(gate["tripped"]))
    return _section("gate", "Gate", "".join(lines) + (f'<ul class="plain">\n{"".join(items)}</ul>\n' if items else ""))


def _finding(finding: Mapping[str, Any]) -> str:
    reason = f": {_text(finding['reason'])}" if finding["reason"] else ""
    place = f": {_place(finding)}" if finding["rule"] is not None else ""
    return f"{finding['kind']}: {_link(finding['model'], finding)}{place}{reason}"


def _place(one: Mapping[str, Any]) -> str:
    layer = one["layer"]
    return f"{_text(one['rule'])} at layer {layer['index']} {escape(repr(layer['name']))}"


def _more(count: int) -> list[str]:
    return [f"<li>{count - MOST_DETAILS} more: the report in JSON has all</li>\n"] if count > MOST_DETAILS else []


def _failures(models: Sequence[_Model], gate: Mapping[str, Any] | None) -> str:
    known = {one["model"] for one in (gate or {"known": ()})["known"] if one["kind"] == "failed"}
    mark = '<span class="dim">known</span> '
    rows = [
        f'<tr><td class="name">{_link(number, model)}</td>'
        f'<td class="reason">{mark if number in known else ""}{_reason(model)}</td></tr>'
        for number, model in enumerate(models)
        if model["status"] == "failed"
    ]
    return _section("failures", f"Failures ({len(rows)})", _table(("Model", "Reason"), rows)) if rows else ""


def _rules(models: Sequence[_Model]) -> str:
    """What each rule did in all models, those that did most first."""
    fused: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    touched: dict[str, set[int]] = {}
    for number, model in enumerate(models):
        for fusion in model["fusions"]:
            fused[fusion["rule"]] += 1
            touched.setdefault(fusion["rule"], set()).add(number)
        refused.update(refusal["rule"] for refusal in model["refusals"])
        for entry in model["statistics"]:
            tried[entry["rule"]] += entry["tried"]
            seconds[entry["rule"]] = seconds.get(entry["rule"], 0.0) + entry["seconds"]
    names = sorted({**seconds, **fused, **refused}, key=lambda name: (-fused[name], -refused[name], name))
    rows = [
        f'<tr><td class="name">{_text(name)}</td>{_number(fused[name])}{_number(len(touched.get(name, ())))}'
        f"{_number(refused[name])}{_number(tried[name])}{_number(_seconds(seconds.get(name)))}</tr>"
        for name in names
    ]
    heads = ("Rule", "#Fused", "#Models", "#Refused", "#Tried", "#Seconds")
    return _section("rules", "Rules", _table(heads, rows)) if rows else ""


def _slowest(models: Sequence[_Model]) -> str:
    timed = [(model["seconds"], number, model) for number, model in enumerate(models) if model["seconds"] is not None]
    timed.sort(key=lambda one: (-one[0], one[1]))
    most = max((seconds for seconds, _, _ in timed), default=0.0) or 1.0
    rows = [
        f'<tr><td class="name">{_link(number, model)}</td>{_number(_seconds(seconds))}'
        f'<td><meter max="{most:.6f}" value="{seconds:.6f}">{_seconds(seconds)}</meter></td></tr>'
        for seconds, number, model in timed[:MOST_SLOW]
    ]
    return _section("slowest", "Slowest", _table(("Model", "#Seconds", "Beside the slowest"), rows)) if rows else ""


def _models(models: Sequence[_Model]) -> str:
    choices = "".join(
        f'<label><input type="radio" name="show" id="show-{name}"'
        f"{' checked' if name == 'all' else ''}> {name}</label>\n"
        for name in ("all", "changed", "unchanged", "failed", "refused")
    )
    heads = ("Model", "Status", "#Layers", "#Constants", "#Fusions", "#Refusals", "#Warnings", "#Seconds")
    rows = (_row(number, model) for number, model in enumerate(models))
    return _section("models", "Models", f"<fieldset>\n{choices}</fieldset>\n{_table(heads, rows)}")


def _row(number: int, model: _Model) -> str:
    kinds = f"{_kind(model)}{' refused' if model['refusals'] else ''}"
    before, after = model["layers_before"], model["layers_after"]
    layers = constants = ""
    if before is not None and after is not None:
        layers = _steps(before["layers"] - before["constants"], after["layers"] - after["constants"])
        constants = _steps(before["constants"], after["constants"])
    cells = [_number(len(model[name])) for name in ("fusions", "refusals", "warnings")]
    return (
        f'<tr id="model-{number}" class="{kinds}">'
        f'<td class="name">{_text(model["path"])}{"".join(_details(model))}</td>'
        f'<td class="status">{model["status"]}</td>{_number(layers)}{_number(constants)}{"".join(cells)}'
        f"{_number(_seconds(model['seconds']))}</tr>"
    )


def _steps(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} → {after}"


def _details(model: _Model) -> Iterator[str]:
    """What there is to say of a model, folded away."""
    items = [f"<li>{_reason(model)}</li>\n"] if model["error"] else []
    rules = Counter(fusion["rule"] for fusion in model["fusions"])
    items += [f"<li>fused: {_text(rule)}, {counted(count, 'time')}</li>\n" for rule, count in rules.items()]
    items += [f"<li>refused: {_finding_of(refusal)}</li>\n" for refusal in model["refusals"][:MOST_DETAILS]]
    items += _more(len(model["refusals"]))
    items += [f"<li>unverified: {text}</li>\n" for text in _unverified(model)]
    items += [f"<li>warning: {_text(warning)}</li>\n" for warning in model["warnings"]]
    if model["output"]:
        items.append(f"<li>output: {_text(model['output'])}</li>\n")
    if model["loads_in"]:
        items.append(f"<li>loads in Arm NN {_text(', '.join(model['loads_in']))}</li>\n")
    if items:
        yield f"<details><summary>details</summary><ul>\n{''.join(items)}</ul></details>"


def _finding_of(refusal: Mapping[str, Any]) -> str:
    return f"{_place(refusal)}: {_text(refusal['reason'])}"


def _unverified(model: _Model) -> list[str]:
    found = [
        f"{_place({'rule': fusion['rule'], 'layer': fusion['layers'][0]})}: {_text(check['reason'] or '')}"
        for fusion in model["fusions"]
        if (check := fusion.get("verification")) is not None and check["status"] == "unverified"
    ]
    return found[:MOST_DETAILS]


def _files(document: Mapping[str, Any]) -> str:
    rows = [
        f'<tr><td class="name">{_text(file["file"])}</td><td><code>{_text(file["sha256"])}</code></td></tr>'
        for file in document["rules"]
    ]
    return _section("files", "Rule files", _table(("File", "SHA-256"), rows)) if rows else ""
