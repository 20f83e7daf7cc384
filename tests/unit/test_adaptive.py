"""The adaptive draft length finds what pays, by cost where it is known and by trial where it is not."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from stackscope.engine.adaptive import (
    LONGEST_REST,
    PROBE_SHARE,
    AdaptiveLength,
    CostCurve,
    CostedLength,
    SteppedLength,
    adaptive_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FLAT = CostCurve(tuple(1e6 * (1 + 0.05 * rows) for rows in range(16)))
"""Memory-bound: a row more costs 5 %."""
STEEP = CostCurve(tuple(1e6 * (1 + rows) for rows in range(16)))
"""Compute-bound: every row costs a forward."""
SAW = CostCurve(tuple(1e6 * x for x in (1.0, 1.96, 3.4, 2.5, 3.8, 4.0, 4.3, 4.4, 5.9)))
"""Three rows cost more than four: measured on a quantised model whose kernels take four rows at a time."""


def play(rule: AdaptiveLength, acceptance: Callable[[int], Sequence[float]], *, rounds: int, cap: int = 8) -> list[int]:
    """Lengths chosen while position j of round r is accepted with probability `acceptance(r)[j]` (or its last)."""
    rng = np.random.default_rng(1)
    lengths = []
    for number in range(rounds):
        rates = acceptance(number)
        length = rule.choose(cap)
        accepted = 0
        while accepted < length and rng.random() < rates[min(accepted, len(rates) - 1)]:
            accepted += 1
        rule.observe(length, accepted)
        lengths.append(length)
    return lengths


def rate_of(lengths: list[int], acceptance: float, cost: CostCurve) -> float:
    """Expected tokens per ns of those lengths at an acceptance α: Σ (1 − α^(k+1)) / (1 − α) over Σ t(k)."""
    tokens = sum((1 - acceptance ** (k + 1)) / (1 - acceptance) for k in lengths)
    return tokens / sum(cost.round_ns(k) for k in lengths)


# ---------------------------------------------------------------------------------------------- costs


def test_a_round_costs_its_drafts_and_its_rows() -> None:
    curve = CostCurve((10.0, 14.0, 25.0, 20.0), draft_ns=3.0)
    assert curve.round_ns(0) == 10.0
    assert curve.round_ns(2) == 25.0 + 2 * 3.0
    assert curve.round_ns(1, sequences=2) == 20.0 + 3.0  # 2 × (1 + 1) rows, and one draft forward for both
    assert curve.round_ns(4, sequences=2) == 20.0 * 10 / 4 + 4 * 3.0  # 10 rows at the average of the 4 measured


@pytest.mark.parametrize(("forwards", "draft"), [((), 0.0), ((0.0,), 0.0), ((float("nan"),), 0.0), ((1.0,), -1.0)])
def test_impossible_costs_are_refused(forwards: tuple[float, ...], draft: float) -> None:
    with pytest.raises(ValueError, match="cost curve"):
        CostCurve(forwards, draft)


# ---------------------------------------------------------------------------------------------- by trial


def test_trial_grows_by_one_and_halves() -> None:
    rule = SteppedLength()
    lengths = []
    for accepted_share in (1.0, 1.0, 1.0, 0.0, 0.5, 1.0):
        length = rule.choose(8)
        rule.observe(length, int(accepted_share * length))
        lengths.append(length)
    # 2, 3, 4, 5, then 0 of 5: 2; 1 of 2 is half, and stays: 2; then 3
    assert [*lengths, rule.choose(8)] == [2, 3, 4, 5, 2, 2, 3]


def test_trial_rests_longer_after_each_failed_probe() -> None:
    rule = SteppedLength()
    lengths = play(rule, lambda _: [0.0], rounds=400)
    assert lengths[:2] == [2, 1]
    tried = [i for i, length in enumerate(lengths) if length > 0]
    rests = [b - a - 1 for a, b in pairwise(tried)]
    assert rests[:7] == [0, 1, 2, 4, 8, 16, LONGEST_REST]
    assert set(rests[7:]) == {LONGEST_REST}


def test_trial_recovers_from_a_rest() -> None:
    lengths = play(SteppedLength(), lambda number: [0.0] if number < 200 else [1.0], rounds=300)
    assert max(lengths[100:200]) == 1
    assert lengths[-1] == 8


def test_trial_rests_shortly_again_after_a_success() -> None:
    rule = SteppedLength()
    play(rule, lambda _: [0.0], rounds=200)
    while rule.choose(8) == 0:
        pass
    rule.observe(1, 1)
    lengths = play(rule, lambda _: [0.0], rounds=6)
    assert lengths == [2, 1, 0, 1, 0, 0]


def test_trial_does_not_grow_on_what_the_drafter_fell_short_of() -> None:
    rule = SteppedLength()
    rule.observe(2, 2)
    rule.observe(1, 1)  # asked for 3, found 1
    assert rule.choose(8) == 3


def test_a_round_without_drafts_says_nothing() -> None:
    for rule in (SteppedLength(), CostedLength(FLAT)):
        before = rule.choose(8)
        for _ in range(5):
            rule.observe(0, 0)
        assert rule.choose(8) == before


# ---------------------------------------------------------------------------------------------- by cost


@pytest.mark.parametrize("cost", [FLAT, STEEP, SAW], ids=["flat", "steep", "saw"])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6, 0.9])
def test_costed_comes_close_to_the_best_fixed_length(cost: CostCurve, acceptance: float) -> None:
    lengths = play(CostedLength(cost), lambda _: [acceptance], rounds=2_000)
    best = max(rate_of([k], acceptance, cost) for k in range(9))
    assert rate_of(lengths, acceptance, cost) >= 0.96 * best


def test_costed_uses_the_tooth_of_the_curve() -> None:
    # τ(k)/t(k) at α = 0.9, k = 0…8: 1, 0.97, 0.80, 1.38, 1.08, 1.17, 1.21, 1.29, 1.04: four rows are the cheapest.
    lengths = play(CostedLength(SAW), lambda _: [0.9], rounds=1_000)
    assert np.bincount(lengths).argmax() == 3


def test_costed_judges_positions_apart() -> None:
    # Found in one round of five, but then nearly always right: τ(8) = 1 + 0.2·(1 + 0.95 + … + 0.95⁷) = 2.35 at a cost
    # of 1.4. The first position's rate alone would give τ(8) = 1.25, below the 1.4.
    lengths = play(CostedLength(FLAT), lambda _: [0.2, 0.95], rounds=1_000)
    assert np.mean(lengths[200:]) > 7.0


def test_costed_gives_up_what_does_not_pay_and_says_so_by_zero() -> None:
    lengths = play(CostedLength(FLAT), lambda _: [0.0], rounds=1_000)
    assert np.mean(np.array(lengths[100:]) == 0) > 0.6
    extra = sum(FLAT.round_ns(k) for k in lengths[100:]) / (900 * FLAT.round_ns(0)) - 1.0
    assert extra <= 1.2 * PROBE_SHARE


def test_costed_finds_its_way_back() -> None:
    lengths = play(CostedLength(FLAT), lambda number: [0.0] if number < 500 else [0.95], rounds=600)
    assert np.mean(lengths[400:500]) < 1.0
    assert np.mean(lengths[530:]) > 7.0


def test_a_probe_that_is_accepted_whole_is_doubled_at_once() -> None:
    rule = CostedLength(FLAT)
    play(rule, lambda _: [0.0], rounds=500)
    while (length := rule.choose(8)) == 0:
        pass
    streak = []
    for _ in range(4):
        streak.append(length)
        rule.observe(length, length)
        length = rule.choose(8)
    assert streak == [1, 2, 4, 8]


def test_costed_never_probes_where_nothing_could_pay() -> None:
    # Even with everything accepted k + 1 tokens cost k + 1 forwards.
    assert set(play(CostedLength(STEEP), lambda _: [0.0], rounds=500)) == {0}


def test_a_full_batch_drafts_less_than_one_sequence() -> None:
    # Up to 8 rows cost what one does, more than that in proportion.
    knee = CostCurve(tuple(1e6 * max(1.0, rows / 8) for rows in range(1, 65)))
    rule = CostedLength(knee)
    for _ in range(50):
        rule.choose(7, 1)
        rule.observe(7, 5)
    assert rule.choose(7, 1) == 7  # 8 rows: free
    assert rule.choose(7, 8) == 0  # 16 rows for the first draft: twice the cost for less than twice the tokens


def test_an_unseen_position_leans_on_the_one_before() -> None:
    rule = CostedLength(FLAT)
    assert rule.acceptance(3) == [0.6, 0.6, 0.6]
    rule.choose(1)
    rule.observe(1, 1)
    # (1 + 1·0.6) / (1 + 1)
    assert rule.acceptance(3) == pytest.approx([0.8, 0.8, 0.8])
    rule.observe(2, 1)
    # first: seen 0.95 + 1, kept 0.95 + 1; second: (0 + 1·first) / (1 + 1)
    first = (1.95 + 0.6) / (1.95 + 1)
    assert rule.acceptance(3) == pytest.approx([first, first / 2, first / 2])


def test_the_rule_follows_from_what_is_known() -> None:
    assert isinstance(adaptive_length(), SteppedLength)
    assert isinstance(adaptive_length(FLAT), CostedLength)
