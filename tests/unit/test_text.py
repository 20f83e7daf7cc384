"""Whole characters only, and an end where a stop string begins."""

from __future__ import annotations

import pytest

from stackscope.engine.text import Detokeniser, Emitted, OutputText, StopMatcher
from stackscope.errors import UsageError

EURO = "€".encode()  # 3 bytes
BEAR = "🐻".encode()  # 4 bytes


def detokeniser(*pieces: bytes) -> Detokeniser:
    return Detokeniser(pieces.__getitem__)


# ---------------------------------------------------------------------------------------------- detokenising


def test_ascii_comes_at_once() -> None:
    made = detokeniser(b"Hello", b" world")
    assert made.push([0]) == "Hello"
    assert made.push([1, 1]) == " world world"
    assert made.finish() == ""


def test_half_a_character_waits_for_the_rest() -> None:
    made = detokeniser(b"a" + EURO[:1], EURO[1:2], EURO[2:] + b"b")
    assert made.push([0]) == "a"
    assert made.push([1]) == ""
    assert made.push([2]) == "€b"


def test_one_byte_per_token() -> None:
    made = detokeniser(*(bytes([b]) for b in BEAR))
    assert [made.push([i]) for i in range(4)] == ["", "", "", "🐻"]


def test_bytes_proven_invalid_are_replaced_at_once() -> None:
    made = detokeniser(EURO[:2], b"x", b"\xff", b"\xed\xa0\x80")
    assert made.push([0]) == ""
    assert made.push([1]) == "\ufffdx"
    assert made.push([2]) == "\ufffd"
    assert made.push([3]) == "\ufffd" * 3  # a surrogate is no character


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    made = detokeniser(b"a" + BEAR[:3])
    assert made.push([0]) == "a"
    assert made.finish() == "\ufffd"
    assert made.finish() == ""


def test_each_token_by_itself() -> None:
    made = detokeniser(b"a" + EURO[:1], EURO[1:], b"")
    assert made.push_each([0, 2, 1, 0]) == ["a", "", "€", "a"]
    assert made.push([1]) == "€"


# ---------------------------------------------------------------------------------------------- stop strings


def test_text_without_a_stop_passes() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.push(["a", "b"]) == Emitted("ab", None, 2)
    assert matcher.finish() == Emitted("", None, 2)


def test_a_stop_across_tokens_is_held_back_and_cut() -> None:
    matcher = StopMatcher(["\nUser:"])
    assert matcher.push(["fine.\n"]) == Emitted("fine.", None, 1)
    assert matcher.push(["Us"]) == Emitted("", None, 1)
    # "er" and ": hi" are past the beginning of the stop: only the first token counts.
    assert matcher.push(["er", ": hi", "more"]) == Emitted("", 0, 1)
    assert matcher.finish() == Emitted("", None, 1)


def test_a_false_alarm_is_released() -> None:
    matcher = StopMatcher(["\nUser:"])
    assert matcher.push(["fine.", "\n", "Us"]) == Emitted("fine.", None, 1)
    assert matcher.push(["ually"]) == Emitted("\nUsually", None, 4)


def test_a_token_that_the_stop_begins_in_counts() -> None:
    assert StopMatcher(["END"]).push(["x", "yEN", "D", "z"]) == Emitted("xy", 0, 2)
    assert StopMatcher(["END"]).push(["x", "END", "z"]) == Emitted("x", 0, 1)
    assert StopMatcher(["END"]).push(["END"]) == Emitted("", 0, 0)


def test_tokens_past_the_stop_are_not_counted() -> None:
    # Five tokens were accepted at once; the stop is the third.
    assert StopMatcher(["c"]).push(["a", "b", "c", "d", "e"]) == Emitted("ab", 0, 2)


def test_a_token_without_text_counts_with_the_text_that_follows() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.push(["a", ""]) == Emitted("a", None, 1)
    assert matcher.push(["€"]) == Emitted("€", None, 3)
    assert matcher.push([""]) == Emitted("", None, 3)
    assert matcher.push(["END"]) == Emitted("", 0, 3)


def test_everything_counts_when_the_output_ends_of_itself() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.push(["a", "E", "", "N"]) == Emitted("a", None, 1)
    assert matcher.finish() == Emitted("EN", None, 4)


def test_the_stop_that_is_complete_first_wins() -> None:
    assert StopMatcher(["abcd", "bc"]).push(["xabcd"]) == Emitted("xa", 1, 1)


def test_of_stops_complete_together_the_longest_wins() -> None:
    assert StopMatcher(["cd", "abcd", "bcd"]).push(["xabcd"]) == Emitted("x", 1, 1)


def test_overlapping_beginnings() -> None:
    matcher = StopMatcher(["aab"])
    assert matcher.push(["aa"]) == Emitted("", None, 0)
    assert matcher.push(["a"]) == Emitted("a", None, 1)  # the first token's text has begun to come out
    assert matcher.push(["b"]) == Emitted("", 0, 1)


def test_a_stop_may_be_completed_by_the_replacement_of_half_a_character() -> None:
    matcher = StopMatcher(["!\ufffd"])
    assert matcher.push(["a!", ""]) == Emitted("a", None, 1)
    assert matcher.finish("\ufffd") == Emitted("", 0, 1)


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        StopMatcher(["END", ""])


def test_nothing_follows_the_end() -> None:
    stopped, finished = StopMatcher(["END"]), StopMatcher(["END"])
    stopped.push(["END"])
    finished.finish()
    for matcher in (stopped, finished):
        with pytest.raises(ValueError, match="has ended"):
            matcher.push(["a"])
        assert matcher.finish().text == ""


# ---------------------------------------------------------------------------------------------- both


def test_an_output_without_stops() -> None:
    pieces = [b"a" + EURO[:1], EURO[1:]]
    output = OutputText(pieces.__getitem__)
    assert output.push([0]) == Emitted("a", None, 1)
    assert output.push([1, 0]) == Emitted("€a", None, 3)
    assert output.finish() == Emitted("\ufffd", None, 3)


def test_an_output_with_stops() -> None:
    pieces = [b"a" + EURO[:1], EURO[1:] + b"EN", b"D", b"x"]
    output = OutputText(pieces.__getitem__, ["END"])
    assert output.push([0]) == Emitted("a", None, 1)
    assert output.push([1]) == Emitted("€", None, 2)
    assert output.push([2, 3]) == Emitted("", 0, 2)

    output = OutputText(pieces.__getitem__, ["END"])
    output.push([1, 0])
    assert output.finish() == Emitted("\ufffd", None, 2)
