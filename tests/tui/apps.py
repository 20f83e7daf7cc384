"""A small application to put single screens and widgets into."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.app import App

from stackscope.tui.bindings import Keymap
from stackscope.tui.feed import Frame
from stackscope.tui.look import UNICODE, Look
from stackscope.tui.source import Status
from stackscope.tui.styles import CSS, textual_theme
from stackscope.tui.toggling import Toggling
from tests.tui import sessions
from tests.tui.controls import FakeControl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.pilot import Pilot
    from textual.screen import Screen

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.records import StepRecord
    from stackscope.tui import theme
    from stackscope.tui.control import Control


@dataclass
class FakeFeed:
    """Steps that are kept, and no thread."""

    steps: tuple[StepRecord, ...] = ()

    def wake(self) -> None:
        """Nothing sleeps here."""


class TinyApp(App[None]):
    """Shows one screen with what the real application has to offer it, and notes what is said."""

    ENABLE_COMMAND_PALETTE = False
    CSS = CSS

    def __init__(
        self, screen: Callable[[], Screen[Any]], snapshot: Snapshot | None = None, control: Control | None = None
    ) -> None:
        super().__init__()
        self.look: Look = UNICODE
        self.kind: theme.Kind = "dark"
        self.keys = Keymap()
        self.make_screen = screen
        self.control = control or FakeControl()
        self.frame = Frame(snapshot=snapshot or sessions.running(), status=Status())
        self.toggling = Toggling(self.control, cores=2)
        self.toggling.see(self.frame.snapshot)
        self.feed = FakeFeed()
        self.is_paused = False
        self.told: list[str] = []

    def on_mount(self) -> None:
        self.register_theme(textual_theme(self.kind))
        self.theme = f"stackscope-{self.kind}"
        self.set_class(self.look.is_ascii, "-ascii")
        self.push_screen(self.make_screen())

    def tell(self, text: str, *, is_warning: bool = False) -> None:
        """Note a sentence."""
        self.told.append(f"! {text}" if is_warning else text)

    def press_toggle(self, toggle: str, direction: int) -> None:
        """Note a toggle."""
        self.told.append(f"{toggle} {direction}")

    def take(self, frame: Frame) -> None:
        """Show another frame."""
        self.frame = frame
        self.toggling.see(frame.snapshot)
        self.screen.show(frame)  # type: ignore[attr-defined]


def driven(app: TinyApp, act: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> TinyApp:
    """Run an application without a terminal, and do something with it."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await act(pilot)

    asyncio.run(run())
    return app


def text_of(app: App[Any]) -> str:
    """What is on the screen, line by line."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()[:height]
    return "\n".join("".join(segment.text for segment in strip)[:width].rstrip() for strip in lines)
