"""What rules can name: every layer type with its slots, fields and values. The command ``types``.

All of it is read off the schema and the language, so that it cannot fall behind them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from fusion_engine.console import Console, printable
from fusion_engine.usage import FINE, Wrong

__all__ = ["add_types", "describe_type", "type_lines"]

_WORDS = {
    "int": "whole number",
    "float": "number",
    "bool": "0 or 1",
    "string": "string",
    "enum": "one of",
    "dimension": "dimension",
    "list": "list, which no comparison takes",
}
"""A kind of value, as readers know it."""

_MEANING = {
    "name": "the layer's name",
    "kernel": "width x height, and depth where there is one",
    "stride": "width x height, and depth where there is one",
    "dilation": "width x height, and depth where there is one",
    "channels": "number of output channels",
    "act": "the activation function",
    "act.alpha": "a of the activation",
    "act.beta": "b of the activation",
    "input.": "the first data input; input1. and so on by slot",
    "output.": "the output that the pattern came through, of the root output 0; output1. and so on by slot",
    "weights.": "constant weights: n output channels, c input channels",
    "bias.": "constant bias",
}
"""What the values that are no fields are, by name or by what comes before their names."""

_TENSORS = ("input.", "output.", "weights.", "bias.")


def describe_type(name: str) -> dict[str, Any]:
    """A layer type as rules see it.

    Parameters
    ----------
    name
        A LayerType of release 24.08.

    Returns
    -------
    dict
        Plain data: ``type``; ``spellings`` that match it and are matched by it alike, each with the
        ``where`` that a layer so spelled must meet, or None; ``inputs`` and ``outputs``, a number of
        slots, a list of such or the descriptor field that says it; ``parameterSlots`` that are no
        data inputs where a Constant feeds them; ``constants``, tensors that the layer itself may
        hold; ``fields`` of the descriptor and other ``values``, what conditions may name: each with
        ``name``, ``kind``, ``values`` of an enum, and of a field its ``default`` and ``former`` name.

    Raises
    ------
    KeyError
        Where there is no such layer type.

    Examples
    --------
    >>> found = describe_type("Softmax")
    >>> found["inputs"], [(field["name"], field["default"]) for field in found["fields"]]
    (1, [('beta', 0.0), ('axis', -1)])
    """
    from fusion_engine.language.names import quantities
    from fusion_engine.schema import schema, slot_facts
    from fusion_engine.spellings import SPELLINGS, spellings
    from fusion_engine.workspace import PARAMETER_SLOTS

    layers, facts = schema().layers, slot_facts()[name]
    others = []
    for other in spellings(name)[1:]:
        meant = SPELLINGS.get(name) or SPELLINGS[other]
        where = f'{meant.field} == "{meant.value}"' if name in SPELLINGS and meant.field else None
        others.append({"type": other, "where": where})
    fields: dict[str, dict[str, Any]] = {}
    former: set[str] = set()
    for spelling in spellings(name):
        descriptor = layers[spelling].descriptor
        for field in () if descriptor is None else descriptor.fields:
            default = field.default
            if field.kind == "enum":
                default = schema().enums[field.type].names.get(default, default)
            elif field.type == "bool":
                default = bool(default)
            fields.setdefault(field.name, {"default": default, "former": field.former})
            if field.former is not None:
                former.add(field.former)
    if name in SPELLINGS and SPELLINGS[name].field is not None:
        fields[str(SPELLINGS[name].field)]["default"] = SPELLINGS[name].value
    told = quantities(name)
    entries = {
        quantity.name: {"name": quantity.name, "kind": quantity.kind, "values": list(quantity.values)}
        for called, quantity in told.items()
        if called not in former
    }
    return {
        "type": name,
        "spellings": others,
        "inputs": facts["inputs"],
        "outputs": facts["outputs"],
        "parameterSlots": list(PARAMETER_SLOTS.get(name, ())),
        "constants": [".".join(path) for path in layers[name].tensors],
        "fields": [entries[field] | fields[field] for field in fields if field in entries],
        "values": [entry for called, entry in entries.items() if called not in fields],
    }


def type_lines(found: dict[str, Any]) -> Iterator[str]:
    """The lines of a layer type for readers; ``found`` is of `describe_type`."""
    yield found["type"]
    for slots in ("inputs", "outputs"):
        text = _slots(found[slots])
        if slots == "inputs" and found["parameterSlots"]:
            held = " and ".join(map(str, found["parameterSlots"]))
            text += f"; slots {held} hold weights and bias, and are no data inputs where a Constant feeds them"
        yield f"  {slots}: {text}"
    if found["constants"]:
        yield f"  constants of its own: {', '.join(found['constants'])}"
    for other in found["spellings"]:
        where = f" with {other['where']}" if other["where"] else ""
        yield f"  matches alike: {other['type']}{where}"
    if found["fields"]:
        yield "  fields:"
    for field in found["fields"]:
        default = "" if field["kind"] in ("list", "string") else f"; {_shown(field['default'])} where left out"
        former = f"; formerly {field['former']}" if field["former"] else ""
        yield f"    {field['name']}: {_kind(field)}{default}{former}"
    yield "  values:"
    tails: dict[str, list[str]] = {}
    for entry in found["values"]:
        head, dot, tail = entry["name"].partition(".")
        if head + dot in _TENSORS:
            tails.setdefault(head + dot, []).append(tail)
        elif entry["name"] not in _MEANING:
            continue  # a part, told with its whole
        else:
            parts = [one["name"] for one in found["values"] if one["name"].startswith(f"{entry['name']}.")]
            parts = [part for part in parts if part not in _MEANING]
            and_parts = f"; {', '.join(parts)}" if parts else ""
            yield f"    {entry['name']}: {_kind(entry)}: {_MEANING[entry['name']]}{and_parts}"
    for head in _TENSORS:
        if head in tails:
            yield f"    {head}: {_MEANING[head]}: {' '.join(tails[head])}"


def _slots(count: Any) -> str:
    if isinstance(count, list):
        return f"{', '.join(map(str, count[:-1]))} or {count[-1]}"
    return f"as many as {count} says" if isinstance(count, str) else str(count)


def _kind(entry: dict[str, Any]) -> str:
    values = " ".join(f'"{value}"' for value in entry["values"])
    return f"{_WORDS[entry['kind']]} {values}" if values else _WORDS[entry["kind"]]


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(int(value) if isinstance(value, bool) else value)


# The command


def add_types(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser; ``command`` makes one."""
    types = command(
        "types",
        _types,
        "show the layer types that rules can name, and what conditions can ask of them",
        "types",
        "types Convolution2d",
        "types Activation Softmax --json",
    )
    types.add_argument("types", nargs="*", metavar="TYPE", help="layer types to show all of; else all types are listed")
    types.add_argument("--json", action="store_true", help="as JSON, all of it")


def _types(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.schema import schema

    known = sorted(schema().layers)
    unknown = [name for name in arguments.types if name not in known]
    if unknown:
        from fusion_engine.language.vocabulary import type_meant

        raise Wrong(*(f"there is no layer type {printable(repr(name))}{type_meant(name, known)}" for name in unknown))
    found = [describe_type(name) for name in arguments.types or known]
    if arguments.json:
        import json

        console.print(json.dumps({"types": found}, indent=2))
    elif arguments.types:
        for number, one in enumerate(found):
            for line in ([""] if number else []) + list(type_lines(one)):
                console.print(line)
    else:
        width = max(map(len, known))
        for one in found:
            alike = ", ".join(other["type"] for other in one["spellings"])
            fields = " ".join(field["name"] for field in one["fields"])
            console.print(f"{one['type']:{width}}  {fields or '-'}" + (f"  (also {alike})" if alike else ""))
        console.print()
        console.print("fusion-engine types TYPE shows the values of the fields, and what else conditions can name.")
    return FINE
