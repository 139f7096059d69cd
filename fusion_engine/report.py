"""What a batch did, as data and as the JSON text of a report file.

Importing this loads nothing beyond the standard library.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fusion_engine.spool import Entries

if TYPE_CHECKING:
    from fusion_engine import Fusion, Reading, Refusal, RuleStatistics, Verification
    from fusion_engine.judging import Verdict
    from fusion_engine.language.sources import Source
    from fusion_engine.network import Network

__all__ = [
    "REPORT_VERSION",
    "STATUSES",
    "Layers",
    "ModelReport",
    "Report",
    "RuleFile",
    "RuleTotals",
    "json_pieces",
    "readings_json",
]

REPORT_VERSION = 1

STATUSES = ("fused", "unchanged", "failed")
"""What can become of a model, in the order of the summary."""


@dataclass(frozen=True)
class RuleFile:
    """A rule file that was used: its name or path, and the SHA-256 of its bytes in hexadecimal."""

    file: str
    sha256: str

    @classmethod
    def of(cls, source: Source) -> RuleFile:
        """That of a file as read."""
        return cls(source.name, sha256(source.data).hexdigest())


@dataclass(frozen=True)
class RuleTotals:
    """What a rule did in some models, and the seconds it took; see `RuleStatistics`."""

    tried: int = 0
    fired: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Layers:
    """Number of layers of a network, and how many of them are Constants."""

    layers: int
    constants: int

    @property
    def others(self) -> int:
        """Number of layers that are no Constants."""
        return self.layers - self.constants

    @classmethod
    def of(cls, graph: Network) -> Layers:
        """Count those of a network."""
        constants = sum(node["type"] == "Constant" for _, node in graph.nodes(data=True))
        return cls(len(graph), constants)


@dataclass(frozen=True)
class ModelReport:
    """What became of one model.

    Attributes
    ----------
    path
        The input file, as it was named.
    status
        ``"fused"``, ``"unchanged"`` (copied byte for byte) or ``"failed"``.
    output
        The file written, or in a dry run the one that would be; None where there is none.
    dialect
        Of the input file; None where it could not be read.
    layers_before, layers_after
        Layers of the network as read and as written.
    fusions, refusals
        The records of `fuse`.
    warnings
        What a user should know of the model.
    error
        Why it failed.
    readings
        What each release of Arm NN makes of the result.
    judge
        What the judge said of it; None where there was none to ask.
    statistics
        What each rule did, and the time it took.
    verification
        What `verify` found; None where it was not asked.
    recorded
        Where an earlier run has done the model just so, what it wrote of it.
    seconds
        How long it took; None where nobody measured. Reports that differ in it only are equal.
    """

    path: str
    status: str
    output: str | None = None
    dialect: str | None = None
    layers_before: Layers | None = None
    layers_after: Layers | None = None
    fusions: tuple[Fusion, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    readings: tuple[Reading, ...] = ()
    judge: Verdict | None = None
    statistics: tuple[RuleStatistics, ...] = ()
    verification: Verification | None = None
    recorded: Mapping[str, Any] | None = None
    seconds: float | None = field(default=None, compare=False)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], *, path: str, output: str) -> ModelReport:
        """The report of a model that an earlier run has done: what it wrote of it, and the paths of this run.

        Raises
        ------
        KeyError, TypeError, ValueError
            Where the entry is none of a report.
        """
        from fusion_engine import Fusion, LayerRef, Refusal, RuleStatistics

        def ref(layer: Mapping[str, Any]) -> LayerRef:
            return LayerRef(int(layer["index"]), str(layer["name"]), str(layer["type"]))

        found = cls(
            path,
            str(entry["status"]),
            output,
            str(entry["dialect"]),
            Layers(**entry["layers_before"]),
            Layers(**entry["layers_after"]),
            tuple(Fusion(one["rule"], one["result"], tuple(map(ref, one["layers"]))) for one in entry["fusions"]),
            tuple(Refusal(one["rule"], ref(one["layer"]), one["reason"]) for one in entry["refusals"]),
            tuple(map(str, entry["warnings"])),
            statistics=tuple(RuleStatistics(**one) for one in entry["statistics"]),
            seconds=None if entry["seconds"] is None else float(entry["seconds"]),
        )
        if entry.keys() != found.as_json().keys():
            raise ValueError("the entry has other keys than this version writes")
        return replace(found, recorded={**entry, "path": path, "output": output})

    def as_json(self) -> dict[str, Any]:
        """The entry of ``models`` in a report; where fusions were verified, each says what was found."""
        if self.recorded is not None:
            return dict(self.recorded)
        apart = ("readings", "recorded", "verification")
        found = {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self) if entry.name not in apart}
        found["verification"] = None
        for entry in found["statistics"]:
            entry["seconds"] = round(entry["seconds"], 6)
        if self.verification is not None:
            found["verification"] = self.verification.as_json()
            for entry, check in zip(found["fusions"], self.verification.fusions, strict=True):
                entry["verification"] = check.as_json()
        found |= readings_json(self.readings)
        found["seconds"] = None if self.seconds is None else round(self.seconds, 6)
        names = ("path", "output", "status", "seconds", "dialect")
        return {name: found.pop(name) for name in names} | found


def _plain(value: Any) -> Any:
    """Dataclasses within as dicts; as `dataclasses.asdict`, but what cannot be changed is not copied."""
    if isinstance(value, tuple):
        return tuple([_plain(item) for item in value])
    kind: Any = type(value)
    names = _names(kind)
    return value if names is None else {name: _plain(getattr(value, name)) for name in names}


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of a class where it is a dataclass."""
    return tuple(entry.name for entry in fields(kind)) if is_dataclass(kind) else None


def readings_json(readings: Sequence[Reading]) -> dict[str, Any]:
    """Which releases read a network.

    ``loads_in``: those that do; ``cannot_load``: the others, each with its reasons; ``load_cautions``: what
    users of those that do should know.
    """
    return {
        "loads_in": [reading.release for reading in readings if reading.loads],
        "cannot_load": {
            reading.release: [str(obstacle) for obstacle in reading.obstacles]
            for reading in readings
            if not reading.loads
        },
        "load_cautions": {
            reading.release: list(reading.cautions) for reading in readings if reading.loads and reading.cautions
        },
    }


class Report:
    """A run, told model by model: it keeps counts, and the models' entries on disk where they are many.

    Parameters
    ----------
    rules
        The rule files.
    models
        What became of models, in the order of the work; `add` tells of others.
    done
        Status of those that were changed.
    command, paths
        What was run, and the paths that it was given.
    kept
        Whether `as_json` is to have the models; else they are counted only.

    Attributes
    ----------
    entries
        What `ModelReport.as_json` gives, of each model.
    gate
        What `Gate.as_json` says of the run; None where there was no gate.
    statistics
        What each rule did in all models.
    """

    def __init__(
        self,
        rules: Sequence[RuleFile] = (),
        models: Iterable[ModelReport] = (),
        done: str = "fused",
        command: str = "fuse",
        paths: Sequence[str] = (),
        *,
        kept: bool = True,
    ) -> None:
        self.rules = rules
        self.done = done
        self.command = command
        self.paths = paths
        self.kept = kept
        self.entries = Entries()
        self.gate: Mapping[str, Any] | None = None
        self.statistics: dict[str, RuleTotals] = {}
        self._statuses: Counter[str] = Counter()
        self._counts = Counter({"fusions": 0, "refusals": 0, "warnings": 0})
        for model in models:
            self.add(model)

    def add(self, model: ModelReport) -> None:
        """Tell what became of the next model."""
        self._statuses[model.status] += 1
        self._counts["fusions"] += len(model.fusions)
        self._counts["refusals"] += len(model.refusals)
        self._counts["warnings"] += len(model.warnings)
        for one in model.statistics:
            former = self.statistics.get(one.rule, RuleTotals())
            self.statistics[one.rule] = RuleTotals(
                former.tried + one.tried,
                former.fired + one.fired,
                former.refused + one.refused,
                former.seconds + one.seconds,
            )
        if self.kept:
            self.entries.append(model.as_json())

    @property
    def failed(self) -> bool:
        """Whether any model failed."""
        return self._statuses["failed"] > 0

    def summary(self) -> dict[str, int]:
        """Number of models, in all and by status, of fusions, refusals and warnings."""
        statuses = {status: self._statuses[status] for status in (self.done, *STATUSES[1:])}
        return {"models": self._statuses.total(), **statuses, **self._counts}

    def document(self) -> dict[str, Any]:
        """What its JSON text holds; the lists that may be long are `Entries`, to be gone through one by one."""
        return {
            "report_version": REPORT_VERSION,
            "command": self.command,
            "paths": list(self.paths),
            "summary": self.summary(),
            "rules": [asdict(file) for file in self.rules],
            "gate": self.gate,
            "models": self.entries,
        }

    def as_json(self) -> dict[str, Any]:
        """The report as plain data, all of it in memory."""
        found: dict[str, Any] = json.loads(self.text())
        return found

    def text(self) -> str:
        r"""The JSON text, ASCII only: a byte of a name that is no UTF-8 is a lone surrogate ``\udcXX``."""
        return "".join(json_pieces(self.document()))


def json_pieces(document: Mapping[str, Any]) -> Iterator[str]:
    """Indented JSON, piece by piece: one entry at a time of what is an `Entries`, in the document or its ``gate``."""
    yield from _object_pieces(document, "")
    yield "\n"


def _object_pieces(found: Mapping[str, Any], margin: str) -> Iterator[str]:
    inner = f"{margin}  "
    before = "{"
    for name, value in found.items():
        yield f"{before}\n{inner}{json.dumps(name)}: "
        before = ","
        if isinstance(value, Entries) and value:
            for number, entry in enumerate(value):
                yield f"{',' if number else '['}\n{inner}  {_indented(entry, inner + '  ')}"
            yield f"\n{inner}]"
        elif name == "gate" and value is not None:
            yield from _object_pieces(value, inner)
        else:
            yield _indented([] if isinstance(value, Entries) else value, inner)
    yield f"\n{margin}}}"


def _indented(value: object, margin: str) -> str:
    """The JSON of a value whose first line stands behind a margin."""
    return json.dumps(value, indent=2).replace("\n", f"\n{margin}")
