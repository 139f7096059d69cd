"""The command's pictures: ``draw`` and ``fuse --diff``, what they write, say and exit with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import fusion_engine as fe
from fusion_engine.cli import main
from tests.support.nets import Net

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="there is no Graphviz (the command dot)")


def conv_relu() -> bytes:
    net = Net()
    conv = net.conv(net.input((1, 4, 4, 1), name="data"), [[[[1.0]]]], [0.5], name="conv")
    net.output(net.activation(conv, name="relu"), name="prob")
    return fe.dumps(net.graph)


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``models/`` of the working directory: two good models, one nested, and one that is cut short."""
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    (folder / "good.armnn").write_bytes(conv_relu())
    (folder / "sub" / "good.armnn").write_bytes(conv_relu())
    (folder / "bad.armnn").write_bytes(conv_relu()[:200])
    monkeypatch.chdir(tmp_path)
    return folder


def sides(page: str | Path) -> list[dict[str, list[dict[str, str]]]]:
    """The networks in a page's data."""
    text = Path(page).read_text("utf-8")
    data = json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    found: list[dict[str, list[dict[str, str]]]] = data["sides"]
    return found


def types(side: dict[str, list[dict[str, str]]]) -> list[str]:
    return sorted(layer["type"] for layer in side["layers"])


def everything() -> set[str]:
    """Files that are no models, nor kept by a run for itself."""
    files = (path for path in Path().rglob("*") if path.is_file() and path.suffix != ".armnn")
    return {str(path) for path in files if not any(part.startswith(".") for part in path.parts)}


# draw


@needs_dot
@pytest.mark.parametrize(("name", "start"), [("x.html", "<!DOCTYPE html>"), ("x.svg", "<?xml"), ("x.dot", "digraph {")])
def test_draw(capsys: pytest.CaptureFixture[str], name: str, start: str) -> None:
    assert main(["draw", "models/good.armnn", "-o", name]) == 0
    assert capsys.readouterr().out == f"models/good.armnn: drawn to {name}\n"
    assert Path(name).read_text("utf-8").startswith(start)


@needs_dot
def test_draw_shades_what_a_file_says_was_fused() -> None:
    main(["fuse", "models/good.armnn", "--rules", "npu", "--out", "fused"])
    assert main(["draw", "fused/good.armnn", "-o", "x.html"]) == 0
    (side,) = sides("x.html")
    assert types(side) == ["Constant", "Constant", "Constant", "Input", "Output", "StandIn"]
    assert "ConvActivation" in Path("x.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["models/good.armnn", "-o", "x.png"], 2, "x.png: a picture is a file named *.html, *.svg or *.dot"),
        (["models/good.armnn", "-o", "."], 2, "a picture is a file named"),
        (["models/bad.armnn", "-o", "x.dot"], 1, "models/bad.armnn: "),
        (["models/none.armnn", "-o", "x.dot"], 1, "models/none.armnn: cannot be read: No such file or directory"),
        (["models/good.armnn", "-o", "none/x.dot"], 1, "none/x.dot: cannot be written: No such file or directory"),
    ],
)
def test_draw_that_cannot(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str) -> None:
    assert main(["draw", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fusion-engine: ")
    assert said in err
    assert everything() == set()


def test_draw_never_writes_over_its_model(capsys: pytest.CaptureFixture[str]) -> None:
    model = Path("model.dot")
    model.write_bytes(conv_relu())
    assert main(["draw", "model.dot", "-o", "./model.dot"]) == 2
    assert "the picture ./model.dot is another file of the run" in capsys.readouterr().err
    assert model.read_bytes() == conv_relu()


@pytest.mark.parametrize(
    "arguments",
    [["draw", "models/good.armnn", "-o", "x.svg"], ["fuse", "models/good.armnn", "--dry-run", "--diff", "x.html"]],
)
def test_without_graphviz_nothing_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no command dot: install the package graphviz" in err
    assert everything() == set()


# fuse --diff


@needs_dot
def test_a_page_for_one_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuse", "models/good.armnn", "--rules", "npu", "--out", "fused", "--diff", "pages/x.html"]) == 0
    assert "    drawn to pages/x.html\n" in capsys.readouterr().out
    assert everything() == {"pages/x.html"}
    before, after = sides("pages/x.html")
    assert types(before) == ["Activation", "Constant", "Constant", "Convolution2d", "Input", "Output"]
    assert types(after) == ["Constant", "Constant", "Constant", "Input", "Output", "StandIn"]
    assert fe.load("fused/good.armnn").graph["inputs"]


@needs_dot
def test_a_directory_of_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuse", "models", "--dry-run", "--diff", "pages", "--report", "-"]) == 1
    out, _ = capsys.readouterr()
    assert json.loads(out)["models"]
    assert everything() == {"pages/good.html", "pages/sub/good.html"}
    assert [len(side["layers"]) for side in sides("pages/sub/good.html")] == [6, 6]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["models", "--diff", "x.html"], "x.html is one page, and there are 3 models: name a directory"),
        (["models/good.armnn", "--diff", ""], "say where the pages go"),
        (
            ["models", "--diff", "pages", "--timeout", "9"],
            "--diff draws its pages in this process, which --timeout cannot end",
        ),
        (["models/good.armnn", "models/sub/good.armnn", "--diff", "pages"], "have the same page pages/good.html"),
        (["x", "x.html", "--diff", "."], "the picture ./x.html is another file of the run"),
        (["models/good.armnn", "--diff", "p.html", "--report", "p.html"], "the picture p.html is another file"),
        (["models/good.armnn", "--diff", "models/good.armnn"], "nothing can be written there"),
    ],
)
@needs_dot
def test_diffs_that_make_no_sense(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    for name in ("x", "x.html"):
        Path(name).write_bytes(conv_relu())
    assert main(["fuse", *arguments, "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert everything() == {"x", "x.html"}
    assert Path("x.html").read_bytes() == conv_relu()


@needs_dot
def test_a_page_that_cannot_be_written_fails_the_run_but_not_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "dot"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert main(["fuse", "models/good.armnn", "--out", "fused", "--diff", "x.html"]) == 1
    assert "Graphviz failed" in capsys.readouterr().err
    assert Path("fused/good.armnn").exists()
    assert not Path("x.html").exists()
