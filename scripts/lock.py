"""Write ``requirements-ci.txt``: every package that the tests need, at one version each, with its hash.

    .venv/bin/python scripts/lock.py          # after a change of the dependencies in pyproject.toml
    .venv/bin/python scripts/lock.py --check  # whether the file still has all that pyproject.toml asks for
    .venv/bin/python scripts/lock.py --fits   # whether it also is for this Python and machine

pip itself resolves and tells; packages come from whatever index it is set up with. The hashes are those of
the files that pip chose here, so the lock is for this version of Python on this kind of machine: its first
line says which. ``scripts/test`` takes it there, and what pyproject.toml allows anywhere else.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements-ci.txt"
EXTRAS = "test"
BUILD = ("editables", "hatchling")
"""What an editable install of the project is built with."""


def target() -> str:
    """Python and machine that a lock is for."""
    return f"CPython {sys.version_info[0]}.{sys.version_info[1]}, {platform.system()} {platform.machine()}"


def normal(name: str) -> str:
    """A distribution's name as indices spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolved() -> dict[str, tuple[str, str]]:
    """Version and hash (``sha256:...``) of every package, by name."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run([*command, f".[{EXTRAS}]", *BUILD], cwd=ROOT, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    found = {}
    for package in report["install"]:
        archive = package["download_info"].get("archive_info")
        if archive is not None:  # the project itself has none
            digest = archive["hashes"]["sha256"]
            found[normal(package["metadata"]["name"])] = (package["metadata"]["version"], f"sha256:{digest}")
    return found


def write() -> None:
    """Write the lock."""
    lines = [f"# {target()}: written by scripts/lock.py"]
    for name, (version, digest) in sorted(resolved().items()):
        lines += [f"{name}=={version} \\", f"    --hash={digest}"]
    LOCK.write_text("\n".join(lines) + "\n", "utf-8")


def missing() -> list[str]:
    """Packages that pyproject.toml names for the tests, and the lock lacks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = {normal(name) for name in BUILD}
    pending = [EXTRAS]
    seen: set[str] = set()
    requirements = list(project["dependencies"])
    while pending:
        extra = pending.pop()
        if extra not in seen:
            seen.add(extra)
            requirements += optional[extra]
            for text in optional[extra]:
                nested = re.match(rf"{re.escape(project['name'])}\[([^]]*)\]", text)
                pending += [part.strip() for part in nested[1].split(",")] if nested else []
    for text in requirements:
        name = re.match(r"[A-Za-z0-9._-]+", text)
        if name is not None and name[0] != project["name"]:
            wanted.add(normal(name[0]))
    locked = {line.partition("==")[0] for line in LOCK.read_text("utf-8").splitlines() if "==" in line}
    return sorted(wanted - locked)


def main(options: list[str]) -> str | int:
    """Do what is asked for; an exit code, or what is wrong."""
    if not options:
        write()
        return 0
    lacking = missing()
    if lacking:
        return f"{LOCK.name} lacks {', '.join(lacking)}: run scripts/lock.py"
    first = LOCK.read_text("utf-8").partition("\n")[0]
    if "--fits" in options and not first.startswith(f"# {target()}:"):
        return f"{LOCK.name} is not for {target()}"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
