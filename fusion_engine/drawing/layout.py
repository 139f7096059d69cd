"""Where boxes and arrows go: Graphviz's ``dot``, which is told sizes and connections and nothing else.

No text of a network reaches Graphviz here, and every box has a fixed size: so fonts do not matter, the
layout depends on the network and the version of Graphviz alone, and there is nothing to inject.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusion_engine.drawing.picture import Picture
from fusion_engine.errors import OutputError

__all__ = ["Frame", "Layout", "Route", "arrange", "find_dot"]

MOST_SECONDS = 300
"""How long Graphviz may take."""

LABEL_HEIGHT = 18
"""Pixels above the boxes of an area, for its label."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """A rectangle in pixels: its left, top, width and height; y grows downwards."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Route:
    """The way of an arrow: a start and Bézier control points in threes; and its tip."""

    points: tuple[Point, ...]
    tip: Point


@dataclass(frozen=True)
class Layout:
    """Places: of the boxes and areas in their order, and of the arrows in theirs (None for one that has no way)."""

    width: float
    height: float
    boxes: tuple[Frame, ...]
    areas: tuple[Frame, ...]
    routes: tuple[Route | None, ...]


def find_dot() -> str:
    """The path of Graphviz's ``dot``.

    Raises
    ------
    OutputError
        Where it is not installed.
    """
    found = shutil.which("dot")
    if found is None:
        raise OutputError(
            "the layout of a picture is made by Graphviz, and there is no command dot: install the package graphviz "
            "of your system, or draw to a .dot file, which needs no layout"
        )
    return found


def arrange(picture: Picture) -> Layout:
    """Lay a picture out.

    Raises
    ------
    OutputError
        Where Graphviz is not installed, fails, or takes longer than `MOST_SECONDS`.
    """
    if not picture.boxes:
        return Layout(0.0, 0.0, (), (), ())
    command = [find_dot(), "-Tjson0"]
    try:
        done = subprocess.run(
            command, input=_skeleton(picture).encode("ascii"), capture_output=True, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise OutputError(
            f"Graphviz did not finish the layout of {len(picture.boxes)} layers in {MOST_SECONDS} seconds: "
            "draw to a .dot file, and lay that out another way"
        ) from error
    except OSError as error:
        raise OutputError(f"Graphviz's {command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.decode("ascii", "backslashreplace").strip().splitlines() or ["it said nothing"]
        raise OutputError(f"Graphviz failed on the layout of {len(picture.boxes)} layers: {said[-1]}")
    return _read(picture, json.loads(done.stdout))


def _skeleton(picture: Picture) -> str:
    number = {box.key: place for place, box in enumerate(picture.boxes)}
    lines = [
        "digraph {",
        "graph [nodesep=0.3, ranksep=0.35, nslimit=8, mclimit=2]",
        'node [shape=box, fixedsize=true, label=""]',
        "edge [arrowsize=0.7]",
    ]
    lines += [f"n{number[b.key]} [width={b.width / 72:.4f}, height={b.height / 72:.4f}]" for b in picture.boxes]
    for place, area in enumerate(picture.areas):
        inside = "; ".join(f"n{number[key]}" for key in area.boxes)
        lines.append(f"subgraph cluster{place} {{ graph [margin={LABEL_HEIGHT}]; {inside} }}")
    lines += [f"n{number[a.source]} -> n{number[a.target]} [id=e{place}]" for place, a in enumerate(picture.arrows)]
    return "\n".join([*lines, "}", ""])


def _read(picture: Picture, found: Mapping[str, Any]) -> Layout:
    """The answer of ``dot -Tjson0``: points of 1/72 inch with y upwards, taken as pixels."""
    left, bottom, right, top = _floats(found["bb"])

    def point(x: float, y: float) -> Point:
        return (round(x - left, 1), round(top - y, 1))

    boxes: dict[str, Frame] = {}
    areas: dict[str, Frame] = {}
    for one in found.get("objects", ()):
        if one["name"].startswith("cluster"):
            x0, y0, x1, y1 = _floats(one["bb"])
            areas[one["name"]] = Frame(*point(x0, y1), round(x1 - x0, 1), round(y1 - y0, 1))
        else:
            box = picture.boxes[int(one["name"][1:])]
            x, y = point(*_floats(one["pos"]))
            boxes[one["name"]] = Frame(
                round(x - box.width / 2, 1), round(y - box.height / 2, 1), float(box.width), float(box.height)
            )
    routes: list[Route | None] = [None] * len(picture.arrows)
    for edge in found.get("edges", ()):
        if "pos" not in edge:
            continue
        tip, points = None, []
        for part in edge["pos"].split():
            mark, _, rest = part.rpartition("e,")
            xy = point(*_floats(rest))
            if mark or part.startswith("e,"):
                tip = xy
            else:
                points.append(xy)
        if points:
            routes[int(edge["id"][1:])] = Route(tuple(points), tip or points[-1])
    return Layout(
        round(right - left, 1),
        round(top - bottom, 1),
        tuple(boxes[f"n{place}"] for place in range(len(picture.boxes))),
        tuple(areas[f"cluster{place}"] for place in range(len(picture.areas))),
        tuple(routes),
    )


def _floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]
