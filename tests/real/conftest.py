"""Fixtures of the tests that run real Arm NN or read the corpus; they skip where either is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.backend import Backend
from tests.support.backend import locate as locate_backend
from tests.support.real_armnn import SHARED, RealArmnn, locate

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def real_armnn() -> RealArmnn:
    """Real Arm NN 20.08 and 23.08: ``real_armnn.run(model, "20.08").outputs``."""
    found = locate()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real networks."""
    folder = SHARED / "corpus"
    if not folder.is_dir():
        pytest.skip(f"there is no corpus in {folder}")
    return folder


@pytest.fixture(scope="session")
def manifest(corpus: Path) -> dict[str, dict[str, Any]]:
    """What real Arm NN did with each corpus file, by its path below the corpus."""
    return {entry["file"]: entry for entry in json.loads((corpus / "manifest.json").read_text("utf-8"))["files"]}


@pytest.fixture(scope="session")
def backend(real_armnn: RealArmnn) -> Backend:
    """The example backend in real Arm NN 23.08: ``backend.run(model, inputs)``."""
    found = locate_backend(real_armnn)
    if isinstance(found, str):
        pytest.skip(found)
    return found
