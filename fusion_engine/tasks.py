"""What a run does to each of its models, as plain data: a worker process makes it into work again.

Rules go as the bytes of their files, since a rule's pattern nests as deep as its author wants and pickle recurses.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusion_engine import __version__
from fusion_engine.language.sources import Source
from fusion_engine.resources import folder

if TYPE_CHECKING:
    from fusion_engine.batch import Change, Job
    from fusion_engine.errors import RuleError
    from fusion_engine.judging import Judge
    from fusion_engine.language.rule import FusingRule
    from fusion_engine.pictures import DiffPages
    from fusion_engine.report import ModelReport

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """What is done to every model of a run.

    Attributes
    ----------
    kind
        ``"fuse"``, ``"unfuse"`` or ``"convert"``.
    rules
        The rule files of ``fuse``, in order.
    only, skip
        Names that choose among the rules.
    release
        The release that results are carried to, or None.
    verify, tolerance
        Whether results are verified, and to what difference.
    judge, judge_timeout
        A user's command that decides whether a result is kept, and its seconds for each.
    dry_run
        Write nothing.
    """

    kind: str
    rules: tuple[Source, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    release: str | None = None
    verify: bool = False
    tolerance: float | None = None
    judge: str | None = None
    judge_timeout: float | None = None
    dry_run: bool = False

    @property
    def done(self) -> str:
        """Status of a model that was changed."""
        return {"fuse": "fused", "unfuse": "unfused", "convert": "converted"}[self.kind]

    @property
    def digest(self) -> str:
        """Hexadecimal digest of all that a result depends on beside the model: this, and the program."""
        told = blake2b(_program().encode(), digest_size=16)
        for entry in fields(self):
            value = getattr(self, entry.name)
            told.update(repr((entry.name, value)).encode("utf-8", "surrogateescape"))
        return told.hexdigest()

    @property
    def lasting(self) -> bool:
        """Whether the digest tells all: other packages' folds and predicates and a judge may change unnoticed."""
        return self.judge is None and self.own

    @property
    def own(self) -> bool:
        """Whether all folds and predicates of the rules are this package's own."""
        from fusion_engine.folds import OWN

        rules, _ = self._read
        return all(rule.when is None and (rule.fold or "batch-norm") in OWN for rule in rules)

    @cached_property
    def _read(self) -> tuple[list[FusingRule], list[RuleError]]:
        """The rules, and what is wrong with them."""
        from fusion_engine.language.rulefile import read_rules

        return read_rules(self.rules)

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def change(self) -> Change:
        """The work on a network.

        Raises
        ------
        FusionEngineError
            Where the rules or the release are wrong.
        """
        from fusion_engine import batch
        from fusion_engine.choosing import chosen_rules

        if self.kind == "unfuse":
            return batch.unfusing()
        if self.kind == "convert":
            return batch.converting(self.release or "")
        rules, errors = self._read
        if errors:
            raise errors[0]
        change = batch.fusing(chosen_rules(rules, self.only, self.skip))
        if self.verify:
            change = batch.verifying(change, self.tolerance)
        return batch.aiming(change, self.release)

    def worker(self, pages: DiffPages | None = None) -> Worker:
        """Who does the jobs of this task, one after the other; ``pages`` draw what it does.

        Raises
        ------
        FusionEngineError
            Where the rules, the release or the judge are wrong.
        """
        from fusion_engine.judging import TIMEOUT, Judge

        judge = None if self.judge is None else Judge(self.judge, self.judge_timeout or TIMEOUT)
        change = self.change()
        return Worker(self, change if pages is None else pages.keeping(change), judge)


@cache
def _program() -> str:
    """Digest of this package's own files: between releases its version stays while the code changes."""
    import numpy as np

    told = blake2b(f"{__version__} {np.__version__}".encode(), digest_size=16)
    roots = [Path(__file__).parent, *(Path(str(folder(name))) for name in ("schema", "rules"))]
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".json", ".toml"):
                told.update(str(path.relative_to(root)).encode("utf-8", "surrogateescape") + b"\0")
                told.update(path.read_bytes())
    return told.hexdigest()


class Worker:
    """Does jobs of a task in this process."""

    def __init__(self, task: Task, change: Change, judge: Judge | None) -> None:
        self._task = task
        self._change = change
        self._judge = judge

    def __call__(self, job: Job) -> ModelReport:
        """Do a job; never raises for what is wrong with the model. Who runs the task synchronises directories."""
        from fusion_engine.armnn.files import names_later
        from fusion_engine.batch import process

        task = self._task
        options: dict[str, Any] = {"done": task.done, "dry_run": task.dry_run, "judge": self._judge}
        with names_later():
            return process(job, self._change, **options)
