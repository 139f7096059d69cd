"""Pages in a real browser: they render, search finds, a click shows parameters, and nothing is asked of a network.

Chromium is the system's own (``chromium`` or Chrome, or what ``$CHROMIUM`` names), without a window.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.console import printable
from fusion_engine.reports import rendered
from tests.support.hostile import NAMES, hostile_fused, hostile_network
from tests.support.real_armnn import SHARED

playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright: pip install playwright")

pytestmark = pytest.mark.xdist_group("browser")

ROOT = Path(__file__).parents[2]
SSD = SHARED / "corpus" / "public" / "ssd_mobilenet_v3_small_coco_2019_08_14.armnn"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    names = (os.environ.get("CHROMIUM"), "chromium", "google-chrome", "chrome")
    program = next((found for name in names if name and (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no Chromium (the command chromium, or $CHROMIUM)")
    if shutil.which("dot") is None:
        pytest.skip("there is no Graphviz (the command dot)")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@dataclass
class Visit:
    """A page that is open, and what it complained of and asked for so far."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, place: str) -> str:
        found: str = self.page.inner_text(place)
        return found

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def seek(self, text: str) -> None:
        self.page.fill("#search", text)

    def shown(self, selector: str) -> bool:
        """Whether the first such element lies within what is seen of its pane."""
        self.settle()
        return bool(
            self.page.evaluate(
                """selector => {
                    const one = document.querySelector(selector), a = one.getBoundingClientRect();
                    const b = one.closest(".canvas").getBoundingClientRect();
                    return a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
                }""",
                selector,
            )
        )

    def settle(self) -> None:
        """Wait until what was asked for is painted."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def transform(self, side: int) -> str:
        self.settle()
        found: str = self.page.get_attribute(f'.pane[data-side="{side}"] .world', "transform")
        return found


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens a file; at the end, no page may have complained or asked for anything but its file."""
    visits: list[Visit] = []
    context = browser.new_context(viewport={"width": 1300, "height": 800}, offline=True)

    def go(file: Path) -> Visit:
        page = context.new_page()
        one = Visit(page)
        page.on("console", lambda message: one.complaints.append(message.text))
        page.on("pageerror", lambda error: one.complaints.append(str(error)))
        page.on("dialog", lambda dialog: one.complaints.append(dialog.message))
        page.on("request", lambda request: one.requests.append(request.url))
        page.goto(file.as_uri())
        visits.append(one)
        return one

    yield go
    for one in visits:
        assert one.complaints == []
        assert len(one.requests) == 1
        assert one.requests[0].startswith("file://")
    context.close()


@pytest.fixture(scope="module")
def diff(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits network before and after both rule files."""
    graph = fe.load(ROOT / "examples" / "models" / "digits.armnn")
    file = tmp_path_factory.mktemp("pages") / "digits.html"
    fe.draw_diff(graph, fe.fuse(graph, fe.load_rules("armnn", "npu")), file)
    return file


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pages") / "digits.html"
    fe.draw(fe.load(ROOT / "examples" / "models" / "digits.armnn"), file)
    return file


def box(side: int, key: int) -> str:
    return f"#s{side}-{key}"


def test_it_renders(visit: Any, single: Path) -> None:
    seen = visit(single)
    graph = fe.load(ROOT / "examples" / "models" / "digits.armnn")
    assert seen.page.title() == "digits"
    assert seen.page.locator(".box").count() == len(graph)
    assert seen.page.locator(".arrow").count() == graph.number_of_edges()
    assert seen.page.text_content(f"{box(0, 1)} > .title") == "Convolution2d"
    assert seen.shown(box(0, 0))
    panel = seen.text("#panel")
    assert f"Layers\t{len(graph)}" in panel
    assert seen.page.locator(".view").count() == 0


def test_a_click_shows_parameters(visit: Any, single: Path) -> None:
    seen = visit(single)
    seen.page.click(box(0, 1))
    panel = seen.text("#panel")
    assert panel.startswith("Convolution2d")
    for line in ("conv0", "layer 1", "padLeft\t1", "dataLayout\tNHWC", "biasEnabled\tfalse", "16×3×3×1 Float32"):
        assert line in panel
    assert seen.page.locator(".box.on").count() == 1
    assert seen.page.locator(".arrow.lit").count() == 2
    seen.page.click("#panel a:has-text('0 image')")
    assert seen.text("#panel").startswith("Input\n")
    seen.press("Escape")
    assert "Keys" in seen.page.text_content("#panel")
    assert seen.page.locator(".on, .lit, .mate").count() == 0


def test_hovering_tells_names_shapes_and_constants(visit: Any, single: Path) -> None:
    hint = visit(single).page.text_content(f"{box(0, 1)} > title")
    assert hint == "1: Convolution2d\nconv0\nweights 16×3×3×1 Float32\noutput 0: 1×8×8×16 Float32"


def test_search_finds(visit: Any, single: Path) -> None:
    seen = visit(single)
    seen.press("/")
    seen.page.keyboard.type("batchnorm conv3")
    assert seen.text("#count") == "1"
    assert seen.text("#hits li").split("\n")[0].startswith("5")
    seen.press("Enter")
    assert seen.text("#count") == "1 of 1"
    assert seen.text("#panel").startswith("BatchNormalization")
    assert seen.shown(".box.on")
    seen.seek("relu")
    assert int(seen.text("#count")) == 4
    assert seen.page.locator(".box.hit").count() == 4
    seen.page.focus("#search")
    chosen = []
    for _ in range(5):
        seen.press("ArrowDown")
        chosen.append(seen.page.get_attribute(".box.on", "data-layer"))
    assert len(set(chosen[:4])) == 4
    assert chosen[4] == chosen[0]
    seen.seek("#7")
    assert seen.text("#count") == "1"
    seen.seek("no such layer")
    assert seen.text("#count") == "none"
    assert not seen.page.is_visible("#hits")
    seen.press("Escape")
    assert seen.page.input_value("#search") == ""


def test_the_keyboard_does_it_all(visit: Any, single: Path) -> None:
    seen = visit(single)
    seen.page.focus(".canvas")
    seen.press("ArrowDown")
    assert seen.page.get_attribute(".canvas", "aria-activedescendant") == "s0-0"
    seen.press("ArrowDown", "ArrowDown")
    assert seen.text("#panel").startswith("BatchNormalization")
    assert seen.page.text_content("#said").startswith("layer 2, BatchNormalization conv0/batch_norm")
    seen.press("ArrowUp")
    assert seen.page.get_attribute(".box.on", "data-layer") == "1"
    seen.press("End")
    assert seen.text("#panel").startswith("Output")
    assert seen.shown(".box.on")
    seen.press("Enter")
    assert seen.page.evaluate("document.activeElement.id") == "panel"
    before = seen.transform(0)
    seen.press("+")
    assert seen.transform(0) != before
    seen.press("0")
    whole = seen.transform(0)
    assert seen.shown(box(0, 0))
    assert seen.shown(".box.on")
    seen.press("-", "0")
    assert seen.transform(0) == whole


def test_zoom_and_pan_by_mouse(visit: Any, single: Path) -> None:
    seen = visit(single)
    start = seen.transform(0)
    seen.page.mouse.move(300, 400)
    seen.page.mouse.wheel(0, 120)
    down = seen.transform(0)
    assert y_of(down) == pytest.approx(y_of(start) - 120)
    assert scale_of(down) == scale_of(start)
    seen.page.keyboard.down("Control")
    seen.page.mouse.wheel(0, -100)
    seen.page.keyboard.up("Control")
    closer = seen.transform(0)
    assert scale_of(closer) > scale_of(start)
    seen.page.mouse.down()
    seen.page.mouse.move(340, 430, steps=4)
    seen.page.mouse.up()
    assert y_of(seen.transform(0)) == pytest.approx(y_of(closer) + 30)
    assert seen.page.locator(".on").count() == 0
    seen.page.click("#whole")
    assert seen.shown(box(0, 0))


def y_of(transform: str) -> float:
    return float(transform.split(")")[0].split(" ")[1])


def scale_of(transform: str) -> float:
    return float(transform.split("scale(")[1].rstrip(")"))


def test_before_and_after(visit: Any, diff: Path) -> None:
    seen = visit(diff)
    assert seen.text("h2 >> nth=0") == "Before"
    panel = seen.text("#panel")
    assert "batch-norm\n3 fusions" in panel
    seen.press("n")
    assert seen.text("#panel").startswith("Convolution2d")
    panel = seen.text("#panel")
    assert "batch-norm → Convolution2d" in panel
    assert "ConvActivation → ConvActivation" in panel
    mates = '.pane[data-side="{}"] .mate'
    assert seen.page.locator(mates.format(0)).count() == 3
    assert seen.page.locator(mates.format(1)).count() == 1
    assert seen.shown(mates.format(1))
    seen.page.click("#panel a:has-text('ConvActivation:conv0/relu')")
    assert "Made from" in seen.page.text_content("#panel")
    assert seen.page.get_attribute(".box.on", "id") == "s1-3"
    seen.press("1")
    assert [pane.is_visible() for pane in seen.page.locator(".pane").all()] == [True, False]
    seen.press("2")
    assert [pane.is_visible() for pane in seen.page.locator(".pane").all()] == [False, True]
    seen.page.click("text=Both")
    assert [pane.is_visible() for pane in seen.page.locator(".pane").all()] == [True, True]


def test_panes_move_together(visit: Any, diff: Path) -> None:
    seen = visit(diff)
    graph = fe.load(ROOT / "examples" / "models" / "digits.armnn")

    def apart(key: int) -> float:
        """Pixels by which a layer lies lower before than after."""
        seen.settle()
        tops = [seen.page.locator(box(side, key)).bounding_box()["y"] for side in (0, 1)]
        return float(tops[0] - tops[1])

    (last,) = graph.graph["outputs"]
    assert apart(0) == pytest.approx(0, abs=1)
    assert apart(last) > 100
    seen.page.mouse.move(200, 400)
    seen.page.mouse.wheel(0, 900)
    assert apart(last) == pytest.approx(0, abs=30)
    assert apart(0) < -100
    seen.page.uncheck("#linked")
    moved = seen.transform(1)
    seen.page.mouse.move(200, 400)
    seen.page.mouse.wheel(0, -700)
    assert seen.transform(1) == moved


def test_refusals_are_told_where_they_were(visit: Any, tmp_path: Path) -> None:
    graph = fe.load(ROOT / "examples" / "models" / "digits.armnn")
    fused = fe.fuse(graph, fe.FusingRule("Activation", into="Alone", name="alone"))
    refusal = fe.Refusal("picky", fe.LayerRef(1, "conv0", "Convolution2d"), "it is <i>too</i> small")
    fused.graph["refusals"] = (refusal,)
    fe.draw_diff(graph, fused, tmp_path / "x.html")
    seen = visit(tmp_path / "x.html")
    assert "picky at 1 conv0: it is <i>too</i> small" in seen.text("#panel")
    seen.page.click(box(0, 1))
    assert "picky: it is <i>too</i> small" in seen.text("#panel")


def test_texts_fit_their_boxes(visit: Any, tmp_path: Path) -> None:
    graph = fe.load(SSD) if SSD.exists() else fe.load(ROOT / "examples" / "models" / "mobilenet.armnn")
    fe.draw(fe.fuse(graph, fe.load_rules("armnn", "npu")), tmp_path / "x.html")
    wide = visit(tmp_path / "x.html").page.evaluate(
        """() => [...document.querySelectorAll(".box")].flatMap(box => {
            const {x, width} = box.querySelector("rect").getBBox();
            return [...box.querySelectorAll("text")]
                .filter(text => text.getBBox().x + text.getBBox().width > x + width).map(text => text.textContent);
        })"""
    )
    assert wide == []


def test_groups_are_gone_through_in_the_order_of_the_network(visit: Any, diff: Path) -> None:
    seen = visit(diff)
    found = []
    for _ in range(5):
        seen.press("n")
        found.append(int(seen.page.get_attribute(".box.on", "data-layer")))
    assert found[:4] == sorted(set(found[:4]))
    assert found[4] == found[0]
    seen.press("p")
    assert int(seen.page.get_attribute(".box.on", "data-layer")) == found[3]


def test_hostile_names_are_text(visit: Any, tmp_path: Path) -> None:
    fe.draw_diff(hostile_network(), hostile_fused(), tmp_path / "x.html", title=NAMES[1])
    seen = visit(tmp_path / "x.html")
    assert seen.page.title() == NAMES[1]
    assert seen.page.evaluate("document.scripts.length") == 2
    assert seen.page.locator("img, iframe, object, body table table, #panel svg").count() == 0
    seen.page.focus(".canvas")
    names = []
    for _ in range(len(NAMES) + 1):
        seen.press("ArrowDown")
        names.append(seen.page.text_content("#panel .name >> nth=0"))
    assert names == [printable(name) for name in (NAMES[0], *NAMES)]
    for name in NAMES[:3]:
        seen.seek(name)
        assert seen.text("#count") not in ("", "none")
    assert seen.page.evaluate("document.scripts.length") == 2
    assert seen.page.title() == NAMES[1]


@pytest.mark.skipif(not SSD.exists(), reason=f"there is no {SSD}")
def test_a_network_of_473_layers(visit: Any, tmp_path: Path) -> None:
    graph = fe.load(SSD)
    fe.draw_diff(graph, fe.fuse(graph, fe.load_rules("armnn", "npu")), tmp_path / "ssd.html")
    seen = visit(tmp_path / "ssd.html")
    boxes = seen.page.locator('.pane[data-side="0"] .box').count()
    assert boxes == sum(node["type"] != "Constant" for node in graph.nodes.values())
    seen.seek("BoxPredictor_5")
    seen.page.focus("#search")
    seen.press("Enter")
    assert seen.shown(".box.on")
    took = seen.page.evaluate(
        """async () => {
            const canvas = document.querySelector(".canvas"), start = performance.now();
            for (let n = 0; n < 20; n++) {
                canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: 200, cancelable: true }));
                await new Promise(requestAnimationFrame);
            }
            return (performance.now() - start) / 20;
        }"""
    )
    assert took < 500, "milliseconds a frame, of a machine that may be busy"


# The page of a report


def report(case: str, folder: Path) -> Path:
    """The page of a golden report."""
    text = (ROOT / "tests" / "golden" / "reports" / f"{case}.json").read_text("ascii")
    (folder / "report.html").write_text(rendered(json.loads(text), ".html"), "utf-8")
    return folder / "report.html"


def test_hostile_names_in_a_report(visit: Any, tmp_path: Path) -> None:
    seen = visit(report("hostile", tmp_path))
    assert seen.page.evaluate("document.scripts.length") == 0
    assert seen.page.locator("img, b, iframe, form").count() == 0
    assert seen.text("#models tbody tr:nth-child(1) .name").startswith(
        "in/\"'><img src=x onerror=alert(1)>\\n\\x1b[31m\\xff\\u202e]]>&.armnn"
    )
    assert '<script>alert("1")</script>' in seen.text("#rules")
    assert seen.page.evaluate("getComputedStyle(document.querySelector('td.number')).textAlign") == "right"


def test_the_models_of_a_report_are_chosen(visit: Any, tmp_path: Path) -> None:
    seen = visit(report("gate", tmp_path))

    def shown() -> list[str]:
        rows = seen.page.locator("#models tbody tr:visible .name").all_inner_texts()
        return [row.split("\n")[0] for row in rows]

    assert shown() == ["zoo/a.armnn", "zoo/b.armnn", "zoo/c.armnn", "zoo/d.armnn"]
    seen.page.check("#show-failed")
    assert shown() == ["zoo/b.armnn", "zoo/c.armnn"]
    seen.page.check("#show-refused")
    assert shown() == ["zoo/a.armnn"]
    seen.page.check("#show-unchanged")
    assert shown() == []
    seen.page.check("#show-all")
    seen.page.click("#failures a >> nth=1")
    assert seen.page.evaluate("document.querySelector(':target .name').innerText").startswith("zoo/c.armnn")
    seen.page.click("#model-0 summary")
    assert "unverified: conv-relu at layer 2 'relu': the opaque layer has no meaning here" in seen.text("#model-0")
