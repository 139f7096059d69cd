"""A report as JUnit XML, which CI servers show: a test case for each model.

A model that failed is an error; one on which the gate trips, a failure; one that is known to fail, skipped.
The format has no standard: elements and attributes are those that Jenkins's and GitLab's readers know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any
from xml.etree import ElementTree as ET

from fusion_engine.console import counted, printable, reason_line
from fusion_engine.naming import layer_place

__all__ = ["suites"]


def suites(document: Mapping[str, Any]) -> Iterator[str]:
    """The XML of a report, a test case at a time; the counts stand before them, so it is gone through twice."""
    command = document["command"]
    counts: Counter[str] = Counter()
    seconds = 0.0
    for model, verdict in _verdicts(document):
        counts[verdict.tag if verdict is not None else "passed"] += 1
        seconds += model["seconds"] or 0
    attributes = {
        "tests": str(counts.total()),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": _seconds(seconds),
    }
    end = ">" if counts else " />"
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"{_start('testsuites', {'name': 'fusion-engine', **attributes})}>\n"
    yield f"  {_start('testsuite', {'name': command, **attributes})}{end}\n"
    for model, verdict in _verdicts(document):
        name = printable(model["path"])
        time = _seconds(model["seconds"] or 0)
        case = ET.Element("testcase", classname=f"fusion-engine.{command}", name=name, time=time)
        if verdict is not None:
            case.append(verdict)
        ET.SubElement(case, "system-out").text = "\n".join(_told(model))
        ET.indent(case, level=2)
        yield f"    {ET.tostring(case, 'unicode')}\n"
    if counts:
        yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _start(tag: str, attributes: dict[str, str]) -> str:
    """The start tag of an element, without its end."""
    return ET.tostring(ET.Element(tag, attributes), "unicode").removesuffix(" />")


def _verdicts(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], ET.Element | None]]:
    """Each model, and what keeps its test case from passing, if anything does."""
    gate = document["gate"] or {"tripped": (), "known": ()}
    tripped, known = _ByModel(gate["tripped"]), _ByModel(gate["known"])
    for number, model in enumerate(document["models"]):
        yield model, _verdict(model, tripped.of(number), known.of(number))


class _ByModel:
    """Findings, which come in the order of the models, told apart by model."""

    def __init__(self, findings: Iterable[Mapping[str, Any]]) -> None:
        self._groups = groupby(findings, key=itemgetter("model"))
        self._next: tuple[int, list[Mapping[str, Any]]] | None = None
        self._advance()

    def _advance(self) -> None:
        self._next = next(((number, list(group)) for number, group in self._groups), None)

    def of(self, number: int) -> Sequence[Mapping[str, Any]]:
        """Those of a model; asked for in order."""
        if self._next is None or self._next[0] != number:
            return ()
        found = self._next[1]
        self._advance()
        return found


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _verdict(
    model: Mapping[str, Any], tripped: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]
) -> ET.Element | None:
    reason = reason_line((model["error"] or "").removeprefix(f"{model['path']}: "))
    if model["status"] == "failed":
        if any(finding["kind"] == "failed" for finding in known):
            return ET.Element("skipped", message=f"known to fail: {reason}")
        error = ET.Element("error", type="failed", message=reason)
        error.text = reason
        return error
    if not tripped:
        return None
    kinds = list(dict.fromkeys(finding["kind"] for finding in tripped))
    counts = [f"{sum(one['kind'] == kind for one in tripped)} {kind}" for kind in kinds if kind != "changed"]
    message = ", ".join([*(["it is changed"] if "changed" in kinds else []), *counts])
    lines = [f"{one['kind']}: {_place(one)}" for one in tripped if one["kind"] != "changed"]
    failure = ET.Element("failure", type=" ".join(kinds), message=message)
    failure.text = "\n".join([message, *lines])
    return failure


def _place(finding: Mapping[str, Any]) -> str:
    layer = finding["layer"]
    place = f"{printable(finding['rule'])} at {layer_place(layer['index'], layer['name'])}"
    return f"{place}: {reason_line(finding['reason'] or '')}"


def _told(model: Mapping[str, Any]) -> list[str]:
    """What a test case says of its model."""
    lines = [model["status"]]
    if model["fusions"]:
        lines[0] += f", {counted(len(model['fusions']), 'fusion')}"
    lines += [f"refused: {_place(refusal)}" for refusal in model["refusals"]]
    return lines + [f"warning: {reason_line(warning)}" for warning in model["warnings"]]
