"""Lines and how panes are put together from them: nothing is broken, cut inside a number, or wider than its room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.live.snapshot import History, Point
from stackscope.tui.compose import (
    Rows,
    apart,
    figure,
    flow,
    flowed,
    folded,
    quantity,
    said,
    sentence,
    shortened,
    wrapped,
)
from stackscope.tui.lines import Span, cells, fitted, plain, printable, spelled, spread, width
from stackscope.tui.look import ASCII, UNICODE, chosen
from stackscope.tui.timeline import recent, timeline

SECOND = 1_000_000_000
TEXT = st.text(max_size=60)


def test_a_number_is_bright_and_its_unit_dim() -> None:
    assert quantity("12.3 GB/s") == (Span("12.3", "value"), Span(" GB/s", "unit"))
    assert quantity("+44 % [37, 52]") == (Span("+44", "value"), Span(" % [37, 52]", "unit"))
    assert quantity("620 GFLOP/s measured") == (Span("620", "value"), Span(" GFLOP/s measured", "unit"))
    assert quantity("2 min 05 s") == (Span("2 min 05 s", "value"),)  # one figure, not a number and a unit
    assert quantity("-") == (Span("-", "unknown"),)
    assert plain(figure("queue", "7", room=3)) == "queue   7"


def test_items_are_left_out_whole() -> None:
    items = [said("first"), said("a second one"), said("3rd")]
    assert plain(flow(items, 26, 2)) == "first  a second one  3rd"
    assert plain(flow(items, 18, 2)) == "first  3rd"
    assert plain(flow(items, 4, 2)) == "3rd"
    assert [plain(line) for line in flowed(items, 12, 2)] == ["first", "a second one", "3rd"]
    assert [plain(line) for line in flowed([said("much too long"), said("short")], 6)] == ["short"]


@given(st.lists(TEXT, max_size=9), st.integers(0, 50), st.integers(0, 4))
def test_no_flow_is_wider_than_its_room(texts: list[str], room: int, gap: int) -> None:
    items = [said(printable(text)) for text in texts]
    assert width(flow(items, room, gap)) <= room
    lines = flowed(items, room, gap)
    assert all(width(line) <= room for line in lines)
    shown = "".join(plain(line) for line in lines)
    assert all(plain(item) in shown for item in items if width(item) <= room)


@given(TEXT, st.integers(1, 30))
def test_wrapping_keeps_every_word_and_the_width(text: str, room: int) -> None:
    lines = wrapped(text, room)
    assert "".join("".join(plain(line).split()) for line in lines) == "".join(printable(text).split())
    assert all(width(line) <= max(room, 2) for line in lines)  # a wide character needs two


def test_wrapping_parts_no_number_from_what_it_counts() -> None:
    text = "it lies within [46.2 %, 52.7 %]; a step of 130 ms, and head +522 µs."
    for room in range(12, 80):
        lines = [plain(line) for line in wrapped(text, room)]
        assert " ".join(lines) == text
        assert not any(line.rstrip(",.;")[-1].isdigit() for line in lines), lines
    assert [plain(line) for line in wrapped("a 130 ms", 3)] == ["a", "130", "ms"]


def test_lines_are_shortened_between_words_and_behind_no_number() -> None:
    line = (Span("moved ", "label"), Span("165 MB", "value"), Span(" per step at 14.1 GB/s"))
    shown = {room: plain(shortened(line, room, "…")) for room in range(12, 37)}
    assert shown[36] == "moved 165 MB per step at 14.1 GB/s"
    assert shown[33] == shown[30] == "moved 165 MB per step at …"
    assert shown[13] == "moved 165 MB…"[:13] or shown[13] == "moved …"
    assert all(cells(text) <= room for room, text in shown.items())
    assert not any(text[:-1].rstrip()[-1:].isdigit() for text in shown.values() if text.endswith("…"))


@given(TEXT, st.integers(0, 70))
def test_shortened_lines_fit(text: str, room: int) -> None:
    line = (Span(printable(text)),)
    assert width(shortened(line, room, "…")) <= room
    assert width(fitted(line, room)) == room
    assert width(spread(line, (Span("right"),), room)) == room


def test_two_ends_of_a_line() -> None:
    assert plain(apart(said("left"), said("right"), 12)) == "left   right"
    assert plain(apart(said("left"), said("right"), 9)) == "left"
    assert plain(sentence(("a long wording", "short"), 8)) == "short"
    assert sentence(("a long wording", "short"), 3) == ()


def test_rows_are_given_room_by_rank_and_shown_in_order() -> None:
    def rows() -> Rows:
        made = Rows()
        made.add(1, said("top"))
        made.fill(3, 2, 4, lambda n: [said("chart")] * n)
        made.add(2, said("two"), said("lines"))
        made.add(0, said("vital"))
        return made

    shown = {height: [plain(line) for line in rows().laid_out(height)] for height in range(10)}
    assert shown[0] == []
    assert shown[1] == ["vital"]
    assert shown[3] == ["top", "vital"]  # two lines that belong together are not parted
    assert shown[4] == ["top", "two", "lines", "vital"]
    assert shown[6] == ["top", "chart", "chart", "two", "lines", "vital"]
    assert shown[9] == ["top", *["chart"] * 4, "two", "lines", "vital"]


@given(TEXT)
def test_printable_text_has_no_power_over_the_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


@given(TEXT)
def test_ascii_is_ascii_and_takes_the_same_room(text: str) -> None:
    line = (Span(printable(text), "value"),)
    shown = spelled(line, ASCII)
    assert plain(shown).isascii()
    assert width(shown) == width(line)
    assert spelled(line, UNICODE) == line


def test_looks_are_chosen_by_what_a_terminal_can_do() -> None:
    assert chosen() is chosen()
    assert (chosen().has_colour, chosen().is_blended) == (True, True)
    assert (chosen(n_colours=16).has_colour, chosen(n_colours=16).is_blended) == (True, False)
    assert (chosen(n_colours=0).has_colour, chosen(n_colours=0).is_blended) == (False, False)
    assert (chosen(is_ascii=True).is_ascii, chosen(is_ascii=True).is_blended) == (True, False)


def history(n: int, *, last: int, changes: tuple[tuple[int, str], ...] = ()) -> History:
    """Bins of half a second, the last of which ends `last` half seconds after the origin; its number is its value."""
    points = tuple(
        Point(at_ns=(last - n + 1 + k) * SECOND // 2, tokens_per_s=float(last - n + 1 + k)) for k in range(n)
    )
    return History(bin_ns=SECOND // 2, points=points, changes=changes)


def test_a_column_is_the_mean_of_its_bins() -> None:
    line = timeline(history(120, last=120), 30)
    assert line.span_ns == 60 * SECOND
    assert line.of("tokens_per_s") == [2.5 + 4 * k for k in range(30)]


@pytest.mark.parametrize("room", [20, 33, 56, 71, 116, 120, 150, 196])
def test_all_charts_reach_back_equally_far_whatever_their_width(room: int) -> None:
    """What stands below each other on a screen is of the same time."""
    line = timeline(history(240, last=1_001), room)
    values = line.of("tokens_per_s")
    assert line.span_ns == 60 * SECOND
    assert len(values) == room
    of_a_column = max(120 / room, 1)
    oldest, newest = values[0], values[-1]
    assert oldest is not None
    assert newest is not None
    assert 1_001 - 120 - of_a_column <= oldest <= 1_001 - 120 + of_a_column + 1
    assert 1_001 - of_a_column <= newest <= 1_001
    known = [value for value in values if value is not None]
    assert known == sorted(known)


def test_what_the_history_does_not_reach_is_unknown() -> None:
    assert timeline(history(3, last=120), 120).of("tokens_per_s") == [None] * 117 + [118.0, 119.0, 120.0]
    assert timeline(history(0, last=0), 8).of("tokens_per_s") == [None] * 8
    assert timeline(history(6, last=120), 30).of("tokens_per_s") == [None] * 28 + [115.5, 118.5]


def test_a_chart_moves_by_whole_columns() -> None:
    """Between two moves only the newest column changes, so that nothing flickers."""
    before = timeline(history(120, last=121), 30).of("tokens_per_s")
    after = timeline(history(120, last=122), 30).of("tokens_per_s")
    assert before[1:-1] == after[1:-1]
    assert timeline(history(120, last=125), 30).of("tokens_per_s")[1:-2] == before[2:-1]


def test_a_change_is_marked_in_the_column_of_its_bin() -> None:
    changed = ((30 * SECOND, "a"), (30 * SECOND + 1, "b"), (1, "c"), (60 * SECOND, "d"), (61 * SECOND, "late"))
    line = timeline(history(120, last=120, changes=changed), 120)
    assert line.marks == ((0, "c"), (59, "a"), (60, "b"), (119, "late"))
    assert timeline(history(120, last=120, changes=((-1 * SECOND, "old"),)), 120).marks == ()


def test_many_changes_leave_most_of_a_chart_to_be_seen() -> None:
    """Somebody who tries out toggles changes something every second or two."""
    changed = tuple((at * SECOND, f"slots {at}") for at in range(2, 62))
    for room in (30, 56, 116, 196):
        marks = timeline(history(120, last=122, changes=changed), room).marks
        assert 1 <= len(marks) <= max(room // 10, 3) + 1
        assert marks[-1] == (room - 1, "slots 61")
        moved = timeline(history(120, last=130, changes=changed), room).marks
        by_label = {label: column for column, label in marks}
        assert all(column < by_label[label] for column, label in moved)
    few = tuple((at * SECOND, str(at)) for at in (10, 11, 12, 40))
    assert [label for _, label in timeline(history(120, last=122, changes=few), 60).marks] == ["10", "11", "12", "40"]


def test_the_axis_tells_how_far_back_and_what_was_changed() -> None:
    line = timeline(history(120, last=120, changes=((20 * SECOND, "slots 4"), (59 * SECOND, "spec draft"))), 60)
    text = plain(line.axis(UNICODE, "tok/s"))
    assert text == "-60 s  tok/s       ┊slots 4                     spec draft┊"
    assert width(line.axis(UNICODE)) <= 60


@given(st.integers(1, 130), st.lists(st.tuples(st.integers(0, 70), TEXT), max_size=5))
def test_no_axis_is_wider_than_its_chart(room: int, changes: list[tuple[int, str]]) -> None:
    marks = tuple((at * SECOND, label) for at, label in sorted(changes))
    line = timeline(history(120, last=120, changes=marks), room)
    assert width(line.axis(UNICODE, "name")) <= room
    assert len(line.of("tokens_per_s")) == room


def test_a_scale_is_made_for_what_is_shown() -> None:
    """What has left the chart no longer sets its scale, and what is on it is below its top."""
    long = history(600, last=600)
    for room in (20, 56, 116, 196):
        shown = [value for value in timeline(long, room).of("tokens_per_s") if value is not None]
        reach = [point.tokens_per_s for point in recent(long, room) if point.tokens_per_s is not None]
        assert min(reach) <= min(shown)
        assert min(reach) >= 600 - 120 - 120 / room


@given(text=TEXT, room=st.integers(1, 60), n_lines=st.integers(1, 5))
def test_a_folded_line_keeps_within_its_lines_and_loses_nothing_unsaid(text: str, room: int, n_lines: int) -> None:
    lines = folded((Span(printable(text), "label"),), room, n_lines, "…")
    assert len(lines) <= n_lines
    assert all(width(line) <= room for line in lines)
    told = " ".join(map(plain, lines))
    assert "…" in told or told.split() == printable(text).split()


def test_a_folded_line_parts_no_number_from_what_it_counts() -> None:
    lines = folded((*said("only 12 ms of "), Span("it → q8_0", "value")), 6, 9, "…")
    assert [plain(line) for line in lines] == ["only", "12 ms", "of it", "→ q8_0"]
