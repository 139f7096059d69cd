"""verify: what cannot be told is said to be so."""

from __future__ import annotations

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import FrozenDict
from fusion_engine.tensor import Tensor
from tests.support.nets import Net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from tests.support.verified import (
    RULES,
    anything_goes,  # noqa: F401 - a fixture
    checked,
    conv_net,
    dropped,
    normed,
    rewired,
    rule_of,
)

pytestmark = pytest.mark.usefixtures("anything_goes")


@pytest.mark.parametrize("records", [False, True])
def test_stand_ins_of_two_names_are_two_functions(records: bool) -> None:
    net = Net()
    x = net.input((1, 4))
    one, other = (net.stand_in(x, outputs=[(1, 4)], name=name) for name in ("Foo", "Bar"))
    minus = net.binary("Subtraction", one, other, name="minus")
    net.output(minus)
    after = rewired(net.graph, minus, 1, one)
    assert other not in after
    if records:
        after.graph["fusions"] = ()
    else:
        after.nodes[minus]["name"] = "another"
    assert fe.verify(net.graph, after).status != "verified"
    assert fe.verify(net.graph, net.graph.copy()).status == "verified"


def test_a_region_that_cannot_be_expressed_is_unverified() -> None:
    net = Net()
    x = net.input((1, 4))
    foreign = net.stand_in(x, outputs=[(1, 4)], name="foreign")
    net.output(net.activation(foreign, name="relu"))
    found = checked(net.graph, rule_of(dropped, "Activation{StandIn}", below=True), "unverified")
    (check,) = found.fusions
    assert check.status == "unverified"
    assert check.difference is None
    assert check.reason is not None
    assert "StandIn layer 1 'foreign' cannot be expressed: there is no expression for StandIn" in check.reason


def test_a_difference_under_a_layer_that_nothing_is_known_of_is_a_failure() -> None:
    """The region can be run and differs; what is above it cannot be looked at."""
    net = Net()
    foreign = net.stand_in(net.input((1, 4)), outputs=[(1, 4)], name="foreign")
    net.output(net.activation(net.activation(foreign, name="relu"), "Square"))
    checked(net.graph, rule_of(dropped, 'Activation[activationFunction == "ReLu"]'), "failed")


def test_what_is_too_large_is_not_run() -> None:
    net = Net()
    x = net.input((2**15, 2**14))
    net.output(net.activation(net.activation(x), "BoundedReLu", 1.0, -1.0))
    found = checked(net.graph, "activation-chain", "unverified")
    assert (
        found.regions[0].reason == "Input layer 0 'input_0' cannot be expressed: it gives more than 268435456 elements"
    )


def test_records_that_fuse_did_not_leave() -> None:
    graph = conv_net(normed)
    fused = fe.fuse(graph, RULES["batch-norm"])
    for wrong in (3, (1,)):
        fused.graph["fusions"] = wrong
        with pytest.raises(fe.VerifyError, match="is not what fuse leaves"):
            fe.verify(graph, fused)


def test_nothing_but_nan_proves_nothing() -> None:
    net = Net()
    product = net.multiplication(net.input((1, 4)), net.constant([np.nan], name="nan"))
    net.output(product)
    fused = fe.fuse(net.graph, ())
    key = next(k for k, node in fused.nodes(data=True) if node["type"] == "Constant")
    fused.nodes[key]["constants"] = FrozenDict(input=Tensor.of([-np.nan]))
    found = fe.verify(net.graph, fused)
    assert found.status == "unverified"
    assert found.regions[0].reason == "it gave no finite number to compare"
