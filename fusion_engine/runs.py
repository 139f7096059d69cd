"""The commands that do something to models: fuse, convert, unfuse; what they are asked, and how a run goes.

What is wrong with a command is found out before any work; then each model is done by itself.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from fusion_engine.console import Console, printable
from fusion_engine.pictures import DiffPages
from fusion_engine.storage import is_url
from fusion_engine.usage import FAILED, FINE, STDOUT, TRIPPED, Wrong, rules_of

if TYPE_CHECKING:
    from fusion_engine.batch import Job
    from fusion_engine.cluster import Cluster
    from fusion_engine.gate import Baseline, Gate
    from fusion_engine.ledger import Ledger
    from fusion_engine.progress import Progress
    from fusion_engine.report import ModelReport, Report
    from fusion_engine.tasks import Task

__all__ = ["add_runs"]


def add_runs(command: Callable[..., argparse.ArgumentParser], paths: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add the commands to the parser: ``command`` makes one, ``paths`` adds its models."""

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

    def parallel(of: argparse.ArgumentParser) -> None:
        of.add_argument(
            "--jobs", metavar="N", type=_count, help="worker processes (default: as many as there are cores and work)"
        )
        of.add_argument(
            "--timeout", metavar="SECONDS", type=_seconds, help="how long a model may take; then it has failed"
        )
        of.add_argument(
            "--scheduler",
            metavar="ADDRESS",
            help="do the models on the Dask cluster with this scheduler, such as tcp://10.0.0.1:8786 "
            "(needs pip install 'armnn-fusion-engine[dask]')",
        )
        of.add_argument(
            "--force", action="store_true", help="do all models anew, also those that an earlier run has done just so"
        )

    def told(of: argparse.ArgumentParser, *kinds: str) -> None:
        of.add_argument(
            "--report",
            metavar="FILE",
            action="append",
            help="write what was done, and what was not and why, as .json, .jsonl, .csv, .xml (JUnit) or .html, to a "
            "file or a URL; - is standard output, in JSON; may be given again",
        )
        of.add_argument(
            "--fail-on",
            choices=kinds,
            action="append",
            help=f"exit code 3 where there is a model that is {', '.join(kinds[:2])}"
            f"{', or one with what is refused or unverified' if len(kinds) > 2 else ''}; may be given again",
        )
        of.add_argument(
            "--baseline",
            metavar="FILE.json",
            help="an earlier report, a file or URL: what failed, was refused or unverified there is known, not counted",
        )
        loud = of.add_mutually_exclusive_group()
        loud.add_argument("-q", "--quiet", action="store_true", help="show models that failed, and the last line, only")
        loud.add_argument(
            "-v", "--verbose", action="store_true", help="show all refusals, and the seconds of each model"
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
        "fuse models --dry-run --fail-on changed --fail-on failed --report models.xml",
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
    parallel(fuse)
    told(fuse, "changed", "failed", "refused", "unverified")

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
    convert.add_argument("--dry-run", action="store_true", help="do everything but write models")
    judged(convert)
    parallel(convert)
    told(convert, "changed", "failed")

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
    parallel(unfuse)
    told(unfuse, "changed", "failed")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        seconds = float(text)
        if 0 < seconds < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")


# fuse, convert and unfuse


def _fuse(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.choosing import chosen_rules
    from fusion_engine.report import Report, RuleFile
    from fusion_engine.tables import statistics_lines
    from fusion_engine.tasks import Task

    rules, sources = rules_of(arguments.rules or ["armnn"])
    only, skip = tuple(arguments.only or ()), tuple(arguments.skip or ())
    chosen_rules(rules, only, skip)
    _check_verification(arguments)
    task = Task(
        "fuse",
        sources,
        only,
        skip,
        _release(arguments.release),
        arguments.verify,
        arguments.tolerance,
        arguments.judge,
        arguments.judge_timeout,
        arguments.dry_run,
    )
    files = [RuleFile.of(source) for source in sources]
    report = Report(files, done=task.done, paths=arguments.paths, kept=bool(arguments.report))
    if arguments.diff is not None and arguments.timeout is not None:
        raise Wrong("--diff draws its pages in this process, which --timeout cannot end: give one of them")
    pages = None if arguments.diff is None else DiffPages(arguments.diff)
    code = _run(arguments, console, task, report, arguments.rules or (), pages)
    for line in statistics_lines(report) if arguments.statistics else ():
        (console.note if STDOUT in _wanted(arguments) else console.print)(line)
    return code


def _convert(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.report import Report
    from fusion_engine.tasks import Task

    task = Task(
        "convert",
        release=_release(arguments.release),
        judge=arguments.judge,
        judge_timeout=arguments.judge_timeout,
        dry_run=arguments.dry_run,
    )
    report = Report(done=task.done, command="convert", paths=arguments.paths, kept=bool(arguments.report))
    return _run(arguments, console, task, report)


def _unfuse(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine.report import Report
    from fusion_engine.tasks import Task

    task = Task("unfuse", dry_run=arguments.dry_run)
    report = Report(done=task.done, command="unfuse", paths=arguments.paths, kept=bool(arguments.report))
    return _run(arguments, console, task, report)


def _check_verification(arguments: argparse.Namespace) -> None:
    """What is asked of verification must make sense and be possible: found out before any work."""
    from math import isfinite

    from fusion_engine.errors import VerifyError

    if arguments.tolerance is not None:
        if not arguments.verify:
            raise Wrong("--tolerance is for --verify: give both or neither")
        if not isfinite(arguments.tolerance) or arguments.tolerance < 0:
            raise Wrong(f"--tolerance {arguments.tolerance:g}: it is a number of at least 0")
    if "unverified" in (arguments.fail_on or ()) and not arguments.verify:
        raise Wrong("--fail-on unverified is for --verify: give both or neither")
    if arguments.verify:
        from fusion_engine.verifying.onnxgraph import require_runtime

        try:
            require_runtime()
        except VerifyError as error:
            raise Wrong(printable(str(error))) from error


def _release(name: str | None) -> str | None:
    """The name of a release, looked up before any work."""
    from fusion_engine.errors import ConversionError
    from fusion_engine.releases.facts import find_release

    try:
        return None if name is None else find_release(name).name
    except ConversionError as error:
        raise Wrong(printable(str(error))) from error


def _check_judge(task: Task) -> None:
    """The judge must be a command that there is: found out before any work."""
    from fusion_engine.errors import OutputError

    if task.judge is None and task.judge_timeout is not None:
        raise Wrong("--judge-timeout is for a judge: name one with --judge COMMAND")
    try:
        task.worker()
    except OutputError as error:
        raise Wrong(printable(str(error))) from error


def _run(
    arguments: argparse.Namespace,
    console: Console,
    task: Task,
    report: Report,
    files: Sequence[str] = (),
    pages: DiffPages | None = None,
) -> int:
    """Do a task to the models of a command; ``files`` are others that it reads."""
    from fusion_engine.gate import Baseline
    from fusion_engine.progress import Progress
    from fusion_engine.reports.files import check_reports, write_reports
    from fusion_engine.tables import gate_lines

    _check_judge(task)
    jobs = _jobs(arguments)
    wanted = _wanted(arguments)
    baseline = None if arguments.baseline is None else Baseline(arguments.baseline)
    check_reports(wanted, [*files, *(p for job in jobs for p in (job.path, job.output) if p)], arguments.baseline)
    written = [path for path in wanted if path != STDOUT]
    for path in written:
        if not is_url(path):
            _require_writable(os.path.dirname(path))
    if pages is not None:
        others = [*files, *written, *([baseline.path] if baseline else ())]
        for folder in pages.plan(arguments.paths, arguments.out, jobs, others):
            _require_writable(folder)
    if not arguments.dry_run and not is_url(arguments.out):
        _require_writable(arguments.out)
    gate = _gate(arguments, baseline)
    with ExitStack() as stack:
        cluster = _cluster(arguments, stack)
        ledger = _ledger(arguments, task, jobs, stack)
        if cluster is not None and ledger is not None:
            stack.callback(_remove_unfinished, arguments.out, jobs)
        bar = Progress(None if arguments.quiet else console, len(jobs))
        with closing(_reports(arguments, task, jobs, ledger, pages, cluster, bar)) as reports:
            _show(reports, jobs, report, gate, arguments, console, task, pages, bar)
    if ledger is not None and ledger.fault is not None:
        console.note(f"fusion-engine: {printable(ledger.fault)}: the next run does again what was not recorded")
    if gate is not None:
        report.gate = gate.as_json()
        for line in gate_lines(gate, known=baseline is not None):
            console.note(f"fusion-engine: {line}")
    broken = bool(wanted) and not write_reports(wanted, report.document(), console)
    broken |= pages is not None and pages.failed
    if gate is not None and gate.tripped:
        return TRIPPED
    failed = report.failed if gate is None else gate.failed
    return FAILED if failed or broken else FINE


def _wanted(arguments: argparse.Namespace) -> list[str]:
    """Where reports go."""
    return arguments.report or []


def _gate(arguments: argparse.Namespace, baseline: Baseline | None) -> Gate | None:
    """What is found in a run, where there is anything to be found."""
    from fusion_engine.gate import Gate

    if not arguments.fail_on and baseline is None:
        return None
    return Gate(arguments.paths, arguments.fail_on or (), baseline)


def _ledger(arguments: argparse.Namespace, task: Task, jobs: Sequence[Job], stack: ExitStack) -> Ledger | None:
    """The record of the output directory, which is this run's alone until the end of the stack."""
    from fusion_engine.errors import OutputError
    from fusion_engine.ledger import Ledger

    if arguments.dry_run:
        return None
    force = arguments.force or not task.lasting or getattr(arguments, "diff", None) is not None
    try:
        ledger = Ledger(arguments.out, task.digest, force=force)
        stack.enter_context(ledger.alone())
    except OutputError as error:
        raise Wrong(printable(str(error))) from error
    _remove_unfinished(arguments.out, jobs)
    return ledger


def _remove_unfinished(out: str, jobs: Sequence[Job]) -> None:
    """Remove what those who were killed left half done where the results go."""
    from fusion_engine import storage
    from fusion_engine.armnn.files import remove_temporaries
    from fusion_engine.judging import remove_benches

    if is_url(out):
        storage.remove_temporaries(out)
        return
    folders: dict[str, list[str]] = {}
    for job in jobs:
        if job.output is not None:
            folders.setdefault(os.path.dirname(job.output) or ".", []).append(job.output)
    for folder, outputs in sorted(folders.items()):
        remove_benches(folder)
        with suppress(OSError):
            left = any(name.endswith(".tmp") for name in os.listdir(folder))
            for output in outputs if left else ():
                remove_temporaries(output)


def _cluster(arguments: argparse.Namespace, stack: ExitStack) -> Cluster | None:
    """The cluster that does the work, where there is one, connected until the end of the stack."""
    if arguments.scheduler is None:
        return None
    for option in ("jobs", "diff"):
        if getattr(arguments, option, None) is not None:
            raise Wrong(f"--{option} is for the work of this machine: give it or --scheduler")
    from fusion_engine.cluster import Cluster
    from fusion_engine.errors import OutputError

    try:
        cluster = Cluster(arguments.scheduler)
    except OutputError as error:
        raise Wrong(printable(str(error))) from error
    stack.callback(cluster.close)
    return cluster


def _reports(
    arguments: argparse.Namespace,
    task: Task,
    jobs: Sequence[Job],
    ledger: Ledger | None,
    pages: DiffPages | None,
    cluster: Cluster | None,
    bar: Progress,
) -> Generator[ModelReport, None, None]:
    """What becomes of each job, in their order: as an earlier run has recorded it, or done now."""
    known = []
    for number, job in enumerate(jobs):
        if ledger is not None:
            bar.look(number, job.path)
        known.append(ledger is not None and ledger.has(job))
    todo = [job for job, done_before in zip(jobs, known, strict=True) if not done_before]
    bar.keep(len(jobs) - len(todo))
    written: set[str] = set()

    def done(model: ModelReport) -> None:
        bar.finish(model)
        if model.output is not None and not task.dry_run and not is_url(model.output):
            written.add(os.path.dirname(model.output))
        if ledger is not None:
            ledger.note(model)

    workers = 1 if pages is not None or len(todo) < 2 else _workers(arguments.jobs, todo)
    if cluster is not None:
        work = cluster.reports(todo, task, arguments.timeout, done)
    elif workers > 1 or arguments.timeout is not None or (pages is None and len(todo) > 1 and _isolated(task)):
        from fusion_engine.pool import in_parallel

        work = in_parallel(todo, task, workers, arguments.timeout, done)
    else:
        work = _one_by_one(todo, task.worker(pages), done)
    try:
        for job, done_before in zip(jobs, known, strict=True):
            yield ledger.report(job) if done_before and ledger is not None else next(work)
    finally:
        work.close()
        if written:
            from fusion_engine.armnn.files import sync_directories

            sync_directories(sorted(written))


def _one_by_one(
    jobs: Sequence[Job], worker: Callable[[Job], ModelReport], done: Callable[[ModelReport], None]
) -> Generator[ModelReport, None, None]:
    for job in jobs:
        model = worker(job)
        done(model)
        yield model


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    from fusion_engine.batch import plan
    from fusion_engine.errors import OutputError

    if not arguments.out and not (arguments.dry_run and arguments.out is None):
        raise Wrong("say where the results go: --out DIR (or --dry-run)")
    try:
        return plan(arguments.paths, arguments.out)
    except OutputError as error:
        raise Wrong(printable(str(error))) from error


def _workers(wanted: int | None, jobs: Sequence[Job]) -> int:
    """How many worker processes do jobs, if a user does not say: one for each core that has enough to do.

    One that is no copy of this process takes as long to start as some eight small models.
    """
    from fusion_engine.pool import cores

    size = sum(os.path.getsize(job.path) for job in jobs if os.path.isfile(job.path))
    return min(wanted or min(cores(), max(1, len(jobs) // 8, size // (16 << 20))), len(jobs))


def _isolated(task: Task) -> bool:
    """Whether a worker process does the models of a run that needs no more than one: where it is had for nothing.

    A model that ends it, for want of memory or in a library, takes no other with it.
    """
    from fusion_engine.pool import copies

    return copies(task)


def _show(
    reports: Iterator[ModelReport],
    jobs: Sequence[Job],
    report: Report,
    gate: Gate | None,
    arguments: argparse.Namespace,
    console: Console,
    task: Task,
    pages: DiffPages | None,
    bar: Progress,
) -> None:
    """Show each model when it is done: all on standard error where standard output is for the report."""
    from fusion_engine.tables import model_lines, reason, summary_line

    reserved, quiet = STDOUT in _wanted(arguments), arguments.quiet
    show = console.note if reserved else console.print
    for number, job in enumerate(jobs, 1):
        bar.begin(job.path)
        model = next(reports)
        report.add(model)
        if gate is not None:
            gate.add(model.as_json())
        failed = model.status == "failed"
        if failed if quiet or (reserved and console.live) else not reserved:
            for line in model_lines(model, console.paint, task.done, task.dry_run, verbose=arguments.verbose):
                show(line)
        if pages is not None:
            pages.draw(job, console, quiet or reserved)
        if not quiet:
            step = f"[{number}/{len(jobs)}] {printable(job.path)}"
            console.done(f"{step}: {model.status}" + (f": {reason(model)}" if failed else ""))
    show(summary_line(report, task.done))


def _require_writable(folder: str) -> None:
    """A directory must be there, or be made, and take files: found out before any work."""
    from tempfile import TemporaryFile

    try:
        os.makedirs(folder or ".", exist_ok=True)
        with TemporaryFile(dir=folder or "."):
            pass
    except OSError as error:
        raise Wrong(f"{printable(folder)}: nothing can be written there: {error.strerror}") from error
