"""Rule files: TOML with a vocabulary and options, or ``.rules``, one rule a line.

A file is checked whole: every error of it is found, each with its line and column.
"""

from __future__ import annotations

import os
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusion_engine.errors import RuleError, nearest
from fusion_engine.language.parser import SYNTAX_VERSIONS, parse
from fusion_engine.language.resolve import MARKED, Resolver
from fusion_engine.language.rule import FusingRule, checked_results, default_into, option_faults, resolved
from fusion_engine.language.sources import Source, read_source
from fusion_engine.language.tokens import place
from fusion_engine.language.tomlplaces import MAX_DEPTH, Location, locations, too_deep
from fusion_engine.language.tomlplaces import Path as KeyPath
from fusion_engine.language.vocabulary import vocabulary
from fusion_engine.schema import schema

__all__ = ["CheckedFile", "PlacedRule", "check_file", "load_rules", "read_files", "read_rules"]

_FILE_KEYS: dict[str, str] = {"syntax": "an integer", "layers": "a table", "rule": "a list", "marked": "a string"}
_RULE_KEYS: dict[str, str] = {
    "name": "a string",
    "match": "a string or a list of strings",
    "fold": "a string",
    "into": "a string",
    "group": "a string",
    "code": "an integer",
    "marked": "a string",
    "when": "a string",
    "ordered": "true or false",
    "syntax": "an integer",
}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "an integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "a string": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "a table": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a string or a list of strings": lambda value: (
        isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))
    ),
}
_ACTIONS = ("fold", "into", "group")
_ARGUMENTS = {"match": "text", "syntax": "syntax_version"}
"""Arguments of `FusingRule` by key, where they differ."""

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BREAK = re.compile(r"\r\n|\r|\n")


# Loading


def load_rules(*sources: str | os.PathLike[str]) -> list[FusingRule]:
    """The rules of files, in order.

    Parameters
    ----------
    *sources
        Each the name of a rule file that ships (``"armnn"``, ``"npu"``, ...) or a path. The ``into``
        names of all of them can be used in all of them.

    Raises
    ------
    RuleError
        The first error of the files; ``others`` are the rest.

    Examples
    --------
    >>> [rule.fold for rule in load_rules("armnn")]
    ['dead-ends', 'constants', ..., 'batch-norm', ...]
    """
    rules, errors = read_rules(sources)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return rules


def check_file(path: str | os.PathLike[str], results: Iterable[str] = ()) -> list[RuleError]:
    """Every error of a rule file, in its order; none where it is right.

    Parameters
    ----------
    path
        As for `load_rules`.
    results
        ``into`` names that other files of the run define.
    """
    return read_rules((path,), results)[1]


def read_rules(
    sources: Iterable[str | os.PathLike[str] | Source], results: Iterable[str] = ()
) -> tuple[list[FusingRule], list[RuleError]]:
    """The right rules of files, in order, and the errors of the others, by file and place.

    A `Source` is a file that was read before.

    Raises
    ------
    RuleError
        Where one of ``results`` cannot be the result of a rule.
    """
    checked = read_files(sources, results)
    rules = [placed.rule for file in checked for placed in file.rules]
    return rules, [error for file in checked for error in file.errors]


def read_files(
    sources: Iterable[str | os.PathLike[str] | Source], results: Iterable[str] = (), *, rules_needed: bool = True
) -> list[CheckedFile]:
    """Rule files with the places of what is in them.

    Parameters
    ----------
    sources, results
        As of `read_rules`.
    rules_needed
        Whether it is an error that a file has no rule.

    Raises
    ------
    RuleError
        Where one of ``results`` cannot be the result of a rule.
    """
    files: list[_File] = []
    for source in sources:
        try:
            read = source if isinstance(source, Source) else read_source(source)
        except RuleError as error:
            files.append(_File(os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else "", ""))
            files[-1].errors.append(error)
            continue
        files.append(_read(read, rules_needed))
    made = (draft.result(file.layers) for file in files for draft in file.drafts)
    known = frozenset({*checked_results(frozenset(results)), *(name for name in made if name)})
    return [_checked(file, known) for file in files]


@dataclass(frozen=True)
class CheckedFile:
    """A rule file that was read.

    Attributes
    ----------
    name
        As messages call it.
    rules
        The right rules, in order.
    errors
        What is wrong, by place.
    layers
        The vocabulary: text by name.
    results
        The ``into`` names that its rules make, in order.
    """

    name: str
    rules: tuple[PlacedRule, ...]
    errors: tuple[RuleError, ...]
    layers: Mapping[str, str]
    results: tuple[str, ...]
    _file: _File = field(repr=False, compare=False)

    def fault_in_layer(self, name: str, offset: int, reason: str) -> RuleError:
        """Something about the definition of a vocabulary name, at an offset in its text; not counted as an error."""
        line, column = place(self.layers[name], offset)
        fault = RuleError(reason, text=self.layers[name], line=line, column=column)
        return self._file.placed(fault, self._file.layer_places[name], None)


@dataclass(frozen=True)
class PlacedRule:
    """A rule, and where its file has what belongs to it."""

    rule: FusingRule
    _file: _File = field(repr=False, compare=False)
    _draft: _Draft = field(repr=False, compare=False)

    def has(self, argument: str) -> bool:
        """Whether the file gives that argument of `FusingRule`."""
        return argument in self._draft.places

    def fault_in_text(self, index: int, offset: int, reason: str) -> RuleError:
        """Something about a match text, at an offset in it; not counted as an error."""
        text = self._draft.texts[index]
        line, column = place(text, offset)
        fault = RuleError(reason, text=text, line=line, column=column)
        return self._file.placed(fault, self._draft.anchors[index], self._draft.label)

    def fault_of(self, argument: str, reason: str) -> RuleError:
        """Something about an argument, or where the file leaves it out about the rule; not counted as an error."""
        line, column = self._file.place(self._draft.places.get(argument, self._draft.start))
        name = self._file.name
        return RuleError(reason, text=self._file.text, line=line, column=column, source=name, rule=self._draft.label)


def _checked(file: _File, results: frozenset[str]) -> CheckedFile:
    rules = tuple(PlacedRule(rule, file, draft) for rule, draft in _made(file, results))
    own = tuple(dict.fromkeys(name for draft in file.drafts if (name := draft.result(file.layers))))
    return CheckedFile(file.name, rules, tuple(sorted(file.errors, key=_by_place)), file.layers, own, file)


def _by_place(error: RuleError) -> tuple[int, int]:
    return error.outer or (error.line, error.column)


@dataclass
class _Draft:
    """A rule as its file gives it.

    ``label`` is what messages call it; ``texts`` its match texts, each standing at one of ``anchors``;
    ``options`` the arguments of `FusingRule` that are of the right kind; ``places`` the offset of
    each argument that the file gives, of whatever kind; ``start`` that of the rule. ``whole`` tells
    that nothing was wrong so far.
    """

    label: str
    start: int
    syntax: int
    marked: str
    texts: tuple[str, ...] = ()
    anchors: tuple[Location, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    whole: bool = True

    @property
    def action(self) -> bool:
        """Whether the file says what is made of a match, be it wrong."""
        return not {*_ACTIONS}.isdisjoint(self.places)

    def result(self, vocabulary: Collection[str]) -> str | None:
        """The ``into`` name, where it can be one."""
        into = self.options.get("into")
        if not self.action and self.texts and self.syntax in SYNTAX_VERSIONS:
            try:
                into = default_into(parse(self.texts[0], self.syntax), self.marked, vocabulary)
            except RuleError:
                return None
        good = into is not None and re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", into) and into not in schema().layers
        return into if good else None


@dataclass
class _File:
    """A rule file: its text, what was found in it, and what is wrong with it.

    ``layers`` is the vocabulary, ``undefined`` holds names that were meant to be in it.
    """

    name: str
    text: str
    drafts: list[_Draft] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)
    undefined: set[str] = field(default_factory=set)
    layer_places: dict[str, Location] = field(default_factory=dict)
    syntax: int = 2
    errors: list[RuleError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._starts = [0, *(found.end() for found in _BREAK.finditer(self.text))]

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def report(self, offset: int, reason: str, rule: str | None = None) -> None:
        line, column = self.place(offset)
        self.errors.append(RuleError(reason, text=self.text, line=line, column=column, source=self.name, rule=rule))

    def report_inside(self, error: RuleError, anchor: Location, rule: str | None) -> None:
        """Report an error whose line and column count in a text of the file."""
        self.errors.append(self.placed(error, anchor, rule))

    def placed(self, error: RuleError, anchor: Location, rule: str | None) -> RuleError:
        """An error whose line and column count in a text of the file, as one of the file."""
        if anchor.inside is None:
            found = RuleError(error.reason, text=error.text, line=error.line, column=error.column, source=self.name)
            found.outer = self.place(anchor.value)
        else:
            line, column = self.place(anchor.inside)
            line, column = line + error.line - 1, error.column + (column - 1 if error.line == 1 else 0)
            found = RuleError(error.reason, text=self.text, line=line, column=column, source=self.name)
        found.rule = rule
        return found


# Reading


def _read(source: Source, rules_needed: bool = True) -> _File:
    try:
        text = source.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source.data[: error.start].decode("utf-8-sig", "replace")
        file = _File(source.name, before)
        byte = source.data[error.start]
        file.report(len(before), f"the rule file is not UTF-8: byte 0x{byte:02x} at offset {error.start}")
        return file
    file = _File(source.name, text)
    if source.name.endswith(".rules"):
        _read_lines(file)
    elif source.name.endswith(".toml") or not Path(source.name).suffix:
        _read_toml(file)
    else:
        file.report(0, "the name of a rule file ends in .toml or .rules")
    if rules_needed and not file.drafts and not file.errors:
        how = "write one on a line, as Activation{Convolution2d}"
        if not source.name.endswith(".rules"):
            how = 'begin each with [[rule]], and below it match = "Activation{Convolution2d}"'
        file.report(0, f"there is no rule in the file: {how}")
    return file


def _read_lines(file: _File) -> None:
    """One rule a line; blank lines and comments between them."""
    start = 0
    for line in _BREAK.split(file.text):
        if line.strip(" \t") and not line.lstrip(" \t").startswith("#"):
            label = f"#{len(file.drafts) + 1}"
            anchor = Location(start, start, start)
            file.drafts.append(_Draft(label, start, 2, "kept", (line,), (anchor,)))
        start += len(line)
        start += 2 if file.text.startswith("\r\n", start) else 1


def _read_toml(file: _File) -> None:
    deep = too_deep(file.text)
    if deep is not None:
        file.report(deep, f"nested too deep: at most {MAX_DEPTH} brackets may be open at once")
        return
    try:
        document = tomllib.loads(file.text)
    except ValueError as error:
        reason = str(error)
        found = _TOML_PLACE.search(reason)
        line, column = file.place(len(file.text))
        if found and found[1]:
            line, column = int(found[1]), int(found[2])
        reason = f"the file is no TOML: {_TOML_PLACE.sub('', reason)}"
        file.errors.append(RuleError(reason, text=file.text, line=line, column=column, source=file.name))
        return
    places = _Places(locations(file.text))
    good = _Table(file, places, (), document, "a rule file", _FILE_KEYS).good()
    syntax, marked = good.get("syntax", 2), good.get("marked", "kept")
    if syntax not in SYNTAX_VERSIONS:
        file.report(places["syntax",].value, f"there is no syntax version {syntax}: it is 1 or 2")
        syntax = 2
    file.syntax = syntax
    if marked not in MARKED:
        file.report(places["marked",].value, f'marked is "kept" or "fused", not {marked!r}{nearest(marked, MARKED)}')
        marked = "kept"
    for name, text in good.get("layers", {}).items():
        place = places["layers", name]
        if isinstance(text, str):
            file.layers[name] = text
            file.layer_places[name] = place
        else:
            file.undefined.add(name)
            file.report(place.value, f"the vocabulary name {name!r} stands for a string, not for {_kind(text)}")
    file.undefined.update(_misplaced(document))
    if isinstance(document.get("rule"), dict):
        _read_rule(file, places, ("rule",), document["rule"], syntax, marked)
        file.drafts[-1].whole = False
    for i, table in enumerate(good.get("rule", ())):
        if isinstance(table, dict):
            _read_rule(file, places, ("rule", i), table, syntax, marked)
        else:
            file.report(places["rule", i].value, f"a rule is a table, as [[rule]] begins one, not {_kind(table)}")


def _misplaced(document: Mapping[str, Any]) -> Iterator[str]:
    """Names in tables that may have been meant for the vocabulary: ``[[layers]]``, ``[layres]``."""
    for key, value in document.items():
        if key not in _FILE_KEYS or (key == "layers" and isinstance(value, list)):
            for table in value if isinstance(value, list) else [value]:
                yield from table if isinstance(table, dict) else ()


class _Places(dict[KeyPath, Location]):
    """Locations by path; what has none of its own stands where the table around it does."""

    def __missing__(self, path: KeyPath) -> Location:
        return self[path[:-1]] if path else Location(0, 0)


def _keys_near(key: str, kinds: Mapping[str, str]) -> str:
    """Keys that may have been meant: all of them where none is near."""
    return nearest(key, list(kinds)) or f": its keys are {', '.join(kinds)}"


@dataclass
class _Table:
    """A table of the document with the keys it may have."""

    file: _File
    places: Mapping[KeyPath, Location]
    path: KeyPath
    table: Mapping[str, Any]
    called: str
    kinds: Mapping[str, str]

    def good(self, rule: str | None = None) -> dict[str, Any]:
        """Its right entries; the others are reported."""
        good: dict[str, Any] = {}
        for key, value in self.table.items():
            place = self.places[(*self.path, key)]
            if key not in self.kinds:
                reason = f"{self.called} has no key {key!r}{_keys_near(key, self.kinds)}"
                self.file.report(place.key, reason, rule)
            elif not _KINDS[self.kinds[key]](value):
                hint = ": begin each rule with [[rule]]" if key == "rule" else ""
                self.file.report(place.value, f"{key} is {self.kinds[key]}, not {_kind(value)}{hint}", rule)
            else:
                good[key] = value
        return good


def _kind(value: Any) -> str:
    if isinstance(value, list) and any(not isinstance(one, type(value[0])) for one in value):
        return "a list of several kinds"
    kinds = {
        bool: "true or false",
        int: "an integer",
        float: "a float",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    return kinds.get(type(value), "a date or time")


def _read_rule(
    file: _File, places: Mapping[KeyPath, Location], path: KeyPath, table: Mapping[str, Any], syntax: int, marked: str
) -> None:
    name = table.get("name")
    label = name if isinstance(name, str) and name else f"#{len(file.drafts) + 1}"
    good = _Table(file, places, path, table, "a rule", _RULE_KEYS).good(label)
    draft = _Draft(label, places[path].key, good.pop("syntax", syntax), good.pop("marked", marked))
    draft.whole = len(good) + ("syntax" in table) + ("marked" in table) == len(table)
    draft.places = {_ARGUMENTS.get(key, key): places[(*path, key)].value for key in table}
    good.pop("match", None)
    match, at = table.get("match"), (*path, "match")
    found = [(match, places[at])]
    if isinstance(match, list):
        found = [(text, places[(*at, k)]) for k, text in enumerate(match)]
    draft.texts = tuple(text for text, _ in found if isinstance(text, str))
    draft.anchors = tuple(anchor for text, anchor in found if isinstance(text, str))
    draft.options = good
    file.drafts.append(draft)
    if name == "":
        _refuse(file, draft, "name", "the name of a rule is not empty")


# Making


def _refuse(file: _File, draft: _Draft, argument: str, reason: str) -> None:
    """Report a fault of an argument where it stands, or of the whole rule where it begins."""
    draft.whole = False
    file.report(draft.places.get(argument, draft.start), reason, draft.label)


def _made(file: _File, results: frozenset[str]) -> Iterator[tuple[FusingRule, _Draft]]:
    """The right rules of a file; what is wrong is reported."""
    sound = _check_layers(file, results) and not file.undefined
    definitions = tuple(sorted(file.layers.items()))
    for draft in file.drafts:
        _check_options(file, draft)
        if draft.whole and sound:
            try:
                yield _rule(file, draft, results), draft
                continue
            except RuleError:
                pass  # its texts are wrong, all of which is told now
        known = vocabulary(definitions, draft.syntax, results, frozenset(file.undefined))
        resolver = Resolver(known, draft.result(file.layers), draft.marked)
        for i, error in resolved(draft.texts, draft.syntax, resolver)[1]:
            file.report_inside(error, draft.anchors[i], draft.label)


def _check_layers(file: _File, results: frozenset[str]) -> bool:
    """Whether the vocabulary of a file is right, in every syntax version that its rules have."""
    definitions = tuple(sorted(file.layers.items()))
    seen: set[tuple[str, int, int, str]] = set()
    for version in sorted({file.syntax, *(draft.syntax for draft in file.drafts)} & {*SYNTAX_VERSIONS}):
        for name, error in vocabulary(definitions, version, results).problems:
            key = (name, error.line, error.column, error.reason)
            if key in seen:
                continue
            seen.add(key)
            if error.placed:
                file.report_inside(error, file.layer_places[name], None)
            else:
                file.report(file.layer_places[name].key, error.reason)
    return not seen


def _check_options(file: _File, draft: _Draft) -> None:
    """Report what is wrong with the options of a rule, and put the default where its texts need one."""
    given = {"into": None, "fold": None, "group": None, "code": 0, "when": None, **draft.options}
    checked = {key: given[key] for key in ("into", "fold", "group", "code", "when")}
    faults = list(
        option_faults(
            texts=draft.texts, syntax_version=draft.syntax, marked=draft.marked, vocabulary=file.layers, **checked
        )
    )
    for argument, reason in faults:
        if argument != "text" or draft.whole:  # a key that is wrong may have been meant for the match
            _refuse(file, draft, argument, reason)
    draft.syntax = draft.syntax if draft.syntax in SYNTAX_VERSIONS else file.syntax
    draft.marked = draft.marked if draft.marked in MARKED else "kept"


def _rule(file: _File, draft: _Draft, results: frozenset[str]) -> FusingRule:
    """The rule of a draft."""
    return FusingRule(
        draft.texts,
        draft.syntax,
        vocabulary=file.layers,
        results=tuple(results),
        marked=draft.marked,
        source=file.name,
        **draft.options,
    )
