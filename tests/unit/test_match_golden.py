"""tests/golden/matches: networks, rules and what they bind, in plain text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.match import compile_rule
from fusion_engine.schema import float32
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

FOLDER = Path(__file__).parents[1] / "golden" / "matches"
COMPARISONS = ("==", "<>", "<", "<=", ">", ">=")


def cases() -> Iterator[tuple[str, list[str]]]:
    """Title and lines of every case."""
    for path in sorted(FOLDER.glob("*.txt")):
        title, lines = "", list[str]()
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("=== "):
                if title:
                    yield title, lines
                title, lines = line[4:], []
            elif title and line.strip():
                lines.append(line)
        yield title, lines


CASES = list(cases())


@dataclass
class Case:
    """The network of a case so far, its layers' keys by name, and what rules may name."""

    net: Net = field(default_factory=Net)
    keys: dict[str, int] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    vocabulary: dict[str, str] = field(default_factory=dict)

    def add(self, line: str) -> None:
        """A line before the first rule: a layer, or what is done to the whole network."""
        if line.startswith("versions "):
            self.net.graph.graph["feature_versions"] = tuple(map(int, line.split()[1:]))
        elif line.startswith("name "):
            _, name, text = line.split(" ", 2)
            self.vocabulary[name] = text
        elif line.startswith("made "):
            _, into, text = line.split(" ", 2)
            self.results = (*self.results, into)
            self.net.graph = fe.fuse(self.net.graph, fe.FusingRule(text, into=into))
        else:
            self.layer(line)

    def layer(self, line: str) -> None:
        head, brace, params = line.partition(" {")
        name, equals, kind, *words = head.split()
        assert equals == "=", line
        sources: list[tuple[int, int]] = []
        members: dict[str, str] = {}
        shapes, data_type = "", None
        for word in words:
            if word[0] == "[":
                shapes = word
            elif "=" in word:
                member, _, shape = word.partition("=")
                members[member] = shape[1:-1]
            elif word[0].isupper():
                data_type = word
            else:
                source, _, slot = word.partition("#")
                sources.append((self.keys[source], int(slot or 0)))
        like = self.net.info(sources[0]) if sources else TensorInfo((1, 4, 4, 2))
        like = typed(like, data_type) if data_type else like
        infos = [shaped(like, shape) for shape in shapes[1:-1].split(";")] if shapes else [like]
        constants = {member: ones(shaped(TensorInfo((), like.data_type), shape)) for member, shape in members.items()}
        if kind == "Constant":
            constants["input"] = ones(infos[0])
        self.keys[name] = self.net.layer(
            kind,
            *sources,
            outputs=[] if kind == "Output" else infos,
            params=json.loads(brace.strip() + params or "{}"),
            constants=constants,
        )


def shaped(info: TensorInfo, shape: str) -> TensorInfo:
    """A TensorInfo with a shape as a case writes it."""
    if shape in ("", "?"):
        return replace(info, shape=(), dimensionality=2 if shape == "" else 0, dimension_specificity=())
    extents = shape.split(",")
    known = tuple(extent != "?" for extent in extents) if "?" in extents else ()
    sizes = tuple(int(extent.replace("?", "0")) for extent in extents)
    return replace(info, shape=sizes, dimensionality=1, dimension_specificity=known)


def typed(info: TensorInfo, text: str) -> TensorInfo:
    """A TensorInfo with a data type, and perhaps quantization, as a case writes it."""
    data_type, _, quantization = text.rstrip(")").partition("(")
    scales, _, last = quantization.partition(",")
    plain = TensorInfo(info.shape, data_type, dimensionality=info.dimensionality)
    if ";" in scales:
        return replace(plain, quantization_scales=tuple(map(float, scales.split(";"))), quantization_dim=int(last))
    if scales:
        return replace(plain, quantization_scale=float32(float(scales)), quantization_offset=int(last))
    return plain


def ones(described: TensorInfo) -> Tensor:
    return Tensor(described, np.ones(described.shape, described.dtype))


def rule(line: str, case: Case) -> fe.FusingRule:
    """The rule of a line."""
    words = line.split(" ")[1:]
    options: dict[str, Any] = {"results": case.results, "vocabulary": case.vocabulary}
    version = 2
    while words[0] in ("ordered", "fused", "syntax1"):
        word = words.pop(0)
        if word == "syntax1":
            version = 1
        else:
            options |= {"ordered": True} if word == "ordered" else {"marked": "fused"}
    return fe.FusingRule(" ".join(words), version, into="Result", **options)


def bindings(case: Case, line: str) -> list[str]:
    """What a rule binds, as a case writes it."""
    try:
        matcher = compile_rule(rule(line, case))
    except fe.RuleError:
        return ["error"]
    names = {key: name for name, key in case.keys.items()}
    workspace = Workspace(case.net.graph)
    found = []
    for name, key in case.keys.items():
        if key in workspace.graph and workspace.type(key) in matcher.root_types:
            matches = list(matcher.matches(workspace, key))
            assert matches == list(replace(matcher, simple=None).matches(workspace, key))  # by both
            for match in matches:
                parts = [match.layers, [edge.source.layer for edge in match.inputs], match.constants]
                parts += [match.kept] if match.kept else []
                found.append(f"{name}: " + " | ".join(" ".join(names[k] for k in part) for part in parts).rstrip())
    return found


def holds(case: Case, layer: str, condition: str) -> bool:
    """Whether a condition holds on a layer."""
    key = case.keys[layer]
    kind = case.net.graph.nodes[key]["type"]
    matcher = compile_rule(fe.FusingRule(f"{kind}[{condition}]", into="Result"))
    return any(True for _ in matcher.matches(Workspace(case.net.graph), key))


@pytest.mark.parametrize(("title", "lines"), CASES, ids=[title for title, _ in CASES])
def test_case(title: str, lines: list[str]) -> None:
    case, wanted, found = Case(), list[str](), list[str]()
    rules = 0
    for line in lines:
        word, _, rest = line.partition(" ")
        layer, _, condition = rest.partition(" ")
        rules += word in ("rule", "holds", "fails", "unknown")
        if word == "rule":
            found += [line, *bindings(case, line)]
            wanted.append(line)
        elif word in ("holds", "fails"):
            found.append(f"{'holds' if holds(case, layer, condition) else 'fails'} {rest}")
            wanted.append(line)
        elif word == "unknown":
            name, _, literal = condition.partition(" ")
            kind = case.net.graph.nodes[case.keys[layer]]["type"]
            text = literal.startswith('"')
            for compare in COMPARISONS[: 2 if text else None]:
                assert not holds(case, layer, f"{name} {compare} {literal}"), (kind, name, compare)
                assert not holds(case, layer, f"{literal} {compare} {name}"), (kind, name, compare)
        elif rules:
            wanted.append(line.rstrip())
        else:
            case.add(line)
    assert rules, title
    assert found == wanted


def test_there_are_cases() -> None:
    assert len(CASES) >= 70
    assert len({title for title, _ in CASES}) == len(CASES)
