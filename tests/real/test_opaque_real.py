"""Opaque layers in real Arm NN: both releases take a StandIn with its Constants, recipe and code."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusion_engine as fe
from tests.support.nets import Net
from tests.support.opaques import fuse_layers
from tests.support.real_armnn import RealArmnn


def member_net(dialect: str) -> Net:
    """conv (weights as members) -> relu, twice, in a file of releases before 21.08."""
    net = Net(dialect, (1, 0, 0) if dialect == "current" else None, form="member")
    last = net.input((1, 2, 2, 1), name="x")
    for name in ("a", "b"):
        conv = net.conv(last, weights=[[[[2.0]]]], bias=[0.5], name=f"conv {name}")
        if dialect == "current":
            last = net.activation(conv, "ReLu", name=f"relu {name}")
        else:
            last = net.layer("Activation", conv, params={"function": "ReLu"}, name=f"relu {name}")
    net.output(last, name="y")
    return net


@pytest.mark.parametrize("release", ["20.08", "23.08"])
@pytest.mark.parametrize("dialect", ["current", "19.05", "19.02"])
@pytest.mark.parametrize("code", [0, 300, 2**31 - 1, -(2**31)])
def test_real_arm_nn_takes_opaque_layers(
    real_armnn: RealArmnn, tmp_path: Path, release: str, dialect: str, code: int
) -> None:
    net = member_net(dialect)
    inner = fuse_layers(net.graph, [3, 2], "ReluConv", code=code)
    fe.save(fuse_layers(inner, [4, 3], "Nested", code=code), tmp_path / "fused.armnn")
    layers = real_armnn.parse(tmp_path / "fused.armnn", release)["layers"]
    assert layers["StandIn"] == 1
    # weights, bias and recipe; 23.08 makes Constants of the members that are left, too
    assert layers["Constant"] == 3 + (2 if release == "23.08" else 0)
    assert layers["Convolution2d"] == 1
