"""Lines of meanings made into what Textual draws: in the theme's colours, on the background of their widget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from stackscope.tui import theme

if TYPE_CHECKING:
    from textual.widget import Widget

    from stackscope.tui.lines import Line


def background_of(widget: Widget) -> Style:
    """The background of a widget: what has none of its own would be drawn on that of the terminal."""
    return Style(bgcolor=widget.rich_style.bgcolor)


def strip(line: Line, kind: theme.Kind, background: Style) -> Strip:
    """A line in the colours of a theme."""
    return Strip([Segment(text, background + theme.style(kind, style)) for text, style in line])
