"""Distributions: exact while they are small, close when they are large, unknown when they are empty."""

from __future__ import annotations

import numpy as np
import pytest

from stackscope.analysis.distribution import EXACT_VALUES, Distribution, Spread


def spread_of(values: list[float]) -> Spread:
    spread = Distribution(values).spread()
    assert spread is not None
    return spread


def test_nothing_has_no_percentiles() -> None:
    assert Distribution().spread() is None


def test_percentiles_interpolate() -> None:
    """1 … 5: the median is the third, the p90 lies at 0.6 between the fourth and the fifth."""
    spread = spread_of([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (spread.n, spread.min, spread.p50, spread.max) == (5, 1.0, 3.0, 5.0)
    assert spread.p90 == pytest.approx(4.6)
    assert spread.mean == 3.0
    assert spread.is_exact


@pytest.mark.parametrize(
    ("n", "unsupported"),
    [(1, ("p50", "p90", "p95", "p99")), (2, ("p90", "p95", "p99")), (20, ("p99",)), (99, ("p99",)), (100, ())],
)
def test_a_percentile_needs_a_value_beyond_it(n: int, unsupported: tuple[str, ...]) -> None:
    """The p99 of fewer than 100 values is the largest of them in disguise, and is marked."""
    spread = spread_of([float(i) for i in range(n)])
    assert spread.unsupported == unsupported
    assert spread.to_dict()["unsupported"] == list(unsupported)
    assert spread.to_dict()["n"] == n


def test_many_values_stay_close_in_little_memory() -> None:
    values = np.random.default_rng(7).lognormal(15.0, 2.0, 3 * EXACT_VALUES)
    distribution = Distribution(float(v) for v in values)
    spread = distribution.spread()
    assert spread is not None
    assert not spread.is_exact
    assert (spread.n, spread.min, spread.max) == (len(values), values.min(), values.max())
    assert spread.mean == pytest.approx(values.mean())
    for p, found in zip((50, 90, 95, 99), (spread.p50, spread.p90, spread.p95, spread.p99), strict=True):
        assert found == pytest.approx(np.percentile(values, p), rel=0.003)
    assert len(distribution._buckets) < 5_000


@pytest.mark.parametrize("stretch", [1, 1_000, EXACT_VALUES, EXACT_VALUES + 1, EXACT_VALUES + 2, 3 * EXACT_VALUES])
def test_many_values_at_once_are_the_same_as_one_by_one(stretch: int) -> None:
    values = np.random.default_rng(7).lognormal(15.0, 2.0, 2 * EXACT_VALUES + 99).tolist()
    one_by_one, at_once = Distribution(values), Distribution()
    for start in range(0, len(values), stretch):
        at_once.extend(values[start : start + stretch])
    assert at_once.spread() == one_by_one.spread()
    assert len(at_once) == len(values)


def test_zeros_are_values() -> None:
    distribution = Distribution(0.0 for _ in range(EXACT_VALUES + 10))
    distribution.add(8.0)
    spread = distribution.spread()
    assert spread is not None
    assert (spread.n, spread.min, spread.p50, spread.max) == (EXACT_VALUES + 11, 0.0, 0.0, 8.0)


def test_reading_does_not_change_what_is_added_later() -> None:
    distribution = Distribution(float(i) for i in range(EXACT_VALUES + 1))
    first = distribution.spread()
    distribution.add(0.0)
    second = distribution.spread()
    assert first is not None
    assert second is not None
    assert second.n == first.n + 1


@pytest.mark.parametrize("sizes", [(3, 4), (EXACT_VALUES, 5), (5, EXACT_VALUES + 5), (EXACT_VALUES + 1, EXACT_VALUES)])
def test_merging_equals_collecting_together(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(11)
    first, second = ([float(v) for v in rng.uniform(1, 1e6, n)] for n in sizes)
    merged, together = Distribution(first), Distribution(first + second)
    other = Distribution(second)
    merged.merge(other)
    found, expected = merged.spread(), together.spread()
    assert found is not None
    assert expected is not None
    assert (found.n, found.min, found.max) == (expected.n, expected.min, expected.max)
    assert found.p90 == pytest.approx(expected.p90, rel=0.006)
    assert len(other) == sizes[1]
