"""The command line: words and exit codes.

Exit code 0: fine. 1: a model failed, the others are done all the same. 2: the command or a rule is
wrong, nothing was done. 3: there is what --fail-on asks for. Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from fusion_engine import __version__
from fusion_engine.collector import relaxed
from fusion_engine.completion import SHELLS, script
from fusion_engine.console import Console, printable
from fusion_engine.layer_types import add_types
from fusion_engine.linting.command import add_lint
from fusion_engine.pictures import add_draw
from fusion_engine.runs import add_runs
from fusion_engine.signals import Terminated, orderly
from fusion_engine.usage import FAILED, FINE, INTERRUPTED, SIGNALLED, WRONG, Wrong
from fusion_engine.workbench import add_workbench

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
    if argv is None:
        relaxed()
    console = Console()
    try:
        arguments = _parser().parse_args(argv)
        with orderly():
            code: int = arguments.run(arguments, console)
    except Wrong as wrong:
        for text in wrong.texts:
            console.note(f"fusion-engine: {text}")
        code = WRONG
    except KeyboardInterrupt:
        console.note("fusion-engine: interrupted")
        code = INTERRUPTED
    except Terminated as ended:
        console.note(f"fusion-engine: ended by {ended}")
        code = SIGNALLED + ended.number
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
        "Exit code: 0 fine, 1 a model failed (the others are done), 2 the command or a rule is wrong (nothing was "
        "done), 3 there is what --fail-on asks for.",
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

    add_runs(command, paths)

    inspect = command("inspect", _inspect, "show what is in a model", "inspect model.armnn", "inspect a.armnn --json")
    inspect.add_argument("model", metavar="MODEL", help="an .armnn file")
    inspect.add_argument("--layers", action="store_true", help="list every layer with its inputs and outputs")
    inspect.add_argument("--json", action="store_true", help="as JSON; with --layers with all their parameters")

    add_draw(command)

    add_lint(command)
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
    from fusion_engine import FusionEngineError, load, validate
    from fusion_engine.network import warnings_of
    from fusion_engine.overview import cautions, layer_list, overview, readings
    from fusion_engine.storage import at_hand
    from fusion_engine.tables import overview_lines

    try:
        with at_hand(arguments.model) as path:
            graph = load(path)
            found = {"path": arguments.model, **overview(graph), **readings(graph)}
            problems = [f"cannot be saved as it is: {problem.message}" for problem in validate(graph)]
            found["warnings"] = [*warnings_of(graph), *cautions(graph), *problems]
            if arguments.layers:
                found["layer_list"] = layer_list(graph)
    except FusionEngineError as error:
        console.note(f"fusion-engine: {printable(str(error))}")
        return FAILED
    if arguments.json:
        import json

        console.print(json.dumps(found, indent=2))
    else:
        for line in overview_lines(found):
            console.print(line)
    return FINE


if __name__ == "__main__":
    sys.exit(main())
