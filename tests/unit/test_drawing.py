"""Pictures: what is shaded, what stands in boxes, where things go, and files that nothing can break out of."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.console import printable
from fusion_engine.drawing.details import details
from fusion_engine.drawing.dot import dot_file
from fusion_engine.drawing.files import suffix_of
from fusion_engine.drawing.layout import Frame, arrange
from fusion_engine.drawing.picture import FAMILIES, Picture, draw_boxes, shortened
from fusion_engine.drawing.shading import shade
from fusion_engine.drawing.svg import STRIPES, colours
from fusion_engine.engine import Fusion, LayerRef
from fusion_engine.network import Network
from fusion_engine.schema import schema
from tests.support.hostile import NAMES, hostile_fused, hostile_network
from tests.support.nets import Net

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="there is no Graphviz (the command dot)")

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def network(form: str = "constant") -> Network:
    """data -> conv -> norm -> relu -> prob."""
    net = Net(form=form)
    x = net.input((1, 4, 4, 1), name="data")
    conv = net.conv(x, np.ones((2, 1, 1, 1)), [0.5, 0.5], name="conv")
    norm = net.batch_norm(conv, [4, 3], [1, -1], [0.5, 0.25], [3, 8], eps=1.0, name="norm")
    net.output(net.activation(norm, name="relu"), name="prob")
    return net.graph


def rules() -> list[fe.FusingRule]:
    return [
        fe.FusingRule("BatchNormalization{Convolution2d}", fold="batch-norm", name="norm-fold"),
        fe.FusingRule("Activation{Convolution2d}", into="ConvRelu", name="conv-relu", code=5),
    ]


def key_of(graph: Network, name: str) -> int:
    (key,) = (key for key in graph if graph.nodes[key]["name"] == name)
    return key


def fusion(rule: str, *keys: int) -> Fusion:
    return Fusion(rule, rule.title(), tuple(LayerRef(key, f"n{key}", "Floor") for key in keys))


# Shading


def test_fusions_that_share_a_layer_are_one_group() -> None:
    made = (fusion("a", 1, 2), fusion("b", 5, 6), fusion("c", 3, 2), fusion("b", 7, 8), fusion("a", 8, 5))
    shading = shade(fe.new_network(), made)
    assert [group.layers for group in shading.groups] == [(1, 2, 3), (5, 6, 7, 8)]
    assert [group.fusions for group in shading.groups] == [(made[0], made[2]), (made[1], made[3], made[4])]
    assert [(group.rule, group.result) for group in shading.groups] == [("c", "C"), ("a", "A")]
    assert shading.rules == ("a", "b", "c")
    assert shading.group_of == {1: 0, 2: 0, 3: 0, 5: 1, 6: 1, 7: 1, 8: 1}
    assert [shading.colour_of(key) for key in (1, 2, 3, 4, 5, 6, 8)] == [0, 2, 2, None, 0, 1, 0]


def test_many_fusions_of_one_group_in_little_time() -> None:
    made = tuple(fusion("chain", key, key + 1) for key in range(20000))
    assert [len(group.layers) for group in shade(fe.new_network(), made).groups] == [20001]


def test_opaque_layers_and_groups_of_a_file_are_shaded() -> None:
    opaque = fe.loads(fe.dumps(fe.fuse(network(), rules())))
    shading = shade(opaque)
    assert [(group.rule, group.result) for group in shading.groups] == [("conv-relu", "ConvRelu")]
    assert shading.groups[0].layers == (key_of(opaque, "ConvRelu:relu"),)

    grouped = fe.loads(fe.dumps(fe.fuse(network(), fe.FusingRule("BatchNormalization{Convolution2d}", group="Pair"))))
    shading = shade(grouped)
    assert [(group.rule, group.result) for group in shading.groups] == [("Pair", "Pair")]
    assert sorted(grouped.nodes[key]["type"] for key in shading.groups[0].layers) == [
        "BatchNormalization",
        "Convolution2d",
    ]


# Boxes


def boxes_of(picture: Picture) -> dict[int, tuple[str, ...]]:
    return {box.key: (box.title, *box.lines) for box in picture.boxes}


def test_constants_stand_in_the_boxes_of_their_readers() -> None:
    graph = network()
    found = boxes_of(draw_boxes(graph, shade(graph)))
    assert found[key_of(graph, "conv")] == (
        "Convolution2d",
        "conv",
        "weights 2×1×1×1 Float32",
        "bias 2 Float32",
        "→ 1×4×4×2 Float32",
    )
    assert found[key_of(graph, "relu")] == ("Activation · ReLu", "relu", "→ 1×4×4×2 Float32")
    assert found[key_of(graph, "prob")] == ("Output", "prob")
    assert len(found) == 5


def test_a_constant_that_is_an_output_is_a_box() -> None:
    net = Net()
    value = net.constant([1.0, 2.0], name="value")
    net.output(value, name="y")
    spare = net.constant([3.0], name="spare")
    picture = draw_boxes(net.graph, shade(net.graph))
    assert {value, spare} <= set(boxes_of(picture))
    assert [(arrow.source, arrow.target) for arrow in picture.arrows] == [(value, key_of(net.graph, "y"))]


def test_every_connection_is_an_arrow() -> None:
    net = Net()
    x = net.input((1, 4), name="x")
    split = net.splitter(x, 1, [2, 2], name="split")
    twice = net.addition((split, 1), (split, 1), name="twice")
    net.output(net.addition(twice, (split, 0), name="sum"), name="y")
    arrows = draw_boxes(net.graph, shade(net.graph)).arrows
    found = [(a.source, a.source_slot, a.target, a.target_slot) for a in arrows if split in (a.source, a.target)]
    total = key_of(net.graph, "sum")
    assert sorted(found) == sorted([(x, 0, split, 0), (split, 1, twice, 0), (split, 1, twice, 1), (split, 0, total, 1)])
    assert arrows[0].hint == f"1×4 Float32\noutput 0 of layer {x} to input 0 of layer {split}"


def test_an_opaque_layer_lists_what_it_was_made_from() -> None:
    graph = fe.fuse(network(), rules())
    (lines,) = (found for found in boxes_of(draw_boxes(graph, shade(graph))).values() if found[0] == "ConvRelu")
    assert lines == ("ConvRelu", "ConvRelu:relu", "• Convolution2d", "• Activation", "→ 1×4×4×2 Float32")


def test_areas_hold_groups_of_several_boxes() -> None:
    before = network()
    after = fe.fuse(before, rules())
    shading = shade(before, after.graph["fusions"])
    (area,) = draw_boxes(before, shading).areas
    assert [before.nodes[key]["name"] for key in area.boxes] == ["conv", "norm", "relu"]
    assert (area.label, area.hint, area.colour) == (
        "conv-relu → ConvRelu",
        "norm-fold → Convolution2d\nconv-relu → ConvRelu",
        1,
    )
    assert draw_boxes(after, shading).areas == ()


def test_details_tell_all_of_a_layer() -> None:
    graph = fe.fuse(network("member"), rules())
    key = key_of(graph, "ConvRelu:relu")
    found = details(graph)[key]
    assert (found["type"], found["title"], found["name"]) == ("StandIn", "ConvRelu", "ConvRelu:relu")
    assert found["inputs"][0] == ["input 0", key_of(graph, "data"), 0, "1×4×4×1 Float32"]
    assert found["outputs"] == [["1×4×4×2 Float32", [[key_of(graph, "prob"), "input 0"]]]]
    assert found["params"] == [["numInputs", str(len(found["inputs"])), False], ["numOutputs", "1", False]]
    assert found["recipe"]["rule"] == "conv-relu"
    assert found["recipe"]["code"] == 5
    assert [layer[:2] for layer in found["recipe"]["layers"]] == [["Activation", "relu"], ["Convolution2d", "norm"]]
    plain = network("member")
    conv = details(plain)[key_of(plain, "conv")]
    assert conv["constants"] == [["weights", "2×1×1×1 Float32", "1.0, 1.0"], ["biases", "2 Float32", "0.5, 0.5"]]
    params = {name: (value, default) for name, value, default in conv["params"]}
    assert params["biasEnabled"] == ("true", False)
    assert params["padLeft"] == ("0", True)


def test_families_name_layer_types() -> None:
    known = set(schema().layers) | set(schema("seed").layers)
    for name, kinds in FAMILIES.items():
        assert set(kinds) <= known, name
    assert set(STRIPES) == {*FAMILIES, "other"}
    every = [kind for kinds in FAMILIES.values() for kind in kinds]
    assert len(every) == len(set(every))


def test_colours_of_many_rules_are_told_apart() -> None:
    assert len({colours(rule)[2] for rule in range(40)}) == 40
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for rule in range(40) for colour in colours(rule))


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [("", 4, ""), ("abcd", 4, "abcd"), ("abcdef", 5, "ab…ef"), ("表示表示", 6, "表…示"), ("表示表示", 8, "表示表示")],
)
def test_shortened(text: str, most: int, short: str) -> None:
    assert shortened(text, most) == short


# Places


@needs_dot
@pytest.mark.parametrize("graph", [network(), fe.fuse(network(), rules()), hostile_network()])
def test_boxes_lie_apart_and_flow_down(graph: Network) -> None:
    picture = draw_boxes(graph, shade(graph))
    layout = arrange(picture)
    frames = dict(zip((box.key for box in picture.boxes), layout.boxes, strict=True))
    for box, frame in zip(picture.boxes, layout.boxes, strict=True):
        assert (frame.width, frame.height) == (box.width, box.height)
        assert 0 <= frame.x <= layout.width - frame.width + 1
        assert 0 <= frame.y <= layout.height - frame.height + 1
    keys = list(frames)
    assert not any(overlap(frames[a], frames[b]) for n, a in enumerate(keys) for b in keys[:n])
    for arrow, route in zip(picture.arrows, layout.routes, strict=True):
        assert frames[arrow.source].y + frames[arrow.source].height < frames[arrow.target].y
        assert route is not None
        assert len(route.points) % 3 == 1
        assert route.tip[1] == pytest.approx(frames[arrow.target].y, abs=2)


@needs_dot
def test_areas_lie_around_their_boxes() -> None:
    before = network()
    picture = draw_boxes(before, shade(before, fe.fuse(before, rules()).graph["fusions"]))
    layout = arrange(picture)
    (area,) = layout.areas
    for box, frame in zip(picture.boxes, layout.boxes, strict=True):
        assert overlap(frame, area) == (box.key in picture.areas[0].boxes)
        if box.key in picture.areas[0].boxes:
            assert area.y + 14 < frame.y
            assert area.x < frame.x
            assert frame.x + frame.width < area.x + area.width


def overlap(a: Frame, b: Frame) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


@needs_dot
def test_an_empty_network_is_drawn(tmp_path: Path) -> None:
    for suffix in ("html", "svg", "dot"):
        fe.draw(fe.new_network(), tmp_path / f"x.{suffix}")
        assert (tmp_path / f"x.{suffix}").stat().st_size > 10


# Files


@needs_dot
def test_the_same_whatever_the_hash_seed(tmp_path: Path) -> None:
    text = (
        "import os, sys, fusion_engine as fe; g = fe.load('examples/models/digits.armnn'); os.chdir(sys.argv[1]); "
        "f = fe.fuse(g, fe.load_rules('armnn', 'npu')); fe.draw_diff(g, f, 'diff.html'); "
        "[fe.draw(f, f'x.{suffix}') for suffix in ('html', 'svg', 'dot')]"
    )
    digests = set()
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", text, str(folder)], check=True, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT
        )
        files = sorted(folder.iterdir())
        digests.add(tuple((file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files))
        assert len(files) == 4
    assert len(digests) == 1


class Page(HTMLParser):
    """What a browser would see of a page: its elements, and the texts of some."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        self.texts.setdefault(tag, []).append("")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


@needs_dot
def test_nothing_breaks_out_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / f"{'<img src=x>'}.html"
    fe.draw_diff(hostile_network(), hostile_fused(), path)
    text = path.read_text("utf-8")
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 2
    assert not {"img", "iframe", "object", "table", "b", "base", "form"} & set(tags)
    names = {name for _, attributes in page.tags for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "src", "srcset", "action")}
    assert [a["href"] for _, a in page.tags if "href" in a] == ["data:,"]
    data = json.loads(page.texts["script"][0])
    assert {layer["name"] for layer in data["sides"][0]["layers"]} >= {printable(name) for name in NAMES}
    assert data["rules"][0]["name"] == NAMES[2]


@needs_dot
def test_the_page_allows_its_own_script_and_style_only(tmp_path: Path) -> None:
    fe.draw(network(), tmp_path / "x.html")
    page = Page((tmp_path / "x.html").read_text("utf-8"))
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == "'none'"
    assert parts["script-src"] == f"'{digest(page.texts['script'][1])}'"
    assert parts["style-src"] == f"'{digest(page.texts['style'][0])}'"
    assert "://" not in re.sub(r"http://www\.w3\.org/2000/svg", "", (tmp_path / "x.html").read_text("utf-8"))


def digest(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@needs_dot
def test_nothing_breaks_out_of_an_svg(tmp_path: Path) -> None:
    fe.draw(hostile_fused(), tmp_path / "x.svg", title=NAMES[1])
    root = ElementTree.fromstring((tmp_path / "x.svg").read_bytes())
    tags = {element.tag for element in root.iter()}
    assert tags == {f"{SVG}{tag}" for tag in ("svg", "g", "rect", "path", "text", "title")}
    hints = "\n".join(title.text or "" for title in root.iter(f"{SVG}title"))
    for name in NAMES:
        assert printable(name) in hints
    boxes = [element for element in root.iter(f"{SVG}g") if "box" in element.get("class", "")]
    assert len(boxes) == len(NAMES) + 3


@needs_dot
def test_nothing_breaks_out_of_dot(tmp_path: Path) -> None:
    graph = hostile_fused()
    fe.draw(graph, tmp_path / "x.dot", title=NAMES[6])
    done = subprocess.run(["dot", "-Tjson"], input=(tmp_path / "x.dot").read_bytes(), capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    picture = draw_boxes(graph, shade(graph))
    nodes = {one["name"]: one for one in found["objects"]}
    assert set(nodes) == {f"layer_{box.key}" for box in picture.boxes}
    assert len(found["edges"]) == len(picture.arrows)
    for box in picture.boxes:
        drawn = [op["text"] for op in nodes[f"layer_{box.key}"]["_ldraw_"] if op["op"] == "T"]
        assert drawn == [box.title, *box.lines]


def test_a_dot_file_needs_no_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fe.draw(network(), tmp_path / "x.dot")
    with pytest.raises(fe.OutputError, match=r"no command dot: install the package graphviz.*or draw to a \.dot file"):
        fe.draw(network(), tmp_path / "x.svg")
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize("name", ["x.png", "x", "html", "x.html.gz"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(fe.OutputError, match=r"a picture is a file named \*\.html, \*\.svg or \*\.dot"):
        fe.draw(network(), tmp_path / name)
    with pytest.raises(fe.OutputError, match="picture"):
        fe.draw_diff(network(), network(), tmp_path / name)
    assert suffix_of("A.HTML") == ".html"


@pytest.mark.parametrize(
    ("answer", "said"), [("exit 3", "it said nothing"), ("echo out of ideas >&2; exit 1", "out of")]
)
def test_a_graphviz_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, said: str) -> None:
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(fe.OutputError, match=f"Graphviz failed on the layout of 5 layers: {said}"):
        fe.draw(network(), tmp_path / "x.svg")


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fe.FuseError, match=r"a network is a networkx\.DiGraph, not str"):
        fe.draw("model.armnn", tmp_path / "x.dot")  # type: ignore[arg-type]
    graph = network()
    graph.nodes[key_of(graph, "relu")]["params"] = fe.FrozenDict(nonsense=1)
    with pytest.raises(fe.ModelError, match="cannot be drawn"):
        fe.draw(graph, tmp_path / "x.html")
    assert not list(tmp_path.iterdir())


def test_drawing_leaves_the_network_as_it_was(tmp_path: Path) -> None:
    graph = fe.fuse(network(), rules())
    before = fe.dumps(graph)
    fe.draw(graph, tmp_path / "x.dot")
    assert fe.dumps(graph) == before


def test_dot_text() -> None:
    graph = network()
    picture = draw_boxes(graph, shade(graph, fe.fuse(graph, rules()).graph["fusions"]))
    text = dot_file(picture, "A title")
    conv, norm, relu = (key_of(graph, name) for name in ("conv", "norm", "relu"))
    assert 'graph [label="A title"' in text
    assert f'layer_{relu} [label="Activation · ReLu\\lrelu\\l→ 1×4×4×2 Float32\\l"' in text
    assert f"layer_{conv} -> layer_{norm} [" in text
    assert 'subgraph cluster_0 { graph [label="conv-relu → ConvRelu"' in text
    assert f"layer_{conv}; layer_{norm}; layer_{relu} }}" in text
