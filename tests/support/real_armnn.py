"""Real Arm NN, two releases of it, as a judge: run a model file, get its outputs as arrays and digests.

The tools are built by ``../shared/oracle/setup`` (beside the checkout) into ``$ARMNN_ORACLE``, by
default ``~/.cache/armnn-oracle``.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SHARED = Path(__file__).resolve().parents[3] / "shared"
"""Where corpus, cases and oracle lie when they are beside the checkout."""

RELEASES = ("20.08", "23.08")

DTYPES = {
    "Float32": "<f4",
    "Float16": "<f2",
    "Signed32": "<i4",
    "Signed64": "<i8",
    "QSymmS16": "<i2",
    "QSymm16": "<i2",
    "QAsymmU8": "u1",
    "Boolean": "u1",
    "QAsymmS8": "i1",
    "QSymmS8": "i1",
}
"""DataType as the tools print it, as NumPy dtype; of any other the output's bytes are given."""


class ArmnnFailed(Exception):
    """Real Arm NN rejected a model or crashed; ``stage`` and ``reason`` are its own words."""

    def __init__(self, stage: str, reason: str) -> None:
        self.stage = stage
        self.reason = reason
        super().__init__(f"{stage}: {reason}")


@dataclass(frozen=True)
class Output:
    """An output of a run: binding id, layer name, values, and the FNV-1a digest of its bytes."""

    id: int
    name: str
    values: npt.NDArray[Any]
    digest: str


@dataclass(frozen=True)
class Run:
    """A run: its outputs in the network's order, and the tool's whole JSON answer."""

    outputs: tuple[Output, ...]
    answer: dict[str, Any]

    @property
    def digests(self) -> dict[int, str]:
        """Digest by binding id."""
        return {output.id: output.digest for output in self.outputs}


class RealArmnn:
    """The tools of one oracle directory.

    ``model`` is a path or the bytes of an .armnn file. Inputs that are not given are seeded random
    data, the same in both releases.
    """

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries

    def run(
        self,
        model: str | Path | bytes,
        release: str,
        *,
        seed: int = 1,
        inputs: Mapping[str, npt.NDArray[Any]] | None = None,
        limits: tuple[float, float] = (-1.0, 1.0),
    ) -> Run:
        """Deserialize, optimize for CpuRef and run.

        ``inputs`` gives data by layer name or ``#binding-id``; ``limits`` is the range of the
        random floats.

        Raises
        ------
        ArmnnFailed
            Where Arm NN does not run it.
        """
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            options = ["--seed", str(seed), "--range", *map(str, limits), "--out-dir", place]
            for number, (key, values) in enumerate((inputs or {}).items()):
                (folder / f"given_{number}").write_bytes(np.ascontiguousarray(values).tobytes())
                options += ["--input", f"{key}={folder / f'given_{number}'}"]
            answer = self._answer(release, options, model, folder)
            outputs = []
            for found in answer.get("output_data", []):
                data = (folder / f"out_{found['id']}.bin").read_bytes()
                values = np.frombuffer(data, DTYPES.get(found["type"], "u1"))
                if found["type"] in DTYPES:
                    values = values.reshape(found["shape"])
                outputs.append(Output(found["id"], found["name"], values, found["fnv1a64"]))
        return Run(tuple(outputs), answer)

    def parse(self, model: str | Path | bytes, release: str) -> dict[str, Any]:
        """Deserialize only; the tool's JSON answer, or ArmnnFailed."""
        with tempfile.TemporaryDirectory() as place:
            return self._answer(release, ["--parse-only"], model, Path(place))

    def optimize(self, model: str | Path | bytes, release: str) -> dict[str, Any]:
        """Deserialize and optimize for CpuRef; the tool's JSON answer, or ArmnnFailed."""
        with tempfile.TemporaryDirectory() as place:
            return self._answer(release, ["--check-only"], model, Path(place))

    def optimized(self, model: str | Path | bytes, release: str) -> Counter[str]:
        """How many layers of each type are left when it has been optimized for CpuRef; or ArmnnFailed."""
        with tempfile.TemporaryDirectory() as place:
            picture = Path(place) / "optimized.dot"
            self._answer(release, ["--check-only", "--dot", str(picture)], model, Path(place))
            return Counter(re.findall(r"LayerType : (\w+)\\l", picture.read_text("utf-8", "replace")))

    def tool(self, release: str) -> Path:
        """The program that runs a model."""
        return self._binaries / {"20.08": "armnn_run", "23.08": "armnn_run-23.08"}[release]

    def _answer(self, release: str, options: list[str], model: str | Path | bytes, folder: Path) -> dict[str, Any]:
        if isinstance(model, bytes):
            path = folder / "model.armnn"
            path.write_bytes(model)
        else:
            path = Path(model)
        done = subprocess.run(
            [self.tool(release), *options, path], capture_output=True, text=True, timeout=600, check=False
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise ArmnnFailed("tool", f"exit {done.returncode}, no JSON: {done.stderr[-400:]}") from None
        if not answer.get("ok"):
            raise ArmnnFailed(str(answer.get("stage")), str(answer.get("error")))
        return answer


def _complete(binaries: Path) -> bool:
    return all((binaries / name).exists() for name in ("armnn_run", "armnn_run-23.08"))


def locate() -> RealArmnn | str:
    """The tools, built where that is possible, or the reason why there are none."""
    home = Path(os.environ.get("ARMNN_ORACLE") or Path.home() / ".cache" / "armnn-oracle")
    if _complete(home / "bin"):
        return RealArmnn(home / "bin")
    setup = SHARED / "oracle" / "setup"
    if not setup.exists():
        return f"real Arm NN is not in {home}, and there is no {setup} to build it with"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"real Arm NN is not in {home}; {setup} builds it on Debian 12, as root"
    home.mkdir(parents=True, exist_ok=True)
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete(home / "bin"):
            done = subprocess.run([setup, home], capture_output=True, text=True, timeout=900, check=False)
            if done.returncode != 0 or not _complete(home / "bin"):
                return f"{setup} failed: {(done.stderr or done.stdout).strip()[-300:]}"
    return RealArmnn(home / "bin")
