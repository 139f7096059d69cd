"""Which of the four dialects a file is in, told from its bytes.

The unions of the schemas of 2019 number the layers differently. Input and Output can be told
without knowing the numbering: the ``base`` of no other layer is a BindableLayerBase, whose vtable
has at most 8 bytes where that of a written LayerBase has 14. Their tags then name the dialect, and
19.05 differs from what followed only in tags 36 to 40, where the stored LayerType decides.
"""

from __future__ import annotations

import struct
from functools import cache

from fusion_engine.armnn.decode import Decoder, Union
from fusion_engine.errors import ModelError
from fusion_engine.schema import DIALECTS, schema

__all__ = ["BINDABLE_VTABLE", "detect", "odd_tags"]

BINDABLE_VTABLE = 8
"""Most bytes of the vtable of a BindableLayerBase."""


@cache
def odd_tags() -> frozenset[int]:
    """The union tags by which 19.05 and what followed can differ: those of other layers in the two, and of new ones."""
    old, new = schema("19.05").by_tag, schema("current").by_tag
    return frozenset(tag for tag in range(256) if tag not in old or (tag in new and old[tag].name != new[tag].name))


def detect(decoder: Decoder, bindable: list[Union], layers: list[Union]) -> str:
    """The dialect of a file, by its layers.

    Parameters
    ----------
    decoder
        Any of the file.
    bindable
        The layers, or of these only those whose base's vtable has at most `BINDABLE_VTABLE` bytes.
    layers
        The layers, or of these only the same and those with `odd_tags`.

    Raises
    ------
    ModelError
        Where Inputs and Outputs have tags that no released schema gives them.
    """
    seen: dict[str, int] = {}
    for layer in bindable:
        kind = _bindable(decoder, layer.position)
        if kind is not None and kind not in seen:
            seen[kind] = layer.tag
            if len(seen) == 2:
                break
    fitting = [d for d in DIALECTS if all(schema(d).layers[kind].tag == tag for kind, tag in seen.items())]
    if not fitting:
        tags = " and ".join(f"{kind} has union tag {tag}" for kind, tag in sorted(seen.items()))
        raise ModelError(
            f"{tags}: no released schema numbers its layers so (development snapshots of February 2019 did, "
            "and do not load): write the file again with a released Arm NN"
        )
    if "current" not in fitting:
        return fitting[0]
    return "19.05" if "19.05" in fitting and _is_19_05(decoder, layers) else "current"


def _is_19_05(decoder: Decoder, layers: list[Union]) -> bool:
    old, new = schema("19.05"), schema("current")
    for layer in layers:
        then, now = old.by_tag.get(layer.tag), new.by_tag.get(layer.tag)
        if then is None:
            return False
        if now is not None and then.name != now.name:
            value = _layer_type(decoder, layer.position)
            if value in (then.value, now.value):
                return value == then.value
    return False


def _bindable(decoder: Decoder, position: int) -> str | None:
    """``Input``, ``Output`` or None for a layer whose type is not known yet; never raises."""
    try:
        outer = decoder.peek_offset(position, 0)
        if not outer or decoder.vtable(outer)[1] > BINDABLE_VTABLE:
            return None
        base = decoder.peek_offset(outer, 0)
        if not base:
            return None
        inputs, outputs = (_count(decoder, decoder.peek_offset(base, slot)) for slot in (3, 4))
    except (ModelError, struct.error):
        return None
    return {(0, 1): "Input", (1, 0): "Output"}.get((inputs, outputs))


def _count(decoder: Decoder, vector: int) -> int:
    return decoder.length(vector, 4) if vector else 0


def _layer_type(decoder: Decoder, position: int) -> int | None:
    """The stored LayerType of a layer with a plain base, or None; never raises."""
    try:
        base = decoder.peek_offset(position, 0)
        place = decoder.peek(base, 2) if base else 0
        return None if not place else int(struct.unpack_from("<I", decoder.buffer, place)[0])
    except (ModelError, struct.error):
        return None
