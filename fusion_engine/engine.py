"""Applying rules to a network: order, safety, fixpoint.

Definition: each rule in order, each root in the canonical order fixed when that rule starts, results
visible to later roots; again until a pass changes nothing. A rule is not tried again on a network
that is as its last scan, which changed nothing, left it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from os import PathLike, fspath
from time import perf_counter
from typing import Any, TypeVar

import networkx as nx

from fusion_engine import group, opaque
from fusion_engine.collector import paused
from fusion_engine.errors import FuseError, RuleLoopError
from fusion_engine.folds import Fold, Inapplicable, Refused, find_fold
from fusion_engine.language.rule import FusingRule
from fusion_engine.match import Matcher, StepLimitError, compile_rule
from fusion_engine.match.binding import Match
from fusion_engine.match.index import RootIndex
from fusion_engine.naming import layer_place, quoted, shortened
from fusion_engine.network import Network, warnings_of
from fusion_engine.predicates import RulePredicate
from fusion_engine.validation import blaming
from fusion_engine.workspace import Workspace

__all__ = ["NOTHING", "Fusion", "LayerRef", "Refusal", "RuleStatistics", "fuse"]

NOTHING = "nothing"
"""Result of a fusion after which no layer stands where its root stood."""


@dataclass(frozen=True)
class LayerRef:
    """A layer in a record: its key in the graph given to `fuse` (for a loaded one, the index in the file)."""

    index: int
    name: str
    type: str

    def __str__(self) -> str:
        return f"{layer_place(self.index, self.name)} {shortened(str(self.type))}"


@dataclass(frozen=True)
class Fusion:
    """A rewrite that was made.

    Attributes
    ----------
    rule
        The rule's name.
    result
        What was made: the name of an opaque layer or a group, or the LayerType a fold left; `NOTHING`
        where it left none.
    layers
        What it was made from, the root first.
    """

    rule: str
    result: str
    layers: tuple[LayerRef, ...]

    def __str__(self) -> str:
        return f"{self.rule}: {self.result} from {'; '.join(map(str, self.layers))}"


@dataclass(frozen=True)
class Refusal:
    """A match that was not rewritten: the rule's name, the root, and why."""

    rule: str
    layer: LayerRef
    reason: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.layer}: {self.reason}"


@dataclass(frozen=True)
class RuleStatistics:
    """What a rule did in a call of `fuse`.

    Attributes
    ----------
    rule
        Its name.
    tried
        Matches that were looked at, in all passes.
    fired
        Rewrites made.
    refused
        Its refusals in the record.
    seconds
        Time spent on it, matching included; not compared.
    """

    rule: str
    tried: int
    fired: int
    refused: int
    seconds: float = field(compare=False)


_Record = TypeVar("_Record")

BEYOND = 2
"""How many connections beyond its layers opaque layers and groups look at a match."""

MANY = 8
"""Roots from which on a fold may prepare what it computes for them."""


@dataclass
class _Runner:
    """A rule, what finds its matches, and what it did.

    Attributes
    ----------
    rule
        The rule.
    matcher
        The compiled patterns; None for a fold that finds its roots itself.
    fold, predicate
        What the rule names, if it does.
    roots
        Its root types.
    reach
        How many connections around a root decide what becomes of it; None where anything may.
    refusals
        What was refused, by root.
    seen
        Number of the workspace's changes that its last scan has seen at all roots; -1 before the first.
    """

    rule: FusingRule
    matcher: Matcher | None
    fold: Fold | None
    predicate: RulePredicate | None
    roots: frozenset[str]
    reach: int | None
    refusals: dict[int, Refusal] = field(default_factory=dict)
    seen: int = -1
    tried: int = 0
    fired: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, rule: FusingRule) -> _Runner:
        fold = None if rule.fold is None else find_fold(rule.fold)
        predicate = None if rule.when is None else RulePredicate(rule)
        beyond = BEYOND if fold is None else fold.reach
        if predicate is not None:
            beyond = None
        if fold is not None and not rule.patterns:
            return cls(rule, None, fold, predicate, fold.roots, beyond)
        matcher = compile_rule(rule)
        reach = None if beyond is None else matcher.depth + beyond
        return cls(rule, matcher, fold, predicate, matcher.root_types, reach)

    def statistics(self) -> RuleStatistics:
        """What it did so far."""
        return RuleStatistics(self.rule.name, self.tried, self.fired, len(self.refusals), self.seconds)

    def hopeful(self, index: RootIndex, workspace: Workspace, region: Collection[int] | None) -> list[int]:
        """The roots in a region at which something may be found as the network stands now, in no promised order."""
        if self.matcher is not None and self.matcher.simple is not None:
            return index.hopeful(self.matcher.simple, self.roots, region)
        return self.worth(workspace, index.roots(self.roots, region))

    def worth(self, workspace: Workspace, roots: list[int]) -> list[int]:
        """Those of some roots at which something may be found."""
        if self.matcher is None:
            glance = None if self.fold is None else self.fold.glance
            return roots if glance is None else glance(workspace, roots)
        return roots if self.matcher.simple is None else self.matcher.simple.hopeful(workspace, roots)

    def matches(self, workspace: Workspace, root: int) -> Iterator[Match]:
        """The matches at a root: of a fold that finds its roots itself each such layer by itself."""
        if self.matcher is not None:
            return self.matcher.matches(workspace, root)
        return iter((Match(root, (root,), (), (), (), ()),))

    def check(self, workspace: Workspace, match: Match) -> Any:
        """The plan for a match; raises Refused."""
        unsafe = _unsafe(workspace, match)
        if unsafe is not None:
            raise Refused(unsafe)
        if self.fold is not None:
            plan = self.fold.check(workspace, match)
        elif self.rule.group is not None:
            plan = group.check(workspace, match, self.rule)
        else:
            _require_progress(workspace, match, str(self.rule.into))
            plan = opaque.check(workspace, match, self.rule)
        if self.predicate is not None:
            self.predicate.require(workspace, match, self.layers(match, plan))
        return plan

    def layers(self, match: Match, plan: Any) -> tuple[int, ...]:
        """The layers that a plan takes in, the root first."""
        return match.layers if self.fold is None or self.fold.layers is None else self.fold.layers(plan)

    def apply(self, workspace: Workspace, match: Match, plan: Any) -> Fusion:
        """Carry out a plan."""
        layers = tuple([_ref(workspace, key) for key in self.layers(match, plan)])
        if self.fold is not None:
            left = self.fold.apply(workspace, match, plan)
            result = NOTHING if left is None else workspace.type(left)
        elif self.rule.group is not None:
            group.apply(workspace, match, plan)
            result = self.rule.group
        else:
            opaque.apply(workspace, match, plan)
            result = str(self.rule.into)
        return _record(Fusion, {"rule": self.rule.name, "result": result, "layers": layers})


def fuse(graph: Network, rules: FusingRule | Iterable[FusingRule]) -> Network:
    """Apply rules to a network until nothing more fires.

    Parameters
    ----------
    graph
        The network; it and its arrays stay as they are.
    rules
        In order of priority.

    Returns
    -------
    networkx.DiGraph
        A new network. Its ``graph["fusions"]`` is the tuple of `Fusion` made, in order,
        ``graph["refusals"]`` the tuple of `Refusal` (the last of each rule and root),
        ``graph["statistics"]`` a tuple of `RuleStatistics`, one per rule, and ``graph["warnings"]`` a
        tuple of str.

    Raises
    ------
    FuseError
        Where what is given is no network or no rule, or another package's fold or predicate fails.
    RuleLoopError
        Where rules keep firing: after 10 rewrites per layer and 100 more.
    ModelError
        Where the network is not as `validate` wants it and so cannot be worked on.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> graph = fe.load("examples/models/digits.armnn")
    >>> rule = fe.FusingRule("Activation{FullyConnected}", into="DenseRelu")
    >>> for fusion in fe.fuse(graph, rule).graph["fusions"]:
    ...     print(fusion)
    DenseRelu: DenseRelu from layer 14 'dense12/relu' Activation; layer 13 'dense12' FullyConnected
    """
    chosen = _rules(rules)
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        raise FuseError(f"a network is a networkx.DiGraph, not {type(graph).__name__}: load one with load()")
    with blaming(graph, "cannot be fused"), paused():
        return _fuse(graph, chosen)


def _rules(rules: FusingRule | Iterable[FusingRule]) -> list[FusingRule]:
    given: list[Any]
    if isinstance(rules, FusingRule | str | bytes | PathLike):
        given = [rules]
    elif isinstance(rules, Iterable):
        given = list(rules)
    else:
        raise FuseError(f"rules are FusingRules, not {type(rules).__name__}: {_HOW}")
    for rule in given:
        if not isinstance(rule, FusingRule):
            raise FuseError(f"a rule is a FusingRule, not {type(rule).__name__}: {_how(rule)}")
    return given


_HOW = "make rules with FusingRule(text) or load_rules(name)"


def _how(rule: Any) -> str:
    """How to make rules of what was given in their stead."""
    if isinstance(rule, str) and not _NAME_OR_PATH.search(rule):
        return f"fuse(graph, FusingRule({rule!r}))"
    return f"fuse(graph, load_rules({fspath(rule)!r}))" if isinstance(rule, str | PathLike) else _HOW


_NAME_OR_PATH = re.compile(r"\.(?:toml|rules)$|^[a-z][a-z0-9_-]*$")
"""A text that was hardly meant for the match of a rule: types begin with a capital letter."""


def _fuse(graph: Network, rules: list[FusingRule]) -> Network:
    workspace = Workspace(graph)
    runners = [_Runner.of(rule) for rule in rules]
    index = RootIndex(workspace, (runner.roots for runner in runners if runner.matcher and runner.matcher.simple))
    fusions: list[Fusion] = []
    bound = 10 * len(graph) + 100
    last: deque[str] = deque(maxlen=20)
    while True:
        before = workspace.revision
        for runner in runners:
            if runner.seen == len(workspace.changes):
                continue
            start = perf_counter()
            for fusion in _scan(workspace, index, runner):
                fusions.append(fusion)
                runner.fired += 1
                last.append(fusion.rule)
                if len(fusions) > bound:
                    raise RuleLoopError(
                        f"{bound} rewrites of {len(graph)} layers and no end: the rules "
                        f"{', '.join(repr(name) for name in sorted(set(last)))} keep firing on each other's results"
                    )
            runner.seconds += perf_counter() - start
        if workspace.revision == before:
            break
    refusals = tuple(refusal for runner in runners for refusal in _ordered(workspace, runner.refusals))
    warnings = opaque.settle(workspace)
    result = workspace.graph
    result.graph["fusions"] = tuple(fusions)
    result.graph["refusals"] = refusals
    result.graph["statistics"] = tuple(runner.statistics() for runner in runners)
    result.graph["warnings"] = tuple(dict.fromkeys((*warnings_of(result), *warnings)))
    return result


def _scan(workspace: Workspace, index: RootIndex, runner: _Runner) -> Iterator[Fusion]:
    """One rule over all its roots at which something may be found that its last scan has not seen.

    As the definition has it, all roots are gone over in the canonical order that the network has at the
    start. Until the rule fires, nothing changes: so roots at which it cannot match are left out, and order
    matters only where others are left. Once it has fired, each later root is looked at.
    """
    region = None if runner.seen < 0 or runner.reach is None else index.near(runner.seen, runner.reach)
    runner.seen = len(workspace.changes)
    _forget(workspace, runner.refusals, region)
    hopeful = runner.hopeful(index, workspace, region)
    if not hopeful:
        return
    everyone = set(index.roots(runner.roots, None))
    order = hopeful
    if len(everyone) > 1:
        chosen = set(hopeful)
        order = [key for key in workspace.order() if key in everyone]
        roots = [key for key in order if key in chosen]
    else:
        roots = hopeful
    if len(roots) >= MANY and runner.fold is not None and runner.fold.prepare is not None:
        runner.fold.prepare(workspace, roots)
    for number, root in enumerate(roots):
        fusion = _try(workspace, runner, root)
        if fusion is not None:
            yield fusion
            later = order[order.index(root) + 1 :] if len(roots) < len(order) else roots[number + 1 :]
            break
    else:
        return
    chosen = set(roots)
    nodes = workspace.inside.nodes
    for root in later:
        if root not in nodes or workspace.type(root) not in runner.roots:
            runner.refusals.pop(root, None)
            continue
        if root in chosen or runner.worth(workspace, [root]):
            fusion = _try(workspace, runner, root)
            if fusion is not None:
                yield fusion


def _forget(workspace: Workspace, refusals: dict[int, Refusal], region: Collection[int] | None) -> None:
    """Take refusals off the record at roots that are looked at anew, or are gone."""
    if region is None:
        refusals.clear()
    elif refusals:
        for key in [key for key in refusals if key in region or key not in workspace.graph]:
            del refusals[key]


def _ordered(workspace: Workspace, refusals: dict[int, Refusal]) -> list[Refusal]:
    """Refusals in the canonical order of their roots."""
    if len(refusals) < 2:
        return list(refusals.values())
    return [refusals[key] for key in workspace.order() if key in refusals]


def _try(workspace: Workspace, runner: _Runner, root: int) -> Fusion | None:
    """The first match at a root that can be rewritten, rewritten; where there is none, note what was refused."""
    refusals = runner.refusals
    refusals.pop(root, None)
    reason: str | None = None
    limit: str | None = None
    matches = runner.matches(workspace, root)
    while True:
        try:
            match = next(matches, None)
        except StepLimitError as error:
            limit = str(error)
            break
        if match is None:
            break
        if runner.fold is None and any(group.is_grouped(workspace, key) for key in match.layers):
            continue  # a grouped layer is matched by folds only
        runner.tried += 1
        try:
            plan = runner.check(workspace, match)
        except Inapplicable:
            continue
        except Refused as refused:
            reason = reason or refused.reason
            continue
        return runner.apply(workspace, match, plan)
    reason = "; besides, ".join(text for text in (reason, limit) if text)
    if reason:
        refusals[root] = Refusal(runner.rule.name, _ref(workspace, root), reason)
    return None


def _ref(workspace: Workspace, key: int) -> LayerRef:
    node = workspace.node(key)
    return _record(LayerRef, {"index": key, "name": node.get("name", ""), "type": node["type"]})


def _record(kind: type[_Record], fields: dict[str, Any]) -> _Record:
    """A frozen record with these fields; in a third of the time that its own constructor takes."""
    record = object.__new__(kind)
    object.__setattr__(record, "__dict__", fields)
    return record


def _require_progress(workspace: Workspace, match: Match, into: str) -> None:
    """Refuse to wrap one opaque layer alone: nothing is fused by that, and two such rules would go on for ever."""
    if len(match.layers) == 1 and workspace.recipe(match.layers[0]) is not None:
        key = match.layers[0]
        raise Refused(
            f"{workspace.describe(key)} is an opaque layer {quoted(workspace.result(key))} already: as {into!r} it "
            "would be wrapped once more with nothing beside it; let the rule that makes it give it that name"
        )


def _unsafe(workspace: Workspace, match: Match) -> str | None:
    """Why a match must not be rewritten: what it consumes is an end of the network, or used elsewhere too."""
    layers: Collection[int] = match.layers if len(match.layers) < 8 else dict.fromkeys(match.layers)
    for key in layers:
        if workspace.type(key) in ("Input", "Output"):
            return f"{workspace.describe(key)} is an {workspace.type(key)}: the network's ends stay as they are"
    for key in layers:
        if key == match.root or workspace.used_by_only(key, layers):
            continue
        for use in workspace.uses(key):
            if use.layer not in layers:
                what = "is an output of the network" if workspace.type(use.layer) == "Output" else "is used elsewhere"
                return f"{workspace.describe(key)} {what} too: {workspace.describe(use.layer)} reads it"
    return None
