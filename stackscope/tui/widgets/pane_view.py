"""The widget of any pane: a border with the pane's title and headline in it, around the lines that the pane makes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from stackscope.tui.lines import Line, Span, fitted, width
from stackscope.tui.pane import Size
from stackscope.tui.widgets.painted import Painted

if TYPE_CHECKING:
    from stackscope.tui.look import Look
    from stackscope.tui.pane import Context, Pane


class _Frame(NamedTuple):
    """Characters of a border."""

    top_left: str
    top_right: str
    bottom_left: str
    bottom_right: str
    across: str
    down: str


_UNICODE: Final = _Frame("╭", "╮", "╰", "╯", "─", "│")
_ASCII: Final = _Frame("+", "+", "+", "+", "-", "|")


class PaneView(Painted, can_focus=True):
    """Shows a pane. It can be focused: its border then stands out."""

    DEFAULT_CSS: ClassVar[str] = "PaneView { height: 1fr; }"

    def __init__(self, pane: Pane) -> None:
        super().__init__(id=pane.id)
        self.pane: Final = pane
        self._drawn_from: Context | None = None

    def show(self, context: Context) -> None:
        """Draw the pane from this context; its size is taken from the widget."""
        self._drawn_from = context
        columns, rows = self.size
        if columns < 3 or rows < 3:
            return
        size = Size(columns - 2, rows - 2)
        content = self.pane.content(replace(context, size=size))
        style = "border.focus" if self.has_focus else "border"
        self.paint(*framed(self.pane.title, content.note, content.lines, size, style=style, look=context.look))

    def show_again(self) -> None:
        """Draw the same once more, as after a change of size or focus."""
        if self._drawn_from is not None:
            self.show(self._drawn_from)

    def on_resize(self) -> None:
        self.show_again()

    def on_focus(self) -> None:
        self.show_again()

    def on_blur(self) -> None:
        self.show_again()


def framed(
    title: str, note: Line, lines: tuple[Line, ...], size: Size, *, style: str = "border", look: Look
) -> tuple[Line, ...]:
    """A border around lines, with the title at the left of its upper side and the note at the right.

    `size` is the room inside.
    """
    edge = _ASCII if look.is_ascii else _UNICODE
    right: Line = (Span(" "), *note, Span(" "), Span(edge.across, style)) if note else ()
    left: Line = (Span(edge.across, style), Span(" "), Span(title, "title"), Span(" ")) if title else ()
    rule = size.width - width(left) - width(right)
    if rule < 0:
        left, right = fitted(left, size.width, look.ellipsis), ()
        rule = 0
    top = (Span(edge.top_left, style), *left, Span(edge.across * rule, style), *right, Span(edge.top_right, style))
    side = Span(edge.down, style)
    blank: Line = ()
    inside = [
        (side, *fitted(lines[row] if row < len(lines) else blank, size.width, look.ellipsis), side)
        for row in range(size.height)
    ]
    bottom = Span(edge.bottom_left + edge.across * size.width + edge.bottom_right, style)
    return (top, *inside, (bottom,))
