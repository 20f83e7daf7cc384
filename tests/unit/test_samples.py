"""Repeated measurements: which count, what they amount to, how many fit the time and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.experiments import samples
from stackscope.experiments.samples import Sample
from stackscope.records.ceilings import Measured


def test_the_median_and_the_middle_half() -> None:
    # Quartiles of 1 2 3 4 10, ends included: 2 and 4, so (4 − 2) / 3.
    found = samples.measured([10, 1, 4, 2, 3])
    assert (found.value, found.n) == (3, 5)
    assert found.spread == pytest.approx(2 / 3)


def test_one_value_has_no_spread_and_none_is_no_measurement() -> None:
    assert samples.measured([7]) == Measured(value=7, spread=None, n=1)
    with pytest.raises(ValueError, match="median"):
        samples.measured([])


def test_a_rate_is_an_amount_per_second() -> None:
    found = samples.rate(6_000, [Sample(2_000), Sample(3_000), Sample(6_000)])
    assert found.value == pytest.approx(2e9)  # 6,000 in 3 µs
    assert samples.duration([Sample(2_000), Sample(4_000)]).value == 3_000


def test_what_others_can_only_slow_down_is_judged_by_its_best_three() -> None:
    # 60, 59 and 58 GB/s once the others were gone, which took most of the time.
    slow = [Sample(6_000 / gb, 0.5) for gb in (20, 21, 19, 30, 25, 22, 18)]
    found = samples.best_rate(6_000, [*slow[:4], *(Sample(6_000 / gb) for gb in (58, 60, 59)), *slow[4:]])
    assert found.value == pytest.approx(59e9)
    assert found.spread == pytest.approx(2 / 59)
    assert found.n == 10
    assert samples.best_rate(6_000, [Sample(2_000)]) == Measured(value=3e9)
    with pytest.raises(ValueError, match="median"):
        samples.best_rate(1, [])


def test_one_lucky_sample_is_not_the_best_and_three_are() -> None:
    usual = [Sample(1_000)] * 12
    assert samples.best_duration([Sample(500), *usual]).value == 1_000
    assert samples.best_duration([Sample(ns) for ns in (900, 880, 890)] + usual) == Measured(
        value=890, spread=20 / 890, n=15
    )


def test_samples_that_differ_too_much_are_no_figure() -> None:
    assert samples.why_worthless(Measured(value=1, spread=0.49, n=4)) is None
    assert samples.why_worthless(Measured(value=1)) is None
    assert samples.why_worthless(Measured(value=1, spread=0.5, n=4)) == (
        "its samples differ by 50 %, too much for a figure"
    )


def test_quiet_samples_count_alone_when_there_are_enough() -> None:
    quiet, loud, unknown = Sample(1, 0.0), Sample(9, 0.5), Sample(5, None)
    assert samples.chosen([quiet, loud, quiet, unknown, quiet]) == [quiet] * 3
    assert samples.chosen([quiet, loud, quiet]) == [quiet, loud, quiet]
    assert samples.chosen([loud, unknown]) == [loud, unknown]
    assert not Sample(1, 0.03).is_quiet


def test_a_line_through_points() -> None:
    assert samples.slope([0, 1, 2], [5, 7, 9]) == pytest.approx(2)
    assert samples.slope([0], [5]) is None
    assert samples.slope([3, 3], [5, 7]) is None


def test_the_cheap_are_repeated_when_the_dear_do_not_fit() -> None:
    # Three rounds of 111 fit 350; what is left, 17, takes the two cheap once more, and then the cheapest.
    assert samples.repeats([1, 10, 100], 350, most=5) == [5, 4, 3]
    assert samples.repeats([100, 1], 99, most=3) == [0, 3]
    assert samples.repeats([], 10, most=3) == []
    assert samples.repeats([5], -1, most=3) == [0]


@given(st.lists(st.floats(0.1, 1e3), max_size=12), st.floats(-10, 1e4), st.integers(0, 9))
def test_repeats_stay_within_the_time_and_prefer_the_cheap(costs: list[float], budget: float, most: int) -> None:
    counts = samples.repeats(costs, budget, most=most)
    assert sum(count * cost for count, cost in zip(counts, costs, strict=True)) <= max(0.0, budget) * (1 + 1e-9)
    assert all(0 <= count <= most for count in counts)
    by_cost = [count for _, count in sorted(zip(costs, counts, strict=True), key=lambda pair: pair[0])]
    assert by_cost == sorted(by_cost, reverse=True)
    # Nothing is left out for which there was time.
    left = budget - sum(count * cost for count, cost in zip(counts, costs, strict=True))
    assert all(count == most or cost > left - 1e-6 for count, cost in zip(counts, costs, strict=True))


def test_repeats_are_spread_evenly() -> None:
    assert samples.interleaved([3, 1, 2]) == [0, 2, 0, 1, 2, 0]
    assert samples.interleaved([0, 2]) == [1, 1]
    assert samples.interleaved([]) == []


@given(st.lists(st.integers(0, 9), max_size=8))
def test_every_repeat_has_its_turn(counts: list[int]) -> None:
    order = samples.interleaved(counts)
    assert [order.count(index) for index in range(len(counts))] == counts
