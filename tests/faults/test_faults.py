"""Whatever happens while a file is written, there is the old one or the whole new one; inputs are never touched."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.armnn import files
from fusion_engine.errors import ModelError
from fusion_engine.ledger import FOLDER
from fusion_engine.network import Network
from tests.support.nets import Net

ROOT = Path(__file__).resolve().parents[2]
SHIM = Path(__file__).with_name("broken_disk.c")
COMMAND = [sys.executable, "-m", "fusion_engine", "fuse", "--rules", "armnn"]


def network(size: int, value: float = 1.0) -> Network:
    """Input -> Convolution2d -> BatchNormalization -> Output, with about ``4 * size`` bytes of weights."""
    net = Net(form="member")
    weights = np.full((size // 16, 1, 1, 16), value, np.float32)
    ones = [1.0] * (size // 16)
    x = net.batch_norm(net.conv(net.input((1, 1, 1, 16)), weights), ones, ones, ones, ones)
    net.output(x)
    return net.graph


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file of about 4 MB that the rules change."""
    path = tmp_path / "in" / "model.armnn"
    path.parent.mkdir()
    fe.save(network(2**20), path)
    return path


@contextmanager
def untouched(path: Path) -> Iterator[None]:
    """The file has the same bytes, times and inode afterwards."""

    def state() -> tuple[object, ...]:
        status = path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size, hashlib.sha256(path.read_bytes()).digest()

    before = state()
    yield
    assert state() == before


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared object that breaks system calls."""
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("needs Linux and gcc")
    path = tmp_path_factory.mktemp("shim") / "broken_disk.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", path, SHIM, "-ldl"], check=True)
    return path


def listed(folder: Path) -> list[str]:
    """What is in a directory, hidden files too, but for the record that runs keep there."""
    return sorted(path.name for path in folder.iterdir() if path.name != FOLDER)


def fuse(model: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [*COMMAND, str(model), "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


# A disk that fails


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        ("write", 5, "Input/output error"),
        ("write", 28, "No space left on device"),
        ("fsync", 5, "Input/output error"),
        ("rename", 5, "Input/output error"),
    ],
)
@pytest.mark.parametrize("old", [True, False])
def test_a_disk_that_fails(
    shim: Path, model: Path, tmp_path: Path, call: str, error: int, reason: str, old: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    if old:
        (out / "model.armnn").write_bytes(b"what was there")
    settings = {"LD_PRELOAD": str(shim), "BROKEN_CALL": call, "BROKEN_ERRNO": str(error), "BROKEN_SHORT": "1"}
    # Python writes its own files too, but none here: the bytecode is not written.
    with untouched(model):
        done = fuse(model, out, PYTHONDONTWRITEBYTECODE="1", **settings)
    assert done.returncode == 1, done.stderr
    assert f"cannot be written: {reason}" in done.stdout + done.stderr
    assert listed(out) == ["model.armnn"] * old
    if old:
        assert (out / "model.armnn").read_bytes() == b"what was there"


@pytest.mark.parametrize("call", ["copy_file_range", "preadv"])
def test_a_disk_that_fails_while_weights_are_copied(shim: Path, tmp_path: Path, call: str) -> None:
    fe.save(network(2**18), tmp_path / "model.armnn")
    program = (
        "import os, sys\n"
        "from fusion_engine.armnn import files\n"
        "import fusion_engine as fe\n"
        "files.READ_WHOLE = 16\n"
        f"if {call == 'preadv'}: del os.copy_file_range\n"
        "try:\n"
        "    fe.save(fe.load('model.armnn'), 'copy.armnn')\n"
        "except fe.OutputError as error:\n"
        "    sys.exit(str(error))\n"
    )
    settings = {"LD_PRELOAD": str(shim), "BROKEN_CALL": call, "PYTHONPATH": str(ROOT)}
    with untouched(tmp_path / "model.armnn"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr.strip() == "copy.armnn: cannot be written: Input/output error"
    assert [path.name for path in tmp_path.iterdir()] == ["model.armnn"]


def test_an_input_that_cannot_be_read_is_told(shim: Path, model: Path, tmp_path: Path) -> None:
    """The interpreter reads files too, so the shim breaks reads only when the model is opened."""
    program = (
        "import os, sys\n"
        "import fusion_engine as fe\n"
        "fe.loads(open(sys.argv[1], 'rb').read())\n"
        "os.environ['BROKEN_CALL'] = 'read'\n"
        "try:\n"
        "    fe.load(sys.argv[1])\n"
        "except fe.ModelError as error:\n"
        "    os.environ['BROKEN_CALL'] = ''\n"
        "    sys.exit(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(model)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip() == f"{model}: cannot be read: Input/output error"


def test_a_full_disk(model: Path, tmp_path: Path) -> None:
    """A file system of 2 MB, in a mount namespace of its own where the system allows one."""
    script = (
        'mount -t tmpfs -o size=2m tmpfs "$1" && printf old > "$1/model.armnn" && '
        '{ "$2" -m fusion_engine fuse --rules armnn "$3" --out "$1"; echo "code $?"; ls "$1"; cat "$1/model.armnn"; }'
    )
    point = tmp_path / "small"
    point.mkdir()
    probe = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", point], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no mount namespaces here")
    with untouched(model):
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script, "sh", point, sys.executable, model],
            cwd=ROOT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    assert "cannot be written: No space left on device" in done.stdout + done.stderr
    assert done.stdout.endswith("code 1\nmodel.armnn\nold")


# A program that is killed

WRITER = """
import sys
import fusion_engine as fe
graphs = [fe.load(path) for path in sys.argv[2:]]
print("ready", flush=True)
while True:
    for graph in graphs:
        fe.save(graph, sys.argv[1])
"""


def two_files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{value}.armnn" for value in (1, 2)]
    for value, path in enumerate(paths, 1):
        fe.save(network(2**17 * value, float(value)), path)
    return paths


@contextmanager
def writing(target: Path, paths: list[Path]) -> Iterator[subprocess.Popen[str]]:
    """A program that writes both files to the target in turn, over and over."""
    command = [sys.executable, "-c", WRITER, str(target), *map(str, paths)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_killed_at_any_moment_it_is_the_old_file_or_the_new(tmp_path: Path) -> None:
    paths = two_files(tmp_path)
    whole = {path.read_bytes() for path in paths}
    target = tmp_path / "out" / "model.armnn"
    target.parent.mkdir()
    target.write_bytes(paths[0].read_bytes())
    moments = random.Random(6)
    seen = set()
    for _ in range(6):
        with untouched(paths[0]), untouched(paths[1]), writing(target, paths) as process:
            time.sleep(moments.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
            process.wait()
        seen.add(target.read_bytes())
        left = [path for path in target.parent.iterdir() if path != target]
        assert all(path.name.startswith(".model.armnn.") and path.name.endswith(".tmp") for path in left)
        if sys.platform == "linux":
            seen |= {path.read_bytes() for path in left}
        for path in left:
            path.unlink()
    assert seen <= whole


def test_two_writers_and_a_reader(tmp_path: Path) -> None:
    paths = two_files(tmp_path)
    whole = [path.read_bytes() for path in paths]
    target = tmp_path / "model.armnn"
    target.write_bytes(whole[0])
    seen = set()
    with untouched(paths[0]), untouched(paths[1]), writing(target, paths), writing(target, paths[::-1]):
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            found = target.read_bytes()
            assert found in whole
            seen.add(len(found))
            assert len(fe.load(target)) == 4
    assert len(seen) == 2
    assert fe.load(target) is not None


def expecting_signals() -> None:
    """In a new process, whatever the tests were started by: nohup, or a shell that runs them in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_command_takes_away_what_it_began(tmp_path: Path, number: signal.Signals) -> None:
    """Slowed by a writer that never ends, the command is asked to end, and leaves nothing."""
    fe.save(network(2**16), tmp_path / "model.armnn")
    program = (
        "import sys, time\n"
        "from fusion_engine.armnn import files\n"
        "from fusion_engine.cli import main\n"
        "def slow(file, part):\n"
        "    file.write(bytes(part)[:8])\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "files._write_all = slow\n"
        "sys.exit(main(['fuse', '--rules', 'armnn', 'model.armnn', '--out', 'out']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=expecting_signals,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while process.stdout.readline() != "writing\n":
                assert process.poll() is None
            assert [name[-4:] for name in listed(tmp_path / "out")] == [".tmp"][sys.platform == "linux" :]
            process.send_signal(number)
            assert process.wait(30) == 128 + number
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
    assert listed(tmp_path / "out") == []


def test_ignored_signals_stay_ignored() -> None:
    """As under nohup; and in a thread that cannot handle signals nothing is tried."""
    from fusion_engine.signals import orderly

    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with orderly():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)
    done = []

    def work() -> None:
        with orderly():
            done.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.SIG_DFL]


# An input that changes


@pytest.mark.parametrize("mapped", [True, False])
def test_an_input_truncated_while_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool) -> None:
    if mapped:
        monkeypatch.setattr(files, "READ_WHOLE", 16)
    fe.save(network(2**14), tmp_path / "model.armnn")
    whole = (tmp_path / "model.armnn").read_bytes()
    graph = fe.load(tmp_path / "model.armnn")
    os.truncate(tmp_path / "model.armnn", 100)
    if mapped:
        with pytest.raises(ModelError, match="changed while in use"):
            fe.save(graph, tmp_path / "copy.armnn")
        assert not (tmp_path / "copy.armnn").exists()
    else:
        fe.save(graph, tmp_path / "copy.armnn")
        assert (tmp_path / "copy.armnn").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.armnn"] * (not mapped) + ["model.armnn"]


def test_an_input_truncated_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel copies what is there and says so; the rest is missed."""
    monkeypatch.setattr(files, "READ_WHOLE", 16)
    fe.save(network(2**14), tmp_path / "model.armnn")
    graph = fe.load(tmp_path / "model.armnn")
    check = files.MappedFile.check

    def then_cut(self: files.MappedFile) -> None:
        check(self)
        os.truncate(tmp_path / "model.armnn", 2000)

    monkeypatch.setattr(files.MappedFile, "check", then_cut)
    with pytest.raises(ModelError, match=r"shortened while in use|changed while in use"):
        fe.save(graph, tmp_path / "copy.armnn")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.armnn"]
