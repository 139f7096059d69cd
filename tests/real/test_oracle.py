"""The fixtures themselves: real Arm NN gives the digests of the manifest, and its failures are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.real_armnn import ArmnnFailed, RealArmnn


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_digests_of_the_manifest(
    real_armnn: RealArmnn, corpus: Path, manifest: dict[str, dict[str, Any]], release: str
) -> None:
    name = f"handmade-{release}/conv_bn_relu_nhwc.armnn"
    run = real_armnn.run(corpus / name, release)
    expected = {entry["id"]: entry["fnv1a64"] for entry in manifest[name]["run"][release]["outputs"]}
    assert run.digests == expected
    assert run.outputs[0].values.shape == (1, 10, 10, 8)
    assert float(run.outputs[0].values.max()) == np.float32(run.answer["output_data"][0]["max"])


def test_given_input_and_bytes(real_armnn: RealArmnn, corpus: Path) -> None:
    data = (corpus / "handmade-20.08" / "identity_input_output.armnn").read_bytes()
    shape = real_armnn.parse(data, "20.08")["inputs"][0]["shape"]
    given = np.arange(np.prod(shape), dtype="<f4").reshape(shape)
    run = real_armnn.run(data, "20.08", inputs={"#0": given})
    np.testing.assert_array_equal(run.outputs[0].values, given)


def test_failure_is_told(real_armnn: RealArmnn) -> None:
    with pytest.raises(ArmnnFailed) as caught:
        real_armnn.run(b"\xff" * 64, "23.08")
    assert caught.value.reason
