"""What verification draws, watches and compares: numbers, worked out by hand. No runtime is needed."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from fusion_engine.network import FrozenDict, Source
from fusion_engine.tensor import TensorInfo
from fusion_engine.verifying.measure import Measure, measure
from fusion_engine.verifying.reach import LARGEST_SCALE, Reach, bends, constant_range, number
from fusion_engine.verifying.trials import Corners, trials
from tests.support.nets import Net

FLOAT, HALF = TensorInfo((2,), "Float32"), TensorInfo((2,), "Float16")
BYTES = TensorInfo((2,), "QAsymmU8", 0.5, 10)


def measured(before: list[float], after: list[float], info: TensorInfo = FLOAT, **options: bool) -> Measure:
    return measure([np.array(before)], [np.array(after)], info, **options)


# How far apart


@pytest.mark.parametrize(
    ("before", "after", "info", "difference", "unit", "tolerance"),
    [
        ([1.0, -4.0], [1.0, -4.5], FLOAT, 0.125, "relative", 1e-5),
        ([1.0, -4.0], [0.0, -4.0], HALF, 0.25, "relative", 2e-3),
        ([0.0, 0.0], [0.0, 0.0], FLOAT, 0.0, "relative", 1e-5),
        ([0.0, 0.0], [0.0, 1e-30], FLOAT, inf, "relative", 1e-5),
        ([nan, inf], [nan, inf], FLOAT, 0.0, "relative", 1e-5),
        ([nan, 1.0], [1.0, 1.0], FLOAT, inf, "relative", 1e-5),
        ([inf, 1.0], [-inf, 1.0], FLOAT, inf, "relative", 1e-5),
        ([inf, 1.0], [3.0, 1.0], FLOAT, inf, "relative", 1e-5),
        ([3.0, 9.0], [3.0, 7.0], BYTES, 2.0, "quanta", 1.0),
        ([3.0, 9.0], [3.0, 8.0], TensorInfo((2,), "Signed32"), 1.0, "absolute", 0.0),
        ([], [], FLOAT, 0.0, "relative", 1e-5),
    ],
)
def test_differences(
    before: list[float], after: list[float], info: TensorInfo, difference: float, unit: str, tolerance: float
) -> None:
    found = measured(before, after, info)
    assert (found.difference, found.unit, found.tolerance) == (difference, unit, tolerance)
    assert found.passed == (difference <= tolerance)


def test_a_trial_of_small_values_is_held_against_a_share_of_the_largest() -> None:
    """1e-3 of the largest of all trials at least: a trial near 0 says little."""
    ones, little = np.array([1.0, 2.0]), np.array([1e-6, 0.0])
    found = measure([ones, little], [ones, little * 2], FLOAT)
    assert found.difference == pytest.approx(1e-6 / (1e-3 * 2.0))
    found = measure([ones, ones * 0.01], [ones, ones * 0.0101], FLOAT)
    assert found.difference == pytest.approx(0.01)
    assert measure([ones, ones * 100], [ones * 2, ones * 100], FLOAT).difference == pytest.approx(1.0)


def test_what_is_no_finite_number_may_be_left_out() -> None:
    assert measured([nan, 2.0], [1.0, 2.0], finite_only=True).difference == 0
    assert measured([1.0, 2.0], [1.0, inf], finite_only=True).difference == 0
    assert measured([inf, 2.0], [1.0, 1.0], finite_only=True).difference == 0.5
    assert measured([1.0, inf], [1.0, 2.0]).difference == inf


def test_whether_there_was_a_finite_number() -> None:
    assert measured([1.0, nan], [1.0, nan]).finite
    assert not measured([inf, nan], [inf, nan]).finite
    assert measured([], []).finite
    assert not measure([], [], FLOAT).finite


def test_a_tolerance_is_for_floats() -> None:
    assert measure([np.ones(1)], [np.ones(1)], FLOAT, 0.5).tolerance == 0.5
    assert measure([np.ones(1)], [np.ones(1)], BYTES, 0.5).tolerance == 1.0
    assert measure([np.ones(1)], [np.ones(1)], replace(FLOAT, data_type="Boolean"), 0.5).tolerance == 0.0


def test_shares_and_words() -> None:
    assert Measure(0.0, "absolute", 0.0).share == 0
    assert Measure(2.0, "absolute", 0.0).share == inf
    assert Measure(3.0, "quanta", 2.0).share == 1.5
    assert Measure(0.25, "relative", 0.125).share == 2
    assert str(Measure(0.12345, "relative", 1e-5)) == "0.123 of the largest value, allowed 1e-05"
    assert str(Measure(2.0, "quanta", 1.0)) == "2 quanta, allowed 1"
    assert str(Measure(7.0, "absolute", 0.0)) == "7 at most, allowed 0"


# Whether values came where layers bend


def spread(low: float, high: float) -> list[np.ndarray]:
    """Values of which a quarter each lies at either end."""
    return [np.repeat([low, 0.5 * (low + high), high], [25, 50, 25])]


def test_both_sides_of_the_corners() -> None:
    reach = Reach([0.0, 6.0])
    assert (reach.low, reach.high) == (-0.01, 6.06)  # by a hundredth of the corner, or of 1
    for low, high, reached in ((1, 5, False), (-1, 5, False), (-1, 6.05, False), (-1, 7, True)):
        reach.see(spread(low, high))
        assert reach.reached == reached
    assert Reach([]).reached
    assert not Reach([0.0]).reached
    only = Reach([0.0])
    only.see(spread(-1, 0.005))
    assert not only.reached


def test_a_few_values_beyond_a_corner_are_not_enough() -> None:
    reach = Reach([0.0])
    values = np.ones(1000)
    values[:10] = -1
    reach.see([values])
    assert not reach.reached
    values[:30] = -1
    reach.see([values])
    assert reach.reached


def test_corners_that_cannot_be_computed_with_are_none() -> None:
    reach = Reach([inf, nan, -inf, LARGEST_SCALE, -LARGEST_SCALE])
    assert (reach.low, reach.high) == (None, None)
    assert reach.reached
    assert reach.bounded


def test_what_grows_no_more_is_bounded() -> None:
    """Two widenings that change nothing, on each side that is not passed."""
    reach = Reach([0.5])
    reach.see(spread(0.6, 1.0))
    reach.see(spread(0.6, 1.0))
    assert not reach.bounded
    reach.see(spread(0.6, 1.0))
    assert reach.bounded
    reach.see(spread(0.55, 1.0))  # it went further down
    assert not reach.bounded
    reach.see(spread(0.55, 1.0))
    reach.see(spread(0.5499, 1.0))  # by less than a thousandth of the range
    assert reach.bounded
    assert not reach.reached
    above = Reach([1.5])
    for _ in range(3):
        assert not above.bounded
        above.see(spread(0, 1.0))
    assert above.bounded


def test_trials_without_a_finite_value_are_still() -> None:
    reach = Reach([0.0])
    reach.see([np.array([nan, inf])])
    assert not reach.bounded
    reach.see([])
    assert reach.bounded


# Where layers bend


def test_where_each_layer_bends() -> None:
    net = Net()
    x = net.input((1, 4))
    relu = net.activation(x, "ReLu")
    six = net.activation(relu, "BoundedReLu", 6, -1)
    swish = net.activation(six, "HardSwish")
    least = net.binary("Minimum", swish, net.constant([3.0, -2.0, 1.0, nan]))
    most = net.binary("Maximum", net.constant([5.0]), least)
    added = net.addition(most, net.constant([9.0]))
    quantized = net.layer("Quantize", added, outputs=(TensorInfo((1, 4), "QAsymmU8", 0.5, 10),))
    smooth = net.activation(added, "TanH")
    found = list(bends(net.graph, [relu, six, swish, least, most, added, quantized, smooth]))
    assert found == [
        (Source(x, 0), (0.0,)),
        (Source(relu, 0), (6.0, -1.0)),
        (Source(six, 0), (-3.0, 3.0)),
        (Source(swish, 0), (-2.0, 3.0)),
        (Source(least, 0), (5.0, 5.0)),
        (Source(added, 0), (-5.0, 122.5)),
    ]


def test_the_range_of_a_constant() -> None:
    net = Net()
    assert constant_range(net.graph, net.constant([nan, inf, 2.0, -3.0])) == (-3.0, 2.0)
    assert constant_range(net.graph, net.constant([nan, inf])) == ()
    assert constant_range(net.graph, net.constant(np.zeros((0,)))) == ()
    assert constant_range(net.graph, net.input((1,))) == ()
    stored = net.constant([20, 10], data_type="QAsymmU8", quantization_scale=0.5, quantization_offset=10)
    assert constant_range(net.graph, stored) == (0.0, 5.0)
    assert number(TensorInfo((1,), "Signed32", 0.5, 1), 7.0) == 7.0
    assert number(TensorInfo((1,), "QSymmS8", 0.5, 0, (0.5, 0.25), 0), 7.0) == 7.0


# What is drawn


def test_corners_of_a_region() -> None:
    net = Net()
    x = net.input((2, 3, 4))
    bounded = net.activation(x, "BoundedReLu", 6, -1)
    single = net.constant([0.25])
    several = net.constant([7.0, 8.0])
    operand = net.constant([[[-20.0, 30.0, 5.0, 1.0]]])
    net.multiplication(bounded, operand)
    stored = net.input((1, 4), data_type="QAsymmU8", quantization_scale=0.5, quantization_offset=10)
    corners = Corners()
    assert corners.numbers == [0.0]
    corners.see(net.graph, [bounded])
    assert corners.numbers == [-1.0, 0.0, 6.0]
    corners.see(net.graph, [single])
    assert corners.numbers == [-1.0, 0.0, 0.25, 6.0]
    corners.see(net.graph, [several])  # no operand of anything
    assert corners.numbers == [-1.0, 0.0, 0.25, 6.0]
    corners.see(net.graph, [operand])
    assert corners.numbers == [-20.0, -1.0, 0.0, 0.25, 6.0, 30.0]
    corners.see(net.graph, [stored])
    assert corners.numbers == [-20.0, -5.0, -1.0, 0.0, 0.25, 6.0, 30.0, 122.5]
    assert corners.indices is None


def test_corners_too_far_away_are_left_to_widening() -> None:
    net = Net()
    corners = Corners()
    x = net.input((1, 4))
    corners.see(
        net.graph, [net.activation(x, "BoundedReLu", 999_999.0, -1e6), net.constant([inf]), net.constant([nan])]
    )
    assert corners.numbers == [0.0, 999_999.0]


def test_a_pads_value_is_a_corner() -> None:
    net = Net()
    pad = net.pad(net.input((1, 4)), [(0, 0), (1, 1)])
    net.graph.nodes[pad]["params"] = FrozenDict({**net.graph.nodes[pad]["params"], "padValue": -3.5})
    corners = Corners()
    corners.see(net.graph, [pad])
    assert corners.numbers == [-3.5, 0.0]


def test_indices_stay_within_what_they_choose_from() -> None:
    net = Net()
    indices = net.input((300,), data_type="Signed32")
    small, large = net.input((5, 9)), net.input((7, 8))
    few = net.input((2,), data_type="Signed32")
    chosen = net.layer("Gather", large, few, outputs=(TensorInfo((2, 8), "Float32"),))
    corners = Corners()
    corners.see(net.graph, [chosen])
    assert corners.indices == 7  # of what is chosen from, not of the indices
    first = net.layer("Gather", large, indices, outputs=(TensorInfo((300, 8), "Float32"),))
    second = net.layer("Gather", small, indices, outputs=(TensorInfo((300, 9), "Float32"),))
    corners = Corners()
    corners.see(net.graph, [first])
    assert corners.indices == 7
    corners.see(net.graph, [second])
    assert corners.indices == 5
    info = TensorInfo((300,), "Signed32")
    for values in trials({"x": info}, corners, 0):
        assert set(values["x"].tolist()) == {0, 1, 2, 3, 4}
        assert values["x"].dtype == np.int32


def drawn(info: TensorInfo, corners: Corners, scale: float = 1.0) -> list[np.ndarray]:
    return [values["x"] for values in trials({"x": info}, corners, 3, scale)]


def bounded(low: float, high: float) -> Corners:
    net = Net()
    corners = Corners()
    corners.see(net.graph, [net.activation(net.input((1,)), "BoundedReLu", high, low)])
    return corners


def test_floats_around_0_over_a_wide_range_and_at_the_corners() -> None:
    near, wide, special = drawn(TensorInfo((1000,), "Float32"), bounded(-2, 10))
    assert [one.dtype for one in (near, wide, special)] == [np.float32] * 3
    assert abs(near.mean()) < 0.2
    assert 0.8 < near.std() < 1.2
    assert 19 < wide.max() <= 20.2  # twice as wide as the corners and what lies beside them
    assert -20.2 <= wide.min() < -19
    at = np.float32([-2.02, -2, -1.98, -0.01, 0, 0.01, 9.9, 10, 10.1])
    assert np.isin(special, at).sum() == 500
    assert set(at) <= set(special)
    for scaled, plain in zip(drawn(TensorInfo((1000,), "Float32"), bounded(-2, 10), 100.0), (near, wide), strict=False):
        np.testing.assert_allclose(scaled, plain * 100, rtol=1e-5)


def test_floats_stay_within_their_type() -> None:
    for kind, most in (("Float16", 65504.0), ("Float32", float(np.finfo(np.float32).max))):
        for values in drawn(TensorInfo((300,), kind), bounded(0, 6), 1e39):
            assert np.isfinite(values).all()
            assert np.abs(values).max() == np.float32(most)


def test_small_inputs_are_drawn_more_often() -> None:
    """At least 256 values in each of the three ways, in at most 32 rounds."""
    for size, rounds in ((1, 32), (8, 32), (9, 29), (100, 3), (255, 2), (256, 1), (1000, 1), (0, 32)):
        found = list(trials({"x": TensorInfo((size,), "Float32"), "y": TensorInfo((999,), "Float32")}, Corners(), 0))
        assert len(found) == 3 * rounds, size
    assert list(trials({}, Corners(), 0)) == [{}]


def test_quantized_values_are_all_that_is_stored() -> None:
    plain, wide, special = drawn(TensorInfo((4000,), "QAsymmU8", 0.5, 10), bounded(-2, 6))
    for values in (plain, wide):
        assert (values.min(), values.max()) == (0, 255)
        assert len(np.unique(values)) == 256
    counts = dict(zip(*np.unique(special, return_counts=True), strict=True))
    often = sorted(value for value, count in counts.items() if count > 80)
    assert often == [0, 1, 5, 6, 7, 9, 10, 11, 21, 22, 23, 254, 255]  # ends, zero point, -2, 0 and 6, and neighbours
    for info in (TensorInfo((4000,), "QSymmS8", 0.5, 0, (0.5, 0.25), 0), TensorInfo((4000,), "QAsymmU8", 0.0, 10)):
        values, counts_ = np.unique(drawn(info, bounded(-2, 6))[2], return_counts=True)
        ends = {"QSymmS8": [-128, -127, 0, 126, 127], "QAsymmU8": [0, 1, 10, 254, 255]}[info.data_type]
        assert values[counts_ > 200].tolist() == ends


def test_integers_and_booleans() -> None:
    near, wide, special = drawn(TensorInfo((2000,), "Signed32"), bounded(-300, 6))
    assert (near.min(), near.max()) == (-100, 100)
    assert wide.min() < -590
    assert wide.max() > 590
    assert np.abs(wide).max() <= 600
    values, counts = np.unique(special, return_counts=True)
    assert values[counts > 60].tolist() == [-301, -300, -299, -1, 0, 1, 5, 6, 7]
    assert {one.dtype for one in drawn(TensorInfo((9,), "Signed64"), Corners())} == {np.dtype(np.int64)}
    for values in drawn(TensorInfo((300,), "Signed32"), Corners(), 1e12):
        assert np.abs(values.astype(np.int64)).max() == 2**31 - 1
    for values in drawn(TensorInfo((300,), "Boolean"), Corners()):
        assert set(values.tolist()) == {0, 1}


def test_the_seed_decides() -> None:
    info = {"x": TensorInfo((3,), "Float32")}
    first, again, other = (list(trials(info, Corners(), seed)) for seed in (1, 1, 2))
    assert all((a["x"] == b["x"]).all() for a, b in zip(first, again, strict=True))
    assert not any((a["x"] == b["x"]).all() for a, b in zip(first, other, strict=True))
    assert len({one["x"].tobytes() for one in first}) == len(first)
