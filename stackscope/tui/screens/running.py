"""What all screens have in common that show what runs: they get each new frame, and the keys for toggles and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.screen import Screen

from stackscope.tui.bindings import KEYS, bindings, toggle_bindings
from stackscope.tui.control import SPEEDS
from stackscope.tui.layout import is_too_small
from stackscope.tui.widgets.painted import TooSmall

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.bindings import Scope
    from stackscope.tui.feed import Frame

_ONLY_LIVE: Final = ("mark", "record", "pause")
"""Keys that a recording refuses, and the one that the line of its position has already."""
_TEXTUALS: Final = "-textual-system"
"""Class of what Textual itself puts on every screen, toasts and tooltips: these appear and go by its own rules."""


class FrameScreen(Screen[None]):
    """A screen that is given every frame while it is shown, and the last one when it comes back."""

    here: ClassVar[str] = ""
    """Id of the key that leads to this screen, which its own footer does without."""
    is_composed = False
    """Its widgets are there. Frames come when they like, also before."""
    _focused_before: Widget | None = None
    """What had the focus before the terminal became too small."""

    def on_mount(self) -> None:
        self.is_composed = True
        self.call_after_refresh(self.show_again)

    @property
    def owner(self) -> StackscopeApp:
        """The application, by its own type."""
        return cast("StackscopeApp", self.app)

    def footer_keys(self, frame: Frame, *scopes: Scope) -> list[tuple[str, str]]:
        """(key, what it does) of these scopes, in their order; without what cannot be asked of a recording."""
        left_out = {self.here} if frame.status.playing is None else {self.here, *_ONLY_LIVE}
        keys = [key for scope in dict.fromkeys(scopes) for key in KEYS if key.scope == scope and key.is_shown]
        return [(self.owner.keys.shown(key.id), key.label) for key in keys if key.id not in left_out]

    def show(self, frame: Frame) -> None:
        """Draw what has changed."""
        raise NotImplementedError

    def has_no_room(self) -> bool:
        """Whether the terminal is too small, which then stands here instead of all else."""
        small = self.query_one(TooSmall)
        is_small = is_too_small(*self.size)
        if small.display is not is_small:
            if is_small:
                self._focused_before = self.focused
            for child in self.children:
                if not child.has_class(_TEXTUALS):
                    child.display = (child is small) is is_small
            if not is_small and self._focused_before is not None:
                self.set_focus(self._focused_before)
        if is_small:
            small.say(*self.size)
        return is_small

    def show_again(self) -> None:
        """Draw the last frame once more."""
        if self.is_composed:
            self.show(self.owner.frame)

    def on_screen_resume(self) -> None:
        self.show_again()


class RunningScreen(FrameScreen):
    """A frame screen with the keys of everything that can be asked of what runs."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("running", "replay"), *toggle_bindings()]

    def action_switch(self, toggle: str, direction: int) -> None:
        """Go to the next value of a toggle, or the one before."""
        self.owner.press_toggle(toggle, direction)

    def action_toggle_menu(self) -> None:
        """Show all toggles with all their values."""
        self.owner.open_toggles()

    def on_toggle_bar_opened(self) -> None:
        """The bar of toggles was clicked."""
        self.owner.open_toggles()

    def action_mark(self) -> None:
        """Ask for a name, and put a mark with it."""
        self.owner.ask_mark()

    def action_record(self) -> None:
        """Start a recording, or end it."""
        self.owner.toggle_recording()

    def action_pause(self) -> None:
        """Hold the display still, or the recording that is played."""
        self.owner.toggle_pause()

    def action_play_step(self, n: int) -> None:
        """Play single steps, back where `n` is negative."""
        if (playback := self.owner.playback) is not None:
            playback.step(n)

    def action_play_speed(self, direction: int) -> None:
        """Play faster or slower."""
        if (playback := self.owner.playback) is not None:
            speed = playback.speed
            place = min(range(len(SPEEDS)), key=lambda n: abs(SPEEDS[n] - speed))
            playback.set_speed(SPEEDS[min(max(place + direction, 0), len(SPEEDS) - 1)])

    def action_play_seek(self, seconds: int) -> None:
        """Go on or back by seconds."""
        if (playback := self.owner.playback) is not None:
            playback.seek(playback.position_ns + seconds * 1_000_000_000)

    def action_play_start(self) -> None:
        """Go to the beginning."""
        if (playback := self.owner.playback) is not None:
            playback.seek(0)

    def action_play_end(self) -> None:
        """Go to the end, as far as it has got."""
        if (playback := self.owner.playback) is not None:
            playback.seek(playback.end_ns)

    def action_restart(self) -> None:
        """Start the engine anew, once confirmed."""
        self.owner.ask_restart()
