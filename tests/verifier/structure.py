"""What the decoder alone says of a file: its structure, without what the reader asks beyond that."""

from __future__ import annotations

import sys
from typing import Any

from fusion_engine.armnn.decode import Decoder
from fusion_engine.errors import ModelError
from fusion_engine.schema import Schema

__all__ = ["fault"]


def fault(data: bytes, facts: Schema) -> str | None:
    """Why the structure of a file is refused, or None.

    Every table, vector and string that a schema leads to is decoded, through both unions, whatever
    the reader would make of it; fields that the schema does not know are passed over, and vectors may
    overlap, as the Verifier lets them.
    """
    decoder = Decoder(data, facts, lenient=True)
    decoder.allowed = sys.maxsize
    try:
        root = decoder.table(facts.root, decoder.root())
        members = {tag: member for member, tag in facts.unions["Layer"].items()}
        for layer in root.get("layers", ()):
            member = members.get(layer.get("layer_type", 0))
            if member is not None and "layer" in layer:
                _tensors(decoder, decoder.table(member, layer["layer"]))
    except ModelError as error:
        return str(error)
    return None


def _tensors(decoder: Decoder, layer: Any) -> None:
    """Decode the payloads of all constant tensors in a layer's tables."""
    pending = [layer]
    tags = {tag: member for member, tag in decoder.facts.unions["ConstTensorData"].items()}
    while pending:
        table = pending.pop()
        pending += [value for value in table.values() if isinstance(value, dict)]
        member = tags.get(table.get("data_type", 0)) if isinstance(table.get("data"), int) else None
        if member is not None:
            decoder.table(member, table["data"])
