"""The live screen, driven by a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.tui.screens.live import LiveScreen
from tests.tui.live_apps import Screen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def on(size: tuple[int, int] = (120, 40), **options: object) -> Callable[[Callable[[Screen], Awaitable[None]]], Screen]:
    """Run what follows on a screen of that size."""

    def run(act: Callable[[Screen], Awaitable[None]]) -> Screen:
        return Screen(**options).run(act, size)  # type: ignore[arg-type]

    return run


def live(screen: Screen) -> LiveScreen:
    found = screen.app.screen
    assert isinstance(found, LiveScreen)
    return found
