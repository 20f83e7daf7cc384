"""The keys that leave do so whatever stands over the screen."""

from __future__ import annotations

import pytest

from tests.tui.live_apps import Screen


@pytest.mark.parametrize("leave", ["ctrl+q", "ctrl+c"])
@pytest.mark.parametrize("opened", ["", "question_mark", "o", "f1", "m", "R", "ctrl+p"])
def test_it_can_be_left_from_everywhere(opened: str, leave: str) -> None:
    async def act(screen: Screen) -> None:
        if opened:
            depth = len(screen.app.screen_stack)
            await screen.press(opened)
            assert len(screen.app.screen_stack) == depth + 1
        assert not screen.app._is_end_wanted
        await screen.press(leave)
        assert screen.app._is_end_wanted

    Screen().run(act, (120, 40))
