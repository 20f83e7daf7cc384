"""Shadows keep to their share of the time, by a clock that the test moves."""

from __future__ import annotations

from typing import Final

import pytest

from stackscope.engine.shadows import models
from stackscope.engine.shadows.budget import FIRST_NS, SAVED_NS, Budget, Purse
from stackscope.engine.shadows.models import ModelShadow
from stackscope.engine.shadows.ngrams import SWEEP, NgramShadow
from tests.unit.shadow_builders import FakeGuesses, Time, gain, request

SECOND: Final = 1_000_000_000
SHARE: Final = 0.008


def test_the_share_is_paid_out_by_weight() -> None:
    budget = Budget({"a": 3.0, "b": 1.0}, share=SHARE)
    budget.fill(0)
    budget.fill(SECOND // 10)
    paid = {name: purse.balance_ns - FIRST_NS for name, purse in budget.purses.items()}
    assert paid == pytest.approx({"a": SHARE * 0.75e8, "b": SHARE * 0.25e8})


def test_what_one_cannot_hold_goes_to_the_others() -> None:
    budget = Budget({"a": 1.0, "b": 1.0}, share=SHARE)
    budget.purses["b"].spend(40e6)
    budget.fill(0)
    budget.fill(2 * SECOND)
    assert budget.purses["a"].balance_ns == SAVED_NS
    assert budget.purses["b"].balance_ns == pytest.approx(2 * FIRST_NS - 40e6 + SHARE * 2 * SECOND - SAVED_NS)


def test_no_more_is_saved_than_a_purse_holds() -> None:
    budget = Budget({"a": 1.0, "b": 2.0}, share=SHARE)
    budget.fill(0)
    budget.fill(1000 * SECOND)
    assert {purse.balance_ns for purse in budget.purses.values()} == {SAVED_NS}


def test_a_purse_that_is_given_back_too_much_loses_nothing_by_being_filled() -> None:
    budget = Budget({"a": 1.0}, share=SHARE)
    budget.purses["a"].spend(-2 * SAVED_NS)
    budget.fill(0)
    budget.fill(SECOND)
    assert budget.purses["a"].balance_ns == 2 * SAVED_NS + FIRST_NS


def test_small_change_is_not_lost() -> None:
    budget = Budget({"a": 1.0}, share=SHARE)
    for now_ns in range(0, SECOND // 2 + 1, SECOND // 1000):
        budget.fill(now_ns)
    assert budget.purses["a"].balance_ns == pytest.approx(FIRST_NS + SHARE * SECOND / 2)


def spend_for(seconds: int, *, step_ns: int, read_ns: int, n_tokens: int) -> tuple[Time, int]:
    """Requests that come one after the other for so long, and what following them took."""
    time = Time(read_ns)
    budget = Budget({"ngram": 1.0}, share=SHARE)
    shadow = NgramShadow(budget.purses["ngram"], time.clocks, 2, 4)
    number = 0
    while time.now_ns < seconds * SECOND:
        sequence = request([1] * 10, n_tokens, number=number)
        shadow.offer(sequence, sequence.n)
        number += 1
        while sequence.n < sequence.max_n:
            time.now_ns += step_ns
            budget.fill(time.now_ns)
            gain(sequence, [number % 7] * min(8, sequence.max_n - sequence.n))
            sequence.is_over = sequence.n == sequence.max_n
            shadow.work()
        shadow.end()
    return time, shadow.cpu_ns


@pytest.mark.parametrize("read_ns", [10_000, 200_000, 3_000_000])
def test_the_n_gram_shadow_keeps_to_its_share(read_ns: int) -> None:
    # Each reading of the clock takes a while, and so each time a request is read.
    time, spent = spend_for(60, step_ns=2_000_000, read_ns=read_ns, n_tokens=2 * SWEEP)
    one_request = 4 * read_ns
    assert spent <= SHARE * time.now_ns + FIRST_NS + one_request
    assert spent >= min(SHARE * time.now_ns, spent_without_limit(time.now_ns, read_ns)) * 0.8


def spent_without_limit(now_ns: int, read_ns: int) -> float:
    """What following every request would have taken: at least two looks at each."""
    return now_ns / (2 * SWEEP / 8 * 2_000_000 + 4 * read_ns) * 2 * read_ns


def test_over_budget_requests_are_followed_whole_or_not_at_all() -> None:
    time = Time(500_000)
    budget = Budget({"ngram": 1.0}, share=SHARE)
    shadow = NgramShadow(budget.purses["ngram"], time.clocks, 2, 4)
    n_over = 0
    for number in range(200):
        sequence = request([1, 2, 3], 50, number=number)
        shadow.offer(sequence, 3)
        before = shadow.tally.tokens
        time.now_ns += 5_000_000
        budget.fill(time.now_ns)
        gain(sequence, [1, 2] * 25)
        sequence.is_over = True
        shadow.end()
        assert shadow.tally.tokens - before in (0, 49)
        n_over += shadow.tally.tokens == before
    assert 20 < n_over < 199


def test_the_draft_model_s_shadow_keeps_to_its_share() -> None:
    time = Time()
    budget = Budget({"draft": 1.0}, share=SHARE)
    guesses = FakeGuesses(lambda _: 0, n_rows=32, n_outputs=32, time=time, ns_per_row=200_000)
    shadow = ModelShadow(guesses, budget.purses["draft"], time.clocks)
    for number in range(400):
        sequence = request([1] * 20, 40, number=number)
        shadow.offer(sequence, 20)
        for _ in range(40):
            time.now_ns += 10_000_000
            budget.fill(time.now_ns)
            gain(sequence, [0])
            sequence.is_over = sequence.n == 60
            shadow.work()
    one_slice = 32 * 200_000
    assert shadow.cpu_ns <= SHARE * time.now_ns + FIRST_NS + one_slice
    assert shadow.cpu_ns >= 0.9 * SHARE * time.now_ns


def test_a_forward_takes_no_longer_than_a_slice_once_it_was_timed() -> None:
    time = Time()
    purse = Purse(1.0)
    purse.balance_ns = 1e15
    guesses = FakeGuesses(lambda _: 0, n_rows=1000, time=time, ns_per_row=20_000)
    shadow = ModelShadow(guesses, purse, time.clocks)
    shadow.offer(request([1] * 5000, 10), 5000)
    took = []
    for _ in range(20):
        before = time.now_ns
        shadow.work()
        took.append(time.now_ns - before)
    assert max(took) <= models.SLICE_NS
    assert took[-1] > models.SLICE_NS / 2


def test_where_time_is_short_one_request_is_followed_after_the_other() -> None:
    purse = Purse(1.0)
    purse.balance_ns = 1.0
    shadow = ModelShadow(FakeGuesses(lambda _: 0), purse, Time().clocks)
    for number in range(3):
        shadow.offer(request([1], 5, number=number), 1)
    assert len(shadow) == 1
    purse.balance_ns = SAVED_NS
    shadow.offer(request([1], 5, number=4), 1)
    assert len(shadow) == 2
