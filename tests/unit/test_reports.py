"""Reports in all formats: golden files, names that are made to harm, what tools that read them need."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from fusion_engine import Fusion, LayerRef, Refusal
from fusion_engine.report import ModelReport, Report
from fusion_engine.reports import SUFFIXES, rendered, suffix_of
from fusion_engine.reports.overview_page import MOST_DETAILS, MOST_SLOW
from fusion_engine.reports.spreadsheet import COLUMNS

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))


def document(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text("ascii"))
    return found


def body(page: str) -> str:
    found = re.search(r"<body>\n(.*)</body>", page, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, suffix: str) -> None:
    """What each format makes of a report in JSON; of a page its body."""
    text = rendered(document(case), suffix)
    assert (body(text) if suffix == ".html" else text) == (GOLDEN / f"{case}{suffix}").read_text("utf-8")


def test_there_are_cases() -> None:
    assert {"gate", "hostile"} <= set(CASES)


def test_suffixes() -> None:
    assert [suffix_of(f"a/b.c/report{suffix.upper()}") for suffix in SUFFIXES] == list(SUFFIXES)
    assert [suffix_of(name) for name in ("report", "json", ".json", "a.htm", "a.json/b", "a.json ")] == [None] * 6
    with pytest.raises(ValueError, match=r"'\.txt' is no format"):
        rendered(document("gate"), ".txt")


def test_lines_are_the_models_of_the_report() -> None:
    lines = rendered(document("hostile"), ".jsonl").split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == document("hostile")["models"]
    assert "".join(lines).isascii()


def test_the_table_has_a_row_for_each_model_and_no_formulas() -> None:
    rows = list(csv.reader(io.StringIO(rendered(document("hostile"), ".csv"), newline="")))
    assert rows[0] == list(COLUMNS)
    assert [len(row) for row in rows] == [len(COLUMNS)] * 4
    assert rows[1][0] == "in/\"'><img src=x onerror=alert(1)>\\n\\x1b[31m\\xff\\u202e]]>&.armnn"
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    for first in "=+-@":
        report = Report(models=[ModelReport(f"{first}1", "failed", error="\t=1")])
        (row,) = list(csv.DictReader(io.StringIO(rendered(report.as_json(), ".csv"))))
        assert (row["path"], row["error"]) == (f"'{first}1", "\\t=1")


def test_test_cases_are_counted() -> None:
    root = ET.fromstring(rendered(document("gate"), ".xml"))
    (suite,) = root
    for element in (root, suite):
        assert {name: element.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
            "tests": "4",
            "failures": "2",
            "errors": "1",
            "skipped": "1",
            "time": "6.253",
        }
    assert [[child.tag for child in case] for case in suite] == [
        ["failure", "system-out"],
        ["skipped", "system-out"],
        ["error", "system-out"],
        ["failure", "system-out"],
    ]


def test_xml_holds_every_name() -> None:
    """Whatever a name is made of, a parser gets its printable form."""
    name = "".join(map(chr, (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFFF0, 0x10010))))
    text = rendered(Report(models=[ModelReport(name, "failed", error=name)]).as_json(), ".xml")
    (case,) = ET.fromstring(text.encode("utf-8")).iter("testcase")
    assert str(case.get("name")).startswith("\\x00\\x01")
    assert "\\udc80" not in str(case.get("name"))
    assert "\\x80\\x81" in str(case.get("name"))


class _Elements(HTMLParser):
    """The elements of a page with their attributes, and the text that is shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.shown = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.shown += data


def test_no_name_becomes_part_of_the_page() -> None:
    elements = _Elements(body(rendered(document("hostile"), ".html")))
    assert {tag for tag, _ in elements.found} <= {
        *("h1", "h2", "dl", "div", "dt", "dd", "section", "table", "thead", "tbody", "tr", "th", "td", "a"),
        *("meter", "fieldset", "label", "input", "details", "summary", "ul", "li", "code"),
    }
    assert {name for _, attributes in elements.found for name in attributes} == {
        *("class", "id", "href", "max", "value", "type", "name", "checked")
    }
    assert all(attributes.get("href", "#").startswith("#model-") for tag, attributes in elements.found if tag == "a")
    assert 'careful: <script>alert("1")</script>' in elements.shown
    assert "in/\"'><img src=x onerror=alert(1)>\\n\\x1b[31m\\xff\\u202e]]>&.armnn" in elements.shown


def test_the_page_runs_and_loads_nothing() -> None:
    page = rendered(document("hostile"), ".html")
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "script" not in policy
    assert not re.search(r"<script|<link(?![^>]*href=\"data:,\")|@import|url\(", page)


def test_a_link_leads_to_its_model() -> None:
    page = rendered(document("gate"), ".html")
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets == {"model-0", "model-1", "model-2", "model-3"}
    assert targets <= set(re.findall(r'id="([^"]+)"', page))


def test_the_page_of_a_large_run_stays_readable() -> None:
    layer = LayerRef(1, "x", "Activation")
    refusals = tuple(Refusal("rule", layer, f"reason {number}.") for number in range(MOST_DETAILS + 7))
    models = [ModelReport(f"{n}.armnn", "fused", refusals=refusals, seconds=n / 10) for n in range(MOST_SLOW + 5)]
    page = rendered(Report(models=models).as_json(), ".html")
    assert f"reason {MOST_DETAILS - 1}." in page
    assert f"reason {MOST_DETAILS}." not in page
    assert page.count("7 more: the report in JSON has all") == len(models)
    slowest = page[page.index('id="slowest"') : page.index('id="models"')]
    assert re.findall(r">(\d+)\.armnn<", slowest) == [str(n) for n in range(MOST_SLOW + 4, 4, -1)]


def test_rules_add_up_over_models() -> None:
    first, second = LayerRef(0, "a", "Activation"), LayerRef(1, "b", "Activation")
    models = [
        ModelReport("a", "fused", fusions=(Fusion("r", "X", (first,)), Fusion("r", "X", (second,)))),
        ModelReport("b", "fused", fusions=(Fusion("r", "X", (first,)),), refusals=(Refusal("s", first, "no"),)),
    ]
    page = rendered(Report(models=models).as_json(), ".html")
    rows = re.findall(r"<tr><td class=\"name\">([rs])</td>(.*?)</tr>", page)
    assert [(name, re.findall(r">(\d+)<", cells)) for name, cells in rows] == [
        ("r", ["3", "2", "0", "0"]),
        ("s", ["0", "0", "1", "0"]),
    ]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_report_of_nothing(suffix: str) -> None:
    assert rendered(Report().as_json(), suffix) or suffix == ".jsonl"
