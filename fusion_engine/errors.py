"""What a caller catches: every error that bad input can raise, under one root.

A message says what was found, where, and what to do about it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fusion_engine.naming import LONGEST, quoted, shortened

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ConversionError",
    "FuseError",
    "FusionEngineError",
    "ModelError",
    "OutputError",
    "ReaderLimitWarning",
    "RuleError",
    "RuleLoopError",
    "UnsupportedLayerError",
    "VerifyError",
]


class FusionEngineError(Exception):
    """Root of every error of this package."""


class ModelError(FusionEngineError):
    """A network or its file is wrong, or cannot be written.

    Parameters
    ----------
    reason
        What was found and what to do.
    path
        The file, where there is one.
    place
        Where in it: ``layer 14 'relu_3'``, ``the root table``.
    """

    def __init__(self, reason: str, *, path: str | os.PathLike[str] | None = None, place: str | None = None) -> None:
        self.reason = reason
        self.path = None if path is None else os.fspath(path)
        self.place = place
        super().__init__(": ".join(part for part in (self.path, place, reason) if part))

    def within(self, path: str | os.PathLike[str]) -> ModelError:
        """The same error, of the same class, with the file named."""
        return type(self)(self.reason, path=path, place=self.place)


class UnsupportedLayerError(ModelError):
    """A layer of a type that no known release of Arm NN has."""


class ConversionError(ModelError):
    """A release of Arm NN cannot hold a network, or there is no such release.

    Attributes
    ----------
    obstacles
        What is in the way, each an `Obstacle`; empty where there is no such release.
    """

    obstacles: tuple[Any, ...] = ()

    def within(self, path: str | os.PathLike[str]) -> ConversionError:
        """The same error with the file named."""
        found = ConversionError(self.reason, path=path, place=self.place)
        found.obstacles = self.obstacles
        return found


class OutputError(FusionEngineError):
    """An output cannot be written where it was asked for."""


class ReaderLimitWarning(UserWarning):
    """A file was written that is right, and larger than real Arm NN reads."""


class FuseError(FusionEngineError):
    """Rules cannot be applied to a network as given."""


class RuleLoopError(FuseError):
    """Rules kept firing past the bound on rewrites; the message names them."""


class VerifyError(FusionEngineError):
    """Networks cannot be verified: what it takes is not installed, or what was asked for makes no sense."""


class RuleError(FusionEngineError):
    """A fusing rule or a rule file is wrong.

    Parameters
    ----------
    reason
        What was found and what was expected.
    text
        The whole text that ``line`` and ``column`` count in, for the excerpt; may be empty. Left out
        where the error is about no place in a text.
    line, column
        1-based; a column counts code points, a tab is one, the end of a line is its length + 1.
    source
        Name of the file the text is from, where there is one.
    rule
        Name of the rule, where it has one.
    outer
        Line and column in the file where the text begins, when ``line`` and ``column`` cannot be
        mapped to the file because the text is written there with escapes.

    Attributes
    ----------
    placed
        Whether there is a text, be it empty, in which ``line`` and ``column`` count.
    others
        Further errors of the same rule or file: all of it is checked at once.
    """

    def __init__(
        self,
        reason: str,
        *,
        text: str | None = None,
        line: int = 1,
        column: int = 1,
        source: str | Path | None = None,
        rule: str | None = None,
        outer: tuple[int, int] | None = None,
    ) -> None:
        self.reason = reason
        self.text = text or ""
        self.placed = text is not None
        self.line = line
        self.column = column
        self.source = None if source is None else str(source)
        self.rule = rule
        self.outer = outer
        self.others: tuple[RuleError, ...] = ()
        super().__init__(reason)

    def __copy__(self) -> RuleError:
        """Another error that says the same; libraries that teach exceptions to pickle change what copying does."""
        made = type(self)(self.reason)
        made.__dict__.update(self.__dict__)
        return made

    @property
    def excerpt(self) -> str:
        """The line of the fault, of a long one what is about it, and below it a caret at its column.

        Empty where there is no place.
        """
        lines = self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if not self.placed or self.line > len(lines):
            return ""
        line = lines[self.line - 1]
        begin = max(0, min(self.column - 1 - LONGEST // 2, len(line) - LONGEST))
        shown = line[begin : begin + LONGEST]
        before = "..." if begin else ""
        after = "..." if begin + LONGEST < len(line) else ""
        passed = before + shown[: self.column - 1 - begin]
        pad = "".join("\t" if c == "\t" else " " for c in passed if c != "\ufeff")
        return f"    {before}{shown}{after}\n    {pad}^"

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}" if self.placed else ""
        if self.source and self.outer:
            where = f"{self.source}:{self.outer[0]}:{self.outer[1]}: {where} of the text that begins there"
        elif self.source:
            where = f"{self.source}:{self.line}:{self.column}" if self.placed else self.source
        rule = f" (rule '{shortened(self.rule)}')" if self.rule else ""
        excerpt = f"\n{self.excerpt}" if self.excerpt else ""
        return f"{where}{rule}: {self.reason}{excerpt}".lstrip(": ")


def nearest(word: str, candidates: Sequence[str], most: int = 3) -> str:
    """`` (did you mean 'x' or 'y'?)``, or nothing where no candidate is near."""
    from difflib import get_close_matches

    folded: dict[str, str] = {}
    for candidate in sorted(candidates):
        folded.setdefault(candidate.lower(), candidate)
    close = [folded[c] for c in get_close_matches(word.lower(), list(folded), most, 0.6)]
    return f" (did you mean {' or '.join(map(quoted, close))}?)" if close else ""
