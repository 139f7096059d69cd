"""Tokens of the rule language, read one at a time, and errors that point at them.

parsimonious matches the tokens. Each kind has a name and so does the end of the text, so that its
ParseError names the place where no token could go on, not the place where one began.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from parsimonious import Grammar, ParseError

from fusion_engine.errors import RuleError
from fusion_engine.language.tree import Span

__all__ = ["Token", "Tokens", "fail", "place", "shown"]

_GRAMMAR = Grammar(r"""
    next          = blank? token
    blank         = ~r"(?:[ \t\r\n]+|#[^\r\n]*)+"
    token         = id / symbol / dimension / float / integer / string / end
    id            = ~r"[A-Za-z_][A-Za-z0-9_]*"
    symbol        = ~r"<=|>=|==|<>|&&|[<>=&|{}\[\](),:~!?]|\.(?![0-9])"
    dimension     = ~r"[0-9]+x[0-9]+(?:x[0-9]+)?(?![A-Za-z0-9_])"
    float         = ~r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
    integer       = ~r"[-+]?[0-9]+"
    string        = '"' characters closing_quote
    characters    = ~r'(?:[^"\\\r\n]|\\["\\])*'
    closing_quote = '"'
    end           = ~r"\Z"
""")

_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Token:
    """A token: ``kind`` is the grammar's name of it, for a symbol the symbol itself."""

    kind: str
    text: str
    span: Span


def place(text: str, offset: int) -> tuple[int, int]:
    r"""1-based line and column of an offset; lines end at CR, LF or CR LF.

    Examples
    --------
    >>> place("a\r\nbc", 4)
    (2, 2)
    """
    line, start = 1, 0
    for found in _BREAK.finditer(text, 0, offset):
        line, start = line + 1, found.end()
    return line, offset - start + 1


def fail(text: str, offset: int, reason: str) -> NoReturn:
    """Raise the RuleError that points at an offset of a rule's text."""
    line, column = place(text, offset)
    raise RuleError(reason, text=text, line=line, column=column)


def shown(token: Token) -> str:
    """A token as messages call it."""
    if token.kind == "end":
        return "the end"
    short = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return short if token.kind == "string" else f"'{short}'"


class Tokens:
    """The tokens of a text, read as far as the parser looks: the first fault in the text is the one reported.

    Parameters
    ----------
    text
        A rule's text; a byte order mark at its start is skipped.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._offset = 1 if text.startswith("\ufeff") else 0
        self._ahead: list[Token] = []

    def peek(self, distance: int = 0) -> Token:
        """The token ``distance`` after the next one; the end repeats."""
        while len(self._ahead) <= distance:
            self._ahead.append(self._read())
        return self._ahead[distance]

    def take(self) -> Token:
        """The next token, which is consumed."""
        token = self.peek()
        del self._ahead[0]
        return token

    def take_if(self, kind: str) -> Token | None:
        """The next token where it is of that kind, and then consumed."""
        return self.take() if self.peek().kind == kind else None

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        """Raise the RuleError at the next token that says what was expected there, and what may be wrong."""
        token = self.peek()
        found = f"expected {expected}, found {shown(token)}"
        fail(self.text, token.span.start, f"{found} ({hint})" if hint else found)

    def _read(self) -> Token:
        try:
            node = _GRAMMAR.match(self.text, self._offset).children[1].children[0]
        except ParseError as error:
            self._refuse(error)
        self._offset = node.end
        kind: str = node.expr_name
        return Token(node.text if kind == "symbol" else kind, node.text, Span(node.start, node.end))

    def _refuse(self, error: ParseError) -> NoReturn:
        found = self.text[error.pos : error.pos + 1]
        if error.expr is None or error.expr.name != "closing_quote":
            fail(self.text, error.pos, f"expected a name, a value or a sign of the rule language, found {found!r}")
        if found == "\\":
            fail(self.text, error.pos, 'expected \\" or \\\\: a backslash in a string stands before one of these only')
        fail(self.text, error.pos, 'expected " to close the string, which ends on the line where it begins')
