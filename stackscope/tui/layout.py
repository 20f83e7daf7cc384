"""Where everything of the live screen goes, as a pure function of the terminal's size and the page that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 16
"""In anything smaller, nothing can be read."""

PANES: Final = (
    "anatomy", "compute", "acceptance", "prefix", "bandwidth", "throughput", "hardware", "events", "requests", "text",
)  # fmt: skip
"""Panes with a place that depends on the size; `verdict` has one on every page."""

SHORT_NAMES: Final = {
    "anatomy": "steps", "compute": "compute", "acceptance": "drafts", "prefix": "cache", "bandwidth": "bytes",
    "throughput": "speed", "hardware": "machine", "events": "events", "requests": "requests", "text": "text",
}  # fmt: skip
"""What the line of pages calls them."""

_WIDE: Final = 110
"""Columns from which panes stand three in a row."""
_TALL: Final = 34
"""Rows from which a wide terminal shows everything but the requests on one page."""
_TOGGLES_WIDTH: Final = 118
"""Columns in which the toggles that matter most fit on a line; all of them take two."""
_SPACIOUS: Final = 38
"""Rows from which a line more for them leaves the panes on their page."""
_JUST_TWO_ROWS: Final = range(22, 24)
"""Rows in which two rows of panes fit on a page, but for a line."""
_ROOMY: Final = 46
"""Rows from which there is room for more than the least of each pane."""
_TABLES: Final = 56
"""Rows from which the latencies have room for a table of their percentiles."""
_COLUMN: Final = 36
"""Least columns of a pane that shares its row."""


class Region(NamedTuple):
    """A rectangle of cells; `x` and `y` are its upper left corner."""

    x: int
    y: int
    width: int
    height: int


class Row(NamedTuple):
    """Panes side by side."""

    panes: tuple[str, ...]
    least: int
    """Rows, borders included, below which it is of no use."""
    weight: int
    """Its part of the rows that are left over."""


@dataclass(frozen=True)
class Layout:
    """The places of one page."""

    regions: Mapping[str, Region]
    """By id: `header`, `verdict`, `toggles`, `tabs`, `event` (the last event as a line), `transport`, `footer`, and
    the panes of this page. They do not overlap and cover the terminal. Empty: the terminal is too small."""
    pages: tuple[tuple[str, ...], ...]
    """The panes of each page, most important first."""
    page: int
    """The one shown."""

    @property
    def is_too_small(self) -> bool:
        return not self.regions

    def page_of(self, pane: str) -> int:
        """The page that has a pane."""
        return next((n for n, panes in enumerate(self.pages) if pane in panes), self.page)


def is_too_small(width: int, height: int) -> bool:
    """Whether a terminal has no room for any screen."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


def arranged(width: int, height: int, *, page: int = 0, has_transport: bool = False) -> Layout:
    """The layout for a terminal of that many columns and rows. A page beyond the last is the last."""
    if is_too_small(width, height):
        return Layout({}, (), 0)
    # In a recording toggles cannot be switched: what limits, and what would help, is worth their second line.
    has_one_line = has_transport and width < _TOGGLES_WIDTH and height < _SPACIOUS
    # What limits, what it is not and what would help have a line each, unless that takes a row of panes from the page.
    verdict = 4 if height in _JUST_TWO_ROWS or (has_transport and height <= LEAST_HEIGHT) else 5
    toggles = 1 if height < 20 or has_one_line or (width >= _TOGGLES_WIDTH and height < _SPACIOUS) else 2
    fixed = 1 + verdict + toggles + int(has_transport) + 1
    rows = _rows(width, height)
    if has_transport:
        rows = tuple(row for row in map(_without_text, rows) if row.panes)
    pages = _paged(rows, height - fixed)
    if len(pages) > 1:
        # Every page now has a line of pages, and where the events are on another one, a line with the last of them.
        pages = _paged(rows, height - fixed - 2)
    page = max(0, min(page, len(pages) - 1))
    top = {"header": 1, "verdict": verdict, "toggles": toggles}
    bottom = {"footer": 1}
    if has_transport:
        bottom = {"transport": 1, **bottom}
    if len(pages) > 1:
        top["tabs"] = 1
        if not any("events" in row.panes for row in pages[page]):
            bottom = {"event": 1, **bottom}
    regions = {}
    y = 0
    for name, n_rows in top.items():
        regions[name] = Region(0, y, width, n_rows)
        y += n_rows
    room = height - y - sum(bottom.values())
    regions |= _placed(pages[page], Region(0, y, width, room))
    y += room
    for name, n_rows in bottom.items():
        regions[name] = Region(0, y, width, n_rows)
        y += n_rows
    names = tuple(tuple(pane for row in rows_of_page for pane in row.panes) for rows_of_page in pages)
    return Layout(regions, names, page)


def _rows(width: int, height: int) -> tuple[Row, ...]:
    """All panes in rows, in the order in which they are given a page."""
    if width >= _WIDE and height >= _TALL:
        return (
            Row(("anatomy", "compute"), 8, 2),
            Row(("acceptance", "prefix", "bandwidth"), 9, 3 if height >= _ROOMY else 4),
            Row(("throughput", "hardware"), 5, 4 if height >= _TABLES else 1 if height >= _ROOMY else 0),
            Row(("events",), 4, 2),
            Row(("requests", "text"), 9, 2),
        )
    if width >= _WIDE:
        return (
            Row(("anatomy", "acceptance", "throughput"), 6, 1),
            Row(("prefix", "compute", "bandwidth"), 6, 1),
            Row(("hardware", "events"), 6, 1),
            Row(("requests", "text"), 6, 2),
        )
    if width >= 2 * _COLUMN:
        return (
            Row(("anatomy",), 6, 1),
            Row(("acceptance", "throughput"), 6, 1),
            Row(("prefix", "compute"), 6, 1),
            Row(("bandwidth", "hardware"), 6, 1),
            Row(("requests",), 6, 1),
            Row(("text",), 6, 2),
            Row(("events",), 5, 1),
        )
    return tuple(Row((pane,), 6, 1) for pane in _BY_IMPORTANCE)


def _without_text(row: Row) -> Row:
    """A recording has no text as it grew, so that the pane would only say so."""
    return row._replace(panes=tuple(pane for pane in row.panes if pane != "text"))


_BY_IMPORTANCE: Final = (
    "anatomy", "acceptance", "throughput", "prefix", "compute", "bandwidth", "hardware", "requests", "text", "events",
)  # fmt: skip


def _paged(rows: Sequence[Row], room: int) -> list[list[Row]]:
    """The rows in pages of at most `room` lines; each page has at least one row."""
    pages: list[list[Row]] = [[]]
    for row in rows:
        if pages[-1] and sum(other.least for other in pages[-1]) + row.least > room:
            pages.append([])
        pages[-1].append(row)
    return pages


def _placed(rows: Sequence[Row], area: Region) -> dict[str, Region]:
    """The panes of these rows in an area, which they fill."""
    regions = {}
    heights = _shared(area.height, [row.least for row in rows], [row.weight for row in rows])
    y = area.y
    for row, height in zip(rows, heights, strict=True):
        x = area.x
        n = len(row.panes)
        for pane, width in zip(row.panes, _shared(area.width, [0] * n, [1] * n), strict=True):
            regions[pane] = Region(x, y, width, height)
            x += width
        y += height
    return regions


def _shared(total: int, least: Sequence[int], weights: Sequence[int]) -> list[int]:
    """`total` in whole parts: to each its least, and of what is left its part by weight."""
    left = total - sum(least)
    whole = sum(weights)
    ends = [left * sum(weights[: n + 1]) // whole for n in range(len(weights))]
    return [part + end - begin for part, begin, end in zip(least, [0, *ends], ends, strict=False)]
