"""The batch of thousands of models, in small: every way gives the same bytes, every broken model is told of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.zoo import BROKEN, Run, dask_cluster, faults, generate, growth, kills, run, written

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")

MODELS = 44


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Models of 5 kB, 20 of them broken, and which."""
    folder = tmp_path_factory.mktemp("zoo") / "zoo"
    return folder, generate(folder, MODELS, large=0, median=5_000)


def test_a_zoo_is_what_its_seed_says(zoo: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, broken = zoo
    assert generate(tmp_path, MODELS, large=0, median=5_000) == broken
    assert len(broken) == len(BROKEN) == 20
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.armnn"))
    assert len(names) == MODELS
    for name in names:
        assert (folder / name).is_file() == (tmp_path / name).is_file()
        assert not (folder / name).is_file() or (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_one_worker_two_and_a_cluster_give_the_same_bytes(zoo: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, broken = zoo
    ways = {"one": ("--jobs", "1"), "two": ("--jobs", "2")}
    first: dict[str, int] = {}
    for name, options in ways.items():
        found = run(name, folder, tmp_path / name, *options)
        first = first or written(tmp_path / name)
        assert faults(found, broken, MODELS, written(tmp_path / name), first) == []
        assert max(found.main) > 20_000
    pytest.importorskip("distributed", reason="a scheduler needs the extra 'dask'")
    with dask_cluster(2) as (address, workers):
        assert len(workers) == 2
        found = run("Dask", folder, tmp_path / "dask", "--scheduler", address, others=workers)
    assert faults(found, broken, MODELS, written(tmp_path / "dask"), first) == []


def test_faults_are_found(zoo: tuple[Path, list[str]], tmp_path: Path) -> None:
    """The judge of the runs sees what it is to see."""
    folder, broken = zoo
    found = run("one", folder, tmp_path / "one", "--jobs", "1")
    made = written(tmp_path / "one")
    assert faults(found, broken[1:], MODELS + 1, made, {**made, "x": 1}) == [
        f"one: {MODELS} models of {MODELS + 1}",
        f"one: failed: ['{broken[0]}']",
        f"one: {MODELS - 20} models written of {MODELS - 18}",
        "one: other bytes than the first run",
    ]
    assert growth(Run("two", 0, 1.0, 1.0, {}, main=[10, 10, 50_000, 50_000, 60_000, 60_000, 60_240, 0])) == []
    assert growth(Run("two", 0, 1.0, 1.0, {}, main=[10, 10, 50_000, 50_000, 60_000, 60_000, 90_000, 0])) == [
        "two: the memory of the command grew from 49 to 88 MB"
    ]
    (tmp_path / "one" / "left.tmp").touch()
    with pytest.raises(AssertionError, match=r"left\.tmp was left behind"):
        written(tmp_path / "one")


def test_killed_at_any_moment_the_rerun_completes(zoo: tuple[Path, list[str]], tmp_path: Path) -> None:
    good = tmp_path / "zoo"
    good.mkdir()
    for path in zoo[0].rglob("*.armnn"):
        if path.relative_to(zoo[0]).as_posix() not in zoo[1]:
            (good / path.name).write_bytes(path.read_bytes())
    found = list(kills(good, tmp_path, 2))
    assert [line.partition(" ")[0] for line in found] == ["ok"] * 2, found
