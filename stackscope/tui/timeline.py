"""The history as columns of a chart: so many bins to a column, changes as marks, and a line that tells the time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

from stackscope import units
from stackscope.tui.lines import Line, Span, cells, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.analysis.live.snapshot import History, Point
    from stackscope.tui.look import Look

MINUTE_NS: Final = 60 * 10**9
_FEW_MARKS: Final = 3
_COLUMNS_PER_MARK: Final = 10
"""Columns of a chart for each mark on it; of more marks, those close to each other become one."""
_APART: Final = (1, 3, 6, 12, 24)
"""Columns of which one has a mark, the first that leaves few enough."""

T = TypeVar("T")


@dataclass(frozen=True)
class Timeline:
    """Which bins make which column. All charts reach back equally far, however wide they are, so that what stands below
    each other on a screen can be compared: a column may be a fraction of a bin, or so many bins and a fraction. Columns
    begin at multiples of their length since the session's origin, so that a chart moves on by whole columns and does
    not flicker in between."""

    history: History
    width: int
    span: int
    """Bins from the left edge to the right one."""
    column: int
    """The first column, counted from the session's origin."""
    origin: int
    """The first point's bin, counted likewise."""
    marks: tuple[tuple[int, str], ...]
    """(column, label), oldest first; one for each column that has any."""

    @property
    def span_ns(self) -> int:
        """Time from the left edge to the right one."""
        return self.span * self.history.bin_ns

    def of(self, field: str) -> list[float | None]:
        """A series by its name in `Point`: the mean of what is known in each column."""
        return self.columns(list(map(_getter(field), self.history.points)), _mean)

    def columns(self, values: Sequence[T | None], mean: Callable[[Sequence[T]], T | None]) -> list[T | None]:
        """What stands in each column, of a value for each point: the mean of what is known of its bins."""
        made: list[T | None] = []
        for start, end in _bounds(self.column, self.width, self.span, self.origin):
            known = [value for value in values[start:end] if value is not None]
            made.append(mean(known) if len(known) > 1 else known[0] if known else None)
        return made

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


def timeline(history: History, width: int, span_ns: int = MINUTE_NS) -> Timeline:
    """Columns that reach back `span_ns`, ending with the last complete bin."""
    width = max(width, 1)
    bin_ns = max(history.bin_ns, 1)
    span = max(math.ceil(span_ns / bin_ns), 1)
    n = len(history.points)
    if n == 0:
        return Timeline(history, width, span, 0, 0, ())
    last_ns = history.points[-1].at_ns
    last = round(last_ns / bin_ns) - 1
    first = _column_of(last, width, span) - width + 1
    changed: dict[int, str] = {}
    for at_ns, label in history.changes:
        column = _column_of(last - max((last_ns - at_ns) // bin_ns, 0), width, span)
        if 0 <= column - first < width:
            changed[column] = label
    marks = [(column - first, label) for column, label in sorted(_thinned(changed, width).items())]
    return Timeline(history, width, span, first, last - n + 1, tuple(marks))


def _column_of(bin: int, width: int, span: int) -> int:
    """The column, or the last of those, that shows a bin; both are counted from the session's origin."""
    return -(-(bin + 1) * width // span) - 1


@lru_cache(maxsize=64)
def _bounds(column: int, width: int, span: int, origin: int) -> tuple[tuple[int, int], ...]:
    """First and last point of each column; one shorter than a bin shows that in which it begins."""
    starts = [edge * span // width - origin for edge in range(column, column + width + 1)]
    return tuple([(max(start, 0), max(end, start + 1, 0)) for start, end in pairwise(starts)])


def _thinned(changed: dict[int, str], width: int) -> dict[int, str]:
    """Changes by column, the newest of those that are too close to others where they would hide a chart.

    Which those are does not depend on how far the chart has moved on.
    """
    for apart in _APART:
        kept = {column // apart: (column, label) for column, label in sorted(changed.items())}
        if len(kept) <= max(width // _COLUMNS_PER_MARK, _FEW_MARKS):
            break
    return dict(kept.values())


def recent(history: History, width: int) -> tuple[Point, ...]:
    """The points that a chart of at most so many columns can show, and few more: what its scale is made for."""
    span = math.ceil(MINUTE_NS / max(history.bin_ns, 1))
    return history.points[-(span + math.ceil(span / max(width, 1))) :]


@cache
def _getter(field: str) -> attrgetter[float | None]:
    return attrgetter(field)


def known(history: History, field: str, width: int) -> list[float]:
    """What is known of a series by its name in `Point`, as far back as a chart of so many columns goes."""
    return [value for value in map(_getter(field), recent(history, width)) if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else None


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
