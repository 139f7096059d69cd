"""What a pattern's parts are, as far as the analyses ask."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from fusion_engine.language.pattern import AnyInput, PatternElement, PatternGroup, PatternItem, PatternLayer
from fusion_engine.language.steps import Steps, run
from fusion_engine.schema import schema
from fusion_engine.spellings import SPELLINGS

__all__ = ["Standing", "consumes", "data_inputs", "has_layout", "schema_type", "standing", "takes", "types_covered"]


class Standing(NamedTuple):
    """A layer of a pattern with what is around it: the layer above, None for the root, and scopes from above."""

    layer: PatternLayer
    above: PatternLayer | None
    layouts: tuple[str, ...]


def standing(root: PatternLayer) -> Iterator[Standing]:
    """Every named layer of a pattern, in text order."""
    stack: list[tuple[PatternElement | PatternItem, PatternLayer | None, tuple[str, ...]]] = [(root, None, ())]
    while stack:
        node, above, layouts = stack.pop()
        if isinstance(node, PatternLayer):
            own = layouts if node.layout is None else (*layouts, node.layout)
            yield Standing(node, above, own)
            stack.extend((item, node, own) for item in reversed(node.inputs or ()))
        elif isinstance(node, PatternItem):
            stack.extend((choice, above, layouts) for choice in reversed(node.choices))
        elif isinstance(node, PatternGroup):
            stack.extend((item, above, layouts) for item in reversed(node.items))


def schema_type(layer: PatternLayer) -> str:
    """The LayerType by which the values of a pattern layer are known: StandIn for the result of a rule."""
    return "StandIn" if layer.result else layer.type


@cache
def types_covered(type_name: str) -> frozenset[str]:
    """The types of patterns all of whose layers a pattern of this type matches too.

    Examples
    --------
    >>> sorted(types_covered("ElementwiseUnary")), sorted(types_covered("Abs"))
    (['Abs', 'ElementwiseUnary', 'Rsqrt'], ['Abs'])
    """
    found = {type_name, *(old for old, new in SPELLINGS.items() if new.type == type_name)}
    own = SPELLINGS.get(type_name)
    if own is not None and own.field is None:
        found.add(own.type)
    return frozenset(found)


def has_layout(type_name: str) -> bool:
    """Whether every layer that the type matches has a layout that scopes ask for."""
    successor = SPELLINGS.get(type_name)
    names = {type_name, *types_covered(type_name), *({successor.type} if successor else ())} - {"StridedSlice"}
    descriptors = [schema().layers[name].descriptor for name in names]
    return bool(names) and all(one is not None and "dataLayout" in one.by_name for one in descriptors)


def consumes(item: PatternItem) -> bool:
    """Whether an item can take in a layer: names one that is neither kept nor a Constant."""
    stack: list[PatternElement] = [*item.choices]
    while stack:
        node = stack.pop()
        if isinstance(node, PatternGroup):
            stack.extend(choice for inner in node.items for choice in inner.choices)
        elif isinstance(node, PatternLayer) and not node.kept and node.type != "Constant":
            return True
    return False


def takes(items: tuple[PatternItem, ...], most: int) -> frozenset[int]:
    """The numbers of inputs that items can take, up to ``most``."""
    return run(_run(items, most))


def data_inputs(type_name: str) -> tuple[int, int] | None:
    """Least and largest number of data inputs of the layers that a type matches; None where any is possible.

    Examples
    --------
    >>> data_inputs("Addition"), data_inputs("Convolution2d"), data_inputs("Concat")
    ((2, 2), (1, 3), None)
    """
    from fusion_engine.schema import slot_facts
    from fusion_engine.workspace import PARAMETER_SLOTS

    counts = slot_facts()[type_name]["inputs"]
    if isinstance(counts, str):
        return None
    found = counts if isinstance(counts, list) else [counts]
    held = len(PARAMETER_SLOTS.get(type_name, ()))
    return max(0, min(min(found), max(found) - held)), max(found)


def _run(items: tuple[PatternItem, ...], most: int) -> Steps[frozenset[int]]:
    total = frozenset({0})
    for item in items:
        widths: set[int] = set()
        for choice in item.choices:
            if isinstance(choice, AnyInput | PatternLayer):
                widths.add(1)
            else:
                inner: frozenset[int] = yield _run(choice.items, most)
                widths |= inner
        total = _sums(total, _repeated(frozenset(widths), item.low, item.high, most), most)
    return total


def _repeated(widths: frozenset[int], low: int, high: int | None, most: int) -> frozenset[int]:
    """Sums of ``low`` to ``high`` widths; what takes nothing may be left out of the count."""
    found: set[int] = set()
    reached, count = frozenset({0}), 0
    seen: set[frozenset[int]] = set()
    while reached and (high is None or count <= high):
        if count >= low or 0 in widths:
            found |= reached
        if reached in seen and (count >= low or 0 in widths):
            break
        seen.add(reached)
        reached, count = _sums(reached, widths, most), count + 1
    return frozenset(found)


def _sums(left: frozenset[int], right: frozenset[int], most: int) -> frozenset[int]:
    return frozenset(a + b for a in left for b in right if a + b <= most)
