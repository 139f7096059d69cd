"""The corpus: real networks load, and what is saved of them is what real Arm NN ran before."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import fusion_engine as fe
from tests.support.real_armnn import SHARED, RealArmnn

_MANIFEST = SHARED / "corpus" / "manifest.json"
ENTRIES: list[dict[str, Any]] = json.loads(_MANIFEST.read_text("utf-8"))["files"] if _MANIFEST.exists() else []
FILES = [entry["file"] for entry in ENTRIES]
BY_FILE = {entry["file"]: entry for entry in ENTRIES}
_NONE = pytest.param("", marks=pytest.mark.skip(reason=f"there is no corpus in {_MANIFEST.parent}"))
each_file = pytest.mark.parametrize("file", FILES or [_NONE])


def release_of(entry: dict[str, Any]) -> str:
    """The installed release that stands for the one that made the file."""
    return "23.08" if "23.08" in entry["made_by"] else "20.08"


def digests(run: dict[str, Any]) -> dict[int, str]:
    """Digest by binding id, of a run in the manifest."""
    return {output["id"]: output["fnv1a64"] for output in run["outputs"]}


def stable(file: str, found: dict[int, str]) -> dict[int, str]:
    """The outputs that real Arm NN writes: two of one file it leaves as the memory was, other bits in every run."""
    unwritten = {"handmade-23.08/new_unidirectional_sequence_lstm.armnn": {0, 1}}.get(file, set())
    return {output: digest for output, digest in found.items() if output not in unwritten}


def test_the_corpus_is_whole(corpus: Path) -> None:
    found = sorted(str(path.relative_to(corpus)) for path in corpus.rglob("*.armnn"))
    assert found == sorted(FILES)


@each_file
def test_loads_what_the_manifest_says(corpus: Path, file: str) -> None:
    entry = BY_FILE[file]
    graph = fe.load(corpus / file)
    nodes = graph.nodes.values()
    assert Counter(node["type"] for node in nodes) == entry["layers"]
    assert [graph.nodes[key]["name"] for key in graph.graph["inputs"]] == [i["name"] for i in entry["inputs"]]
    shapes = [list(graph.nodes[key]["outputs"][0].shape) for key in graph.graph["inputs"]]
    assert shapes == [i["shape"] for i in entry["inputs"]]
    assert sorted(graph.nodes[key]["name"] for key in graph.graph["outputs"]) == sorted(
        o["name"] for o in entry["outputs"]
    )
    versions = entry["feature_versions"] or []
    assert graph.graph["feature_versions"] == tuple(versions + [0] * (3 - len(versions)))
    assert graph.graph["dialect"] == "current"
    assert fe.validate(graph) == ()


@each_file
def test_load_and_save_is_equal_and_stable(corpus: Path, file: str) -> None:
    graph = fe.load(corpus / file)
    once = fe.dumps(graph)
    again = fe.loads(once)
    assert fe.difference(graph, again) is None
    assert fe.dumps(again) == once
    assert list(again.nodes) == list(range(len(again)))


@each_file
def test_renumbering_and_reordering_changes_no_byte(corpus: Path, file: str) -> None:
    graph = fe.load(corpus / file)
    keys = list(graph.nodes)
    source = random.Random(file)
    numbers = source.sample(range(10 * len(keys)), len(keys))
    renumbered = dict(zip(keys, numbers, strict=True))
    source.shuffle(keys)
    shuffled = nx.DiGraph(**graph.graph)
    for listed in ("inputs", "outputs"):
        shuffled.graph[listed] = tuple(renumbered[key] for key in graph.graph[listed])
    shuffled.add_nodes_from((renumbered[key], graph.nodes[key]) for key in keys)
    edges = [(renumbered[u], renumbered[v], data) for u, v, data in graph.edges(data=True)]
    source.shuffle(edges)
    shuffled.add_edges_from(edges)
    assert fe.dumps(shuffled) == fe.dumps(graph)


@each_file
def test_real_arm_nn_runs_what_is_saved_as_before(
    real_armnn: RealArmnn, corpus: Path, tmp_path: Path, file: str
) -> None:
    entry = BY_FILE[file]
    release = release_of(entry)
    before = entry["run"][release]
    saved = tmp_path / os.path.basename(file)
    fe.save(fe.load(corpus / file), saved)
    if before["runs"]:
        assert stable(file, real_armnn.run(saved, release).digests) == stable(file, digests(before))
    elif before.get("parses", True):
        assert real_armnn.parse(saved, release)["ok"]
