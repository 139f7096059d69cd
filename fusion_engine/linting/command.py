"""The command ``lint``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fusion_engine.console import Console, counted, printable
from fusion_engine.usage import FINE, WRONG, Wrong

__all__ = ["add_lint"]


def add_lint(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser; ``command`` makes one."""
    lint = command(
        "lint",
        _lint,
        "show what is wrong or questionable in rule files",
        "lint my-npu.toml",
        "lint armnn my.rules --strict",
        "lint my-npu.toml --portable",
        "lint rules/*.toml --format github     # in a workflow: shown at the lines of a pull request",
    )
    lint.add_argument("files", nargs="+", metavar="FILE", help="a rule file, or the name of one that ships")
    lint.add_argument("--strict", action="store_true", help="warnings count as errors: the exit code is 2")
    lint.add_argument(
        "--portable",
        action="store_true",
        help="also what has a meaning of this project's own, which NvNeural's printed grammar does not give it",
    )
    lint.add_argument(
        "--format", choices=("text", "json", "github"), default="text", help="how to show it (default: text)"
    )


def _lint(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.errors import FuseError
    from fusion_engine.linting.findings import github_lines, json_text, text_lines
    from fusion_engine.linting.linter import findings_of

    try:
        findings, rules = findings_of(arguments.files, portable=arguments.portable)
    except FuseError as error:
        raise Wrong(printable(str(error))) from error
    if arguments.format == "json":
        console.print(json_text(findings, rules))
    for finding in findings if arguments.format != "json" else ():
        console.print(printable(github_lines(finding)) if arguments.format == "github" else text_lines(finding))
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    files = counted(len(arguments.files), "file")
    told = [counted(errors, "error") if errors else "no errors"] + ([counted(warnings, "warning")] if warnings else [])
    wrong = errors or (warnings and arguments.strict)
    if errors:
        console.note(f"{', '.join(told)} in {files}")
    elif findings or arguments.format != "text":
        console.note(f"{files}, {counted(rules, 'rule')}, {', '.join(told)}")
    else:
        console.print(f"{files}, {counted(rules, 'rule')}, no errors")
    return WRONG if wrong else FINE
