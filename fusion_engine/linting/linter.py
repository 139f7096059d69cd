"""Everything that can be told about rule files without a network."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from fusion_engine.folds import find_fold
from fusion_engine.language.pattern import PatternLayer
from fusion_engine.language.rule import FusingRule
from fusion_engine.language.rulefile import CheckedFile, read_files
from fusion_engine.language.sources import Source
from fusion_engine.linting.acceptance import fold_fault
from fusion_engine.linting.findings import Finding
from fusion_engine.linting.patterns import standing
from fusion_engine.linting.portable import judge_portability
from fusion_engine.linting.proving import Prover
from fusion_engine.linting.reach import judge_alternatives, judge_order, judge_texts, types_of
from fusion_engine.linting.shapes import judge_inputs
from fusion_engine.linting.sites import Ledger
from fusion_engine.linting.truths import Judge

__all__ = ["findings_of"]

MAX_LAYERS = 20_000
"""Most layers that the patterns of a file may have to be compared with each other."""


def findings_of(
    sources: Sequence[str | os.PathLike[str] | Source], *, portable: bool = False
) -> tuple[list[Finding], int]:
    """What is wrong or questionable in rule files.

    Parameters
    ----------
    sources
        As of `load_rules`. The results of all of them are known to all; rules are compared within a file.
    portable
        Whether to tell also what has a meaning of this project's own.

    Returns
    -------
    findings, rules
        The findings, by file and place, and the number of rules that are right.

    Raises
    ------
    FuseError
        Where a third party's fold cannot be loaded.

    Examples
    --------
    >>> findings_of(["armnn"])[0]
    []
    """
    files = read_files(sources)
    found: list[Finding] = []
    for file in files:
        of_file = [Finding("error", error) for error in file.errors]
        of_file += _warnings(file)
        of_file += judge_portability(file) if portable else ()
        found += sorted(of_file, key=lambda finding: finding.place)
    return found, sum(len(file.rules) for file in files)


def _warnings(file: CheckedFile) -> Iterator[Finding]:
    prover, ledger = Prover(), Ledger(file)
    rules = [placed.rule for placed in file.rules]
    for number, rule in enumerate(rules):
        type_of = types_of(rule)
        for text, roots in enumerate(rule.patterns):
            judge = Judge(number, text, rule.texts[text], type_of, prover, ledger)
            for root in roots:
                marks: dict[int, object] = {}
                for one in standing(root):
                    layer, above = one.layer, one.above
                    within = above is not None and above.span == layer.span
                    marks[layer.id] = marks[above.id] if within and above is not None else (number, text, layer.id)
                    judge.layer(one)
                    judge_inputs(one, number, text, ledger, marks[layer.id])
                judge_alternatives(root, rule, number, text, type_of, prover, ledger)
        judge_texts(rule, number, prover, ledger)
        yield from _of_fold(file, number, rule)
    ledger.close()
    yield from ledger.findings
    if sum(1 for rule in rules for roots in rule.patterns for root in roots for _ in standing(root)) <= MAX_LAYERS:
        yield from _shadowed(file, rules, prover)


def _shadowed(file: CheckedFile, rules: list[FusingRule], prover: Prover) -> Iterator[Finding]:
    found: list[Finding] = []

    def tell(late: int, early: int, taken: PatternLayer) -> None:
        rule, first = rules[late], rules[early]
        made = first.into or first.group
        reason = (
            f"rule '{rule.name}' never fires: rule '{first.name}' before it takes the {taken.type} of each of its "
            f"matches for {made}; put it behind"
        )
        text = next(
            i for i, roots in enumerate(rule.patterns) for root in roots for one in standing(root) if one.layer is taken
        )
        found.append(Finding("shadowed", file.rules[late].fault_in_text(text, taken.span.start, reason)))

    judge_order(rules, prover, tell)
    yield from found


def _of_fold(file: CheckedFile, number: int, rule: FusingRule) -> Iterator[Finding]:
    if rule.fold is None:
        return
    fold = find_fold(rule.fold)
    for text, roots in enumerate(rule.patterns):
        faults = [fold_fault(rule.fold, fold, root) for root in roots]
        if faults and all(faults):
            fault = file.rules[number].fault_in_text(text, roots[0].span.start, str(faults[0]))
            yield Finding("fold", fault)
