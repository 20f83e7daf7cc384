"""The palette needs room: in a terminal of a few columns Textual cannot lay it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App
from textual.command import CommandPalette

from stackscope.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from stackscope.tui.screens.modal import LEAVING

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.geometry import Size


class Palette(CommandPalette):
    """Textual's, which the keys that leave the program leave as well."""

    BINDINGS: ClassVar[list[BindingType]] = LEAVING


class RoomyApp(App[None]):
    """An application whose palette opens only where a page of panes has room, and closes where it has none any more."""

    def action_command_palette(self) -> None:
        if _has_room(self.size) and not isinstance(self.screen, CommandPalette):
            self.push_screen(Palette(id="--command-palette"))

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Resize) and not _has_room(event.size) and isinstance(self.screen, CommandPalette):
            await self.pop_screen()  # Before it is laid out anew.
        await super().on_event(event)


def _has_room(size: Size) -> bool:
    """Whether a page has room; where not, the live screen says so."""
    return size.width >= LEAST_WIDTH and size.height >= LEAST_HEIGHT
