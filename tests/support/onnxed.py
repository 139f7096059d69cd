"""Whole networks in ONNX operators, as verification writes regions: run on given inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.canonical import canonical_order
from fusion_engine.network import Network, Source, edges_into
from fusion_engine.verifying.expressions import express, output_info
from fusion_engine.verifying.layer import Value
from fusion_engine.verifying.onnxgraph import OnnxGraph, carrier
from fusion_engine.verifying.regions import live_layers

Array = npt.NDArray[Any]


def evaluate(graph: Network, inputs: Mapping[int, npt.ArrayLike]) -> list[Array]:
    """What reaches each listed Output: values by key of the Input; stored values throughout."""
    onnx = OnnxGraph()
    known, feeds = {}, {}
    for key in graph.graph["inputs"]:
        info = output_info(graph, Source(key, 0))
        assert info is not None
        known[Source(key, 0)] = Value(onnx.input(f"x{key}", info.shape, carrier(info)), info)
        feeds[f"x{key}"] = np.asarray(inputs.get(key, np.zeros(info.shape)), info.dtype).astype(carrier(info))
    live = live_layers(graph)
    layers = [
        key for key in canonical_order(graph) if key in live and graph.nodes[key]["type"] not in ("Input", "Output")
    ]
    found = express(onnx, graph, layers, known)
    targets = [edges_into(graph, key)[0][1] for key in graph.graph["outputs"]]
    return onnx.session([found[target].name for target in targets]).run(feeds)


def random_inputs(graph: Network, seed: int = 5) -> dict[int, Array]:
    """Values for every Input: floats between -1 and 1, small integers, quantized types over all they hold."""
    random = np.random.default_rng(seed)
    found: dict[int, Array] = {}
    for key in graph.graph["inputs"]:
        info = output_info(graph, Source(key, 0))
        assert info is not None
        if info.dtype.kind == "f":
            found[key] = random.uniform(-1, 1, info.shape).astype(info.dtype)
        else:
            small = info.canonical_type in ("Signed32", "Signed64", "Boolean")
            low, high = (0, 2 if info.canonical_type == "Boolean" else 8) if small else _range(info.dtype)
            found[key] = np.asarray(random.integers(low, high, info.shape), info.dtype)
    return found


def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    facts = np.iinfo(dtype)
    return int(facts.min), int(facts.max) + 1
