"""A picture as a file in Graphviz's DOT language, for those who want to lay it out or style it themselves."""

from __future__ import annotations

from fusion_engine.drawing.picture import Box, Picture
from fusion_engine.drawing.svg import colours

__all__ = ["dot_file", "quoted"]


def quoted(text: str) -> str:
    r"""A string of DOT that shows as ``text``, be there quotes, backslashes, or what looks like an entity.

    Examples
    --------
    >>> print(quoted('a"b\\N &lt;'))
    "a\"b\\N &amp;lt;"
    """
    return '"' + _escaped(text) + '"'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


def dot_file(picture: Picture, title: str) -> str:
    """The DOT text of a picture: a node ``layer_N`` for each box, an edge for each connection, clusters for groups."""
    lines = [
        "digraph {",
        f"  graph [label={quoted(title)}, labelloc=t, fontname=Helvetica]",
        '  node [shape=box, style="filled,rounded", fillcolor="#ffffff", color="#9aa5b1", '
        "fontname=Helvetica, fontsize=10]",
        '  edge [color="#7b8794", arrowsize=0.7]',
    ]
    lines += [f"  layer_{box.key} [{_attributes(box)}]" for box in picture.boxes]
    for area in picture.areas:
        ground, _, line = colours(area.colour)
        inside = "; ".join(f"layer_{key}" for key in area.boxes)
        style = f'style="dashed,rounded,filled", fillcolor="{ground}", color="{line}", fontcolor="{line}", fontsize=9'
        lines.append(f"  subgraph cluster_{area.group} {{ graph [label={quoted(area.label)}, {style}]; {inside} }}")
    for arrow in picture.arrows:
        slots = f"{arrow.source_slot} → {arrow.target_slot}" if arrow.source_slot or arrow.target_slot else ""
        label = f", label={quoted(slots)}, fontsize=8" if slots else ""
        lines.append(f"  layer_{arrow.source} -> layer_{arrow.target} [tooltip={_lines(arrow.hint)}{label}]")
    return "\n".join([*lines, "}", ""])


def _attributes(box: Box) -> str:
    label = '"' + "".join(_escaped(line) + "\\l" for line in (box.title, *box.lines)) + '"'
    found = f"label={label}, tooltip={_lines(box.hint)}"
    if box.colour is not None:
        _, ground, line = colours(box.colour)
        found += f', fillcolor="{ground}", color="{line}"'
    return found


def _lines(text: str) -> str:
    """A string of several lines."""
    return '"' + "\\n".join(_escaped(line) for line in text.split("\n")) + '"'
