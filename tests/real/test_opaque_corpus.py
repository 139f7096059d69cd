"""rules/npu.toml and groups over the corpus: what is written parses and runs, and comes back to the byte."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine import resources
from fusion_engine.network import Network, param
from fusion_engine.recipes import read_recipe
from fusion_engine.schema import schema
from tests.real.test_corpus import BY_FILE, FILES, digests, each_file, release_of, stable
from tests.support.real_armnn import RealArmnn

RULES = fe.load_rules("npu")
GROUPS = [
    fe.FusingRule("Activation{Convolution2d|DepthwiseConvolution2d|FullyConnected}", group="Act"),
    fe.FusingRule("Activation{Addition{?, ?}}", group="AddAct"),
    fe.FusingRule("Reshape{?}", group="Flat"),
]


def fused_with(rules: list[fe.FusingRule], path: Path) -> Network:
    return fe.fuse(fe.load(path), rules)


def member_depthwise(graph: Network) -> bool:
    return any(node["type"] == "DepthwiseConvolution2d" and node["constants"] for node in graph.nodes.values())


def all_params(graph: Network) -> list[tuple[str, str, dict[str, Any]]]:
    """Type, name and every parameter of every layer, in a sorted list."""
    found = []
    for key, node in graph.nodes.items():
        descriptor = schema().layers[node["type"]].descriptor
        fields = [] if descriptor is None else [f.name for f in descriptor.fields]
        found.append((node["type"], node["name"], {name: param(graph, key, name) for name in fields}))
    return sorted(found, key=str)


@each_file
def test_unfusing_what_was_saved_gives_the_original_to_the_byte(corpus: Path, file: str) -> None:
    graph = fe.load(corpus / file)
    fused = fe.fuse(graph, RULES)
    written = fe.dumps(fused)
    again = fe.loads(written)
    assert list(again.nodes) == list(range(len(again)))
    assert fe.difference(fused, again) is None
    assert fe.dumps(fe.unfuse(again)) == fe.dumps(graph)
    assert fe.equal(graph, fe.unfuse(fused))
    assert fe.dumps(fe.fuse(again, RULES)) == written
    assert all_params(fe.unfuse(again)) == all_params(graph)


def test_the_rules_find_something_in_the_corpus(corpus: Path) -> None:
    results: dict[str, int] = {}
    for file in FILES:
        for fusion in fused_with(RULES, corpus / file).graph["fusions"]:
            results[fusion.result] = results.get(fusion.result, 0) + 1
    assert sum(results.values()) > 500
    assert {"ConvActivation", "DepthwiseActivation", "FullyConnectedActivation", "AddActivation"} <= set(results)


@each_file
def test_what_is_fused_parses_where_the_original_did(
    real_armnn: RealArmnn, corpus: Path, tmp_path: Path, file: str
) -> None:
    entry = BY_FILE[file]
    fused = fused_with(RULES, corpus / file)
    fe.save(fused, tmp_path / "fused.armnn")
    release = release_of(entry)
    if entry["run"][release].get("parses", True):
        layers = real_armnn.parse(tmp_path / "fused.armnn", release)["layers"]
        stand_ins = sum(read_recipe(fused, key) is not None for key in fused)
        foreign = entry["layers"].get("StandIn", 0)
        assert layers.get("StandIn", 0) == stand_ins + foreign
    newer = entry["run"].get("23.08", {})
    if newer.get("parses", True) and newer and not member_depthwise(fused):
        assert real_armnn.parse(tmp_path / "fused.armnn", "23.08")["ok"]


@each_file
def test_groups_run_with_the_same_bits(real_armnn: RealArmnn, corpus: Path, tmp_path: Path, file: str) -> None:
    entry = BY_FILE[file]
    graph = fe.load(corpus / file)
    grouped = fe.fuse(graph, GROUPS)
    fe.save(grouped, tmp_path / "grouped.armnn")
    assert fe.dumps(fe.unfuse(fe.load(tmp_path / "grouped.armnn"))) == fe.dumps(graph)
    if not grouped.graph["fusions"]:
        return
    for release in entry["run"]:
        before = entry["run"][release]
        if before["runs"]:
            after = real_armnn.run(tmp_path / "grouped.armnn", release).digests
            assert stable(file, after) == stable(file, digests(before))


@pytest.mark.skipif(shutil.which("flatc") is None, reason="flatc (Debian: flatbuffers-compiler) is not installed")
def test_flatc_decodes_everything_that_is_written(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "armnn.fbs").write_text((resources.folder("schema") / "current.fbs").read_text("utf-8"))
    counts = {}
    for number, file in enumerate(FILES):
        fused = fused_with(RULES, corpus / file)
        # names that are no UTF-8 cannot be JSON
        if all(node["name"].isprintable() or node["name"].isascii() for node in fused.nodes.values()):
            fe.save(fused, tmp_path / f"f{number}.bin")
            counts[f"f{number}.json"] = len(fused)
    files = [name.replace(".json", ".bin") for name in counts]
    subprocess.run(
        ["flatc", "--json", "--raw-binary", "--strict-json", "-o", ".", "armnn.fbs", "--", *files],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert {name: len(json.loads((tmp_path / name).read_text())["layers"]) for name in counts} == counts
