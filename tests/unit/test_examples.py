"""The examples: their files are what their scripts make, and fusing keeps what the networks do."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
MODELS = sorted((EXAMPLES / "models").glob("*.armnn"))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script of examples/ by name."""
    monkeypatch.syspath_prepend(EXAMPLES)

    def load(name: str) -> ModuleType:
        return import_module(name)

    yield load
    for name in ("chain", "interpreter", "make_mobilenet", "evaluate_digits"):
        sys.modules.pop(name, None)


def kinds(graph: Any) -> list[str]:
    return sorted(data["type"] for _, data in graph.nodes(data=True))


def test_three_models_of_a_modest_size() -> None:
    assert [path.name for path in MODELS] == ["digits.armnn", "mobilenet-20.08.armnn", "mobilenet.armnn"]
    assert sum(path.stat().st_size for path in EXAMPLES.rglob("*") if path.suffix in (".armnn", ".npz")) < 1_500_000


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_models_are_valid_and_stable(path: Path) -> None:
    graph = fe.load(path)
    assert fe.validate(graph) == ()
    assert fe.dumps(graph) == path.read_bytes()


def test_mobilenets_are_what_the_script_makes(example: Any, tmp_path: Path) -> None:
    example("make_mobilenet").main(tmp_path)
    for name in ("mobilenet.armnn", "mobilenet-20.08.armnn"):
        assert fe.difference(fe.load(tmp_path / name), fe.load(EXAMPLES / "models" / name)) is None
    assert kinds(fe.load(tmp_path / "mobilenet.armnn")).count("BatchNormalization") == 19


def test_the_mobilenets_differ_in_form_alone(example: Any) -> None:
    image = np.random.RandomState(1).uniform(-1, 1, (2, 64, 64, 3))
    run = example("interpreter").run
    inputs, members = (fe.load(EXAMPLES / "models" / name) for name in ("mobilenet.armnn", "mobilenet-20.08.armnn"))
    assert [inputs.graph["feature_versions"], members.graph["feature_versions"]] == [(1, 1, 1), (1, 0, 0)]
    assert kinds(inputs).count("Constant") == 21
    assert kinds(members).count("Constant") == 0
    found = run(inputs, image=image)["probabilities"]
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert np.ptp(found) > 0.05
    np.testing.assert_allclose(run(members, image=image)["probabilities"], found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["mobilenet.armnn", "mobilenet-20.08.armnn"])
def test_mobilenet_keeps_its_outputs(example: Any, name: str) -> None:
    run = example("interpreter").run
    image = np.random.RandomState(2).uniform(-1, 1, (2, 64, 64, 3))
    before = fe.load(EXAMPLES / "models" / name)
    after = fe.fuse(before, fe.load_rules("armnn"))
    assert "BatchNormalization" not in kinds(after)
    assert sum(fusion.rule == "batch-norm" for fusion in after.graph["fusions"]) == 19
    expected = run(before, image=image)["probabilities"]
    np.testing.assert_allclose(run(after, image=image)["probabilities"], expected, rtol=0, atol=1e-6)


def test_digits_keep_their_accuracy() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "evaluate_digits.py"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    before, after, difference = done.stdout.splitlines()
    assert before == "before: 18 layers, 353 of 360 right, accuracy 98.06%"
    assert after == " after: 15 layers, 353 of 360 right, accuracy 98.06%"
    found = re.fullmatch(r"largest difference of a probability: (\S+)", difference)
    assert found is not None
    assert float(found[1]) < 1e-5
    page = (EXAMPLES / "README.md").read_text("utf-8")
    assert before in page
    assert after in page


def test_held_out_images(example: Any) -> None:
    images, labels = example("evaluate_digits").load_test_set()
    assert images.shape == (360, 8, 8, 1)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert np.bincount(labels).tolist() == [36, 37, 35, 37, 36, 36, 36, 36, 35, 36]


def test_the_interpreter_refuses_what_it_does_not_know(example: Any) -> None:
    graph = fe.load(EXAMPLES / "models" / "digits.armnn")
    layer = next(key for key, data in graph.nodes(data=True) if data["type"] == "Softmax")
    graph.nodes[layer]["type"] = "LogSoftmax"
    with pytest.raises(NotImplementedError, match="softmax: layers of type LogSoftmax are not interpreted here"):
        example("interpreter").run(graph, image=np.zeros((1, 8, 8, 1)))
