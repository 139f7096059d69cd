"""The commands of rule authors: where a text matches, and why a rule did not fire."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from fusion_engine.console import Console, counted, printable, reason_line
from fusion_engine.errors import nearest
from fusion_engine.naming import layer_place
from fusion_engine.storage import at_hand
from fusion_engine.usage import FAILED, FINE, STDOUT, Wrong, rule_error, rules_of

if TYPE_CHECKING:
    from fusion_engine import FusingRule
    from fusion_engine.batch import Found
    from fusion_engine.explaining import Explanation, NearMiss
    from fusion_engine.network import Network
    from fusion_engine.search import Place

__all__ = ["add_workbench"]

MOST = 5
"""Near misses that are shown of each rule and model unless ``--most`` says otherwise."""


def add_workbench(
    command: Callable[..., argparse.ArgumentParser], paths: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Add the commands to the parser: ``command`` makes one, ``paths`` adds its models."""
    match = command(
        "match",
        _match,
        "show where a rule's text matches",
        "match 'Activation{Convolution2d}' models",
        "match 'Output{Softmax}' a.armnn b.armnn --json",
        "match --why 'relu{Convolution2d}' models --vocabulary my-npu.toml",
        "match - models < text",
    )
    match.add_argument(
        "text",
        metavar="RULE_TEXT",
        help="what a rule's match would say; @FILE reads it from a file, - from standard input; "
        "Input and Output may be named",
    )
    paths(match)
    match.add_argument("--syntax", type=int, choices=(1, 2), default=2, help="syntax version of the text (default: 2)")
    match.add_argument(
        "--vocabulary",
        metavar="NAME|FILE",
        help="rule file whose [layers] and results of rules the text may name; it may hold [layers] alone",
    )
    match.add_argument("--count", action="store_true", help="only the number of matches of each model")
    _shared(match, "--why", action="store_true", help="also where the text nearly matches, and what failed there")

    explain = command(
        "explain",
        _explain,
        "show why rules did not fire: near misses, the nearest first",
        "explain --rules my-npu.toml models",
        "explain --rules my-npu.toml model.armnn --rule conv-relu --layer relu_3",
    )
    paths(explain)
    explain.add_argument(
        "--rules", metavar="NAME|FILE", action="append", help="as of fuse; may be given again (default: armnn)"
    )
    explain.add_argument("--rule", metavar="NAME", action="append", help="only this rule; may be given again")
    _shared(explain, "--layer", metavar="NAME|INDEX", help="only at this layer")


def _shared(to: argparse.ArgumentParser, *names: str, **options: Any) -> None:
    to.add_argument(*names, **options)
    to.add_argument("--most", type=_number, default=MOST, metavar="N", help=f"near misses to show (default: {MOST})")
    to.add_argument("--json", action="store_true", help="as JSON, all of it")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of near misses")
    return int(text)


# Models


def _each(
    arguments: argparse.Namespace, console: Console, work: Callable[[Found], Any]
) -> Iterator[tuple[Found, Any, str | None]]:
    """Do some work on each model; gives it with the result, or with why it failed."""
    from fusion_engine.batch import attempt, find_models
    from fusion_engine.errors import OutputError

    try:
        models = find_models(arguments.paths)
    except OutputError as error:
        raise Wrong(printable(str(error))) from error
    for number, model in enumerate(models, 1):
        console.progress(f"[{number}/{len(models)}] {printable(model.path)}")
        none = None if model.fault is None else f"{model.path}: {model.fault}"
        found, fault = (None, none) if none else attempt(model.path, partial(work, model))
        if fault is not None:
            console.note(f"fusion-engine: {printable(fault)}")
        yield model, found, fault
        if console.closed:
            return


# match


def _match(arguments: argparse.Namespace, console: Console) -> int:
    from dataclasses import replace

    from fusion_engine import load
    from fusion_engine.explaining import misses
    from fusion_engine.search import search

    rule = _text_as_rule(arguments)

    def work(model: Found) -> tuple[list[Place], tuple[NearMiss, ...]]:
        undecided: list[str] = []
        with at_hand(model.path) as path:
            graph = load(path)
            places = list(search(graph, rule, undecided))
            near = misses(graph, rule) if arguments.why else ()
            found = places, tuple([replace(miss, rule="near miss") for miss in near])
        for text in undecided:
            console.note(printable(f"{model.path}: {text}"))
        return found

    count = with_match = failed = models = 0
    entries: list[dict[str, Any]] = []
    for model, found, fault in _each(arguments, console, work):
        places, near = found or ([], ())
        models += 1
        failed += fault is not None
        count += len(places)
        with_match += bool(places)
        if arguments.json:
            entries.append(_match_entry(model.path, places, near, fault, arguments.why))
            continue
        if arguments.count and fault is None:
            console.print(f"{printable(model.path)}: {len(places)}")
        for place in () if arguments.count else places:
            console.print(f"{printable(model.path)}: {place}")
        _print_near(console, f"{printable(model.path)}: ", near, arguments.most)
    if arguments.json:
        console.print(json.dumps({"text": rule.texts[0], "models": entries}, indent=2))
    told = f"{counted(count, 'match', 'matches')} in {with_match} of {counted(models, 'model')}"
    console.note(told + (f", {failed} failed" if failed else ""))
    return FAILED if failed else FINE


def _text_as_rule(arguments: argparse.Namespace) -> FusingRule:
    from fusion_engine import FusingRule, RuleError
    from fusion_engine.language.rulefile import read_files

    vocabulary: dict[str, str] = {}
    results: tuple[str, ...] = ()
    if arguments.vocabulary is not None:
        (file,) = read_files([arguments.vocabulary], rules_needed=False)
        if file.errors:
            raise Wrong(*map(rule_error, file.errors))
        vocabulary, results = dict(file.layers), file.results
    try:
        return FusingRule(
            _text(arguments.text),
            arguments.syntax,
            name="match",
            group="match",
            vocabulary=vocabulary,
            results=results,
            source="RULE_TEXT",
        )
    except RuleError as error:
        raise Wrong(*map(rule_error, (error, *error.others))) from error


def _text(given: str) -> str:
    try:
        if given == STDOUT:
            return sys.stdin.read().strip()
        if given.startswith("@"):
            with open(given[1:], encoding="utf-8") as file:
                return file.read().strip()
    except OSError as error:
        raise Wrong(f"{printable(given[1:])}: the text cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Wrong(f"{printable(given)}: the text is no UTF-8 at byte {error.start}") from error
    return given


def _match_entry(
    path: str, places: list[Place], near: Iterable[NearMiss], fault: str | None, why: bool
) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": path, "matches": [place.as_json() for place in places], "error": fault}
    return entry | {"near": [_near_entry(miss) for miss in near]} if why else entry


# explain


def _explain(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine import load
    from fusion_engine.explaining import explain

    rules, _ = rules_of(arguments.rules or ["armnn"])
    chosen = _chosen(rules, arguments.rule)

    def work(model: Found) -> tuple[Explanation, ...] | None:
        with at_hand(model.path) as path:
            graph = load(path)
            layer = None if arguments.layer is None else _layer(graph, arguments.layer)
            if arguments.layer is not None and layer is None:
                return None
            return explain(graph, rules, layer=layer)

    entries: list[dict[str, Any]] = []
    failed = seen = 0
    single = len(arguments.paths) == 1 and arguments.paths[0].endswith(".armnn")
    for model, found, fault in _each(arguments, console, work):
        failed += fault is not None
        seen += found is not None
        told = [one for one in found or () if chosen is None or one.rule in chosen]
        if arguments.json:
            entries.append({"path": model.path, "rules": [_rule_entry(one) for one in told], "error": fault})
            continue
        prefix = "" if single else f"{printable(model.path)}: "
        for one in told:
            _print_explanation(console, prefix, one, arguments)
    if arguments.layer is not None and not seen and not failed:
        raise Wrong(f"no model has a layer {printable(arguments.layer)!r}: inspect --layers lists them")
    if arguments.json:
        console.print(json.dumps({"models": entries}, indent=2))
    return FAILED if failed else FINE


def _chosen(rules: list[FusingRule], names: list[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    known = [rule.name for rule in rules]
    for name in names:
        if name not in known:
            raise Wrong(f"there is no rule {printable(name)!r}{nearest(name, known)}")
    return frozenset(names)


def _layer(graph: Network, given: str) -> int | None:
    """The key of the layer that a user names; a name goes before an index."""
    for key in sorted(graph.nodes):
        if graph.nodes[key].get("name", "") == given:
            return key
    return int(given) if given.isdecimal() and int(given) in graph else None


def _print_explanation(console: Console, prefix: str, found: Explanation, arguments: argparse.Namespace) -> None:
    if prefix and found.roots and not found.candidates:
        return  # of many models, those that have nothing to do with a rule say nothing of it
    _print_near(console, prefix, found.near, arguments.most)
    for refusal in found.refusals:
        console.print(
            f"{prefix}{printable(str(refusal.rule))}: refused: {_place(refusal)}: {reason_line(refusal.reason)}"
        )
    told = [counted(len(found.fusions), "fusion"), counted(len(found.refusals), "refusal")]
    if found.roots:
        told.append(counted(len(found.near), "near miss", "near misses"))
    hint = ""
    if found.roots and not found.candidates:
        hint = f": the network has no {' or '.join(found.roots)}, of which type the rule's root is"
    console.print(f"{prefix}{printable(found.rule)}: {', '.join(told)}{hint}")


def _place(refusal: Any) -> str:
    return layer_place(refusal.layer.index, refusal.layer.name)


def _print_near(console: Console, prefix: str, near: tuple[NearMiss, ...], most: int) -> None:
    for miss in near[:most]:
        console.print(prefix + printable(str(miss)))
        for line in miss.excerpt.split("\n") if miss.excerpt else ():
            console.print("    " + "\t".join(map(printable, line.split("\t"))))
    if len(near) > most:
        console.print(f"{prefix}{printable(near[0].rule)}: {len(near) - most} more: --most {len(near)} shows them")


def _rule_entry(found: Explanation) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "rule": found.rule,
        "roots": list(found.roots),
        "candidates": found.candidates,
        "fusions": [asdict(fusion) for fusion in found.fusions],
        "refusals": [asdict(refusal) for refusal in found.refusals],
        "near": [_near_entry(miss) for miss in found.near],
    }


def _near_entry(miss: NearMiss) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(miss)
