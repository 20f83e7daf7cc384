"""A list of rows of which one is selected; only the rows in sight are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.geometry import Region
from textual.message import Message

from stackscope.tui.widgets.scrolled import Scrolled

if TYPE_CHECKING:
    from textual.events import Click


class RowList(Scrolled, inherit_bindings=False):
    """Rows that arrows, pages and clicks go through. Subclasses make the lines, by `line_at`."""

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "turn(-1)", show=False),
        Binding("pagedown", "turn(1)", show=False),
        Binding("home", "edge(-1)", show=False),
        Binding("end", "edge(1)", show=False),
    ]

    class Selected(Message):
        """Another row is selected."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.here = 0
        """Index of the selected row; without meaning where there are no rows."""
        self.n_rows = 0

    def set_rows(self, n: int, here: int) -> None:
        """Have so many rows, and that one selected."""
        self.n_rows = n
        self.here = max(0, min(here, n - 1))
        self.set_height(n)
        self._into_sight()

    @property
    def in_sight(self) -> range:
        """The rows that are drawn."""
        top = self.scroll_offset.y
        return range(top, min(top + self.size.height, self.n_rows))

    def select(self, row: int) -> None:
        """Select a row; beyond the ends, the last one there."""
        if self.n_rows == 0:
            return
        old, self.here = self.here, max(0, min(row, self.n_rows - 1))
        for changed in {old, self.here}:
            self.refresh(Region(0, changed - self.scroll_offset.y, self.size.width, 1))
        self._into_sight()
        self.post_message(self.Selected())

    def _into_sight(self) -> None:
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if self.here < top:
            self.scroll_to(y=self.here, animate=False, immediate=True)
        elif self.here >= top + height:
            self.scroll_to(y=self.here - height + 1, animate=False, immediate=True)

    def action_move(self, by: int) -> None:
        self.select(self.here + by)

    def action_turn(self, direction: int) -> None:
        self.select(self.here + direction * max(self.size.height - 1, 1))

    def action_edge(self, direction: int) -> None:
        self.select(0 if direction < 0 else self.n_rows - 1)

    def on_click(self, event: Click) -> None:
        self.select(event.y + self.scroll_offset.y)
