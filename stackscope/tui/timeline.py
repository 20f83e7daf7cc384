"""The history as columns of a chart: so many bins to a column, changes as marks, and a line that tells the time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.tui.lines import Line, Span, cells, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.analysis.live.snapshot import History, Point
    from stackscope.tui.look import Look

MINUTE_NS: Final = 60 * 10**9


@dataclass(frozen=True)
class Timeline:
    """Which bins make which column. Columns begin at multiples of their length since the session's origin, so that a
    chart moves on by whole columns and does not flicker in between."""

    history: History
    width: int
    per: int
    """Bins of a column."""
    first: int
    """Index of the first column's first bin among the points; negative where the history does not reach back."""
    marks: tuple[tuple[int, str], ...]
    """(column, label), oldest first; one for each column that has any."""

    @property
    def span_ns(self) -> int:
        """Time from the left edge to the right one."""
        return self.width * self.per * self.history.bin_ns

    def of(self, field: str) -> list[float | None]:
        """A series by its name in `Point`: the mean of what is known in each column."""
        values = list(map(_getter(field), self.history.points[max(self.first, 0) :]))
        if self.per == 1:
            padded: list[float | None] = [None] * max(-self.first, 0)
            return (padded + values)[: self.width]
        return [_mean(values[start:end]) for start, end in self.bounds()]

    def bounds(self) -> Iterator[tuple[int, int]]:
        """First and last bin of each column, counted from the first point that is shown."""
        shift = max(self.first, 0)
        for start in range(self.first - shift, self.first - shift + self.width * self.per, self.per):
            yield max(start, 0), max(start + self.per, 0)

    def axis(self, look: Look, name: str = "") -> Line:
        """The line below a chart: what it shows, how far it reaches back, what was changed where, and now."""
        line = _Writing(self.width)
        if not any(column > self.width - 6 for column, _ in self.marks):
            line.put(self.width - 3, "now", "label")
        span = f"-{units.number(round(self.span_ns / 1e9))} s"
        line.put(0, span, "label")
        if name and not any(column < len(span) + 3 + len(name) for column, _ in self.marks):
            line.put(len(span) + 2, name, "label")
        for column, label in reversed(self.marks):
            text = printable(label)
            size = cells(text)
            is_written = line.put(column, f"{look.mark}{text}", "mark", size + 1)
            if not is_written and not line.put(column - size, f"{text}{look.mark}", "mark", size + 1):
                line.put(column, look.mark, "mark")
        return line.spans()


def timeline(history: History, width: int, least_ns: int = MINUTE_NS) -> Timeline:
    """Columns that reach back `least_ns` or more, ending with the last complete bin."""
    width = max(width, 1)
    bin_ns = max(history.bin_ns, 1)
    per = max(math.ceil(least_ns / (width * bin_ns)), 1)
    n = len(history.points)
    if n == 0:
        return Timeline(history, width, per, 0, ())
    last_ns = history.points[-1].at_ns
    last = round(last_ns / bin_ns) - 1
    first_column = last // per - width + 1
    marks: dict[int, str] = {}
    for at_ns, label in history.changes:
        column = (last - max((last_ns - at_ns) // bin_ns, 0)) // per - first_column
        if 0 <= column < width:
            marks[column] = label
    return Timeline(history, width, per, first_column * per - (last - n + 1), tuple(sorted(marks.items())))


def recent(history: History, width: int) -> tuple[Point, ...]:
    """The points that a chart of at most so many columns can show, and few more: what its scale is made for."""
    return history.points[-(math.ceil(MINUTE_NS / max(history.bin_ns, 1)) + width) :]


@cache
def _getter(field: str) -> attrgetter[float | None]:
    return attrgetter(field)


def known(history: History, field: str, width: int) -> list[float]:
    """What is known of a series by its name in `Point`, as far back as a chart of so many columns goes."""
    return [value for value in map(_getter(field), recent(history, width)) if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    total = sum(known)
    if not math.isfinite(total):
        known = [value for value in known if math.isfinite(value)]
        total = sum(known)
    return total / len(known) if known else None


class _Writing:
    """Words at columns of one line, none over another."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._pieces: list[tuple[int, int, Span]] = []

    def put(self, column: int, text: str, style: str, size: int | None = None) -> bool:
        """Write where it is free, with a cell between neighbours; whether it was."""
        end = column + (cells(text) if size is None else size)
        if column < 0 or end > self._width:
            return False
        if any(column < other_end + 1 and other < end + 1 for other, other_end, _ in self._pieces):
            return False
        self._pieces.append((column, end, Span(text, style)))
        return True

    def spans(self) -> Line:
        spans: list[Span] = []
        at = 0
        for column, end, span in sorted(self._pieces):
            if column > at:
                spans.append(Span(" " * (column - at)))
            spans.append(span)
            at = end
        return tuple(spans)
