"""Files that flatc makes by the schema of each release: read, fused, written, and run by real Arm NN where it can."""

from __future__ import annotations

import json
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.tensor import TensorInfo
from tests.support.nets import Net
from tests.support.real_armnn import SHARED, RealArmnn
from tests.support.release_schemas import dialect_of, flatc_decode, flatc_encode, own_schema, schema_text

FACTS = SHARED / "schema" / "dialects.json"
VERSIONS = json.loads(FACTS.read_text("utf-8")) if FACTS.exists() else []
RELEASES = [version["version"].split(",")[0].removeprefix("v") for version in VERSIONS]

FUSED = {"seed": [], "19.02": ["scale"]}
"""Rules that fire, where it is not that for batch norm: these schemas have none."""

pytestmark = [
    pytest.mark.skipif(not FACTS.exists(), reason=f"there are no wire facts in {FACTS}"),
    pytest.mark.skipif(shutil.which("flatc") is None, reason="needs flatc"),
]


def network(release: str) -> Network:
    """What the release has: a softmax added to itself, or a convolution in its form of weights, scaled, and ReLU."""
    dialect = dialect_of(release)
    if dialect == "seed":
        net = Net("seed")
        x = net.layer("Softmax", net.input((1, 4)), params={"beta": 1.0})
        net.output(net.addition(x, x))
        return net.graph
    older = dialect != "current" or release < "20.02"
    versions = (0, 0, 0) if older else (1, 0, 0) if release < "21.08" else (1, 1, 1)
    net = Net(dialect, versions, form="constant" if release >= "22.05" and not older else "member")
    weights = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2, 1) / 8
    x = net.conv(net.input((1, 4, 4, 1)), weights, [0.5, -0.25])
    if dialect == "19.02":
        x = net.multiplication(x, net.constant([2.0, 0.5]))
    else:
        x = net.batch_norm(x, [2.0, 0.5], [1.0, -1.0], [0.25, 0.5], [1.0, 4.0])
    x = net.activation(x)
    if dialect == "19.05":  # a layer by which this dialect can be told from what followed
        x = net.layer("Quantize", x, outputs=(TensorInfo(net.info(x).shape, "QuantisedAsymm8", 0.1, 3),))
    net.output(x)
    return net.graph


@cache
def made(release: str) -> bytes:
    """The network's file, as flatc writes it by the release's own schema."""
    version = VERSIONS[RELEASES.index(release)]
    values = flatc_decode(fe.dumps(network(release)), own_schema(dialect_of(release)))
    return flatc_encode(renamed(values, version), schema_text(version))


def renamed(values: Any, version: dict[str, Any]) -> Any:
    """With the field names of the release: what is ``activationFunction`` now was ``function``."""
    then = {row[1] for row in version["tables"].get("ActivationDescriptor", [])}
    for layer in values["layers"]:
        descriptor = layer["layer"].get("descriptor", {})
        for now, former in (("activationFunction", "function"), ("function", "activationFunction")):
            if now in descriptor and now not in then and former in then:
                descriptor[former] = descriptor.pop(now)
    return values


@pytest.mark.parametrize("release", RELEASES)
def test_read_fuse_write(release: str) -> None:
    graph = fe.loads(made(release))
    assert graph.graph["dialect"] == dialect_of(release)
    assert fe.difference(graph, network(release)) is None
    fused = fe.fuse(graph, fe.load_rules("armnn"))
    assert [fusion.rule for fusion in fused.graph["fusions"]] == FUSED.get(release, ["batch-norm"])
    written = fe.dumps(fused)
    assert fe.difference(fe.loads(written), fused) is None
    decoded = flatc_decode(written, schema_text(VERSIONS[RELEASES.index(release)]))
    assert len(decoded["layers"]) == len(fused)
    names = [layer["layer_type"] for layer in decoded["layers"]]
    assert sorted(names) == sorted(node["type"] + "Layer" for _, node in fused.nodes(data=True))


@pytest.mark.parametrize("release", RELEASES)
def test_real_armnn_runs_it_before_and_after(real_armnn: RealArmnn, release: str) -> None:
    """20.08 reads convolutions with member weights, 23.08 those of 22.05 and later; neither the schemas before 19.08.

    23.08 does not read the members of 21.08 to 22.02: featureVersions say there that weights are inputs.
    """
    if dialect_of(release) != "current":
        pytest.skip(f"no release of Arm NN that is installed reads the {release} dialect")
    reader = "20.08" if release < "22.05" else "23.08"
    fused = fe.dumps(fe.fuse(fe.loads(made(release)), fe.load_rules("armnn")))
    before, after = (real_armnn.run(data, reader).outputs for data in (made(release), fused))
    assert [(output.id, output.name) for output in before] == [(output.id, output.name) for output in after]
    for one, other in zip(before, after, strict=True):
        assert one.values.any()
        assert np.abs(one.values - other.values).max() <= 1e-5 * np.abs(one.values).max()
