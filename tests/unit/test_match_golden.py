"""tests/golden/matches: networks, rules and what they bind, in plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.match import compile_rule
from fusion_engine.tensor import DTYPES, Tensor, TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

FOLDER = Path(__file__).parents[1] / "golden" / "matches"
LAYER = re.compile(r"(\w+) = (\w+)((?: [a-z]\w*(?:#\d+)?)*)(?: \[([\d,;]*)\])?(?: ([A-Z]\w+))?(?: (\{.*\}))?")


def cases() -> Iterator[tuple[str, list[str]]]:
    """Title and lines of every case."""
    for path in sorted(FOLDER.glob("*.txt")):
        title, lines = "", []
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("=== "):
                if title:
                    yield title, lines
                title, lines = line[4:], []
            elif title and line.strip():
                lines.append(line)
        yield title, lines


CASES = list(cases())


def network(lines: list[str]) -> tuple[Net, dict[str, int]]:
    """The network of a case, and its layers' keys by name."""
    net, keys = Net(), dict[str, int]()
    for line in lines:
        found = LAYER.fullmatch(line)
        assert found is not None, line
        name, kind, sources, shapes, data_type, params = found.groups()
        inputs = [(keys[s.partition("#")[0]], int(s.partition("#")[2] or 0)) for s in sources.split()]
        extents = [tuple(map(int, shape.split(","))) for shape in (shapes or "1,4,4,2").split(";")]
        like = net.info(inputs[0]).data_type if inputs else "Float32"
        infos = [TensorInfo(shape, data_type or like) for shape in extents]
        constants = {}
        if kind == "Constant":
            constants = {"input": Tensor(infos[0], np.ones(infos[0].shape, DTYPES[infos[0].data_type]))}
        keys[name] = net.layer(kind, *inputs, outputs=infos, params=json.loads(params or "{}"), constants=constants)
    return net, keys


def rule(line: str) -> fe.FusingRule:
    """The rule of a case."""
    words = line.split(" ")[1:]
    options: dict[str, object] = {}
    version = 2
    while words[0] in ("ordered", "fused", "syntax1"):
        word = words.pop(0)
        if word == "syntax1":
            version = 1
        else:
            options |= {"ordered": True} if word == "ordered" else {"marked": "fused"}
    return fe.FusingRule(" ".join(words), version, into="Result", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("title", "lines"), CASES, ids=[title for title, _ in CASES])
def test_case(title: str, lines: list[str]) -> None:
    at = next(number for number, line in enumerate(lines) if line.startswith("rule "))
    net, keys = network(lines[:at])
    expected = lines[at + 1 :]
    if expected == ["error"]:
        with pytest.raises(fe.RuleError):
            rule(lines[at])
        return
    names = {key: name for name, key in keys.items()}
    workspace = Workspace(net.graph)
    matcher = compile_rule(rule(lines[at]))
    found = []
    for key in keys.values():
        if workspace.type(key) in matcher.root_types:
            for match in matcher.matches(workspace, key):
                parts = (match.layers, [edge.source.layer for edge in match.inputs], match.constants)
                shown = " | ".join(" ".join(names[k] for k in part) for part in parts)
                found.append(f"{names[key]}: {shown}".rstrip())
    assert found == [line.rstrip() for line in expected]


def test_there_are_cases() -> None:
    assert len(CASES) >= 45
    assert len({title for title, _ in CASES}) == len(CASES)
