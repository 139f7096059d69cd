"""The releases of Arm NN as objects: what ``schema/releases.toml`` and the dialects' schemas say of each.

Tables, fields and enum values go by their names of release 24.08, also where an older schema spells
them otherwise.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fusion_engine.errors import ConversionError, nearest
from fusion_engine.network import Network, param
from fusion_engine.resources import folder
from fusion_engine.schema import Field, Schema, schema

__all__ = ["WEIGHT_TYPES", "ReaderFault", "Release", "find_release", "release_names", "releases", "since"]

WEIGHT_TYPES = ("FullyConnected", "Convolution3d", "Convolution2d", "DepthwiseConvolution2d")
"""Layer types whose weights moved to input slots, in the order in which they did."""


@dataclass(frozen=True)
class ReaderFault:
    """Layers that a release's reader does not read as its schema promises.

    Attributes
    ----------
    layer
        The layer type.
    does
        What the reader does with it, as the end of a sentence that begins with the layer.
    field, value, other_than
        A descriptor field, and the value that makes the fault, or the one value that does not.
    outputs
        The number of output slots that makes the fault.
    lacks
        A member tensor whose absence makes the fault.
    """

    layer: str
    does: str
    field: str | None = None
    value: Any = None
    other_than: Any = None
    outputs: int | None = None
    lacks: str | None = None

    def concerns(self, graph: Network, key: int) -> bool:
        """Whether a layer is one of those."""
        node = graph.nodes[key]
        if node["type"] != self.layer:
            return False
        if self.outputs is not None:
            return len(node.get("outputs", ())) == self.outputs
        if self.lacks is not None and self.lacks in (node.get("constants") or {}):
            return False
        if self.field is None:
            return True
        found = param(graph, key, self.field)
        return bool(found != self.other_than if self.value is None else found == self.value)


@dataclass(frozen=True)
class Release:
    """A release, or several with the same format.

    Attributes
    ----------
    name
        ``"20.08"``; ``"seed"`` is the schema of February 2019 that this project began with.
    number
        Its position in `releases`: a later release has a larger one.
    patches
        Later releases with the same format (``"22.05.01"``).
    dialect
        The dialect of its files.
    layers
        Its layer types.
    fields
        Its fields as ``Table.field``.
    values
        Its enum values as ``Enum.value``.
    binding_ids, layout, as_inputs
        What it writes in featureVersions, and the newest that its reader knows.
    on_inputs
        Layer types that have their weights on input slots.
    permutes
        Whether its reader permutes every Constant of a file with weightsLayoutScheme 0.
    by_ordinal
        Whether its reader takes the TensorInfo of the n-th Output from output slot n of what feeds it.
    equal_ranks
        Whether layers of two operands need them of equal rank.
    bias_scales
        Whether a backend wants a bias's scale to be the product of the input's and the weights', of floats too.
    folds_pads
        Whether its optimizer folds a Pad into a Convolution2d also where that comes out wrong.
    folds_modes
        Whether it folds a Pad into a convolution or pooling also where its paddingMode is not Constant.
    folds_layouts
        Whether it folds a BatchNormalization into a convolution also where the two differ in dataLayout.
    zero_first
        Whether its reader aborts where the first layer of a file does not have the index 0.
    faults
        Where its reader does otherwise than its schema promises.
    """

    name: str
    number: int
    patches: tuple[str, ...]
    dialect: str
    layers: frozenset[str] = field(repr=False)
    fields: frozenset[str] = field(repr=False)
    values: frozenset[str] = field(repr=False)
    binding_ids: int
    layout: int
    as_inputs: int
    on_inputs: frozenset[str]
    permutes: bool
    by_ordinal: bool
    equal_ranks: bool
    bias_scales: bool
    folds_pads: bool
    folds_modes: bool
    folds_layouts: bool
    zero_first: bool
    faults: tuple[ReaderFault, ...] = field(repr=False)

    @property
    def feature_versions(self) -> tuple[int, int, int]:
        """The three numbers of FeatureCompatibilityVersions in its files."""
        return (self.binding_ids, self.layout, self.as_inputs)

    def form(self, type_name: str, as_inputs: int) -> str:
        """Where its reader looks for the weights of a layer: ``"members"`` or ``"inputs"``.

        Parameters
        ----------
        type_name
            One of `WEIGHT_TYPES`.
        as_inputs
            The file's constantTensorsAsInputs.
        """
        if "weights" not in schema().tables[f"{type_name}Layer"].by_name:
            return "inputs"
        return "inputs" if type_name in self.on_inputs and as_inputs >= 1 else "members"

    def fault(self, graph: Network, key: int) -> ReaderFault | None:
        """The fault of its reader that a layer meets, or None."""
        kind = graph.nodes[key]["type"]
        return next((fault for fault in self.faults if fault.layer == kind and fault.concerns(graph, key)), None)


@cache
def releases() -> tuple[Release, ...]:
    """Every release, oldest first."""
    facts = tomllib.loads((folder("schema") / "releases.toml").read_text("utf-8"))
    rows: list[dict[str, Any]] = facts["release"]
    numbers = {row["name"]: number for number, row in enumerate(rows)}
    form: dict[str, Any] = {}
    on_inputs: set[str] = set()
    found = []
    for number, row in enumerate(rows):
        form |= row.get("form", {})
        on_inputs.update(form.pop("inputs", ()))
        own = schema(row["dialect"])
        later = rows[number + 1 :] if row["dialect"] == "current" else []
        layers = frozenset(own.layers) - _added(later, "layers")
        fields, values = _within(own, layers, _added(later, "fields"))
        found.append(
            Release(
                row["name"],
                number,
                tuple(row.get("patches", ())),
                row["dialect"],
                layers,
                fields,
                values - _added(later, "values"),
                form["binding_ids"],
                form["layout"],
                form["as_inputs"],
                frozenset(on_inputs),
                form["permutes"],
                form["by_ordinal"],
                form["equal_ranks"],
                form["bias_scales"],
                form["folds_pads"],
                form["folds_modes"],
                form["folds_layouts"],
                form["zero_first"],
                tuple(_fault(fault) for fault in facts["reader"] if _holds(fault, number, numbers)),
            )
        )
    return tuple(found)


def _added(rows: Iterable[Mapping[str, Any]], kind: str) -> set[str]:
    return {name for row in rows for name in row.get(kind, ())}


def _within(facts: Schema, layers: frozenset[str], later: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Fields and enum values of a schema that layers of these types lead to, without the fields added later."""
    fields: set[str] = set()
    values: set[str] = set()
    named = _named(facts.dialect)
    pending = [facts.root, "ConstTensor", *facts.unions["ConstTensorData"], *(f"{name}Layer" for name in layers)]
    seen = set(pending)
    while pending:
        for one, name in named[pending.pop()]:
            if name in later:
                continue
            fields.add(name)
            if one.kind == "enum":
                values.update(f"{one.type}.{value}" for value in facts.enums[one.type].values)
            elif one.kind in ("table", "tables") and one.type not in seen:
                seen.add(one.type)
                pending.append(one.type)
    return frozenset(fields), frozenset(values)


@cache
def _named(dialect: str) -> dict[str, tuple[tuple[Field, str], ...]]:
    """The fields of a dialect's tables, each with the table's name and its own of release 24.08."""
    newest = schema().tables
    found = {}
    for table in schema(dialect).tables.values():
        present = newest[table.name].fields if table.name in newest else ()
        former = {other.former: other.name for other in present if other.former is not None}
        found[table.name] = tuple((one, f"{table.name}.{former.get(one.name, one.name)}") for one in table.fields)
    return found


def _holds(fault: Mapping[str, Any], number: int, numbers: Mapping[str, int]) -> bool:
    first = numbers[fault["from"]] if "from" in fault else 0
    end = numbers[fault["before"]] if "before" in fault else len(numbers)
    return first <= number < end


def _fault(row: Mapping[str, Any]) -> ReaderFault:
    return ReaderFault(**{name: value for name, value in row.items() if name not in ("from", "before", "fixed")})


def release_names() -> tuple[str, ...]:
    """The names of every release, oldest first, patches left out.

    Examples
    --------
    >>> release_names()[:5]
    ('seed', '19.02', '19.05', '19.08', '19.11')
    """
    return tuple(release.name for release in releases())


def find_release(name: str) -> Release:
    """The release of a name, that of a patch among them.

    Raises
    ------
    ConversionError
        Where there is none such; the message lists them.

    Examples
    --------
    >>> find_release("22.05.01").name
    '22.05'
    """
    for release in releases():
        if name == release.name or name in release.patches:
            return release
    raise ConversionError(
        f"there is no release {name!r} of Arm NN{_newest(str(name))}: known are {', '.join(release_names())}"
    )


def _newest(name: str) -> str:
    """A hint at the newest release to who asks for one that is newer still, else at what is spelled like it."""
    if re.fullmatch(r"\d\d\.\d\d(\.\d+)?", name) and name > releases()[-1].name:
        return f" (the newest known is {releases()[-1].name})"
    return nearest(name, release_names())


@cache
def since(kind: str, name: str) -> str | None:
    """The first release that has a layer type, field or enum value; None where none has it.

    Parameters
    ----------
    kind
        ``"layers"``, ``"fields"`` or ``"values"``.
    name
        As the release's attribute of that name holds it.

    Examples
    --------
    >>> since("layers", "ElementwiseBinary"), since("values", "DataType.QAsymmS8")
    ('23.05', '20.05')
    """
    return next((release.name for release in releases() if name in getattr(release, kind)), None)
