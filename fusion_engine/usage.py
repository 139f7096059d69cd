"""What the commands share: exit codes, errors of usage, and the rules that they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusion_engine.console import printable

if TYPE_CHECKING:
    from fusion_engine import FusingRule, RuleError
    from fusion_engine.language.sources import Source

__all__ = [
    "FAILED",
    "FINE",
    "INTERRUPTED",
    "SIGNALLED",
    "STDOUT",
    "TRIPPED",
    "WRONG",
    "Wrong",
    "rule_error",
    "rules_of",
]

FINE, FAILED, WRONG, TRIPPED, INTERRUPTED = 0, 1, 2, 3, 130
SIGNALLED = 128

STDOUT = "-"
"""What names standard output, or input, where a file may be named."""


class Wrong(Exception):
    """The command cannot be carried out as given; the texts say why."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts


def rules_of(sources: Sequence[str]) -> tuple[list[FusingRule], tuple[Source, ...]]:
    """The rules of files or shipped names, and these files as read."""
    from fusion_engine.errors import FuseError, RuleError
    from fusion_engine.folds import find_fold
    from fusion_engine.language.rulefile import read_rules
    from fusion_engine.language.sources import read_source
    from fusion_engine.predicates import find_predicate

    try:
        files = tuple(read_source(source) for source in sources)
        rules, errors = read_rules(files)
        for rule in rules:
            if rule.fold is not None:
                find_fold(rule.fold)
            if rule.when is not None:
                find_predicate(rule.when)
    except RuleError as error:
        raise Wrong(rule_error(error)) from error
    except FuseError as error:
        raise Wrong(printable(str(error))) from error
    if errors:
        raise Wrong(*map(rule_error, errors))
    return rules, files


def rule_error(error: RuleError) -> str:
    """The text of a rule's error, its lines kept apart and its tabs kept."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in str(error).split("\n"))
