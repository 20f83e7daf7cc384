"""What stands over the screen needs room: Textual cannot lay out the palette in a few columns, and a dialog that cannot
be read must not be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App
from textual.command import CommandPalette

from stackscope.tui.layout import is_too_small
from stackscope.tui.screens.modal import LEAVING, UNSEEN_KEYS, Modal

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.geometry import Size


class Palette(CommandPalette):
    """Textual's, which the keys that leave the program leave as well."""

    BINDINGS: ClassVar[list[BindingType]] = LEAVING


class RoomyApp(App[None]):
    """An application whose palette opens only where a page of panes has room, and closes where it has none any more,
    and whose dialogs do not take what is pressed while they have none."""

    def action_command_palette(self) -> None:
        if _has_room(self.size) and not isinstance(self.screen, CommandPalette):
            self.push_screen(Palette(id="--command-palette"))

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Resize) and not _has_room(event.size) and isinstance(self.screen, CommandPalette):
            await self.pop_screen()  # Before it is laid out anew.
        if isinstance(event, events.Key) and self._is_unseen(event.key):
            return
        await super().on_event(event)

    def _is_unseen(self, key: str) -> bool:
        """Whether a key would do something to what cannot be seen now."""
        return isinstance(self.screen, Modal) and not _has_room(self.size) and key not in UNSEEN_KEYS


def _has_room(size: Size) -> bool:
    """Whether a page has room; where not, the live screen says so."""
    return not is_too_small(*size)
