"""Failures as sentences: one line each, whatever the names and values that they tell of."""

from __future__ import annotations

import pytest

from stackscope.errors import LONGEST_WORD, UsageError, one_line


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "\x1b[31mred", "bell\a", "a\u2028b"])
def test_what_would_move_the_terminal_is_replaced(name: str) -> None:
    told = str(UsageError(f"There is no {name}.", remedy="Look again."))
    assert told.isprintable()
    assert told.startswith("There is no ")
    assert told.endswith(". Look again.")


def test_letters_and_emoji_of_any_language_stay() -> None:
    name = "\U0001f469\u200d\U0001f4bb\u00a0\u0646\u200c\u0647"
    assert str(UsageError(f"There is no {name}.")) == f"There is no {name}."


def test_a_value_that_goes_on_and_on_does_not_hide_its_sentence() -> None:
    told = str(UsageError(f"--slots must be a whole number, not '{'9' * 5000}'."))
    assert told.startswith("--slots must be a whole number, not '999")
    assert told.endswith("999'.")
    assert len(told) < LONGEST_WORD
    path = "/" + "x" * (LONGEST_WORD - 1)
    assert one_line(f"{path} is a folder.") == f"{path} is a folder."
