"""When a run is to fail: ``--fail-on``, and the known findings of an earlier report that do not count: ``--baseline``.

A finding of this run is known where the baseline has one for the same model, of the same kind, and for refusals
and unverified fusions of the same rule at a layer of the same name and type; each one of the baseline excuses one.
Words do not count, since they change with versions, nor do layer indices, since they change with any edit. That a
model would be changed is never excused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import IO, Any, TypeAlias, overload

from fusion_engine.console import printable, reason_line
from fusion_engine.errors import OutputError
from fusion_engine.jsonstream import read_members
from fusion_engine.naming import layer_place
from fusion_engine.report import REPORT_VERSION
from fusion_engine.spool import Entries
from fusion_engine.storage import fetched, is_url
from fusion_engine.usage import Wrong

__all__ = ["KINDS", "Baseline", "Finding", "Findings", "Gate", "name_below"]

KINDS = ("changed", "failed", "refused", "unverified")
"""What a run can be told to fail on."""

_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class Finding:
    """Something that a run can be told to fail on.

    Attributes
    ----------
    kind
        One of `KINDS`.
    model, path
        The model: its place in the report, and its path.
    rule, layer
        For refusals and unverified fusions the rule, and index, name and type of the root layer.
    reason
        Why it failed, was refused or could not be verified.
    """

    kind: str
    model: int
    path: str
    rule: str | None = None
    layer: Mapping[str, Any] | None = None
    reason: str | None = None

    @property
    def key(self) -> _Key:
        """What tells that a finding of the same model is known."""
        layer = self.layer or {}
        return (self.kind, str(self.rule or ""), str(layer.get("name", "")), str(layer.get("type", "")))

    @property
    def words(self) -> str:
        """The finding without its model and kind, fit for a terminal."""
        place = "" if self.layer is None else f" at {layer_place(self.layer['index'], self.layer['name'])}"
        named = "" if self.rule is None else f"{printable(self.rule)}{place}"
        return ": ".join(part for part in (named, reason_line(self.reason or "")) if part)


class Findings(Sequence[Finding]):
    """Findings in the order in which they came, on disk where they are many; ``entries`` has them as plain data."""

    def __init__(self) -> None:
        self.entries = Entries()

    def append(self, finding: Finding) -> None:
        """Keep one."""
        self.entries.append(asdict(finding))

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, place: int) -> Finding: ...
    @overload
    def __getitem__(self, place: slice) -> list[Finding]: ...
    def __getitem__(self, place: int | slice) -> Finding | list[Finding]:
        if isinstance(place, slice):
            return [Finding(**entry) for entry in self.entries[place]]
        return Finding(**self.entries[place])


class Gate:
    """What is found in a run, told apart by what it was told; `add` tells of each model.

    Parameters
    ----------
    given
        The paths that the run was given, below which models are named.
    fail_on
        Kinds on which it fails.
    baseline
        What is known.

    Attributes
    ----------
    fail_on
        The kinds on which the run fails, in the order of `KINDS`.
    baseline
        File of the baseline, where there is one.
    tripped
        The new findings on which the run fails, in the order of the models.
    known
        Findings of all kinds that the baseline has too.
    counts
        How many of ``tripped`` there are of each kind.
    failed
        Whether a model failed that is not known to.
    """

    def __init__(self, given: Sequence[str], fail_on: Iterable[str] = (), baseline: Baseline | None = None) -> None:
        wanted = set(fail_on)
        self.fail_on = tuple(kind for kind in KINDS if kind in wanted)
        self.baseline = None if baseline is None else baseline.path
        self.tripped = Findings()
        self.known = Findings()
        self.counts: Counter[str] = Counter()
        self.failed = False
        self._given = given
        self._excuses = None if baseline is None else baseline.excuses()
        self._models = 0

    def add(self, model: Mapping[str, Any]) -> None:
        """Judge the next model, by its entry of a report."""
        left = None if self._excuses is None else self._excuses.find(model["path"], self._given)
        for finding in _findings(self._models, model):
            if left is not None and left[finding.key] > 0:
                left[finding.key] -= 1
                self.known.append(finding)
                continue
            self.failed |= finding.kind == "failed"
            if finding.kind in self.fail_on:
                self.counts[finding.kind] += 1
                self.tripped.append(finding)
        self._models += 1

    @property
    def gone(self) -> int:
        """How many findings the baseline has for the models of this run that there are no more."""
        return 0 if self._excuses is None else self._excuses.gone

    def as_json(self) -> dict[str, Any]:
        """The entry ``gate`` of a report; its long lists are `Entries`."""
        return {
            "fail_on": list(self.fail_on),
            "baseline": self.baseline,
            "tripped": self.tripped.entries,
            "known": self.known.entries,
            "gone": self.gone,
        }


def _findings(number: int, model: Mapping[str, Any]) -> Iterator[Finding]:
    """All there is to find in an entry of a report."""
    path, status = model["path"], model["status"]
    if status == "failed":
        yield Finding("failed", number, path, reason=(model["error"] or "").removeprefix(f"{path}: "))
    elif status != "unchanged":
        yield Finding("changed", number, path)
    for one in model["refusals"]:
        yield Finding("refused", number, path, one["rule"], one["layer"], one["reason"])
    for one in model["fusions"]:
        check = one.get("verification")
        if check is not None and check["status"] == "unverified":
            yield Finding("unverified", number, path, one["rule"], one["layers"][0], check["reason"])


def name_below(path: str, given: Sequence[str]) -> str:
    """The path of a model below the first of the given directories that holds it; of a file that was given its name.

    Examples
    --------
    >>> name_below("zoo/vision/a.armnn", ["zoo"])
    'vision/a.armnn'
    >>> name_below("zoo/vision/a.armnn", ["zoo/vision/a.armnn"])
    'a.armnn'
    """
    whole = os.path.normpath(path)
    for directory in map(os.path.normpath, given):
        inside = "" if directory == os.curdir else os.path.join(directory, "")
        if whole.startswith(inside) and not (inside == "" and (os.path.isabs(whole) or whole.startswith(os.pardir))):
            return whole[len(inside) :].replace(os.sep, "/")
    return os.path.basename(whole)


class Baseline:
    """What is known from an earlier report.

    Parameters
    ----------
    path
        A report in JSON: a file, or a URL.

    Raises
    ------
    Wrong
        Where it cannot be read or is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: list[tuple[str, tuple[_Key, ...]]] = []
        try:
            with fetched(path) if is_url(path) else nullcontext(path) as near:
                if near is None:
                    raise OutputError(f"{path}: cannot be read: there is no such file")
                with open(near, "rb") as file:
                    self._read(file)
        except OutputError as error:
            raise Wrong(f"the baseline {printable(str(error))}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Wrong(f"the baseline {printable(path)} cannot be read: {reason}") from error

    def _read(self, file: IO[bytes]) -> None:
        try:
            document = read_members(file, "models", self._know)
            if document["report_version"] != REPORT_VERSION or "models" not in document:
                raise ValueError
            self._given = [str(one) for one in document.get("paths", ())]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise Wrong(
                f"the baseline {printable(self.path)} is no report of this version: write one with --report FILE.json"
            ) from error

    def _know(self, model: Mapping[str, Any]) -> None:
        keys = tuple(finding.key for finding in _findings(len(self._known), model) if finding.kind != "changed")
        self._known.append((os.path.normpath(model["path"]), keys))

    def excuses(self) -> _Excuses:
        """The findings, to be used up by those of a run."""
        return _Excuses((path, name_below(path, self._given), keys) for path, keys in self._known)


class _Excuses:
    def __init__(self, models: Iterable[tuple[str, str, tuple[_Key, ...]]]) -> None:
        self._paths: dict[str, Counter[_Key]] = {}
        self._names: dict[str, Counter[_Key] | None] = {}
        self._used: dict[int, Counter[_Key]] = {}
        for path, name, keys in models:
            left = self._paths.setdefault(path, Counter())
            left.update(keys)
            same = self._names.setdefault(name, left)
            if same is not left:
                self._names[name] = None  # two models of that name: neither excuses a third

    def find(self, path: str, given: Sequence[str]) -> Counter[_Key] | None:
        """What is left to excuse of the model with this path, else of the one with its name below what was given."""
        found = self._paths.get(os.path.normpath(path))
        if found is None:
            found = self._names.get(name_below(path, given))
        if found is not None:
            self._used[id(found)] = found
        return found

    @property
    def gone(self) -> int:
        """How many were not used, of the models that were asked for."""
        return sum(left.total() for left in self._used.values())
