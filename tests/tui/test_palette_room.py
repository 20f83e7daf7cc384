"""The palette in a terminal that is, or becomes, too small for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.command import CommandPalette

from stackscope.tui.app import StackscopeApp
from stackscope.tui.player import Player

STORY = Path(__file__).parents[2] / "profiles" / "story.jsonl.zst"
TINY = (4, 4)


def test_the_palette_opens_only_where_there_is_room_and_closes_where_there_is_none_any_more() -> None:
    async def used() -> None:
        player = Player(STORY)
        app = StackscopeApp(player, player, playback=player)
        player.wake = app.feed.wake
        try:
            async with app.run_test(size=TINY) as pilot:
                await pilot.press("colon")
                await pilot.pause()
                assert not isinstance(app.screen, CommandPalette)
                await pilot.resize_terminal(80, 24)
                await pilot.press("colon")
                await pilot.pause()
                assert isinstance(app.screen, CommandPalette)
                await pilot.resize_terminal(*TINY)
                await pilot.pause()
                assert not isinstance(app.screen, CommandPalette)
        finally:
            app.end_feed()

    asyncio.run(used())
