"""How this terminal is drawn on: its characters and its theme, and lines of meanings made into what Textual draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.segment import Segment
from textual.strip import Strip

from stackscope.tui import theme
from stackscope.tui.lines import fitted
from stackscope.tui.look import UNICODE, Look

if TYPE_CHECKING:
    from textual.widget import Widget

    from stackscope.tui.lines import Line


@dataclass(frozen=True)
class Paint:
    """Characters and theme."""

    look: Look = UNICODE
    kind: theme.Kind = "dark"


DEFAULT: Final = Paint()


def paint_of(widget: Widget) -> Paint:
    """The application's way to draw, its `paint` attribute."""
    found = getattr(widget.app, "paint", None)
    return found if isinstance(found, Paint) else DEFAULT


def strip(line: Line, paint: Paint, room: int) -> Strip:
    """A line of exactly `room` cells, in the theme's colours."""
    whole = fitted(line, room, paint.look.ellipsis)
    return Strip([Segment(span.text, theme.style(paint.kind, span.style)) for span in whole], room)
