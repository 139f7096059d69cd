"""Numbers of inputs that no layer of a type has, and layers that feed nothing."""

from __future__ import annotations

from fusion_engine.language.pattern import AnyInput, PatternItem, PatternLayer
from fusion_engine.linting.patterns import Standing, data_inputs, takes
from fusion_engine.linting.sites import Ledger, Site

__all__ = ["judge_inputs"]

_ITEM = "item"


def judge_inputs(standing: Standing, rule: int, text: int, ledger: Ledger, mark: object) -> None:
    """Note where a layer's braces ask for more or fewer inputs than its type can have.

    ``mark`` is one for all layers that one alternative of a vocabulary name stands for: where one of them cannot
    match, the alternative cannot.
    """
    layer = standing.layer
    site = Site.of(layer.span, rule, text)
    ledger.look(site, "slots", mark)
    if layer.type == "Output" and not layer.result and standing.above is not None:
        ledger.find(site, "slots", "an Output feeds no other layer", mark)
    if layer.result or layer.inputs is None:
        return
    counts = data_inputs(layer.type)
    if counts is None:
        return
    least, most = counts
    possible = takes(layer.inputs, most)
    held = f"{layer.type} has {_counted(least, most)}"
    if not any(least <= count <= most for count in possible):
        ledger.find(site, "slots", f"{held}, and the braces take {_asked(layer.inputs, most)}: nothing matches", mark)
        return
    for number, item in enumerate(layer.inputs):
        _judge_item(layer.inputs, number, most, Site.of(item.span, rule, text), ledger, held, mark)


def _judge_item(
    items: tuple[PatternItem, ...], number: int, most: int, site: Site, ledger: Ledger, held: str, mark: object
) -> None:
    """Note a range whose upper end is beyond what the layer's inputs leave for it."""
    item = items[number]
    ledger.look(site, "slots", mark, _ITEM)
    others = takes((*items[:number], *items[number + 1 :]), most)
    if not others or not all(isinstance(choice, AnyInput | PatternLayer) for choice in item.choices):
        return
    room = most - min(others)
    if room == 0:
        ledger.find(site, "slots", f"{held}, which the other items take: this one never takes any", mark, _ITEM)
    elif item.high is not None and item.high > room:
        ledger.find(site, "slots", f"{held}: this item takes {room} at most, and never {item.high}", mark, _ITEM)


def _asked(items: tuple[PatternItem, ...], most: int) -> str:
    counts = takes(items, most + 64)
    if not counts:
        return "more"
    least = min(counts)
    return str(least) if len(counts) == 1 else f"at least {least}" if least > most else f"at most {max(counts)}"


def _counted(least: int, most: int) -> str:
    if most == 0:
        return "no data inputs"
    if least == most:
        return f"{most} data input{'s' if most > 1 else ''}"
    return f"{least} to {most} data inputs"
