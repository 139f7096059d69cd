"""Networks to verify, and folds that do what they should not, for tests of `verify`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import engine
from fusion_engine.folds import Fold
from fusion_engine.match.binding import Match
from fusion_engine.network import FrozenDict, Network, connect, disconnect
from fusion_engine.workspace import Workspace
from tests.support.nets import Net

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

RULES = {rule.name: rule for rule in fe.load_rules("armnn")}


def conv_net(above: Callable[[Net, int], int], *, seed: int = 3, data_type: str = "Float32") -> Network:
    """Input, a 3x3 convolution of 2 to 4 channels, something above it, ReLu, Output."""
    random = np.random.default_rng(seed)
    net = Net(data_type=data_type)
    x = net.input((1, 6, 5, 2))
    conv = net.conv(x, random.uniform(-1, 1, (4, 3, 3, 2)), random.uniform(-1, 1, 4), name="conv")
    net.output(net.activation(above(net, conv), name="relu"))
    return net.graph


def normed(net: Net, x: int) -> int:
    random = np.random.default_rng(8)
    drawn = [random.uniform(-1, 1, 4) for _ in range(3)]
    return net.batch_norm(x, *drawn, random.uniform(0.1, 2, 4), name="norm")


def checked(graph: Network, rule: str | fe.FusingRule, status: str = "verified") -> fe.Verification:
    """What verify says of a network after one rule, which must fire."""
    fused = fe.fuse(graph, RULES[rule] if isinstance(rule, str) else rule)
    assert fused.graph["fusions"], fused.graph["refusals"]
    found = fe.verify(graph, fused)
    assert found.status == status, found.regions
    assert [check.fusion for check in found.fusions] == list(fused.graph["fusions"])
    return found


def rule_of(apply: Callable[..., int | None], text: str, **options: Any) -> fe.FusingRule:
    """A rule whose fold does as it is told; the fixture `anything_goes` lets the engine find it."""
    rule = fe.FusingRule(text, fold="batch-norm", name=f"wrong {len(FOLDS)}")
    FOLDS[rule.name] = Fold(lambda workspace, match: None, lambda w, m, p: apply(w, m, p, **options))
    return rule


FOLDS: dict[str, Fold] = {}


@pytest.fixture
def anything_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine takes the folds of `rule_of`, by the rule's name."""
    of = engine._Runner.of.__func__  # type: ignore[attr-defined]

    def with_own(cls: Any, rule: fe.FusingRule) -> Any:
        runner = of(cls, rule)
        runner.fold = FOLDS.get(rule.name, runner.fold)
        return runner

    monkeypatch.setattr(engine._Runner, "of", classmethod(with_own))


def dropped(workspace: Workspace, match: Match, plan: None, below: bool = False) -> int | None:
    """Drop the root (and with ``below`` what feeds it), whatever it does."""
    source = workspace.inputs(match.root)[0][1]
    if below:
        under = source.layer
        source = workspace.inputs(under)[0][1]
    for use in workspace.uses(match.root):
        workspace.disconnect(use.layer, use.input_slot)
        workspace.connect(source, use.layer, use.input_slot)
    workspace.remove(match.root)
    if below:
        workspace.remove(under)
    return None


def replaced(kind: str, params: dict[str, Any], **attributes: Any) -> Callable[..., int]:
    """A fold that makes the root another layer over what fed the layer below it."""

    def apply(workspace: Workspace, match: Match, plan: None) -> int:
        root = match.root
        below = workspace.inputs(root)[0][1].layer
        source = workspace.inputs(below)[0][1]
        for slot, _ in workspace.inputs(root):
            fed = workspace.disconnect(root, slot)
            workspace.drop_unused([fed.layer])
        workspace.remove(below)
        workspace.set(root, type=kind, params=FrozenDict(params), **attributes)
        workspace.connect(source, root, 0)
        return root

    return apply


def rewired(graph: Network, reader: int, slot: int, source: int) -> Network:
    """The network with one input read from another layer; what nothing reads any more is gone."""
    found = graph.copy()
    disconnect(found, reader, slot)
    connect(found, source, reader, 0, slot)
    gone = [key for key in found if found.nodes[key]["type"] != "Output" and not found.out_degree(key)]
    while gone:
        found.remove_nodes_from(gone)
        gone = [key for key in found if found.nodes[key]["type"] != "Output" and not found.out_degree(key)]
    return found
