"""The tails of what requests generate: bounded, and the newest."""

from __future__ import annotations

from stackscope.tui.texts import MOST_CHARACTERS, MOST_REQUESTS, Texts


def test_what_a_request_gains_is_put_together() -> None:
    texts = Texts()
    for piece in ("def ", "f(x)", ":\n"):
        texts.add(7, piece)
    assert texts.tail(7) == "def f(x):\n"
    assert texts.tail(8) is None


def test_only_the_end_of_a_long_text_is_kept() -> None:
    texts = Texts()
    for n in range(5_000):
        texts.add(1, f"{n:09d} ")
    tail = texts.tail(1)
    assert tail is not None
    assert len(tail) == MOST_CHARACTERS
    assert tail.endswith("000004998 000004999 ")


def test_the_requests_that_gained_text_longest_ago_go_first() -> None:
    texts = Texts()
    for request in range(MOST_REQUESTS):
        texts.add(request, "a")
    texts.add(0, "b")
    texts.add(1_000, "c")
    assert texts.tail(1) is None
    assert (texts.tail(0), texts.tail(2), texts.tail(1_000)) == ("ab", "a", "c")


def test_another_session_begins_with_nothing() -> None:
    texts = Texts()
    texts.add(1, "a")
    texts.clear()
    assert texts.tail(1) is None
