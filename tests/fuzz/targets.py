"""What is fuzzed. A target takes any bytes, and raises where something is wrong.

Bad input may raise `FusionEngineError` and nothing else; what is accepted must also survive what
follows: a file is written and read again, a rule is written as text and parsed again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import fusion_engine as fe
from fusion_engine.errors import FusionEngineError, ModelError, RuleError
from fusion_engine.language.parser import parse, unparse
from fusion_engine.language.rule import FusingRule

__all__ = ["TARGETS"]


def model(data: bytes) -> None:
    """`loads`, strict and lenient, and `validate`."""
    try:
        graph = fe.loads(data)
    except ModelError as error:
        _told(error)
        try:
            graph = fe.loads(data, lenient=True)
        except ModelError:
            return
    for problem in fe.validate(graph):
        _told(problem)


def text(data: bytes) -> None:
    """A rule's text in both syntax versions; the first byte says how it is read."""
    flags, rule = (data[0], data[1:]) if data else (0, b"")
    source = rule.decode("utf-8", "replace" if flags & 2 else "surrogateescape")
    try:
        made = FusingRule(source, 1 + (flags & 1), ordered=bool(flags & 4), marked="fused" if flags & 8 else "kept")
    except RuleError as error:
        _told(error)
        return
    tree = parse(made.text, made.syntax_version)
    again = unparse(tree)
    if unparse(parse(again, made.syntax_version)) != again:
        raise AssertionError(f"{made.text!r} is written as {again!r} and that as something else")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


def rule_file(data: bytes) -> None:
    """A rule file: TOML, or ``.rules`` where the first byte is odd."""
    path = Path(_folder().name) / ("fuzz.rules" if data[:1] and data[0] & 1 else "fuzz.toml")
    path.write_bytes(data[1:])
    try:
        fe.load_rules(path)
    except RuleError as error:
        _told(error)
        for other in error.others:
            _told(other)


@cache
def _rules() -> list[FusingRule]:
    return [rule for name in ("armnn", "npu") for rule in fe.load_rules(name)]


def fuse(data: bytes) -> None:
    """Load, fuse, save, load again, undo, save again; what was saved must stay as it is."""
    try:
        graph = fe.loads(data)
        written = fe.dumps(graph)
    except ModelError as error:
        _told(error)
        return
    if fe.dumps(fe.loads(written)) != written:
        raise AssertionError("what is written is not what is written of it when read again")
    try:
        fused = fe.fuse(graph, _rules())
    except FusionEngineError as error:
        _told(error)
        return
    saved = fe.dumps(fused)
    again = fe.loads(saved)
    if fe.dumps(again) != saved:
        raise AssertionError("a fused network is not the same after it is saved and loaded")
    if fe.dumps(graph) != written:
        raise AssertionError("fuse changed the network it was given")
    try:
        undone = fe.dumps(fe.unfuse(fused))
    except ModelError as error:  # a recipe in the file told of layers that no reader takes
        _told(error)
        return
    if fe.dumps(fe.unfuse(again)) != undone or fe.dumps(fe.loads(undone)) != undone:
        raise AssertionError("unfuse says something else of a network that was saved")


def _told(fault: object) -> None:
    """The message can be made, and is one."""
    if not str(fault).strip():
        raise AssertionError(f"{fault!r} has no message")


TARGETS: dict[str, Callable[[bytes], None]] = {"model": model, "text": text, "rule_file": rule_file, "fuse": fuse}
