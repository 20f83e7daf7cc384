"""A widget that shows lines made elsewhere, and has only those drawn again that have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from stackscope.tui.lines import fitted, plain
from stackscope.tui.widgets.paint import background_of, strip

if TYPE_CHECKING:
    from stackscope.tui import theme
    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.lines import Line
    from stackscope.tui.look import Look


class Painted(Widget):
    """Lines of styled text, each as wide as the widget."""

    DEFAULT_CSS: ClassVar[str] = "Painted { height: 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._strips: list[Strip] = []
        self._kind: theme.Kind | None = None

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
        old, kind = self._lines, self.kind
        if lines == old and kind == self._kind:
            return
        background = background_of(self)
        if kind != self._kind or len(lines) != len(old):
            self._strips = [strip(line, kind, background) for line in lines]
            changed = [Region(0, 0, *self.size)]
        else:
            rows = [row for row, line in enumerate(lines) if line != old[row]]
            for row in rows:
                self._strips[row] = strip(lines[row], kind, background)
            changed = [Region(0, first, self.size.width, n) for first, n in _runs(rows)]
        self._lines, self._kind = lines, kind
        self.refresh(*changed)

    def shown(self) -> str:
        """What is shown, without styles."""
        return "\n".join(plain(line) for line in self._lines)

    def render_line(self, y: int) -> Strip:
        """One line, as wide as the widget."""
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width, background_of(self))


class Bar(Painted):
    """A single line from edge to edge."""

    def show(self, line: Line) -> None:
        """Show a line, cut or filled up to the width."""
        if self.size.width > 0:
            self.paint(fitted(line, self.size.width, self.look.ellipsis))


def _runs(rows: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, length) of runs without gaps."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs
