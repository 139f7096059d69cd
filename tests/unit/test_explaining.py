"""Near misses: which layer, which part of the text, in which order; and layers that other rules took."""

from __future__ import annotations

import fusion_engine as fe
from fusion_engine.explaining import Explanation, explain, misses
from tests.support.nets import Net


def net() -> tuple[Net, dict[str, int]]:
    """x -> conv (3x3) -> relu -> conv1 (1x1) -> tanh -> y."""
    net = Net(form="member")
    keys = {"x": net.input((1, 4, 4, 1), name="x")}
    keys["conv"] = net.conv(keys["x"], weights=[[[[1.0]] * 3] * 3], name="conv")
    keys["relu"] = net.activation(keys["conv"], name="relu")
    keys["conv1"] = net.conv(keys["relu"], weights=[[[[2.0]]]], name="conv1")
    keys["tanh"] = net.activation(keys["conv1"], "TanH", name="tanh")
    keys["y"] = net.output(keys["tanh"], name="y")
    return net, keys


def told(*rules: fe.FusingRule, layer: str | None = None) -> tuple[Explanation, ...]:
    built, keys = net()
    return explain(built.graph, rules, layer=None if layer is None else keys[layer])


def test_the_nearest_first_and_among_equals_the_networks_order() -> None:
    rule = fe.FusingRule("Activation{Convolution2d[kernel == 1x1]{Pad}}", name="r", into="K")
    (found,) = told(rule)
    assert [str(miss).partition(": it is")[0].partition(": kernel")[0] for miss in found.near] == [
        "r: layer 2 'relu' (below layer 4 'tanh')",
        "r: layer 1 'conv' (below layer 2 'relu')",
    ]
    assert [miss.text[miss.start : miss.end] for miss in found.near] == ["Pad", "kernel == 1x1"]
    assert (found.candidates, found.roots, found.fusions, found.refusals) == (2, ("Activation",), (), ())


def test_a_condition_that_got_further_is_nearer() -> None:
    rule = fe.FusingRule('Activation[activationFunction == "TanH" && a > 5]{Convolution2d}', name="r", into="K")
    (found,) = told(rule)
    assert [(miss.root.name, miss.text[miss.start : miss.end]) for miss in found.near] == [
        ("tanh", "a > 5"),
        ("relu", 'activationFunction == "TanH"'),
    ]


def test_what_another_rule_took() -> None:
    first = fe.FusingRule("Activation{Convolution2d[kernel == 3x3]}", name="first", into="K")
    second = fe.FusingRule("Activation{Convolution2d}", name="second", into="J")
    third = fe.FusingRule("Activation{Convolution2d[kernel == 5x5]}", name="third", into="H")
    a, b, c = told(first, second, third)
    assert [fusion.layers[0].name for fusion in a.fusions] == ["relu"]
    assert [str(miss) for miss in b.near] == [
        "second: layer 2 'relu': it matched, and rule 'first' took it for K before"
    ]
    assert b.near[0].excerpt == ""
    assert [miss.root.name for miss in c.near] == ["relu", "tanh"]


def test_one_layer() -> None:
    rule = fe.FusingRule("Activation{Pad}", name="r", into="K")
    (found,) = told(rule, layer="tanh")
    assert [miss.root.name for miss in found.near] == ["tanh"]
    (none,) = told(rule, layer="conv")
    assert none.near == ()


def test_groups() -> None:
    first = fe.FusingRule("Activation{Convolution2d}", name="first", group="G")
    second = fe.FusingRule("Activation", name="second", group="H")
    built, _ = net()
    (found,) = explain(fe.fuse(built.graph, first), second)
    assert {miss.reason for miss in found.near} == {"it matches, and layers of it are in a group already"}


def test_folds_that_have_no_pattern() -> None:
    (found,) = told(fe.FusingRule(fold="dead-ends", name="d"))
    assert (found.near, found.candidates, found.roots) == ((), 0, ())


def test_refusals_are_no_near_misses() -> None:
    built, keys = net()
    built.output(keys["conv"], name="z")
    rule = fe.FusingRule("Activation{Convolution2d}", name="r", into="K")
    (found,) = explain(built.graph, rule)
    assert [refusal.layer.name for refusal in found.refusals] == ["relu"]
    assert [fusion.layers[0].name for fusion in found.fusions] == ["tanh"]
    assert found.near == ()


def test_misses_of_a_text_look_at_the_network_as_it_is() -> None:
    built, keys = net()
    built.output(keys["conv"], name="z")
    rule = fe.FusingRule("Activation{Convolution2d{Activation}}", name="r", group="r")
    (miss,) = misses(built.graph, rule)
    assert str(miss) == "r: layer 0 'x' (below layer 2 'relu'): it is no Activation: it is an Input"


def test_the_excerpt_of_a_text_of_several_lines() -> None:
    rule = fe.FusingRule("Activation{\n\tConvolution2d[\n\t\tstride == 2x2 &&\n  kernel == 1x1]}", name="r", into="K")
    (found,) = told(rule, layer="tanh")
    assert found.near[0].excerpt == "\t\tstride == 2x2 &&\n\t\t^^^^^^^^^^^^^"


def test_alternatives_that_all_fail_on_the_type_are_all_told() -> None:
    built, _ = net()
    rule = fe.FusingRule("Activation{Softmax|FullyConnected{?}|Softmax[axis == 1]}", name="r", group="r")
    assert {str(miss).partition("): ")[2].partition(": it is a")[0] for miss in misses(built.graph, rule)} == {
        "it is no Softmax and no FullyConnected"
    }


def test_an_alternative_of_the_right_type_is_told_alone() -> None:
    built, _ = net()
    rule = fe.FusingRule("Activation{Softmax|Convolution2d[strideX == 77]}", name="r", group="r")
    assert all("strideX == 77 is false" in miss.reason for miss in misses(built.graph, rule))
