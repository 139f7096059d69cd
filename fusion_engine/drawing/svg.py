"""A laid-out picture as SVG: by itself, or inside of a page."""

from __future__ import annotations

from collections.abc import Iterator
from colorsys import hls_to_rgb
from math import hypot
from xml.sax.saxutils import escape, quoteattr

from fusion_engine.console import printable
from fusion_engine.drawing.layout import LABEL_HEIGHT, Frame, Layout, Route
from fusion_engine.drawing.picture import LINE_HEIGHT, PADDING, TITLE_HEIGHT, Area, Box, Picture, shortened
from fusion_engine.drawing.shading import Shading

__all__ = ["MARGIN", "STRIPES", "colours", "number", "svg_body", "svg_file"]

MARGIN = 16
"""Pixels around a picture."""

STRIPES = {
    "end": "#5f6b7a",
    "weighted": "#2f6fb7",
    "activation": "#b5482f",
    "normal": "#3d8b57",
    "pool": "#7a4fa3",
    "shape": "#a07d1c",
    "opaque": "#1f2933",
    "other": "#8a94a0",
}
"""Colour of each family's stripe."""

_HUES = (212, 28, 140, 330, 265, 55, 180, 0, 90, 300)
"""Hues of the first rules, chosen to be told apart; later ones go round by the golden angle."""


def number(value: float) -> str:
    """A coordinate: one digit behind the point at most, never an exponent."""
    return f"{value:.1f}".removesuffix(".0")


def colours(rule: int) -> tuple[str, str, str]:
    """The colours of a rule by its place in `Shading.rules`: an area's ground, a box's ground, a line.

    Examples
    --------
    >>> colours(0)
    ('#ebf2fa', '#c2d7f0', '#266bba')
    """
    hue = _HUES[rule] if rule < len(_HUES) else (rule * 137.508 + 17) % 360
    return (_hex(hue, 0.6, 0.95), _hex(hue, 0.6, 0.85), _hex(hue, 0.66, 0.44))


def _hex(hue: float, saturation: float, lightness: float) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue / 360, lightness, saturation))


def svg_file(picture: Picture, layout: Layout, shading: Shading, title: str) -> str:
    """A whole SVG file, with a key to the colours; it has no script, and names no other file."""
    top = 48 + 20 * len(shading.rules)
    width = max(layout.width, 400) + 2 * MARGIN
    height = layout.height + top + MARGIN
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}" '
            f'viewBox="0 0 {number(width)} {number(height)}" font-size="11" '
            'font-family="system-ui, Helvetica, Arial, sans-serif">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{number(width)}" height="{number(height)}" fill="#fff"/>',
            f'<text x="{MARGIN}" y="28" font-size="15" font-weight="600">{escape(title)}</text>',
            *_legend(shading),
            f'<g transform="translate({MARGIN} {top})">',
            *svg_body(picture, layout),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _legend(shading: Shading) -> Iterator[str]:
    for place, rule in enumerate(shading.rules):
        _, ground, line = colours(place)
        y = 40 + 20 * place
        yield f'<rect x="{MARGIN}" y="{y}" width="14" height="14" rx="3" fill="{ground}" stroke="{line}"/>'
        yield f'<text x="{MARGIN + 22}" y="{y + 11}">{escape(shortened(printable(rule), 80))}</text>'


def svg_body(picture: Picture, layout: Layout, prefix: str = "n") -> Iterator[str]:
    """The elements: areas, arrows, boxes. Those of layers and groups say which they are in ``data-`` attributes."""
    for area, frame in zip(picture.areas, layout.areas, strict=True):
        yield from _area(area, frame)
    for arrow, route in zip(picture.arrows, layout.routes, strict=True):
        if route is not None:
            ends = f'data-from="{arrow.source}" data-to="{arrow.target}"'
            yield (
                f'<g class="arrow" {ends}><title>{escape(arrow.hint)}</title>'
                f'<path d="{_path(route)}" fill="none" stroke="#7b8794" stroke-width="1.3"/>'
                f'<path d="{_head(route)}" fill="#7b8794"/></g>'
            )
    for box, frame in zip(picture.boxes, layout.boxes, strict=True):
        yield _box(box, frame, prefix)


def _area(area: Area, frame: Frame) -> Iterator[str]:
    ground, _, line = colours(area.colour)
    label = shortened(area.label, max(4, int((frame.width - 16) / 5.8)))
    yield (
        f'<g class="area" data-group="{area.group}"><title>{escape(area.hint)}</title>'
        f'<rect {_place(frame)} rx="10" fill="{ground}" stroke="{line}" stroke-dasharray="4 3"/>'
        f'<text x="{number(frame.x + 10)}" y="{number(frame.y + LABEL_HEIGHT - 4)}" font-size="10" fill="{line}">'
        f"{escape(label)}</text></g>"
    )


def _box(box: Box, frame: Frame, prefix: str) -> str:
    ground, line, kind = "#ffffff", "#9aa5b1", "box"
    if box.colour is not None:
        _, ground, line = colours(box.colour)
        kind = f"box of{box.colour}"
    x, y = frame.x + 2 * PADDING, frame.y
    style = 'class="title" font-size="12" font-weight="600"'
    texts = [f'<text {style} x="{number(x)}" y="{number(y + 16)}">{escape(box.title)}</text>']
    for place, text in enumerate(box.lines):
        baseline = y + TITLE_HEIGHT + LINE_HEIGHT * place + 9
        texts.append(f'<text x="{number(x)}" y="{number(baseline)}" fill="#3e4c59">{escape(text)}</text>')
    return (
        f'<g class="{kind}" id="{prefix}{box.key}" data-layer="{box.key}" role="img" aria-label={_attribute(box.hint)}>'
        f"<title>{escape(box.hint)}</title>"
        f'<rect {_place(frame)} rx="5" fill="{ground}" stroke="{line}"/>'
        f'<path d="M{number(frame.x + 4)} {number(frame.y + 5)}v{number(frame.height - 10)}" '
        f'stroke="{STRIPES[box.family]}" stroke-width="3" stroke-linecap="round"/>' + "".join(texts) + "</g>"
    )


def _place(frame: Frame) -> str:
    names = ("x", "y", "width", "height")
    return " ".join(f'{name}="{number(getattr(frame, name))}"' for name in names)


def _attribute(text: str) -> str:
    return quoteattr(text.replace("\n", ", "))


def _path(route: Route) -> str:
    (x, y), rest = route.points[0], route.points[1:]
    return f"M{number(x)} {number(y)}C" + " ".join(f"{number(px)} {number(py)}" for px, py in rest)


def _head(route: Route) -> str:
    """The head of an arrow: a triangle from the end of the line to the tip."""
    (x0, y0), (x1, y1) = route.points[-1], route.tip
    dx, dy = x1 - x0, y1 - y0
    length = hypot(dx, dy) or 1.0
    nx, ny = -dy / length * 3, dx / length * 3
    return f"M{number(x1)} {number(y1)}L{x0 + nx:.1f} {y0 + ny:.1f}L{x0 - nx:.1f} {y0 - ny:.1f}Z"
