"""The bar of toggles: a chip for each, repainted only when a state changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.message import Message

from stackscope.tui.bindings import Keymap
from stackscope.tui.chips import chips, laid_out
from stackscope.tui.widgets.painted import Painted

if TYPE_CHECKING:
    from stackscope.tui.situation import Situation


class ToggleBar(Painted):
    """Chips on as many lines as the widget has; a click asks for the menu of all toggles."""

    DEFAULT_CSS: ClassVar[str] = "ToggleBar { height: 1; }"

    class Opened(Message):
        """All toggles are wanted."""

    def __init__(self, keymap: Keymap | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keymap = keymap or Keymap()
        self._situation: Situation | None = None

    def show(self, situation: Situation) -> None:
        """Show the toggles of a situation."""
        if situation is not self._situation:
            self._situation = situation
            self.show_again()

    def show_again(self) -> None:
        """Lay out anew, as after a change of size or theme."""
        width, height = self.size
        if self._situation is None or width < 1 or height < 1:
            return
        look = self.look
        found = chips(self._situation, self._keymap, look)
        self.paint(*laid_out(found, width, height, self._keymap, look))

    def on_resize(self) -> None:
        self.show_again()

    def on_click(self) -> None:
        self.post_message(self.Opened())
