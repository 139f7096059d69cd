"""The package as a user gets it: built, installed into an environment of its own, used from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fusion_engine as fe

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "models"
DEPENDENCIES = ("networkx", "numpy", "parsimonious", "regex")

pytestmark = pytest.mark.xdist_group("wheel")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees no checkout: not by its directory, nor by PYTHONPATH."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.args} exits {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source distribution and, built from that one, the wheel."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; its dependencies are those of this one, so nothing is downloaded."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    places = {str(Path(spec.origin).parents[1]) for name in DEPENDENCIES if (spec := find_spec(name)) and spec.origin}
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "dependencies.pth").write_text("\n".join(sorted(places)) + "\n", "utf-8")
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=folder)
    return folder / "bin"


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {
        "fusion_engine/__init__.py",
        "fusion_engine/py.typed",
        "fusion_engine/include/fusion_engine/standin.hpp",
    }
    for folder, patterns in {"schema": ("*.fbs", "*.json", "*.toml"), "rules": ("*.toml",)}.items():
        data = {path.name for pattern in patterns for path in (ROOT / folder).glob(pattern)}
        assert data, folder
        expected |= {f"fusion_engine/_data/{folder}/{name}" for name in data}
    assert expected <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "examples/"))]
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_import_from_elsewhere(environment: Path, tmp_path: Path) -> None:
    text = "import fusion_engine as fe; print(fe.__file__); print(*(r.name for r in fe.load_rules('armnn', 'npu')))"
    file, rules = run(environment / "python", "-c", text, cwd=tmp_path).stdout.splitlines()
    assert Path(file).is_relative_to(environment.parent)
    assert rules.split() == [rule.name for rule in fe.load_rules("armnn", "npu")]


def test_the_header_from_elsewhere(environment: Path, tmp_path: Path) -> None:
    folder = Path(run(environment / "fusion-engine", "include-dir", cwd=tmp_path).stdout.strip())
    assert folder.is_relative_to(environment.parent)
    header = Path("fusion_engine", "standin.hpp")
    assert (folder / header).read_bytes() == (ROOT / "fusion_engine" / "include" / header).read_bytes()


def fuse(environment: Path, tmp_path: Path, *rules: str) -> dict[str, dict[str, Any]]:
    """Fuse examples/models; the report's models by file name."""
    options = [option for rule in rules for option in ("--rules", rule)]
    report = tmp_path / "report.json"
    run(environment / "fusion-engine", "fuse", *options, MODELS, "--out", "fused", "--report", report, cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "fused").rglob("*.armnn")) == sorted(os.listdir(MODELS))
    return {Path(model["path"]).name: model for model in json.loads(report.read_text("utf-8"))["models"]}


def test_npu_rules(environment: Path, tmp_path: Path) -> None:
    models = fuse(environment, tmp_path, "npu")
    assert {name: model["status"] for name, model in models.items()} == {
        "digits.armnn": "fused",
        "mobilenet.armnn": "unchanged",
        "mobilenet-20.08.armnn": "unchanged",
    }
    (fusion,) = models["digits.armnn"]["fusions"]
    assert [layer["name"] for layer in fusion["layers"]] == ["dense12/relu", "dense12"]
    for name in ("mobilenet.armnn", "mobilenet-20.08.armnn"):
        assert (tmp_path / "fused" / name).read_bytes() == (MODELS / name).read_bytes()


def test_folds_then_npu_rules(environment: Path, tmp_path: Path) -> None:
    models = fuse(environment, tmp_path, "armnn", "npu")
    for name, batch_norms, activations in (("digits.armnn", 3, 4), ("mobilenet.armnn", 19, 19)):
        rules = [fusion["rule"] for fusion in models[name]["fusions"]]
        assert rules.count("batch-norm") == batch_norms
        assert len(rules) == batch_norms + activations
