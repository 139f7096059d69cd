"""The lock of CI: what it says, and what it says of itself."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import script


@pytest.fixture(name="lock")
def _lock(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("lock", monkeypatch)


def test_what_is_missing_is_named(lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirements of the project, of its tests, of extras that these name, and of the build."""
    lacking = lock.missing()  # it may be behind: scripts/test then says so, and does without it
    text = lock.LOCK.read_text("utf-8")
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock.txt")
    for gone in ("numpy", "hypothesis", "shtab", "editables"):
        (tmp_path / "lock.txt").write_text(text.replace(f"\n{gone}==", "\nother=="), "utf-8")
        assert lock.missing() == sorted([*lacking, gone])
        assert gone in lock.main(["--check"])
        assert "run scripts/lock.py" in lock.main(["--fits"])


def test_a_lock_is_for_one_python(lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock.txt")
    monkeypatch.setattr(lock, "missing", list)
    for first, fits in ((lock.target(), 0), ("CPython 3.99, Linux", f"lock.txt is not for {lock.target()}")):
        (tmp_path / "lock.txt").write_text(f"# {first}: written by scripts/lock.py\n", "utf-8")
        assert lock.main(["--check"]) == 0
        assert lock.main(["--fits"]) == fits


def test_each_has_one_version_and_one_hash_and_no_index(lock: ModuleType) -> None:
    first, *lines = lock.LOCK.read_text("utf-8").splitlines()
    assert re.fullmatch(r"# CPython 3\.\d+, \w+ \w+: written by scripts/lock\.py", first)
    for name, digest in zip(lines[::2], lines[1::2], strict=True):
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][A-Za-z0-9.+!]* \\", name)
        assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", digest)
