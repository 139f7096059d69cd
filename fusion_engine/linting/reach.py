"""Alternatives that are never reached, and rules that an earlier rule leaves nothing for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fusion_engine.language.pattern import PatternElement, PatternGroup, PatternItem, PatternLayer
from fusion_engine.language.rule import FusingRule
from fusion_engine.language.steps import Steps, run
from fusion_engine.linting.covering import Covering, reads
from fusion_engine.linting.patterns import consumes, schema_type, standing
from fusion_engine.linting.proving import Prover
from fusion_engine.linting.sites import Ledger, Site

__all__ = ["judge_alternatives", "judge_order", "judge_texts", "types_of"]

_ENDS = frozenset({"Input", "Output", "Constant"})
"""Types of layers that are never consumed."""


def types_of(rule: FusingRule) -> Callable[[int], str]:
    """The layer type of each pattern layer of a rule, by its id."""
    found = {
        one.layer.id: schema_type(one.layer) for roots in rule.patterns for root in roots for one in standing(root)
    }
    return found.__getitem__


# Alternatives


def judge_texts(rule: FusingRule, number: int, prover: Prover, ledger: Ledger) -> None:
    """Note texts of a rule that an earlier one of its texts leaves nothing for."""
    type_of = types_of(rule)
    twin, smaller = _twin(rule, type_of, prover), Covering(False, rule.ordered, rule.ordered, type_of, prover)
    for late, roots in enumerate(rule.patterns):
        for early in range(late):
            first = rule.patterns[early]
            sure = [cover for cover in first if _certain(rule) and _sure(cover)]
            if all(
                any(twin.covers(cover, root, True) for cover in first)
                or any(smaller.covers(cover, root, True) for cover in sure)
                for root in roots
            ):
                site = Site.of(roots[0].span, number, late)
                reason = f"match {late + 1} is never reached: match {early + 1} of the rule matches all that it does"
                ledger.tell(site, "unreachable", reason)
                break


def _twin(rule: FusingRule, type_of: Callable[[int], str], prover: Prover) -> Covering:
    return Covering(True, rule.ordered, rule.ordered, type_of, prover)


def judge_alternatives(
    root: PatternLayer,
    rule: FusingRule,
    number: int,
    text: int,
    type_of: Callable[[int], str],
    prover: Prover,
    ledger: Ledger,
) -> None:
    """Note alternatives of a pattern that are never reached, since an earlier one matches whatever they do."""
    twin = _twin(rule, type_of, prover)
    smaller = Covering(False, rule.ordered, rule.ordered, type_of, prover)
    safe = {id(item) for item in _spine(root)} if _certain(rule) and not root.result and not _scoped(root) else set()
    for layer, item in _items(root):
        comparers = [twin, smaller] if id(item) in safe else [twin]
        by_site: dict[Site, list[PatternElement]] = {}
        for choice in item.choices:
            by_site.setdefault(Site.of(choice.span, number, text), []).append(choice)
        earlier: list[PatternElement] = []
        for site, choices in by_site.items():
            mark = (layer.id, id(item))
            ledger.look(site, "unreachable", mark)
            cover = _cover(earlier, choices, comparers)
            if cover is not None:
                before, after = _shown(cover, rule, text), _shown(choices[0], rule, text)
                reason = f"{after} is never reached: {before} before it matches all that it does"
                ledger.find(site, "unreachable", reason, mark)
            earlier += choices


def _shown(element: PatternElement, rule: FusingRule, text: int) -> str:
    """An alternative as it is written, with its mark."""
    mark = "!" if isinstance(element, PatternLayer) and element.kept and rule.marked == "kept" else ""
    return " ".join(rule.texts[text][element.span.start : element.span.end].split()) + mark


def _cover(
    earlier: Sequence[PatternElement], choices: Sequence[PatternElement], comparers: Sequence[Covering]
) -> PatternElement | None:
    """The last needed of the earlier alternatives, where they cover all of some; else None."""
    found: PatternElement | None = None
    for choice in choices:
        found = next((one for one in earlier if any(by.covers(one, choice, False) for by in comparers)), None)
        if found is None:
            return None
    return found


def _items(root: PatternLayer) -> Iterator[tuple[PatternLayer, PatternItem]]:
    """Every item with more than one alternative, and the layer in whose braces it stands."""
    for one in standing(root):
        stack: list[PatternItem] = list(reversed(one.layer.inputs or ()))
        while stack:
            item = stack.pop()
            if len(item.choices) > 1:
                yield one.layer, item
            for choice in item.choices:
                if isinstance(choice, PatternGroup):
                    stack.extend(choice.items)


def _spine(root: PatternLayer) -> Iterator[PatternItem]:
    """The items through which alone a pattern takes in layers: what they leave out leaves the rest as safe."""
    stack = [root]
    while stack:
        layer = stack.pop()
        inner = _way_down(layer)
        if inner is not None:
            yield inner
            stack.extend(choice for choice in inner.choices if isinstance(choice, PatternLayer) and not choice.kept)


def _way_down(layer: PatternLayer) -> PatternItem | None:
    """The one item of a layer that takes in layers, where it stands for one input."""
    consuming = [item for item in layer.inputs or () if consumes(item)]
    if len(consuming) != 1 or (consuming[0].low, consuming[0].high) != (1, 1):
        return None
    return None if any(isinstance(choice, PatternGroup) for choice in consuming[0].choices) else consuming[0]


def _scoped(root: PatternLayer) -> bool:
    return any(one.layer.layout is not None for one in standing(root))


def _certain(rule: FusingRule) -> bool:
    """Whether the first safe match of a rule is always rewritten: nobody else is asked."""
    return rule.fold is None and rule.when is None


# Rules


def judge_order(rules: Sequence[FusingRule], prover: Prover, tell: Callable[[int, int, PatternLayer], None]) -> None:
    """Tell the rules that an earlier rule leaves nothing for: (rule, earlier rule, what the earlier one takes).

    The earlier rule is tried first in every pass, and takes what the later one needs wherever that would match. A
    fold between the two could make what neither found before, so nothing is told across one.
    """
    certain = [[root for roots in rule.patterns for root in roots if _sure(root)] for rule in rules]
    for late, rule in enumerate(rules):
        if not rule.patterns or rule.fold is not None:
            continue  # a fold takes layers of a group too, which the earlier rule leaves alone
        type_of = types_of(rule)
        renamed = False
        for early in range(late - 1, -1, -1):
            first = rules[early]
            if first.fold is not None:
                break
            renamed = renamed or first.group is not None
            covers = certain[early] if _certain(first) else []
            covers = [root for root in covers if not (renamed and _reads_name(root))]
            taken = _taken(rule, covers, Covering(False, first.ordered, rule.ordered, type_of, prover))
            if taken is not None:
                tell(late, early, taken)
                break


def _taken(rule: FusingRule, covers: Sequence[PatternLayer], smaller: Covering) -> PatternLayer | None:
    """What patterns of an earlier rule take of each match of a later one; None where that is not certain."""
    taken: PatternLayer | None = None
    for roots in rule.patterns if covers else ():
        for root in roots:
            taken = run(_layer_taken(root, True, covers, smaller))
            if taken is None:
                return None
        if not roots:
            return None
    return taken


def _sure(root: PatternLayer) -> bool:
    """Whether rules that make opaque layers and groups can make nothing that a pattern matches."""
    return root.type not in _ENDS and not any(one.layer.result for one in standing(root))


def _reads_name(root: PatternLayer) -> bool:
    """Whether a pattern reads the names of layers, which groups change."""
    return any(reads(one.layer.constraint, "name") for one in standing(root))


def _layer_taken(
    layer: PatternLayer, at_root: bool, covers: Sequence[PatternLayer], smaller: Covering
) -> Steps[PatternLayer | None]:
    """A consumed layer of a pattern, at or below ``layer``, that one of the covers takes wherever the pattern matches.

    Beside the one way down on which a pattern takes in layers, only such a cover is certain to be safe as takes in
    its root alone.
    """
    if layer.kept or any(smaller.covers(cover, layer, at_root) for cover in covers):
        return None if layer.kept else layer
    alone = [cover for cover in covers if not any(map(consumes, cover.inputs or ()))]
    way_down = _way_down(layer)
    for item in layer.inputs or ():
        if item.low < 1 or not all(isinstance(choice, PatternLayer) for choice in item.choices):
            continue
        found: PatternLayer | None = None
        for choice in item.choices:
            assert isinstance(choice, PatternLayer)
            found = yield _layer_taken(choice, False, covers if item is way_down else alone, smaller)
            if found is None:
                break
        if found is not None:
            return found
    return None
