"""Files built table by table, so that a test can make one as odd as it likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusion_engine.schema import schema
from tests.support.encode import Encoder, Tagged

__all__ = ["info", "layer", "pack", "slot_in", "slot_out"]


def info(shape: Sequence[int] = (1, 4), data_type: str | int = "Float32", **rest: Any) -> dict[str, Any]:
    """A TensorInfo table."""
    return {"dimensions": list(shape), "dataType": data_type, **rest}


def slot_in(source: int, output_slot: int = 0, index: int = 0, **rest: Any) -> dict[str, Any]:
    """An InputSlot table."""
    return {"index": index, "connection": (source, output_slot), **rest}


def slot_out(tensor_info: Mapping[str, Any] | None = None, index: int = 0) -> dict[str, Any]:
    """An OutputSlot table."""
    return {"index": index, "tensorInfo": tensor_info or info()}


def layer(
    kind: str,
    index: int,
    inputs: Sequence[Mapping[str, Any]] = (),
    outputs: Sequence[Mapping[str, Any]] = (),
    *,
    name: str | None = "x",
    dialect: str = "current",
    layer_type: int | None = None,
    **members: Any,
) -> dict[str, Any]:
    """An AnyLayer table; ``members`` are fields of the layer's table, ``binding_id`` of a bindable's base."""
    facts = schema(dialect).layers[kind]
    base: dict[str, Any] = {
        "index": index,
        "layerType": facts.value if layer_type is None else layer_type,
        "inputSlots": list(inputs),
        "outputSlots": list(outputs),
    }
    if name is not None:
        base["layerName"] = name
    if facts.bindable:
        base = {"base": base, "layerBindingId": members.pop("binding_id", 0)}
    return {"layer": Tagged(facts.table.name, {"base": base, **members})}


def pack(layers: Sequence[Mapping[str, Any]], dialect: str = "current", **root: Any) -> bytes:
    """The file of a SerializedGraph with these layers; by default ids are indices and nothing is listed."""
    encoder = Encoder(schema(dialect))
    fields = {"inputIds": [], "outputIds": [], **root}
    return bytes(encoder.finish(encoder.table(schema(dialect).root, {"layers": list(layers), **fields})))
