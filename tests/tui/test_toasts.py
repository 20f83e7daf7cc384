"""Messages: where they cover least."""

from __future__ import annotations

from tests.tui.live_apps import Screen


def test_a_message_covers_toggles_and_neither_the_verdict_nor_what_is_measured() -> None:
    async def work(screen: Screen) -> None:
        screen.app.notify("It needs a rebuild.", timeout=60, markup=False)
        await screen.until(lambda: "It needs a rebuild." in screen.text)
        found = next(n for n, line in enumerate(screen.lines) if "It needs a rebuild." in line)
        assert found == 7

    Screen().run(work, (80, 24))
