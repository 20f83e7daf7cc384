"""Another theme while the screen is open: everything in sight is drawn in it, whatever has not changed since."""

from __future__ import annotations

import pytest
from textual.geometry import Region

from stackscope.tui.widgets.paint import palette_of, strip
from stackscope.tui.widgets.painted import Painted
from tests.tui.live_apps import Screen


def stale(screen: Screen) -> list[str]:
    """Widgets that draw a line otherwise than in the colours of the theme in force."""
    found = []
    for widget in screen.app.screen.query(Painted):
        if not widget.display or not widget.size:
            continue
        drawn = widget.render_lines(Region(0, 0, *widget.size))
        palette = palette_of(widget, widget.kind)
        expected = [strip(line, palette, widget.size.width) for line in widget.lines]
        if drawn[: len(expected)] != expected:
            found.append(type(widget).__name__)
    return found


@pytest.mark.parametrize("screen_key", ["1", "2", "3", "4"])
def test_another_theme_is_in_force_everywhere_at_once(screen_key: str) -> None:
    async def act(screen: Screen) -> None:
        await screen.press(screen_key)
        for _n in range(3):
            await screen.press("y")
            assert stale(screen) == []

    Screen(kinds=("dark", "light", "ansi")).run(act, (120, 40))
