"""Applying rules to a network: order, safety, fixpoint.

Definition: each rule in order, each root in the canonical order fixed when that rule starts, results
visible to later roots; again until a pass changes nothing. A rule is not tried again on a network
that is as its last scan, which changed nothing, left it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os import PathLike, fspath
from time import perf_counter
from typing import Any, Protocol

import networkx as nx

from fusion_engine import group, opaque
from fusion_engine.errors import FuseError, RuleLoopError
from fusion_engine.folds import Fold, Inapplicable, Refused, find_fold
from fusion_engine.language.rule import FusingRule
from fusion_engine.match import StepLimitError, compile_rule
from fusion_engine.match.binding import Match
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
        return f"layer {self.index} {self.name!r} {self.type}"


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


class _Matcher(Protocol):
    """What the engine needs of a compiled rule."""

    @property
    def root_types(self) -> frozenset[str]: ...

    def matches(self, workspace: Workspace, root: int) -> Iterator[Match]: ...


@dataclass(frozen=True)
class _AnyRoot:
    """The matcher of a fold that declares its root types: each such layer by itself."""

    root_types: frozenset[str]

    def matches(self, workspace: Workspace, root: int) -> Iterator[Match]:
        yield Match(root, (root,), (), (), (), ())


@dataclass
class _Runner:
    """A rule with its matcher and what it did."""

    rule: FusingRule
    matcher: _Matcher
    fold: Fold | None
    predicate: RulePredicate | None
    refusals: list[Refusal] = field(default_factory=list)
    quiet_at: int = -1
    tried: int = 0
    fired: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, rule: FusingRule) -> _Runner:
        fold = None if rule.fold is None else find_fold(rule.fold)
        matcher = _AnyRoot(fold.roots) if fold is not None and not rule.patterns else compile_rule(rule)
        return cls(rule, matcher, fold, None if rule.when is None else RulePredicate(rule))

    def statistics(self) -> RuleStatistics:
        """What it did so far."""
        return RuleStatistics(self.rule.name, self.tried, self.fired, len(self.refusals), self.seconds)

    def roots(self, workspace: Workspace) -> list[int]:
        """The layers of the root's types, in canonical order."""
        found = {key for name in sorted(self.matcher.root_types) for key in workspace.of_type(name)}
        if len(found) < 2:
            return list(found)
        return [key for key in workspace.order() if key in found]

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
        layers = tuple(_ref(workspace, key) for key in self.layers(match, plan))
        if self.fold is not None:
            left = self.fold.apply(workspace, match, plan)
            result = NOTHING if left is None else workspace.type(left)
        elif self.rule.group is not None:
            group.apply(workspace, match, plan)
            result = self.rule.group
        else:
            opaque.apply(workspace, match, plan)
            result = str(self.rule.into)
        return Fusion(self.rule.name, result, layers)


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
    with blaming(graph, "cannot be fused"):
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
    fusions: list[Fusion] = []
    bound = 10 * len(graph) + 100
    last: deque[str] = deque(maxlen=20)
    while True:
        before = workspace.revision
        for runner in runners:
            if runner.quiet_at == workspace.revision:
                continue
            start = perf_counter()
            for fusion in _scan(workspace, runner):
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
    warnings = opaque.settle(workspace)
    result = workspace.graph
    result.graph["fusions"] = tuple(fusions)
    result.graph["refusals"] = tuple(refusal for runner in runners for refusal in runner.refusals)
    result.graph["statistics"] = tuple(runner.statistics() for runner in runners)
    result.graph["warnings"] = tuple(dict.fromkeys((*warnings_of(result), *warnings)))
    return result


def _scan(workspace: Workspace, runner: _Runner) -> Iterator[Fusion]:
    """One rule over all its roots."""
    before = workspace.revision
    runner.refusals = []
    types = runner.matcher.root_types
    for root in runner.roots(workspace):
        if root not in workspace.graph or workspace.type(root) not in types:
            continue
        reason: str | None = None
        matches = _Matches(runner.matcher.matches(workspace, root))
        for match in matches:
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
            yield runner.apply(workspace, match, plan)
            break
        else:
            reason = "; besides, ".join(text for text in (reason, matches.limit) if text)
            if reason:
                runner.refusals.append(Refusal(runner.rule.name, _ref(workspace, root), reason))
    if workspace.revision == before:
        runner.quiet_at = before


class _Matches:
    """The matches at a root, to the step limit; ``limit`` is None or says that it was met."""

    def __init__(self, matches: Iterator[Match]) -> None:
        self._matches = matches
        self.limit: str | None = None

    def __iter__(self) -> Iterator[Match]:
        try:
            yield from self._matches
        except StepLimitError as error:
            self.limit = str(error)


def _ref(workspace: Workspace, key: int) -> LayerRef:
    return LayerRef(key, workspace.name(key), workspace.type(key))


def _require_progress(workspace: Workspace, match: Match, into: str) -> None:
    """Refuse to wrap one opaque layer alone: nothing is fused by that, and two such rules would go on for ever."""
    if len(match.layers) == 1 and workspace.recipe(match.layers[0]) is not None:
        key = match.layers[0]
        raise Refused(
            f"{workspace.describe(key)} is an opaque layer {workspace.result(key)!r} already: as {into!r} it would be "
            "wrapped once more with nothing beside it; let the rule that makes it give it that name"
        )


def _unsafe(workspace: Workspace, match: Match) -> str | None:
    """Why a match must not be rewritten: what it consumes is an end of the network, or used elsewhere too."""
    consumed = set(match.layers)
    for key in match.layers:
        if workspace.type(key) in ("Input", "Output"):
            return f"{workspace.describe(key)} is an {workspace.type(key)}: the network's ends stay as they are"
    for key in match.layers:
        if key == match.root:
            continue
        for use in workspace.uses(key):
            if use.layer not in consumed:
                what = "is an output of the network" if workspace.type(use.layer) == "Output" else "is used elsewhere"
                return f"{workspace.describe(key)} {what} too: {workspace.describe(use.layer)} reads it"
    return None
