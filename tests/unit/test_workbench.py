"""The commands of rule authors: what they print, as text and as JSON, and what is wrong usage."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import fusion_engine as fe
from fusion_engine.cli import main
from tests.support.nets import Net


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``m/a.armnn``: x -> conv -> relu -> y, ``m/b.armnn``: x -> floor -> y; ``r.toml``: two rules."""
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    net = Net(form="member")
    net.output(net.activation(net.conv(net.input((1, 2, 2, 1), name="x"), weights=[[[[1.0]]]], name="c"), name="r"))
    fe.save(net.graph, "m/a.armnn")
    net = Net()
    net.output(net.layer("Floor", net.input((1,), name="x"), name="f"))
    fe.save(net.graph, "m/b.armnn")
    Path("r.toml").write_text(
        "syntax = 2\n[layers]\nrelu = 'Activation[activationFunction == \"ReLu\"]'\n"
        '[[rule]]\nname = "one"\nmatch = "relu{DepthwiseConvolution2d}"\ninto = "One"\n'
        '[[rule]]\nname = "two"\nmatch = "relu{Convolution2d[stride == 2x2]}"\ninto = "Two"\n',
        "utf-8",
    )


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


# explain


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", "r.toml", "m/a.armnn"]) == 0
    assert lines(capsys) == [
        "one: layer 1 'c' (below layer 2 'r'): it is no DepthwiseConvolution2d: it is a Convolution2d",
        "    relu{DepthwiseConvolution2d}",
        "         ^^^^^^^^^^^^^^^^^^^^^^",
        "one: 0 fusions, 0 refusals, 1 near miss",
        "two: layer 1 'c' (below layer 2 'r'): stride == 2x2 is false: it is 1x1",
        "    relu{Convolution2d[stride == 2x2]}",
        "                       ^^^^^^^^^^^^^",
        "two: 0 fusions, 0 refusals, 1 near miss",
    ]


def test_explain_several_models_one_rule_one_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", "r.toml", "m", "--rule", "two", "--layer", "r", "--most", "0"]) == 0
    assert lines(capsys) == [
        "m/a.armnn: two: 1 more: --most 1 shows them",
        "m/a.armnn: two: 0 fusions, 0 refusals, 1 near miss",
    ]


def test_explain_what_has_no_root(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", "r.toml", "m/b.armnn", "--rule", "one"]) == 0
    assert lines(capsys) == [
        "one: 0 fusions, 0 refusals, 0 near misses: the network has no Activation, of which type the rule's root is"
    ]


def test_explain_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", "r.toml", "m/a.armnn", "--rule", "two", "--json"]) == 0
    root = {"index": 2, "name": "r", "type": "Activation"}
    assert json.loads(capsys.readouterr().out) == {
        "models": [
            {
                "path": "m/a.armnn",
                "rules": [
                    {
                        "rule": "two",
                        "roots": ["Activation"],
                        "candidates": 1,
                        "fusions": [],
                        "refusals": [],
                        "near": [
                            {
                                "rule": "two",
                                "root": root,
                                "layer": {"index": 1, "name": "c", "type": "Convolution2d"},
                                "reason": "stride == 2x2 is false: it is 1x1",
                                "depth": 2,
                                "text": "relu{Convolution2d[stride == 2x2]}",
                                "start": 19,
                                "end": 32,
                            }
                        ],
                    }
                ],
                "error": None,
            }
        ]
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rule", "ona"], "there is no rule 'ona' (did you mean 'one'?)"),
        (["--layer", "q"], "no model has a layer 'q'"),
        (["--rules", "none"], "none"),
    ],
)
def test_explain_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", "r.toml", "m/a.armnn", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_explain_goes_on_after_a_model_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m/0.armnn").write_bytes(b"no")
    assert main(["explain", "--rules", "r.toml", "m", "--rule", "one", "--most", "0"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("fusion-engine: m/0.armnn: ")
    assert out.splitlines() == [
        "m/a.armnn: one: 1 more: --most 1 shows them",
        "m/a.armnn: one: 0 fusions, 0 refusals, 1 near miss",
    ]


# match


def test_match_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["match", "--why", "relu{Pad}", "m", "--vocabulary", "r.toml"]) == 0
    assert lines(capsys) == [
        "m/a.armnn: near miss: layer 1 'c' (below layer 2 'r'): it is no Pad: it is a Convolution2d",
        "    relu{Pad}",
        "         ^^^",
    ]


def test_match_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["match", "relu{Convolution2d}", "m", "--vocabulary", "r.toml", "--json"]) == 0
    r, c = ({"index": 2, "name": "r", "type": "Activation"}, {"index": 1, "name": "c", "type": "Convolution2d"})
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "relu{Convolution2d}"
    assert found["models"] == [
        {
            "path": "m/a.armnn",
            "matches": [
                {
                    "layers": [r, c],
                    "parts": [
                        {"pattern": "Activation", "start": 0, "end": 4, "layer": r},
                        {"pattern": "Convolution2d", "start": 5, "end": 18, "layer": c},
                    ],
                }
            ],
            "error": None,
        },
        {"path": "m/b.armnn", "matches": [], "error": None},
    ]


def test_match_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["match", "?|Floor", "m", "--count"]) == 2
    capsys.readouterr()
    assert main(["match", "Floor", "m", "--count"]) == 0
    assert lines(capsys) == ["m/a.armnn: 0", "m/b.armnn: 1"]


def test_match_takes_its_text_from_a_file_or_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("text").write_text("Activation{\n  Convolution2d}\n", "utf-8")
    assert main(["match", "@text", "m", "--count"]) == 0
    assert lines(capsys) == ["m/a.armnn: 1", "m/b.armnn: 0"]
    monkeypatch.setattr("sys.stdin", io.StringIO("Floor\n"))
    assert main(["match", "-", "m/b.armnn", "--count"]) == 0
    assert lines(capsys) == ["m/b.armnn: 1"]
    assert main(["match", "@nothing", "m"]) == 2
    assert "nothing: the text cannot be read: No such file" in capsys.readouterr().err
    Path("text").write_bytes(b"\xff")
    assert main(["match", "@text", "m"]) == 2
    assert "the text is no UTF-8 at byte 0" in capsys.readouterr().err


def test_match_names_results_of_rules(capsys: pytest.CaptureFixture[str]) -> None:
    Path("made.toml").write_text('[[rule]]\nmatch = "Activation{Convolution2d}"\ninto = "ConvAct"\n', "utf-8")
    fe.save(fe.fuse(fe.load("m/a.armnn"), fe.load_rules("made.toml")), "m/c.armnn")
    assert main(["match", "Output{ConvAct}", "m", "--vocabulary", "made.toml", "--count"]) == 0
    assert lines(capsys) == ["m/a.armnn: 0", "m/b.armnn: 0", "m/c.armnn: 1"]
    assert main(["match", "Output{ConvAct}", "m"]) == 2
    assert "'ConvAct' is no layer type" in capsys.readouterr().err


def test_match_takes_a_vocabulary_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("v.toml").write_text('[layers]\nconv = "Convolution2d"\n', "utf-8")
    assert main(["match", "Activation{conv}", "m", "--vocabulary", "v.toml", "--count"]) == 0
    assert lines(capsys) == ["m/a.armnn: 1", "m/b.armnn: 0"]
    Path("v.toml").write_text('[layers]\nconv = "Convolution"\n', "utf-8")
    assert main(["match", "Activation{conv}", "m", "--vocabulary", "v.toml"]) == 2
    assert "v.toml:2:9" in capsys.readouterr().err


def test_a_directory_without_models_is_told_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    assert main(["match", "Activation", "none"]) == 1
    assert "fusion-engine: none: there is no file *.armnn in the directory\n" in capsys.readouterr().err
