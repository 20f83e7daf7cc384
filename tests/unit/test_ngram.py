"""Prompt look-up finds the longest, then most recent, earlier occurrence and continues it."""

from __future__ import annotations

import tracemalloc

import pytest

from stackscope.engine.ngram import NgramDrafter
from stackscope.errors import UsageError


def drafter(text: str, *, n_min: int = 2, n_max: int = 4) -> NgramDrafter:
    made = NgramDrafter(n_min, n_max)
    made.extend([ord(c) for c in text])
    return made


def proposed(made: NgramDrafter, k: int) -> str:
    return "".join(map(chr, made.propose(k)))


def test_continues_the_earlier_occurrence() -> None:
    assert proposed(drafter("the cat sat. the c"), 4) == "at s"


def test_the_longest_match_wins_over_a_more_recent_shorter_one() -> None:
    # "wxyz" came before at the start; "yz" alone came later and was followed by something else.
    assert proposed(drafter("wxyzA yzB wxyz"), 1) == "A"
    assert proposed(drafter("wxyzA yzB wxyz", n_max=2), 1) == "B"


def test_the_most_recent_of_equally_long_matches_wins() -> None:
    assert proposed(drafter("abX abY ab"), 1) == "Y"


def test_a_loop_is_continued_beyond_the_end_of_the_history() -> None:
    assert proposed(drafter("abcabcabc"), 7) == "abcabca"
    assert proposed(drafter("abcabcab"), 7) == "cabcabc"
    assert proposed(drafter("xaaaa"), 5) == "aaaaa"


def test_the_end_of_the_history_does_not_find_itself() -> None:
    assert drafter("abcd").propose(3) == []
    # "aa" ends at 2 and at 3: the earlier occurrence overlaps the suffix, and is one.
    assert proposed(drafter("aaa"), 2) == "aa"
    assert drafter("aa").propose(2) == []


def test_ngrams_of_one_hash_are_told_apart() -> None:
    assert hash((-1, 7)) == hash((-2, 7))
    made = NgramDrafter(2, 2)
    made.extend([-1, 7, 9, -2, 7])
    assert made.propose(1) == []


def test_too_little_history_proposes_nothing() -> None:
    made = NgramDrafter(2, 4)
    assert made.propose(4) == []
    made.extend([5])
    assert made.propose(4) == []
    made.extend([5])
    assert made.propose(4) == []
    made.extend([5])
    assert made.propose(4) == [5, 5, 5, 5]


def test_nothing_is_proposed_when_nothing_is_wanted() -> None:
    assert drafter("abcabc").propose(0) == []
    assert drafter("abcabc").propose(-1) == []


def test_a_single_token_may_be_matched() -> None:
    assert proposed(drafter("aXbYa", n_min=1, n_max=1), 2) == "Xb"


def test_shortening_the_history_forgets_what_came_after() -> None:
    made = drafter("abX abY ab")
    made.truncate(6)
    assert len(made) == 6
    assert proposed(made, 2) == "X "  # without the truncation the more recent "abY" would be followed
    made.extend([ord(c) for c in "Z ab"])
    assert proposed(made, 2) == "Z "


def test_truncating_to_more_than_there_is_changes_nothing() -> None:
    made = drafter("abcab")
    made.truncate(99)
    assert proposed(made, 1) == "c"


def test_reset_forgets_everything() -> None:
    made = drafter("abcab")
    made.reset()
    assert len(made) == 0
    assert made.propose(4) == []
    made.extend([ord(c) for c in "ab"])
    assert made.propose(4) == []


def test_proposals_are_copies() -> None:
    made = drafter("abcabc")
    made.propose(3).clear()
    assert proposed(made, 3) == "abc"


@pytest.mark.parametrize(("n_min", "n_max"), [(0, 3), (-1, 1), (4, 3)])
def test_impossible_lengths_are_refused(n_min: int, n_max: int) -> None:
    with pytest.raises(UsageError, match=f"cannot match {n_min} to {n_max} tokens"):
        NgramDrafter(n_min, n_max)


def test_memory_is_what_the_class_says() -> None:
    tokens = [i * i % 65_537 for i in range(8_192)]
    tracemalloc.start()
    made = NgramDrafter(2, 4)
    made.extend(tokens)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 290 < taken / len(made) < 390
