"""Which of the rules apply: ``--only`` and ``--skip`` of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusion_engine.console import printable
from fusion_engine.errors import nearest
from fusion_engine.usage import Wrong

if TYPE_CHECKING:
    from fusion_engine.language.rule import FusingRule

__all__ = ["chosen_rules"]


def chosen_rules(rules: Sequence[FusingRule], only: Sequence[str], skip: Sequence[str]) -> list[FusingRule]:
    """The rules named in ``only`` (all where it is empty) and not in ``skip``, in their order.

    Raises
    ------
    Wrong
        Where a name is none of a rule, or no rule is left.
    """
    names = tuple(rule.name for rule in rules)
    unknown = [
        f"{option} {printable(name)}: there is no rule of that name{nearest(name, names)}"
        for option, given in (("--only", only), ("--skip", skip))
        for name in given
        if name not in names
    ]
    if unknown:
        raise Wrong(*unknown)
    chosen = [rule for rule in rules if (not only or rule.name in only) and rule.name not in skip]
    if not chosen:
        raise Wrong("no rule is left: --only and --skip leave none")
    return chosen
