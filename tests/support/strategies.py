"""Random valid networks for hypothesis: every layer type, data type, weight form and dialect.

They are valid by the schema and ``layers.toml``, not by arithmetic: shapes need not follow from
each other. Alphabets are small, so that equal layers and shared sources are common.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fusion_engine.network import EMPTY, FrozenDict, Network, connect, new_network
from fusion_engine.schema import DIALECTS, SCALARS, Field, LayerType, Schema, Table, float32, schema, slot_facts
from fusion_engine.tensor import DTYPES, Tensor, TensorInfo

NAMES = ("", "a", "a", "b", "relu/1", "\u5377\u79ef\n", "\udcff\udc80", "x" * 70)
"""Names of layers; repeated and empty ones are legal, and bytes that are no UTF-8."""

FLOATS = (0.0, -0.0, 1.0, 0.5, -1.5, 0.1, 3e38, float("inf"), float("-inf"), float("nan"))


def networks(
    dialects: tuple[str, ...] = DIALECTS, min_layers: int = 0, max_layers: int = 12
) -> st.SearchStrategy[Network]:
    """Random networks that `validate` finds nothing wrong with."""
    return st.builds(
        random_network, st.integers(0, 2**32 - 1), st.integers(min_layers, max_layers), st.sampled_from(dialects)
    )


def random_network(seed: int, layers: int, dialect: str = "current") -> Network:
    """The random network of a seed: up to three Inputs, ``layers`` layers, up to three Outputs and a few extras."""
    return _Random(seed, dialect).network(layers)


class _Random:
    """Draws a network and all that is in it."""

    def __init__(self, seed: int, dialect: str) -> None:
        self.random = Random(seed)
        self.facts: Schema = schema(dialect)
        current = dialect == "current"
        versions = self.random.choice([(1, 1, 1), (1, 0, 0), (0, 0, 0)]) if current else (0, 0, 0)
        self.graph: Network = new_network(dialect, versions)
        self.data_types = sorted(self.facts.enums["DataType"].values)
        self.pool: list[tuple[int, int]] = []
        self.shared: list[Tensor] = []
        self.binding_ids = self.random.sample([*range(-2, 6), 9472, 2**31 - 1, -(2**31)], 9)

    def network(self, layers: int) -> Network:
        random = self.random
        inputs = [self.add("Input", []) for _ in range(random.randint(1, 3))]
        self.pool = [(key, 0) for key in inputs]
        if random.random() < 0.3:
            self.add("Input", [])
        kinds = sorted(set(self.facts.layers) - {"Input", "Output"})
        favourites = random.sample(kinds, min(3, len(kinds)))
        for _ in range(layers):
            kind = random.choice(favourites if random.random() < 0.5 else kinds)
            self.grow(self.facts.layers[kind])
        outputs = [self.add("Output", [random.choice(self.pool)]) for _ in range(random.randint(0, 3))]
        if random.random() < 0.3:
            self.add("Output", [random.choice(self.pool)])
        random.shuffle(inputs)
        random.shuffle(outputs)
        self.graph.graph.update(inputs=tuple(inputs), outputs=tuple(outputs))
        return self.graph

    def grow(self, kind: LayerType) -> None:
        """A layer with any inputs of the pool, and all that its type needs."""
        random, facts = self.random, slot_facts()[kind.name]
        params = self.params(kind.descriptor) if kind.descriptor is not None else {}
        counts = {}
        for slots in ("inputs", "outputs"):
            rule = facts[slots]
            if isinstance(rule, str):
                counts[slots] = random.randint(1, 3)
                *outer, last = rule.split(".")
                target = params
                for part in outer:
                    target = target.setdefault(part, {})
                target[last] = counts[slots]
            else:
                counts[slots] = rule if isinstance(rule, int) else random.choice(rule)
        constants = {field: self.tensor() for field in facts.get("tensors", ())}
        for rule in facts.get("tensors_if", ()):
            if params.setdefault(rule["field"], not rule["value"]) == rule["value"]:
                constants.update({field: self.tensor() for field in rule["tensors"]})
        if "weights" in facts:
            self.weigh(facts["weights"], counts, params, constants)
        self.repair(facts, params)
        if kind.descriptor is not None and not facts["descriptor"] and random.random() < 0.3:
            params = None
        sources = [random.choice(self.pool) for _ in range(counts["inputs"])]
        key = self.add(kind.name, sources, counts["outputs"], params, constants)
        self.pool.extend((key, slot) for slot in range(counts["outputs"]))

    def weigh(self, where: str, counts: dict[str, int], params: dict[str, Any], constants: dict[str, Tensor]) -> None:
        """Weights and bias in a form that the type and the dialect have."""
        if self.facts.dialect != "current":
            counts["inputs"] = 1
        if where == "members" or (where == "either" and counts["inputs"] == 1):
            constants["weights"] = self.tensor()
            if params.get("biasEnabled", False):
                constants["biases"] = self.tensor()
        else:
            params["biasEnabled"] = counts["inputs"] == 3

    def repair(self, facts: dict[str, Any], params: dict[str, Any]) -> None:
        """Descriptor lists as `layers.toml` wants them."""
        for name in facts.get("even", ()):
            params[name] = (*params.get(name, ()), *params.get(name, ()))
        for name in facts.get("same_length", ()):
            params[name] = tuple(self.random.randint(0, 5) for _ in range(4))
        for name in facts.get("one_unknown", ()):
            params[name] = self.random.choice([(1, 2**32 - 1, 3), (4,), ()])
        for name in facts.get("views", ()):
            outer, _, last = name.rpartition(".")
            target = params.setdefault(outer, {}) if outer else params
            counts = params.get("origins", params)
            rank = counts.setdefault("numDimensions", 4)
            rank = counts["numDimensions"] = min(rank, 4)
            target[last] = tuple(tuple(range(rank)) for _ in range(counts["numViews"]))

    def add(
        self,
        kind: str,
        sources: list[tuple[int, int]],
        outputs: int = 0,
        params: dict[str, Any] | None = EMPTY,
        constants: dict[str, Tensor] = EMPTY,
    ) -> int:
        key = self.graph.number_of_nodes()
        outputs = 1 if kind == "Input" else outputs
        infos = tuple(self.info() for _ in range(outputs))
        if "input" in constants:
            infos = (constants["input"].info,)
        ends = {"binding_id": self.binding_ids.pop()} if kind in ("Input", "Output") else {}
        self.graph.add_node(
            key,
            type=kind,
            name=self.random.choice(NAMES),
            params=None if params is None else frozen(params),
            constants=FrozenDict(constants),
            outputs=infos,
            **ends,
        )
        for slot, (source, output) in enumerate(sources):
            connect(self.graph, source, key, output, slot)
        if sources and self.random.random() < 0.1 and "isOverridden" in self.facts.tables["InputSlot"].by_name:
            override = (True, self.info()) if self.random.random() < 0.7 else (True, None)
            self.graph.nodes[key]["overrides"] = FrozenDict({self.random.randrange(len(sources)): override})
        return key

    # Values

    def info(self, data_type: str | None = None) -> TensorInfo:
        """A TensorInfo with what the dialect knows."""
        random, known = self.random, self.facts.tables["TensorInfo"].by_name
        rest: dict[str, Any] = {}
        if random.random() < 0.3:
            rest = {"quantization_scale": float32(0.1), "quantization_offset": random.randint(-128, 127)}
        if "quantizationScales" in known and random.random() < 0.1:
            rest.update(quantization_scales=(0.5, 0.25), quantization_dim=random.randint(0, 3))
        if "isConstant" in known and random.random() < 0.2:
            rest["is_constant"] = True
        shape: tuple[int, ...] = random.choice([(1,), (1, 2, 2, 3), (2, 3), (1, 1, 1, 1)])
        if "dimensionality" in known and random.random() < 0.1:
            shape, rest["dimensionality"] = (), 2
        elif "dimensionSpecificity" in known and random.random() < 0.1:
            rest["dimension_specificity"] = tuple(random.random() < 0.5 for _ in shape)
        return TensorInfo(shape, data_type or random.choice(self.data_types), **rest)

    def tensor(self) -> Tensor:
        """A constant tensor of any bits; now and then one that is in use already."""
        random = self.random
        if self.shared and random.random() < 0.3:
            return random.choice(self.shared)
        info = self.info()
        size = info.elements * DTYPES[info.data_type].itemsize
        data = bytes(size) if random.random() < 0.3 else random.randbytes(size)
        self.shared.append(Tensor(info, np.frombuffer(data, info.dtype).reshape(info.shape)))
        return self.shared[-1]

    def params(self, table: Table) -> dict[str, Any]:
        """Some of a descriptor's fields, at any value."""
        return {field.name: self.value(field) for field in table.fields if self.random.random() < 0.6}

    def value(self, field: Field) -> Any:
        random = self.random
        if field.kind == "enum":
            return random.choice(sorted(self.facts.enums[field.type].values))
        if field.kind == "scalar":
            return self.scalar(field.type)
        if field.kind == "scalars":
            return tuple(self.scalar(field.type) for _ in range(random.randint(0, 4)))
        table = self.facts.tables[field.type]
        if field.kind == "tables":
            assert table.wrapped is not None
            return tuple(self.value(table.wrapped) for _ in range(random.randint(0, 3)))
        return self.params(table)

    def scalar(self, kind: str) -> Any:
        random = self.random
        if kind == "bool":
            return random.random() < 0.5
        if kind == "float":
            return float32(random.choice(FLOATS))
        bits = 8 * struct.calcsize("<" + SCALARS[kind])
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if SCALARS[kind].islower() else (0, 2**bits - 1)
        return random.choice([0, 1, 2, 3, low, high])


def frozen(value: Any) -> Any:
    """Dicts as FrozenDicts, all the way down (as deep as descriptors nest)."""
    return FrozenDict({key: frozen(v) for key, v in value.items()}) if isinstance(value, dict) else value
