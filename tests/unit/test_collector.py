"""The garbage collector: paused for bulk work, relaxed in programs, left alone in libraries."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from fusion_engine.cli import main
from fusion_engine.collector import LARGE, paused, used_up


def test_it_is_paused_and_runs_again_whatever_happens() -> None:
    assert gc.isenabled()
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), paused():
        _ = 1 // 0
    assert gc.isenabled()


def test_where_it_is_off_it_stays_off() -> None:
    gc.disable()
    try:
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_program_relaxes_it_and_a_caller_of_main_does_not() -> None:
    before = gc.get_threshold()
    assert main(["include-dir"]) == 0
    assert gc.get_threshold() == before
    program = (
        "import atexit, gc, sys\n"
        "from fusion_engine.cli import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"  # called after what is registered later
        "sys.argv = ['fusion-engine', 'include-dir']\n"
        "main()\n"
        "print(gc.isenabled(), gc.get_threshold()[0] > 10000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["True True", "True"]


@pytest.mark.parametrize("size", [LARGE - 1, LARGE])
def test_large_networks_do_not_wait_for_it(size: int) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    gc.collect()
    with paused():
        gone = weakref.ref(Cycle())
        used_up(size)
        assert (gone() is None) == (size >= LARGE)
    gc.collect()
