"""What a run remembers is on disk: nothing is lost, nothing is left behind, and memory does not grow with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion_engine import LayerRef, Obstacle, Reading, Refusal
from fusion_engine.batch import Job
from fusion_engine.cli import main
from fusion_engine.report import Layers, ModelReport, json_pieces
from fusion_engine.spool import Backlog, Entries, Spool
from fusion_engine.tasks import Task


@given(st.lists(st.binary(max_size=30)), st.integers(0, 60))
def test_strings_come_back(strings: list[bytes], most: int) -> None:
    spool = Spool(most)
    assert [spool.append(one) for one in strings] == list(range(len(strings)))
    for _ in range(2):
        assert [spool.at(place) for place in range(len(spool))] == strings
    if strings:
        assert spool.append(b"more") == len(strings)
        assert (spool.at(0), spool.at(len(strings))) == (strings[0], b"more")
    spool.clear()
    assert len(spool) == 0
    assert spool.append(b"again") == 0
    assert spool.at(0) == b"again"


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So nothing is left behind by a process that is killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[object] = []
    temporary_file = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: made.append(1) or temporary_file(**options))
    spool = Spool(10)
    for _ in range(3):
        spool.append(b"12345")
        assert list(tmp_path.iterdir()) == []
    assert len(made) == 1
    assert spool.at(2) == b"12345"
    spool.clear()


def full_after(room: int, folder: Path) -> IO[bytes]:
    """A file without a buffer on a disk that has so many bytes left."""

    class Full:
        def __init__(self) -> None:
            self._file = open(folder / "full", "w+b", buffering=0)  # noqa: SIM115 - closed by its own method

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: bytes) -> int:
            if self._file.tell() + len(data) > room:
                self._file.write(data[: room - self._file.tell()])
                raise OSError(28, os.strerror(28))
            return self._file.write(data)

    return Full()  # type: ignore[return-value]


@pytest.mark.parametrize("room", [0, 3, 8, 12, 13, 100])
def test_a_full_disk_loses_nothing(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda buffering: full_after(room, tmp_path))
    spool = Spool(5)
    strings = [b"abcd", b"efgh", b"", b"ijkl", b"m"]
    for one in strings:
        spool.append(one)
    assert [spool.at(place) for place in range(5)] == strings
    spool.clear()


def test_files_that_may_not_grow_lose_nothing() -> None:
    """What could not be written is not tried again where something else is read."""
    code = """
import resource, signal
from fusion_engine.spool import Spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
spool, strings = Spool(0), [bytes([65 + n]) * 90 for n in range(20)]
for n, one in enumerate(strings):
    spool.append(one)
    assert [spool.at(place) for place in range(n + 1)] == strings[: n + 1]
spool.clear()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_directory_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(buffering: int) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", none)
    entries = Entries([{"a": "x" * (1 << 20)}, {"b": 2}])
    assert [list(entry) for entry in entries] == [["a"], ["b"]]


def test_entries() -> None:
    entries = Entries({"number": number, "name": "\udcff\n"} for number in range(4))
    assert len(entries) == 4
    assert entries[1] == entries[-3] == {"number": 1, "name": "\udcff\n"}
    assert [entry["number"] for entry in entries[1:3]] == [1, 2]
    assert [entry["number"] for entry in entries] == [0, 1, 2, 3]
    assert "".join(entries.lines()) == "".join(json.dumps(entry) + "\n" for entry in entries)
    with pytest.raises(IndexError):
        entries[4]
    assert not Entries()


@given(st.lists(st.integers(0, 200), unique=True))
def test_reports_wait_for_their_turn(order: list[int]) -> None:
    backlog = Backlog()
    for number in order:
        backlog.put(number, ModelReport(str(number), "failed", error="x" * number))
    assert [number for number in range(201) if number in backlog] == sorted(order)
    for number in sorted(order):
        assert backlog.take(number) == ModelReport(str(number), "failed", error="x" * number)
    assert not any(number in backlog for number in order)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=3)


@given(OBJECTS, OBJECTS, JSON)
def test_json_in_pieces_is_json(models: list[Any], known: list[Any], other: Any) -> None:
    """The text is what the standard library makes of the whole, wherever the long lists stand."""
    plain = {"other": other, "gate": {"a": [1], "known": known, "none": None}, "models": models}
    streamed = {**plain, "gate": {**plain["gate"], "known": Entries(known)}, "models": Entries(models)}
    expected = json.dumps(plain, indent=2) + "\n"
    assert "".join(json_pieces(streamed)) == "".join(json_pieces(plain)) == expected


# The command


class Talker:
    """A worker that has much to tell of each model."""

    def __call__(self, job: Job) -> ModelReport:
        layer = LayerRef(1, "x", "Activation")
        if job.output is not None:
            os.makedirs(os.path.dirname(job.output), exist_ok=True)
            Path(job.output).write_bytes(b"result")
        return ModelReport(
            job.path,
            "fused",
            job.output,
            "current",
            Layers(2, 0),
            Layers(1, 0),
            refusals=tuple(Refusal(f"rule {n}", layer, "why") for n in range(4)),
            readings=(Reading("20.02", (Obstacle("x" * 20_000, None, (), ()),)),),
        )


def peak(count: int, folder: Path) -> int:
    """Bytes of memory that a run of so many models takes, and a run that finds all of it done."""
    (folder / "m").mkdir(parents=True)
    for number in range(count):
        (folder / "m" / f"{number:04}.armnn").write_bytes(b"model")
    reports = [
        word for suffix in ("json", "jsonl", "csv", "xml", "html") for word in ("--report", f"{folder}/r.{suffix}")
    ]
    command = [
        "fuse",
        f"{folder}/m",
        "--out",
        f"{folder}/o",
        "--jobs",
        "1",
        "--quiet",
        "--fail-on",
        "refused",
        *reports,
    ]
    assert main([*command, "--dry-run"]) == 3  # all modules are there now
    tracemalloc.start()
    try:
        for _ in range(2):
            assert main(command) == 3
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    report = json.loads((folder / "r.json").read_text())
    assert report["summary"]["refusals"] == len(report["gate"]["tripped"]) == 4 * count
    assert (folder / "r.json").stat().st_size > 20_000 * count
    return most


def test_memory_does_not_grow_with_the_number_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "worker", lambda self, pages=None: Talker())
    small, large = peak(60, tmp_path / "small"), peak(160, tmp_path / "large")
    assert large - small < 400_000, f"{small} bytes for 60 models, {large} for 160, whose reports have 2 MB"
