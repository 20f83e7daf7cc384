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
        self._frame: tuple[object, ...] = ()
        """What the border was made of, but for the note."""
        self._note: Line = ()
        self._inside: tuple[Line, ...] = ()
        """The pane's lines in it."""
        self._scrolled = 0

    def show(self, context: Context) -> None:
        """Draw the pane from this context; its size is taken from the widget."""
        self._drawn_from = context
        columns, rows = self.size
        if columns < 3 or rows < 3:
            return
        size, look = Size(columns - 2, rows - 2), context.look
        content = self.pane.content(replace(context, size=size, scrolled=self._scrolled))
        style = "border.focus" if self.has_focus else "border"
        frame, lines = (size, style, look), content.lines
        if frame != self._frame or len(lines) != len(self._inside):
            whole = list(framed(self.pane.title, content.note, lines, size, style=style, look=look))
        else:
            whole = list(self._lines)
            if content.note != self._note:
                whole[0] = _top(self.pane.title, content.note, size.width, style, look)
            for row, line in enumerate(lines):
                if line != self._inside[row]:
                    whole[row + 1] = _enclosed(line, size.width, style, look)
        self._frame, self._note, self._inside = frame, content.note, lines
        self.paint(*whole)

    def show_again(self) -> None:
        """Draw the same once more, as after a change of size or focus."""
        if self._drawn_from is not None:
            self.show(self._drawn_from)

    def scroll_rows(self, by: int | None) -> None:
        """Scroll a list by rows as far as there are any; `None`: back to its beginning."""
        context = self._drawn_from
        if context is None:
            return
        columns, rows = self.size
        most = self.pane.reach(replace(context, size=Size(columns - 2, rows - 2)))
        before = self._scrolled
        self._scrolled = 0 if by is None else max(0, min(before + by, most))
        if self._scrolled != before:
            self.show_again()

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
    edge = _edge(look)
    inside = [_enclosed(lines[row] if row < len(lines) else (), size.width, style, look) for row in range(size.height)]
    bottom = Span(edge.bottom_left + edge.across * size.width + edge.bottom_right, style)
    return (_top(title, note, size.width, style, look), *inside, (bottom,))


def _top(title: str, note: Line, room: int, style: str, look: Look) -> Line:
    edge = _edge(look)
    right: Line = (Span(" "), *note, Span(" "), Span(edge.across, style)) if note else ()
    left: Line = (Span(edge.across, style), Span(" "), Span(title, "title"), Span(" ")) if title else ()
    rule = room - width(left) - width(right)
    if rule < 0:
        left, right = fitted(left, room, look.ellipsis), ()
        rule = 0
    return (Span(edge.top_left, style), *left, Span(edge.across * rule, style), *right, Span(edge.top_right, style))


def _enclosed(line: Line, room: int, style: str, look: Look) -> Line:
    side = Span(_edge(look).down, style)
    return (side, *fitted(line, room, look.ellipsis), side)


def _edge(look: Look) -> _Frame:
    return _ASCII if look.is_ascii else _UNICODE
