"""What is made of a terminal: whether there can be a screen at all, its theme and its characters."""

from __future__ import annotations

import io

import pytest

from stackscope.tui.terminal import clamp_size, kind_of, kinds_of, look_of, number_of_colours, why_no_screen

TRUE_COLOUR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


class Stream(io.TextIOWrapper):
    """A text stream that is a terminal, or is not."""

    def __init__(self, *, is_terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


TERMINAL = Stream(is_terminal=True)
PIPE = Stream(is_terminal=False)


@pytest.mark.parametrize(
    ("environ", "stdin", "stdout", "why"),
    [
        (TRUE_COLOUR, TERMINAL, TERMINAL, None),
        (TRUE_COLOUR, TERMINAL, PIPE, "standard output is no terminal"),
        (TRUE_COLOUR, PIPE, TERMINAL, "standard input is no terminal"),
        ({"TERM": "dumb"}, TERMINAL, TERMINAL, "the terminal cannot move its cursor (TERM is dumb)"),
        ({}, TERMINAL, TERMINAL, "the terminal cannot move its cursor (TERM is not set)"),
        ({**TRUE_COLOUR, "CI": "true"}, TERMINAL, TERMINAL, "this is a CI job (CI is set)"),
        ({**TRUE_COLOUR, "CI": "false"}, TERMINAL, TERMINAL, None),
        ({**TRUE_COLOUR, "CI": ""}, TERMINAL, TERMINAL, None),
        ({"TERM": "screen"}, TERMINAL, TERMINAL, None),
    ],
)
def test_a_screen_needs_a_terminal(environ: dict[str, str], stdin: Stream, stdout: Stream, why: str | None) -> None:
    assert why_no_screen(environ, stdin, stdout) == why


@pytest.mark.parametrize(
    ("environ", "n", "kind", "kinds"),
    [
        (TRUE_COLOUR, 1 << 24, "dark", ("dark", "light", "ansi", "mono")),
        ({"TERM": "xterm-256color"}, 256, "dark", ("dark", "light", "ansi", "mono")),
        ({"TERM": "screen"}, 16, "ansi", ("ansi", "mono")),
        ({"TERM": "xterm-16color"}, 16, "ansi", ("ansi", "mono")),
        ({**TRUE_COLOUR, "NO_COLOR": "1"}, 0, "mono", ("mono",)),
        ({**TRUE_COLOUR, "COLORFGBG": "0;15"}, 1 << 24, "light", ("dark", "light", "ansi", "mono")),
        ({**TRUE_COLOUR, "COLORFGBG": "15;default;0"}, 1 << 24, "dark", ("dark", "light", "ansi", "mono")),
    ],
)
def test_the_theme_fits_the_terminal(environ: dict[str, str], n: int, kind: str, kinds: tuple[str, ...]) -> None:
    assert number_of_colours(environ) == n
    assert kind_of("auto", environ) == kind
    assert kinds_of(environ) == kinds


def test_a_wish_is_granted_but_for_colours_that_nobody_wants() -> None:
    assert kind_of("light", TRUE_COLOUR) == "light"
    assert kind_of("ansi", TRUE_COLOUR) == "ansi"
    assert kind_of("light", {**TRUE_COLOUR, "NO_COLOR": "1"}) == "mono"


@pytest.mark.parametrize(
    ("encoding", "wish", "is_ascii"),
    [("utf-8", None, False), ("ascii", None, True), ("iso8859-1", None, True), ("utf-8", True, True)],
)
def test_characters_are_those_of_the_encoding_or_of_the_wish(encoding: str, wish: bool | None, is_ascii: bool) -> None:
    look = look_of("dark", TRUE_COLOUR, Stream(is_terminal=True, encoding=encoding), is_ascii=wish)
    assert look.is_ascii is is_ascii


def test_without_colours_parts_differ_by_their_characters() -> None:
    assert not look_of("mono", TRUE_COLOUR, TERMINAL).has_colour
    assert look_of("dark", TRUE_COLOUR, TERMINAL).has_colour


@pytest.mark.parametrize(
    ("columns", "lines", "believed"),
    [
        ("100000", "100000", {"COLUMNS": "1000", "LINES": "500"}),
        ("9" * 5_000, "0501", {"COLUMNS": "1000", "LINES": "500"}),
        ("1000", "24", {"COLUMNS": "1000", "LINES": "24"}),
        ("0080", "many", {"COLUMNS": "0080", "LINES": "many"}),
    ],
)
def test_no_terminal_is_believed_to_be_larger_than_can_be_drawn(
    columns: str, lines: str, believed: dict[str, str]
) -> None:
    environ = {"COLUMNS": columns, "LINES": lines}
    clamp_size(environ)
    assert environ == believed
