"""Netron, the viewer, opens what is written here and shows the layers, connections and tensors that are in it.

Its own scripts do so under Node. They know the file by its suffix, take positions for indices, and have
no name for Signed64: a tensor of that type they refuse by themselves, whoever wrote the file.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.network import Network, complete_params, edges_into
from fusion_engine.schema import schema
from tests.support.nets import Net

SCRIPT = Path(__file__).parents[1] / "support" / "netron.mjs"
SIGNED64 = "Error loading Arm NN model.: Unsupported data type '10'."

TYPES = {
    "Float16": "float16",
    "Float32": "float32",
    "QuantisedAsymm8": "quint8",
    "Signed32": "int32",
    "Boolean": "boolean",
    "QuantisedSymm16": "qint16",
    "QAsymmU8": "quint8",
    "QSymmS16": "qint16",
    "QAsymmS8": "qint8",
    "QSymmS8": "qint8",
}
"""DataTypes as Netron calls them."""

NESTED = {"Lstm", "QLstm", "QuantizedLstm", "UnidirectionalSequenceLstm"}
"""Layers whose tensors lie in tables of their own, into which Netron does not look."""

GROUPS = [
    fe.FusingRule("Activation{Convolution2d}", group="ConvActivation"),
    fe.FusingRule("Activation{DepthwiseConvolution2d}", group="DepthwiseActivation"),
    fe.FusingRule("Activation{FullyConnected}", group="DenseActivation"),
]


@pytest.fixture(scope="session")
def netron(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Path]], list[dict[str, Any]]]:
    """What Netron shows of files."""
    node, found = shutil.which("node"), importlib.util.find_spec("netron")
    if node is None:
        pytest.skip("there is no Node.js (the command node)")
    if found is None or found.origin is None:
        pytest.skip("there is no Netron: pip install netron")
    folder = tmp_path_factory.mktemp("netron")
    for script in Path(found.origin).parent.glob("*.js"):
        shutil.copy(script, folder)
    shutil.copy(Path(found.origin).parent / "armnn-metadata.json", folder)
    (folder / "package.json").write_text('{"type": "module"}')

    def show(files: list[Path]) -> list[dict[str, Any]]:
        paths = "".join(f"{file}\n" for file in files)
        command = [node, str(SCRIPT), str(folder)]
        done = subprocess.run(command, input=paths, capture_output=True, text=True, encoding="utf-8", timeout=300)
        assert done.returncode == 0, done.stderr
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(shown) == len(files)
        return shown

    return show


def expected(graph: Network) -> dict[str, Any]:
    """What Netron should show of a network whose keys are positions: a Constant read once stands with its reader."""
    return {
        "format": "Arm NN",
        "inputs": [(graph.nodes[key]["name"], *tensor(graph, key, 0)) for key in of_type(graph, "Input")],
        "outputs": [
            (graph.nodes[key]["name"], *tensor(graph, *edges_into(graph, key)[0][1]))
            for key in of_type(graph, "Output")
        ],
        "nodes": [node(graph, key) for key in shown_keys(graph)],
    }


def shown_keys(graph: Network) -> list[int]:
    """The layers that Netron shows as nodes."""
    once = {key for key in of_type(graph, "Constant") if uses(graph, key) == 1}
    return [key for key in sorted(graph) if key not in once and kind(graph, key) not in ("Input", "Output")]


def kind(graph: Network, key: int) -> str:
    found: str = graph.nodes[key]["type"]
    return found


def of_type(graph: Network, name: str) -> list[int]:
    return [key for key in sorted(graph) if kind(graph, key) == name]


def uses(graph: Network, key: int) -> int:
    return sum(len(data["slots"]) for data in graph.succ[key].values())


Shown = tuple[str, str, list[int], str | None]
"""A tensor: what Netron calls it, its type, shape, and the SHA-256 of its bytes where it is constant."""


def tensor(graph: Network, key: int, slot: int) -> Shown:
    info = graph.nodes[key]["outputs"][slot]
    constant = kind(graph, key) == "Constant" and uses(graph, key) == 1
    data = member(graph.nodes[key]["constants"]["input"])[3] if constant else None
    return (f"{key}:{slot}", TYPES[info.data_type], list(info.shape), data)


def member(one: fe.Tensor) -> Shown:
    return ("", TYPES[one.info.data_type], list(one.info.shape), sha256(one.tobytes()).hexdigest())


def node(graph: Network, key: int) -> tuple[Any, ...]:
    members = [] if kind(graph, key) in NESTED else [member(one) for one in graph.nodes[key]["constants"].values()]
    connected = [tensor(graph, *source) for _, source in edges_into(graph, key)]
    made = [tensor(graph, key, slot) for slot in range(len(graph.nodes[key]["outputs"]))]
    return (kind(graph, key), graph.nodes[key]["name"], connected, sorted(members), made)


def seen(shown: dict[str, Any]) -> dict[str, Any]:
    """What Netron shows, in the form of `expected`."""

    def shown_tensor(value: dict[str, Any]) -> Shown:
        return (value["name"], value["type"], value["shape"], value["data"])

    def end(value: dict[str, Any]) -> tuple[Any, ...]:
        return (value["label"], *shown_tensor(value))

    return {
        "format": shown["format"],
        "inputs": [end(one) for one in shown["inputs"]],
        "outputs": [end(one) for one in shown["outputs"]],
        "nodes": [
            (
                one["type"],
                one["name"],
                [shown_tensor(value) for value in one["inputs"] if value["name"]],
                sorted(shown_tensor(value) for value in one["inputs"] if not value["name"]),
                [shown_tensor(value) for value in one["outputs"]],
            )
            for one in shown["nodes"]
        ],
    }


def numbers(graph: Network, key: int) -> dict[str, Any]:
    """The descriptor's numbers and truth values by field; Netron shows enum values in its own way."""
    known = schema().layers[kind(graph, key)].descriptor
    if known is None or graph.nodes[key].get("params") is None:
        return {}
    params = complete_params(known, graph.nodes[key]["params"], schema())
    return {field.name: params[field.name] for field in known.fields if field.kind == "scalar"}


def check(shown: dict[str, Any], file: Path) -> None:
    graph = fe.load(file)
    assert "error" not in shown, (file, shown)
    assert seen(shown) == expected(graph), file
    for key, one in zip(shown_keys(graph), shown["nodes"], strict=True):
        ours = numbers(graph, key)
        theirs = {name: one["attributes"][name] for name in ours if name in one["attributes"]}
        assert theirs == pytest.approx({name: ours[name] for name in theirs}, nan_ok=True), (file, key)


def written(graph: Network, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(fe.dumps(graph))
    return file


def test_opens_every_corpus_file_as_it_is_written(
    netron: Callable[[list[Path]], list[dict[str, Any]]], corpus: Path, tmp_path: Path
) -> None:
    files = [
        written(fe.load(file), tmp_path / file.parent.name / file.name) for file in sorted(corpus.rglob("*.armnn"))
    ]
    for file, shown in zip(files, netron(files), strict=True):
        check(shown, file)


@pytest.mark.parametrize("rules", ["armnn", "armnn npu", "npu", "groups"])
def test_opens_what_is_fused(
    netron: Callable[[list[Path]], list[dict[str, Any]]], corpus: Path, tmp_path: Path, rules: str
) -> None:
    chosen = GROUPS if rules == "groups" else fe.load_rules(*rules.split())
    files = []
    for file in sorted(corpus.rglob("*.armnn")):
        if not file.name.startswith(("deep_", "wide_")):
            fused = fe.fuse(fe.load(file), chosen)
            if fused.graph["fusions"]:
                files.append(written(fused, tmp_path / file.parent.name / file.name))
    assert len(files) > 10
    for file, shown in zip(files, netron(files), strict=True):
        check(shown, file)


def test_refuses_signed64_by_itself(netron: Callable[[list[Path]], list[dict[str, Any]]], tmp_path: Path) -> None:
    net = Net()
    net.output(net.activation(net.input((1, 2)), name="only"))
    wide = Net(data_type="Signed64")
    wide.output(wide.input((1, 2)))
    shown = netron([written(net.graph, tmp_path / "plain.armnn"), written(wide.graph, tmp_path / "wide.armnn")])
    assert [one["name"] for one in shown[0]["nodes"]] == ["only"]
    assert shown[1] == {"error": SIGNED64}


def test_takes_a_file_by_its_suffix(netron: Callable[[list[Path]], list[dict[str, Any]]], tmp_path: Path) -> None:
    net = Net()
    net.output(net.activation(net.input((1, 2)), name="only"))
    file = written(net.graph, tmp_path / "model.armnn")
    other = shutil.copy(file, tmp_path / "model.bin")
    shown = netron([file, Path(other)])
    assert [set(one) == {"error"} for one in shown] == [False, True]
