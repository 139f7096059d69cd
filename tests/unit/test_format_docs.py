"""The tables of docs/format.md say what the schema says."""

from __future__ import annotations

import re

from fusion_engine.schema import DIALECTS, schema
from fusion_engine.tensor import ALIASES, DTYPES, PAYLOADS
from tests.support.pages import DOCS

PAGE = (DOCS / "format.md").read_text("utf-8")


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its own heading."""
    below = PAGE[PAGE.index(f"## {heading}\n") :]
    rows = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert rows
    return [
        [cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows[0].splitlines() if "---" not in row
    ]


def test_union_tags() -> None:
    head, *rows = table("Four dialects")
    assert [row[0].strip("`") for row in rows] == list(DIALECTS)
    for row in rows:
        layers = schema(row[0].strip("`")).layers
        assert [int(cell) for cell in row[2:]] == [layers[name].tag for name in head[2:]]


def test_data_types() -> None:
    _, *rows = table("Tensors")
    numbers = {member: value for value, member in enumerate(DTYPES)}
    assert len(rows) == len(DTYPES)
    for name, number, dtype, payload in rows:
        spelled, _, now = name.partition(" (now ")
        assert DTYPES[spelled] == dtype.strip("`")
        assert PAYLOADS[DTYPES[spelled].itemsize] == payload
        assert int(number) == numbers[spelled] == schema().enums["DataType"].values[spelled]
        assert ALIASES.get(spelled, "") == now.rstrip(")")


def test_defaults() -> None:
    assert "an Activation without a function is a Sigmoid" in PAGE
    defaults = {
        (kind, field.name): field.default
        for kind in ("Activation", "BatchNormalization", "Convolution2d", "Pooling2d")
        for field in schema().layers[kind].descriptor.fields  # type: ignore[union-attr]
    }
    enums = schema().enums
    assert enums["ActivationFunction"].names[defaults["Activation", "activationFunction"]] == "Sigmoid"
    assert defaults["BatchNormalization", "eps"] == 0
    assert enums["DataLayout"].names[defaults["Convolution2d", "dataLayout"]] == "NCHW"
    assert enums["DataLayout"].names[defaults["Pooling2d", "dataLayout"]] == "NHWC"
