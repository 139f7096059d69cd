"""What docs/backend.md shows can be used as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import plugins, predicates, resources
from fusion_engine.network import Network
from tests.support import recipes
from tests.support.nets import Net
from tests.support.opaques import recipe_bytes

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "backend.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


LIMITED, PYPROJECT, ASKING = blocks("toml")
READING, PREDICATE = blocks("python")
(COMPILING,) = blocks("cpp")


def conv_clamp(kernel: int = 3, channels: int = 4, data_type: str = "Float32", size: int = 8) -> Network:
    net = Net(data_type=data_type)
    x = net.input((1, size, size, 2), name="x")
    conv = net.conv(x, np.ones((channels, kernel, kernel, 2)), np.ones(channels), strideX=2, padTop=1, name="conv")
    net.output(net.activation(conv, "BoundedReLu", 6.0, -1.0, name="clamp"), name="y")
    return net.graph


def loaded(text: str, tmp_path: Path) -> list[fe.FusingRule]:
    path = tmp_path / "my-npu.toml"
    path.write_text(text, "utf-8")
    return fe.load_rules(path)


def test_the_rule_file_keeps_the_limits(tmp_path: Path) -> None:
    rules = loaded(LIMITED, tmp_path)
    for graph, fits in (
        (conv_clamp(), True),
        (conv_clamp(4), False),
        (conv_clamp(channels=513), False),
        (conv_clamp(data_type="Float16"), False),
    ):
        fused = fe.fuse(graph, rules)
        assert [fusion.result for fusion in fused.graph["fusions"]] == ["ConvClamp"] * fits


def test_reading_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fused").mkdir()
    fe.save(fe.fuse(conv_clamp(), loaded(LIMITED, tmp_path)), tmp_path / "fused" / "model.armnn")
    monkeypatch.chdir(tmp_path)
    exec(compile(READING, "backend.md", "exec"), {})
    assert capsys.readouterr().out == "ConvClamp:clamp 101 ['Activation', 'Convolution2d']\n"


MAIN = r"""
#include <fstream>
#include <iostream>
#include <iterator>

int main(int, char** arguments)
{
    std::ifstream file(arguments[1], std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    try
    {
        const ConvClamp made = compile(bytes.data(), bytes.size());
        std::cout << made.strideX << made.strideY << made.padLeft << made.padTop << made.channelsLast << ' ' << made.low
                  << ' ' << made.high << ' ' << made.weights << ' ' << (made.bias ? int(*made.bias) : -1) << '\n';
    }
    catch (const fusion_engine::RecipeError& error)
    {
        std::cout << error.what() << '\n';
    }
}
"""


def test_compiling_a_recipe(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    (tmp_path / "page.cpp").write_text(COMPILING + MAIN, "utf-8")
    program = tmp_path / "page"
    include = str(resources.include_folder())
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", include, str(tmp_path / "page.cpp")]
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def compiled(data: bytes) -> str:
        (tmp_path / "recipe.json").write_bytes(data)
        return subprocess.run([program, tmp_path / "recipe.json"], capture_output=True, text=True, check=True).stdout

    fused = fe.fuse(conv_clamp(), loaded(LIMITED, tmp_path))
    (key,) = (key for key, node in fused.nodes.items() if node["type"] == "StandIn")
    assert compiled(recipe_bytes(fused, key)) == "21011 -1 6 1 2\n"
    assert compiled(recipes.golden()["nested"]) == "this backend has no Outer\n"
    assert "not marked as a recipe" in compiled(b"{}")


def test_the_predicate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name, value) = next(iter(tomllib.loads(PYPROJECT)["project"]["entry-points"][predicates.ENTRY_POINTS].items()))
    module = ModuleType(value.partition(":")[0])
    exec(compile(PREDICATE, "backend.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [EntryPoint(name, value, group)])
    predicates._plugins.cache_clear()
    try:
        rules = loaded(ASKING, tmp_path)
        fits = fe.fuse(conv_clamp(), rules)
        too_large = fe.fuse(conv_clamp(size=256), rules)
    finally:
        predicates._plugins.cache_clear()
    assert [fusion.rule for fusion in fits.graph["fusions"]] == ["conv-clamp"]
    (refusal,) = too_large.graph["refusals"]
    graph = conv_clamp(size=256)
    infos = [node["outputs"][0] for node in graph.nodes.values() if node["name"] not in ("y", "conv")]
    needed = sum(info.elements * 4 for info in infos)
    assert needed > 256 * 1024
    assert refusal.reason == f"predicate 'my-npu-fits' says: {needed} bytes are needed, and the SRAM has 262144"


@pytest.mark.parametrize("page", ["backend.md", "recipe.md", "rules.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert targets
    for target in targets:
        path, _, anchor = target.partition("#")
        assert (DOCS / path).resolve().exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (DOCS / (path or page)).read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, target


def test_what_the_page_names_is_there() -> None:
    """Places in the example backend, and functions of the header."""
    sources = "".join(path.read_text("utf-8") for path in sorted((ROOT / "tests" / "backend").rglob("*.?pp")))
    header = (resources.include_folder() / "fusion_engine" / "standin.hpp").read_text("utf-8")
    for name in ("class Support", "class Optimizer", "class Factory", "CompileStandIn(", "GroupOf(", "ConstantOf("):
        assert name in sources
    for name in re.findall(r"(?:recipe|layer|Recipe)(?:::|\.)(\w+)\(", PAGE):
        assert f"{name}(" in header, name
