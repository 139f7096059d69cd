"""The example backend of ``tests/backend``: built once per state of its sources, and networks run with it.

It is a dynamic backend of real Arm NN 23.08 that runs opaque layers (and groups); CpuRef runs what it leaves.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.network import Network
from fusion_engine.tensor import TensorInfo
from tests.support.real_armnn import DTYPES, ArmnnFailed, RealArmnn

SOURCES = Path(__file__).resolve().parents[1] / "backend"
HEADERS = Path(__file__).resolve().parents[2] / "fusion_engine" / "include"

Arrays = dict[int, npt.NDArray[Any]]
"""Tensors by binding id."""


@dataclass(frozen=True)
class Ran:
    """A run: its outputs by binding id, and what the backend reported, in order.

    An event is a dict whose ``event`` says which: ``asked`` (IsLayerSupported about a StandIn),
    ``compiled``, ``group``, ``rejected``, ``constant`` or ``ran``.
    """

    outputs: Arrays
    events: tuple[dict[str, Any], ...]

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [found for found in self.events if found["event"] == event]


class Rejected(ArmnnFailed):
    """Arm NN did not take or run a network; ``events`` are what the backend had reported by then."""

    def __init__(self, stage: str, reason: str, events: tuple[dict[str, Any], ...]) -> None:
        self.events = events
        super().__init__(stage, reason)


@dataclass(frozen=True)
class Backend:
    """The built backend and the libraries that it runs with."""

    built: Path
    libraries: Path

    def run(
        self,
        model: bytes,
        inputs: Mapping[int, npt.NDArray[Any]],
        backends: Iterable[str] = ("Example", "CpuRef"),
        **options: object,
    ) -> Ran:
        """Load, optimize for the backends in order of preference, and run.

        ``options`` are the Example backend's: ``Codes="7,9"``, ``ClaimConstants=False``, ``Groups=True``.

        Raises
        ------
        Rejected
            Where Arm NN does not take or run the network.
        ArmnnFailed
            Where it crashes.
        """
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "model.armnn").write_bytes(model)
            for binding, values in inputs.items():
                (folder / f"in_{binding}.bin").write_bytes(np.ascontiguousarray(values).tobytes())
            given = {"Report": folder / "report.jsonl", **options}
            command: list[str | Path] = [
                self.libraries / "ld-linux-x86-64.so.2",
                "--library-path",
                self.libraries,
                self.built / "run",
                *("--path", self.built / "backends"),
            ]
            for name in backends:
                command += ["--backend", name]
            for name, value in given.items():
                command += ["--option", f"Example:{name}={str(value).lower() if isinstance(value, bool) else value}"]
            command += [folder / "model.armnn", folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            report = folder / "report.jsonl"
            events = tuple(map(json.loads, report.read_text("utf-8").splitlines())) if report.exists() else ()
            if done.returncode != 0 or not (folder / "answer.json").exists():
                raise ArmnnFailed("tool", f"exit {done.returncode}: {(done.stderr or done.stdout)[-400:]}")
            answer = json.loads((folder / "answer.json").read_text("utf-8"))
            if not answer["ok"]:
                raise Rejected(answer["stage"], " | ".join([answer["error"], *answer["messages"]]), events)
            outputs = {}
            for found in answer["outputs"]:
                data = (folder / f"out_{found['id']}.bin").read_bytes()
                outputs[found["id"]] = np.frombuffer(data, DTYPES[found["type"]]).reshape(found["shape"])
        return Ran(outputs, events)


def locate(armnn: RealArmnn) -> Backend | str:
    """The backend, built where it is not yet, or the reason why there is none."""
    root = armnn.tool("23.08").parents[1] / "23.08"
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
    if not (root / "usr" / "include" / "armnn" / "backends" / "IBackendInternal.hpp").exists():
        return f"there are no headers of Arm NN 23.08 in {root}"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"there is no C++ compiler {compiler}"
    digest = hashlib.sha256(str(root).encode())
    for source in sorted([*SOURCES.rglob("*"), *HEADERS.rglob("*")]):
        if source.is_file():
            digest.update(source.read_bytes())
    built = Path(tempfile.gettempdir()) / f"fusion-engine-backend-{os.getuid()}" / digest.hexdigest()[:16]
    built.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(built / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / ".complete").exists():
            done = subprocess.run([SOURCES / "build", root, built], capture_output=True, text=True, check=False)
            if done.returncode != 0:  # everything it needs is there, so this is no reason to skip
                raise RuntimeError(f"{SOURCES / 'build'} failed: {done.stderr[-2000:]}")
            (built / ".complete").touch()
    return Backend(built, libraries)


def inputs_of(graph: Network, seed: int = 1, limits: tuple[float, float] = (-1.0, 1.0)) -> Arrays:
    """Random data for every input of a network, by binding id: floats in the limits, all values of other types."""
    random = np.random.default_rng(seed)
    made: Arrays = {}
    for key in graph.graph["inputs"]:
        info: TensorInfo = graph.nodes[key]["outputs"][0]
        dtype = np.dtype(DTYPES[info.data_type])
        if dtype.kind == "f":
            values = random.uniform(*limits, info.shape).astype(dtype)
        else:
            bounds = np.iinfo(dtype)
            values = random.integers(bounds.min, bounds.max, info.shape, dtype, endpoint=True)
        made[graph.nodes[key]["binding_id"]] = values
    return made
