"""Matching beside the golden cases: near misses, conditions of any depth, steps, swapped operands."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fusion_engine import FuseError, FusingRule
from fusion_engine.match import Match, Miss, StepLimitError, compile_rule, explain
from fusion_engine.match.machine import MAX_STEPS, STEPS_PER_INPUT
from fusion_engine.network import EMPTY, FrozenDict
from fusion_engine.search import search
from fusion_engine.tensor import TensorInfo
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

SHAPE = (1, 2, 2, 2)


def find(net: Net, match: str | list[str], root: int, **options: Any) -> list[Match]:
    return list(compile_rule(FusingRule(match, into="It", **options)).matches(Workspace(net.graph), root))


@pytest.fixture
def shallow() -> Iterator[None]:
    """A recursion limit a little above what is in use."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 150)
    yield
    sys.setrecursionlimit(limit)


# Near misses


@pytest.fixture
def net() -> Net:
    """0 Input - 1 Convolution2d (2 and 3 its parameters) - 4 ReLu - 5 max pooling - 6 Addition with 1."""
    net = Net()
    x = net.input(SHAPE)
    conv = net.conv(x, np.ones((2, 1, 1, 2)), [0, 0], name="conv")
    relu = net.activation(conv, "ReLu", name="relu")
    pool = net.pool(relu, (3, 2), stride=(1, 1), output=TensorInfo(SHAPE), name="pool")
    net.addition(pool, conv, name="sum")
    return net


def key(net: Net, name: str) -> int:
    return next(k for k, node in net.graph.nodes.items() if node["name"] == name)


def why(net: Net, match: str | list[str], name: str, **options: Any) -> Miss:
    matcher = compile_rule(FusingRule(match, into="It", **options))
    found = explain(matcher, Workspace(net.graph), key(net, name))
    assert found is not None
    return found


def shown(miss: Miss) -> tuple[str | None, str]:
    """The part of the text that a miss points at, and its reason."""
    part = None if miss.span is None else miss.text[miss.span.start : miss.span.end]
    return part, miss.reason


MISSES = [
    ("Softmax", "relu", "relu", ("Softmax", "it is no Softmax")),
    ("Activation{Softmax}", "relu", "conv", ("Softmax", "it is no Softmax")),
    (
        'Activation[activationFunction == "LeakyReLu"]',
        "relu",
        "relu",
        (
            'activationFunction == "LeakyReLu"',
            'activationFunction == "LeakyReLu" is false: it is "ReLu"',
        ),
    ),
    (
        "Activation{Convolution2d[strideX == 1 && kernel == 3x3]}",
        "relu",
        "conv",
        ("kernel == 3x3", "kernel == 3x3 is false: it is 1x1"),
    ),
    (
        "Activation{Convolution2d[strideX == 2 || channels > 2]}",
        "relu",
        "conv",
        ("channels > 2", "channels > 2 is false: it is 2"),
    ),
    (
        "Convolution2d[4 < padLeft || stride > kernel]",
        "conv",
        "conv",
        ("stride > kernel", "stride > kernel is false: stride is 1x1 and kernel is 1x1"),
    ),
    (
        "Convolution2d[biasEnabled == 0]",
        "conv",
        "conv",
        ("biasEnabled == 0", "biasEnabled == 0 is false: it is 1"),
    ),
    ('Convolution2d[name <> "conv"]', "conv", "conv", ('name <> "conv"', 'name <> "conv" is false: it is "conv"')),
    (
        "Pooling2d[input1.scale < 2]",
        "pool",
        "pool",
        ("input1.scale < 2", "input1.scale < 2 is false: it is unknown"),
    ),
    ("Activation{?, Pad}", "relu", "relu", ("Pad", "it has only 1 data input")),
    ("Activation{?, ?}", "relu", "relu", (None, "it has only 1 data input")),
    (
        "Addition{Pooling2d}",
        "sum",
        "sum",
        ("Addition{Pooling2d}", "it has 2 data inputs, of which the pattern takes 1"),
    ),
    ("fp16|Activation{?}", "relu", "relu", ("fp16|Activation{?}", "its output is Float32, not Float16")),
    ("nchw|Activation{Convolution2d}", "relu", "conv", ("Convolution2d", "its dataLayout is NHWC, not NCHW")),
    ("nchw|Activation", "relu", "relu", ("nchw|Activation", "the network's layout is NHWC")),
    (
        "Addition{Pooling2d{Activation{Convolution2d}}, ?}",
        "sum",
        "conv",
        (None, "it is bound as consumed, and as kept or by `?` too"),
    ),
]


@pytest.mark.parametrize(("match", "root", "layer", "wanted"), MISSES, ids=[case[0] for case in MISSES])
def test_a_near_miss_tells_the_innermost_part_that_failed(
    net: Net, match: str, root: str, layer: str, wanted: tuple[str | None, str]
) -> None:
    miss = why(net, match, root)
    assert shown(miss) == wanted
    assert miss.layer == key(net, layer)


def test_a_match_is_no_near_miss(net: Net) -> None:
    matcher = compile_rule(FusingRule("Activation{Softmax|Convolution2d}", into="It"))
    assert explain(matcher, Workspace(net.graph), key(net, "relu")) is None


def test_a_near_miss_is_the_alternative_that_came_furthest(net: Net) -> None:
    miss = why(net, "Pooling2d{Softmax|Activation{Convolution2d[strideX == 9]}|Activation{Pad}}", "pool")
    assert shown(miss)[0] == "strideX == 9"
    assert miss.depth == 3


def test_of_near_misses_that_came_as_far_the_first_is_told(net: Net) -> None:
    assert shown(why(net, "Activation{Pad|Softmax}", "relu"))[0] == "Pad"


def test_a_near_miss_is_of_the_text_that_came_furthest(net: Net) -> None:
    texts = ["Pooling2d{Pad}", "Pooling2d{Activation{Pad}}", "Pooling2d{Softmax}"]
    miss = why(net, texts, "pool")
    assert (miss.text, shown(miss)[0]) == (texts[1], "Pad")


def test_a_near_miss_with_swapped_inputs(net: Net) -> None:
    miss = why(net, "Addition{Convolution2d, Pooling2d{Pad}}", "sum")
    assert (shown(miss)[0], miss.layer) == ("Pad", key(net, "relu"))
    assert shown(why(net, "Addition{Convolution2d, Pooling2d{Pad}}", "sum", ordered=True))[0] == "Convolution2d"


def test_a_near_miss_inside_a_vocabulary_name_points_at_the_name(net: Net) -> None:
    miss = why(net, "Pooling2d{clamp}", "pool", vocabulary={"clamp": 'Activation[act == "ReLu" && a == 6]'})
    assert shown(miss) == ("clamp", "a == 6 is false: it is 0.0")


# Conditions


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("left", [0, 1])
def test_a_condition_nests_900_deep(left: int) -> None:
    net = Net()
    pool = net.layer("Pooling2d", net.input(SHAPE), params={"padLeft": left})
    condition = "padLeft == 1"
    for level in range(900):
        condition = f"({condition}) || padTop == 7" if level % 2 else f"({condition}) && padTop == 0"
    assert len(find(net, f"Pooling2d[{condition}]", pool)) == left


@pytest.mark.parametrize("bits", list(itertools.product([0, 1], repeat=4)))
def test_and_binds_closer_than_or(bits: tuple[int, ...]) -> None:
    net = Net()
    names = ("padLeft", "padRight", "padTop", "padBottom")
    pool = net.layer("Pooling2d", net.input(SHAPE), params=dict(zip(names, bits, strict=True)))
    a, b, c, d = (f"{name} == 1" for name in names)
    p, q, r, s = map(bool, bits)
    for text, truth in (
        (f"{a} && {b} || {c} && {d}", (p and q) or (r and s)),
        (f"{a} && ({b} || {c}) && {d}", p and (q or r) and s),
        (f"({a} || {b} && {c}) && ({d} || {a})", (p or (q and r)) and (s or p)),
        (f"{a} || ({b} || ({c} && ({d} || {b})))", p or (q or (r and (s or q)))),
    ):
        assert bool(find(net, f"Pooling2d[{text}]", pool)) is truth


@pytest.mark.parametrize("eps", [0.001, float(np.float32(0.001)), np.float32(0.001)])
def test_a_float_field_is_compared_as_the_file_stores_it(eps: Any) -> None:
    net = Net()
    ones = np.ones(2)
    norm = net.batch_norm(net.input(SHAPE), ones, ones, ones, ones, eps=eps)
    assert find(net, "BatchNormalization[eps == 0.001 && eps == 1e-3 && eps < 0.00100001]", norm)
    assert not find(net, "BatchNormalization[eps > 0.001 || eps < 0.001 || eps <> 0.001]", norm)


@pytest.mark.parametrize("value", ["one", (1, 2), None])
def test_a_value_of_the_wrong_kind_is_unknown(value: Any) -> None:
    net = Net()
    pool = net.layer("Pooling2d", net.input(SHAPE))
    net.graph.nodes[pool]["params"] = FrozenDict(padLeft=value)
    assert not find(net, "Pooling2d[padLeft < 3 || padLeft >= 3 || padLeft <> 3]", pool)


def test_a_layer_without_descriptor_has_defaults() -> None:
    net = Net()
    activation = net.activation(net.input(SHAPE))
    net.graph.nodes[activation]["params"] = None
    assert find(net, 'Activation[activationFunction == "Sigmoid" && a == 0]', activation)


def test_an_overridden_input_is_what_the_layer_sees() -> None:
    net = Net()
    info = TensorInfo((1, 2, 2, 5), "Float16")
    for overrides, text in (
        ({0: (True, info)}, 'Floor[input.elements == 20 && input0.dataType == "Float16"]'),
        ({0: (True, None)}, "Floor[input.elements == 8]"),
        ({0: (False, info)}, "Floor[input.elements == 8 && output.elements == 8]"),
    ):
        floor = net.layer("Floor", net.input(SHAPE), overrides=overrides)
        assert find(net, text, floor)


# Steps


def ladder(levels: int) -> tuple[Net, int]:
    """Levels of two Additions, each of both of the level before, and one on top."""
    net = Net()
    a, b = net.input(SHAPE), net.input(SHAPE)
    for _ in range(levels):
        a, b = net.addition(a, b), net.addition(a, b)
    return net, net.addition(a, b)


def floors(count: int) -> tuple[Net, int]:
    """A Concat of as many Floors over one Input."""
    net = Net()
    x = net.input(SHAPE)
    return net, net.layer("Concat", *(net.layer("Floor", x) for _ in range(count)), outputs=(TensorInfo(SHAPE),))


def test_more_bindings_than_steps_are_an_error_that_names_rule_and_root() -> None:
    net, concat = floors(30)
    most = MAX_STEPS + 30 * STEPS_PER_INPUT
    matches = compile_rule(FusingRule("Concat{Floor|?:0~}", into="It", name="many")).matches(
        Workspace(net.graph), concat
    )
    assert len(next(matches).layers) == 31  # the first needs few steps
    with pytest.raises(StepLimitError, match=rf"rule 'many' takes more than {most} steps at layer {concat} 'concat"):
        for _ in matches:
            pass


def test_steps_are_those_of_all_texts_together() -> None:
    net, concat = floors(9)
    text = "Concat{Floor|?:0~}"
    assert len(find(net, text, concat)) == 512
    with pytest.raises(FuseError, match="steps"):
        find(net, [text] * 10, concat)


def test_a_root_with_too_many_steps_is_explained_by_that() -> None:
    net = Net()
    relu = net.activation(net.input(SHAPE))
    concat = net.layer("Concat", outputs=(TensorInfo(SHAPE),))
    net.graph.add_edge(relu, concat, slots=tuple((0, slot) for slot in range(30)))
    # each binding takes the one ReLu in, and keeps it too
    matcher = compile_rule(FusingRule("Concat{Activation, Activation!|?:0~}", into="It", name="many"))
    miss = explain(matcher, Workspace(net.graph), concat)
    assert miss is not None
    assert (miss.layer, miss.pattern, miss.span) == (concat, None, None)
    assert miss.reason.startswith("rule 'many' takes more than 10240 steps at layer")
    assert explain(compile_rule(FusingRule("Concat{Activation|?:0~}")), Workspace(net.graph), concat) is None


def test_a_search_tells_the_roots_that_it_cannot_decide() -> None:
    net = Net()
    relu = net.activation(net.input(SHAPE))
    concat = net.layer("Concat", outputs=(TensorInfo(SHAPE),))
    net.graph.add_edge(relu, concat, slots=tuple((0, slot) for slot in range(30)))
    other = net.layer("Concat", relu, net.input(SHAPE), outputs=(TensorInfo(SHAPE),))
    top = net.layer("Concat", concat, other, outputs=(TensorInfo(SHAPE),))
    rule = FusingRule(["Concat{Activation, Activation!|?:2~}", "Concat{?, ?}"], group="It", name="many")
    undecided: list[str] = []
    places = list(search(net.graph, rule, undecided))
    assert [place.layers[0].index for place in places] == [other, top]
    (text,) = undecided
    assert f"steps at layer {concat} " in text
    with pytest.raises(StepLimitError):
        list(search(net.graph, rule))


def test_bindings_come_one_by_one() -> None:
    net, top = ladder(20)
    matcher = compile_rule(FusingRule("Addition{" * 20 + "Addition" + ", ?}" * 20, into="It"))
    first = next(matcher.matches(Workspace(net.graph), top))
    assert len(first.layers) == 21


def wide(count: int) -> tuple[Net, int]:
    """A Concat of the same Input, many times."""
    net = Net()
    x = net.input(SHAPE)
    concat = net.layer("Concat", outputs=(TensorInfo(SHAPE),))
    net.graph.add_edge(x, concat, slots=tuple((0, slot) for slot in range(count)))
    return net, concat


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Concat{" + "?:0~, " * 6 + "Softmax}", 0),
        ("Concat{(?, ?)|?:0~}", 1),
        ("Concat{(?, ?)|?:0~, Softmax}", 0),
        ("Concat{((?|Softmax):0~, ?)|?:0~, Softmax}", 0),
        ("Concat{((?:3)|(?:2)):0~}", 1),
        ("Concat{(?:3)|(?:2)|Softmax:0~, Softmax:1~}", 0),
        ("Concat{(Floor, Floor)|Floor:0~, Softmax}", 0),
        ('Concat{(Floor{?}, Floor{?})|Floor:0~, ?[name == ""]}'.replace('?[name == ""]', 'Floor[name == ""]'), 0),
    ],
)
def test_what_was_tried_is_not_tried_again(text: str, count: int) -> None:
    """Thousands of millions of ways each, of which all but a few hundred are alike."""
    for net, concat in (wide(41), floors(41)):
        if "Floor" not in text or len(net.graph) > 2:
            assert len(find(net, text, concat)) == count, text


def test_a_ladder_is_climbed_once() -> None:
    net, top = ladder(20)
    assert find(net, "Addition{" * 19 + "Softmax" + ", ?}" * 19, top) == []
    assert find(net, "Addition{" + "Addition{" * 18 + "?" + ", ?}" * 18 + ", Softmax}", top) == []
    miss = explain(compile_rule(FusingRule("Addition{" * 19 + "Softmax" + ", ?}" * 19)), Workspace(net.graph), top)
    assert miss is not None
    assert (miss.depth, miss.reason) == (19, "it is no Softmax")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Concat{?:0~}", 1),
        ("Concat{?:0~, Softmax}", 0),
        ("Concat{Softmax|?:0~}", 1),
        ("Concat{(?, ?)|?:0~}", 1),
        ("Concat{?:0~, ?:0~, Softmax}", 0),
    ],
)
def test_steps_grow_with_the_inputs(text: str, count: int) -> None:
    net, concat = wide(20_000)
    assert len(find(net, text, concat)) == count


def test_ways_to_bind_the_same_are_one_match() -> None:
    net, concat = wide(12)
    for text in ("Concat{?:0~, ?:0~}", "Concat{(?, ?)|?:0~}"):
        (match,) = find(net, text, concat)
        assert len(match.inputs) == 12


def test_what_fits_takes_a_step_an_input() -> None:
    net, concat = wide(MAX_STEPS - 10)
    assert len(find(net, f"Concat{{?:{MAX_STEPS - 10}}}", concat)) == 1


# Operands


@pytest.mark.parametrize("spelling", ["old", "new"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_a_clamp_is_found_with_its_constants_on_either_side(spelling: str, first: bool, second: bool) -> None:
    net = Net(spelling=spelling)
    x, low, high = net.input((1, 3)), net.constant([0.0]), net.constant([6.0])
    lower = net.binary("Maximum", *((x, low) if first else (low, x)))
    upper = net.binary("Minimum", *((lower, high) if second else (high, lower)))
    (match,) = find(net, "Minimum{Maximum{?, Constant}, Constant}", upper)
    assert match.layers == (upper, lower)
    assert match.constants == (low, high)
    assert [(edge.source.layer, edge.layer, edge.input_slot) for edge in match.inputs] == [
        (x, lower, 0 if first else 1)
    ]


@pytest.mark.parametrize("spelling", ["old", "new"])
@pytest.mark.parametrize("kind", ["Subtraction", "Division"])
def test_operands_that_do_not_commute_stay(spelling: str, kind: str) -> None:
    net = Net(spelling=spelling)
    x, c = net.input((1, 3)), net.constant([2.0])
    assert find(net, f"{kind}{{?, Constant}}", net.binary(kind, c, x)) == []
    assert len(find(net, f"{kind}{{?, Constant}}", net.binary(kind, x, c))) == 1


def test_one_operand_twice_is_one_binding() -> None:
    net = Net()
    relu = net.activation(net.input(SHAPE))
    total = net.addition(relu, relu)
    (match,) = find(net, "Addition{Activation, Activation}", total)
    assert (match.layers, [edge.layer for edge in match.inputs]) == ((total, relu), [relu])
    assert len(find(net, "Addition{?, ?}", total)) == 1


def test_two_slots_of_one_layer_are_two_inputs() -> None:
    net = Net()
    split = net.splitter(net.input(SHAPE), 3, (1, 1))
    difference = net.binary("Subtraction", (split, 1), (split, 0))
    (match,) = find(net, "Subtraction{?, ?}", difference)
    assert [(tuple(edge.source), edge.input_slot) for edge in match.inputs] == [((split, 1), 0), ((split, 0), 1)]


def test_inputs_of_a_layer_with_a_free_slot_go_by_slot() -> None:
    net = Net()
    x, y = net.input(SHAPE), net.input(SHAPE)
    workspace = Workspace(net.graph)
    concat = workspace.add("Concat", "late", (TensorInfo(SHAPE),), EMPTY, EMPTY)
    for slot, source in ((2, x), (0, y), (1, x)):
        workspace.graph.add_edge(source, concat)  # NetworkX's order of predecessors says nothing
        pairs = workspace.graph.edges[source, concat].get("slots", ())
        workspace.graph.edges[source, concat]["slots"] = (*pairs, (0, slot))
    (match,) = compile_rule(FusingRule("Concat{?:3}", into="It")).matches(workspace, concat)
    assert [edge.source.layer for edge in match.inputs] == [y, x, x]
