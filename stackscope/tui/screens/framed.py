"""A screen about what runs, with the same head and foot as the live one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope.tui import bars
from stackscope.tui.screens.running import RunningScreen
from stackscope.tui.widgets.painted import Bar, TooSmall
from stackscope.tui.widgets.toggle_bar import ToggleBar

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from stackscope.tui.bindings import Scope
    from stackscope.tui.feed import Frame
    from stackscope.tui.pane import PaneHelp

_TALL = 20
"""Rows from which there is room for the toggles."""


class FramedScreen(RunningScreen):
    """Head, toggles, whatever the screen is about, transport of a recording, keys."""

    scope: ClassVar[Scope]
    """Whose keys stand first in the footer."""
    help_title: ClassVar[str]
    help: ClassVar[PaneHelp]
    """What is on it, for F1."""

    def compose(self) -> ComposeResult:
        yield Bar(id="header")
        yield ToggleBar(self.owner.keys, id="toggles")
        yield from self.body()
        yield Bar(id="transport")
        yield Bar(id="footer")
        small = TooSmall(id="small")
        small.display = False
        yield small

    def body(self) -> ComposeResult:
        """What stands between head and foot."""
        raise NotImplementedError

    def draw(self, frame: Frame) -> None:
        """Draw what stands there."""
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Draw what has changed."""
        if not self.size.width or self.has_no_room():
            return
        look, width = self.owner.look, self.size.width
        status = frame.status
        self.bar("header").show(bars.header(frame.snapshot, status, width, look, is_paused=self.owner.is_paused))
        toggles = self.query_one("#toggles", ToggleBar)
        toggles.display = self.size.height >= _TALL
        toggles.show(self.owner.toggling.situation)
        self.bar("transport").display = status.playing is not None
        if status.playing is not None:
            self.bar("transport").show(
                bars.transport(status.playing, width, look, keys=bars.transport_keys(self.owner.keys))
            )
        # The last keys are shown wherever there is room for any, so they are those that help or lead out.
        keys = self.footer_keys(frame, self.scope, "running", "everywhere")
        self.bar("footer").show(bars.footer(keys, width, look, own_share=frame.own_share))
        self.draw(frame)

    def action_pane_help(self) -> None:
        """Say what the numbers mean."""
        from stackscope.tui.screens.help import PaneHelpScreen

        self.app.push_screen(PaneHelpScreen(self.help_title, self.help))

    def bar(self, id: str) -> Bar:
        """One of its single lines."""
        return self.query_one(f"#{id}", Bar)

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_again)

    def on_scrolled_resized(self) -> None:
        self.show_again()
