"""examples/backend: the recipes of a file, read by plain FlatBuffers and standin.hpp."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.network import Network, edges_into
from tests.support.nets import Net
from tests.support.opaques import recipe_key, with_recipe
from tests.unit.test_recipes import NETWORKS, conv_relu

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.xdist_group("backend example")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool, package in (("g++", "g++"), ("flatc", "flatbuffers-compiler")):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed ({package})")
    if not Path("/usr/include/flatbuffers/flatbuffers.h").is_file():
        pytest.skip("FlatBuffers' C++ headers are not installed (libflatbuffers-dev)")
    out = tmp_path_factory.mktemp("example")
    build = ROOT / "examples" / "backend" / "build"
    done = subprocess.run([build, out], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return out / "read_standins"


def shown(program: Path, graph: Network, tmp_path: Path) -> str:
    fe.save(graph, tmp_path / "model.armnn")
    done = subprocess.run([program, tmp_path / "model.armnn"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode("utf-8", "surrogateescape")


def test_all_of_a_small_network(program: Path, tmp_path: Path) -> None:
    graph, _ = conv_relu(code=17)
    assert shown(program, graph, tmp_path) == (
        "StandIn 3 'ConvRelu:relu': ConvRelu, code 17, rule 'a rule', data inputs 1\n"
        "  layer 0: Activation 'relu' of layer 1 output 0 -> Float32 [1,2,2,1]\n"
        "    a = 0.1\n"
        "    activationFunction = BoundedReLu\n"
        "    b = 0\n"
        "  layer 1: Convolution2d 'conv' of input 0 -> Float32 [1,2,2,1]\n"
        "    biasEnabled = true\n"
        "    dataLayout = NHWC\n"
        "    dilationX = 1\n"
        "    dilationY = 1\n"
        "    padBottom = 0\n"
        "    padLeft = 0\n"
        "    padRight = 0\n"
        "    padTop = 0\n"
        "    strideX = 1\n"
        "    strideY = 1\n"
        "  constant 0: weights of layer 1, OHWI, 4 bytes\n"
        "  constant 1: biases of layer 1, C, 4 bytes\n"
    ).replace("StandIn 3", f"StandIn {index_of(graph, 'ConvRelu:relu')}")


def index_of(graph: Network, name: str) -> int:
    """The index that a layer gets in the file."""
    again = fe.loads(fe.dumps(graph))
    return next(key for key, node in again.nodes.items() if node["name"] == name)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_and_constant_is_shown(program: Path, tmp_path: Path, name: str) -> None:
    graph, key = NETWORKS[name]()
    recipe = fe.recipe(graph, key)
    lines = shown(program, graph, tmp_path).splitlines()
    layers = [line for line in lines if line.startswith("  layer ")]
    assert len(layers) == len(recipe["layers"])
    for number, (line, layer) in enumerate(zip(layers, recipe["layers"], strict=False)):
        assert line.startswith(f"  layer {number}: {layer['type']} '")
    assert lines.count("    made of 2 layers itself") == (name == "nested")
    constants = [line for line in lines if line.startswith("  constant ")]
    sizes = [constant_bytes(graph, key, recipe["inputs"] + k) for k in range(len(recipe["constants"]))]
    assert [int(line.split()[-2]) for line in constants] == sizes


def constant_bytes(graph: Network, key: int, slot: int) -> int:
    source = dict(edges_into(graph, key))[slot]
    tensor: fe.Tensor = graph.nodes[source.layer]["constants"]["input"]
    return tensor.data.nbytes


def test_real_networks(program: Path, tmp_path: Path) -> None:
    rules = fe.load_rules("armnn", "npu")
    for model in sorted((ROOT / "examples" / "models").glob("*.armnn")):
        fused = fe.fuse(fe.load(model), rules)
        counts: dict[str, int] = {}
        for fusion in fused.graph["fusions"]:
            counts[fusion.result] = counts.get(fusion.result, 0) + 1
        lines = shown(program, fused, tmp_path).splitlines()
        found: dict[str, int] = {}
        for line in lines:
            if line.startswith("StandIn "):
                result = line.rpartition("': ")[2].partition(",")[0]
                found[result] = found.get(result, 0) + 1
        stand_ins = {rule.into for rule in rules if rule.into}
        assert found == {result: count for result, count in counts.items() if result in stand_ins}


def test_stand_ins_of_others_and_damaged_recipes(program: Path, tmp_path: Path) -> None:
    net = Net()
    x = net.input((1, 2), name="x")
    net.output(net.stand_in(x, outputs=[(1, 2)], name="theirs"), name="y")
    assert "'theirs': no recipe: somebody else's\n" in shown(program, net.graph, tmp_path)
    graph, key = conv_relu()
    data: bytes = graph.nodes[recipe_key(graph, key)]["constants"]["input"].tobytes()
    cut = with_recipe(graph, key, data[:-1])
    reason = f"byte {len(data) - 1}: expected , or }}; the recipe is damaged: fuse the model again with fusion-engine\n"
    assert f"'ConvRelu:relu': {reason}" in shown(program, cut, tmp_path)


@pytest.mark.parametrize("data", [b"", b"ARMN", b"\xff" * 100, None])
def test_what_is_no_model(program: Path, tmp_path: Path, data: Any) -> None:
    path = tmp_path / "model.armnn"
    if data is not None:
        path.write_bytes(data)
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{path}: this is no .armnn file, or it cannot be read\n"


def test_cut_models_are_told(program: Path, tmp_path: Path) -> None:
    graph, _ = conv_relu()
    data = fe.dumps(graph)
    path = tmp_path / "model.armnn"
    for size in range(0, len(data), len(data) // 16):
        path.write_bytes(data[:size])
        done = subprocess.run([program, path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, ""), size
