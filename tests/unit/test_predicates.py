"""Predicates: functions of installed packages that a rule's ``when`` names."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import plugins, predicates
from fusion_engine.cli import main
from fusion_engine.language.rulefile import check_file
from fusion_engine.network import FrozenDict, Network
from fusion_engine.predicates import ENTRY_POINTS, Captures, read_only
from tests.support.nets import Net

ROOT = Path(__file__).resolve().parents[2]

_asked: list[tuple[Network, Captures]] = []
_answer: Any = True


def answers(graph: Network, match: Captures) -> Any:
    """The predicate of these tests: notes what it is asked, and answers what the test wants."""
    _asked.append((graph, match))
    return _answer(graph, match) if callable(_answer) else _answer


NO_FUNCTION = 5


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Call with (name, value) pairs: what installed packages register."""

    def registered(*points: tuple[str, str]) -> None:
        found = [EntryPoint(name, value, ENTRY_POINTS) for name, value in points]
        monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == ENTRY_POINTS else [])
        predicates._plugins.cache_clear()

    yield registered
    predicates._plugins.cache_clear()


@pytest.fixture
def answering(register: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Call with the answer of the predicate ``fits``, or a function of its arguments that gives it."""
    monkeypatch.setattr(sys.modules[__name__], "_asked", [])
    register(("fits", f"{__name__}:answers"))

    def answer(value: Any) -> None:
        monkeypatch.setattr(sys.modules[__name__], "_answer", value)

    # the entry point must find this module, whatever name pytest imports it by
    assert EntryPoint("fits", f"{__name__}:answers", ENTRY_POINTS).load() is answers
    return answer


def two_convs() -> tuple[Net, dict[str, int]]:
    """x -> first -> relu -> second -> clip -> y."""
    net = Net()
    keys = {"x": net.input((1, 2, 2, 1), name="x")}
    keys["first"] = net.conv(keys["x"], np.ones((1, 1, 1, 1)), name="first")
    keys["relu"] = net.activation(keys["first"], "ReLu", name="relu")
    keys["second"] = net.conv(keys["relu"], np.ones((1, 1, 1, 1)), name="second")
    keys["clip"] = net.activation(keys["second"], "BoundedReLu", a=6.0, name="clip")
    keys["y"] = net.output(keys["clip"], name="y")
    return net, keys


TEXT = "Activation{Convolution2d}"


def rule(text: str | list[str] = TEXT, **options: Any) -> fe.FusingRule:
    return fe.FusingRule(text, **{"into": "ConvAct", "when": "fits", **options})


def made(graph: Network) -> list[tuple[str, str]]:
    return [(fusion.result, fusion.layers[0].name) for fusion in graph.graph["fusions"]]


def refused(graph: Network) -> list[tuple[str, str, str]]:
    return [(refusal.rule, refusal.layer.name, refusal.reason) for refusal in graph.graph["refusals"]]


# Answers


@pytest.mark.parametrize("yes", [True, np.True_])
def test_yes(answering: Any, yes: Any) -> None:
    net, _ = two_convs()
    answering(yes)
    fused = fe.fuse(net.graph, rule())
    assert made(fused) == [("ConvAct", "relu"), ("ConvAct", "clip")]
    assert refused(fused) == []


@pytest.mark.parametrize("no", [False, np.False_])
def test_no(answering: Any, no: Any) -> None:
    net, _ = two_convs()
    answering(no)
    fused = fe.fuse(net.graph, rule())
    assert fe.equal(fused, net.graph)
    assert refused(fused) == [
        ("ConvAct", "relu", "predicate 'fits' says no"),
        ("ConvAct", "clip", "predicate 'fits' says no"),
    ]


def test_a_reason(answering: Any) -> None:
    net, keys = two_convs()
    answering(lambda graph, match: match.root == keys["clip"] or "ReLu is not for us")
    fused = fe.fuse(net.graph, rule())
    assert made(fused) == [("ConvAct", "clip")]
    assert refused(fused) == [("ConvAct", "relu", "predicate 'fits' says: ReLu is not for us")]


@pytest.mark.parametrize("answer", [None, 1, 0, "", (True, "why"), np.array([True]), b"yes"])
def test_what_is_no_answer(answering: Any, answer: Any) -> None:
    net, keys = two_convs()
    answering(answer)
    with pytest.raises(fe.FuseError, match="it must answer True, False or a text that says why not") as caught:
        fe.fuse(net.graph, rule(name="mine"))
    assert f"on the match of rule 'mine' at layer {keys['relu']} 'relu'" in str(caught.value)
    assert f"predicate 'fits' of an unknown package ({__name__}:answers)" in str(caught.value)


@pytest.mark.parametrize(
    "error", [ValueError("no table"), KeyError("x"), RecursionError("deep"), nx.NetworkXError("?")]
)
def test_an_exception_of_it(answering: Any, error: Exception) -> None:
    net, keys = two_convs()

    def fails(graph: Network, match: Captures) -> bool:
        raise error

    answering(fails)
    with pytest.raises(fe.FuseError, match="repair or uninstall that package") as caught:
        fe.fuse(net.graph, rule())
    assert f"predicate 'fits' of an unknown package ({__name__}:answers) failed" in str(caught.value)
    assert f"layer {keys['relu']} 'relu': {type(error).__name__}: {error}" in str(caught.value)
    assert caught.value.__cause__ is error


def test_with_groups_and_folds_and_their_own_refusals(answering: Any) -> None:
    net, _ = two_convs()
    answering(True)
    assert made(fe.fuse(net.graph, rule(into=None, group="Pair"))) == [("Pair", "relu"), ("Pair", "clip")]
    norms = Net()
    x = norms.input((1, 2, 2, 1), name="x")
    norm = norms.batch_norm(norms.conv(x, np.ones((1, 1, 1, 1))), [2], [0], [0], [1], name="norm")
    norms.output(norm, name="y")
    folding = rule("BatchNormalization{Convolution2d}", into=None, fold="batch-norm")
    assert len(fe.fuse(norms.graph, folding).graph["fusions"]) == 1
    answering("not today")
    fused = fe.fuse(norms.graph, folding)
    assert refused(fused) == [("batch-norm", "norm", "predicate 'fits' says: not today")]


def test_is_asked_about_safe_matches_only(answering: Any) -> None:
    net, keys = two_convs()
    net.output(keys["first"], name="tap")
    answering(True)
    fused = fe.fuse(net.graph, rule())
    assert made(fused) == [("ConvAct", "clip")]
    assert {match.root for _, match in _asked} == {keys["clip"]}
    (refusal,) = refused(fused)
    assert "is an output of the network too" in refusal[2]


def test_a_no_makes_the_next_way_be_tried(answering: Any) -> None:
    net = Net()
    x = net.input((1, 2, 2, 1), name="x")
    left = net.activation(x, "ReLu", name="left")
    right = net.activation(x, "TanH", name="right")
    add = net.addition(left, right, name="add")
    net.output(add, name="y")
    answering(lambda graph, match: graph.nodes[match.of("Activation")[0]]["name"] == "right" or "left is not ours")
    fused = fe.fuse(net.graph, rule("Addition{Activation, ?}", into="ActAdd"))
    (fusion,) = fused.graph["fusions"]
    assert [layer.name for layer in fusion.layers] == ["add", "right"]
    assert [match.layers for _, match in _asked[:2]] == [(add, left), (add, right)]
    assert refused(fused) == []


# What it sees


def test_captures(answering: Any) -> None:
    net = Net()
    x = net.input((1, 2, 2, 1), name="x")
    convs = [net.conv(x, np.ones((1, 1, 1, 1)), name=f"conv{i}") for i in range(3)]
    pad = net.pad(convs[2], [(0, 0)] * 4, name="pad")
    three = net.constant(np.full((1, 2, 2, 1), 3.0), name="three")
    concat = net.concat(*convs[:2], pad, three, axis=3, name="concat")
    soft = net.layer("Softmax", concat, name="soft")
    net.output(soft, name="y")
    seen: list[Captures] = []
    answering(lambda graph, match: seen.append(match) or False)
    text = "Softmax{Concat{Pooling2d|Convolution2d:2, Pad{Convolution2d}!, Constant}}"
    fe.fuse(net.graph, rule([text, "Softmax{Floor}"], into="Wide", name="wide"))
    first = seen[0]
    assert (first.rule, first.root, first.layers) == ("wide", soft, (soft, concat, convs[0], convs[1]))
    assert first.kept == (pad, convs[2])
    assert first.constants == (three,)
    assert [(edge.source.layer, edge.layer, edge.input_slot) for edge in first.inputs] == [
        (x, convs[0], 0),
        (x, convs[1], 0),
        (pad, concat, 2),
    ]
    assert [(place.type, place.layers) for place in first.places] == [
        ("Softmax", (soft,)),
        ("Concat", (concat,)),
        ("Pooling2d", ()),
        ("Convolution2d", (convs[0], convs[1])),
        ("Pad", (pad,)),
        ("Convolution2d", (convs[2],)),
        ("Constant", (three,)),
        ("Softmax", ()),
        ("Floor", ()),
    ]
    assert first.of("Convolution2d") == tuple(convs)
    assert first.of("Pooling2d") == first.of("nothing") == ()


def test_a_fold_without_match_has_its_layers(answering: Any) -> None:
    net, keys = two_convs()
    dead = net.activation(keys["relu"], "TanH", name="dead")
    end = net.layer("Floor", dead, name="end")
    answering("it is for debugging")
    fused = fe.fuse(net.graph, fe.FusingRule(fold="dead-ends", when="fits"))
    assert [(match.root, match.layers, match.places, match.inputs) for _, match in _asked] == [
        (end, (end, dead), (), ())
    ]
    assert refused(fused) == [("dead-ends", "end", "predicate 'fits' says: it is for debugging")]


def test_the_graph_is_that_of_the_moment(answering: Any) -> None:
    net, keys = two_convs()
    types: list[list[str]] = []
    answering(lambda graph, match: types.append([node["type"] for _, node in graph.nodes(data=True)]) or True)
    fe.fuse(net.graph, rule())
    assert types[0].count("StandIn") == 0
    assert types[1].count("StandIn") == 1
    assert len(_asked) == 2
    assert keys["first"] not in _asked[1][0]


def test_the_graph_cannot_be_changed(answering: Any) -> None:
    net, keys = two_convs()
    attempts: dict[str, Callable[[Any], Any]] = {
        "add a layer": lambda graph: graph.add_node(99),
        "remove a layer": lambda graph: graph.remove_node(keys["x"]),
        "remove an edge": lambda graph: graph.remove_edge(keys["first"], keys["relu"]),
        "set an attribute": lambda graph: graph.nodes[keys["relu"]].__setitem__("name", "mine"),
        "update attributes": lambda graph: graph.nodes[keys["relu"]].update(name="mine"),
        "set a parameter": lambda graph: graph.nodes[keys["clip"]]["params"].__setitem__("a", 1.0),
        "change slots": lambda graph: graph.edges[keys["first"], keys["relu"]].update(slots=()),
        "change successors": lambda graph: graph.succ[keys["first"]].clear(),
        "change predecessors": lambda graph: graph.pred[keys["relu"]][keys["first"]].clear(),
        "change the network's": lambda graph: graph.graph.update(dialect="seed"),
        "clear it": lambda graph: graph.clear(),
        "write a tensor": lambda graph: weights(graph).data.__setitem__(0, 0),
    }

    def weights(graph: Network) -> fe.Tensor:
        (key,) = (s for s in graph.predecessors(keys["first"]) if graph.nodes[s]["type"] == "Constant")
        tensor: fe.Tensor = graph.nodes[key]["constants"]["input"]
        return tensor

    failed: list[str] = []

    def attempt(graph: Network, match: Captures) -> bool:
        for what, change in attempts.items():
            try:
                change(graph)
            except (nx.NetworkXError, TypeError, AttributeError, ValueError):
                failed.append(what)
        return False

    answering(attempt)
    fused = fe.fuse(net.graph, rule())
    assert failed == [*attempts, *attempts]
    assert fe.equal(fused, net.graph)


def test_the_view_is_a_network_like_any_other() -> None:
    net, keys = two_convs()
    view = read_only(net.graph)
    assert fe.difference(view, net.graph) is None
    assert fe.validate(view) == ()
    assert fe.dumps(view) == fe.dumps(net.graph)
    assert list(nx.topological_sort(view)) == list(nx.topological_sort(net.graph))
    assert nx.ancestors(view, keys["relu"]) == nx.ancestors(net.graph, keys["relu"])
    copied = view.copy()
    copied.nodes[keys["relu"]]["name"] = "mine"
    copied.add_node(99, type="Floor")
    assert net.graph.nodes[keys["relu"]]["name"] == "relu"
    assert 99 not in net.graph
    assert 99 not in view
    net.graph.add_node(98, type="Floor", params=FrozenDict())
    assert 98 in view


# Names


def test_an_unknown_name(register: Any) -> None:
    register(("fits-npu", "a:b"), ("other", "a:c"))
    with pytest.raises(fe.RuleError, match=r"there is no predicate 'fit-npu' \(did you mean 'fits-npu'\?\)") as caught:
        rule(when="fit-npu")
    assert "there are: fits-npu, other (a package registers one under" in str(caught.value)
    register()
    with pytest.raises(fe.RuleError, match="'fits'; no installed package has any"):
        rule()
    with pytest.raises(fe.RuleError, match="when of a rule is a str, not int '5'"):
        rule(when=5)


def test_an_unknown_name_in_a_file(register: Any, tmp_path: Path) -> None:
    register(("fits", "a:b"))
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[rule]]\nname = "one"\nmatch = "Softmax{Addition}"\nwhen = "fist"\n\n'
        '[[rule]]\nmatch = "Softmax{Addition}"\nwhen = 5\n\n'
        '[[rule]]\nmatch = "Softmax{Addition}"\ninto = "Sum"\nwhen = "fits"\n'
    )
    errors = check_file(file)
    assert [(error.line, error.column, error.rule) for error in errors] == [(4, 8, "one"), (8, 8, "#2")]
    assert errors[0].reason.startswith("there is no predicate 'fist' (did you mean 'fits'?)")
    assert errors[1].reason == "when is a string, not an integer"


def test_rules_keep_it(answering: Any) -> None:
    mine = rule()
    assert mine.when == "fits"
    assert mine != rule(when=None)
    assert pickle.loads(pickle.dumps(mine)) == mine
    assert pickle.loads(pickle.dumps(mine)).when == "fits"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module_anywhere:fits", "cannot be loaded: ModuleNotFoundError"),
        (f"{__name__}:no_such_name", "cannot be loaded: AttributeError"),
        (f"{__name__}:NO_FUNCTION", "is a int: its entry point must name a function of a graph and a match"),
    ],
)
def test_a_broken_package(register: Any, value: str, reason: str) -> None:
    register(("fits", value))
    net, _ = two_convs()
    with pytest.raises(fe.FuseError, match=reason) as caught:
        fe.fuse(net.graph, rule())
    assert f"predicate 'fits' of an unknown package ({value})" in str(caught.value)


def test_a_broken_package_is_told_before_any_work(register: Any, tmp_path: Path, capsys: Any) -> None:
    register(("fits", "no_such_module_anywhere:fits"))
    (tmp_path / "mine.toml").write_text('[[rule]]\nmatch = "Softmax{Addition}"\nwhen = "fits"\n')
    models = ROOT / "examples" / "models"
    out = tmp_path / "out"
    assert main(["fuse", str(models), "--out", str(out), "--rules", str(tmp_path / "mine.toml")]) == 2
    assert "cannot be loaded" in capsys.readouterr().err
    assert not out.exists()


def test_two_packages_claim_a_name(register: Any) -> None:
    register(("fits", "b:f"), ("fits", "a:f"), ("fits", "a:f"))
    net, _ = two_convs()
    with pytest.raises(fe.FuseError, match=r"claimed by an unknown package \(a:f\) and an unknown package \(b:f\)"):
        fe.fuse(net.graph, rule())


# A package that is really installed

PACKAGE = '''
"""What the hardware of this test can do."""

from fusion_engine.network import param


def fits(graph, match):
    """At most 16 output channels in all convolutions of the match together."""
    channels = sum(graph.nodes[key]["outputs"][0].shape[-1] for key in match.of("Convolution2d"))
    if any(param(graph, key, "strideX") != param(graph, key, "strideY") for key in match.of("Convolution2d")):
        return "strides differ"
    return channels <= 16 or f"{channels} output channels, and the hardware has room for 16"


def broken(graph, match):
    raise RuntimeError("the table of shapes is missing")
'''

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "my-npu"
version = "1.0"

[project.entry-points."fusion_engine.predicates"]
my-npu-fits = "my_npu_predicates:fits"
my-npu-broken = "my_npu_predicates:broken"

[tool.hatch.build.targets.wheel]
include = ["my_npu_predicates.py"]
"""

RULES = """
[[rule]]
name  = "conv-act"
match = "Activation{Convolution2d}"
into  = "ConvAct"
when  = "my-npu-fits"
"""

SCRIPT = """
import json, sys
import fusion_engine as fe
fused = fe.fuse(fe.load(sys.argv[1]), fe.load_rules(sys.argv[2]))
found = [[f.rule, f.layers[0].name] for f in fused.graph["fusions"]]
print(json.dumps([found, [[r.layer.name, r.reason] for r in fused.graph["refusals"]]]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package in it, as pip installs it."""
    source = tmp_path_factory.mktemp("my-npu")
    (source / "my_npu_predicates.py").write_text(PACKAGE)
    (source / "pyproject.toml").write_text(PYPROJECT)
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*pip, "--target", site, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions of 8, 16 and 17 output channels, and one whose strides differ, each with an Activation."""
    net = Net()
    x = net.input((1, 4, 4, 1), name="x")
    for channels, stride in ((8, (1, 1)), (16, (1, 1)), (17, (1, 1)), (4, (2, 1))):
        params = {"strideX": stride[0], "strideY": stride[1]}
        conv = net.conv(x, np.ones((channels, 1, 1, 1)), **params)
        net.output(net.activation(conv, "ReLu", name=f"act{channels}"), name=f"y{channels}")
    path = tmp_path_factory.mktemp("models") / "model.armnn"
    fe.save(net.graph, path)
    return path


def python(site: Path, *arguments: str | Path, seed: str = "0") -> subprocess.CompletedProcess[str]:
    """A fresh Python that has the package."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))), "PYTHONHASHSEED": seed}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_an_installed_package(installed: Path, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "my-npu.toml"
    file.write_text(RULES)
    runs = [python(installed, "-c", SCRIPT, model, file, seed=seed) for seed in ("0", "1")]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    reason = "17 output channels, and the hardware has room for 16"
    assert runs[0].stdout.strip() == (
        '[[["conv-act", "act8"], ["conv-act", "act16"]], '
        f"""[["act17", "predicate 'my-npu-fits' says: {reason}"], """
        """["act4", "predicate 'my-npu-fits' says: strides differ"]]]"""
    )
    lint = python(installed, "-m", "fusion_engine", "lint", file)
    assert (lint.returncode, lint.stdout) == (0, "1 file, 1 rule, no errors\n")


def test_an_installed_package_that_fails(installed: Path, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "my-npu.toml"
    file.write_text(RULES.replace("my-npu-fits", "my-npu-broken"))
    done = python(installed, "-m", "fusion_engine", "fuse", model, "--out", tmp_path / "out", "--rules", file)
    assert done.returncode == 1
    assert "predicate 'my-npu-broken' of my-npu (my_npu_predicates:broken) failed on the match" in done.stdout
    assert "RuntimeError: the table of shapes is missing: repair or uninstall that package" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_without_the_package(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "my-npu.toml"
    file.write_text(RULES)
    done = python(tmp_path, "-m", "fusion_engine", "lint", file)
    assert done.returncode == 2
    assert f"{file}:6:9 (rule 'conv-act'): there is no predicate 'my-npu-fits'" in done.stdout


# Limits that the language tells


def sized(kernel: int, channels: int, inputs: int) -> Network:
    """x -> conv -> relu -> y; weights of kernel * kernel * channels * inputs * 4 bytes."""
    net = Net()
    x = net.input((1, 8, 8, inputs), name="x")
    conv = net.conv(x, np.ones((channels, kernel, kernel, inputs)), name="conv")
    net.output(net.activation(conv, "ReLu", name="relu"), name="y")
    return net.graph


@pytest.mark.parametrize("form", ["conv", "depthwise", "fully_connected"])
@pytest.mark.parametrize("where", ["constant", "member"])
def test_weights_in_conditions_in_both_forms(form: str, where: str) -> None:
    """The limits know weights wherever they are, by the layout that they have."""
    net = Net(form=where, feature_versions=(1, 1, 1))
    x = net.input((1, 4), name="x") if form == "fully_connected" else net.input((1, 4, 4, 4), name="x")
    match form:
        case "conv":
            layer, size, channels = net.conv(x, np.ones((6, 3, 3, 4)), name="w"), 6 * 3 * 3 * 4 * 4, 6
        case "depthwise":
            layer, size, channels = net.depthwise(x, np.ones((1, 3, 3, 4)), name="w"), 3 * 3 * 4 * 4, 4
        case _:
            layer, size, channels = net.fully_connected(x, np.ones((4, 6)), name="w"), 4 * 6 * 4, 6
    net.output(net.activation(layer, "ReLu", name="relu"), name="y")
    kind = net.graph.nodes[layer]["type"]
    for limits, fits in (
        (f"weights.bytes <= {size} && channels <= {channels}", True),
        (f"weights.bytes < {size}", False),
        (f"channels < {channels}", False),
        (f"weights.elements == {size // 4}", True),
    ):
        kernel = "" if form == "fully_connected" else "kernel.w <= 3 && kernel.h <= 3 && "
        fused = fe.fuse(net.graph, fe.FusingRule(f"Activation{{{kind}[{kernel}{limits}]}}", into="Fits"))
        assert bool(fused.graph["fusions"]) == fits, limits


@pytest.mark.parametrize(
    ("kernel", "channels", "inputs", "fits"),
    [
        (3, 32, 32, True),  # 36,864 bytes
        (3, 512, 3, True),  # 55,296 bytes
        (4, 32, 32, False),  # kernel
        (1, 513, 1, False),  # channels
        (1, 512, 32, True),  # 65,536 bytes
        (1, 512, 33, False),  # 67,584 bytes
    ],
)
def test_hardware_limits_in_a_condition(kernel: int, channels: int, inputs: int, fits: bool, tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    limits = "kernel.w <= 3 && channels <= 512 && weights.bytes <= 65536"
    file.write_text(f"[[rule]]\nmatch = 'Activation{{Convolution2d[{limits}]}}'\ninto = 'ConvAct'\n")
    fused = fe.fuse(sized(kernel, channels, inputs), fe.load_rules(file))
    assert [fusion.result for fusion in fused.graph["fusions"]] == ["ConvAct"] * fits
    assert fused.graph["refusals"] == ()
