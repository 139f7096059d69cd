"""A network as boxes and arrows: what is drawn, how large each box is, and what stands in it.

Constants that layers read are drawn inside of these layers, as lines of their boxes, since one box
for each weight and bias would hide the dataflow. Those that an Output reads, or nothing, are boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

from fusion_engine.canonical import canonical_order
from fusion_engine.console import printable
from fusion_engine.drawing.details import headline, shape_text, slot_text
from fusion_engine.drawing.shading import Shading
from fusion_engine.network import EMPTY, Network, consumers, edges_into
from fusion_engine.recipes import read_recipe
from fusion_engine.tensor import TensorInfo

__all__ = ["FAMILIES", "Area", "Arrow", "Box", "Picture", "draw_boxes", "family", "shortened"]

MOST_LINES = 4
"""Lines of a box that tell of constants."""

MOST_CHARACTERS = 34
"""Characters of a line, a wide one counting as two."""

TITLE_HEIGHT, LINE_HEIGHT, PADDING = 22, 15, 6
"""Pixels: the title's line, every other line, and around them."""

_TITLE_SIZE, _LINE_SIZE, _LEAST_WIDTH = 12 * 1.12, 11, 134
"""Pixels: the sizes of the fonts, that of the title with what bold adds; and the width of the smallest box."""

_EMS = {
    **dict.fromkeys("ijl.,:;'|!()[]/ ·I", 0.36),
    **dict.fromkeys("frt-", 0.42),
    **dict.fromkeys("mwMW%@…", 0.98),
    **dict.fromkeys("×→+=<>~#", 0.84),
}
"""Widths of characters in a wide font (Verdana, DejaVu Sans), in ems: whatever the font at hand, text fits its box."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "end": ("Input", "Output"),
    "weighted": (
        "Convolution2d",
        "Convolution3d",
        "DepthwiseConvolution2d",
        "FullyConnected",
        "TransposeConvolution2d",
        "BatchMatMul",
        "Lstm",
        "QLstm",
        "QuantizedLstm",
        "UnidirectionalSequenceLstm",
    ),
    "activation": ("Activation", "Prelu", "Softmax", "LogSoftmax"),
    "normal": ("BatchNormalization", "InstanceNormalization", "L2Normalization", "Normalization"),
    "pool": ("Pooling2d", "Pooling3d", "Mean", "Reduce", "ArgMinMax"),
    "shape": (
        "BatchToSpaceNd",
        "Concat",
        "DepthToSpace",
        "Gather",
        "GatherNd",
        "Merger",
        "Pad",
        "Permute",
        "Reshape",
        "Resize",
        "ResizeBilinear",
        "ReverseV2",
        "Slice",
        "SpaceToBatchNd",
        "SpaceToDepth",
        "Splitter",
        "Stack",
        "StridedSlice",
        "Tile",
        "Transpose",
    ),
    "opaque": ("StandIn",),
}
"""Layer types that do things alike, and so have a stripe of one colour."""

_FAMILY = {kind: name for name, kinds in FAMILIES.items() for kind in kinds}


@dataclass(frozen=True)
class Box:
    """A layer as drawn.

    Attributes
    ----------
    key
        The layer.
    title, lines
        Text, shortened to fit and safe to show.
    width, height
        In pixels.
    hint
        All of it in full, for a tooltip.
    family
        One of `FAMILIES`, or ``"other"``.
    colour
        Number of the rule's colour; None where the layer is not shaded.
    """

    key: int
    title: str
    lines: tuple[str, ...]
    width: int
    height: int
    hint: str
    family: str
    colour: int | None


@dataclass(frozen=True)
class Arrow:
    """A connection as drawn: an output slot to an input slot, and what a tooltip says of it."""

    source: int
    target: int
    source_slot: int
    target_slot: int
    hint: str


@dataclass(frozen=True)
class Area:
    """Boxes of one fused group, drawn together on a shaded ground: place of the group, keys, colour, and text."""

    group: int
    boxes: tuple[int, ...]
    colour: int
    label: str
    hint: str


@dataclass(frozen=True)
class Picture:
    """What is drawn of a network; everything in canonical order.

    ``shown_in`` names, for each Constant that is no box, the box that it is a line of (the first one).
    """

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    areas: tuple[Area, ...]
    shown_in: Mapping[int, int]


def family(kind: str) -> str:
    """The family of a layer type."""
    return _FAMILY.get(kind, "other")


def draw_boxes(graph: Network, shading: Shading) -> Picture:
    """What is drawn of a network; sizes are told, places are not."""
    order = canonical_order(graph)
    inside = {key: found for key in order if (found := _readers(graph, key))}
    keys = [key for key in order if key not in inside]
    place = {key: number for number, key in enumerate(keys)}
    boxes = tuple(_box(graph, key, shading) for key in keys)
    arrows = []
    for key in keys:
        for slot, source in edges_into(graph, key):
            if source.layer in place:
                hint = _arrow_hint(graph, source.layer, source.slot, key, slot)
                arrows.append(Arrow(source.layer, key, source.slot, slot, hint))
    shown_in = {key: min(readers, key=place.__getitem__) for key, readers in inside.items()}
    return Picture(boxes, tuple(arrows), _areas(shading, place), shown_in)


def _readers(graph: Network, key: int) -> list[int]:
    """The layers in whose boxes a Constant is a line; none where the layer is a box of its own."""
    if graph.nodes[key]["type"] != "Constant":
        return []
    readers = [use.layer for use in consumers(graph, key)]
    return [] if any(graph.nodes[reader]["type"] in ("Output", "Constant") for reader in readers) else readers


def _areas(shading: Shading, place: Mapping[int, int]) -> tuple[Area, ...]:
    areas = []
    for number, group in enumerate(shading.groups):
        boxes = sorted((key for key in group.layers if key in place), key=place.__getitem__)
        if len(boxes) > 1:
            label = f"{group.rule} → {group.result}" if group.rule != group.result else group.result
            hint = "\n".join(f"{fusion.rule} → {fusion.result}" for fusion in group.fusions)
            colour = shading.rules.index(group.rule)
            areas.append(Area(number, tuple(boxes), colour, printable(label), _printable_lines(hint)))
    return tuple(areas)


def _box(graph: Network, key: int, shading: Shading) -> Box:
    node = graph.nodes[key]
    title, name = headline(graph, key), printable(node.get("name", ""))
    recipe = read_recipe(graph, key) if node["type"] == "StandIn" else None
    if recipe is None:
        held = _held(graph, key)
    else:
        held = [f"• {printable(_made_from(layer))}" for layer in reversed(recipe["layers"])]
    lines = [name] if name else []
    lines += (
        held[:MOST_LINES] if len(held) <= MOST_LINES + 1 else [*held[:MOST_LINES], f"and {len(held) - MOST_LINES} more"]
    )
    if node["type"] != "Output":
        lines += _output_line(node.get("outputs", ()))
    hint = [f"{key}: {title}" + ("" if title.startswith(node["type"]) else f" ({printable(node['type'])})"), name]
    hint += [*held, *(f"output {slot}: {shape_text(info)}" for slot, info in enumerate(node.get("outputs", ())))]
    short = tuple(shortened(line, MOST_CHARACTERS) for line in lines)
    title = shortened(title, MOST_CHARACTERS - 4)
    width = max([_ems(title) * _TITLE_SIZE, *(_ems(line) * _LINE_SIZE for line in short)])
    return Box(
        key,
        title,
        short,
        max(_LEAST_WIDTH, round(width) + 4 * PADDING),
        TITLE_HEIGHT + LINE_HEIGHT * len(short) + PADDING,
        "\n".join(line for line in hint if line),
        family(node["type"]),
        shading.colour_of(key),
    )


def _made_from(layer: Mapping[str, Any]) -> str:
    """A consumed layer of a recipe in a word: its type, or what an opaque one was."""
    word: str = layer["recipe"]["result"] if "recipe" in layer else layer["type"]
    return word


def _held(graph: Network, key: int) -> list[str]:
    """A line for each constant of a layer, members first."""
    node = graph.nodes[key]
    found = [
        f"{printable(field)} {shape_text(tensor.info)}" for field, tensor in (node.get("constants") or EMPTY).items()
    ]
    for slot, source in edges_into(graph, key):
        if _readers(graph, source.layer):
            outputs = graph.nodes[source.layer].get("outputs", ())
            found.append(f"{slot_text(node['type'], slot)} {shape_text(outputs[0] if outputs else None)}")
    return found


def _output_line(infos: tuple[TensorInfo | None, ...]) -> list[str]:
    if not infos:
        return []
    return [f"→ {shape_text(infos[0])}" + (f" and {len(infos) - 1} more" if len(infos) > 1 else "")]


def _arrow_hint(graph: Network, source: int, source_slot: int, target: int, target_slot: int) -> str:
    infos: Any = graph.nodes[source].get("outputs", ())
    info = infos[source_slot] if source_slot < len(infos) else None
    slots = f"output {source_slot} of layer {source} to input {target_slot} of layer {target}"
    return f"{shape_text(info)}\n{slots}"


def shortened(text: str, most: int) -> str:
    """``text`` without its middle where it is too long; wide characters count as two.

    Examples
    --------
    >>> shortened("block_12/expanded_conv/relu6", 16)
    'block_12…v/relu6'
    """
    if _columns(text) <= most:
        return text
    start, used = 0, 0
    while used + _columns(text[start]) <= most // 2:
        used += _columns(text[start])
        start += 1
    end = len(text)
    while used + 1 + _columns(text[end - 1]) <= most:
        end -= 1
        used += _columns(text[end])
    return f"{text[:start]}…{text[end:]}"


def _ems(text: str) -> float:
    """The width of a text, at most."""
    return sum(_EMS.get(one) or (0.7 if one.isupper() else 0.64 if one.isascii() else _columns(one)) for one in text)


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
