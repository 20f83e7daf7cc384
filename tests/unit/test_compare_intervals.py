"""Intervals of comparisons: hand-made ones to the digit, and how often those of simulated sessions hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stackscope.analysis.comparing.digest import Values
from stackscope.analysis.comparing.intervals import Blocks, Estimated, rate_interval, ratio_of_rates, t_half_width
from stackscope.analysis.comparing.percentiles import Grouped, least_for, percentile_interval, ratio_of_percentiles


def blocks(amounts: list[float], bases: list[float] | None = None) -> Blocks:
    made = np.array(amounts)
    return Blocks(made, np.ones(len(made)) if bases is None else np.array(bases), made)


def single(values: np.ndarray) -> Grouped:
    """One request after the other, each with one value."""
    return grouped(values, 1)


def grouped(values: np.ndarray, in_flight: int) -> Grouped:
    """So many requests at a time, each with one value."""
    return Grouped(Values.of(np.asarray(values, dtype=np.float64), np.arange(len(values), dtype=np.int32)), in_flight)


# Rates


def test_half_a_t_interval_by_hand() -> None:
    """Five values, 0 to 4 in an order without correlation: s² = 2.5, t(4) = 2.776, so 2.776 × √(2.5 ÷ 5)."""
    assert t_half_width(np.array([2.0, 4.0, 0.0, 3.0, 1.0])) == pytest.approx(2.7764451 * math.sqrt(0.5))


def test_what_takes_half_the_time_in_every_portion_is_twice_as_fast_for_certain() -> None:
    """Tokens come unevenly, and B takes half the time over each of them."""
    tokens = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0, 8.0]
    times = [30.0, 12.0, 44.0, 9.0, 70.0, 90.0, 20.0, 50.0, 51.0, 30.0, 50.0, 88.0]
    found = ratio_of_rates(blocks(tokens, times), blocks(tokens, [t / 2 for t in times]), is_same_work=True)
    assert isinstance(found, Estimated)
    assert found.how == "paired"
    assert found.interval.low == pytest.approx(2.0)
    assert found.interval.high == pytest.approx(2.0)
    apart = ratio_of_rates(blocks(tokens, times), blocks(tokens, [t / 2 for t in times]), is_same_work=False)
    assert isinstance(apart, Estimated)
    assert apart.how == "unpaired"
    assert apart.interval.low < 1.95 < 2.05 < apart.interval.high


def test_why_a_rate_has_no_interval() -> None:
    some, none = blocks([1.0, 2.0, 3.0, 1.0]), blocks([0.0, 0.0, 0.0, 0.0])
    assert ratio_of_rates(some, none, is_same_work=False) == "one of them is 0"
    assert ratio_of_rates(some, blocks([1.0, 2.0]), is_same_work=False) == "too few steps in B"
    assert ratio_of_rates(blocks([1.0]), some, is_same_work=False, letters=("A", "C")) == "too few steps in A"
    assert ratio_of_rates(blocks([1.0]), blocks([1.0, 2.0]), is_same_work=False) == "too few steps"
    assert rate_interval(blocks([1.0, 2.0])) is None


def test_a_portion_with_nothing_in_it_is_not_paired() -> None:
    holes = blocks([0.0] * 10 + [1.0] * 10)
    even = Blocks(np.ones(20), np.ones(20), np.ones(20))
    found = ratio_of_rates(Blocks(holes.amounts, np.ones(20), np.ones(20)), even, is_same_work=True)
    assert isinstance(found, Estimated)
    assert found.how == "unpaired"


@pytest.mark.parametrize(("n", "correlation"), [(12, 0.0), (40, 0.0), (40, 0.4), (400, 0.4)])
def test_paired_intervals_hold_the_truth(n: int, correlation: float) -> None:
    """The same work, which is uneven; every block takes its own time in each, and neighbours resemble each other."""
    generator = np.random.default_rng(n)
    held = 0
    for _ in range(400):
        work = np.repeat(generator.normal(0.0, 0.5, n // 4 + 1), 4)[:n]
        pair = []
        for _ in range(2):
            noise = generator.normal(0.0, 0.15, n)
            for index in range(1, n):
                noise[index] += correlation * noise[index - 1]
            pair.append(Blocks(np.full(n, 8.0), np.exp(work + noise), np.full(n, 8.0)))
        found = ratio_of_rates(pair[0], pair[1], is_same_work=True)
        assert isinstance(found, Estimated)
        held += found.interval.holds(1.0)
    assert 0.92 <= held / 400 <= 0.99


def test_the_interval_of_one_rate_holds_the_truth() -> None:
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        found = rate_interval(blocks(list(generator.gamma(4.0, 2.5, 60))))
        assert found is not None
        held += found.holds(10.0)
    assert 0.92 <= held / 400 <= 0.995


# Percentiles


@pytest.mark.parametrize(("percentile", "least"), [(50, 5), (90, 25), (95, 50), (99, 250)])
def test_how_many_values_a_percentile_needs(percentile: int, least: int) -> None:
    assert least_for(percentile) == least
    assert single(np.arange(1.0, least + 1)).too_few(percentile) is None
    assert single(np.arange(1.0, least)).too_few(percentile) is not None


def test_values_that_resemble_those_of_their_group_are_worth_fewer() -> None:
    """250 requests, five at a time: where those together are all alike, there are as good as 50 of them."""
    generator = np.random.default_rng(0)
    own = generator.lognormal(0.0, 0.5, 250)
    apart, alike = grouped(own, 5), grouped(np.repeat(own[:50], 5), 5)
    assert apart.independent > 200
    assert alike.independent == pytest.approx(50)
    assert apart.too_few(95) is None
    assert alike.too_few(99) == "250 worth 50 independent ones"
    assert single(own).independent == 250
    half = grouped(np.repeat(own[:50], 5) * generator.lognormal(0.0, 0.5, 250), 5)
    assert 60 < half.independent < 140


def test_many_values_are_ranked_by_a_part_of_them() -> None:
    generator = np.random.default_rng(0)
    owners = np.repeat(np.arange(4000, dtype=np.int32), 20)
    many = Grouped(
        Values.of(np.exp(generator.normal(0, 0.5, 4000)[owners] + generator.normal(0, 0.5, 80_000)), owners), 1
    )
    # Half of the variance is the group's: 80,000 ÷ (1 + 19 × 0.48), ranks being a little less alike than values.
    assert many.independent == pytest.approx(80_000 / (1 + 19 * 0.48), rel=0.1)


def test_too_few_values_are_counted_in_the_reason() -> None:
    values = single(np.arange(1.0, 21.0))
    assert ratio_of_percentiles(values, values, 99) == "too few: 20, and its interval needs 250"
    few = grouped(np.arange(1.0, 9.0), 4)
    assert ratio_of_percentiles(few, values, 50) == "too few: 2 independent in A, and its interval needs 5"
    assert ratio_of_percentiles(values, few, 95, ("A", "C")) == (
        "too few: 20 in A and 2 independent in C, and its interval needs 50"
    )
    assert ratio_of_percentiles(few, few, 99) == "too few: 2 independent, and its interval needs 250"
    assert ratio_of_percentiles(single(np.zeros(0)), values, 50) == "there is none in A"
    assert ratio_of_percentiles(single(np.zeros(20)), values, 50) == "one of them is 0"
    assert percentile_interval(values, 99) is None
    assert percentile_interval(single(np.zeros(0)), 50) is None


@pytest.mark.parametrize(
    ("n", "percentile", "times"), [(12, 50, 150), (60, 50, 150), (100, 95, 100), (300, 95, 300), (400, 99, 300)]
)
def test_intervals_of_percentiles_hold_the_truth(n: int, percentile: int, times: int) -> None:
    generator = np.random.default_rng(n + percentile)
    held = 0
    for _ in range(times):
        a, b = (single(generator.lognormal(0.0, 0.5, n)) for _ in range(2))
        found = ratio_of_percentiles(a, b, percentile)
        assert isinstance(found, Estimated)
        assert found.how == ("resampled" if n <= 200 else "by shares")
        held += found.interval.holds(1.0)
    assert held / times >= 0.9


@pytest.mark.parametrize("n", [60, 300])
def test_requests_that_ran_together_are_drawn_together(n: int) -> None:
    """Four at a time share all that slows them: drawn one by one they would look four times as many as they are."""
    generator = np.random.default_rng(n)
    held = alone = 0
    for _ in range(150):
        values = [np.repeat(generator.lognormal(0.0, 0.3, n // 4), 4) for _ in range(2)]
        found = ratio_of_percentiles(grouped(values[0], 4), grouped(values[1], 4), 50)
        naive = ratio_of_percentiles(single(values[0]), single(values[1]), 50)
        assert isinstance(found, Estimated)
        assert isinstance(naive, Estimated)
        held += found.interval.holds(1.0)
        alone += naive.interval.holds(1.0)
    assert held / 150 >= 0.92
    assert alone < held


def test_the_interval_of_one_percentile_holds_the_truth() -> None:
    generator = np.random.default_rng(9)
    held = 0
    for _ in range(200):
        found = percentile_interval(single(generator.lognormal(0.0, 0.5, 80)), 50)
        assert found is not None
        held += found.holds(1.0)
    assert held / 200 >= 0.92


def test_intervals_do_not_depend_on_the_hour() -> None:
    generator = np.random.default_rng(0)
    for n in (40, 400):
        a, b = (single(generator.lognormal(0.0, 0.5, n)) for _ in range(2))
        assert ratio_of_percentiles(a, b, 50) == ratio_of_percentiles(a, b, 50)
