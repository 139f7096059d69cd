"""Pages of the documentation, run: their files are written, their commands run, their output compared.

A page may hold

* ``console`` blocks: lines that begin with ``$ `` are commands (``> `` continues one), the lines below
  each are what it prints. A page is one shell session. ``...`` stands for anything, and differences of
  white space do not count. A command that fails is followed by ``$ echo $?`` or is an error;
* blocks with ``title="NAME"``: the file of that name, written where the session stands at that moment.

What a page shows is thus what its reader gets.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MODELS = ROOT / "examples" / "models"

_FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]+)"')
_MARK = "@@fusion-engine-page@@"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is (or None), its text and the line it begins on."""

    kind: str
    title: str | None
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command of a console block, what it should print, and its line."""

    text: str
    expected: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        title = _TITLE.search(match[2])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[1], title[1] if title else None, match[3], line))
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[tuple[list[str], list[str], int]] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(([line[2:]], [], number))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0].append(line[2:])
        elif found:
            found[-1][1].append(line)
        else:
            raise AssertionError(f"line {number}: a console block begins with a command: {line}")
    return [Command("\n".join(text), "\n".join(output), line) for text, output, line in found]


def run(page: Path, folder: Path) -> list[str]:
    """Run a page in ``folder``; what differs from the page, in words (empty: nothing does).

    The session has the example models in ``models``, CHECKOUT names this checkout, and pip needs no network.
    """
    shutil.copytree(MODELS, folder / "models", dirs_exist_ok=True)
    stored = folder / ".blocks"
    stored.mkdir()
    script, shown = [f"cd {shlex.quote(str(folder))}", "code=0"], []
    for block in blocks(page):
        if block.title is not None:
            file, name = stored / str(block.line), shlex.quote(block.title)
            file.write_text(block.text, "utf-8")
            script += [f"mkdir -p $(dirname {name})", f"cp {shlex.quote(str(file))} {name}"]
        if block.kind == "console":
            for command in commands(block):
                shown.append(command)
                script += ["(exit $code)", command.text, "code=$?", f'printf "\\n%s %s\\n" {_MARK} $code']
    if not shown:
        return []
    done = subprocess.run(
        ["bash"], input="\n".join(script) + "\n", env=_environment(), capture_output=True, text=True, check=False
    )
    parts = re.split(rf"\n{_MARK} (\d+)\n", done.stdout)
    outputs, codes = parts[0::2], [int(code) for code in parts[1::2]]
    if len(codes) != len(shown):
        return [f"{page.name}: the session ended after {len(codes)} of {len(shown)} commands:\n{done.stderr}"]
    return list(_differences(page, shown, outputs, codes, done.stderr))


def _environment() -> dict[str, str]:
    """An environment in which a fresh one made by ``venv`` finds what is installed here."""
    added = {
        "CHECKOUT": str(ROOT),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join((sysconfig.get_path("purelib"), str(ROOT))),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # as pip spells "no isolation" in an environment variable
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return {**os.environ, **added}


def _differences(page: Path, shown: list[Command], outputs: list[str], codes: list[int], errors: str) -> Iterator[str]:
    compare = OutputChecker().check_output
    for number, (command, output, code) in enumerate(zip(shown, outputs, codes, strict=False)):
        place = f"{page.name}:{command.line}: $ {command.text}"
        told = number + 1 < len(shown) and shown[number + 1].text == "echo $?"
        if code and not told:
            yield f"{place}\nexit code {code}, and the page does not say so\n{output}{errors}"
        elif not compare(command.expected + "\n", output.strip("\n") + "\n", ELLIPSIS | NORMALIZE_WHITESPACE):
            yield f"{place}\n--- the page says\n{command.expected}\n--- it prints\n{output}"
