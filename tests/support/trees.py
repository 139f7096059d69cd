"""Syntax trees and patterns as compact text, for golden files and comparison."""

from __future__ import annotations

from fusion_engine.language.pattern import (
    AllOf,
    AnyInput,
    AnyOf,
    Constraint,
    Operand,
    PatternElement,
    PatternGroup,
    PatternItem,
    PatternLayer,
    Side,
    Test,
)
from fusion_engine.language.steps import Steps, run
from fusion_engine.language.tree import (
    And,
    AnyLayer,
    Comparison,
    Condition,
    Constant,
    Element,
    Group,
    Item,
    Rule,
    Value,
)


def tree_text(rule: Rule) -> str:
    """``(Activation if=(== a 1) in=((| (Convolution2d) ?)))``."""
    return run(_rule(rule))


def pattern_text(layer: PatternLayer) -> str:
    """As `tree_text`, every layer with its id, every operand with the id it reads."""
    return run(_layer(layer))


def _layer_text(head: str, condition: str | None, inputs: list[str] | None) -> str:
    parts = [head]
    if condition is not None:
        parts.append(f"if={condition}")
    if inputs is not None:
        parts.append(f"in=({' '.join(inputs)})")
    return f"({' '.join(parts)})"


def _item_text(choices: list[str], low: int, high: int | None) -> str:
    text = choices[0] if len(choices) == 1 else f"(| {' '.join(choices)})"
    return text if (low, high) == (1, 1) else f"(* {low}..{'' if high is None else high} {text})"


def _rule(rule: Rule) -> Steps[str]:
    head = rule.type
    if rule.scope is not None:
        head += f" scope={rule.scope.data_type or ''}/{rule.scope.layout or ''}"
    condition = None if rule.condition is None else (yield _condition(rule.condition))
    inputs = None if rule.inputs is None else (yield _items(rule.inputs))
    return _layer_text(head, condition, inputs)


def _items(items: tuple[Item, ...]) -> Steps[list[str]]:
    found = []
    for item in items:
        choices = []
        for choice in item.choices:
            choices += [(yield _element(choice))]
        found.append(_item_text(choices, item.low, item.high))
    return found


def _element(element: Element) -> Steps[str]:
    body = element.body
    if isinstance(body, AnyLayer):
        text = "?"
    elif isinstance(body, Group):
        text = f"(group {' '.join((yield _items(body.items)))})"
    else:
        text = yield _rule(body)
    return f"(! {text})" if element.marked else text


def _condition(condition: Condition) -> Steps[str]:
    if isinstance(condition, Comparison):
        return f"({condition.op} {_value(condition.left)} {_value(condition.right)})"
    parts = []
    for part in condition.parts:
        parts += [(yield _condition(part))]
    return f"({'&&' if isinstance(condition, And) else '||'} {' '.join(parts)})"


def _value(value: Value) -> str:
    return _literal(value.value) if isinstance(value, Constant) else value.name


def _literal(value: int | float | str | tuple[int, ...] | None) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return "x".join(map(str, value)) if isinstance(value, tuple) else "unknown" if value is None else repr(value)


def _layer(layer: PatternLayer) -> Steps[str]:
    head = f"{layer.type}#{layer.id}"
    head += " result" if layer.result else ""
    head += " kept" if layer.kept else ""
    if layer.data_type or layer.layout:
        head += f" scope={layer.data_type or ''}/{layer.layout or ''}"
    condition = None if layer.constraint is None else (yield _constraint(layer.constraint))
    inputs = None if layer.inputs is None else (yield _pattern_items(layer.inputs))
    return _layer_text(head, condition, inputs)


def _pattern_items(items: tuple[PatternItem, ...]) -> Steps[list[str]]:
    found = []
    for item in items:
        choices = []
        for choice in item.choices:
            choices += [(yield _pattern_element(choice))]
        found.append(_item_text(choices, item.low, item.high))
    return found


def _pattern_element(element: PatternElement) -> Steps[str]:
    if isinstance(element, AnyInput):
        return "?"
    if isinstance(element, PatternGroup):
        return f"(group {' '.join((yield _pattern_items(element.items)))})"
    text: str = yield _layer(element)
    return text


def _constraint(constraint: Constraint) -> Steps[str]:
    if isinstance(constraint, Test):
        return f"({constraint.op} {_side(constraint.left)} {_side(constraint.right)})"
    assert isinstance(constraint, AllOf | AnyOf)
    parts = []
    for part in constraint.parts:
        parts += [(yield _constraint(part))]
    return f"({'&&' if isinstance(constraint, AllOf) else '||'} {' '.join(parts)})"


def _side(side: Side) -> str:
    return f"{side.name}#{side.at}" if isinstance(side, Operand) else _literal(side)
