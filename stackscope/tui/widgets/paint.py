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


class Palette(dict[str, Style]):
    """Styles by their names, each made when it is first asked for."""

    def __init__(self, kind: theme.Kind, background: Style) -> None:
        super().__init__()
        self.kind = kind
        self.background = background

    def __missing__(self, name: str) -> Style:
        style = self[name] = self.background + theme.style(self.kind, name)
        return style


def palette_of(widget: Widget, kind: theme.Kind) -> Palette:
    """The styles on a widget's background: what has none of its own would be drawn on that of the terminal."""
    return Palette(kind, background_of(widget))


def background_of(widget: Widget) -> Style:
    """The background of a widget. Costs as much as drawing a few lines."""
    return Style(bgcolor=widget.rich_style.bgcolor)


def strip(line: Line, palette: Palette, room: int) -> Strip:
    """A line of `room` cells in the colours of a theme."""
    drawn = Strip([Segment(text, palette[style]) for text, style in line])
    return drawn if drawn.cell_length == room else drawn.adjust_cell_length(room, palette.background)
