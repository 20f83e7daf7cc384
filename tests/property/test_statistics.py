"""Intervals of rates: how often they hold the truth, by simulation; and what must hold of any of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.statistics import Interval, Series, rate_difference, rate_ratio
from tests.random_rates import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

N_SIMULATIONS = 300


def series(rates: Sequence[float]) -> Series:
    """Blocks of half a second."""
    return Series([rate / 2 for rate in rates], [0.5] * len(rates))


def simulated(kind: str, n_before: int, n_after: int, *, factor: float) -> list[Interval]:
    random = np.random.default_rng(11)
    generate = KINDS[kind]
    return [
        rate_ratio(series(generate(random, n_before)), series([factor * r for r in generate(random, n_after)]))
        for _ in range(N_SIMULATIONS)
    ]


@pytest.mark.parametrize("sizes", [(120, 120), (120, 40), (120, 12), (40, 40), (12, 40)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_an_interval_of_95_percent_holds_the_truth_that_often(kind: str, sizes: tuple[int, int]) -> None:
    intervals = simulated(kind, *sizes, factor=1.3)
    n_true = sum(interval.holds(1.3) for interval in intervals)
    assert n_true >= 0.9 * N_SIMULATIONS


@pytest.mark.parametrize("sizes", [(120, 120), (120, 20), (40, 40)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_effect_is_seldom_taken_for_one(kind: str, sizes: tuple[int, int]) -> None:
    intervals = simulated(kind, *sizes, factor=1.0)
    n_wrong = sum(not interval.holds(1.0) for interval in intervals)
    assert n_wrong <= 0.08 * N_SIMULATIONS


@pytest.mark.parametrize(("kind", "most"), [("independent", 0.06), ("alike", 0.1), ("rare lulls", 0.25)])
def test_an_interval_is_no_wider_than_it_must_be(kind: str, most: float) -> None:
    """Of a minute each: twice the standard error, with what its estimation costs."""
    widths = [math.log(interval.high / interval.low) / 2 for interval in simulated(kind, 120, 120, factor=1.0)]
    assert np.median(widths) < most


def test_by_hand() -> None:
    """Rates of 11 and 22, each of which errs by 1 in 10 alternately: 8 batches, and neighbours are never alike."""
    before, after = Series([10, 12] * 4, [1.0] * 8), Series([20, 24] * 4, [1.0] * 8)
    error = math.sqrt(2 * (8 / 7) / 11**2 / 8)
    reach = 2.1448 * error  # Student's t of 14 degrees of freedom
    ratio = rate_ratio(before, after)
    assert ratio.value == pytest.approx(2)
    assert math.log(ratio.high / 2) == pytest.approx(reach, rel=1e-4)
    assert math.log(2 / ratio.low) == pytest.approx(reach, rel=1e-4)
    difference = rate_difference(before, Series([12, 10] * 4, [1.0] * 8))
    assert difference.value == 0
    assert difference.low == pytest.approx(-2.1448 * error * 11, rel=1e-4)


def test_a_slow_swing_seen_in_the_long_window_widens_the_short_one() -> None:
    slow = [40.0 if i // 20 % 2 else 60.0 for i in range(120)]
    steady = [60.0 + i % 2 for i in range(12)]
    assert rate_ratio(series(slow), series(steady)).holds(1.0)
    assert rate_ratio(series(steady), series(slow)).holds(1.0)


def test_constant_rates_have_intervals_without_width() -> None:
    ratio = rate_ratio(series([4.0] * 8), series([6.0] * 8))
    assert [ratio.low, ratio.value, ratio.high] == pytest.approx([1.5, 1.5, 1.5])


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="rate of 0"):
        rate_ratio(series([0.0] * 8), series([1.0] * 8))
    with pytest.raises(ValueError, match="4 blocks"):
        rate_ratio(series([1.0] * 8), series([1.0] * 3))
    assert rate_difference(series([0.0] * 8), series([0.0] * 8)) == Interval(0.0, 0.0, 0.0)


AMOUNTS = st.lists(st.floats(0, 1e6), min_size=4, max_size=140)


@given(before=AMOUNTS, after=AMOUNTS)
def test_an_interval_is_finite_and_around_its_value(before: list[float], after: list[float]) -> None:
    difference = rate_difference(series(before), series(after))
    assert -math.inf < difference.low <= difference.value <= difference.high < math.inf
    if sum(before) > 1e-3 and sum(after) > 1e-3:
        ratio = rate_ratio(series(before), series(after))
        assert 0 < ratio.low <= ratio.value <= ratio.high < math.inf


@given(
    before=st.lists(st.floats(1, 1e3), min_size=4, max_size=60),
    after=st.lists(st.floats(1, 1e3), min_size=4, max_size=60),
    factor=st.floats(0.1, 10),
)
def test_units_do_not_matter_and_the_order_turns_it_over(
    before: list[float], after: list[float], factor: float
) -> None:
    ratio = rate_ratio(series(before), series(after))
    scaled = rate_ratio(series([factor * x for x in before]), series([factor * x for x in after]))
    turned = rate_ratio(series(after), series(before))
    assert [scaled.low, scaled.high] == pytest.approx([ratio.low, ratio.high], rel=1e-6)
    assert [turned.low, turned.high] == pytest.approx([1 / ratio.high, 1 / ratio.low])
