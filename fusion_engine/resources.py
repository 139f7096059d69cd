"""Where the data that ships with the package lies: ``schema/`` and ``rules/``.

In a wheel both are folders inside the package; in a checkout they are top-level folders.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

__all__ = ["folder"]


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
