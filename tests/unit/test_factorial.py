"""Contrasts of cells: known answers, and how often their intervals hold the truth when it is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stackscope.analysis import factorial
from stackscope.analysis.factorial import Contrast

BLOCK_SD, RUN_SD = 0.05, 0.02
"""How much blocks, and the runs in a block, differ: what two shared cores do."""


def responses(
    random: np.random.Generator, truth: dict[int, float], n_blocks: int, *, run_sd: float = RUN_SD
) -> dict[int, list[float]]:
    """Logarithms of cells around their true values, with what all cells of a block have in common."""
    common = random.normal(0, BLOCK_SD, n_blocks)
    return {cell: list(value + common + random.normal(0, run_sd, n_blocks)) for cell, value in truth.items()}


def planted(a: float, b: float, interaction: float) -> dict[int, float]:
    """True logarithms of two settings with these speed-ups, and that ratio of their product together."""
    return {0: 3.0, 1: 3.0 + math.log(a), 2: 3.0 + math.log(b), 3: 3.0 + math.log(a * b * interaction)}


def test_a_speed_up_is_the_geometric_mean_of_the_ratios_in_each_block() -> None:
    found = factorial.estimate({0: [math.log(10), math.log(20)], 1: [math.log(20), math.log(80)]}, {1: 1.0, 0: -1.0})
    assert found.ratio == pytest.approx(math.sqrt(2.0 * 4.0))
    # ln 2 and ln 4 stray by ln 2 ÷ 2 from their mean; ÷ √2 twice over, since n − 1 = 1.
    assert found.error == pytest.approx(math.log(2) / 2)
    assert found.n == 2


def test_the_interval_is_students_over_the_blocks() -> None:
    found = Contrast(0.0, 0.01, 8)
    # The 97.5 % quantile of Student's distribution with 7 degrees of freedom, from its table.
    assert found.half_width() == pytest.approx(2.364624 * 0.01, rel=1e-5)
    interval = found.interval()
    assert interval is not None
    assert interval.high == pytest.approx(math.exp(0.02364624), rel=1e-6)
    assert interval.low == pytest.approx(1 / interval.high)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_blocks_have_no_interval_and_claim_nothing(n: int) -> None:
    found = factorial.estimate({0: [1.0] * n, 1: [3.0] * n}, factorial.speed_up(1))
    assert found.ratio == pytest.approx(math.exp(2))
    assert found.interval() is None
    assert not found.is_from_one()
    assert not found.is_narrow()


def test_the_worked_example_of_the_cost_model() -> None:
    """Weights 1.54×, speculation 1.66×, together 2.18×: 86 % of the product, by hand."""
    logs = {cell: [math.log(value)] * 3 for cell, value in {0: 1.0, 1: 1.54, 2: 1.66, 3: 2.18}.items()}
    assert factorial.estimate(logs, factorial.product(3)).ratio == pytest.approx(1.54 * 1.66)
    assert factorial.estimate(logs, factorial.of_product(3)).ratio == pytest.approx(2.18 / (1.54 * 1.66))


def test_three_settings_together_against_the_product_of_three() -> None:
    logs = {cell: [math.log(value)] * 2 for cell, value in {0: 2.0, 1: 3.0, 2: 5.0, 4: 7.0, 7: 60.0}.items()}
    assert factorial.estimate(logs, factorial.of_product(7)).ratio == pytest.approx((60 / 2) / (3 / 2 * 5 / 2 * 7 / 2))


@pytest.mark.parametrize("bad", [{0: [1.0]}, {0: [], 1: []}, {0: [1.0, 2.0], 1: [1.0]}])
def test_what_is_no_set_of_complete_blocks_is_refused(bad: dict[int, list[float]]) -> None:
    with pytest.raises(ValueError, match=r"cells|block|inhomogeneous"):
        factorial.estimate(bad, factorial.speed_up(1))


@pytest.mark.parametrize("n_blocks", [3, 5, 8, 12, 20])
def test_intervals_hold_the_truth_as_often_as_they_say(n_blocks: int) -> None:
    random = np.random.default_rng(n_blocks)
    truth = planted(1.54, 1.66, 0.86)
    n = 3_000
    held = {"speed-up": 0, "interaction": 0}
    for _ in range(n):
        logs = responses(random, truth, n_blocks)
        for name, weights, value in (
            ("speed-up", factorial.speed_up(1), 1.54),
            ("interaction", factorial.of_product(3), 0.86),
        ):
            interval = factorial.estimate(logs, weights).interval()
            assert interval is not None
            held[name] += interval.holds(value)
    assert {name: 0.93 <= count / n <= 0.97 for name, count in held.items()} == {"speed-up": True, "interaction": True}


def test_a_planted_interaction_is_recovered() -> None:
    random = np.random.default_rng(86)
    truth = planted(1.54, 1.66, 0.86)
    found = [factorial.estimate(responses(random, truth, 8), factorial.of_product(3)) for _ in range(400)]
    assert np.median([one.ratio for one in found]) == pytest.approx(0.86, abs=0.005)
    # Runs stray by 2 %, so the contrast by 4 % in a block and by 1.4 % over eight: 15 % is ten times that.
    assert sum(one.is_from_one() and one.log < 0 for one in found) == len(found)


def test_where_none_is_planted_none_is_claimed_at_the_stated_rate() -> None:
    random = np.random.default_rng(1)
    truth = planted(1.54, 1.66, 1.0)
    n = 3_000
    claims = sum(
        factorial.estimate(responses(random, truth, 8), factorial.of_product(3)).is_from_one() for _ in range(n)
    )
    assert 0.035 <= claims / n <= 0.065


def test_intervals_hold_together_when_each_is_made_wider() -> None:
    assert factorial.simultaneous(1) == pytest.approx(0.95)
    assert factorial.simultaneous(5) == pytest.approx(0.99)
    random = np.random.default_rng(2)
    truth = dict.fromkeys(range(8), 0.0)
    pairs, n, confidence = (3, 5, 6), 1_500, factorial.simultaneous(3)
    wrong = 0
    for _ in range(n):
        logs = responses(random, truth, 8)
        wrong += any(factorial.estimate(logs, factorial.of_product(pair)).is_from_one(confidence) for pair in pairs)
    assert wrong / n <= 0.065


def test_narrow_is_a_bound_or_a_part_of_the_effect() -> None:
    quantile = factorial.quantile(7, 0.975)
    assert Contrast(0.0, 0.0149 / quantile, 8).is_narrow()
    assert not Contrast(0.0, 0.0151 / quantile, 8).is_narrow()
    assert Contrast(-0.4, 0.099 / quantile, 8).is_narrow()
    assert not Contrast(-0.4, 0.101 / quantile, 8).is_narrow()
    assert not Contrast(0.0, 0.0149 / quantile, 8).is_narrow(0.99)
