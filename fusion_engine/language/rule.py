"""A fusing rule: text, options, and the patterns they make, checked when it is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from fusion_engine.errors import RuleError, nearest
from fusion_engine.language.parser import SYNTAX_VERSIONS, parse
from fusion_engine.language.pattern import PatternLayer
from fusion_engine.language.resolve import MARKED, Resolver
from fusion_engine.language.tree import Group, Item, Rule
from fusion_engine.language.vocabulary import vocabulary as vocabulary_of
from fusion_engine.schema import schema

__all__ = ["FusingRule", "checked_results", "default_into", "option_faults", "resolved"]

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ANOTHER_RESULT = " given in results=[...]"
"""How a rule that is from no file knows of the results of other rules."""

_NEVER_CONSUMED = frozenset({"Constant"})


@dataclass(frozen=True, init=False, repr=False)
class FusingRule:
    """A rule: where it matches, and what is made of a match.

    Parameters
    ----------
    text
        The match, or several, tried in order; none for a fold that finds its roots itself.
    syntax_version
        1, or 2 (with scopes such as ``fp16|nchw|``).
    name
        What messages and records call the rule; the name of what it makes where left out.
    into
        Replace a match by one opaque layer of that name. Where no action is given, this one, with
        the types in the text that are consumed, joined by ``_``.
    fold
        Replace a match by the ordinary layer that the fold of that name computes.
    group
        Leave a match as it is, but give its layers a common name prefix with that name.
    code
        Number that a backend finds on an opaque layer, an int32: it is stored as the quantization
        offset of a Constant.
    ordered
        Do not try the inputs of commutative layers swapped.
    marked
        What ``!`` means: ``"kept"``, or ``"fused"``: then all but the root and what is marked is kept.
    when
        Name of a predicate of an installed package that is asked about each match (see
        `fusion_engine.predicates`).
    vocabulary
        Texts by the names that stand for them.
    results
        ``into`` names of other rules of the run, which the text may name like layer types.
    source
        Name of the file that the rule is from. Equality does not look at it.

    Attributes
    ----------
    texts
        All match texts.
    patterns
        Per text its root alternatives, resolved.

    Raises
    ------
    RuleError
        Where anything about the rule is wrong. Line and column are those of the text at fault;
        ``others`` are further errors of the rule.

    Examples
    --------
    >>> rule = FusingRule("Activation{Convolution2d}", 1)
    >>> rule.into
    'Activation_Convolution2d'
    >>> FusingRule("Activation{Convolution2}")
    Traceback (most recent call last):
    fusion_engine.errors.RuleError: line 1, column 12: 'Convolution2' is no layer type, ...
    """

    texts: tuple[str, ...]
    syntax_version: int
    name: str
    into: str | None
    fold: str | None
    group: str | None
    code: int
    ordered: bool
    marked: str
    when: str | None
    vocabulary: tuple[tuple[str, str], ...]
    results: tuple[str, ...]
    source: str | None = field(compare=False)
    patterns: tuple[tuple[PatternLayer, ...], ...] = field(compare=False)

    def __init__(
        self,
        text: str | Sequence[str] = (),
        syntax_version: int = 2,
        *,
        name: str | None = None,
        into: str | None = None,
        fold: str | None = None,
        group: str | None = None,
        code: int = 0,
        ordered: bool = False,
        marked: str = "kept",
        when: str | None = None,
        vocabulary: Mapping[str, str] | None = None,
        results: Sequence[str] = (),
        source: str | None = None,
    ) -> None:
        _check_kinds(locals())
        texts = (text,) if isinstance(text, str) else tuple(text)
        definitions = tuple(sorted((vocabulary or {}).items()))
        names = dict(definitions)
        options: dict[str, Any] = {"into": into, "fold": fold, "group": group, "code": code, "marked": marked}
        options |= {"when": when}
        faults = list(option_faults(texts=texts, syntax_version=syntax_version, vocabulary=names, **options))
        errors = [RuleError(reason) for _, reason in faults]
        result_names: tuple[str, ...] = ()
        try:
            result_names = checked_results(frozenset(results))
        except RuleError as error:
            errors.append(copy(error))
        wrong = {argument for argument, _ in faults}
        patterns: list[tuple[PatternLayer, ...]] = []
        if "syntax_version" not in wrong:
            own = None if "into" in wrong else into
            known = vocabulary_of(definitions, syntax_version, frozenset({*result_names, own} - {None}))
            errors += [copy(problem) for _, problem in known.problems]
            meaning = "kept" if "marked" in wrong else marked
            hint = ANOTHER_RESULT if source is None else ""
            patterns, found = resolved(texts, syntax_version, Resolver(known, own, meaning, hint))
            errors += [fault for _, fault in found]
        if errors:
            for fault in errors:
                fault.rule = name
            errors[0].others = tuple(errors[1:])
            raise errors[0]
        if into is None and fold is None and group is None:
            into = default_into(parse(texts[0], syntax_version), marked, names)
        label = name or into or fold or group
        values = (texts, syntax_version, label, into, fold, group, code, ordered, marked, when, definitions)
        for attribute, value in zip(_ATTRIBUTES, (*values, result_names, source, tuple(patterns)), strict=True):
            object.__setattr__(self, attribute, value)

    @property
    def text(self) -> str:
        """The first match text; empty where there is none."""
        return self.texts[0] if self.texts else ""

    def __repr__(self) -> str:
        action = next(f"{a}={getattr(self, a)!r}" for a in ("into", "fold", "group") if getattr(self, a) is not None)
        return f"FusingRule({self.text!r}, {self.syntax_version}, {action})"

    def __reduce__(self) -> tuple[Any, ...]:
        options = {key: getattr(self, key) for key in _ATTRIBUTES[2:-1]}
        return _remade, (self.texts, self.syntax_version, {**options, "vocabulary": dict(self.vocabulary)})


_ATTRIBUTES = tuple(f.name for f in fields(FusingRule))


def _remade(texts: tuple[str, ...], syntax_version: int, options: dict[str, Any]) -> FusingRule:
    """Unpickle a rule: its patterns are made anew, since pickling them would recurse as deep as they nest."""
    return FusingRule(texts, syntax_version, **options)


# Checks of the arguments

_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a str or a sequence of str", lambda v: isinstance(v, str) or _strings(v)),
    "syntax_version": ("an int", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "name": ("a str that is not empty", lambda v: v is None or (isinstance(v, str) and v != "")),
    "into": ("a str", lambda v: v is None or isinstance(v, str)),
    "fold": ("a str", lambda v: v is None or isinstance(v, str)),
    "group": ("a str", lambda v: v is None or isinstance(v, str)),
    "code": ("an int", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "ordered": ("a bool", lambda v: isinstance(v, bool)),
    "marked": ("a str", lambda v: isinstance(v, str)),
    "when": ("a str", lambda v: v is None or isinstance(v, str)),
    "vocabulary": (
        "a mapping of str to str",
        lambda v: v is None or (isinstance(v, Mapping) and _strings([*v, *v.values()])),
    ),
    "results": ("a sequence of str", lambda v: _strings(v)),
    "source": ("a str", lambda v: v is None or isinstance(v, str)),
}


def _strings(values: Any) -> bool:
    known = isinstance(values, (list, tuple, frozenset, set))
    return known and all(isinstance(value, str) for value in values)


def _check_kinds(arguments: Mapping[str, Any]) -> None:
    for argument, (kind, good) in _KINDS.items():
        if not good(arguments[argument]):
            found = type(arguments[argument]).__name__
            raise RuleError(f"{argument} of a rule is {kind}, not {found} {str(arguments[argument])[:40]!r}")


def option_faults(
    *,
    texts: Sequence[str],
    syntax_version: int,
    into: str | None,
    fold: str | None,
    group: str | None,
    code: int,
    marked: str,
    when: str | None,
    vocabulary: Collection[str],
) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of a rule: (argument, reason), in the order of the arguments."""
    if not texts and fold is None:
        yield "text", "the rule needs a match: say which layers it is to look at"
    if syntax_version not in SYNTAX_VERSIONS:
        yield "syntax_version", f"there is no syntax version {syntax_version}: it is 1 or 2"
    yield from _action_faults(into, fold, group, vocabulary)
    if fold is not None:
        reason = _fold_fault(fold, texts)
        if reason:
            yield "fold", reason
    if not -(2**31) <= code < 2**31:
        yield "code", f"code {code} does not fit: it is stored as a 32-bit integer"
    if code and into is None and (fold is not None or group is not None):
        yield "code", "code goes with into only: it is stored in the opaque layer"
    if marked not in MARKED:
        yield "marked", f'marked is "kept" or "fused", not {marked!r}{nearest(marked, MARKED)}'
    if when is not None:
        yield from _predicate_faults(when)


def _action_faults(
    into: str | None, fold: str | None, group: str | None, vocabulary: Collection[str]
) -> Iterator[tuple[str, str]]:
    if sum(action is not None for action in (into, fold, group)) > 1:
        yield "into" if into is not None else "group", "a rule has one action: into, fold or group"
    for argument, name in (("into", into), ("group", group)):
        if name is not None and not _ID.fullmatch(name):
            yield argument, f"{argument} = {name!r}: letters, digits and _ only, so that rules and backends can name it"
    if into in schema().layers:
        yield "into", f"into = {into!r} is a layer type of Arm NN: give the result a name of its own"
    if into in vocabulary:
        yield "into", f"into = {into!r} is a name of the vocabulary: give the result a name of its own"


def _fold_fault(fold: str, texts: Sequence[str]) -> str | None:
    from fusion_engine.folds import find_fold, fold_names  # the language stands below the folds

    if fold not in fold_names():
        return f"there is no fold {fold!r}{nearest(fold, fold_names())}; there are: {', '.join(fold_names())}"
    if not texts and not find_fold(fold).roots:
        return f"the fold {fold!r} needs a match: say which layers it is to look at"
    return None


def _predicate_faults(when: str) -> Iterator[tuple[str, str]]:
    from fusion_engine.predicates import ENTRY_POINTS, predicate_names  # it stands above the language

    known = predicate_names()
    if when not in known:
        there = f"there are: {', '.join(known)}" if known else "no installed package has any"
        hint = f"a package registers one under the entry-point group {ENTRY_POINTS}"
        yield "when", f"there is no predicate {when!r}{nearest(when, known)}; {there} ({hint})"


@lru_cache(maxsize=64)
def checked_results(results: frozenset[str]) -> tuple[str, ...]:
    """Names of results, sorted.

    Raises
    ------
    RuleError
        Where one cannot be the result of a rule.
    """
    for name in sorted(results):
        if not _ID.fullmatch(name) or name in schema().layers:
            raise RuleError(f"{name!r} cannot be the result of a rule: it is no name, or is a layer type of Arm NN")
    return tuple(sorted(results))


# Patterns


def resolved(
    texts: Sequence[str], syntax_version: int, resolver: Resolver
) -> tuple[list[tuple[PatternLayer, ...]], list[tuple[int, RuleError]]]:
    """The patterns of the texts of a rule, and the errors of the others: (index of the text, error)."""
    patterns: list[tuple[PatternLayer, ...]] = []
    errors: list[tuple[int, RuleError]] = []
    for i, text in enumerate(texts):
        try:
            patterns.append(resolver.patterns(text, syntax_version))
        except RuleError as error:
            errors += [(i, fault) for fault in (error, *error.others)]
    return patterns, errors


def default_into(rule: Rule, marked: str = "kept", vocabulary: Collection[str] = ()) -> str:
    """The type names of a rule that are consumed, in text order, joined by ``_``.

    Constants are left out: they are never consumed. ``Fused_`` goes before a single name, and before
    what is a name of the vocabulary: a result needs a name that means nothing else.

    Examples
    --------
    >>> default_into(parse("Activation{Addition{Convolution2d, Pooling2d!}}"))
    'Activation_Addition_Convolution2d'
    """
    names: list[str] = []
    stack: list[tuple[Rule | Item, bool, bool]] = [(rule, True, False)]
    while stack:
        node, consumed, group_marked = stack.pop()
        if isinstance(node, Rule):
            if consumed and node.type not in _NEVER_CONSUMED:
                names.append(node.type)
            stack.extend((item, consumed, False) for item in reversed(node.inputs or ()))
            continue
        for choice in reversed(node.choices):
            mark = choice.marked or group_marked
            if isinstance(choice.body, Rule):
                stack.append((choice.body, consumed and mark == (marked == "fused"), False))
            elif isinstance(choice.body, Group):
                stack.extend((item, consumed, mark) for item in reversed(choice.body.items))
    name = "_".join(names) or rule.type
    return f"Fused_{name}" if len(names) < 2 or name in vocabulary else name
