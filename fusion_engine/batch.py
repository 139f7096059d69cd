"""Many models: which there are, where each goes, and what becomes of each.

`plan` looks at everything that could go wrong before any work; `process` does the work on a model,
and what goes wrong with one never touches another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from warnings import catch_warnings, simplefilter

from fusion_engine.collector import used_up
from fusion_engine.errors import FusionEngineError, ModelError, OutputError, ReaderLimitWarning
from fusion_engine.report import Layers, ModelReport
from fusion_engine.storage import identity, is_url, join, models_below, staged

if TYPE_CHECKING:
    from fusion_engine.judging import Judge, Verdict
    from fusion_engine.language.rule import FusingRule
    from fusion_engine.network import Network
    from fusion_engine.verifying.result import Verification

__all__ = [
    "SUFFIX",
    "Change",
    "Found",
    "Job",
    "aiming",
    "attempt",
    "converting",
    "find_models",
    "fusing",
    "plan",
    "process",
    "unfusing",
    "verifying",
]

SUFFIX = ".armnn"
"""How the names of models end that are found in directories."""

_NOTHING = f"there is no file *{SUFFIX} in the directory"

Change: TypeAlias = "Callable[[Network], tuple[Network, bool]]"
"""What is done to a network: gives the new one, and whether anything was changed."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model: the path by which it was found, and that below the directory it was found in.

    ``fault`` says why a directory could not be listed, or that nothing is in it; there is no model then.
    """

    path: str
    below: str
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A model and the file that it is to become; ``output`` is None where nothing is written."""

    path: str
    output: str | None
    fault: str | None = None


# What there is


def find_models(paths: Iterable[str | os.PathLike[str]], avoid: str | os.PathLike[str] | None = None) -> list[Found]:
    """The models of files and directories, in a fixed order.

    Parameters
    ----------
    paths
        Files are taken whatever their names; directories are walked for ``*.armnn``, symbolic links
        to files among them, those to directories not followed. URLs too: see `fusion_engine.storage`.
    avoid
        A directory that is not walked: where the results go.

    Returns
    -------
    list of Found
        In the order of ``paths``, those of a directory sorted by path. What cannot be read is among
        them, to fail in its turn, and so is a directory without models.

    Raises
    ------
    OutputError
        Where ``avoid`` itself is among the paths, or there are no paths.
    """
    found: list[Found] = []
    for path in paths:
        name = os.fspath(path)
        if is_url(name):
            found += _found_far(name, avoid)
            continue
        if not os.path.isdir(name):
            below = os.path.basename(name)
            found.append(Found(name, below, None if below else "there is no such directory"))
            continue
        if avoid is not None and _same(name, os.fspath(avoid)):
            raise OutputError(f"{name} is the output directory: give another one with --out")
        inside = sorted(_walk(name, avoid), key=lambda one: one.below.split(os.sep))
        found += inside or [Found(name, os.path.basename(name), _NOTHING)]
    if not found:
        raise OutputError("there is no model: give files or directories")
    return found


def _found_far(url: str, avoid: str | os.PathLike[str] | None) -> list[Found]:
    """The models of a URL."""
    if avoid is not None and is_url(os.fspath(avoid)) and identity(url) == identity(os.fspath(avoid)):
        raise OutputError(f"{url} is the output directory: give another one with --out")
    inside = models_below(url, SUFFIX, None if avoid is None else os.fspath(avoid))
    if inside is None:
        return [Found(url, os.path.basename(url.partition("::")[0]))]
    return [Found(one.url, one.below, one.fault) for one in inside] or [Found(url, "", _NOTHING)]


def _walk(top: str, avoid: str | os.PathLike[str] | None) -> Iterator[Found]:
    faults: list[OSError] = []
    for directory, folders, files in os.walk(top, onerror=faults.append):
        below = os.path.relpath(directory, top)
        folders[:] = [
            folder
            for folder in folders
            if avoid is None or not _same(os.path.join(directory, folder), os.fspath(avoid))
        ]
        for file in files:
            if file.endswith(SUFFIX):
                yield Found(os.path.join(directory, file), os.path.normpath(os.path.join(below, file)))
    for fault in faults:
        path = os.fspath(fault.filename)
        yield Found(path, os.path.relpath(path, top), f"cannot be listed: {fault.strerror}")


def _same(a: str, b: str) -> bool:
    """Whether two paths are one file or directory; a path where nothing is equals none."""
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False


# Where it goes


def plan(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str] | None) -> list[Job]:
    """The jobs of a run; raises where the outputs would get in each other's or the inputs' way.

    Parameters
    ----------
    paths
        Files and directories; see `find_models`.
    out
        The directory for the results, which need not exist; None where nothing is written.

    Raises
    ------
    OutputError
        Where ``out`` is no directory, two inputs have one output, an output is an input or lies
        outside ``out`` behind a symbolic link, or there is no model at all.
    """
    far = out is not None and is_url(os.fspath(out))
    if out is not None and not far and os.path.lexists(out) and not os.path.isdir(out):
        raise OutputError(f"{os.fspath(out)} is no directory: give one for the results")
    found = find_models(paths, out)
    if out is None:
        return [Job(one.path, None, one.fault) for one in found]
    folder = os.fspath(out)
    inputs = _Inputs(one.path for one in found)
    blind = not far and _blind_to_case(folder)
    inside = os.path.join(identity(folder), "")
    taken: dict[str, Found] = {}
    jobs = []
    for one in found:
        if one.fault is not None:
            jobs.append(Job(one.path, None, one.fault))
            continue
        output = join(folder, one.below.replace(os.sep, "/")) if far else os.path.join(folder, one.below)
        known = identity(output)
        clash = inputs.find(output, known)
        if clash is not None:
            raise OutputError(f"the output {output} is the input {clash}: give another directory with --out")
        if not far and not known.startswith(inside):
            raise OutputError(f"the output {output} lies outside {folder} behind a symbolic link: remove that link")
        other = taken.setdefault(known.casefold() if blind else known, one)
        if other is one:
            jobs.append(Job(one.path, output))
        elif identity(other.path) != identity(one.path):
            raise OutputError(
                f"{other.path} and {one.path} have the same output {output}: "
                "give each run its own --out, or name a directory that holds both"
            )
    return jobs


class _Inputs:
    """The input files, found again by whatever path or hard link."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: dict[object, str] = {}
        for path in paths:
            self._paths.setdefault(identity(path), path)
            self._paths.setdefault(_inode(path), path)
        self._paths.pop(None, None)

    def find(self, path: str, known: str) -> str | None:
        """The input that a path is, or None."""
        return self._paths.get(known) or self._paths.get(_inode(path))


def _inode(path: str) -> tuple[int, int] | None:
    if is_url(path):
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _blind_to_case(folder: str) -> bool:
    """Whether names in a directory that differ in case only are one file, told by the nearest that exists."""
    path = os.path.realpath(folder)
    while True:
        parent, name = os.path.split(path)
        if not name:
            return False
        if name != name.swapcase() and os.path.exists(path):
            return _same(path, os.path.join(parent, name.swapcase()))
        path = parent


# What is done


def fusing(rules: Sequence[FusingRule]) -> Change:
    """The change that applies rules."""

    def change(graph: Network) -> tuple[Network, bool]:
        from fusion_engine import fuse

        fused = fuse(graph, rules)
        return fused, bool(fused.graph["fusions"])

    return change


def verifying(change: Change, tolerance: float | None = None) -> Change:
    """A change whose result is verified: its graph has the `Verification` as ``verification``."""

    def verified(graph: Network) -> tuple[Network, bool]:
        from fusion_engine import verify

        result, changed = change(graph)
        if changed:
            result.graph["verification"] = verify(graph, result, tolerance=tolerance)
        return result, changed

    return verified


def unfusing() -> Change:
    """The change that undoes opaque fusions and groups."""

    def change(graph: Network) -> tuple[Network, bool]:
        from fusion_engine import unfuse

        again = unfuse(graph)
        return again, _named(graph) != _named(again)

    return change


def converting(release: str) -> Change:
    """The change that carries a network to a release of Arm NN."""

    def change(graph: Network) -> tuple[Network, bool]:
        from fusion_engine import convert, equal

        aimed = convert(graph, release)
        loads = "storage" not in graph.graph and not _untagged(graph)
        kept = loads and aimed.graph["dialect"] == graph.graph["dialect"] and equal(aimed, graph)
        return aimed, not kept

    return change


def aiming(change: Change, release: str | None) -> Change:
    """A change whose result is carried to a release of Arm NN, where one is given."""
    if release is None:
        return change
    convert = converting(release)

    def aimed(graph: Network) -> tuple[Network, bool]:
        result, changed = change(graph)
        converted, other = convert(result)
        return converted, changed or other

    return aimed


def _untagged(graph: Network) -> bool:
    """Whether a file has constants that no Arm NN loads as they are stored."""
    return any(tensor.untagged for _, node in graph.nodes(data=True) for tensor in node["constants"].values())


def _named(graph: Network) -> dict[int, tuple[str, str]]:
    return {key: (node["type"], node.get("name", "")) for key, node in graph.nodes(data=True)}


def process(
    job: Job, change: Change, *, done: str = "fused", dry_run: bool = False, judge: Judge | None = None
) -> ModelReport:
    """Read a model, change it and write it; never raises for what is wrong with the model or its output.

    A model that is not changed is copied byte for byte. One whose verification failed is not written.

    Parameters
    ----------
    job
        What to read and to write.
    change
        What to do.
    done
        Status of a model that was changed.
    dry_run
        Write nothing, but do all that can fail before writing.
    judge
        What decides whether a model that was changed is kept; one that is not has failed.
    """
    begun = perf_counter()

    def work(near: Job) -> ModelReport:
        size = 0
        with suppress(OSError, ValueError):
            size = os.path.getsize(near.path)
        try:
            return _process(near, change, done, dry_run, judge)
        finally:
            used_up(size)

    report, error = attempt(job.path, lambda: staged(job, work))
    return replace(report or ModelReport(job.path, "failed", error=error), seconds=perf_counter() - begun)


_T = TypeVar("_T")


def attempt(path: str, work: Callable[[], _T]) -> tuple[_T | None, str | None]:
    """What work on a model gives, or None and why it failed; whatever goes wrong stays with the model."""
    try:
        return work(), None
    except FusionEngineError as error:
        return None, str(error)
    except MemoryError:
        return None, f"{path}: there is not enough memory"
    except Exception as error:
        return None, f"{path}: {internal(error)}"


def internal(error: Exception) -> str:
    """What to say of an error that should not be: its kind, text and place."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
    return f"internal error: {type(error).__name__}: {error}{place}: please report it"


def _process(job: Job, change: Change, done: str, dry_run: bool, judge: Judge | None) -> ModelReport:
    from fusion_engine import load, loads_in
    from fusion_engine.network import warnings_of
    from fusion_engine.overview import cautions

    if job.fault is not None:
        raise ModelError(job.fault, path=job.path)
    state = _state(job.path)
    graph = load(job.path)
    try:
        result, changed = change(graph)
    except ModelError as error:
        raise error if error.path else error.within(job.path) from None
    output = None if dry_run else job.output
    verification: Verification | None = result.graph.get("verification")
    wrong = verification is not None and verification.status == "failed"
    with catch_warnings(record=True) as caught:
        simplefilter("always", ReaderLimitWarning)
        verdict = _write(job.path, result, output, judge) if changed and not wrong else None
    limits = tuple(str(one.message) for one in caught if issubclass(one.category, ReaderLimitWarning))
    if output is not None and not changed:
        _make_folder(os.path.dirname(output))
        _copy(job.path, output)
    if _state(job.path) != state:
        raise ModelError("the file was changed while in use: run it again", path=job.path)
    fault = verdict.reason if verdict is not None and not verdict.kept else None
    if verification is not None and wrong:
        fault = f"verification failed, so it is not written: {'; '.join(verification.failures)}"
    return ModelReport(
        job.path,
        "failed" if fault else done if changed else "unchanged",
        None if fault else job.output,
        graph.graph["dialect"],
        Layers.of(graph),
        Layers.of(result if changed else graph),
        tuple(result.graph.get("fusions", ())),
        tuple(result.graph.get("refusals", ())),
        tuple(dict.fromkeys((*warnings_of(result), *cautions(graph), *limits))),
        f"{job.path}: {fault}" if fault else None,
        loads_in(result, written=True) if changed else loads_in(graph),
        verdict,
        tuple(result.graph.get("statistics", ())),
        verification,
    )


def _write(path: str, result: Network, output: str | None, judge: Judge | None) -> Verdict | None:
    """Write a result, after its judge has kept it; where there is no output only what can fail is done."""
    from fusion_engine import dumps, save
    from fusion_engine.judging import bench

    if output is not None:
        _make_folder(os.path.dirname(output))
    if judge is None:
        if output is None:
            dumps(result)
        else:
            save(result, output)
        return None
    with bench(os.path.basename(output or path), None if output is None else os.path.dirname(output) or ".") as after:
        save(result, after)
        verdict = judge(path, after)
        if verdict.kept and output is not None:
            try:
                os.replace(after, output)
            except OSError as error:
                raise OutputError(f"{output}: cannot be written: {error.strerror}") from error
    return verdict


def _state(path: str) -> tuple[int, int, int] | None:
    """What tells that a file was changed; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder or ".", exist_ok=True)
    except OSError as error:
        raise OutputError(f"the directory {folder} cannot be made: {error.strerror}") from error


def _copy(path: str, output: str) -> None:
    from fusion_engine.armnn.files import Range, open_model, write_atomically

    buffer, mapped = open_model(path)
    write_atomically(output, [memoryview(buffer) if mapped is None else Range(mapped, 0, len(buffer))])
