"""Reports of a run in the formats that people and machines read: the suffix of a file's name tells which.

Every format is made of the plain data of a report, so that what an earlier run recorded is in all of them, and model by
model, so that no format has all of them in memory.
All but JSON show names made `printable`, so that a name can break no line and command no viewer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from fusion_engine.report import json_pieces
from fusion_engine.spool import Entries
from fusion_engine.storage import is_url

__all__ = ["SUFFIXES", "pieces", "rendered", "suffix_of"]

SUFFIXES = (".json", ".jsonl", ".csv", ".xml", ".html")
"""The formats: JSON, a line of JSON for each model, a table, JUnit XML, a page."""


def suffix_of(path: str) -> str | None:
    """Which of `SUFFIXES` a name, or the first link of a URL, ends in, in whatever case; None where it is none."""
    suffix = os.path.splitext(path.partition("::")[0] if is_url(path) else path)[1].lower()
    return suffix if suffix in SUFFIXES else None


def pieces(document: Mapping[str, Any], suffix: str) -> Iterator[str]:
    """The text of a report, a model at a time; JSON is ASCII only, the others are to be stored as UTF-8.

    Parameters
    ----------
    document
        What `Report.document` or `Report.as_json` gives.
    suffix
        One of `SUFFIXES`.
    """
    if suffix == ".json":
        return json_pieces(document)
    if suffix == ".jsonl":
        models = document["models"]
        return models.lines() if isinstance(models, Entries) else (json.dumps(model) + "\n" for model in models)
    if suffix == ".csv":
        from fusion_engine.reports.spreadsheet import table

        return table(document)
    if suffix == ".xml":
        from fusion_engine.reports.junit import suites

        return suites(document)
    if suffix == ".html":
        from fusion_engine.reports.overview_page import report_page

        return report_page(document)
    raise ValueError(f"{suffix!r} is no format of reports")


def rendered(document: Mapping[str, Any], suffix: str) -> str:
    """The whole text of a report; see `pieces`."""
    return "".join(pieces(document, suffix))
