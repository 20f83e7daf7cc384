"""Bounds, determinism and liveliness of the adaptive draft length, whatever happens to the drafts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine.adaptive import LONGEST_REST, PROBE_SHARE, CostCurve, CostedLength, adaptive_length

costs = st.builds(
    CostCurve,
    st.lists(st.floats(0.1, 100.0), min_size=1, max_size=20).map(tuple),
    st.floats(0.0, 50.0),
)
rounds = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 16), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=150
)
"""(cap, sequences, share of the wanted drafts that are found, share of those that is accepted)."""


@given(st.none() | costs, rounds)
def test_within_bounds_and_the_same_every_time(
    cost: CostCurve | None, history: list[tuple[int, int, float, float]]
) -> None:
    first, second = adaptive_length(cost), adaptive_length(cost)
    for cap, sequences, found, accepted in history:
        length = first.choose(cap, sequences)
        assert 0 <= length <= cap
        assert second.choose(cap, sequences) == length
        drafted = round(found * length)
        for rule in (first, second):
            rule.observe(drafted, round(accepted * drafted))


@given(rounds, st.integers(1, 12))
def test_by_trial_a_draft_is_never_further_away_than_a_rest(
    history: list[tuple[int, int, float, float]], cap: int
) -> None:
    rule = adaptive_length()
    for _, sequences, found, accepted in history:
        drafted = round(found * rule.choose(cap, sequences))
        rule.observe(drafted, round(accepted * drafted))
    assert any(rule.choose(cap) > 0 for _ in range(LONGEST_REST + 1))


@given(rounds, st.integers(1, 12), st.floats(0.01, 0.5))
def test_by_cost_a_draft_that_could_pay_is_tried(
    history: list[tuple[int, int, float, float]], cap: int, per_row: float
) -> None:
    """A row costs less than a forward, so a draft could pay, and its price is earned in (price / share) rounds."""
    rule = CostedLength(CostCurve(tuple(1.0 + per_row * rows for rows in range(13))))
    for _, _, found, accepted in history:
        drafted = round(found * rule.choose(cap))
        rule.observe(drafted, round(accepted * drafted))
    n_rounds = int(per_row / PROBE_SHARE) + 2
    tried = False
    for _ in range(n_rounds):
        length = rule.choose(cap)
        rule.observe(length, 0)
        tried |= length > 0
    assert tried
