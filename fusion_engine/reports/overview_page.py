"""A report as one HTML page that needs nothing else.

It holds no script, and its Content-Security-Policy lets none run and nothing load but its own style, told by its
SHA-256; names and reasons are put into it as text only.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import heappop, heappush
from html import escape
from importlib import resources
from itertools import chain
from typing import Any

from fusion_engine import __version__
from fusion_engine.console import counted, reason_line
from fusion_engine.naming import layer_place

__all__ = ["MOST_DETAILS", "MOST_SLOW", "report_page"]

MOST_SLOW = 20
"""Models among the slowest."""

MOST_DETAILS = 50
"""Refusals of a model that the page shows, and findings of a gate; the report in JSON has all."""

_Model = Mapping[str, Any]


def report_page(document: Mapping[str, Any]) -> Iterator[str]:
    """The HTML of a report, a row at a time. What is not told by row is added up before."""
    models: Iterable[_Model] = document["models"]
    totals = _Totals(models)
    style = (resources.files("fusion_engine.reports") / "report.css").read_text("utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    title = f"fusion-engine {document['command']}: {counted(totals.models, 'model')}"
    yield f"""<!DOCTYPE html>
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
"""
    yield from _tiles(document["summary"], totals)
    yield from _gate(document["gate"])
    yield from _failures(models, totals, document["gate"])
    yield from _rules(totals)
    yield from _slowest(totals)
    yield from _models(models)
    yield from _files(document)
    yield "</body>\n</html>\n"


class _Totals:
    """What adds up over the models of a report.

    Attributes
    ----------
    models, failed
        Their number, and of those that failed.
    seconds
        That they took.
    slowest
        Seconds, number and path of those that took longest, the slowest first.
    rules
        What each rule did.
    """

    def __init__(self, models: Iterable[_Model]) -> None:
        self.models = self.failed = 0
        self.seconds = 0.0
        self.slowest: list[tuple[float, int, str]] = []
        self.rules: dict[str, _RuleTotals] = {}
        slowest: list[tuple[float, int, str]] = []  # a heap; the number is negative, so that the first of equals stay
        for number, model in enumerate(models):
            self.models += 1
            self.failed += model["status"] == "failed"
            if model["seconds"] is not None:
                self.seconds += model["seconds"]
                heappush(slowest, (model["seconds"], -number, model["path"]))
                if len(slowest) > MOST_SLOW:
                    heappop(slowest)
            self._count_rules(model)
        self.slowest = [(seconds, -number, path) for seconds, number, path in sorted(slowest, reverse=True)]

    def _count_rules(self, model: _Model) -> None:
        for rule in dict.fromkeys(fusion["rule"] for fusion in model["fusions"]):
            self._of(rule).models += 1
        for fusion in model["fusions"]:
            self._of(fusion["rule"]).fused += 1
        for refusal in model["refusals"]:
            self._of(refusal["rule"]).refused += 1
        for entry in model["statistics"]:
            total = self._of(entry["rule"])
            total.tried += entry["tried"]
            total.seconds = (total.seconds or 0.0) + entry["seconds"]

    def _of(self, rule: str) -> _RuleTotals:
        return self.rules.setdefault(rule, _RuleTotals())


@dataclass
class _RuleTotals:
    fused: int = 0
    models: int = 0
    refused: int = 0
    tried: int = 0
    seconds: float | None = None


def _text(text: str) -> str:
    """A text as HTML that shows it, whatever it holds."""
    return escape(reason_line(text))


def _section(name: str, title: str, body: Iterable[str]) -> Iterator[str]:
    yield f'<section id="{name}">\n<h2>{title}</h2>\n'
    yield from body
    yield "</section>\n"


def _table(heads: Sequence[str], rows: Iterable[str]) -> Iterator[str]:
    """A table; a head that begins with ``#`` is that of a column of numbers."""
    shown = "".join(f'<th class="number">{head[1:]}</th>' if head[0] == "#" else f"<th>{head}</th>" for head in heads)
    yield f'<div class="scroll"><table>\n<thead><tr>{shown}</tr></thead>\n<tbody>\n'
    for row in rows:
        yield f"{row}\n"
    yield "</tbody>\n</table></div>\n"


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


def _link(number: int, path: str) -> str:
    return f'<a href="#model-{number}">{_text(path)}</a>'


def _reason(model: _Model) -> str:
    return _text((model["error"] or "").removeprefix(f"{model['path']}: "))


# Sections


def _tiles(summary: Mapping[str, int], totals: _Totals) -> Iterator[str]:
    kinds = {status: status if status in ("unchanged", "failed") else "changed" for status in list(summary)[1:4]}
    tiles = [(name, str(count), kinds.get(name, "") if count else "") for name, count in summary.items()]
    tiles.append(("seconds of work", f"{totals.seconds:.1f}", ""))
    shown = "".join(f"<div><dt>{name}</dt><dd{_class(kind)}>{count}</dd></div>\n" for name, count, kind in tiles)
    yield f'<dl class="totals">\n{shown}</dl>\n'


def _gate(gate: Mapping[str, Any] | None) -> Iterator[str]:
    if gate is None:
        return
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
    if items:
        lines += ['<ul class="plain">\n', *items, "</ul>\n"]
    yield from _section("gate", "Gate", lines)


def _finding(finding: Mapping[str, Any]) -> str:
    reason = f": {_text(finding['reason'])}" if finding["reason"] else ""
    place = f": {_place(finding)}" if finding["rule"] is not None else ""
    return f"{finding['kind']}: {_link(finding['model'], finding['path'])}{place}{reason}"


def _place(one: Mapping[str, Any]) -> str:
    layer = one["layer"]
    return f"{_text(one['rule'])} at {escape(layer_place(layer['index'], layer['name']))}"


def _more(count: int) -> list[str]:
    return [f"<li>{count - MOST_DETAILS} more: the report in JSON has all</li>\n"] if count > MOST_DETAILS else []


def _failures(models: Iterable[_Model], totals: _Totals, gate: Mapping[str, Any] | None) -> Iterator[str]:
    if not totals.failed:
        return
    known = {one["model"] for one in (gate or {"known": ()})["known"] if one["kind"] == "failed"}
    mark = '<span class="dim">known</span> '
    rows = (
        f'<tr><td class="name">{_link(number, model["path"])}</td>'
        f'<td class="reason">{mark if number in known else ""}{_reason(model)}</td></tr>'
        for number, model in enumerate(models)
        if model["status"] == "failed"
    )
    yield from _section("failures", f"Failures ({totals.failed})", _table(("Model", "Reason"), rows))


def _rules(totals: _Totals) -> Iterator[str]:
    """What each rule did in all models, those that did most first."""
    names = sorted(totals.rules, key=lambda name: (-totals.rules[name].fused, -totals.rules[name].refused, name))
    rows = [
        f'<tr><td class="name">{_text(name)}</td>{_number(one.fused)}{_number(one.models)}'
        f"{_number(one.refused)}{_number(one.tried)}{_number(_seconds(one.seconds))}</tr>"
        for name in names
        for one in [totals.rules[name]]
    ]
    heads = ("Rule", "#Fused", "#Models", "#Refused", "#Tried", "#Seconds")
    if rows:
        yield from _section("rules", "Rules", _table(heads, rows))


def _slowest(totals: _Totals) -> Iterator[str]:
    most = (totals.slowest[0][0] if totals.slowest else 0.0) or 1.0
    rows = [
        f'<tr><td class="name">{_link(number, path)}</td>{_number(_seconds(seconds))}'
        f'<td><meter max="{most:.6f}" value="{seconds:.6f}">{_seconds(seconds)}</meter></td></tr>'
        for seconds, number, path in totals.slowest
    ]
    if rows:
        yield from _section("slowest", "Slowest", _table(("Model", "#Seconds", "Beside the slowest"), rows))


def _models(models: Iterable[_Model]) -> Iterator[str]:
    choices = "".join(
        f'<label><input type="radio" name="show" id="show-{name}"'
        f"{' checked' if name == 'all' else ''}> {name}</label>\n"
        for name in ("all", "changed", "unchanged", "failed", "refused")
    )
    heads = ("Model", "Status", "#Layers", "#Constants", "#Fusions", "#Refusals", "#Warnings", "#Seconds")
    rows = (_row(number, model) for number, model in enumerate(models))
    body = chain((f"<fieldset>\n{choices}</fieldset>\n",), _table(heads, rows))
    yield from _section("models", "Models", body)


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


def _files(document: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        f'<tr><td class="name">{_text(file["file"])}</td><td><code>{_text(file["sha256"])}</code></td></tr>'
        for file in document["rules"]
    ]
    if rows:
        yield from _section("files", "Rule files", _table(("File", "SHA-256"), rows))
