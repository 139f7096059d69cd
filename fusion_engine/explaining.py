"""Why a rule did not fire: its near misses on a network, the nearest first.

A rule is looked at where it was decided that it does not fire: on the network that `fuse` leaves. A
layer that another rule took before is told as such, where this rule would have matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusion_engine.engine import Fusion, LayerRef, Refusal, fuse
from fusion_engine.group import is_grouped
from fusion_engine.language.pattern import PatternItem, PatternLayer, parts_of
from fusion_engine.language.rule import FusingRule
from fusion_engine.match import Matcher, Miss, StepLimitError, compile_rule
from fusion_engine.match import explain as missed_at
from fusion_engine.naming import layer_place, shortened
from fusion_engine.workspace import Workspace

if TYPE_CHECKING:
    from fusion_engine.network import Network

__all__ = ["Explanation", "NearMiss", "explain", "misses"]

_WHOLE = 1 << 30
"""Depth of what matched as a whole and yet came to nothing."""


@dataclass(frozen=True)
class NearMiss:
    """A layer that is of a rule's root type and at which the rule did not fire.

    Attributes
    ----------
    rule
        The rule's name.
    root
        The layer.
    layer
        What did not fit: the root, or a layer above which the pattern got.
    reason
        Why, in words: a sentence about ``layer``.
    depth
        How many of the pattern's layers were bound before; the larger, the nearer.
    text, start, end
        The match text, and where in it the part stands that did not fit, in code points; both 0 where
        it is none of the text.
    """

    rule: str
    root: LayerRef
    layer: LayerRef
    reason: str
    depth: int
    text: str = ""
    start: int = 0
    end: int = 0

    def __str__(self) -> str:
        below = "" if self.layer == self.root else f" (below {layer_place(self.root.index, self.root.name)})"
        return f"{self.rule}: {layer_place(self.layer.index, self.layer.name)}{below}: {self.reason}"

    @property
    def excerpt(self) -> str:
        """The line of the text with the part that did not fit, and carets under it; empty where there is none."""
        if self.end <= self.start:
            return ""
        begin = self.text.rfind("\n", 0, self.start) + 1
        line = self.text[begin:].partition("\n")[0]
        gap = "".join(one if one == "\t" else " " for one in line[: self.start - begin])
        width = min(self.end, begin + len(line)) - self.start
        return f"{line}\n{gap}{'^' * max(1, width)}"


@dataclass(frozen=True)
class Explanation:
    """What a rule did on a network, and what it nearly did.

    Attributes
    ----------
    rule
        The rule's name.
    fusions, refusals
        As `fuse` records them.
    near
        The near misses, the nearest first, among equals in the order of the network.
    candidates
        Number of layers of the root's types in the network as it is given.
    roots
        The root's types, sorted.
    """

    rule: str
    fusions: tuple[Fusion, ...]
    refusals: tuple[Refusal, ...]
    near: tuple[NearMiss, ...]
    candidates: int
    roots: tuple[str, ...]


def explain(
    graph: Network, rules: FusingRule | Iterable[FusingRule], *, layer: int | None = None
) -> tuple[Explanation, ...]:
    """What each rule did on a network, what it was refused, and where it nearly matched.

    Parameters
    ----------
    graph
        The network; it stays as it is.
    rules
        All the rules of the run, in order: earlier ones take layers from later ones.
    layer
        Only what happened at this root (key of a layer of ``graph``).

    Returns
    -------
    tuple of Explanation
        One for each rule. Folds that look for their layers themselves, and so have no pattern, tell
        fusions and refusals only.

    Raises
    ------
    FusionEngineError
        As `fuse`.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> graph = fe.load("examples/models/digits.armnn")
    >>> rule = fe.FusingRule("Activation[a > 0]{BatchNormalization}", name="leaky", into="Leaky")
    >>> (found,) = explain(graph, rule)
    >>> print(found.near[0])
    leaky: layer 3 'conv0/relu': a > 0 is false: it is 0.0
    >>> print(found.near[0].excerpt)
    Activation[a > 0]{BatchNormalization}
               ^^^^^
    """
    chosen = [rules] if isinstance(rules, FusingRule) else list(rules)
    fused = fuse(graph, chosen)
    fusions: tuple[Fusion, ...] = fused.graph["fusions"]
    refusals: tuple[Refusal, ...] = fused.graph["refusals"]
    before, after = Workspace(graph, reading=True), Workspace(fused, reading=True)
    return tuple(_explained(rule, before, after, fusions, refusals, layer) for rule in chosen)


def _explained(
    rule: FusingRule,
    before: Workspace,
    after: Workspace,
    fusions: tuple[Fusion, ...],
    refusals: tuple[Refusal, ...],
    layer: int | None,
) -> Explanation:
    def wanted(root: int) -> bool:
        return layer is None or root == layer

    own = tuple(one for one in fusions if one.rule == rule.name and wanted(one.layers[0].index))
    refused = tuple(one for one in refusals if one.rule == rule.name and wanted(one.layer.index))
    if not rule.patterns:
        return Explanation(rule.name, own, refused, (), 0, ())
    matcher = compile_rule(rule)
    told = {one.layers[0].index for one in own} | {one.layer.index for one in refused}
    takers: dict[int, Fusion] = {}
    for fusion in fusions:
        for one in fusion.layers:
            takers.setdefault(one.index, fusion)
    found = []
    for workspace, gone in ((before, True), (after, False)):
        for root in _roots(workspace, matcher):
            if not wanted(root) or root in told:
                continue
            if gone:
                taker = takers.get(root)
                if taker is not None and taker.rule != rule.name:
                    miss = _taken(rule, matcher, workspace, root, taker)
                    found += [miss] if miss is not None else []
                    told.add(root)
                continue
            found.append(_near(rule, matcher, workspace, root))
    return Explanation(
        rule.name,
        own,
        refused,
        tuple(sorted(found, key=lambda miss: (-miss.depth, -miss.start))),
        len(list(_roots(before, matcher))),
        tuple(sorted(matcher.root_types)),
    )


def misses(graph: Network, rule: FusingRule) -> tuple[NearMiss, ...]:
    """Where a rule's pattern nearly lies on a network, whatever could be fused there; the nearest first."""
    workspace = Workspace(graph, reading=True)
    matcher = compile_rule(rule)
    found = []
    for root in _roots(workspace, matcher):
        miss = missed_at(matcher, workspace, root)
        if miss is not None:
            found.append(_told(rule, workspace, root, miss))
    return tuple(sorted(found, key=lambda miss: (-miss.depth, -miss.start)))


def _roots(workspace: Workspace, matcher: Matcher) -> Iterator[int]:
    return (key for key in workspace.order() if workspace.type(key) in matcher.root_types)


def _taken(rule: FusingRule, matcher: Matcher, workspace: Workspace, root: int, taker: Fusion) -> NearMiss | None:
    """A root that another rule took; None where it would not have matched anyway."""
    here = _ref(workspace, root)
    miss = missed_at(matcher, workspace, root)
    if miss is not None:
        return _told(rule, workspace, root, miss)
    return NearMiss(
        rule.name, here, here, f"it matched, and rule '{taker.rule}' took it for {taker.result} before", _WHOLE
    )


def _near(rule: FusingRule, matcher: Matcher, workspace: Workspace, root: int) -> NearMiss:
    miss = missed_at(matcher, workspace, root)
    if miss is not None:
        return _told(rule, workspace, root, miss)
    here = _ref(workspace, root)
    grouped = False
    with suppress(StepLimitError):
        grouped = rule.fold is None and any(
            is_grouped(workspace, key) for match in matcher.matches(workspace, root) for key in match.layers
        )
    reason = "it matches, and layers of it are in a group already" if grouped else "it matches, and nothing is to do"
    return NearMiss(rule.name, here, here, reason, _WHOLE)


def _told(rule: FusingRule, workspace: Workspace, root: int, miss: Miss) -> NearMiss:
    span: Any = miss.span
    layer = root if miss.layer is None else miss.layer
    reason = miss.reason
    if miss.failure is None and miss.pattern is not None and reason.startswith("it is no "):
        # What was bound is no more than before the first of the alternatives, so all of them failed on the type.
        names = _alternatives(rule, miss.pattern)
        found = _article(workspace.result(layer) or workspace.type(layer))
        reason = f"it is {' and '.join(f'no {shortened(name)}' for name in names)}: it is {shortened(found)}"
    start, end = (0, 0) if span is None else (span.start, span.end)
    return NearMiss(rule.name, _ref(workspace, root), _ref(workspace, layer), reason, miss.depth, miss.text, start, end)


def _alternatives(rule: FusingRule, pattern: PatternLayer) -> tuple[str, ...]:
    """The types of the layers of a pattern that are tried where one of them is, in order, each once."""
    for part in parts_of(root for roots in rule.patterns for root in roots):
        choices = part.choices if isinstance(part, PatternItem) else ()
        layers = [choice for choice in choices if isinstance(choice, PatternLayer)]
        if any(layer is pattern for layer in layers):
            return tuple(dict.fromkeys(layer.type for layer in layers))
    return (pattern.type,)


def _article(word: str) -> str:
    return f"{'an' if word[:1] in 'AEIOU' else 'a'} {word}"


def _ref(workspace: Workspace, key: int) -> LayerRef:
    return LayerRef(key, workspace.name(key), workspace.type(key))
