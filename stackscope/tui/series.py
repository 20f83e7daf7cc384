"""A series of the history as panes show it: on one line behind its label, or as an area with scale and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.tui.charts import area, ceiling, labelled, sparkline
from stackscope.tui.lines import Line, Span, cells
from stackscope.tui.timeline import known, timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.tui.compose import Rows
    from stackscope.tui.pane import Context

LEAST_CHART: Final = 8
"""Cells below which a chart says nothing."""
LEAST_FRAMED: Final = 4
"""Lines from which an area is drawn, with its scale and its time."""


def add_chart(
    rows: Rows, rank: int, context: Context, field: str, label: str, *,
    spelled: Callable[[float], str] = units.number, top: float | None = None, style: str = "chart",
) -> None:  # fmt: skip
    """A series of the last minute as a block of a pane: one line where that is all there is, else an area."""
    values = known(context.snapshot.history, field, context.size.width)
    if not values:
        return
    scale = ceiling(values) if top is None else top

    def make(height: int) -> tuple[Line, ...]:
        if height < LEAST_FRAMED:
            return _beside_label(context, field, label, height, spelled=spelled, top=scale, style=style)
        return framed_area(context, field, height, top=scale, spelled=spelled, style=style, name=label)

    rows.fill(rank, 1, max(context.size.height, 1), make)


def _beside_label(
    context: Context, field: str, label: str, height: int, *, spelled: Callable[[float], str], top: float, style: str
) -> tuple[Line, ...]:
    """Few lines: the label and the scale stand at the ends of the first."""
    first = over_time(context, field, label, context.size.width, spelled=spelled, top=top, style=style)
    if height == 1 or not first:
        return (first,) if first else ()
    head, scale = first[0], first[-1]
    line = timeline(context.snapshot.history, context.size.width - cells(head.text) - cells(scale.text))
    marks = [column for column, _ in line.marks]
    upper, *others = area(line.of(field), height, context.look, top, marks=marks, style=style)
    indent = Span(" " * cells(head.text))
    return ((head, *upper, scale), *((indent, *other) for other in others))


def over_time(
    context: Context, field: str, label: str, room: int, *, spelled: Callable[[float], str] = units.number,
    top: float | None = None, style: str = "chart",
) -> Line:  # fmt: skip
    """The last minute on one line: label, sparkline, and its scale.

    Nothing where nothing is known, or where there is no room.
    """
    values = known(context.snapshot.history, field, context.size.width)
    top = ceiling(values) if top is None else top
    head, scale = f"{label} " if label else "", f" 0–{spelled(top)}"
    width = room - cells(head) - cells(scale)
    if not values or width < LEAST_CHART:
        return ()
    line = timeline(context.snapshot.history, width)
    drawn = sparkline(line.of(field), context.look, top, [column for column, _ in line.marks], style)
    return (Span(head, "label"), *drawn, Span(scale, "unit"))


def framed_area(
    context: Context, field: str, height: int, *, top: float, spelled: Callable[[float], str],
    has_spare: bool = False, style: str = "chart", name: str = "",
) -> tuple[Line, ...]:  # fmt: skip
    """The last minute as an area of `height` lines; from 3 lines on behind its scale, and above a line of time.

    `has_spare`: what is left below `top` is shaded. `name` says what it is.
    """
    history, look, room = context.snapshot.history, context.look, context.size.width
    labels = {0: spelled(top), height - 2: "0"}
    if height - 1 >= 5 and height % 2 == 0:
        labels[(height - 2) // 2] = spelled(top / 2)
    margin = max(cells(text) for text in labels.values())
    if height < 3 or room < margin + 1 + LEAST_CHART:
        line = timeline(history, room)
        columns = [column for column, _ in line.marks]
        return area(line.of(field), height, look, top, marks=columns, style=style, has_spare=has_spare)
    line = timeline(history, room - margin - 1)
    columns = [column for column, _ in line.marks]
    chart = area(line.of(field), height - 1, look, top, marks=columns, style=style, has_spare=has_spare)
    return (*labelled(chart, labels, look, margin), (Span(" " * (margin + 1)), *line.axis(look, name)))
