"""Where what ships with the package lies: ``schema/`` and ``rules/``, and the C++ header for backends.

In a wheel ``schema/`` and ``rules/`` are folders inside the package; in a checkout they are top-level folders.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

__all__ = ["folder", "include_folder"]


def folder(name: str) -> Traversable:
    """The folder ``schema`` or ``rules`` of this installation.

    Raises
    ------
    FileNotFoundError
        Where the installation lacks it.
    """
    inside = resources.files("fusion_engine") / "_data" / name
    if inside.is_dir():
        return inside
    checkout = Path(__file__).resolve().parent.parent / name
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError(f"the installation of fusion_engine has no {name}/ folder: install it again")


def include_folder() -> Path:
    """The folder to give a C++ compiler with ``-I``, for ``#include <fusion_engine/standin.hpp>``.

    Raises
    ------
    FileNotFoundError
        Where the installation lacks the header, or does not lie in a folder that a compiler could read.

    Examples
    --------
    >>> (include_folder() / "fusion_engine" / "standin.hpp").is_file()
    True
    """
    inside = Path(__file__).resolve().parent / "include"
    if not (inside / "fusion_engine" / "standin.hpp").is_file():
        raise FileNotFoundError(f"there is no fusion_engine/standin.hpp in {inside}: install fusion_engine again")
    return inside
