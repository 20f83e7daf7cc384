"""A widget of many lines that scrolls, drawing only those in sight."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView

from stackscope.tui.lines import fitted, plain
from stackscope.tui.widgets.paint import Palette, palette_of, strip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.strip import Strip

    from stackscope.tui import theme
    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.lines import Line
    from stackscope.tui.look import Look


class Scrolled(ScrollView, can_focus=True):
    """Lines that are made for the widget's width. Subclasses may make each when it is drawn, by `line_at`."""

    DEFAULT_CSS: ClassVar[str] = """
    Scrolled { height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    class Resized(Message):
        """It has another size: lines that were made for the old one no longer fit."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._palette: Palette | None = None
        self._lines: tuple[Line, ...] = ()
        self._kind: theme.Kind | None = None

    @property
    def look(self) -> Look:
        """The characters that this terminal has."""
        return cast("StackscopeApp", self.app).look

    @property
    def kind(self) -> theme.Kind:
        """The theme in force."""
        return cast("StackscopeApp", self.app).kind

    @property
    def room(self) -> int:
        """Cells that a line may take, whether or not there is a scrollbar."""
        return max(self.size.width - 1, 1)

    def paint(self, lines: Sequence[Line]) -> None:
        """Show these lines; only those that changed are drawn."""
        old, new, kind = self._lines, tuple(lines), self.kind
        if new == old and kind == self._kind:
            return
        self._lines = new
        if len(new) != len(old) or kind != self._kind:
            self._kind = kind
            self.set_height(len(new))
            return
        top = self.scroll_offset.y
        for row, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                self.refresh(Region(0, row - top, self.size.width, 1))

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def set_height(self, n_lines: int) -> None:
        """Have so many lines, and draw all of those in sight."""
        self.virtual_size = Size(1, n_lines)
        self.refresh()

    def line_at(self, row: int) -> Line:
        """The line of a row. A row that is not there is blank."""
        return self._lines[row] if 0 <= row < len(self._lines) else ()

    def shown(self) -> str:
        """The text in sight, for tests and for the clipboard."""
        top = self.scroll_offset.y
        return "\n".join(plain(self.line_at(row)).rstrip() for row in range(top, top + self.size.height))

    def render_line(self, y: int) -> Strip:
        """One line, as wide as the widget."""
        line = fitted(self.line_at(y + self.scroll_offset.y), self.size.width, self.look.ellipsis)
        if self._palette is None or self._palette.kind != self.kind:
            self._palette = palette_of(self, self.kind)
        return strip(line, self._palette, self.size.width)

    def notify_style_update(self) -> None:
        """The stylesheet gave it another background, perhaps."""
        self._palette = None
        super().notify_style_update()
