"""The examples in real Arm NN, before and after fusing, against the examples' own interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fusion_engine as fe
from tests.support.real_armnn import RealArmnn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

RUNS = [
    ("digits.armnn", "20.08"),
    ("digits.armnn", "23.08"),
    ("mobilenet.armnn", "23.08"),
    ("mobilenet-20.08.armnn", "20.08"),
    ("mobilenet-20.08.armnn", "23.08"),
]


@pytest.mark.parametrize(("name", "release"), RUNS)
def test_fused_and_not(real_armnn: RealArmnn, monkeypatch: pytest.MonkeyPatch, name: str, release: str) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from interpreter import run

    before = fe.load(EXAMPLES / "models" / name)
    after = fe.fuse(before, fe.load_rules("armnn"))
    shape = before.nodes[before.graph["inputs"][0]]["outputs"][0].shape
    image = np.random.RandomState(3).uniform(0, 1, shape).astype(np.float32)
    expected = run(before, image=image.astype(np.float64))["probabilities"]
    for graph in (before, after):
        (output,) = real_armnn.run(fe.dumps(graph), release, inputs={"image": image}).outputs
        assert output.name == "probabilities"
        assert np.abs(output.values - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("release", ["20.08", "23.08"])
def test_accuracy(real_armnn: RealArmnn, release: str) -> None:
    command = [sys.executable, EXAMPLES / "evaluate_digits.py", "--armnn-run", real_armnn.tool(release)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, _ = done.stdout.splitlines()
    assert before == "before: 18 layers, 353 of 360 right, accuracy 98.06%"
    assert after == " after: 15 layers, 353 of 360 right, accuracy 98.06%"
