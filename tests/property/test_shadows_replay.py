"""Replays agree with a naive simulation of speculation, however the tokens come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine.shadows.models import ModelShadow
from stackscope.engine.shadows.ngrams import NgramShadow
from stackscope.engine.shadows.walks import LONGEST
from stackscope.records import LengthCounts
from tests.property.test_ngram import naive
from tests.unit.shadow_builders import FakeGuesses, Time, gain, request, rich

if TYPE_CHECKING:
    from collections.abc import Callable

few_words = st.lists(st.integers(0, 2), max_size=60)


class Life(NamedTuple):
    """A request: its prompt, what it generates, and what more it might have."""

    prompt: list[int]
    output: list[int]
    spare: int
    """Tokens that its limit would still have allowed."""
    pieces: list[int]
    """It gains its tokens by so many at a time, over and over."""


lives = st.builds(
    Life,
    st.lists(st.integers(0, 2), min_size=1, max_size=30),
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
    st.integers(0, 5),
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
)


def simulated(life: Life, draft: Callable[[list[int], int], list[int]], k: int) -> LengthCounts:
    """Speculation of length k as the engine does it: draft, accept what is right, add one, until the output ends."""
    tokens = life.prompt + life.output
    limit = len(tokens) + life.spare
    at = len(life.prompt) + 1
    rounds = covered = drafted = accepted = unended = full = whole = 0
    while at < len(tokens):
        found = draft(tokens[:at], min(k, limit - at - 1)) if limit - at - 1 > 0 else []
        kept = 0
        while kept < len(found) and at + kept < len(tokens) and found[kept] == tokens[at + kept]:
            kept += 1
        has_bonus = at + kept < len(tokens)
        rounds += 1
        covered += bool(found)
        drafted += len(found)
        accepted += kept
        unended += not has_bonus
        if len(found) == k and (has_bonus or kept == k):
            full += 1
            whole += kept == k
        at += kept + 1
    return LengthCounts(k, rounds, covered, drafted, accepted, unended, full, whole)


def test_the_simulation_by_hand() -> None:
    life = Life([1, 2, 3], [1, 2, 3, 1, 1], 0, [1])
    # After 1231: 23 1 are drafted and come; then one more; the output is over.
    assert simulated(life, lambda history, k: naive(history, 1, 4, k), 3) == LengthCounts(3, 1, 1, 3, 3, 0, 1, 1)


@given(lives, st.integers(1, 3), st.integers(0, 2), st.booleans())
def test_the_n_gram_shadow_is_the_simulation(life: Life, n_min: int, more: int, is_patient: bool) -> None:
    shadow = NgramShadow(rich(), Time().clocks, n_min, n_min + more)
    sequence = request(life.prompt, len(life.output) + life.spare)
    shadow.offer(sequence, sequence.n)
    left, turn = list(life.output), 0
    while left:
        size = life.pieces[turn % len(life.pieces)]
        gain(sequence, left[:size])
        del left[:size]
        turn += 1
        sequence.is_over = not left
        shadow.work()
        if not is_patient:
            shadow.catch_up()
    shadow.end()
    assert len(shadow) == 0
    expected = [simulated(life, lambda h, k: naive(h, n_min, n_min + more, k), k) for k in range(1, LONGEST + 1)]
    assert list(shadow.tally.counts()) == expected
    assert shadow.tally.tokens == len(life.output) - 1
    for counts in expected:
        assert counts.tokens == shadow.tally.tokens


def next_word(history: list[int]) -> int:
    """A draft model: right now and then, and of a long memory."""
    return sum(history[-7:]) % 3


def chain(history: list[int], k: int) -> list[int]:
    """A greedy draft, token by token."""
    longer = list(history)
    for _ in range(k):
        longer.append(next_word(longer))
    return longer[len(history) :]


@given(st.lists(lives, min_size=1, max_size=3), st.integers(1, 20), st.integers(1, 8))
def test_the_draft_model_s_shadow_is_the_simulation(each: list[Life], n_rows: int, n_outputs: int) -> None:
    guesses = FakeGuesses(next_word, n_rows=max(n_rows, n_outputs), n_outputs=n_outputs)
    shadow = ModelShadow(guesses, rich(), Time().clocks)
    requests = 0
    for number, life in enumerate(each):
        sequence = request(life.prompt, len(life.output) + life.spare, number=number)
        shadow.offer(sequence, sequence.n)
        left, turn = list(life.output), 0
        while left:
            size = life.pieces[turn % len(life.pieces)]
            gain(sequence, left[:size])
            del left[:size]
            turn += 1
            sequence.is_over = not left
            shadow.work()
        requests += len(life.output) > 1
    while len(shadow) > 0:
        shadow.work()
    for counts in shadow.tally.counts():
        parts = [simulated(life, chain, counts.length) for life in each]
        fields = LengthCounts.__struct_fields__[1:]
        assert counts == LengthCounts(counts.length, *(sum(getattr(p, name) for p in parts) for name in fields))
    assert shadow.tally.tokens == sum(len(life.output) - 1 for life in each)
    assert shadow.tally.requests == requests


@given(few_words, few_words, few_words)
def test_a_beginning_that_was_read_is_not_read_again(shared: list[int], one: list[int], other: list[int]) -> None:
    guesses = FakeGuesses(next_word)
    shadow = ModelShadow(guesses, rich(), Time().clocks)
    read = 0
    for own in (one, other):
        sequence = request([*shared, *own, 0], 12)
        shadow.offer(sequence, sequence.n)
        gain(sequence, [0] * 12)
        sequence.is_over = True
        while len(shadow) > 0:
            shadow.work()
        read += sequence.n - 1
    common = 0
    first, second = [*shared, *one, *[0] * 13], [*shared, *other, 0]
    while common < min(len(first) - 1, len(second) - 1) and first[common] == second[common]:
        common += 1
    assert guesses.n_fed == read - common
