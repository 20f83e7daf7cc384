"""Where the wall time of a step goes: now as a bar and part by part, and over the last minute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from stackscope import units
from stackscope.tui.charts import bar, signs, stacked_area, stacked_bar, swatch
from stackscope.tui.compose import Rows, quantity, said, wrapped
from stackscope.tui.lines import Line, Span
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp, Size
from stackscope.tui.timeline import timeline
from stackscope.tui.wording import awaited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.live.snapshot import Snapshot, Window
    from stackscope.tui.look import Look
    from stackscope.tui.timeline import Timeline

SHORT: Final = {"unexplained": "unexpl."}
"""Names in a narrow column."""
_NARROW: Final = 27
"""Cells of a part without its bar: letter, name, share, milliseconds."""
_BARE: Final = 18
"""The same without milliseconds, which is how more of them stand on few lines."""
_GAP: Final = 2
_FEW: Final = 2
"""Lines of the table on which which parts there are matters more than their milliseconds."""


class Row(NamedTuple):
    """One part, or all that are not listed."""

    part: str | None
    share: float
    step_ns: float | None


class AnatomyPane(Pane):
    """Step anatomy."""

    id: ClassVar = "anatomy"
    title: ClassVar = "Step anatomy"
    help: ClassVar = PaneHelp(
        meaning="Where wall time goes, in parts that do not overlap and sum to 100 %. The target's forward is divided "
        "by its rows: prefill are prompt rows, decode is one row for each sequence that decodes, verify the drafted "
        "rows beyond it. Draft is all that it takes to obtain drafts; sample turns logits into tokens; schedule "
        "admits, builds batches and trims; emit turns tokens into text; shadow watches what an optimisation that is "
        "off would have done; idle lies between steps, while nothing is in flight or a change is built; unexplained is "
        "the rest of the loop.",
        formula="share = Σ time of the part ÷ (Σ step time + Σ idle time between steps), over the last two seconds; ms"
        " = the same time ÷ steps. The chart below shows the shares of the last minute.",
        moves="Prefill: prefix cache, token budget. Decode: fewer bytes in weights or KV, more slots to share them. "
        "Verify and draft: draft length, another source of drafts, or none. The host parts: fewer, larger steps. Idle:"
        " more load.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        window = snapshot.now if snapshot.now.parts else snapshot.minute
        line = timeline(snapshot.history, size.width - 1)
        columns = _shares(line)
        if not window.parts and all(column is None for column in columns):
            return Drawn(wrapped(_missing(snapshot), size.width))
        rows = Rows()
        if window.parts:
            rows.add(0, stacked_bar([part.share for part in window.parts], size.width, context.look))
        found = _rows(window)
        lines = _lines_for_parts(size, len(found))
        rows.add(1, *_table(found, lines, size.width, context.look))
        left = size.height - lines - bool(window.parts)
        if left >= 4:
            rows.fill(2, 3, left - 1, lambda n: _history(line, columns, n, context.look))
            rows.add(3, line.axis(context.look))
        elif left >= 1:
            rows.fill(2, 1, left, lambda n: _history(line, columns, n, context.look))
        return Drawn(rows.laid_out(size.height), _notes(snapshot))


def _missing(snapshot: Snapshot) -> str:
    if snapshot.state in ("running", "settling", "waiting"):
        return "This source does not tell where the time of a step goes."
    return awaited(snapshot, "its parts show here")


def _notes(snapshot: Snapshot) -> tuple[Line, ...]:
    if snapshot.now.step_ns is None:
        last = units.milliseconds(snapshot.minute.step_ns)
        return (said(f"no step in 2 s, {last} per step before"), said("no step in 2 s"), said("no step"))
    text = quantity(units.milliseconds(snapshot.now.step_ns), "headline")
    return ((*text, Span(" per step", "label")), text)


def _shares(line: Timeline) -> list[tuple[float, ...] | None]:
    """Mean shares in each column; `None` where there was no step."""
    return line.columns([point.shares for point in line.history.points], _summed)


def _summed(shares: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*shares, strict=True)))


def _rows(window: Window) -> list[Row]:
    """The parts that took any time, in the order of the anatomy."""
    steps = window.steps
    return [Row(part.name, part.share, part.ns / steps if steps else None) for part in window.parts if part.share > 0.0]


def _lines_for_parts(size: Size, n_parts: int) -> int:
    """Lines that the table of parts gets, the rest being the chart's."""
    columns = _columns(size.width)
    room = size.height - 1
    needed = math.ceil(n_parts / columns)
    chart = next((n for n in (6, 5, 4, 3, 2) if room - n >= needed), 2 if room >= 5 else 1 if room >= 2 else 0)
    lines = min(max(room - chart, 0), needed)
    # One part to a line where that leaves the chart a height that can be read.
    return n_parts if room - n_parts >= 5 else lines


def _columns(width: int) -> int:
    """Parts side by side."""
    return max(min((width + _GAP) // (_NARROW + _GAP), 3), 1)


def _table(rows: list[Row], lines: int, width: int, look: Look) -> list[Line]:
    """The parts in as few columns as the lines allow; those that find no place are summed up."""
    if lines < 1 or not rows:
        return []
    needed = math.ceil(len(rows) / lines)
    columns = min(needed, _columns(width))
    if lines <= _FEW and columns < needed:
        columns = max(columns, min(needed, (width + _GAP) // (_BARE + _GAP)))
    places = lines * columns
    if len(rows) > places:
        rows = _with_rest(rows, places)
    column = (width - _GAP * (columns - 1)) // columns
    cells = [_cell(row, column, look) for row in rows]
    n = math.ceil(len(cells) / columns)
    gap = Span(" " * _GAP)
    told = []
    for index in range(n):
        side_by_side = cells[index::n]
        line = list(side_by_side[0])
        for cell in side_by_side[1:]:
            line += (gap, *cell)
        told.append(tuple(line))
    return told


def _with_rest(rows: list[Row], places: int) -> list[Row]:
    """The largest parts in their order, and one row for all the others."""
    largest = sorted(rows, key=lambda row: -row.share)[: places - 1]
    others = [row for row in rows if row not in largest]
    known = [row.step_ns for row in others if row.step_ns is not None]
    rest = Row(None, sum(row.share for row in others), sum(known) if len(known) == len(others) else None)
    return [*(row for row in rows if row in largest), rest]


def _cell(row: Row, width: int, look: Look) -> Line:
    """Letter, name, bar, share, milliseconds in exactly `width` cells, where they have room."""
    is_wide = width >= _NARROW + 4
    name = "others" if row.part is None else row.part if is_wide else SHORT.get(row.part, row.part)
    sign = Span(" ") if row.part is None else swatch(row.part, look)
    style = f"part.{row.part}" if row.part is not None else "axis"
    room = 11 if is_wide else 8
    spans = [sign, Span(f" {name:<{room}} ", "" if row.part else "label")]
    bars = width - (room + 3) - 17
    if bars >= 3:
        spans += (*bar(row.share, bars, look, style), Span(" "))
    share = units.percent(row.share)
    if width < room + 3 + 7:
        return tuple(spans)
    number, _, unit = share.partition(" ")
    spans += (Span(f"{number:>5}"[-6:], "value"), Span(f" {unit}", "unit"))
    if width >= room + 3 + 16:
        number, _, unit = units.milliseconds(row.step_ns).partition(" ")
        spans += (Span(f"{number:>6}", ""), Span(f" {unit}", "unit"))
    return tuple(spans)


def _history(line: Timeline, columns: list[tuple[float, ...] | None], height: int, look: Look) -> tuple[Line, ...]:
    """The shares over time, and behind them the signs of the parts that are there now."""
    chart = stacked_area(columns, height, look, [column for column, _ in line.marks])
    return tuple((*row, sign) for row, sign in zip(chart, signs(columns[-1], height, look), strict=True))
