"""A page that shows one network, or two side by side: one HTML file that needs nothing else.

A Content-Security-Policy in the page lets run the page's own script and style, told by their SHA-256,
and nothing else: no inline handler, no address. The script puts text into the page as text only.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any

from fusion_engine import __version__
from fusion_engine.console import printable
from fusion_engine.drawing.details import details
from fusion_engine.drawing.layout import Frame, Layout
from fusion_engine.drawing.picture import Picture
from fusion_engine.drawing.shading import Shading
from fusion_engine.drawing.svg import MARGIN, STRIPES, colours, svg_body
from fusion_engine.engine import Refusal
from fusion_engine.network import Network

__all__ = ["Side", "page"]


@dataclass(frozen=True)
class Side:
    """A network as a page shows it: what it is called there, the network, its picture and where that goes."""

    name: str
    graph: Network
    picture: Picture
    layout: Layout


def page(title: str, sides: Sequence[Side], shading: Shading, refusals: Sequence[Refusal] = ()) -> str:
    """The HTML of a page.

    Parameters
    ----------
    title
        Shown at the top.
    sides
        One network, or what it was before and after.
    shading
        What was fused, for all sides.
    refusals
        Matches that were not rewritten, by layers of the first side.
    """
    script, style = (
        (resources.files("fusion_engine.drawing") / name).read_text("utf-8") for name in ("page.js", "page.css")
    )
    style += "".join(_rule_style(place) for place in range(len(shading.rules)))
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:"
    panes = "\n".join(_pane(side, place) for place, side in enumerate(sides))
    data = {
        "sides": [_side(side, shading) for side in sides],
        "groups": _groups(shading),
        "rules": _rules(shading),
        "refusals": [[printable(r.rule), r.layer.index, printable(r.reason)] for r in refusals],
        "stripes": STRIPES,
        "margin": MARGIN,
    }
    views = _views(sides) if len(sides) > 1 else ""
    return f"""<!DOCTYPE html>
<html lang="en" data-view="{"both" if len(sides) > 1 else "0"}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="fusion-engine {__version__}">
<link rel="icon" href="data:,">
<title>{escape(printable(title))}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1 title="{escape(printable(title))}">{escape(printable(title))}</h1>
<div id="finder">
<input id="search" type="search" placeholder="Search name, type, index, rule  ( / )" aria-label="Search layers"
 role="combobox" aria-expanded="false" aria-controls="hits" autocomplete="off" spellcheck="false">
<span id="count" role="status"></span>
<ul id="hits" role="listbox" aria-label="Layers found" hidden></ul>
</div>
{views}
<div class="buttons" role="group" aria-label="Zoom">
<button type="button" id="out" title="Zoom out ( - )" aria-label="Zoom out">−</button>
<button type="button" id="whole" title="Show the whole network ( 0 )">Whole</button>
<button type="button" id="in" title="Zoom in ( + )" aria-label="Zoom in">+</button>
</div>
</header>
<main>
{panes}
<aside id="panel" aria-label="Details" tabindex="-1"></aside>
</main>
<div id="said" class="unseen" aria-live="polite"></div>
<noscript><p>Without scripts, search, zoom and details are missing; hovering shows names and shapes.</p></noscript>
<script type="application/json" id="data">{_json(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def _views(sides: Sequence[Side]) -> str:
    views = [*((str(place), side.name) for place, side in enumerate(sides)), ("both", "Both")]
    buttons = "".join(
        f'<button type="button" class="view" data-view="{view}" title="{name} ( {key} )">{name}</button>'
        for key, (view, name) in enumerate(((view, escape(name)) for view, name in views), 1)
    )
    return (
        f'<div class="buttons" role="group" aria-label="What is shown">{buttons}</div>'
        '<label id="linking"><input type="checkbox" id="linked" checked> Move together</label>'
    )


def _pane(side: Side, place: int) -> str:
    body = "\n".join(svg_body(side.picture, side.layout, f"s{place}-"))
    name = escape(side.name)
    return f"""<section class="pane" data-side="{place}" aria-label="{name}">
<h2>{name}</h2>
<div class="canvas" tabindex="0" role="application" aria-label="{name}: arrow keys go from layer to layer">
<svg width="100%" height="100%" font-size="11" role="group"><g class="world">
{body}
</g></svg>
</div>
<canvas class="map" aria-hidden="true"></canvas>
</section>"""


def _side(side: Side, shading: Shading) -> dict[str, Any]:
    graph, told = side.graph, details(side.graph)
    constants = sum(layer["type"] == "Constant" for layer in told.values())
    keys = [*(box.key for box in side.picture.boxes), *side.picture.shown_in]
    frames = dict(zip((box.key for box in side.picture.boxes), side.layout.boxes, strict=True))
    families = {box.key: box.family for box in side.picture.boxes}
    layers = []
    for key in keys:
        found = {"key": key, **told[key], "group": shading.group_of.get(key)}
        if key in frames:
            found |= {"frame": _frame(frames[key]), "family": families[key], "colour": shading.colour_of(key)}
        else:
            found["inside"] = side.picture.shown_in[key]
        layers.append(found)
    return {
        "name": side.name,
        "width": side.layout.width,
        "height": side.layout.height,
        "dialect": graph.graph["dialect"],
        "constants": constants,
        "others": len(told) - constants,
        "layers": layers,
        "areas": [
            {"group": area.group, "colour": area.colour, "frame": _frame(frame)}
            for area, frame in zip(side.picture.areas, side.layout.areas, strict=True)
        ],
    }


def _frame(frame: Frame) -> list[float]:
    return [frame.x, frame.y, frame.width, frame.height]


def _groups(shading: Shading) -> list[dict[str, Any]]:
    return [
        {
            "rule": printable(group.rule),
            "result": printable(group.result),
            "layers": group.layers,
            "fusions": [
                [
                    printable(fusion.rule),
                    printable(fusion.result),
                    [[ref.index, printable(ref.type), printable(ref.name)] for ref in fusion.layers],
                ]
                for fusion in group.fusions
            ],
        }
        for group in shading.groups
    ]


def _rules(shading: Shading) -> list[dict[str, Any]]:
    fusions = [fusion for group in shading.groups for fusion in group.fusions]
    return [
        {
            "name": printable(rule),
            "fusions": sum(fusion.rule == rule for fusion in fusions),
            "groups": [n for n, group in enumerate(shading.groups) if any(f.rule == rule for f in group.fusions)],
            "colours": colours(place),
        }
        for place, rule in enumerate(shading.rules)
    ]


def _rule_style(place: int) -> str:
    _, ground, line = colours(place)
    return f".rule{place} i{{background:{ground};border-color:{line}}}\n.far .of{place}>rect{{fill:{line}}}\n"


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")


def _json(data: Any) -> str:
    """JSON that can stand in a script element: no character that HTML knows is left in it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
