"""Files appear whole: without a name until then where the system has such files, else under another one."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion_engine.armnn import files
from fusion_engine.armnn.files import write_atomically
from fusion_engine.errors import OutputError

linux = pytest.mark.skipif(sys.platform != "linux", reason="files without a name are Linux's")


@pytest.fixture(params=[pytest.param("unnamed", marks=linux), "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "named":
        monkeypatch.setattr(files, "_unnamed", lambda directory: None)
    return str(request.param)


def test_a_file_is_replaced_whole(way: str, tmp_path: Path) -> None:
    target = tmp_path / "a.armnn"
    target.write_bytes(b"old")
    target.chmod(0o640)
    seen: list[tuple[bytes, int]] = []

    def parts() -> Iterator[bytes]:
        for part in (b"new ", b"", b"bytes"):
            yield part
            seen.append((target.read_bytes(), len(os.listdir(tmp_path))))

    write_atomically(target, parts())
    assert target.read_bytes() == b"new bytes"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert seen == [(b"old", 1 if way == "unnamed" else 2)] * 3
    assert os.listdir(tmp_path) == ["a.armnn"]


def test_a_new_file_has_the_rights_that_the_user_gives(way: str, tmp_path: Path) -> None:
    former = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a.armnn", [b"new"])
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "a.armnn").stat().st_mode) == 0o640


@pytest.mark.parametrize("call", ["fsync", "replace", "fchmod", pytest.param("link", marks=linux)])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    way: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "named" and call == "link":
        pytest.skip("a file with a name needs no other")

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, os.strerror(5))

    target = tmp_path / "a.armnn"
    target.write_bytes(b"old")
    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(OutputError, match=r"a\.armnn: cannot be written: Input/output error"):
        write_atomically(target, [b"new"])
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.armnn"]


@linux
def test_where_there_are_no_such_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without them, a machine without /proc, a directory that is not there."""
    opened = os.open

    def refuse(path: object, flags: int, *rest: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, os.strerror(95))
        return opened(path, flags, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", refuse)
        write_atomically(tmp_path / "a", [b"a"])
    with monkeypatch.context() as patch:
        patch.setattr(files, "_OWN", "/nowhere")
        write_atomically(tmp_path / "b", [b"b"])
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [b"a", b"b"]
    with pytest.raises(OutputError, match="No such file or directory"):
        write_atomically(tmp_path / "none" / "c", [b"c"])
