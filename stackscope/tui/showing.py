"""What of a frame is shown: all of it, or while the display is paused, how toggles and the recording go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from textual.app import App
    from textual.timer import Timer

    from stackscope.tui.feed import Feed, Frame

LOOK_S: Final = 1.5
"""How often the state of toggles and recording is shown anew while the picture stands still."""


def as_it_ended(frame: Frame) -> Frame:
    """The frame; of an engine that died before it could say so, or that could not start at all, as of a dead one."""
    if frame.status.failure is None or frame.snapshot.state == "dead":
        return frame
    return replace(frame, snapshot=msgspec.structs.replace(frame.snapshot, state="dead"))


class Pause:
    """Holds the picture still. The feed then makes a frame now and then, of which the picture is not shown."""

    def __init__(self, feed: Feed) -> None:
        self.is_on = False
        self._feed = feed
        self._timer: Timer | None = None

    def switch(self, app: App[None]) -> None:
        """Hold the picture, or let it go on."""
        self.is_on = self._feed.is_paused = not self.is_on
        if self.is_on:
            self._timer = app.set_interval(LOOK_S, self.look)
            return
        if self._timer is not None:
            self._timer.stop()
        self._feed.wake()

    def look(self) -> None:
        """Have one frame made."""
        self._feed.is_paused = False

    def held(self, frame: Frame, shown: Frame) -> Frame:
        """The frame with the picture that is shown, while that is held."""
        if not self.is_on:
            return frame
        self._feed.is_paused = True
        return replace(frame, snapshot=shown.snapshot, own_share=None)  # What stands still costs less.
