"""Runs in hostile surroundings: the failure is told and stays with its model, and everything else is done."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion_engine.cli import main
from fusion_engine.ledger import FOLDER
from tests.support.zoo import files, model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with models a, b and c in ``m``."""
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    for number, name in enumerate("abc"):
        Path(f"m/{name}.armnn").write_bytes(model(float(number)))
    return tmp_path


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code of fusing ``m`` to ``o``, and the entries of the report by path."""
    code = main(["fuse", "m", "--out", "o", "--report", "report.json", *arguments])
    return code, {entry["path"]: entry for entry in json.loads(Path("report.json").read_text())["models"]}


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """The command, as a process in the current directory."""
    return subprocess.Popen(
        [sys.executable, "-m", "fusion_engine", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def judge(lines: str) -> str:
    """A judge that runs lines of Python."""
    Path("judge.py").write_text(f"import os, sys, time\n{lines}\n", "utf-8")
    return f"{shlex.quote(sys.executable)} {shlex.quote(os.path.abspath('judge.py'))}"


def until(what: Any) -> None:
    """Wait for something."""
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


# Rights


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user reaches."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def as_nobody(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a user to whom rights are denied."""
    options: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    with started(*arguments, cwd=folder, **options) as process:
        out, error = process.communicate(timeout=120)
    if "Permission denied" in error and "fusion_engine" in error and "Traceback" in error:
        pytest.skip("another user cannot run this Python")
    return subprocess.CompletedProcess(arguments, process.returncode, out, error)


def test_files_and_directories_without_rights(open_place: Path) -> None:
    for name in ("m/a.armnn", "m/locked/b.armnn", "m/d/c.armnn", "o/d/old.armnn"):
        (open_place / name).parent.mkdir(parents=True, exist_ok=True)
        (open_place / name).write_bytes(model())
    (open_place / "m/a.armnn").chmod(0)
    (open_place / "m/locked").chmod(0)
    (open_place / "m/e.armnn").write_bytes(model())
    (open_place / "o").chmod(0o777)
    (open_place / "o/d").chmod(0o555)
    done = as_nobody(open_place, "fuse", "m", "--out", "o")
    assert done.returncode == 1, done.stderr
    assert "m/a.armnn: failed: cannot be read: Permission denied" in done.stdout
    assert "m/locked: failed: cannot be listed: Permission denied" in done.stdout
    assert "o/d/c.armnn: cannot be written: Permission denied" in done.stdout
    assert files(open_place / "o").keys() == {"d/old.armnn", "e.armnn"}
    (open_place / "m/locked").chmod(0o755)


def test_an_output_directory_without_rights(open_place: Path) -> None:
    (open_place / "m").mkdir()
    (open_place / "m/a.armnn").write_bytes(model())
    (open_place / "o").mkdir(0o555)
    done = as_nobody(open_place, "fuse", "m", "--out", "o")
    assert done.returncode == 2
    assert "o: nothing can be written there: Permission denied" in done.stderr
    assert list((open_place / "o").iterdir()) == []


# Disks


def test_a_disk_that_fills_up(place: Path) -> None:
    """A file system of 128 kB: what fits is written, and what cannot be recorded does not end the run."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    import fusion_engine as fe
    from tests.faults.test_faults import network

    fe.save(network(2**16), "m/big.armnn")
    Path("o").mkdir()
    script = (
        'mount -t tmpfs -o size=128k tmpfs o && { "$0" -m fusion_engine fuse m --out o; code=$?; ls -A o; exit $code; }'
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, sys.executable],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount:" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 1, done.stderr
    assert "o/big.armnn: cannot be written: No space left on device" in done.stdout
    assert done.stdout.split()[-4:] == [FOLDER, "a.armnn", "b.armnn", "c.armnn"]


def test_a_record_that_cannot_be_written_does_not_end_the_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run()[0] == 0
    os.unlink(f"o/{FOLDER}/done.jsonl")
    os.mkdir(f"o/{FOLDER}/done.jsonl")
    code, entries = run("--force")
    assert code == 0
    assert [entry["status"] for entry in entries.values()] == ["fused"] * 3
    error = capsys.readouterr().err
    assert f"o/{FOLDER}/done.jsonl: cannot be written: Is a directory: the next run does again" in error
    assert "internal error" not in error
    assert main(["fuse", "m", "--out", "o"]) == 2
    assert f"o/{FOLDER}/done.jsonl: cannot be read: Is a directory: --force does all anew" in capsys.readouterr().err


# Names and kinds


def test_things_that_are_no_files_harm_nobody(place: Path) -> None:
    """Links that lead to themselves, pipes that nobody writes to, sockets, and devices that never end."""
    os.symlink("loop2.armnn", "m/loop1.armnn")
    os.symlink("loop1.armnn", "m/loop2.armnn")
    os.symlink(".", "m/down")
    os.mkfifo("m/pipe.armnn")
    os.symlink("/dev/zero", "m/zero.armnn")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("m/socket.armnn")
        for jobs in ("1", "2"):
            code, entries = run("--jobs", jobs)
            assert code == 1
            errors = {name: entry["error"] for name, entry in entries.items() if entry["status"] == "failed"}
            assert errors == {
                "m/loop1.armnn": "m/loop1.armnn: cannot be read: Too many levels of symbolic links",
                "m/loop2.armnn": "m/loop2.armnn: cannot be read: Too many levels of symbolic links",
                "m/pipe.armnn": "m/pipe.armnn: is no regular file: give an .armnn file",
                "m/socket.armnn": "m/socket.armnn: cannot be read: No such device or address",
                "m/zero.armnn": "m/zero.armnn: is no regular file: give an .armnn file",
            }
    assert files(place / "o").keys() == {"a.armnn", "b.armnn", "c.armnn"}


def test_an_output_directory_that_is_a_link_to_itself(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("o", "o")
    assert main(["fuse", "m", "--out", "o"]) == 2
    assert "o is no directory" in capsys.readouterr().err


def test_names_with_newlines_and_bytes_that_are_no_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.path.join(b"m", b"d\xff\n\x1b[2J")
    os.mkdir(folder)
    names = [b"\xfe\xfd.armnn", b"two\nlines.armnn", b"\x1b]0;title\x07.armnn", b"-.armnn", b" .armnn"]
    for name in names:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(model())
    for jobs in ("2", "1"):
        shown = main(["fuse", "m", "--out", "o", "--jobs", jobs])
        assert shown == 0
        text = "".join(capsys.readouterr())
        assert "\x1b]0" not in text
        assert "\x1b[2J" not in text
        assert text.count("two\\nlines.armnn") >= 1
    assert text.count("earlier") == 8
    assert sorted(os.listdir(folder.replace(b"m", b"o", 1))) == sorted(names)
    code, entries = run()
    assert code == 0
    assert {os.fsencode(name) for name in entries} >= {os.path.join(folder, name) for name in names}


# Others at work


def test_the_output_inside_the_input(place: Path) -> None:
    os.symlink("m", "again")
    for _ in range(2):
        assert main(["fuse", "again", "--out", "m/o"]) == 0
        assert files(place / "m" / "o").keys() == {"a.armnn", "b.armnn", "c.armnn"}


def test_an_input_that_changes_during_the_run(place: Path) -> None:
    meddle = judge("if sys.argv[1].endswith('b.armnn'): open(sys.argv[1], 'ab').write(b'x')")
    code, entries = run("--judge", meddle, "--jobs", "2")
    assert code == 1
    assert [entry["status"] for entry in entries.values()] == ["fused", "failed", "fused"]
    assert entries["m/b.armnn"]["error"] == "m/b.armnn: the file was changed while in use: run it again"
    Path("m/b.armnn").write_bytes(model(1.0))
    code, entries = run()
    assert code == 0
    assert entries["m/b.armnn"]["status"] == "fused"


def test_inputs_that_go_away_during_the_run(place: Path) -> None:
    code, entries = run("--judge", judge("if os.path.exists('m/c.armnn'): os.unlink('m/c.armnn')"), "--jobs", "1")
    assert code == 1
    assert entries["m/c.armnn"]["error"] == "m/c.armnn: cannot be read: No such file or directory"
    assert files(place / "o").keys() == {"a.armnn", "b.armnn"}


def test_two_runs_into_one_directory_at_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wait = judge("open('asked', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)")
    with started("fuse", "m", "--out", "o", "--judge", wait) as first:
        until(Path("asked").exists)
        assert main(["fuse", "m", "--out", "o"]) == 2
        assert "another run is at work in o" in capsys.readouterr().err
        Path("go").touch()
        first.communicate(timeout=60)
    assert first.returncode == 0
    assert files(place / "o").keys() == {"a.armnn", "b.armnn", "c.armnn"}


def test_when_the_run_is_killed_its_workers_are_too(place: Path) -> None:
    """Else they would write into the next run."""
    if sys.platform != "linux":
        pytest.skip("only Linux ends processes with their parent")
    wait = judge("open('worker', 'w').write(str(os.getppid())); os.rename('worker', 'asked'); time.sleep(600)")
    with started("fuse", "m", "--out", "o", "--judge", wait, "--jobs", "2", start_new_session=True) as process:
        until(Path("asked").exists)
        worker = int(Path("asked").read_text())
        os.kill(worker, 0)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    until(lambda: not alive(worker))
    assert run()[0] == 0
    assert sorted(os.listdir("o")) == [FOLDER, "a.armnn", "b.armnn", "c.armnn"]


def test_what_was_done_behind_a_slow_model_is_recorded(place: Path) -> None:
    slow = judge("if sys.argv[1].endswith('a.armnn'): time.sleep(600)")
    record = Path(f"o/{FOLDER}/done.jsonl")
    with started("fuse", "m", "--out", "o", "--judge", slow, "--jobs", "2") as process:
        until(lambda: record.exists() and record.read_bytes().count(b"\n") == 2)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert sorted(json.loads(line)["name"] for line in record.read_bytes().splitlines()) == ["b.armnn", "c.armnn"]
    assert run()[0] == 0
    assert files(place / "o").keys() == {"a.armnn", "b.armnn", "c.armnn"}


def alive(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
