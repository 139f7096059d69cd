"""The example of a third party's fold judged by real Arm NN: the same bits before and after."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import folds, plugins
from tests.support.nets import Net
from tests.support.pages import ROOT
from tests.support.real_armnn import RealArmnn

PACKAGE = ROOT / "examples" / "own_fold"


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fe.FusingRule]]:
    """The rules of the package, as if it were installed."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    point = EntryPoint("concat-chain", "concat_chain:FOLD", folds.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    folds._plugins.cache_clear()
    folds.find_fold.cache_clear()
    yield fe.load_rules(PACKAGE / "concat-chain.toml")
    folds._plugins.cache_clear()
    folds.find_fold.cache_clear()
    sys.modules.pop("concat_chain", None)


@pytest.mark.parametrize("release", ["20.08", "23.08"])
@pytest.mark.parametrize("data_type", ["Float32", "Float16", "QAsymmU8", "QAsymmS8"])
@pytest.mark.parametrize("axis", [1, 3])
def test_nested_concats(
    real_armnn: RealArmnn, rules: list[fe.FusingRule], axis: int, data_type: str, release: str
) -> None:
    """Three levels, the inner one first, in the middle and last."""
    net = Net(feature_versions=(1, 1, 1))
    quantization = {} if data_type.startswith("Float") else {"quantization_scale": 0.05, "quantization_offset": 3}
    a, b, c, d = (net.input((1, 2, 3, 4), data_type, name=name, **quantization) for name in "abcd")
    deepest = net.concat(b, c, axis=axis)
    deep = net.concat(a, deepest, d, axis=axis)
    net.output(net.concat(deep, d, axis=axis))
    fused = fe.fuse(net.graph, rules)
    assert len(fused.graph["fusions"]) == 2
    (before,) = real_armnn.run(fe.dumps(net.graph), release, seed=3).outputs
    (after,) = real_armnn.run(fe.dumps(fused), release, seed=3).outputs
    assert before.values.astype(np.float64).any()
    np.testing.assert_array_equal(before.values, after.values)
