"""Escape on the live screen: nothing is focused any more, and whatever was scrolled shows its beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope.analysis.live.snapshot import Event
from stackscope.tui.screens.live import LiveScreen
from stackscope.tui.widgets.pane_view import PaneView
from tests.tui import sessions
from tests.tui.live_apps import Screen

if TYPE_CHECKING:
    from textual.widget import Widget


def focused(screen: Screen) -> Widget | None:
    shown = screen.app.screen
    assert isinstance(shown, LiveScreen)
    return shown.focused


def is_on_events(screen: Screen) -> bool:
    view = focused(screen)
    return isinstance(view, PaneView) and view.pane.title == "Events"


def test_events_that_were_scrolled_come_back_though_another_pane_is_focused_by_then() -> None:
    events = tuple(Event(at_ns=k * 10**9, kind="mark", label=f"number {k}") for k in range(40, 0, -1))

    async def look(screen: Screen) -> None:
        while not is_on_events(screen):
            await screen.press("tab")
        await screen.press(*["down"] * 5)
        await screen.until(lambda: "number 40 " not in screen.text)
        await screen.press("tab")
        assert not is_on_events(screen)
        assert "number 40 " not in screen.text
        await screen.press("escape")
        await screen.until(lambda: "number 40 " in screen.text)
        assert focused(screen) is None

    Screen(msgspec.structs.replace(sessions.running(), events=events)).run(look, (200, 60))
