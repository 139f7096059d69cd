"""Drawing to files: `draw` one network, `draw_diff` what fusing did to one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import networkx as nx

from fusion_engine.armnn.files import StrPath, path_text, write_atomically
from fusion_engine.console import printable
from fusion_engine.drawing.dot import dot_file
from fusion_engine.drawing.layout import arrange
from fusion_engine.drawing.page import Side, page
from fusion_engine.drawing.picture import Picture, draw_boxes
from fusion_engine.drawing.shading import Shading, records_of, refusals_of, shade
from fusion_engine.drawing.svg import svg_file
from fusion_engine.errors import FuseError, OutputError
from fusion_engine.network import Network
from fusion_engine.validation import blaming

__all__ = ["SUFFIXES", "draw", "draw_diff", "suffix_of"]

SUFFIXES = (".html", ".svg", ".dot")
"""How the names of pictures end, and what they so are."""


_T = TypeVar("_T")


def suffix_of(path: StrPath) -> str:
    """Which of `SUFFIXES` a path has.

    Raises
    ------
    OutputError
        Where it has none of them.
    """
    suffix = os.path.splitext(path_text(path))[1].lower()
    if suffix not in SUFFIXES:
        raise OutputError(
            f"{path_text(path)}: a picture is a file named *{', *'.join(SUFFIXES[:-1])} or *{SUFFIXES[-1]}"
        )
    return suffix


def draw(graph: Network, path: StrPath, *, title: str | None = None) -> None:
    """Draw a network: a page to look at in a browser, an SVG, or a text for Graphviz.

    Opaque layers and groups are shaded by the rules that made them, and so is what the network's
    ``fusions`` tell of. Constants stand in the boxes of the layers that read them.

    Parameters
    ----------
    graph
        The network; it stays as it is.
    path
        The file: ``.html`` (one file, which opens offline), ``.svg`` or ``.dot``.
    title
        What stands above the picture; by default the file's name without its suffix.

    Raises
    ------
    OutputError
        Where the name has another suffix, the file cannot be written, or Graphviz, which lays out pages
        and SVG files, is not installed or fails.
    ModelError
        Where the network is not as `validate` wants it and so cannot be drawn.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> graph = fe.fuse(fe.load("examples/models/digits.armnn"), fe.load_rules("npu"))
    >>> fe.draw(graph, "digits.html")  # doctest: +SKIP
    """
    suffix, name = suffix_of(path), _title(path, title)
    shading = _checked(graph, lambda: shade(graph, records_of(graph)))
    picture = _checked(graph, lambda: draw_boxes(graph, shading))
    if suffix == ".dot":
        text = dot_file(picture, name)
    elif suffix == ".svg":
        text = svg_file(picture, arrange(picture), shading, name)
    else:
        side = Side("Network", graph, picture, arrange(picture))
        text = _checked(graph, lambda: page(name, [side], shading, refusals_of(graph)))
    _write(path, text)


def draw_diff(before: Network, after: Network, path: StrPath, *, title: str | None = None) -> None:
    """Draw what fusing did: a page with the network before and after, side by side.

    Parameters
    ----------
    before
        The network given to `fuse`.
    after
        What `fuse` gave back, with its records.
    path
        The file, ``.html``: one file, which opens offline.
    title
        What stands above the pictures; by default the file's name without its suffix.

    Raises
    ------
    OutputError
        Where the name has another suffix, the file cannot be written, or Graphviz is not installed or
        fails.
    ModelError
        Where a network is not as `validate` wants it and so cannot be drawn.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> graph = fe.load("examples/models/digits.armnn")
    >>> fe.draw_diff(graph, fe.fuse(graph, fe.load_rules("npu")), "digits.html")  # doctest: +SKIP
    """
    if suffix_of(path) != ".html":
        raise OutputError(f"{path_text(path)}: before and after are drawn to a page: name a file *.html")
    shading = _checked(before, lambda: shade(before, records_of(after)))
    sides = []
    for name, graph in (("Before", before), ("After", after)):
        picture = _drawn(graph, shading)
        sides.append(Side(name, graph, picture, arrange(picture)))
    text = _checked(after, lambda: page(_title(path, title), sides, shading, refusals_of(after)))
    _write(path, text)


def _drawn(graph: Network, shading: Shading) -> Picture:
    return _checked(graph, lambda: draw_boxes(graph, shading))


def _checked(graph: Network, work: Callable[[], _T]) -> _T:
    """What work on a network gives; its fault becomes a ModelError."""
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        raise FuseError(f"a network is a networkx.DiGraph, not {type(graph).__name__}: load one with load()")
    with blaming(graph, "cannot be drawn"):
        return work()


def _title(path: StrPath, title: str | None) -> str:
    return printable(title if title is not None else os.path.splitext(os.path.basename(path_text(path)))[0])


def _write(path: StrPath, text: str) -> None:
    write_atomically(path, [text.encode("utf-8")])
