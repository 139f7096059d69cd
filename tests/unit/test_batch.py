"""Batches: what is found, what is refused before any work, and that no model harms another."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.batch import Change, Found, Job, find_models, plan, process
from fusion_engine.errors import OutputError
from fusion_engine.network import FrozenDict, Network
from fusion_engine.report import ModelReport
from tests.support.nets import Net


def model(name: str = "relu") -> bytes:
    net = Net()
    net.output(net.activation(net.input((1, 2)), name=name))
    return fe.dumps(net.graph)


def keep(graph: Network) -> tuple[Network, bool]:
    return graph, False


def rename(graph: Network) -> tuple[Network, bool]:
    """Rename every Activation."""
    changed = graph.copy()
    for _, node in changed.nodes(data=True):
        if node["type"] == "Activation":
            node["name"] = "renamed"
    return changed, True


def run(jobs: Iterable[Job], change: Change, **options: Any) -> list[ModelReport]:
    return [process(job, change, **options) for job in jobs]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Good, truncated and nested models, other files, a dangling link."""
    folder = tmp_path / "models"
    (folder / "sub" / "deep").mkdir(parents=True)
    for name in ("good.armnn", "sub/good.armnn", "sub/deep/a.armnn", "b.armnn"):
        (folder / name).write_bytes(model())
    (folder / "bad.armnn").write_bytes(model()[:100])
    (folder / "notes.txt").write_text("no model")
    (folder / "dangling.armnn").symlink_to("nowhere")
    return folder


# What is found


def test_a_directory_is_walked_in_order(models: Path) -> None:
    assert [one.below for one in find_models([models])] == [
        "b.armnn",
        "bad.armnn",
        "dangling.armnn",
        "good.armnn",
        "sub/deep/a.armnn",
        "sub/good.armnn",
    ]


def test_a_file_is_taken_whatever_its_name(models: Path) -> None:
    found = find_models([str(models / "notes.txt"), models / "sub"])
    assert [(one.path, one.below) for one in found] == [
        (str(models / "notes.txt"), "notes.txt"),
        (str(models / "sub" / "deep" / "a.armnn"), "deep/a.armnn"),
        (str(models / "sub" / "good.armnn"), "good.armnn"),
    ]


def test_the_output_directory_is_not_walked(models: Path) -> None:
    (models / "out").mkdir()
    (models / "out" / "old.armnn").write_bytes(model())
    below = [one.below for one in find_models([models], models / "sub" / ".." / "out")]
    assert "out/old.armnn" not in below
    assert len(below) == 6
    with pytest.raises(OutputError, match="is the output directory"):
        find_models([models / "out"], models / "out")


def test_links_to_directories_are_not_followed(models: Path) -> None:
    (models / "loop").symlink_to(models)
    assert len(find_models([models])) == 6
    assert len(find_models([models / "loop" / "sub"])) == 2


def test_a_directory_named_like_a_model(models: Path) -> None:
    (models / "x.armnn").mkdir()
    (models / "x.armnn" / "y.armnn").write_bytes(model())
    assert "x.armnn/y.armnn" in [one.below for one in find_models([models])]


def test_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    fault = "there is no file *.armnn in the directory"
    assert find_models([tmp_path]) == [Found(str(tmp_path), tmp_path.name, fault)]
    (job,) = plan([tmp_path], tmp_path / "out")
    assert process(job, keep).error == f"{tmp_path}: {fault}"
    with pytest.raises(OutputError, match="there is no model"):
        find_models([])


def test_a_directory_that_cannot_be_listed(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = find_models([models])
    assert found[-1] == Found(str(models / "sub"), "sub", "cannot be listed: Permission denied")
    report = process(plan([models], models / "out")[-1], keep)
    assert report.status == "failed"
    assert report.error == f"{models / 'sub'}: cannot be listed: Permission denied"


# What is refused before any work


def test_paths_below_a_directory_are_kept(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs = plan([models / "sub", models / "b.armnn"], out)
    assert jobs == [
        Job(str(models / "sub/deep/a.armnn"), str(out / "deep/a.armnn")),
        Job(str(models / "sub/good.armnn"), str(out / "good.armnn")),
        Job(str(models / "b.armnn"), str(out / "b.armnn")),
    ]
    assert not out.exists()


def test_two_inputs_for_one_output(models: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"good\.armnn and .*sub/good\.armnn have the same output"):
        plan([models, models / "sub"], tmp_path / "out")


def test_one_input_twice_is_done_once(models: Path, tmp_path: Path) -> None:
    jobs = plan([models / "b.armnn", models / "sub" / ".." / "b.armnn"], tmp_path / "out")
    assert [job.path for job in jobs] == [str(models / "b.armnn")]


@pytest.mark.parametrize("out", [".", "sub/..", "../models", "../link"])
def test_an_output_that_is_an_input(models: Path, out: str) -> None:
    (models.parent / "link").symlink_to(models)
    with pytest.raises(OutputError, match="is the input"):
        plan([models / "b.armnn"], models / out)


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_an_output_that_is_a_link_to_an_input(models: Path, tmp_path: Path, make: Any) -> None:
    out = tmp_path / "out"
    out.mkdir()
    make(models / "good.armnn", out / "b.armnn")
    with pytest.raises(OutputError, match=r"out/b\.armnn is the input .*good\.armnn"):
        plan([models / "b.armnn", models / "good.armnn"], out)


def test_an_output_behind_a_link_out_of_the_directory(models: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="lies outside"):
        plan([models], tmp_path / "out")


def test_names_that_differ_in_case(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "B.armnn").write_bytes(model())
    paths = [models / "b.armnn", tmp_path / "other"]
    assert len(plan(paths, tmp_path / "out")) == 2
    monkeypatch.setattr("fusion_engine.batch._blind_to_case", lambda folder: True)
    with pytest.raises(OutputError, match="have the same output"):
        plan(paths, tmp_path / "out")


def test_the_output_directory_is_a_file(models: Path) -> None:
    with pytest.raises(OutputError, match="is no directory"):
        plan([models], models / "notes.txt")


# What is done


def test_one_failure_stays_with_its_model(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = {path: path.read_bytes() for path in models.rglob("*.armnn") if path.is_file()}
    reports = run(plan([models], out), rename)
    assert [(os.path.relpath(r.path, models), r.status) for r in reports] == [
        ("b.armnn", "fused"),
        ("bad.armnn", "failed"),
        ("dangling.armnn", "failed"),
        ("good.armnn", "fused"),
        ("sub/deep/a.armnn", "fused"),
        ("sub/good.armnn", "fused"),
    ]
    assert str(models / "bad.armnn") in str(reports[1].error)
    assert "cannot be read: No such file or directory" in str(reports[2].error)
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert written == ["b.armnn", "good.armnn", "sub/deep/a.armnn", "sub/good.armnn"]
    assert (out / "b.armnn").read_bytes() == model("renamed")
    assert {path: path.read_bytes() for path in before} == before


def test_unchanged_models_are_copied_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "a.armnn"
    source.write_bytes(model() + b"what no reader looks at")
    (report,) = run([Job(str(source), str(tmp_path / "out" / "a.armnn"))], keep)
    assert report.status == "unchanged"
    assert report.layers_before == report.layers_after
    assert (tmp_path / "out" / "a.armnn").read_bytes() == source.read_bytes()


def test_a_large_model_is_copied_from_its_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_engine.armnn.files.READ_WHOLE", 10)
    source = tmp_path / "a.armnn"
    source.write_bytes(model())
    for change in (keep, rename):
        (report,) = run([Job(str(source), str(tmp_path / "out.armnn"))], change)
        assert report.error is None
        expected = model() if change is keep else model("renamed")
        assert (tmp_path / "out.armnn").read_bytes() == expected


def test_twice_gives_equal_bytes(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = []
    for _ in range(2):
        run(plan([models], out), rename)
        found.append({path: path.read_bytes() for path in sorted(out.rglob("*.armnn"))})
    assert found[0] == found[1]


@pytest.mark.parametrize("change", [keep, rename])
def test_dry_run_writes_nothing(models: Path, tmp_path: Path, change: Any) -> None:
    jobs = plan([models / "b.armnn"], tmp_path / "out")
    (report,) = run(jobs, change, dry_run=True)
    assert report.output == str(tmp_path / "out" / "b.armnn")
    assert not (tmp_path / "out").exists()
    (job,) = plan([models / "b.armnn"], None)
    assert job.output is None
    assert process(job, change, dry_run=True).error is None


def test_a_dry_run_finds_what_cannot_be_saved(models: Path) -> None:
    def spoil(graph: Network) -> tuple[Network, bool]:
        changed, _ = rename(graph)
        for _, node in changed.nodes(data=True):
            node["params"] = FrozenDict(noSuch=1)
        return changed, True

    (report,) = run(plan([models / "b.armnn"], None), spoil, dry_run=True)
    assert report.status == "failed"


def test_errors_of_every_kind_stay_with_the_model(models: Path, tmp_path: Path) -> None:
    for error, words in ((MemoryError(), "there is not enough memory"), (ZeroDivisionError("x"), "internal error")):

        def fail(graph: Network, error: BaseException = error) -> tuple[Network, bool]:
            raise error

        (report,) = run(plan([models / "b.armnn"], tmp_path / "out"), fail)
        assert report.status == "failed"
        assert words in str(report.error)
    with pytest.raises(KeyboardInterrupt):
        process(Job(str(models / "b.armnn"), None), lambda graph: (_ for _ in ()).throw(KeyboardInterrupt()))


def test_an_output_that_cannot_be_written(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "sub").mkdir(parents=True)
    (out / "sub" / "deep").write_text("a file where a directory is to be")
    (out / "b.armnn").mkdir()
    reports = {os.path.relpath(r.path, models): r for r in run(plan([models], out), rename)}
    assert "cannot be made" in str(reports["sub/deep/a.armnn"].error)
    assert "cannot be written" in str(reports["b.armnn"].error)
    assert reports["good.armnn"].status == "fused"
    assert [path for path in out.rglob("*") if path.name.endswith(".tmp")] == []


def test_an_input_that_changes_meanwhile(models: Path) -> None:
    path = models / "b.armnn"

    def meddle(graph: Network) -> tuple[Network, bool]:
        path.write_bytes(model("another name"))
        return graph, False

    report = process(Job(str(path), None), meddle)
    assert report.error == f"{path}: the file was changed while in use: run it again"


def test_records_and_warnings_are_kept(models: Path) -> None:
    record = fe.Fusion("rule", "Result", (fe.LayerRef(1, "relu", "Activation"),))

    def change(graph: Network) -> tuple[Network, bool]:
        changed, _ = rename(graph)
        changed.graph.update(fusions=(record,), refusals=(), warnings=("one", "one", "two"))
        return changed, True

    report = process(Job(str(models / "b.armnn"), None), change)
    assert report.fusions == (record,)
    assert report.warnings == ("one", "two")
    assert report.dialect == "current"


def test_unusual_names(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"m\xff\n")
    os.mkdir(folder)
    with open(os.path.join(folder, b"\xfe.armnn"), "wb") as file:
        file.write(model())
    jobs = plan([os.fsdecode(folder)], tmp_path / "out")
    (report,) = run(jobs, rename)
    assert report.error is None
    assert os.listdir(os.fsencode(tmp_path / "out")) == [b"\xfe.armnn"]
