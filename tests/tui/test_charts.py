"""Charts: whatever the series, they are drawn to size; what is unknown is a gap, and zero is not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.tui.charts import (
    area,
    bar,
    ceiling,
    labelled,
    portions,
    signs,
    sparkline,
    stacked_area,
    stacked_bar,
    swatch,
)
from stackscope.tui.lines import plain, width
from stackscope.tui.look import ASCII, UNICODE, chosen
from stackscope.tui.theme import PARTS, STYLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.tui.lines import Line
    from stackscope.tui.look import Look

LOOKS: Final = (UNICODE, ASCII, chosen(n_colours=16), chosen(n_colours=0))
AWKWARD: Final[tuple[list[float | None], ...]] = (
    [],
    [0.0, 0.0],
    [math.nan] * 3,
    [1.0, math.inf],
    [-math.inf, 1.0],
    [5.0, 5.0, 5.0],
    [3.0],
    [None, None],
    [None, 2.0, None],
    [5e-324, 0.0],
    [1.7e308, 1.7e308],
    [-3.0, 2.0],
)
"""Series that other chart libraries stumble over."""
SERIES: Final = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=80)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("values", AWKWARD)
def test_awkward_series_are_drawn(values: list[float | None], look: Look) -> None:
    """Case 64."""
    top = ceiling(values)
    assert top > 0
    assert width(sparkline(values, look, top)) == len(values)
    for height in (1, 3):
        lines = area(values, height, look, top, has_spare=True)
        assert [width(line) for line in lines] == [len(values)] * height


@given(values=SERIES, top=st.floats(allow_nan=True, allow_infinity=True), height=st.integers(1, 6))
def test_any_series_fills_its_room(values: list[float | None], top: float, height: int) -> None:
    for look in LOOKS:
        assert width(sparkline(values, look, top, marks=[0, 7, 900])) == len(values)
        lines = area(values, height, look, top, marks=[2], has_spare=look.has_colour)
        assert [width(line) for line in lines] == [len(values)] * height
        assert all(style in _known() for line in lines for style in _styles(line))


def _styles(line: Line) -> set[str]:
    return {name for span in line for name in span.style.split(" on ")}


def _known() -> set[str]:
    return set(STYLES["dark"])


def test_a_gap_stays_a_gap_and_zero_is_seen() -> None:
    """Case 64: points that are unknown do not close the series up."""
    assert plain(sparkline([0.0, None, 4.0, 8.0], UNICODE, 8.0)) == "▁ ▅█"
    assert plain(sparkline([0.0, math.nan, 4.0, 8.0], UNICODE, 8.0)) == "▁ ▅█"
    assert plain(sparkline([0.0, None, 4.0, 8.0], ASCII, 8.0)) == ". =#"
    assert [plain(line) for line in area([0.0, None, 4.0, 8.0], 2, UNICODE, 8.0)] == ["   █", "▁ ██"]


def test_what_is_left_below_a_ceiling_is_shaded_and_the_unknown_is_not() -> None:
    top, bottom = area([2.0, None, 8.0], 2, UNICODE, 8.0, has_spare=True)
    assert plain(top) == "  █"
    assert [span.style for span in top] == ["spare on spare", "", "chart"]
    assert [span.style for span in bottom] == ["chart on spare", "", "chart"]
    assert [plain(line) for line in area([2.0, None, 8.0], 2, LOOKS[3], 8.0, has_spare=True)] == ["░ █", "▄ █"]
    assert [plain(line) for line in area([2.0, None, 8.0], 2, ASCII, 8.0, has_spare=True)] == [". #", "= #"]


def test_marks_stand_where_something_was_changed() -> None:
    assert plain(sparkline([1.0, 1.0, 1.0], UNICODE, 1.0, marks=[1])) == "█┊█"
    top, bottom = area([1.0, 1.0, 2.0], 2, UNICODE, 2.0, marks=[1])
    assert plain(top) == " ┊█"
    assert plain(bottom) == "█┊█"
    assert [span.style for span in bottom] == ["chart", "mark.inside on chart", "chart"]
    assert plain(sparkline([1.0, 1.0, 1.0], ASCII, 1.0, marks=[1])) == "#|#"


@given(st.lists(st.floats(min_value=0, max_value=1e300), min_size=1, max_size=20))
def test_a_scale_is_round_and_just_above(values: list[float]) -> None:
    top = ceiling(values)
    assert top > 0
    assert top >= max(values) * (1 - 1e-6)
    if max(values) > 1e-300:
        assert top <= max(values) * 1.7
        assert top == ceiling([top])


def test_scales_hold_still_while_values_waver() -> None:
    assert [ceiling([value]) for value in (728.0, 751.0, 799.9)] == [800.0] * 3
    assert ceiling([]) == ceiling([0.0]) == ceiling([math.nan, None]) == 1.0
    assert ceiling([0.3], least=2.0) == 2.0


def test_bars_are_drawn_by_eighths() -> None:
    assert plain(bar(0.5, 4, UNICODE)) == "██  "
    assert plain(bar(0.53125, 4, UNICODE)) == "██▏ "
    assert plain(bar(0.001, 4, UNICODE)) == "▏   "  # not nothing
    assert plain(bar(0.0, 4, UNICODE)) == plain(bar(None, 4, UNICODE)) == plain(bar(math.nan, 4, UNICODE)) == "    "
    assert plain(bar(7.0, 4, UNICODE)) == "████"
    assert plain(bar(0.5, 5, ASCII)) == "##=  "
    assert bar(None, 4, UNICODE) != bar(0.0, 4, UNICODE)  # a zero has a track


@given(st.floats(allow_nan=True, allow_infinity=True), st.integers(0, 40))
def test_a_bar_always_fills_its_room(share: float, room: int) -> None:
    assert all(width(bar(share, room, look)) == room for look in LOOKS)


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=10), st.integers(0, 200))
def test_portions_sum_to_the_whole_and_are_off_by_less_than_one(shares: list[float], room: int) -> None:
    cells = portions(shares, room)
    whole = sum(shares)
    assert sum(cells) == (room if whole > 0 else 0)
    if whole > 1e-300:
        assert all(abs(n - share / whole * room) < 1.0001 for n, share in zip(cells, shares, strict=True))


SHARES: Final = (0.06, 0.38, 0.31, 0.142, 0.038, 0.009, 0.012, 0.0, 0.031, 0.018)


def test_the_parts_of_a_step_have_names_or_letters() -> None:
    assert plain(stacked_bar(SHARES, 40, UNICODE)) == "P  decode         verify     d     s e-?"
    assert plain(stacked_bar(SHARES, 30, chosen(n_colours=0))) == "▒▒█ decode ███▓▓▓▓▓▓▓▓▓░░░░▚·╱"
    assert plain(stacked_bar(SHARES, 30, ASCII)) == "==# decode ###+++++++++::::%.?"
    assert all(width(stacked_bar(SHARES, n, look)) == n for look in LOOKS for n in range(1, 120))
    assert stacked_bar((0.0,) * 10, 30, UNICODE) == ()


@pytest.mark.parametrize("look", LOOKS)
def test_every_part_has_a_sign_of_its_own(look: Look) -> None:
    signs = [swatch(part, look) for part in PARTS]
    assert len({sign.text for sign in signs}) == len(PARTS)
    assert all(len(sign.text) == 1 for sign in signs)


def test_a_stacked_area_has_boundaries_by_eighths() -> None:
    column = (0.0, 0.5, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    top, bottom = stacked_area([column, None], 2, UNICODE)
    assert (plain(top), plain(bottom)) == ("▄ ", "█ ")
    assert [span.style for span in top] == ["part.verify on part.draft", ""]
    assert [span.style for span in bottom] == ["part.decode", ""]


def test_without_two_colours_in_a_cell_the_largest_part_takes_it() -> None:
    column = (0.06, 0.38, 0.31, 0.15, 0.04, 0.02, 0.01, 0.0, 0.02, 0.01)
    plainest = stacked_area([column, column, None], 2, chosen(n_colours=0), marks=[1])
    assert [plain(line) for line in plainest] == ["▓┊ ", "█┊ "]
    assert [plain(line) for line in stacked_area([column, None], 2, ASCII)] == ["+ ", "# "]
    sixteen = stacked_area([column], 2, chosen(n_colours=16))
    assert [line[0].style for line in sixteen] == ["part.verify", "part.decode"]


def test_a_legend_names_what_each_cell_is_mostly() -> None:
    column = (0.06, 0.38, 0.31, 0.15, 0.04, 0.02, 0.01, 0.0, 0.02, 0.01)
    assert [sign.text for sign in signs(column, 4, UNICODE)] == ["d", "V", "D", "D"]
    assert [sign.style for sign in signs(column, 2, UNICODE)] == ["part.verify.label", "part.decode.label"]
    assert [sign.text for sign in signs(column, 4, ASCII)] == [":", "+", "#", "#"]
    assert [sign.text for sign in signs(None, 2, UNICODE)] == [" ", " "]
    assert [sign.text for sign in signs((0.0,) * 10, 2, UNICODE)] == [" ", " "]


@given(
    st.lists(
        st.none() | st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=10, max_size=10), max_size=9
    ),
    st.integers(1, 9),
)
def test_any_shares_fill_their_room(columns: Sequence[Sequence[float] | None], height: int) -> None:
    for look in LOOKS:
        lines = stacked_area(columns, height, look, marks=[1])
        assert [width(line) for line in lines] == [len(columns)] * height
        assert all(style in _known() for line in lines for style in _styles(line))


def test_a_scale_stands_before_its_chart() -> None:
    lines = labelled(area([1.0, 2.0], 3, UNICODE, 2.0), {0: "2.00", 2: "0"}, UNICODE, 4)
    assert [plain(line) for line in lines] == ["2.00┤ █", "    │▄█", "   0┤██"]
