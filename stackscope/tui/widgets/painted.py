"""A widget that shows lines made elsewhere, and has only those drawn again that have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from stackscope.tui.compose import wrapped
from stackscope.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from stackscope.tui.lines import Span, fitted, plain
from stackscope.tui.widgets.paint import Palette, palette_of, strip

if TYPE_CHECKING:
    from stackscope.tui import theme
    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.lines import Line
    from stackscope.tui.look import Look


class Painted(Widget):
    """Lines of styled text, each as wide as the widget.

    It has no border, padding or scrollbar of Textual's, and no colours but the palette's: so it can do without the
    machinery for these, which takes longer than all the rest.
    """

    DEFAULT_CSS: ClassVar[str] = "Painted { height: 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._strips: list[Strip] = []
        self._room = 0
        """Cells of each strip."""
        self._palette: Palette | None = None
        """`None`: not known, or no longer right."""

    @property
    def look(self) -> Look:
        """The characters that this terminal has."""
        return cast("StackscopeApp", self.app).look

    @property
    def kind(self) -> theme.Kind:
        """The theme in force."""
        return cast("StackscopeApp", self.app).kind

    def paint(self, *lines: Line) -> None:
        """Show these lines from now on, the first at the top."""
        old, palette, room = self._lines, self._palette, self.size.width
        if palette is None or palette.kind != self.kind or len(lines) != len(old) or room != self._room:
            palette = self._palette = palette_of(self, self.kind)
            self._strips = [strip(line, palette, room) for line in lines]
            self._lines, self._room = lines, room
            self.refresh()
            return
        rows = [row for row, line in enumerate(lines) if line is not old[row] and line != old[row]]
        if rows:
            for row in rows:
                self._strips[row] = strip(lines[row], palette, room)
            self._lines = lines
            self.refresh(*[Region(0, first, room, n) for first, n in _runs(rows)])

    @property
    def lines(self) -> tuple[Line, ...]:
        """What is shown."""
        return self._lines

    def notify_style_update(self) -> None:
        """The stylesheet gave it another background, perhaps."""
        self._palette = None
        super().notify_style_update()

    def shown(self) -> str:
        """What is shown, without styles."""
        return "\n".join(plain(line) for line in self._lines)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The part of it that Textual asks for."""
        x, y, width, height = crop
        palette = self._palette
        if palette is None or palette.kind != self.kind:  # Nobody may paint again for long: these lines still stand.
            palette = self._palette = palette_of(self, self.kind)
            self._strips = [strip(line, palette, self._room) for line in self._lines]
        strips = self._strips[y : y + height]
        if x or width != self._room:
            strips = [strip.adjust_cell_length(x + width).crop(x, x + width) for strip in strips]
        if len(strips) < height:
            strips += [Strip.blank(width, palette.background)] * (height - len(strips))
        return strips


class Bar(Painted):
    """A single line from edge to edge."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._line: Line | None = None
        """As it was given. `None`: nothing was."""

    def show(self, line: Line) -> None:
        """Show a line, cut or filled up to the width."""
        self._line = line
        if self.size.width > 0:
            self.paint(fitted(line, self.size.width, self.look.ellipsis))

    def on_resize(self) -> None:
        # The line may have come before the size that it was made for: nobody draws again while nothing moves.
        if self._line is not None:
            self.show(self._line)


class TooSmall(Painted):
    """All there is to say in a terminal that is too small for the screen."""

    DEFAULT_CSS: ClassVar[str] = "TooSmall { height: 1fr; }"

    def say(self, width: int, height: int) -> None:
        """Say it, as far as there is room for that."""
        whole: tuple[str, ...] = (
            "This terminal is too small.",
            f"It has {width} columns and {height} rows;",
            f"{LEAST_WIDTH} and {LEAST_HEIGHT} are needed.",
        )
        if height < len(whole) or width < max(map(len, whole)):
            brief = f"Too small: {width} by {height}; {LEAST_WIDTH} by {LEAST_HEIGHT} are needed."
            whole = tuple(plain(line) for line in wrapped(brief, width))[: max(height, 1)]
        above = max((height - len(whole)) // 2, 0)
        self.paint(*([()] * above), *[(Span(line.center(width)[:width]),) for line in whole])

    def on_resize(self) -> None:
        # It was told before it had a size, perhaps.
        self.say(*self.screen.size)


def _runs(rows: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, length) of runs without gaps."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs
