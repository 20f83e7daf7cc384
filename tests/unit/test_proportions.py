"""Proportions of what comes in time: their intervals hold the truth nine times in ten, however alike things are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.proportions import Sample, proportion

if TYPE_CHECKING:
    from stackscope.records import Estimate

ROUNDS: Final = 30
"""A second, for each request."""


def test_few_rounds_are_unsure_and_many_are_sure() -> None:
    few = proportion([Sample(1, 2, 2)])
    many = proportion([Sample(500 + n % 3, 1000, 1000) for n in range(60)])
    assert few is not None
    assert few.high - few.low > 0.7
    assert many is not None
    assert many.high - many.low < 0.02
    assert proportion([]) is None
    assert proportion([Sample(0, 0, 0)]) is None


@pytest.mark.parametrize("amount", [0, 7])
def test_none_and_all_are_not_certain(amount: int) -> None:
    estimate = proportion([Sample(amount, 7, 7) for _ in range(5)])
    assert estimate is not None
    assert estimate.value == amount / 7
    assert 0.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0
    assert estimate.high - estimate.low > 0.03


def estimates(n_blocks: int, spread: float, stay: float, runs: int) -> list[Estimate]:
    """Of a share of 0.5 in all: rates that differ from block to block, or stay for a few blocks as requests do."""
    rng = random.Random(n_blocks)
    found = []
    for _ in range(runs):
        rate = 0.5 + rng.uniform(-spread, spread)
        samples = []
        for index in range(n_blocks):
            if rng.random() >= stay:
                rate = 0.5 + rng.uniform(-spread, spread)
            rounds = rng.randint(20, 60)
            hits = sum(rng.random() < rate for _ in range(rounds))
            samples.append(Sample(hits, rounds, rounds, 0.5 ** ((n_blocks - index) / 20)))
        estimate = proportion(samples)
        assert estimate is not None
        found.append(estimate)
    return found


@pytest.mark.parametrize(
    ("n_blocks", "spread", "stay"),
    [
        (6, 0.0, 0.0), (6, 0.2, 0.0), (20, 0.0, 0.0), (20, 0.2, 0.0), (20, 0.1, 0.5), (60, 0.2, 0.0), (60, 0.2, 0.8),
        (60, 0.45, 0.8), (120, 0.45, 0.8),
    ],
)  # fmt: skip
def test_intervals_hold_the_truth_nine_times_in_ten(n_blocks: int, spread: float, stay: float) -> None:
    found = estimates(n_blocks, spread, stay, 400)
    assert 0.85 <= sum(one.holds(0.5) for one in found) / len(found) <= 0.99


@pytest.mark.parametrize(("n_blocks", "spread", "stay"), [(20, 0.1, 0.5), (60, 0.2, 0.8), (60, 0.45, 0.8)])
def test_after_a_thousand_drafts_not_everything_is_possible(n_blocks: int, spread: float, stay: float) -> None:
    """Nor where a dozen batches happen to look much alike."""
    found = estimates(n_blocks, spread, stay, 200)
    assert sum(one.high - one.low > 0.9 for one in found) <= 0.15 * len(found)
    assert sorted(one.high - one.low for one in found)[len(found) // 2] < 0.6


def of_requests(rng: random.Random, seconds: int, length: int, at_once: int, spread: float) -> Estimate:
    """Of requests that run for about so many seconds, each with a rate of its own around 0.5."""
    hits, base = [0] * seconds, [0] * seconds
    requests = []
    for _ in range(at_once):
        begin = -rng.randrange(length)
        while begin < seconds:
            end, rate = begin + max(1, round(rng.uniform(0.6, 1.4) * length)), 0.5 + rng.uniform(-spread, spread)
            mine = weighed = 0.0
            for second in range(max(begin, 0), min(end, seconds)):
                n = sum(rng.random() < rate for _ in range(ROUNDS))
                hits[second] += n
                base[second] += ROUNDS
                weight = faded(seconds - 1 - second)
                mine, weighed = mine + weight * n, weighed + weight * ROUNDS
            if weighed:
                requests.append(Sample(mine, weighed, weighed))
            begin = end
    blocks = [
        Sample(n, of, of, faded(seconds - 1 - second)) for second, (n, of) in enumerate(zip(hits, base, strict=True))
    ]
    estimate = proportion(blocks, requests)
    assert estimate is not None
    return estimate


def faded(seconds: int) -> float:
    return float(0.5 ** (seconds / 20))


@pytest.mark.parametrize(
    ("seconds", "length", "at_once", "spread"),
    [(90, 5, 8, 0.3), (90, 20, 4, 0.3), (90, 40, 4, 0.3), (90, 40, 8, 0.3), (60, 20, 4, 0.1), (30, 20, 2, 0.3)],
)
def test_intervals_allow_for_few_requests_that_run_long(seconds: int, length: int, at_once: int, spread: float) -> None:
    rng = random.Random(seconds + length)
    found = [of_requests(rng, seconds, length, at_once, spread) for _ in range(150)]
    assert sum(one.holds(0.5) for one in found) / len(found) >= 0.84
    assert sorted(one.high - one.low for one in found)[len(found) // 2] < 0.5


def test_requests_of_long_ago_say_nothing_of_what_shadows_find_now() -> None:
    now = [Sample(50 + n % 3, 100, 100) for n in range(30)]
    old = [Sample(1, 10, 10, 0.01), Sample(9, 10, 10, 0.01)]
    assert proportion(now, old) == proportion(now)
    assert proportion(now, [Sample(10, 1000, 1000), Sample(990, 1000, 1000)]) != proportion(now)
