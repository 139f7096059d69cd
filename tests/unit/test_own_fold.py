"""The example of a third party's fold, and the page about it. tests/unit/test_pages.py installs it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import folds, plugins
from fusion_engine.network import FrozenDict, Network, edges_into
from fusion_engine.tensor import TensorInfo
from tests.support.nets import Net
from tests.support.pages import DOCS, ROOT, blocks

PACKAGE = ROOT / "examples" / "own_fold"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as if it were installed."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    point = EntryPoint("concat-chain", "concat_chain:FOLD", folds.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    for cached in (folds._plugins, folds.find_fold):
        cached.cache_clear()
    yield
    for cached in (folds._plugins, folds.find_fold):
        cached.cache_clear()
    sys.modules.pop("concat_chain", None)


def fused(graph: Network) -> Network:
    result = fe.fuse(graph, fe.load_rules(PACKAGE / "concat-chain.toml"))
    assert fe.validate(result) == ()
    return result


def computed(graph: Network) -> np.ndarray:
    """What the network's Output holds where input k holds the number k throughout: Concats by their view origins."""
    values: dict[int, np.ndarray] = {
        key: np.full(graph.nodes[key]["outputs"][0].shape, key) for key in graph.graph["inputs"]
    }
    waiting = [graph.graph["outputs"][0]]
    while waiting:
        key = waiting[-1]
        sources = [source.layer for _, source in edges_into(graph, key)]
        missing = [source for source in sources if source not in values]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if graph.nodes[key]["type"] == "Output":
            values[key] = values[sources[0]]
            continue
        whole = np.full(graph.nodes[key]["outputs"][0].shape, -1)
        for source, origin in zip(sources, graph.nodes[key]["params"]["viewOrigins"], strict=True):
            part = values[source]
            whole[tuple(slice(o, o + n) for o, n in zip(origin, part.shape, strict=True))] = part
        values[key] = whole
    return values[graph.graph["outputs"][0]]


def inputs(net: Net, count: int, **options: object) -> list[int]:
    return [net.input((1, 2 + k), name=f"in{k}", **options) for k in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["Concat", "Merger"])
def test_nested_concats_are_one(kind: str) -> None:
    """Inner ones first, last and in the middle, three levels deep; along different axes too."""
    net = Net()
    a, b, c, d = inputs(net, 4)
    deepest = net.concat(b, c, axis=1)
    deep = net.concat(a, deepest, d, axis=1)
    wide = net.concat(deep, net.input((1, 14), name="row"), axis=0)
    net.output(wide)
    for key in (deepest, deep, wide):
        net.graph.nodes[key]["type"] = kind
    result = fused(net.graph)
    assert [node["type"] for node in result.nodes.values()].count(kind) == 1
    assert result.nodes[wide]["params"]["numViews"] == 5
    assert np.array_equal(computed(result), computed(net.graph))
    assert -1 not in computed(result)


def test_a_concat_that_is_read_elsewhere_stays() -> None:
    net = Net()
    a, b, c = inputs(net, 3)
    inner = net.concat(a, b, axis=1)
    net.output(net.concat(inner, c, axis=1))
    net.output(inner)
    result = fused(net.graph)
    assert result.graph["fusions"] == ()
    assert fe.equal(result, net.graph)


def test_one_that_is_read_twice_stays() -> None:
    """The rule names the inner Concat once; the other input is any, and what is consumed is not any."""
    net = Net()
    inner = net.concat(*inputs(net, 2), axis=1)
    net.output(net.concat(inner, inner, axis=1))
    assert fused(net.graph).graph["fusions"] == ()


def quantized(scale: float) -> Network:
    net = Net(data_type="QAsymmU8")
    infos = [TensorInfo((1, 2), "QAsymmU8", 0.5, 3), TensorInfo((1, 4), "QAsymmU8", scale, 3)]
    a, b = (net.layer("Activation", net.input((1, 2), name=n), outputs=(infos[0],), name=f"act {n}") for n in "ab")
    inner = net.concat(a, b, axis=1, name="inner")
    net.graph.nodes[inner]["outputs"] = (infos[1],)
    outer = net.concat(inner, a, axis=1, name="outer")
    net.output(outer)
    return net.graph


def test_quantization() -> None:
    assert len(fused(quantized(0.5)).graph["fusions"]) == 1
    (refusal,) = fused(quantized(0.25)).graph["refusals"]
    assert re.fullmatch(r"layer \d+ 'act a' and layer \d+ 'outer' differ in data type or quantization", refusal.reason)


def test_what_a_file_lacks() -> None:
    net = Net()
    a, b, c = inputs(net, 3)
    inner = net.concat(a, b, axis=1, name="inner")
    outer = net.concat(inner, c, axis=1, name="outer")
    net.output(outer)
    whole = net.graph.nodes[inner]
    for attributes, reason in (
        ({"outputs": (None,)}, "has no TensorInfo for its output 0"),
        ({"params": FrozenDict(concatAxis=1)}, "has 2 inputs and 0 origins"),
        (
            {"params": FrozenDict(concatAxis=1, viewOrigins=((0,), (2,)))},
            "has origins of another rank than its output, 2",
        ),
        ({"overrides": FrozenDict({0: (True, None)})}, "overrides the TensorInfo of an input"),
    ):
        graph = net.graph.copy()
        graph.nodes[inner].update({**whole, **attributes})
        rules = fe.load_rules(PACKAGE / "concat-chain.toml")
        (refusal,) = fe.fuse(graph, rules).graph["refusals"]
        assert refusal.reason.endswith(reason), refusal.reason


def test_another_pattern_is_refused() -> None:
    net = Net()
    net.output(net.activation(net.concat(*inputs(net, 2), axis=1)))
    rule = fe.FusingRule("Activation{Concat}", fold="concat-chain")
    (refusal,) = fe.fuse(net.graph, rule).graph["refusals"]
    assert refusal.reason == "concat-chain takes a Concat over a Concat; the match holds Activation, Concat"


def test_the_page_shows_the_package() -> None:
    """What is on the page without a file name stands so in the package."""
    package = "".join(path.read_text("utf-8") for path in sorted(PACKAGE.glob("*.*")))
    shown = [block for block in blocks(DOCS / "own-folds.md") if block.kind in ("python", "toml") and not block.title]
    assert len(shown) == 6
    for block in shown:
        assert block.text in package, block.text
