"""The C++ Verifier: built once per schema, and asked about many files at a time."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fusion_engine.schema import DIALECTS

__all__ = ["ACCEPTED", "COUNTLESS", "OVER_LIMIT", "REFUSED", "build", "tables", "verdicts"]

ACCEPTED, OVER_LIMIT, COUNTLESS, REFUSED = "a", "l", "m", "r"
"""What `verdicts` says of a file; see ``verifier.cpp``."""

SOURCE = Path(__file__).with_name("verifier.cpp")
SCHEMAS = Path(__file__).resolve().parents[2] / "schema"
HEADER = Path("/usr/include/flatbuffers/verifier.h")
FILES = dict(zip(DIALECTS, ("seed", "v19_02", "v19_05", "current"), strict=True))


@cache
def build(dialect: str = "current", sanitize: bool = False) -> Path | str:
    """The program for a dialect's schema, or why there is none.

    It is kept in the user's cache under a name that depends on the schema and the source.
    """
    missing = [tool for tool in ("flatc", "g++") if shutil.which(tool) is None]
    if missing or not HEADER.exists():
        return f"{' and '.join([*missing, *[str(HEADER)] * (not HEADER.exists())])} missing: see CONTRIBUTING.md"
    schema = SCHEMAS / f"{FILES[dialect]}.fbs"
    options = ["-fsanitize=address"] if sanitize else []
    text = schema.read_bytes() + SOURCE.read_bytes() + HEADER.read_bytes() + repr(options).encode()
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache_home / "fusion-engine-tests" / f"verifier-{hashlib.sha256(text).hexdigest()[:16]}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        shutil.copy(schema, Path(folder) / "schema.fbs")
        _run(["flatc", "--cpp", "-o", folder, str(Path(folder) / "schema.fbs")])
        _run(["g++", "-std=c++17", "-O1", *options, f"-I{folder}", str(SOURCE), "-o", f"{folder}/verifier"])
        os.replace(f"{folder}/verifier", program)
    return program


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")


def verdicts(program: Path, files: Iterable[bytes]) -> str:
    """One letter per file."""
    return _ask([str(program)], files)


def tables(program: Path, files: Iterable[bytes]) -> list[int]:
    """How many tables the Verifier counts in each file: a shared one as often as something refers to it."""
    return [int(line) for line in _ask([str(program), "--tables"], files).split()]


def _ask(command: list[str], files: Iterable[bytes]) -> str:
    pack = b"".join(struct.pack("<I", len(data)) + data for data in files)
    done = subprocess.run(command, input=pack, capture_output=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-4000:]}")
    return done.stdout.decode("ascii")
