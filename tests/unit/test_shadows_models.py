"""Whom the shadow of a draft model follows, and what it does when a forward fails."""

from __future__ import annotations

from stackscope.engine.shadows.models import MOST_WAITING, ModelShadow
from stackscope.engine.shadows.ngrams import NgramShadow
from tests.unit.shadow_builders import FakeGuesses, Time, gain, request, rich


def always(token: int) -> FakeGuesses:
    return FakeGuesses(lambda _: token)


def test_a_request_that_is_sampled_is_not_followed_by_the_draft_model() -> None:
    shadow = ModelShadow(always(1), rich(), Time().clocks)
    shadow.offer(request([1], 5, temperature=0.7), 1)
    assert len(shadow) == 0


def test_an_n_gram_drafter_follows_it_for_its_drafts_are_verified_by_drawing() -> None:
    shadow = NgramShadow(rich(), Time().clocks, 1, 2)
    sequence = request([1], 8, temperature=0.7)
    shadow.offer(sequence, 1)
    gain(sequence, [1] * 8)
    sequence.is_over = True
    shadow.end()
    assert shadow.tally.counts()[0].accepted > 0


def test_one_that_may_grow_too_long_is_not_followed() -> None:
    shadow = ModelShadow(FakeGuesses(lambda _: 1, n_cells=10), rich(), Time().clocks)
    shadow.offer(request([1] * 6, 5), 6)
    assert len(shadow) == 0
    shadow.offer(request([1] * 6, 4), 6)
    assert len(shadow) == 1


def test_one_whose_output_is_no_longer_the_model_s_is_let_go() -> None:
    shadow = ModelShadow(always(1), rich(), Time().clocks)
    sequence = request([1], 50)
    shadow.offer(sequence, 1)
    gain(sequence, [1] * 20)
    shadow.work()
    counted = shadow.tally.tokens
    sequence.is_invalid = True
    gain(sequence, [1] * 30)
    shadow.work()
    assert len(shadow) == 0
    assert shadow.tally.tokens == counted

    ngram = NgramShadow(rich(), Time().clocks, 1, 2)
    ngram.offer(request([1], 5), 1)
    ngram.offer(sequence, 1)
    assert len(ngram) == 1


def test_after_a_forward_that_failed_it_goes_on_with_another_request() -> None:
    guesses = always(3)
    shadow = ModelShadow(guesses, rich(), Time().clocks)
    shadow.offer(request([1, 2], 5), 2)
    guesses.fails = True
    shadow.work()
    assert len(shadow) == 0
    assert guesses.held == []
    guesses.fails = False
    sequence = request([1, 2], 5, number=1)
    shadow.offer(sequence, 2)
    gain(sequence, [3] * 5)
    sequence.is_over = True
    while len(shadow) > 0:
        shadow.work()
    assert shadow.tally.counts()[1].accepted == 2  # Of four tokens: two rounds of two and one.
    assert shadow.tally.requests == 1


def test_those_that_have_ended_come_first() -> None:
    guesses = always(1)
    shadow = ModelShadow(guesses, rich(), Time().clocks)
    first, second, third = (request([number], 5, number=number) for number in range(3))
    for sequence in (first, second, third):
        shadow.offer(sequence, 1)
        shadow.offer(sequence, 1)  # It was put back, and admitted again.
    assert len(shadow) == 3
    gain(third, [1] * 5)
    third.is_over = first.is_over = True
    shadow.work()  # The first has nothing to tell.
    while shadow.tally.tokens == 0:
        shadow.work()
        assert guesses.held[0] == 2
    assert shadow.tally.tokens == 4


def test_no_more_wait_than_is_sensible() -> None:
    shadow = ModelShadow(always(1), rich(), Time().clocks)
    for number in range(2 * MOST_WAITING):
        shadow.offer(request([1], 5, number=number), 1)
    assert len(shadow) == MOST_WAITING + 1


def test_a_live_request_is_read_in_good_portions() -> None:
    guesses = always(1)
    shadow = ModelShadow(guesses, rich(), Time().clocks)
    sequence = request([5] * 40, 100)
    shadow.offer(sequence, 40)
    for _ in range(60):
        gain(sequence, [1])
        shadow.work()
    assert guesses.n_calls <= 25
    assert shadow.tally.tokens >= 32
