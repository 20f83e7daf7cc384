"""Panes: what they show against stored texts, and by the rules that hold for each of them at every size."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.tui.layout import Region
from stackscope.tui.lines import plain, width
from stackscope.tui.look import chosen
from stackscope.tui.pane import Context, Drawn, Size
from stackscope.tui.panes import PANES
from stackscope.tui.panes.events import latest
from stackscope.tui.theme import STYLES
from tests.tui.preview import TEXT, framed
from tests.tui.sessions import SESSIONS
from tests.tui.stored import check

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.lines import Line
    from stackscope.tui.look import Look

LOOKS: Final = {
    "unicode": chosen(),
    "sixteen": chosen(n_colours=16),
    "plain": chosen(n_colours=0),
    "ascii": chosen(is_ascii=True, n_colours=0),
}
SIZES: Final[dict[int, dict[str, tuple[int, int]]]] = {
    80: dict.fromkeys(PANES, (40, 8)) | {"verdict": (80, 4), "anatomy": (80, 7), "events": (80, 9), "text": (80, 6)},
    120: dict.fromkeys(PANES, (60, 9)) | {"verdict": (120, 5), "acceptance": (40, 11), "prefix": (40, 11)}
    | {"bandwidth": (40, 11), "throughput": (60, 5), "hardware": (60, 6), "events": (120, 9), "requests": (80, 8)},
    200: dict.fromkeys(PANES, (100, 14)) | {"verdict": (200, 5), "events": (200, 9)},
}  # fmt: skip
"""Of each pane in a terminal of so many columns, borders included."""
WIDTHS: Final = (20, 21, 26, 30, 33, 36, 38, 45, 56, 61, 78, 98, 118, 198)
HEIGHTS: Final = (1, 2, 3, 4, 5, 7, 8, 10, 13, 20, 30)


@cache
def snapshot_of(session: str) -> Snapshot:
    return SESSIONS[session]()


def context(session: str, size: Size, look: Look = LOOKS["unicode"]) -> Context:
    snapshot = snapshot_of(session)
    selected = snapshot.requests[0].id if snapshot.requests else None
    return Context(snapshot=snapshot, size=size, look=look, selected=selected, text=TEXT if selected else None)


@pytest.mark.parametrize(
    ("session", "columns"),
    [*((session, columns) for session in sorted(SESSIONS) for columns in (80, 120)), ("running", 200), ("gpus", 200)],
)
def test_they_look_as_stored(session: str, columns: int) -> None:
    compare(f"panes-{session}-{columns}.txt", session, columns, LOOKS["unicode"])


@pytest.mark.parametrize("session", ["running", "starting", "gpus"])
def test_ascii_looks_as_stored(session: str) -> None:
    compare(f"panes-{session}-ascii.txt", session, 120, LOOKS["ascii"])


def compare(name: str, session: str, columns: int, look: Look) -> None:
    """All panes of a session, in their borders, against a stored text."""
    blocks = [framed(pane, Region(0, 0, *SIZES[columns][pane]), snapshot_of(session), look) for pane in PANES]
    text = "".join(f"{plain(line).rstrip()}\n" for block in blocks for line in block)
    check(name, text)


@pytest.mark.parametrize("pane", PANES)
@pytest.mark.parametrize("session", sorted(SESSIONS))
def test_nothing_is_larger_than_its_room(session: str, pane: str) -> None:
    for columns in WIDTHS:
        for rows in HEIGHTS:
            size = Size(columns, rows)
            drawn: Drawn = PANES[pane].drawn(context(session, size))
            assert [width(line) for line in drawn.lines if width(line) > columns] == [], size
            content = PANES[pane].content(context(session, size))
            assert len(content.lines) <= rows
            assert width(content.note) + len(PANES[pane].title) + 7 <= columns or not content.note


@pytest.mark.parametrize("pane", PANES)
@pytest.mark.parametrize("look", LOOKS)
def test_any_size_is_survived(pane: str, look: str) -> None:
    for session in ("gpus", "settling", "attached", "starting"):
        for columns in (1, 2, 3, 5, 8, 13, 19):
            for rows in (1, 2, 3, 9):
                content = PANES[pane].content(context(session, Size(columns, rows), LOOKS[look]))
                assert len(content.lines) <= rows
                assert all(width(line) <= columns for line in content.lines)


@pytest.mark.parametrize("pane", PANES)
def test_no_number_is_cut(pane: str) -> None:
    """An ellipsis stands between words; it neither follows a digit nor parts a number from what it counts."""
    for session in sorted(SESSIONS):
        for columns in WIDTHS:
            content = PANES[pane].content(context(session, Size(columns, 8)))
            for line in (*content.lines, content.note):
                assert re.search(r"[0-9.,] ?…", plain(line)) is None, (session, columns, plain(line))


@pytest.mark.parametrize("pane", PANES)
@pytest.mark.parametrize("look", LOOKS)
def test_every_style_has_a_meaning_in_every_theme(pane: str, look: str) -> None:
    for session in sorted(SESSIONS):
        for size in (Size(58, 8), Size(98, 20)):
            content = PANES[pane].content(context(session, size, LOOKS[look]))
            for line in (*content.lines, content.note):
                names = {name for span in line for name in span.style.split(" on ")}
                assert all(names <= styles.keys() for styles in STYLES.values()), names


@pytest.mark.parametrize("pane", PANES)
def test_ascii_is_ascii(pane: str) -> None:
    for session in sorted(SESSIONS):
        for size in (Size(38, 6), Size(58, 8), Size(98, 20)):
            content = PANES[pane].content(context(session, size, LOOKS["ascii"]))
            assert all(plain(line).isascii() for line in (*content.lines, content.note))


@pytest.mark.parametrize("pane", PANES)
def test_without_colours_nothing_is_lost(pane: str) -> None:
    """The same words and numbers with and without colours; only the signs of parts differ."""
    for session in sorted(SESSIONS):
        for size in (Size(38, 6), Size(58, 8), Size(98, 20)):
            coloured, bare = (PANES[pane].content(context(session, size, LOOKS[n])) for n in ("unicode", "plain"))
            assert _words(coloured.lines[1:]) == _words(bare.lines[1:])


def _words(lines: tuple[Line, ...]) -> list[str]:
    return [word for line in lines for word in re.findall(r"[A-Za-z0-9.,%/-]{2,}", plain(line))]


@pytest.mark.parametrize("pane", PANES.values(), ids=list(PANES))
def test_each_explains_itself(pane: object) -> None:
    from stackscope.tui.pane import Pane

    assert isinstance(pane, Pane)
    for text in (pane.help.meaning, pane.help.formula, pane.help.moves):
        assert len(text) > 40
        assert text.endswith(".")


@pytest.mark.parametrize("room", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("session", sorted(SESSIONS))
def test_the_last_event_fills_its_line(session: str, room: int) -> None:
    line = latest(SESSIONS[session](), room, LOOKS["unicode"])
    assert width(line) == room
    assert re.search(r"[0-9.,] ?…", plain(line)) is None
