"""The command line: words and exit codes.

Exit code 0: fine. 1: a model failed, the others are done all the same. 2: the command or a rule is
wrong, nothing was done. Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from fusion_engine import __version__
from fusion_engine.completion import SHELLS, script
from fusion_engine.console import Console, counted, printable
from fusion_engine.layer_types import add_types
from fusion_engine.pictures import DiffPages, add_draw
from fusion_engine.usage import FAILED, FINE, INTERRUPTED, STDOUT, WRONG, Wrong, rule_error, rules_of
from fusion_engine.workbench import add_workbench

if TYPE_CHECKING:
    from fusion_engine.batch import Change, Job
    from fusion_engine.judging import Judge
    from fusion_engine.report import Report

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """ArgumentParser whose errors cannot harm a terminal."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; ``argv`` without the program's name, by default that of the process.

    Returns
    -------
    int
        The exit code.
    """
    console = Console()
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments, console)
    except Wrong as wrong:
        for text in wrong.texts:
            console.note(f"fusion-engine: {text}")
        code = WRONG
    except KeyboardInterrupt:
        console.note("fusion-engine: interrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        console.closed = True
        code = FINE
    except MemoryError:
        console.note("fusion-engine: there is not enough memory")
        code = FAILED
    except Exception as error:
        from fusion_engine.batch import internal

        console.note(f"fusion-engine: {printable(internal(error))}")
        code = FAILED
    finally:
        console.close()
    if console.fault is not None:
        console.note(f"fusion-engine: standard output: {console.fault}")
        code = code or FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fusion-engine",
        description="Fuse the layers of Arm NN networks (.armnn) offline and by rule.",
        epilog="fusion-engine COMMAND --help tells more of a command. "
        "Exit code: 0 fine, 1 a model failed (the others are done), 2 the command or a rule is wrong.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fusion-engine {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Any, words: str, *examples: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = commands.add_parser(
            name,
            help=words,
            description=f"{words[0].upper()}{words[1:]}.",
            epilog="examples:\n" + "\n".join(f"  fusion-engine {example}" for example in examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        added.set_defaults(run=run)
        return added

    def paths(of: argparse.ArgumentParser) -> None:
        of.add_argument("paths", nargs="+", metavar="PATH", help="a model, or a directory that is walked for *.armnn")

    def judged(of: argparse.ArgumentParser) -> None:
        of.add_argument(
            "--judge",
            metavar="COMMAND",
            help="run as COMMAND BEFORE AFTER for each model that was changed; only exit code 0 keeps the result",
        )
        of.add_argument(
            "--judge-timeout",
            metavar="SECONDS",
            type=_seconds,
            help="how long it may take for a model (default: 600); one that takes longer is ended",
        )

    fuse = command(
        "fuse",
        _fuse,
        "apply rules to models and write the results",
        "fuse models --out fused",
        "fuse model.armnn --out fused --rules npu --report report.json",
        "fuse models --rules my-npu.toml --dry-run",
        "fuse model.armnn --rules npu --dry-run --diff model.html",
        "fuse models --out fused --release 20.08 --judge ./run-both-on-the-board",
    )
    paths(fuse)
    fuse.add_argument("--out", metavar="DIR", help="directory for the results; needed but for a dry run")
    fuse.add_argument(
        "--release", metavar="RELEASE", help="the release of Arm NN that is to read the results, as of convert"
    )
    fuse.add_argument(
        "--rules",
        metavar="NAME|FILE",
        action="append",
        help="rules that ship, by name, or a rule file; may be given again (default: armnn)",
    )
    fuse.add_argument(
        "--report", metavar="FILE.json", help="write what was done, and what was not and why; - is standard output"
    )
    fuse.add_argument("--dry-run", action="store_true", help="do everything but write models")
    fuse.add_argument("--only", metavar="RULE", action="append", help="apply this rule; may be given again")
    fuse.add_argument("--skip", metavar="RULE", action="append", help="leave this rule out; may be given again")
    fuse.add_argument(
        "--verify",
        action="store_true",
        help="run what was changed before and after, and write no model whose results differ "
        "(needs pip install 'armnn-fusion-engine[verify]')",
    )
    fuse.add_argument(
        "--tolerance",
        metavar="X",
        type=float,
        help="with --verify: largest difference in floating-point tensors, relative to the largest value "
        "(default: 1e-5 in Float32, 2e-3 in Float16)",
    )
    fuse.add_argument(
        "--diff",
        metavar="X.html|DIR",
        help="draw each model before and after, side by side: a page for one model, or a directory of them",
    )
    fuse.add_argument("--statistics", action="store_true", help="show what each rule did and how long it took")
    judged(fuse)

    convert = command(
        "convert",
        _convert,
        "carry models to another release of Arm NN",
        "convert models --release 23.08 --out new",
        "convert model.armnn --release 20.08 --out board --judge ./run-both-on-the-board",
    )
    paths(convert)
    convert.add_argument(
        "--release", metavar="RELEASE", required=True, help="the release that is to read the results: 20.08, 23.08, ..."
    )
    convert.add_argument("--out", metavar="DIR", help="directory for the results; needed but for a dry run")
    convert.add_argument(
        "--report", metavar="FILE.json", help="write what was done, and what not and why; - is standard output"
    )
    convert.add_argument("--dry-run", action="store_true", help="do everything but write models")
    judged(convert)

    unfuse = command(
        "unfuse",
        _unfuse,
        "undo opaque fusions and groups; what folds did stays done",
        "unfuse fused --out again",
        "unfuse a.armnn --out again",
    )
    paths(unfuse)
    unfuse.add_argument("--out", metavar="DIR", help="directory for the results; needed but for a dry run")
    unfuse.add_argument("--dry-run", action="store_true", help="do everything but write models")

    inspect = command("inspect", _inspect, "show what is in a model", "inspect model.armnn", "inspect a.armnn --json")
    inspect.add_argument("model", metavar="MODEL", help="an .armnn file")
    inspect.add_argument("--layers", action="store_true", help="list every layer with its inputs and outputs")
    inspect.add_argument("--json", action="store_true", help="as JSON; with --layers with all their parameters")

    add_draw(command)

    lint = command("lint", _lint, "show every error of rule files", "lint my-npu.toml", "lint armnn my.rules")
    lint.add_argument("files", nargs="+", metavar="FILE", help="a rule file, or the name of one that ships")

    add_workbench(command, paths)
    add_types(command)
    command(
        "include-dir",
        _include_dir,
        "print where the C++ header for backends lies",
        'include-dir     # g++ -std=c++17 -I "$(fusion-engine include-dir)" backend.cpp',
    )
    completion = command(
        "completion",
        _completion,
        "print a script by which your shell completes commands and options",
        "completion bash > ~/.local/share/bash-completion/completions/fusion-engine",
        "completion zsh > ~/.zfunc/_fusion-engine",
    )
    completion.add_argument("shell", choices=SHELLS, help="your shell")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


# fuse, convert and unfuse


def _fuse(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.batch import aiming, fusing, verifying
    from fusion_engine.choosing import chosen_rules
    from fusion_engine.report import Report
    from fusion_engine.tables import statistics_lines

    rules, files = rules_of(arguments.rules or ["armnn"])
    rules = chosen_rules(rules, arguments.only or (), arguments.skip or ())
    change = fusing(rules)
    _check_verification(arguments)
    if arguments.verify:
        change = verifying(change, arguments.tolerance)
    change = aiming(change, _release(arguments.release))
    report = Report(files)
    pages = None if arguments.diff is None else DiffPages(arguments.diff)
    change = change if pages is None else pages.keeping(change)
    code = _change(arguments, console, change, report, arguments.rules or (), pages)
    for line in statistics_lines(report) if arguments.statistics else ():
        (console.note if arguments.report == STDOUT else console.print)(line)
    return code


def _check_verification(arguments: argparse.Namespace) -> None:
    """What is asked of verification must make sense and be possible: found out before any work."""
    from math import isfinite

    from fusion_engine.errors import VerifyError

    if arguments.tolerance is not None:
        if not arguments.verify:
            raise Wrong("--tolerance is for --verify: give both or neither")
        if not isfinite(arguments.tolerance) or arguments.tolerance < 0:
            raise Wrong(f"--tolerance {arguments.tolerance:g}: it is a number of at least 0")
    if arguments.verify:
        from fusion_engine.verifying.onnxgraph import require_runtime

        try:
            require_runtime()
        except VerifyError as error:
            raise Wrong(printable(str(error))) from error


def _convert(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.batch import converting
    from fusion_engine.report import Report

    change = converting(_release(arguments.release) or "")
    return _change(arguments, console, change, Report(done="converted"), ())


def _release(name: str | None) -> str | None:
    """The name of a release, looked up before any work."""
    from fusion_engine.errors import ConversionError
    from fusion_engine.releases.facts import find_release

    try:
        return None if name is None else find_release(name).name
    except ConversionError as error:
        raise Wrong(printable(str(error))) from error


def _judge(arguments: argparse.Namespace) -> Judge | None:
    from fusion_engine.errors import OutputError
    from fusion_engine.judging import TIMEOUT, Judge

    if arguments.judge is None:
        if arguments.judge_timeout is not None:
            raise Wrong("--judge-timeout is for a judge: name one with --judge COMMAND")
        return None
    try:
        return Judge(arguments.judge, arguments.judge_timeout or TIMEOUT)
    except OutputError as error:
        raise Wrong(printable(str(error))) from error


def _change(
    arguments: argparse.Namespace,
    console: Console,
    change: Change,
    report: Report,
    files: Sequence[str],
    pages: DiffPages | None = None,
) -> int:
    """Change the models of a command that writes a report; ``files`` are others that it reads."""
    import os

    judge = _judge(arguments)
    jobs = _jobs(arguments)
    if arguments.report is not None:
        _check_report(arguments.report, [*files, *(p for job in jobs for p in (job.path, job.output) if p)])
        if arguments.report != STDOUT:
            _require_writable(os.path.dirname(arguments.report))
    if pages is not None:
        others = [*files, *([arguments.report] if arguments.report else ())]
        for folder in pages.plan(arguments.paths, arguments.out, jobs, others):
            _require_writable(folder)
    if not arguments.dry_run:
        _require_writable(arguments.out)
    quiet = arguments.report == STDOUT
    _batch(jobs, change, report, console, report.done, arguments.dry_run, quiet=quiet, judge=judge, pages=pages)
    if arguments.report is not None and not _write_report(arguments.report, report, console):
        return FAILED
    return FAILED if report.failed or (pages is not None and pages.failed) else FINE


def _unfuse(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.batch import unfusing
    from fusion_engine.report import Report

    report = Report()
    jobs = _jobs(arguments)
    if not arguments.dry_run:
        _require_writable(arguments.out)
    _batch(jobs, unfusing(), report, console, "unfused", arguments.dry_run)
    return FAILED if report.failed else FINE


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    from fusion_engine.batch import plan
    from fusion_engine.errors import OutputError

    if not arguments.out and not (arguments.dry_run and arguments.out is None):
        raise Wrong("say where the results go: --out DIR (or --dry-run)")
    try:
        return plan(arguments.paths, arguments.out)
    except OutputError as error:
        raise Wrong(printable(str(error))) from error


def _batch(
    jobs: Sequence[Job],
    change: Change,
    report: Report,
    console: Console,
    done: str,
    dry_run: bool,
    quiet: bool = False,
    judge: Judge | None = None,
    pages: DiffPages | None = None,
) -> None:
    """Do the jobs, showing each when it is done; ``quiet`` where standard output is for the report."""
    from fusion_engine.batch import process
    from fusion_engine.tables import model_lines, reason, summary_line

    for number, job in enumerate(jobs, 1):
        step = f"[{number}/{len(jobs)}] {printable(job.path)}"
        console.progress(step)
        model = process(job, change, done=done, dry_run=dry_run, judge=judge)
        report.models.append(model)
        for line in () if quiet else model_lines(model, console.paint, done, dry_run):
            console.print(line)
        if pages is not None:
            pages.draw(job, console, quiet)
        console.done(f"{step}: {model.status}" + (f": {reason(model)}" if model.error else ""))
    show = console.note if quiet else console.print
    show(summary_line(report, done))


def _require_writable(folder: str) -> None:
    """A directory must be there, or be made, and take files: found out before any work."""
    import os
    from tempfile import TemporaryFile

    try:
        os.makedirs(folder or ".", exist_ok=True)
        with TemporaryFile(dir=folder or "."):
            pass
    except OSError as error:
        raise Wrong(f"{printable(folder)}: nothing can be written there: {error.strerror}") from error


def _check_report(path: str, others: Sequence[str]) -> None:
    """The report must not fall upon a model or a rule file, nor a directory."""
    import os

    if path == STDOUT:
        return
    if not path:
        raise Wrong("say where the report goes: --report FILE.json (or - for standard output)")
    if os.path.isdir(path):
        raise Wrong(f"the report {printable(path)} is a directory: name a file")
    place = os.path.realpath(path)
    if any(os.path.realpath(other) == place for other in others):
        raise Wrong(f"the report {printable(path)} is a model or rule file of the run: name another file")


def _write_report(path: str, report: Report, console: Console) -> bool:

    from fusion_engine.armnn.files import write_atomically
    from fusion_engine.errors import OutputError

    if path == STDOUT:
        console.print(report.text().rstrip("\n"))
        return True
    try:
        write_atomically(path, [report.text().encode("ascii")])
    except OutputError as error:
        console.note(f"fusion-engine: {printable(str(error))}")
        return False
    except OSError as error:
        console.note(f"fusion-engine: {printable(path)}: cannot be written: {error.strerror}")
        return False
    return True


# Rules


def _lint(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.language.rulefile import read_rules

    rules, errors = read_rules(arguments.files)
    for error in errors:
        console.print(rule_error(error))
    files = counted(len(arguments.files), "file")
    if errors:
        console.note(f"{counted(len(errors), 'error')} in {files}")
        return WRONG
    console.print(f"{files}, {counted(len(rules), 'rule')}, no errors")
    return FINE


# For those who write backends


def _completion(arguments: argparse.Namespace, console: Console) -> int:
    console.print(script(_parser(), arguments.shell).rstrip("\n"))
    return FINE


def _include_dir(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.resources import include_folder

    try:
        console.print(str(include_folder()))
    except FileNotFoundError as error:
        raise Wrong(str(error)) from error
    return FINE


# Looking at models


def _inspect(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine import ModelError, load, validate
    from fusion_engine.network import warnings_of
    from fusion_engine.overview import cautions, layer_list, overview, readings
    from fusion_engine.tables import overview_lines

    try:
        graph = load(arguments.model)
    except ModelError as error:
        console.note(f"fusion-engine: {printable(str(error))}")
        return FAILED
    found = {"path": arguments.model, **overview(graph), **readings(graph)}
    problems = [f"cannot be saved as it is: {problem.message}" for problem in validate(graph)]
    found["warnings"] = [*warnings_of(graph), *cautions(graph), *problems]
    if arguments.layers:
        found["layer_list"] = layer_list(graph)
    if arguments.json:
        import json

        console.print(json.dumps(found, indent=2))
    else:
        for line in overview_lines(found):
            console.print(line)
    return FINE


if __name__ == "__main__":
    sys.exit(main())
