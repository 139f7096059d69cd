"""A short run of every fuzz target without atheris, and everything that fuzzing has found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS
from tests.verifier.mutations import mutated

FOUND = Path(__file__).with_name("found")
EXECUTIONS = {"model": 3000, "text": 8000, "rule_file": 1000, "fuse": 700}
"""A few seconds each at the most."""


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", list(TARGETS))
def test_damaged_seeds(name: str) -> None:
    random = Random(5)
    pool = list(SEEDS[name]())
    assert len(pool) > 10
    for _ in range(EXECUTIONS[name]):
        kind, data = mutated(random, random.choice(pool), pool)
        try:
            TARGETS[name](data)
        except Exception as error:
            raise AssertionError(f"{name} fails on {data!r} ({kind})") from error


@pytest.mark.parametrize("name", list(TARGETS))
def test_the_seeds_pass(name: str) -> None:
    for data in list(SEEDS[name]())[::7]:
        TARGETS[name](data)
