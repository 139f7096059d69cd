"""How messages name what files hold, whose names may be of any length."""

from __future__ import annotations

__all__ = ["LONGEST", "LONGEST_REASON", "layer_place", "quoted", "shortened"]

LONGEST = 200
"""Characters of a name that messages show; the middle of a longer one is left out."""

LONGEST_REASON = 10_000
"""Characters of a reason that people are shown; data has all of it."""


def shortened(text: str, most: int = LONGEST) -> str:
    """A text of at most so many characters: the middle of a longer one is left out, and how much that is, told.

    Examples
    --------
    >>> len(shortened("x" * 1_000_000))
    191
    >>> shortened("x" * 1_000_000)[75:115]
    'xxxxx...(999,840 characters more)...xxxx'
    """
    if len(text) <= most:
        return text
    end = most * 2 // 5
    return f"{text[:end]}...({len(text) - 2 * end:,} characters more)...{text[-end:]}"


def quoted(name: object) -> str:
    r"""A name in quotes, fit for a terminal, and `shortened`; what is no str, where one should be, as it is.

    Examples
    --------
    >>> print(quoted("relu\n3"))
    'relu\n3'
    """
    return repr(shortened(name)) if isinstance(name, str) else shortened(repr(name))


def layer_place(index: object, name: object) -> str:
    """How messages name a layer.

    Examples
    --------
    >>> layer_place(14, "relu_3")
    "layer 14 'relu_3'"
    """
    return f"layer {index} {quoted(name)}"
