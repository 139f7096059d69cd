"""What ``scripts/audit.py`` makes of a report of pip-audit."""

from __future__ import annotations

import json
import subprocess
from types import ModuleType
from typing import Any

import pytest

from tests.support.scripts import script

CLEAN: dict[str, Any] = {"name": "numpy", "version": "2.4.6", "vulns": []}
WEAK: dict[str, Any] = {
    "name": "werkzeug",
    "version": "3.1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.4", "3.2"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
SKIPPED: dict[str, Any] = {"name": "onnx", "skip_reason": "Dependency not found on PyPI"}


@pytest.fixture(name="audit")
def _audit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("audit", monkeypatch)


def test_weaknesses_are_named_and_fail(audit: ModuleType) -> None:
    lines, code = audit.told({"dependencies": [CLEAN, WEAK]})
    assert lines == [
        "werkzeug 3.1.0: PYSEC-1, mended in 3.1.4, 3.2",
        "werkzeug 3.1.0: PYSEC-2",
        "2 of 2 packages looked up, 2 weaknesses known",
    ]
    assert code == 1


def test_what_was_not_looked_up_is_not_clean(audit: ModuleType) -> None:
    lines, code = audit.told({"dependencies": [CLEAN, SKIPPED]})
    assert lines == [
        "1 of 2 packages looked up, 0 weaknesses known",
        "not looked up, so nothing is known of them: onnx",
    ]
    assert code == 0


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        ("install", "pip-audit cannot be installed: no index"),
        ("report", "pip-audit failed: no network"),
        ("time", "pip took longer than 180 seconds"),
    ],
)
def test_no_report_is_said(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: str, reason: str
) -> None:
    def run(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        if failing == "install":
            return subprocess.CompletedProcess(command, 1, "", "no index\n")
        if failing == "time":
            raise subprocess.TimeoutExpired(command, 180)
        return subprocess.CompletedProcess(command, int("pip_audit" in command), "", "no network\n")

    monkeypatch.setattr(audit.subprocess, "run", run)
    monkeypatch.setattr(audit.venv, "create", lambda *_args, **_options: None)
    assert audit.main() == 0
    assert capsys.readouterr().out == f"nothing was looked up: {reason}\n"


def test_a_report_is_read(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        found = "pip_audit" in command
        return subprocess.CompletedProcess(command, int(found), json.dumps({"dependencies": [WEAK]}) * found, "")

    monkeypatch.setattr(audit.subprocess, "run", run)
    monkeypatch.setattr(audit.venv, "create", lambda *_args, **_options: None)
    assert audit.main() == 1
    assert "PYSEC-2" in capsys.readouterr().out
