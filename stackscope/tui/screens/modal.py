"""What stands over the screen: whatever it is, the keys that leave every program leave this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from stackscope.tui.layout import is_too_small

if TYPE_CHECKING:
    from textual.widget import Widget

Result = TypeVar("Result")

LEAVING: list[BindingType] = [Binding("ctrl+q", "app.quit", show=False), Binding("ctrl+c", "app.help_quit", show=False)]
"""Textual keeps the keys of the app from what is modal."""
UNSEEN_KEYS: Final = frozenset({"escape", "ctrl+q", "ctrl+c", "ctrl+z"})
"""All that can be pressed while it cannot be seen: a question must not be answered then."""


class Modal(ModalScreen[Result]):
    """A dialog, a menu, or something to be read. In a terminal that is too small, it gives way to the notice below it.

    It is not closed by that: what was asked, typed or said would be lost.
    """

    DEFAULT_CSS: ClassVar[str] = "Modal.-unseen > Vertical { display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = LEAVING
    is_unseen = False
    _focused_before: Widget | None = None
    """What had the focus before the terminal became too small."""

    def on_mount(self) -> None:
        self._give_way()

    @on(events.Resize)
    def _give_way(self) -> None:
        is_unseen = is_too_small(*self.app.size)
        if is_unseen is self.is_unseen:
            return
        self.is_unseen = is_unseen
        if is_unseen:
            self._focused_before = self.focused
        self.set_class(is_unseen, "-unseen")
        if not is_unseen and self._focused_before is not None:
            self.set_focus(self._focused_before)
