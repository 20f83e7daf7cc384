"""Lengths drawn from distributions, each stream on its own."""

from __future__ import annotations

import pytest

from stackscope.workload.draws import Purpose, draw, stream
from stackscope.workload.spec import Length


def draws(length: Length, n: int = 20_000) -> list[int]:
    rng = stream(3, Purpose.JOB, 0)
    return [draw(length, rng) for _ in range(n)]


def test_a_fixed_length_is_just_that() -> None:
    assert set(draws(Length.fixed(17), 5)) == {17}


def test_a_uniform_length_covers_its_ends() -> None:
    assert set(draws(Length.uniform(3, 6))) == {3, 4, 5, 6}


@pytest.mark.parametrize("length", [Length.geometric(40), Length.lognormal(40, 0.5), Length.uniform(1, 79)])
def test_the_mean_is_the_one_asked_for(length: Length) -> None:
    values = draws(length)
    # Standard deviations 40, 20 and 23; five standard errors of 20,000 draws are 1.4, 0.7 and 0.8.
    assert sum(values) / len(values) == pytest.approx(40, abs=1.4)
    assert min(values) >= 1
    assert max(values) <= length.most


def test_the_spread_of_a_lognormal_is_its_coefficient_of_variation() -> None:
    values = draws(Length.lognormal(200, 0.5), 50_000)
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    assert deviation / mean == pytest.approx(0.5, rel=0.03)


def test_draws_are_clipped() -> None:
    values = draws(Length(kind="geometric", mean=10, low=5, high=12))
    assert (min(values), max(values)) == (5, 12)


def test_streams_differ_by_seed_purpose_and_index() -> None:
    first = [
        stream(seed, purpose, index).integers(2**40)
        for seed in (0, 1)
        for purpose in (Purpose.JOB, Purpose.TURNS)
        for index in (0, 1)
    ]
    assert len(set(first)) == 8
