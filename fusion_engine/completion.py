"""Scripts by which a shell completes the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fusion_engine.usage import Wrong

__all__ = ["SHELLS", "script"]

SHELLS = ("bash", "zsh", "tcsh")
"""The shells that scripts are made for."""

_FILES = ("PATH", "MODEL", "FILE", "FILE.json", "NAME|FILE")
_FOLDERS = ("DIR",)


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell; what names a file or a directory, by its metavar, is completed as one.

    Raises
    ------
    Wrong
        Where shtab, which makes it, is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        raise Wrong("completion needs shtab: pip install 'armnn-fusion-engine[completion]'") from error
    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    made: str = shtab.complete(parser, shell)
    return made


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    pending = [parser]
    while pending:
        for action in pending.pop()._actions:
            yield action
            if isinstance(action, argparse._SubParsersAction):
                pending.extend(action.choices.values())
