"""A report as JUnit XML, which CI servers show: a test case for each model.

A model that failed is an error; one on which the gate trips, a failure; one that is known to fail, skipped.
The format has no standard: elements and attributes are those that Jenkins's and GitLab's readers know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from fusion_engine.console import counted, printable

__all__ = ["suites"]


def suites(document: Mapping[str, Any]) -> str:
    """The XML of a report."""
    command = document["command"]
    gate = document["gate"] or {"tripped": (), "known": ()}
    root = ET.Element("testsuites", name="fusion-engine")
    suite = ET.SubElement(root, "testsuite", name=command)
    tripped, known = _by_model(gate["tripped"]), _by_model(gate["known"])
    for number, model in enumerate(document["models"]):
        name = printable(model["path"])
        seconds = _seconds(model["seconds"] or 0)
        case = ET.SubElement(suite, "testcase", classname=f"fusion-engine.{command}", name=name, time=seconds)
        _verdict(case, model, tripped.get(number, []), known.get(number, []))
        ET.SubElement(case, "system-out").text = "\n".join(_told(model))
    counts = {
        "tests": len(suite),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": len(suite.findall("testcase/skipped")),
    }
    for element in (root, suite):
        for attribute, count in counts.items():
            element.set(attribute, str(count))
        element.set("time", _seconds(sum(model["seconds"] or 0 for model in document["models"])))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, "unicode")}\n'


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _by_model(findings: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    found: dict[int, list[Mapping[str, Any]]] = {}
    for finding in findings:
        found.setdefault(finding["model"], []).append(finding)
    return found


def _verdict(
    case: ET.Element,
    model: Mapping[str, Any],
    tripped: Sequence[Mapping[str, Any]],
    known: Sequence[Mapping[str, Any]],
) -> None:
    """What keeps a test case from passing, if anything does."""
    reason = printable((model["error"] or "").removeprefix(f"{model['path']}: "))
    if model["status"] == "failed":
        if any(finding["kind"] == "failed" for finding in known):
            ET.SubElement(case, "skipped", message=f"known to fail: {reason}")
        else:
            ET.SubElement(case, "error", type="failed", message=reason).text = reason
        return
    if tripped:
        kinds = list(dict.fromkeys(finding["kind"] for finding in tripped))
        counts = [f"{sum(one['kind'] == kind for one in tripped)} {kind}" for kind in kinds if kind != "changed"]
        message = ", ".join([*(["it is changed"] if "changed" in kinds else []), *counts])
        lines = [f"{one['kind']}: {_place(one)}" for one in tripped if one["kind"] != "changed"]
        ET.SubElement(case, "failure", type=" ".join(kinds), message=message).text = "\n".join([message, *lines])


def _place(finding: Mapping[str, Any]) -> str:
    layer = finding["layer"]
    place = f"{printable(finding['rule'])} at layer {layer['index']} {layer['name']!r}"
    return f"{place}: {printable(finding['reason'] or '')}"


def _told(model: Mapping[str, Any]) -> list[str]:
    """What a test case says of its model."""
    lines = [model["status"]]
    if model["fusions"]:
        lines[0] += f", {counted(len(model['fusions']), 'fusion')}"
    lines += [f"refused: {_place(refusal)}" for refusal in model["refusals"]]
    return lines + [f"warning: {printable(warning)}" for warning in model["warnings"]]
