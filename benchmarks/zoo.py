"""A zoo of generated models, done as one batch: one worker, two, and a Dask cluster; beside ``cp -r``.

    python -m benchmarks.zoo                      # 2,000 models of about 1.3 GB, and what must hold of them
    python -m benchmarks.zoo --kills 50           # and 50 runs of 100 models killed at random moments
    python -m benchmarks.zoo --models 40 --small  # the same in small

What must hold: every good model is written with the same bytes by each way, every broken one is reported with a
reason, memory does not grow with the number of models, and a rerun after ``kill -9`` completes to the same bytes.
Exit code 1 where something does not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import fusion_engine as fe
from tests.support.nets import Net

__all__ = ["BROKEN", "Run", "generate", "growth", "kills", "run", "written"]

ROOT = Path(__file__).resolve().parents[1]
MEDIAN, LARGE, MOST = 200_000, 50_000_000, 3_000_000_000
GROWTH, GROWTH_DASK = 10_240, 20_480
"""KiB by which the command may grow over a run, for any number of models; Dask's client fills logs of its own."""


# Models


def model(size: int, chance: random.Random) -> bytes:
    """A network of about ``size`` bytes: blocks of a convolution, and often a batch norm and an activation."""
    blocks = chance.randint(2, 12)
    channels = max(1, round(math.sqrt(size / blocks / 4)))
    numbers = np.random.default_rng(chance.getrandbits(32))
    net = Net(form=chance.choice(("member", "constant")))
    layer = net.input((1, 1, 1, channels), name="image")
    for block in range(blocks):
        weights = numbers.standard_normal((channels, 1, 1, channels), np.float32)
        layer = net.conv(layer, weights, np.zeros(channels, np.float32), name=f"conv{block}")
        if chance.random() < 0.8:
            norms = [numbers.uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(4)]
            layer = net.batch_norm(layer, *norms, name=f"norm{block}")
        if chance.random() < 0.5:
            layer = net.activation(layer, "ReLu", name=f"relu{block}")
    net.output(layer)
    return fe.dumps(net.graph)


Breaker = Callable[[Path, bytes, random.Random], None]


def _bytes(change: Callable[[bytes, random.Random], bytes]) -> Breaker:
    def breaker(path: Path, data: bytes, chance: random.Random) -> None:
        path.write_bytes(change(data, chance))

    return breaker


def _patched(place: int, value: bytes) -> Breaker:
    return _bytes(lambda data, _: data[:place] + value + data[place + len(value) :])


def _table(data: bytes) -> tuple[int, int]:
    """Where the root table and its vtable are."""
    (root,) = struct.unpack_from("<I", data)
    (back,) = struct.unpack_from("<i", data, root)
    return root, root - back


def _at_root(value: bytes, offset: int = 0) -> Callable[[bytes, random.Random], bytes]:
    def change(data: bytes, _: random.Random) -> bytes:
        place = _table(data)[0] + offset
        return data[:place] + value + data[place + len(value) :]

    return change


def _at_vtable(value: bytes, offset: int) -> Callable[[bytes, random.Random], bytes]:
    def change(data: bytes, _: random.Random) -> bytes:
        place = _table(data)[1] + offset
        return data[:place] + value + data[place + len(value) :]

    return change


def _layers(data: bytes) -> int:
    """Where the count of the vector of layers is."""
    root, vtable = _table(data)
    (entry,) = struct.unpack_from("<H", data, vtable + 4)
    (ahead,) = struct.unpack_from("<I", data, root + entry)
    return root + entry + ahead


def _many_layers(data: bytes, _: random.Random) -> bytes:
    place = _layers(data)
    return data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :]


def _layer_elsewhere(data: bytes, _: random.Random) -> bytes:
    place = _layers(data) + 4
    return data[:place] + b"\xf0\xff\xff\x7f" + data[place + 4 :]


def _loop(path: Path, _: bytes, __: random.Random) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path, _: bytes, __: random.Random) -> None:
    path.symlink_to("nothing")


def _pipe(path: Path, _: bytes, __: random.Random) -> None:
    os.mkfifo(path)


BROKEN: dict[str, Breaker] = {
    "empty": _bytes(lambda data, chance: b""),
    "one-byte": _bytes(lambda data, chance: data[:1]),
    "text": _bytes(lambda data, chance: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    "html": _bytes(lambda data, chance: b"<!DOCTYPE html><title>404</title>" * 40),
    "zeros": _bytes(lambda data, chance: bytes(len(data))),
    "ones": _bytes(lambda data, chance: b"\xff" * len(data)),
    "noise": _bytes(lambda data, chance: chance.randbytes(len(data))),
    "half": _bytes(lambda data, chance: data[: len(data) // 2]),
    "shifted": _bytes(lambda data, chance: bytes(4) + data),
    "gzip": _bytes(lambda data, chance: gzip.compress(data, 1, mtime=0)),
    "png": _bytes(lambda data, chance: b"\x89PNG\r\n\x1a\n" + data),
    "root-far": _patched(0, b"\xff\xff\xff\x7f"),
    "root-negative": _patched(0, b"\xf0\xff\xff\xff"),
    "vtable-far": _bytes(_at_root(b"\x00\x00\x00\x80")),
    "vtable-long": _bytes(_at_vtable(b"\xfe\xff", 0)),
    "many-layers": _bytes(_many_layers),
    "layer-elsewhere": _bytes(_layer_elsewhere),
    "link-to-itself": _loop,
    "link-to-nothing": _dangling,
    "pipe": _pipe,
}
"""Ways in which a model can be broken."""


def generate(folder: Path, models: int, *, large: int = 10, median: int = MEDIAN, seed: int = 9) -> list[str]:
    """Write a zoo: ``models`` files in some directories, one for each way to be broken.

    Parameters
    ----------
    folder
        Where; made.
    models
        Number of files, those that are broken among them.
    large
        How many have 50 MB.
    median
        Bytes of half of the models; the others are spread about it by a factor of e.
    seed
        Decides everything.

    Returns
    -------
    list of str
        Paths below ``folder`` of those that are broken.
    """
    chance = random.Random(seed)
    good = models - len(BROKEN)
    sizes = [round(median * math.exp(chance.gauss(0.0, 1.0))) for _ in range(good - large)] + [LARGE] * large
    chance.shuffle(sizes)
    places = chance.sample(range(models), len(BROKEN))
    ways = dict(zip(places, BROKEN.items(), strict=True))
    broken = []
    left = iter(sizes)
    for number in range(models):
        name = f"{number % 16:02}/{number:05}"
        path = folder / f"{name}.armnn"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number in ways:
            way, breaker = ways[number]
            path = path.with_name(f"{number:05}-{way}.armnn")
            breaker(path, model(20_000, chance), chance)
            broken.append(path.relative_to(folder).as_posix())
        else:
            path.write_bytes(model(next(left), chance))
    return broken


def written(folder: Path) -> dict[str, int]:
    """Hashes of the models below a directory by their paths; what else lies there is an error."""
    found = {}
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if below.parts[0] == ".fusion-engine" or path.is_dir():
            continue
        if path.suffix != ".armnn":
            raise AssertionError(f"{path} was left behind")
        found[below.as_posix()] = hash(path.read_bytes())
    return found


# Runs


@dataclass
class Run:
    """A run of the command.

    Attributes
    ----------
    name
        Of the table's row.
    code
        The exit code.
    seconds, processor
        How long it took, and how long processors worked for it.
    report
        What it reported.
    main, workers
        KiB of resident memory of the process, and of the largest process under it, twice a second.
    """

    name: str
    code: int
    seconds: float
    processor: float
    report: dict[str, object]
    main: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)


def command(zoo: Path, out: Path, *options: str) -> list[str]:
    """The command that fuses a zoo."""
    return [sys.executable, "-m", "fusion_engine", "fuse", str(zoo), "--out", str(out), *options]


def run(name: str, zoo: Path, out: Path, *options: str, others: Sequence[int] = ()) -> Run:
    """Fuse a zoo; ``others`` are processes whose memory is looked at, beside those that the command starts."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        begin = time.perf_counter()
        with (
            open(Path(folder, "shown"), "w+b") as shown,
            subprocess.Popen(
                command(zoo, out, "--report", str(report), *options),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=shown,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            found = Run(name, 0, 0.0, 0.0, {})
            before = _processor(others)
            while process.poll() is None:
                found.main.append(_resident(process.pid))
                found.workers.append(max(map(_resident, [*_children(process.pid), *others]), default=0))
                time.sleep(0.1 if time.perf_counter() - begin < 5 else 0.5)
            found.seconds = time.perf_counter() - begin
            found.processor = _processor(others) - before
            found.code = process.returncode
            if not report.exists():
                shown.seek(0)
                raise AssertionError(f"{name}: no report: {shown.read()[-2000:].decode(errors='replace')}")
        found.report = json.loads(report.read_bytes())
    return found


def _processor(others: Sequence[int]) -> float:
    """Seconds of processor time of all processes that have ended under this one, and of others."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for process in others:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def _children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _resident(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def faults(found: Run, broken: Sequence[str], models: int, made: dict[str, int], first: dict[str, int]) -> list[str]:
    """What is wrong with a run; ``first`` is what another has written."""
    entries = found.report["models"]
    assert isinstance(entries, list)
    failed = {entry["path"]: entry["error"] for entry in entries if entry["status"] == "failed"}
    names = {"/".join(Path(path).parts[-2:]) for path in failed}
    wrong = []
    if found.code != (1 if broken else 0):
        wrong.append(f"exit code {found.code}")
    if len(entries) != models:
        wrong.append(f"{len(entries)} models of {models}")
    if names != set(broken):
        wrong.append(f"failed: {sorted(names ^ set(broken))[:3]}")
    odd = [f"{path}: {error!r} is no reason" for path, error in failed.items() if not error or "internal" in error]
    wrong += odd[:3]
    if len(made) != models - len(broken):
        wrong.append(f"{len(made)} models written of {models - len(broken)}")
    if made != first:
        wrong.append("other bytes than the first run")
    return [f"{found.name}: {one}" for one in wrong]


@contextmanager
def dask_cluster(workers: int) -> Iterator[tuple[str, list[int]]]:
    """A Dask cluster of worker processes on this machine: the scheduler's address and the workers' processes."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1", silence_logs="CRITICAL"
    ) as cluster:
        cluster.wait_for_workers(workers)
        yield cluster.scheduler_address, [nanny.process.pid for nanny in cluster.workers.values()]


# Killed


def kills(zoo: Path, folder: Path, moments: int, *, seed: int = 50) -> Iterator[str]:
    """Kill runs at random moments and run them again: with one worker and with two, with and without the workers.

    Yields
    ------
    str
        For each moment what was found; it begins with ``ok`` or ``WRONG``.
    """
    chance = random.Random(seed)
    lasts = {}
    for jobs in (1, 2):
        begin = time.perf_counter()
        _quiet(command(zoo, folder / f"whole{jobs}", "--jobs", str(jobs)))
        lasts[jobs] = time.perf_counter() - begin
    wanted = written(folder / "whole1")
    for moment in range(moments):
        jobs = 1 + moment % 2
        out = folder / f"killed{moment}"
        after = chance.uniform(0.1, 1.0) * lasts[jobs]
        with subprocess.Popen(
            command(zoo, out, "--jobs", str(jobs)),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            time.sleep(after)
            if moment // 2 % 2:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.send_signal(signal.SIGKILL)
            process.wait()
        there = {
            path.relative_to(out).as_posix(): hash(path.read_bytes())
            for path in (sorted(out.rglob("*.armnn")) if out.exists() else ())
        }
        torn = [name for name, found in there.items() if wanted.get(name) != found]
        if sys.platform == "linux":  # files have no name there until they are whole
            whole = set(wanted.values())
            torn += [path.name for path in out.rglob("*.tmp") if hash(path.read_bytes()) not in whole]
        code, said = _quiet(command(zoo, out, "--jobs", str(jobs)))
        try:
            same = written(out) == wanted
        except AssertionError as error:
            yield f"WRONG killed after {after:.2f} s: {error}"
            continue
        good = same and not torn and code == 0
        yield (
            f"{'ok' if good else 'WRONG'} killed after {after:.2f} s with {len(there)} of {len(wanted)} written, "
            f"{len(torn)} torn; the rerun: exit code {code}, bytes {'equal' if same else 'DIFFER'}"
            + ("" if code == 0 else f": {said}")
        )
        shutil.rmtree(out, ignore_errors=True)


def _quiet(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and the last failure that it told of."""
    done = subprocess.run(
        [*words, "--quiet"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    told = [line for line in (done.stdout + done.stderr).splitlines() if ": failed: " in line or "rror" in line]
    return done.returncode, told[-1] if told else ""


# The whole


def _timed(words: Sequence[str]) -> tuple[float, float]:
    begin, before = time.perf_counter(), _processor(())
    subprocess.run(words, check=False, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin, _processor(()) - before


def _quarters(samples: list[int]) -> tuple[int, int]:
    """Peaks of the second quarter of a run and of its last, when reports are written: equal where nothing grows."""
    quarter = max(1, len(samples) // 4)
    return max(samples[quarter : 2 * quarter] or samples), max(samples[-quarter:])


def _memory(samples: list[int]) -> str:
    early, late = _quarters(samples)
    return f"{early / 1024:.0f} → {late / 1024:.0f} (most {max(samples) / 1024:.0f})"


def growth(found: Run, most: int = GROWTH) -> list[str]:
    """What is wrong with the memory of a command that leaves the models to workers."""
    early, late = _quarters(found.main)
    if late - early <= most:
        return []
    return [f"{found.name}: the memory of the command grew from {early / 1024:.0f} to {late / 1024:.0f} MB"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--small", action="store_true", help="models of 20 kB, none of 50 MB")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="moments at which runs of 100 are killed")
    parser.add_argument("--folder", type=Path, help="where everything is written (default: a temporary directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        wrong = _batch(Path(folder), arguments.models, arguments.small) if arguments.models else []
        if arguments.kills:
            zoo = Path(folder, "hundred")
            for name in generate(zoo, 100 + len(BROKEN), large=0, median=20_000 if arguments.small else MEDIAN):
                (zoo / name).unlink()
            for line in kills(zoo, Path(folder), arguments.kills):
                print(line, flush=True)
                wrong += [line] if line.startswith("WRONG") else []
    for line in wrong:
        print(f"DOES NOT HOLD: {line}")
    print("does not hold" if wrong else "holds")
    return 1 if wrong else 0


def _batch(folder: Path, models: int, small: bool) -> list[str]:
    zoo = folder / "zoo"
    broken = generate(zoo, models, **({"large": 0, "median": 20_000} if small else {}))
    sizes = sorted(path.stat().st_size for path in zoo.rglob("*.armnn") if path.is_file())
    total = sum(sizes)
    print(
        f"{models} models, {total / 1e9:.2f} GB, median {statistics.median(sizes) / 1e3:.0f} kB, "
        f"largest {sizes[-1] / 1e6:.0f} MB, {len(broken)} broken; {os.cpu_count()} cores"
    )
    wrong = [f"{total} bytes are more than 3 GB"] if total > MOST else []
    with ThreadPoolExecutor(16) as readers:  # all in the page cache, for everyone
        list(readers.map(lambda path: path.is_file() and path.read_bytes() and None, zoo.rglob("*.armnn")))
    print(
        f"{'':12} {'s':>8} {'CPU s':>8} {'models/s':>9} {'MB/s':>8}  memory of the command, of its largest worker (MB)"
    )

    def show(name: str, seconds: float, processor: float, memory: str = "") -> None:
        print(
            f"{name:12} {seconds:8.1f} {processor:8.1f} {models / seconds:9.1f} {total / seconds / 1e6:8.1f}  {memory}",
            flush=True,
        )

    show("cp -r", *_timed(["cp", "-r", str(zoo), str(folder / "copy")]))
    show("sync", *_timed(["sync", "-f", str(folder)]))
    shutil.rmtree(folder / "copy")
    first: dict[str, int] = {}

    def done(name: str, out: Path, *options: str, others: Sequence[int] = ()) -> None:
        found = run(name, zoo, out, *options, others=others)
        show(name, found.seconds, found.processor, f"{_memory(found.main)}, {_memory(found.workers)}")
        made = written(out)
        first.update(first or made)
        wrong.extend(faults(found, broken, models, made, first))
        if "1" not in options:
            wrong.extend(growth(found, GROWTH_DASK if "--scheduler" in options else GROWTH))

    done("one job", folder / "one", "--jobs", "1")
    done("again", folder / "one", "--jobs", "1")
    shutil.rmtree(folder / "one")
    done("two jobs", folder / "two", "--jobs", "2")
    shutil.rmtree(folder / "two")
    with dask_cluster(2) as (address, workers):
        done("Dask", folder / "dask", "--scheduler", address, others=workers)
    shutil.rmtree(folder / "dask")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
