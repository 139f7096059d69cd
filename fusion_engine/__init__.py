"""Fuse the layers of Arm NN networks (``.armnn``), offline and by rule.

Examples
--------
>>> import fusion_engine as fe
>>> graph = fe.load("examples/models/digits.armnn")
>>> fused = fe.fuse(graph, fe.load_rules("armnn"))
>>> fused.graph["fusions"][0].rule
'batch-norm'
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes as long as all else here
if TYPE_CHECKING:
    from typing import Any

    from fusion_engine.armnn.reader import load, loads
    from fusion_engine.armnn.writer import dumps, save
    from fusion_engine.compare import difference, equal
    from fusion_engine.drawing.files import draw, draw_diff
    from fusion_engine.engine import Fusion, LayerRef, Refusal, RuleStatistics, fuse
    from fusion_engine.errors import (
        ConversionError,
        FuseError,
        FusionEngineError,
        ModelError,
        OutputError,
        ReaderLimitWarning,
        RuleError,
        RuleLoopError,
        UnsupportedLayerError,
        VerifyError,
    )
    from fusion_engine.language.rule import FusingRule
    from fusion_engine.language.rulefile import load_rules
    from fusion_engine.network import FrozenDict, connect, new_network
    from fusion_engine.recipes import recipe
    from fusion_engine.releases.converting import convert
    from fusion_engine.releases.needs import Obstacle
    from fusion_engine.releases.reading import Reading, loads_in
    from fusion_engine.tensor import Tensor, TensorInfo
    from fusion_engine.unfusing import unfuse
    from fusion_engine.validation import Problem, validate
    from fusion_engine.verifying.check import verify
    from fusion_engine.verifying.result import FusionCheck, RegionCheck, Verification

__version__ = "0.1.0"

__all__ = [
    "ConversionError",
    "FrozenDict",
    "FuseError",
    "FusingRule",
    "Fusion",
    "FusionCheck",
    "FusionEngineError",
    "LayerRef",
    "ModelError",
    "Obstacle",
    "OutputError",
    "Problem",
    "ReaderLimitWarning",
    "Reading",
    "Refusal",
    "RegionCheck",
    "RuleError",
    "RuleLoopError",
    "RuleStatistics",
    "Tensor",
    "TensorInfo",
    "UnsupportedLayerError",
    "Verification",
    "VerifyError",
    "__version__",
    "connect",
    "convert",
    "difference",
    "draw",
    "draw_diff",
    "dumps",
    "equal",
    "fuse",
    "load",
    "load_rules",
    "loads",
    "loads_in",
    "new_network",
    "recipe",
    "save",
    "unfuse",
    "validate",
    "verify",
]

_HOMES = {
    "armnn.reader": ("load", "loads"),
    "armnn.writer": ("dumps", "save"),
    "compare": ("difference", "equal"),
    "drawing.files": ("draw", "draw_diff"),
    "errors": (
        "ConversionError",
        "FuseError",
        "FusionEngineError",
        "ModelError",
        "OutputError",
        "ReaderLimitWarning",
        "RuleError",
        "RuleLoopError",
        "UnsupportedLayerError",
        "VerifyError",
    ),
    "engine": ("Fusion", "LayerRef", "Refusal", "RuleStatistics", "fuse"),
    "language.rule": ("FusingRule",),
    "language.rulefile": ("load_rules",),
    "network": ("FrozenDict", "connect", "new_network"),
    "recipes": ("recipe",),
    "releases.converting": ("convert",),
    "releases.needs": ("Obstacle",),
    "releases.reading": ("Reading", "loads_in"),
    "tensor": ("Tensor", "TensorInfo"),
    "unfusing": ("unfuse",),
    "validation": ("Problem", "validate"),
    "verifying.check": ("verify",),
    "verifying.result": ("FusionCheck", "RegionCheck", "Verification"),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: starting costs what is used, no more."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
