"""Every page that shows commands shows what they do."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.pages import DOCS, Block, commands, run

NAMED = ("index.md", "nvneural.md", "own-folds.md", "tutorial.md")
PAGES = [DOCS / name for name in NAMED if (DOCS / name).exists()] + sorted((DOCS / "howto").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(DOCS).as_posix() for page in PAGES])
def test_a_page_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    for words, module in (("-m venv", "ensurepip"), ("--verify", "onnxruntime"), ("zip://", "fsspec"), ("$ ", "bash")):
        there = shutil.which(module) if module == "bash" else find_spec(module)
        if words in text and not there:
            pytest.skip(f"the page needs {module}")
    differences = run(page, tmp_path)
    assert not differences, "\n\n".join(differences)


def test_a_command_and_what_it_prints() -> None:
    block = Block("console", None, "$ echo 'a\n> b'\na\nb\n\n$ true\n", 10)
    assert [(c.text, c.expected, c.line) for c in commands(block)] == [
        ("echo 'a\nb'", "a\nb\n", 11),
        ("true", "", 16),
    ]


def test_what_differs_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```toml title="sub/a.toml"\nx = 1\n```\n\n'
        "```console\n$ cat sub/a.toml\nx = 1\n$ cd sub\n$ ls\nb.toml\n"
        "$ false\n$ false\n$ echo $?\n1\n$ echo one two\none ...\n```\n"
    )
    folder = tmp_path / "session"
    folder.mkdir()
    wrong = run(page, folder)
    assert [line.splitlines()[:2] for line in wrong] == [
        ["page.md:9: $ ls", "--- the page says"],
        ["page.md:11: $ false", "exit code 1, and the page does not say so"],
    ]
