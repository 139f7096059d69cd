"""Places in rule files that the analyses speak of, and how often what is found there holds.

A condition may belong to many pattern layers: a vocabulary name stands for alternatives and is used in several
rules. It is at fault only where it is in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fusion_engine.errors import RuleError
from fusion_engine.language.rulefile import CheckedFile
from fusion_engine.language.tree import Span
from fusion_engine.linting.findings import Finding

__all__ = ["Ledger", "Site"]


class Site(NamedTuple):
    """A span in the definition of a vocabulary name, or, where that is empty, in a match text of a rule."""

    definition: str
    rule: int
    text: int
    span: tuple[int, int]

    @classmethod
    def of(cls, span: Span, rule: int, text: int, definition: str | None = None) -> Site:
        """The site of a span in a text of a rule, or in a definition."""
        if definition is not None:
            return cls(definition, -1, -1, (span.start, span.end))
        return cls("", rule, text, (span.start, span.end))


@dataclass
class Ledger:
    """Findings in the making: per site and check what was looked at, and of what something was found."""

    file: CheckedFile
    findings: list[Finding] = field(default_factory=list)
    _seen: dict[tuple[Site, str, str], set[object]] = field(default_factory=dict)
    _found: dict[tuple[Site, str, str], dict[object, str]] = field(default_factory=dict)

    def look(self, site: Site, check: str, layer: object, role: str = "") -> None:
        """Note that a pattern layer was looked at for a check that has to do with a site.

        ``role`` tells apart what the same span is to different layers: a layer, and an item of the one above.
        """
        self._seen.setdefault((site, check, role), set()).add(layer)

    def find(self, site: Site, check: str, message: str, layer: object, role: str = "") -> None:
        """Note what was found there of that layer."""
        self._found.setdefault((site, check, role), {}).setdefault(layer, message)

    def close(self) -> None:
        """Tell what was found of every layer that has to do with its site, with the first message."""
        for (site, check, role), messages in self._found.items():
            if messages.keys() >= self._seen.get((site, check, role), set()):
                self.tell(site, check, next(iter(messages.values())))
        self._found.clear()
        self._seen.clear()

    def tell(self, site: Site, check: str, message: str) -> None:
        """Tell something at once."""
        fault: RuleError
        if site.definition:
            fault = self.file.fault_in_layer(site.definition, site.span[0], message)
        else:
            fault = self.file.rules[site.rule].fault_in_text(site.text, site.span[0], message)
        self.findings.append(Finding(check, fault))
