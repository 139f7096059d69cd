"""Every network of the corpus is drawn, before and after the rules that ship: all its layers, all its connections."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

import fusion_engine as fe
from fusion_engine.drawing.layout import arrange
from fusion_engine.drawing.page import Side, page
from fusion_engine.drawing.picture import draw_boxes
from fusion_engine.drawing.shading import shade
from fusion_engine.drawing.svg import svg_file

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.skipif(shutil.which("dot") is None, reason="there is no Graphviz (the command dot)")
def test_every_network_of_the_corpus_is_drawn(corpus: Path) -> None:
    rules = fe.load_rules("armnn", "npu")
    files = sorted(corpus.rglob("*.armnn"))
    for file in files:
        before = fe.load(file)
        after = fe.fuse(before, rules)
        shading = shade(before, after.graph["fusions"])
        sides = []
        for graph in (before, after):
            picture = draw_boxes(graph, shading)
            layout = arrange(picture)
            sides.append(Side("side", graph, picture, layout))
            root = ElementTree.fromstring(svg_file(picture, layout, shading, file.stem))
            groups = [element.get("class", "").split(" ")[0] for element in root.iter(f"{SVG}g")]
            boxes = {box.key for box in picture.boxes}
            assert boxes | set(picture.shown_in) == set(graph), file
            assert groups.count("box") == len(boxes), file
            assert groups.count("arrow") == sum(
                len(slots) for source, _, slots in graph.edges(data="slots") if source in boxes
            ), file
            assert groups.count("area") == len(picture.areas), file
        assert page(file.stem, sides, shading).endswith("</html>\n"), file
    assert len(files) > 100
