"""Completion in a real bash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fusion_engine.cli import main
from fusion_engine.completion import SHELLS


def completed(script: str, line: str, folder: Path) -> list[str]:
    """What bash offers at the end of a line."""
    commands = (
        f"{script}\nCOMP_WORDS=({line})\n"
        '[ "${COMP_LINE: -1}" = " " ] && COMP_WORDS+=("")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n'
        "_shtab_fusion_engine\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    run = subprocess.run(
        ["bash", "-c", commands],
        env={"COMP_LINE": line, "PATH": "/usr/bin:/bin"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return sorted(run.stdout.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "include-dir" in capsys.readouterr().out


def test_commands_options_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    (tmp_path / "model.armnn").touch()
    (tmp_path / "folder").mkdir()
    assert completed(script, "fusion-engine in", tmp_path) == ["include-dir", "inspect"]
    assert completed(script, "fusion-engine fuse --d", tmp_path)[-1] == "--dry-run"
    assert completed(script, "fusion-engine inspect mo", tmp_path) == ["model.armnn"]
    assert completed(script, "fusion-engine match --syntax ", tmp_path) == ["1", "2"]


def test_without_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'armnn-fusion-engine[completion]'" in capsys.readouterr().err
