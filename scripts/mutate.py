"""Mutation testing of the code whose silent faults cost most: matcher, folds, verifiers.

A mutant is the program with one small fault: a comparison turned round, a statement left out, two arguments swapped.
It is killed when a test fails or does not end; one that survives is the same program in other words, or a test is
missing. All mutants of these modules would take days, so a random sample is drawn, of every module in proportion to
its mutants::

    pip install -e '.[test]' coverage
    python scripts/mutate.py --mutants 700 --seed 1 --out build/mutation

Run it in a checkout of its own: no file is changed, but the tests write what tests write. Needs Linux (``fork``).

How it works: the tests are collected once, and run once under coverage, which tells for every line the tests that
reach it, and how long each takes. Then, for every mutant, the process forks; the child gives the live functions the
code objects of the mutated module and runs the tests that reach the mutated line, the quick ones first, up to the first
failure. Only what stands in functions is mutated, not the tables of a module, and neither annotations, docstrings nor
texts of exceptions. Hypothesis draws the same examples in every child.

``results.jsonl`` in the output directory has one line for each mutant; a run that was stopped goes on where it was.
Two runs with ``--part 1 2`` and ``--part 2 2`` share the work, once the map of tests is there.
``--again`` runs the survivors of such a file against the tests for which there was no time, and with ``--tests``
against others, say new ones; ``--show`` prints them as differences.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import gc
import json
import os
import random
import resource
import signal
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODULES = (
    "fusion_engine/match/*.py",
    "fusion_engine/folds/*.py",
    "fusion_engine/verifying/*.py",
    "fusion_engine/armnn/decode.py",
    "fusion_engine/armnn/reader.py",
    "fusion_engine/armnn/sharing.py",
    "fusion_engine/checks.py",
)
TESTS = ("tests/unit", "tests/properties", "tests/verifier", "tests/real", "fusion_engine")
#: Tests that start other processes, where a mutant of this process is not seen, or that have to do with other modules.
LEFT_OUT = (
    "tests/real/test_drawing_corpus.py",
    "tests/real/test_examples_run.py",
    "tests/real/test_netron.py",
    "tests/unit/test_backend_docs.py",
    "tests/unit/test_benchmarks.py",
    "tests/unit/test_cluster.py",
    "tests/unit/test_completion.py",
    "tests/unit/test_drawing.py",
    "tests/unit/test_lock.py",
    "tests/unit/test_pages.py",
    "tests/unit/test_pictures.py",
    "tests/unit/test_pool.py",
    "tests/unit/test_site.py",
    "tests/unit/test_storage.py",
    "tests/unit/test_wheel.py",
    "tests/unit/test_zoo.py",
)
MEMORY = 8 << 30

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the number of its node in the order of `walk`, and its number among the node's faults."""

    module: str
    node: int
    variant: int
    line: int
    kind: str


def walk(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST | None, bool]]:
    """The nodes of a module, each with its parent and whether it may be mutated: code of functions, not words."""
    stack: list[tuple[ast.AST, ast.AST | None, bool]] = [(tree, None, False)]
    while stack:
        node, parent, inside = stack.pop()
        yield node, parent, inside
        below = inside or isinstance(node, (ast.FunctionDef, ast.Lambda))
        for name, value in ast.iter_fields(node):
            words = name in {"annotation", "returns", "decorator_list", "args"} and not isinstance(node, ast.Call)
            words = words or (isinstance(node, (ast.JoinedStr, ast.Raise)) and name in {"values", "exc"})
            children = value if isinstance(value, list) else [value]
            stack.extend((child, node, below and not words) for child in children if isinstance(child, ast.AST))


def variants(node: ast.AST, parent: ast.AST | None) -> list[tuple[str, ast.AST]]:
    """The faults of one node: the kind of each, and the node that stands in its place."""
    found = [
        *_operators(node, parent),
        *_constants(node, parent),
        *_conditions(node),
        *_statements(node),
        *_calls(node, parent),
    ]
    return [(kind, other if hasattr(other, "lineno") else ast.copy_location(other, node)) for kind, other in found]


_Faults = Iterator[tuple[str, ast.AST]]


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    twin = copy.copy(node)
    for name, value in fields.items():
        setattr(twin, name, value)
    return twin


def _without(values: Sequence[Any], place: int) -> list[Any]:
    return [*values[:place], *values[place + 1 :]]


def _operators(node: ast.AST, parent: ast.AST | None) -> _Faults:
    match node:
        case ast.Compare(ops=operators):
            for place, operator in enumerate(operators):
                for other in COMPARISONS[type(operator)]:
                    yield "comparison", _with(node, ops=[*operators[:place], other(), *operators[place + 1 :]])
        case ast.BoolOp(op=operator, values=values):
            yield "boolean", _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
            for place in range(len(values)):
                rest = _without(values, place)
                yield "operand left out", _with(node, values=rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield "unary", operand
        case ast.BinOp(op=operator) if type(operator) in OPERATORS and not isinstance(parent, ast.JoinedStr):
            yield "arithmetic", _with(node, op=OPERATORS[type(operator)]())
        case ast.AugAssign(op=operator):
            yield "arithmetic", _with(node, op=OPERATORS[type(operator)]())
            yield "statement", ast.Pass()


def _constants(node: ast.AST, parent: ast.AST | None) -> _Faults:
    match node:
        case ast.Constant(value=bool(truth)):
            yield "constant", _with(node, value=not truth)
        case ast.Constant(value=int(number)):
            yield "constant", _with(node, value=number + 1)
            if number:
                yield "constant", _with(node, value=number - 1)
        case ast.Constant(value=float(number)):
            yield "constant", _with(node, value=number + 1.0)
        case ast.Constant(value=str(text)) if text and not isinstance(parent, ast.Expr):
            yield "text", _with(node, value=text + "_")


def _conditions(node: ast.AST) -> _Faults:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield "condition", _with(node, test=ast.copy_location(ast.UnaryOp(ast.Not(), test), test))
        case ast.comprehension(ifs=conditions):
            for place in range(len(conditions)):
                yield "filter left out", _with(node, ifs=_without(conditions, place))


def _statements(node: ast.AST) -> _Faults:
    match node:
        case ast.Return(value=ast.Constant(value=None)):
            pass
        case ast.Return(value=ast.expr() as value):
            yield "return", _with(node, value=ast.copy_location(ast.Constant(None), value))
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield "statement", ast.Pass()
        case ast.Continue():
            yield "loop", ast.Break()
        case ast.Break():
            yield "loop", ast.Continue()


def _calls(node: ast.AST, parent: ast.AST | None) -> _Faults:
    match node:
        case ast.Call(args=[first, second, *rest]) if ast.dump(first) != ast.dump(second):
            if not any(isinstance(argument, ast.Starred) for argument in (first, second)):
                yield "arguments", _with(node, args=[second, first, *rest])
        case ast.Name(id=name) if name in FUNCTIONS and isinstance(parent, ast.Call) and parent.func is node:
            yield "function", _with(node, id=FUNCTIONS[name])


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module, given by its path below the root."""
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    return [
        Mutant(module, number, variant, getattr(node, "lineno", getattr(parent, "lineno", 0)), kind)
        for number, (node, parent, inside) in enumerate(walk(tree))
        if inside
        for variant, (kind, _) in enumerate(variants(node, parent))
    ]


def mutated(mutant: Mutant) -> ast.Module:
    """The module with the fault in it; lines and columns stay."""
    tree = ast.parse((ROOT / mutant.module).read_text("utf-8"))
    for number, (node, parent, _) in enumerate(walk(tree)):
        if number != mutant.node or parent is None:
            continue
        made = variants(node, parent)[mutant.variant][1]
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, made)
            elif isinstance(value, list) and any(child is node for child in value):
                setattr(parent, name, [made if child is node else child for child in value])
        return ast.fix_missing_locations(tree)
    raise ValueError(f"{mutant} is no mutant of this file")


def statement_line(mutant: Mutant) -> int:
    """The first line of the innermost statement that a mutant lies in."""
    tree = ast.parse((ROOT / mutant.module).read_text("utf-8"))
    lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return max((line for line in lines if line <= mutant.line), default=mutant.line)


def difference(mutant: Mutant) -> str:
    """The lines that the mutant changes, as the parser writes them."""
    before = ast.unparse(ast.parse((ROOT / mutant.module).read_text("utf-8"))).splitlines()
    after = ast.unparse(mutated(mutant)).splitlines()
    lines = [
        line for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")
    ]
    return f"{mutant.module}:{mutant.line} {mutant.kind}\n" + "\n".join(lines)


def sample(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """About ``count`` mutants in random order: of each module in proportion to how many it has, and at least three."""
    chance = random.Random(seed)
    everything = {module: mutants_of(module) for module in modules}
    total = sum(map(len, everything.values()))
    drawn = []
    for mutants in everything.values():
        share = max(3, round(count * len(mutants) / total))
        drawn += chance.sample(mutants, min(share, len(mutants)))
    chance.shuffle(drawn)
    return drawn


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code object of a module and all inside it."""
    stack = [code]
    while stack:
        code = stack.pop()
        yield code
        stack.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))


class Plugin:
    """Runs the tests once under coverage, then again for each mutant, in processes that fork off after collection.

    Parameters
    ----------
    out
        Where the map of tests and the results are kept.
    mutants
        What to try, in this order.
    longest
        Seconds of tests that a mutant gets at most.
    done
        How many of the first of its tests a mutant has already survived.
    """

    def __init__(self, out: Path, mutants: list[Mutant], longest: float, done: dict[Mutant, int]) -> None:
        self.out = out
        self.mutants = mutants
        self.longest = longest
        self.done = done
        self.console = os.dup(2)
        self.failed = self.passed = False
        self.live: dict[str, list[types.FunctionType]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note how the test that runs fares."""
        self.failed = self.failed or report.failed
        self.passed = self.passed or (report.when == "call" and report.passed)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Instead of the tests as they stand: the map if there is none yet, then the mutants."""
        items = {item.nodeid: item for item in session.items}
        self.out.mkdir(parents=True, exist_ok=True)
        if not (self.out / "map.json").exists():
            child = os.fork()
            if not child:
                self.map_tests(list(items.values()))
            os.waitpid(child, 0)
        known = json.loads((self.out / "map.json").read_text("utf-8"))
        for module in {mutant.module for mutant in self.mutants}:
            import_module(module.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        gc.unfreeze()
        for function in gc.get_objects():
            if isinstance(function, types.FunctionType):
                self.live[function.__code__.co_filename].append(function)
        gc.collect()
        gc.freeze()  # or every child would copy the whole heap when it collects garbage
        results = self.out / "results.jsonl"
        ready = {_identity(entry) for entry in read_results(results)}
        for number, mutant in enumerate(self.mutants, 1):
            if _identity(asdict(mutant)) in ready:
                continue
            tests = self.tests_of(mutant, known)
            chosen, spent = [], 0.0
            for name in tests[self.done.get(mutant, 0) :]:
                spent += known["seconds"][name]
                if spent > self.longest:
                    break
                chosen.append(items[name])
            fate, start = "survived" if tests else "not reached", time.monotonic()
            if chosen:
                fate = self.trial(mutant, chosen, 10 + 4 * min(spent, self.longest))
            passed = self.done.get(mutant, 0) + len(chosen)
            entry = {**asdict(mutant), "fate": fate, "tests": passed, "of": len(tests)}
            entry["seconds"] = round(time.monotonic() - start, 2)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            self.say(f"{number}/{len(self.mutants)} {entry}")
        return True

    def tests_of(self, mutant: Mutant, known: dict[str, Any]) -> list[str]:
        """The tests that reach the line of a mutant, or else the statement around it; quick ones first."""
        lines = known["lines"].get(mutant.module, {})
        found = lines.get(str(mutant.line)) or lines.get(str(statement_line(mutant)), ())
        names = [known["names"][number] for number in found]
        return sorted(names, key=lambda name: (known["seconds"][name], name))

    def say(self, line: str) -> None:
        """Print, whatever pytest captures."""
        os.write(self.console, f"{line}\n".encode())

    def run_items(self, items: list[Any], after: Callable[[Any, float], None]) -> None:
        """Run tests; ``after`` gets each with the seconds it took."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            self.failed = self.passed = False
            start = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            after(item, time.monotonic() - start)

    def map_tests(self, items: list[Any]) -> None:
        """Write ``map.json``: how long each test takes, and the tests that reach each line. Ends the process."""
        import coverage

        meter = coverage.Coverage(data_file=None, source=["fusion_engine"], config_file=False)
        meter.set_option("run:core", "ctrace")
        seconds: dict[str, float] = {}
        meter.start()

        def after(item: Any, took: float) -> None:
            if self.passed and not self.failed:
                seconds[item.nodeid] = round(took, 4)
            elif self.failed:
                self.say(f"left out, since it fails as things stand: {item.nodeid}")

        class Contexts:
            def pytest_runtest_setup(self, item: Any) -> None:
                meter.switch_context(item.nodeid)

        items[0].config.pluginmanager.register(Contexts())
        self.run_items(items, after)
        meter.stop()
        data = meter.get_data()
        names = sorted(seconds)
        numbers = {name: number for number, name in enumerate(names)}
        lines = {
            Path(path).relative_to(ROOT).as_posix(): {
                str(line): sorted(numbers[name] for name in contexts if name in numbers)
                for line, contexts in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        (self.out / "map.json").write_text(json.dumps({"seconds": seconds, "names": names, "lines": lines}), "utf-8")
        os._exit(0)

    def trial(self, mutant: Mutant, items: list[Any], limit: float) -> str:
        """What becomes of a mutant: ``killed``, ``timeout``, ``survived``; ``untested`` where it cannot be put in."""
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            if not self.install(mutant):
                os._exit(3)
            self.run_items(items, lambda _item, _took: os._exit(1) if self.failed else None)
            os._exit(0)
        end = time.monotonic() + limit
        while True:
            process, status = os.waitpid(child, os.WNOHANG)
            if process:
                return {0: "survived", 3: "untested"}.get(os.waitstatus_to_exitcode(status), "killed")
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "timeout"
            time.sleep(0.005)

    def install(self, mutant: Mutant) -> bool:
        """Give the live functions of the module the mutant's code objects; False where none can be given any."""
        path = str(ROOT / mutant.module)
        before = list(code_objects(compile((ROOT / mutant.module).read_text("utf-8"), path, "exec", dont_inherit=True)))
        after = list(code_objects(compile(mutated(mutant), path, "exec", dont_inherit=True)))
        if len(before) != len(after):  # the fault takes a lambda or comprehension away
            named = {(code.co_qualname, code.co_firstlineno): code for code in after}
            before = [code for code in before if (code.co_qualname, code.co_firstlineno) in named]
            after = [named[code.co_qualname, code.co_firstlineno] for code in before]
        pairs = [(code, twin) for code, twin in zip(before, after, strict=True) if code.co_freevars == twin.co_freevars]
        changed = {code: twin for code, twin in pairs if code != twin}
        concerned = [function for function in self.live[path] if function.__code__ in changed]
        for function in concerned:
            function.__code__ = changed[function.__code__]
        return bool(concerned)


def _identity(entry: dict[str, Any]) -> tuple[Any, ...]:
    return entry["module"], entry["node"], entry["variant"]


def read_results(path: Path) -> list[dict[str, Any]]:
    """The lines of ``results.jsonl``; none where there is no such file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def alive(entries: list[dict[str, Any]]) -> list[tuple[Mutant, dict[str, Any]]]:
    """The mutants that no test killed, and what is known of each."""
    names = [one.name for one in fields(Mutant)]
    return [
        (Mutant(**{name: entry[name] for name in names}), entry)
        for entry in entries
        if entry["fate"] in ("survived", "not reached")
    ]


def summary(entries: list[dict[str, Any]]) -> str:
    """The score, and the numbers of each package."""
    fates = Counter(entry["fate"] for entry in entries)
    tried = len(entries) - fates["untested"]
    killed = fates["killed"] + fates["timeout"]
    lines = [
        f"{tried} mutants: {killed} killed ({fates['timeout']} by time), {fates['survived']} survived, "
        f"{fates['not reached']} reached by no test; score {killed / max(tried, 1):.1%}"
    ]
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        parts[Path(entry["module"]).parent.name]["killed" if entry["fate"] == "timeout" else entry["fate"]] += 1
    return "\n".join([*lines, *(f"{part:14} {dict(sorted(counts.items()))}" for part, counts in sorted(parts.items()))])


def main() -> int:
    """Draw, run, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=700, help="how many, about (default: 700)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutation")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of tests for one mutant (default: 60)")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(1, 1), metavar=("K", "N"), help="only the K-th of N parts"
    )
    parser.add_argument("--module", action="append", help="a pattern of modules in place of the usual ones; repeatable")
    parser.add_argument("--tests", action="append", help="tests in place of the usual ones; repeatable")
    parser.add_argument("--again", type=Path, metavar="RESULTS", help="go on with the survivors of a former run")
    parser.add_argument("--show", type=Path, metavar="RESULTS", help="print the survivors of a run, and its summary")
    arguments = parser.parse_args()
    if arguments.show:
        entries = read_results(arguments.show)
        for mutant, entry in alive(entries):
            print(f"{difference(mutant)}\n    {entry['fate']}, {entry['tests']} of {entry['of']} tests\n")
        print(summary(entries))
        return 0
    done: dict[Mutant, int] = {}
    if arguments.again:
        survivors = alive(read_results(arguments.again))
        mutants = [mutant for mutant, _ in survivors]
        done = {} if arguments.tests else {mutant: entry["tests"] for mutant, entry in survivors}
    else:
        patterns = arguments.module or MODULES
        modules = sorted({path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)})
        mutants = sample(modules, arguments.mutants, arguments.seed)
    part, parts = arguments.part
    plugin = Plugin(arguments.out.resolve(), mutants[part - 1 :: parts], arguments.longest, done)
    run(plugin, arguments.tests or TESTS)
    print(summary(read_results(arguments.out / "results.jsonl")))
    return 0


def run(plugin: Plugin, tests: Sequence[str]) -> None:
    """Collect the tests and try the mutants."""
    import pytest
    from hypothesis import Phase, settings

    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=phases)
    settings.load_profile("mutants")
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib --doctest-modules"]
    options += [f"--basetemp={plugin.out / f'tmp{os.getpid()}'}", *(f"--ignore={name}" for name in LEFT_OUT)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    pytest.main([*options, *tests], plugins=[plugin])


if __name__ == "__main__":
    sys.exit(main())
