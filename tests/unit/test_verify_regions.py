"""What is said of regions, and what is done where layers were taken for each other that are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict, Network
from tests.support.nets import Net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from fusion_engine.verifying.onnxgraph import OnnxGraph


def unrecorded(graph: Network) -> Network:
    """The same as a file has it that nobody knows the history of."""
    return fe.loads(fe.dumps(graph))


def crossed(swapped: bool) -> Network:
    """ReLu and Abs beside each other, then their sum; swapped, each has the name of the other."""
    net = Net()
    x = net.input((1, 8))
    names = ("q", "p") if swapped else ("p", "q")
    relu, absolute = net.activation(x, "ReLu", name=names[0]), net.activation(x, "Abs", name=names[1])
    square = net.activation(net.binary("Subtraction", relu, absolute), "Square", name="s")
    net.output(square, name="out")
    return net.graph


def test_names_that_lead_astray_are_given_up() -> None:
    """ReLu and Abs under each other's names differ; by their connections they are what they were."""
    found = fe.verify(unrecorded(crossed(False)), unrecorded(crossed(True)))
    assert found.status == "verified", found.regions


def test_what_differs_stays_a_failure_when_names_are_given_up() -> None:
    """And it is told as it was found at first: of the layers that have the name."""
    before = unrecorded(crossed(False))
    after = unrecorded(crossed(True))
    (key,) = (key for key, node in after.nodes.items() if node["name"] == "p")
    after.nodes[key]["params"] = FrozenDict({"activationFunction": "TanH", "a": 1.0, "b": 1.0})
    found = fe.verify(before, after)
    assert found.status == "failed"
    p, q, below = found.regions
    assert [layer.index for region in (p, q, below) for layer in (*region.before, *region.after)] == [1, 2, 2, 1, 3, 3]
    assert {region.status for region in found.regions} == {"failed"}
    assert p.reason is not None
    assert p.reason.startswith("what layer 1 'p' gave before and layer 2 'p' gives after differ by")


def test_a_region_that_the_runtime_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: OnnxGraph, names: Any) -> Any:
        raise RuntimeError("no such operator")

    net = Net()
    x = net.input((1, 8))
    net.output(net.activation(net.activation(x, "ReLu", name="a"), "ReLu", name="b"))
    fused = fe.fuse(net.graph, [rule for rule in fe.load_rules("armnn") if rule.name == "activation-chain"])
    assert fused.graph["fusions"]
    monkeypatch.setattr(OnnxGraph, "session", fails)
    found = fe.verify(net.graph, fused)
    assert found.status == "unverified"
    (region,) = found.regions
    assert region.reason is not None
    assert "onnxruntime does not take the region: no such operator" in region.reason
    assert "'b'" in region.reason


def test_other_tensors_are_told_of() -> None:
    """Shape, data type and quantization, before and after."""
    net = Net(data_type="QAsymmU8")
    x = net.input((1, 4), quantization_scale=0.5, quantization_offset=3)
    relu = net.activation(x, "ReLu", name="relu")
    net.output(relu)
    after = fe.fuse(net.graph, ())
    after.nodes[relu]["outputs"] = (replace(net.info(relu), quantization_scale=0.25),)
    (region,) = fe.verify(net.graph, after).regions
    assert region.reason == (
        "layer 1 'relu' gives QAsymmU8 (1, 4), quantized (0.5, 3) before and QAsymmU8 (1, 4), quantized (0.25, 3) after"
    )
    plain = Net()
    x = plain.input((1, 4))
    relu = plain.activation(x, "ReLu", name="relu")
    plain.output(relu)
    after = fe.fuse(plain.graph, ())
    after.nodes[relu]["outputs"] = (replace(plain.info(relu), shape=(4, 1)),)
    (region,) = fe.verify(plain.graph, after).regions
    assert region.reason == "layer 1 'relu' gives Float32 (1, 4) before and Float32 (4, 1) after"


def test_a_deep_difference_is_looked_at_level_by_level() -> None:
    """A clamp below layers that bend: what the region draws freely is looked into until the difference is explained."""
    net = Net()
    at = net.input((1, 8))
    for number in range(6):
        at = net.activation(at, "Abs", name=f"abs{number}")
    net.output(net.activation(at, "ReLu", name="relu"))
    after = fe.fuse(net.graph, ())
    (key,) = (key for key, node in after.nodes.items() if node["name"] == "relu")
    after.nodes[key]["params"] = FrozenDict({"activationFunction": "Linear", "a": 1.0, "b": 0.0})
    assert fe.verify(net.graph, after).status == "verified"  # nothing below 0 comes there
    after.nodes[key]["params"] = FrozenDict({"activationFunction": "Linear", "a": 1.5, "b": 0.0})
    found = fe.verify(net.graph, after)
    assert found.status == "failed"
    assert np.isclose(float(found.regions[0].difference or 0), 0.5, rtol=1e-3)
