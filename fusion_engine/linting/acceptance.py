"""Whether a fold can accept what a pattern takes in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from fusion_engine.folds import Accepts, Fold
from fusion_engine.language.pattern import AnyInput, PatternElement, PatternGroup, PatternItem, PatternLayer
from fusion_engine.linting.patterns import schema_type
from fusion_engine.spellings import SPELLINGS, SUCCESSORS

__all__ = ["fold_fault"]

_Todo: TypeAlias = "tuple[PatternElement | PatternItem, _Todo] | None"
"""What is still to be laid, as a linked list."""

MAX_WAYS = 2_000
"""Most ways to lay a pattern that are looked at."""


def fold_fault(name: str, fold: Fold, root: PatternLayer) -> str | None:
    """Why a fold can accept no match of a pattern, or None where it may."""
    accepted = fold.accepts
    if not accepted and fold.roots:
        accepted = (Accepts((fold.roots,), more=True),)
    if not accepted:
        return None
    for count, layers in enumerate(_ways(root)):
        if layers is None or count >= MAX_WAYS or any(_fits(layers, one) for one in accepted):
            return None
    takes = " or ".join(dict.fromkeys(str(one) for one in accepted))
    return f"the fold {name!r} accepts no match of this: it takes {takes}"


def _ways(root: PatternLayer) -> Iterator[tuple[str, ...] | None]:
    """The types of the layers that a pattern may take in, in its order; None for ways too many to tell."""
    stack: list[tuple[_Todo, tuple[str, ...]]] = [((root, None), ())]
    while stack:
        todo, taken = stack.pop()
        if todo is None:
            yield taken
            continue
        node, rest = todo
        if isinstance(node, PatternLayer):
            if node.kept or node.type == "Constant":
                stack.append((rest, taken))
                continue
            for item in reversed(node.inputs or ()):
                rest = (item, rest)
            stack.append((rest, (*taken, schema_type(node))))
        elif isinstance(node, PatternGroup):
            for item in reversed(node.items):
                rest = (item, rest)
            stack.append((rest, taken))
        elif isinstance(node, AnyInput):
            stack.append((rest, taken))
        else:
            if (node.low, node.high) != (1, 1) and _consuming(node.choices):
                yield None
                return
            elements: tuple[PatternElement, ...] = node.choices if node.low or _consuming(node.choices) else ()
            stack.extend(((choice, rest), taken) for choice in reversed(elements))
            if not elements:
                stack.append((rest, taken))


def _consuming(choices: tuple[PatternElement, ...]) -> bool:
    """Whether one of the alternatives names a layer."""
    return any(not isinstance(choice, AnyInput) for choice in choices)


def _fits(layers: tuple[str, ...], accepted: Accepts) -> bool:
    """Whether layers of these types may be what is accepted; a layer that is bound twice counts once."""
    wanted = 0
    for number, name in enumerate(layers):
        if wanted < len(accepted.layers) and _may_be(name, accepted.layers[wanted]):
            wanted += 1
        elif wanted >= len(accepted.layers) and accepted.more:
            break
        elif not any(_may_be(name, frozenset({other})) for other in layers[:number]):
            return False
    return wanted == len(accepted.layers)


def _may_be(type_name: str, types: frozenset[str]) -> bool:
    """Whether a layer that a pattern of this type matches may be of one of some types."""
    meant = SPELLINGS.get(type_name)
    names = {type_name, *SUCCESSORS.get(type_name, ()), *((meant.type,) if meant else ())}
    return not types.isdisjoint(names)
