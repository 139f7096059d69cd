"""What the machine remembers to fail fails whatever was bound before: small cases in which it would not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fusion_engine as fe
from fusion_engine.match import compile_rule, machine
from fusion_engine.match.binding import Match
from fusion_engine.workspace import Workspace
from tests.support.naive import Naive
from tests.support.nets import Net


def found(net: Net, root: int, text: str, remember: int) -> list[Match]:
    """All bindings by the machine, which remembers from so many steps on."""
    rule = fe.FusingRule(text, into="It")
    matcher = replace(compile_rule(rule), simple=None)
    workspace = Workspace(net.graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "REMEMBER_AFTER", remember)
        result = list(matcher.matches(workspace, root))
    assert result == Naive(workspace.graph, rule, workspace.layout).matches(root)
    return result


@pytest.mark.parametrize("remember", [-1, 3, 10**9])
@pytest.mark.parametrize(
    "text",
    [
        "|nhwc|Concat{?|Pooling2d, ?:1~, ?:0~}",
        "|nhwc|Concat{?|Pooling2d, (?|Floor):1~, ?:0~}",
        "|nhwc|Concat{?|Pooling2d, (?, ?):0~1, ?:0~2}",
        "|nhwc|Concat{(?:0~1)|Pooling2d, ?:0~, Floor}",
        "|nhwc|Concat{?|Pooling2d, Floor{?|Floor:1~}, ?:0~}",
    ],
)
def test_a_layout_that_only_a_later_alternative_names(text: str, remember: int) -> None:
    """Passed by `?` the pooling is not in the scope, which then has no layout; named it is, the rest as before."""
    net = Net()
    x = net.input((1, 4, 4, 2))
    net.pool(x, (1, 1), layout="NCHW")  # so that the network has no layout of its own
    pooled = net.pool(x, (1, 1), layout="NHWC")
    floor, other = net.layer("Floor", net.layer("Floor", x)), net.layer("Floor", x)
    root = net.concat(pooled, floor, other, axis=3)
    net.output(root)
    matches = found(net, root, text, remember)
    assert matches
    assert all(pooled in match.layers for match in matches)


@pytest.mark.parametrize("remember", [-1, 3, 10**9])
@pytest.mark.parametrize(
    "text",
    [
        "Concat{?|Floor, ?:1~, Floor}",
        "Concat{?|Floor, (?|Floor):1~, Floor}",
        "Concat{Floor!|Floor, ?:1~, Floor}",
        "Concat{?|Floor, Floor|?, Floor|?}",
        "Concat{(?|Floor!):1~2, Floor:1~}",
    ],
)
def test_a_layer_that_is_bound_as_consumed_in_one_place_and_passed_in_another(text: str, remember: int) -> None:
    """Whether the rest fits depends on what the first alternative made of the layer that comes again."""
    net = Net()
    x = net.input((1, 4))
    floor, other = net.layer("Floor", x), net.layer("Floor", x)
    for sources in ((floor, other, floor), (floor, floor, floor), (other, other, floor)):
        root = net.concat(*sources, axis=1)
        found(net, root, text, remember)
