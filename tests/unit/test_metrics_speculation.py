"""Speculation metrics against arithmetic on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.metrics.base import Figures
from stackscope.analysis.metrics.speculation import (
    AcceptanceByPosition,
    AcceptanceRate,
    Coverage,
    DraftedTokens,
    Survival,
    TokensPerForward,
    WastedRows,
    WastedRowShare,
)
from stackscope.analysis.summary import RunResult, RunSummary
from stackscope.analysis.totals import EventTotals, RequestTotals, StepTotals
from tests.analysis_builders import decode, prefill, step, verify

if TYPE_CHECKING:
    from stackscope.records import SlotWork


def summed(*work: SlotWork) -> RunResult:
    """One step per entry."""
    run = RunSummary()
    for n, slot in enumerate(work):
        run.write(step(slot, n=n))
    return run.result()


def test_without_speculation_a_is_one_at_any_batch() -> None:
    """The first tokens come out of prefills and are in neither part."""
    run = RunSummary()
    run.write(step(*[prefill(i, new=10, outputs=1, emitted=1) for i in range(8)]))
    run.write(step(*[decode(i, cached=10) for i in range(8)], n=1))
    run.write(step(*[decode(i, cached=11) for i in range(3)], prefill(9, new=5), n=2))
    assert run.result()[TokensPerForward] == 1.0
    assert run.result()[Coverage] == 0.0


def test_the_bonus_token_is_won_but_not_accepted() -> None:
    """Two rounds of 3 drafts with 2 and 0 accepted, and one plain step: 3 + 1 + 1 tokens in 3 forwards."""
    result = summed(
        verify(0, cached=5, drafted=3, accepted=2), verify(0, cached=8, drafted=3, accepted=0), decode(0, cached=9)
    )
    assert result[TokensPerForward] == pytest.approx(5 / 3)
    assert result[AcceptanceRate] == pytest.approx(2 / 6)
    assert result[DraftedTokens] == 6
    assert result[Coverage] == pytest.approx(2 / 3)
    assert result[WastedRows] == pytest.approx((4 - 3 + 4 - 1) / 2)
    assert result[WastedRowShare] == pytest.approx((1 + 3) / 9)


def test_a_perfect_rate_of_hardly_any_drafts_is_no_gain() -> None:
    """500 forwards, one of which drafted 3 tokens and kept them: 100 % accepted, A = 503 / 500."""
    plain = [decode(0, cached=n) for n in range(499)]
    result = summed(*plain, verify(0, cached=499, drafted=3, accepted=3))
    assert result[AcceptanceRate] == 1.0
    assert result[Coverage] == pytest.approx(1 / 500)
    assert result[TokensPerForward] == pytest.approx(1.006)


def test_nothing_is_counted_past_the_end_of_the_text() -> None:
    """A block a b EOS c d, all accepted: 3 tokens are emitted, not 6, and 3 are accepted, not 5."""
    result = summed(verify(0, cached=5, drafted=5, accepted=5, emitted=3))
    assert result[TokensPerForward] == 3.0
    assert result[AcceptanceRate] == pytest.approx(3 / 5)
    assert result[WastedRows] == 6 - 3


def test_nothing_is_counted_past_the_limit() -> None:
    """A limit of 4 tokens and a block of 6: 4 are emitted."""
    assert summed(verify(0, cached=5, drafted=5, accepted=5, emitted=4))[TokensPerForward] == 4.0


def test_acceptance_by_position_counts_short_drafts_as_misses() -> None:
    """Drafts of 3, 3 and 1 that kept 2, 0 and 1: position 1 in 2 of 3, position 2 in 1 of 3, position 3 never."""
    result = summed(
        verify(0, cached=5, drafted=3, accepted=2),
        verify(0, cached=8, drafted=3, accepted=0),
        verify(0, cached=9, drafted=1, accepted=1),
    )
    assert result[AcceptanceByPosition] == pytest.approx((2 / 3, 1 / 3, 0.0))


def test_survival_takes_short_drafts_for_no_evidence() -> None:
    """The same drafts: 2 of 3 survive position 1; of the two that were drafted further, the one alive survives 2 and
    dies at 3. S = 2/3, 2/3 × 1/1, 2/3 × 0/1."""
    result = summed(
        verify(0, cached=5, drafted=3, accepted=2),
        verify(0, cached=8, drafted=3, accepted=0),
        verify(0, cached=9, drafted=1, accepted=1),
    )
    assert result[Survival] == pytest.approx((2 / 3, 2 / 3, 0.0))


def test_survival_takes_what_lies_beyond_the_end_for_unknown() -> None:
    """Two drafts of 3: one kept whole; of the other the text ended after 1. S = 2/2, 1/1, 1/1."""
    result = summed(verify(0, cached=5, drafted=3, accepted=3), verify(0, cached=9, drafted=3, accepted=3, emitted=1))
    assert result[Survival] == (1.0, 1.0, 1.0)
    assert result[AcceptanceByPosition] == (1.0, 0.5, 0.5)


def test_positions_that_no_draft_reached_are_unknown() -> None:
    """The only draft of 3 was cut after its first token: nothing is known of positions 2 and 3."""
    assert summed(verify(0, cached=5, drafted=3, accepted=3, emitted=1))[Survival] == (1.0, None, None)


def test_survival_stays_at_zero_once_there() -> None:
    assert summed(verify(0, cached=5, drafted=3, accepted=0))[Survival] == (0.0, 0.0, 0.0)


def test_without_drafts_acceptance_is_undefined() -> None:
    result = summed(decode(0, cached=5))
    assert result[AcceptanceRate] is None
    assert result[AcceptanceByPosition] is None
    assert result[Survival] is None
    assert result[WastedRows] is None
    assert result[Coverage] == 0.0
    assert result[WastedRowShare] == 0.0
    assert result[DraftedTokens] == 0


def test_without_decoding_there_is_no_a() -> None:
    result = summed(prefill(0, new=10, outputs=1, emitted=1))
    assert result[TokensPerForward] is None
    assert result[Coverage] is None


def test_aborted_forwards_won_and_lost_nothing() -> None:
    run = RunSummary()
    run.write(step(verify(0, cached=5, drafted=3, accepted=0, emitted=0), aborted=True))
    run.write(step(verify(0, cached=5, drafted=3, accepted=3), n=1))
    assert run.result()[TokensPerForward] == 4.0
    assert run.result()[AcceptanceRate] == 1.0


class BonusAccepted(AcceptanceRate):
    """Wrong on purpose: the bonus token among the accepted."""

    def compute(self, figures: Figures) -> float:
        table = figures.steps.work.verifications
        return sum(emitted * n for (_, _, emitted), n in table.items()) / sum(d * n for (d, _, _), n in table.items())


def test_counting_the_bonus_token_would_be_caught() -> None:
    steps = StepTotals()
    steps.add([step(verify(0, cached=5, drafted=3, accepted=2))])
    figures = Figures(steps=steps, requests=RequestTotals(), events=EventTotals())
    assert AcceptanceRate().compute(figures) == pytest.approx(2 / 3)
    assert BonusAccepted().compute(figures) == pytest.approx(3 / 3)
