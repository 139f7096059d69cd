"""A corpus file before and after the rules of armnn.toml: layers, outputs, and what real Arm NN's optimizer leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.spellings import SPELLINGS
from tests.support.real_armnn import ArmnnFailed, Output, RealArmnn

COMPUTING = frozenset({"batch-norm", "batch-norm-chain", "scale", "shift"})
"""Rules that compute weights, so that outputs round elsewhere; all others leave every bit as it is."""

TOLERANCE = {"float32": 1e-5, "float16": 2e-3}
"""Of an output's largest value, where weights change. Quantized outputs may not change."""

NOT_OURS = frozenset({"Reshape", "Input"})
"""Layers that Arm NN's Optimize drops and no rule does.

Its reference backend runs without Reshapes, by a TensorInfo of the input slot that only 23.08 and
later read. An Input that nothing reads is part of what callers of the network know.
"""


@dataclass(frozen=True)
class Folded:
    """A file after all rules.

    Attributes
    ----------
    before, after
        The network as loaded and as fused.
    data
        The fused network as a file.
    rules
        How often each rule fired.
    """

    before: Network
    after: Network
    data: bytes
    rules: Counter[str]

    @property
    def computes(self) -> bool:
        """Whether weights were computed."""
        return not COMPUTING.isdisjoint(self.rules)


@cache
def folded(path: Path) -> Folded:
    """The network of a file, and what the rules of armnn.toml make of it."""
    before = fe.load(path)
    after = fe.fuse(before, fe.load_rules("armnn"))
    return Folded(before, after, fe.dumps(after), Counter(fusion.rule for fusion in after.graph["fusions"]))


def release_of(entry: Mapping[str, Any]) -> str:
    """The installed release that stands for the one that made a file of the manifest."""
    return "23.08" if "23.08" in entry["made_by"] else "20.08"


def difference(before: Output, after: Output) -> float:
    """max|x - y| / max|x|; the two must be the same output."""
    assert (before.id, before.name) == (after.id, after.name)
    assert (before.values.dtype, before.values.shape) == (after.values.dtype, after.values.shape)
    x, y = before.values.astype(np.float64), after.values.astype(np.float64)
    if np.array_equal(x, y, equal_nan=True):
        return 0.0
    return float(np.abs(x - y).max() / np.abs(x).max())


def layers(graph: Network) -> Counter[str]:
    """Layers by type, deprecated spellings as their successors, Constants left out: 23.08 makes them of members."""
    return _plain(Counter(node["type"] for node in graph.nodes.values()))


def optimized(real_armnn: RealArmnn, model: Path | bytes) -> Counter[str] | None:
    """What 23.08's Optimize for CpuRef leaves, counted as by `layers`; None where 23.08 does not take the file."""
    try:
        return _plain(real_armnn.optimized(model, "23.08"))
    except ArmnnFailed:
        return None


def _plain(types: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in types.items():
        if name != "Constant":
            found[SPELLINGS[name].type if name in SPELLINGS else name] += count
    return found
