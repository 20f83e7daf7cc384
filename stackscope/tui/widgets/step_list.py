"""A list of steps that follows the newest until it is scrolled; only the lines in sight are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.geometry import Region
from textual.message import Message

from stackscope.records import StepRecord
from stackscope.tui.steps import Divider, Waterfall, row_line
from stackscope.tui.widgets.scrolled import Scrolled

if TYPE_CHECKING:
    from textual.events import Click

    from stackscope.tui.lines import Line


class StepList(Scrolled, inherit_bindings=False):
    """Rows of a waterfall, the newest at the bottom, one of them selected."""

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "turn(-1)", show=False),
        Binding("pagedown", "turn(1)", show=False),
        Binding("home", "oldest", show=False),
    ]

    class Selected(Message):
        """Another step is selected, or the list has begun or ceased to follow."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.waterfall = Waterfall()
        self.is_following = True
        """The newest step is selected, and new ones move the list on."""
        self._here = -1
        """Index of the selected row. -1: there is none."""

    @property
    def selected(self) -> StepRecord | None:
        """The selected step. `None`: there is none."""
        row = self.waterfall.rows[self._here] if 0 <= self._here < len(self.waterfall.rows) else None
        return row if isinstance(row, StepRecord) else None

    def show(self, waterfall: Waterfall) -> None:
        """Show these rows. Where the list does not follow, the selected step stays where it is in sight."""
        before = self.selected
        offset = self._here - self.scroll_offset.y
        if waterfall.rows == self.waterfall.rows and waterfall.scale_ns == self.waterfall.scale_ns:
            return
        self.waterfall = waterfall
        n = len(waterfall.rows)
        if self.is_following or before is None:
            self._here = n - 1
            self.set_height(n)
            self._to_end()
        else:
            self._here = self._index_of(before.n)
            self.set_height(n)
            self.scroll_to(y=max(self._here - offset, 0), animate=False, immediate=True)
        if self.selected is not before:
            self.post_message(self.Selected())

    def _index_of(self, n: int) -> int:
        """Row of the step with that number, or of the first one after it."""
        rows = self.waterfall.rows
        found = (index for index, row in enumerate(rows) if isinstance(row, StepRecord) and row.n >= n)
        return next(found, len(rows) - 1)

    def line_at(self, row: int) -> Line:
        rows = self.waterfall.rows
        if not 0 <= row < len(rows):
            return ()
        return row_line(rows[row], self.room, self.waterfall.scale_ns, self.look, is_selected=row == self._here)

    def select(self, index: int, direction: int) -> None:
        """Select the step at a row, or the nearest one beyond it in a direction."""
        rows = self.waterfall.rows
        while 0 <= index < len(rows) and isinstance(rows[index], Divider):
            index += direction
        if not 0 <= index < len(rows):
            return
        old, self._here = self._here, index
        self.is_following = index == len(rows) - 1
        top = self.scroll_offset.y
        for row in (old, index):
            self.refresh(Region(0, row - top, self.size.width, 1))
        height = max(self.size.height, 1)
        if index < top:
            self.scroll_to(y=index, animate=False, immediate=True)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False, immediate=True)
        self.post_message(self.Selected())

    def action_move(self, by: int) -> None:
        self.select(self._here + by, by)

    def action_turn(self, direction: int) -> None:
        """Move by a page, as far as there are rows."""
        rows = len(self.waterfall.rows)
        there = max(0, min(self._here + direction * max(self.size.height - 1, 1), rows - 1))
        self.select(there, direction)
        if self._here != there and direction > 0 and there == rows - 1:
            self.select(there, -direction)

    def action_oldest(self) -> None:
        self.select(0, 1)

    def follow(self) -> None:
        """Go to the newest step and stay there."""
        self.select(len(self.waterfall.rows) - 1, -1)
        self.is_following = True
        self._to_end()

    def to_change(self, direction: int) -> bool:
        """Select the step after the next (or last) change; False: there is none that way."""
        rows = self.waterfall.rows
        places = [index + 1 for index, row in enumerate(rows) if isinstance(row, Divider) and row.is_change]
        ahead = [index for index in places if (index > self._here if direction > 0 else index < self._here)]
        if not ahead:
            return False
        self.select(ahead[0] if direction > 0 else ahead[-1], 1)
        return True

    def on_resize(self) -> None:
        if self.is_following:
            self.call_after_refresh(self._to_end)

    def _to_end(self) -> None:
        self.scroll_end(animate=False, immediate=True)

    def on_click(self, event: Click) -> None:
        self.select(event.y + self.scroll_offset.y, 1)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        # Scrolled away by the mouse: the list stands still, so that it can be read.
        if self.is_following and new_value < self.max_scroll_y and new_value < old_value:
            self.is_following = False
            self.post_message(self.Selected())
