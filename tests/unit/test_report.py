"""The report: its JSON shape, counts and texts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fusion_engine import (
    Fusion,
    FusionCheck,
    LayerRef,
    Obstacle,
    Reading,
    Refusal,
    RegionCheck,
    RuleStatistics,
    Verification,
)
from fusion_engine.judging import Verdict
from fusion_engine.report import Layers, ModelReport, Report, RuleFile
from tests.support.nets import Net

CONV = LayerRef(3, "conv\udcff", "Convolution2d")
NORM = LayerRef(4, "norm", "BatchNormalization")

FUSED = ModelReport(
    "in/a.armnn",
    "fused",
    "out/a.armnn",
    "current",
    Layers(7, 2),
    Layers(6, 2),
    (Fusion("batch-norm", "Convolution2d", (NORM, CONV)),),
    (Refusal("batch-norm", NORM, "because"),),
    ("careful",),
    readings=(
        Reading("20.02", (Obstacle("int8", "20.05", (4,), ("layer 4 'norm'",)),)),
        Reading("20.05", (), ("it aborts",)),
    ),
    judge=Verdict(True, 0, "same\n", 0.5),
    seconds=0.1234567,
)
FAILED = ModelReport("in/b.armnn", "failed", error="in/b.armnn: is damaged")


def test_shape() -> None:
    report = Report([RuleFile("armnn.toml", "00ff")], [FUSED, FAILED], paths=["in"])
    assert json.loads(report.text()) == {
        "report_version": 1,
        "command": "fuse",
        "paths": ["in"],
        "summary": {
            "models": 2,
            "fused": 1,
            "unchanged": 0,
            "failed": 1,
            "fusions": 1,
            "refusals": 1,
            "warnings": 1,
        },
        "rules": [{"file": "armnn.toml", "sha256": "00ff"}],
        "gate": None,
        "models": [
            {
                "path": "in/a.armnn",
                "output": "out/a.armnn",
                "status": "fused",
                "seconds": 0.123457,
                "dialect": "current",
                "layers_before": {"layers": 7, "constants": 2},
                "layers_after": {"layers": 6, "constants": 2},
                "fusions": [
                    {
                        "rule": "batch-norm",
                        "result": "Convolution2d",
                        "layers": [
                            {"index": 4, "name": "norm", "type": "BatchNormalization"},
                            {"index": 3, "name": "conv\udcff", "type": "Convolution2d"},
                        ],
                    }
                ],
                "refusals": [
                    {
                        "rule": "batch-norm",
                        "layer": {"index": 4, "name": "norm", "type": "BatchNormalization"},
                        "reason": "because",
                    }
                ],
                "warnings": ["careful"],
                "error": None,
                "judge": {"kept": True, "exit_code": 0, "output": "same\n", "seconds": 0.5},
                "statistics": [],
                "verification": None,
                "loads_in": ["20.05"],
                "cannot_load": {"20.02": ["int8 (possible since 20.05): layer 4 'norm'"]},
                "load_cautions": {"20.05": ["it aborts"]},
            },
            {
                "path": "in/b.armnn",
                "output": None,
                "status": "failed",
                "seconds": None,
                "dialect": None,
                "layers_before": None,
                "layers_after": None,
                "fusions": [],
                "refusals": [],
                "warnings": [],
                "error": "in/b.armnn: is damaged",
                "judge": None,
                "statistics": [],
                "verification": None,
                "loads_in": [],
                "cannot_load": {},
                "load_cautions": {},
            },
        ],
    }


def test_keys_in_order() -> None:
    assert list(FUSED.as_json()) == [
        "path",
        "output",
        "status",
        "seconds",
        "dialect",
        "layers_before",
        "layers_after",
        "fusions",
        "refusals",
        "warnings",
        "error",
        "judge",
        "statistics",
        "verification",
        "loads_in",
        "cannot_load",
        "load_cautions",
    ]


def test_statistics_and_verification() -> None:
    """Each fusion says what was found; infinity, which JSON has no number for, is a string."""
    fusion = FUSED.fusions[0]
    verification = Verification(
        (RegionCheck((NORM, CONV), (NORM,), "failed", float("inf"), "relative", 1e-5, "they differ"),),
        (FusionCheck(fusion, "failed", float("inf"), "relative", 1e-5, "they differ"),),
    )
    model = replace(FUSED, statistics=(RuleStatistics("batch-norm", 3, 1, 2, 0.12345678),), verification=verification)
    found = json.loads(Report(models=[model]).text())["models"][0]
    assert found["statistics"] == [{"rule": "batch-norm", "tried": 3, "fired": 1, "refused": 2, "seconds": 0.123457}]
    assert found["verification"] == {"status": "failed", "regions": 1, "verified": 0, "unverified": 0, "failed": 1}
    assert found["fusions"][0]["verification"] == {
        "status": "failed",
        "difference": "Infinity",
        "unit": "relative",
        "tolerance": 1e-5,
        "reason": "they differ",
    }


def test_text_is_ascii() -> None:
    assert Report(models=[FUSED]).text().isascii()
    assert Report(models=[FUSED]).text().endswith("}\n")


def test_failed() -> None:
    assert Report(models=[FUSED, FAILED]).failed
    assert not Report(models=[FUSED]).failed


def test_layers() -> None:
    net = Net()
    net.output(net.addition(net.input((2,)), net.constant([1, 2])))
    assert Layers.of(net.graph) == Layers(4, 1)


def test_what_a_run_recorded_comes_back() -> None:
    """As the run wrote it, at the paths of this run; an entry of another version does not."""
    entry = json.loads(json.dumps(FUSED.as_json()))
    again = ModelReport.from_json(entry, path="x.armnn", output="y.armnn")
    assert again.as_json() == {**entry, "path": "x.armnn", "output": "y.armnn"}
    assert again.seconds == 0.123457
    assert (again.fusions, again.refusals, again.warnings) == (FUSED.fusions, FUSED.refusals, FUSED.warnings)
    for name in entry:
        with pytest.raises((KeyError, ValueError)):
            ModelReport.from_json({key: entry[key] for key in entry if key != name}, path="x", output="y")
    with pytest.raises(ValueError, match="other keys"):
        ModelReport.from_json({**entry, "more": 1}, path="x", output="y")
