"""A report as a table in CSV (RFC 4180, lines that end in LF): a row for each model."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from fusion_engine.console import reason_line

__all__ = ["COLUMNS", "table"]

COLUMNS = (
    "path",
    "output",
    "status",
    "seconds",
    "dialect",
    "layers_before",
    "layers_after",
    "constants_before",
    "constants_after",
    "fusions",
    "refusals",
    "verified",
    "unverified",
    "warnings",
    "loads_in",
    "error",
)
"""Layers count without Constants; ``loads_in`` has releases with a space between them. Empty: not known, or nothing."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With these a spreadsheet begins a formula."""


def table(document: Mapping[str, Any]) -> Iterator[str]:
    """The rows of a report; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for model in document["models"]:
        writer.writerow({name: _cell(value) for name, value in _row(model).items()})
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _row(model: Mapping[str, Any]) -> dict[str, Any]:
    verification = model["verification"] or {}
    return {
        **{name: model[name] for name in ("path", "output", "status", "seconds", "dialect")},
        **_layers(model, "before"),
        **_layers(model, "after"),
        "fusions": len(model["fusions"]),
        "refusals": len(model["refusals"]),
        "verified": verification.get("verified"),
        "unverified": verification.get("unverified"),
        "warnings": len(model["warnings"]),
        "loads_in": " ".join(model["loads_in"]),
        "error": (model["error"] or "").removeprefix(f"{model['path']}: "),
    }


def _layers(model: Mapping[str, Any], when: str) -> dict[str, int]:
    counts = model[f"layers_{when}"]
    if counts is None:
        return {}
    return {f"layers_{when}": counts["layers"] - counts["constants"], f"constants_{when}": counts["constants"]}


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = reason_line(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
