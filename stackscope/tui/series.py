"""A series of the history as panes show it: on one line behind its label, or as an area with scale and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.tui.charts import area, ceiling, labelled, sparkline
from stackscope.tui.lines import Line, Span, cells
from stackscope.tui.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.tui.pane import Context

LEAST_CHART: Final = 8
"""Cells below which a sparkline says nothing."""


def over_time(
    context: Context, field: str, label: str, room: int, *, spelled: Callable[[float], str] = units.number,
    top: float | None = None, style: str = "chart",
) -> Line:  # fmt: skip
    """The last minute on one line: label, sparkline, and the top of its scale, which begins at 0.

    Nothing where nothing is known, or where there is no room.
    """
    history = context.snapshot.history
    known = [value for point in history.points if (value := getattr(point, field)) is not None]
    top = ceiling(known) if top is None else top
    head, scale = f"{label} " if label else "", f" of {spelled(top)}"
    width = room - cells(head) - cells(scale)
    if not known or width < LEAST_CHART:
        return ()
    line = timeline(history, width)
    drawn = sparkline(line.of(field), context.look, top, [column for column, _ in line.marks], style)
    return (Span(head, "label"), *drawn, Span(scale, "unit"))


def framed_area(
    context: Context, values: list[float | None], height: int, *, top: float, spelled: Callable[[float], str],
    has_spare: bool = False, style: str = "chart",
) -> tuple[Line, ...]:  # fmt: skip
    """The last minute as an area of `height` lines; from 3 lines on behind its scale, and above a line of time.

    `values` by point of the history. `has_spare`: what is left below `top` is shaded.
    """
    history, look, room = context.snapshot.history, context.look, context.size.width
    labels = {0: spelled(top), height - 2: "0"}
    margin = max(cells(text) for text in labels.values())
    if height < 3 or room < margin + 1 + LEAST_CHART:
        line = timeline(history, room)
        columns = [column for column, _ in line.marks]
        return area(line.means(values), height, look, top, marks=columns, style=style, has_spare=has_spare)
    if height - 1 >= 5:
        labels[(height - 2) // 2] = spelled(top / 2) if (height - 2) % 2 == 0 else ""
        margin = max(cells(text) for text in labels.values())
    line = timeline(history, room - margin - 1)
    columns = [column for column, _ in line.marks]
    chart = area(line.means(values), height - 1, look, top, marks=columns, style=style, has_spare=has_spare)
    return (*labelled(chart, labels, look, margin), (Span(" " * (margin + 1)), *line.axis(look)))
