"""The judge: what is run, what is kept, and what is told of it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from fusion_engine.errors import OutputError
from fusion_engine.judging import MOST_OUTPUT, Judge, Verdict, bench


def python(code: str) -> str:
    """A command that runs Python code; the two files are ``sys.argv[1:]``."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote('import os, sys; ' + code)}"


def test_both_files_are_given() -> None:
    verdict = Judge(python("print(sys.argv[1:])"))("a b.armnn", "c'd.armnn")
    assert verdict.kept
    assert verdict.exit_code == 0
    assert verdict.output == "['a b.armnn', \"c'd.armnn\"]\n"
    assert verdict.seconds > 0


def test_output_and_errors_in_order() -> None:
    code = "os.write(1, b'one\\n'); os.write(2, b'two\\n'); os.write(1, b'\\xff\\n'); sys.exit(3)"
    verdict = Judge(python(code))("a", "b")
    assert (verdict.kept, verdict.exit_code, verdict.output) == (False, 3, "one\ntwo\n\ufffd\n")
    assert verdict.reason == "the judge gave exit code 3, so the result is not kept: \ufffd"


def test_no_standard_input() -> None:
    assert Judge(python("print(repr(sys.stdin.read()))"))("a", "b").output == "''\n"


def test_the_end_of_a_long_output_is_kept() -> None:
    verdict = Judge(python(f"print('x' * {2 * MOST_OUTPUT}); print('end')"))("a", "b")
    assert len(verdict.output) == MOST_OUTPUT
    assert verdict.output.endswith("x\nend\n")


def test_a_signal() -> None:
    verdict = Judge(python("os.kill(os.getpid(), 9)"))("a", "b")
    assert (verdict.kept, verdict.exit_code) == (False, -9)
    assert verdict.reason == "the judge was ended by signal 9, so the result is not kept"


def test_time_runs_out(tmp_path: Path) -> None:
    """What the judge has started is ended with it."""
    started = tmp_path / "started"
    child = (
        f"import time; open({str(started)!r}, 'w').close(); time.sleep(2); open({str(started) + '2'!r}, 'w').close()"
    )
    code = f"import subprocess, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    verdict = Judge(python(code), timeout=1.0)("a", "b")
    assert (verdict.kept, verdict.exit_code) == (False, None)
    assert verdict.reason == "the judge took more than 1 seconds, so the result is not kept"
    time.sleep(2.2 if started.exists() else 0)
    assert not (tmp_path / "started2").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "the judge is empty"),
        ("  ", "the judge is empty"),
        ("run 'both", "is no command: No closing quotation"),
        ("no-such-program-here x", "'no-such-program-here' is no program that can be run"),
    ],
)
def test_what_is_no_command(command: str, words: str) -> None:
    with pytest.raises(OutputError) as caught:
        Judge(command)
    assert words in str(caught.value)


def test_what_cannot_be_started(tmp_path: Path) -> None:
    program = tmp_path / "judge"
    program.write_bytes(b"\x00 is no program")
    program.chmod(0o755)
    with pytest.raises(OutputError, match="cannot be started"):
        Judge(str(program))("a", "b")


def test_the_bench_goes(tmp_path: Path) -> None:
    with bench("x.armnn", str(tmp_path)) as path:
        assert os.path.dirname(os.path.dirname(path)) == str(tmp_path)
        Path(path).write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), bench("x.armnn", str(tmp_path)) as path:
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="no directory can be made"), bench("x.armnn", str(tmp_path / "no")):
        pass


def test_reasons() -> None:
    assert Verdict(False, 1, "\n  \n", 0.1).reason == "the judge gave exit code 1, so the result is not kept"
