"""What `lint` tells: errors and warnings with their places, as text, JSON, and commands of GitHub's workflows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from fusion_engine.errors import RuleError
from fusion_engine.usage import rule_error

__all__ = ["FORMATS", "Finding", "github_lines", "json_text", "text_lines"]

FORMATS = ("text", "json", "github")
"""What ``--format`` takes."""


@dataclass(frozen=True)
class Finding:
    """Something about a rule file.

    Parameters
    ----------
    check
        What kind of finding: ``"error"``, or the name of the check that gives warnings.
    fault
        What was found and where; raised by nobody.
    """

    check: str
    fault: RuleError

    @property
    def severity(self) -> str:
        """``"error"`` or ``"warning"``."""
        return "error" if self.check == "error" else "warning"

    @property
    def place(self) -> tuple[int, int]:
        """Line and column in the file; of a text that is written with escapes, where it begins."""
        return self.fault.outer or (self.fault.line, self.fault.column)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        line, column = self.place
        return {
            "file": self.fault.source,
            "line": line,
            "column": column,
            "severity": self.severity,
            "check": self.check,
            "rule": self.fault.rule,
            "message": self.fault.reason,
        }


def text_lines(finding: Finding) -> str:
    """A finding for readers, with the line it is about and a caret under the place."""
    if finding.severity == "error":
        return rule_error(finding.fault)
    told = copy(finding.fault)
    told.reason = f"warning: {told.reason} [{finding.check}]"
    return rule_error(told)


def json_text(findings: Sequence[Finding], rules: int) -> str:
    """All findings and the number of right rules as one JSON document."""
    return json.dumps({"rules": rules, "findings": [finding.as_json() for finding in findings]}, indent=2)


def github_lines(finding: Finding) -> str:
    """A finding as a workflow command, which GitHub shows at its line.

    The text of such a command ends with the line, and its properties at commas and colons; these are
    written as percent and two hexadecimal digits.
    """
    line, column = finding.place
    rule = f"rule '{finding.fault.rule}': " if finding.fault.rule else ""
    where = f"file={_property(finding.fault.source or '')},line={line},col={column},title={_property(finding.check)}"
    return f"::{finding.severity} {where}::{_data(rule + finding.fault.reason)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
