"""Log lines of the engine process: cut anywhere, full of escapes, endless, empty."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine.logring import MOST_CHARACTERS, LogRing, clean
from stackscope.records import Log


def texts(lines: list[Log]) -> list[str]:
    return [line.text for line in lines]


def test_lines_come_when_they_are_whole_with_the_time_of_their_end() -> None:
    ring = LogRing()
    assert ring.feed(b"one\ntw", at_ns=1) == [Log(at_ns=1, text="one")]
    assert ring.feed(b"o\n", at_ns=2) == [Log(at_ns=2, text="two")]
    assert ring.feed(b"rest", at_ns=3) == []
    assert ring.finish(at_ns=4) == [Log(at_ns=4, text="rest")]
    assert ring.finish(at_ns=5) == []
    assert texts(list(ring.lines)) == ["one", "two", "rest"]


def test_a_character_cut_in_two_is_whole_again() -> None:
    ring = LogRing()
    ring.feed("é".encode()[:1], at_ns=0)
    assert texts(ring.feed("é\n".encode()[1:], at_ns=0)) == ["é"]


def test_blank_lines_are_left_out() -> None:
    assert LogRing().feed(b"\n\n  \n\r\n\x1b[0m\n", at_ns=0) == []


def test_only_the_last_lines_are_kept() -> None:
    ring = LogRing(most=3)
    ring.feed(b"".join(b"%d\n" % n for n in range(10)), at_ns=0)
    assert texts(list(ring.lines)) == ["7", "8", "9"]


def test_a_line_without_end_comes_in_pieces() -> None:
    ring = LogRing()
    lines = [line for _ in range(10) for line in ring.feed(b"x" * 1_000, at_ns=0)]
    assert [len(line.text) for line in lines] == [MOST_CHARACTERS, MOST_CHARACTERS]
    assert len(ring.finish(at_ns=0)[0].text) == 2_000


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[31;1mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b[?1049h\x1b(Bclear", "clear"),
        (b"10%\r 50%\r100%", "100%"),
        (b"done\r\n", "done"),
        (b"bell\x07 null\x00 delete\x7f", "bell null delete"),
        (b"tab\tstays", "tab\tstays"),
        (b"\xff bad", "\ufffd bad"),
        (b"\xc2\x9b31mC1", "31mC1"),
    ],
)
def test_what_a_terminal_would_obey_is_taken_out(raw: bytes, text: str) -> None:
    assert clean(raw) == text


@given(st.binary())
def test_nothing_that_controls_a_terminal_is_left(raw: bytes) -> None:
    assert not any((ord(c) < 32 and c != "\t") or 127 <= ord(c) < 160 for c in clean(raw))


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_however_the_log_is_cut_the_lines_are_the_same(raw: bytes, cuts: list[int]) -> None:
    whole, pieces = LogRing(), LogRing()
    expected = whole.feed(raw, at_ns=0) + whole.finish(at_ns=0)
    bounds = [0, *sorted(c for c in cuts if c < len(raw)), len(raw)]
    lines = [line for a, b in pairwise(bounds) for line in pieces.feed(raw[a:b], at_ns=0)]
    assert lines + pieces.finish(at_ns=0) == expected
