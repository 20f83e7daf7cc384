"""The live screen beside its engine: while it is paused, when the engine could not start, and when it has died."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.errors import EngineDiedError, ModelFileError
from stackscope.tui.screens.dialogs import EngineEnded
from stackscope.tui.screens.live import LiveScreen
from stackscope.tui.source import Status
from tests.tui import sessions
from tests.tui.live_screens import on

if TYPE_CHECKING:
    from tests.tui.live_apps import Screen

RECORDING = Path("/recordings/a.jsonl.zst")


def test_while_paused_the_display_stands_still_and_says_so() -> None:
    @on()
    async def _(screen: Screen) -> None:
        await screen.press("space")
        assert "paused" in screen.lines[0]
        assert screen.app.feed.is_paused
        await screen.press("space")
        assert "paused" not in screen.lines[0]
        assert not screen.app.feed.is_paused


def test_while_paused_what_has_to_be_said_is_said_and_nothing_else_changes() -> None:
    @on()
    async def _(screen: Screen) -> None:
        await screen.press("space")
        before = screen.lines[1:]
        screen.view.still = sessions.baseline()
        screen.app.feed.wake()
        await screen.press("b")
        assert "b slots 4→8" in screen.text
        screen.source.has_news = True
        await screen.show(status=Status(notices=("Job 3 was shortened.",)))
        await screen.until(lambda: "Job 3 was shortened." in screen.text)
        assert screen.lines[12:30] == before[11:29]
        died = EngineDiedError("The engine process aborted.")
        await screen.show(status=Status(failure=died, is_over=True))
        assert isinstance(screen.app.screen, EngineEnded)


def test_while_paused_toggles_and_the_recording_go_on() -> None:
    @on(snapshot=sessions.running(), status=Status(recording=RECORDING, recorded_ns=60_000_000_000))
    async def _(screen: Screen) -> None:
        screen.source.is_moving = True
        before = screen.view.still
        assert before.config is not None
        await screen.press("space", "b")
        assert "slots 4→8" in screen.text
        config = msgspec.structs.replace(before.config, slots=8)
        screen.view.still = msgspec.structs.replace(before, config=config, n_tokens=before.n_tokens + 1)
        screen.source.state = Status(recording=RECORDING, recorded_ns=61_000_000_000)
        await screen.until(lambda: "slots 8 " in screen.text and "rec 1:01" in screen.lines[0])
        await screen.press("y")  # Drawn in another theme, it is the same.
        assert "slots 8 " in screen.text
        assert screen.app.frame.snapshot is before

    @on(snapshot=sessions.running(), status=Status(recording=RECORDING, recorded_ns=60_000_000_000))
    async def _(screen: Screen) -> None:
        screen.source.is_moving = True
        await screen.press("space")
        screen.source.state = Status(is_over=True)
        await screen.until(lambda: "finished" in screen.lines[0])


def test_an_engine_that_could_not_start_looks_dead_and_says_why() -> None:
    missing = ModelFileError("There is no model nosuch.gguf.", remedy="Check the path.")

    @on(snapshot=sessions.starting(), status=Status(failure=missing, is_over=True))
    async def _(screen: Screen) -> None:
        await screen.press("escape")
        assert "There is no model nosuch.gguf. Check the path." in screen.text
        assert "The engine could not start." in screen.text
        assert "tarting" not in screen.text
        await screen.press("s")
        await screen.until(lambda: "The engine has ended: R starts it again." in screen.text)
        assert not any("speculation" in asked for asked in screen.control.asked)


@pytest.mark.parametrize("key", ["m", "r", "s", "b"])
def test_what_a_dead_engine_cannot_do_is_said_at_once_with_the_remedy(key: str) -> None:
    died = EngineDiedError("The engine process aborted.")

    @on(snapshot=sessions.dead(), status=Status(failure=died, is_over=True))
    async def _(screen: Screen) -> None:
        await screen.press("escape")
        asked = list(screen.control.asked)
        await screen.press(key)
        await screen.until(lambda: "The engine has ended: R starts it again." in screen.text)
        assert isinstance(screen.app.screen, LiveScreen)
        assert screen.control.asked == asked


def test_the_death_of_the_engine_shows_its_last_words_and_can_be_undone() -> None:
    died = EngineDiedError("The engine process aborted.", remedy="Report this.", last_lines=("GGML_ASSERT(x) failed",))

    @on()
    async def _(screen: Screen) -> None:
        await screen.show(sessions.dead(), Status(failure=died, is_over=True, recorded=RECORDING))
        assert isinstance(screen.app.screen, EngineEnded)
        for text in (died.message, died.remedy, died.last_lines[0], str(RECORDING)):
            assert text is not None
            assert text in screen.text
        await screen.show()
        assert len(screen.app.screen_stack) == 2
        await screen.press("r")
        assert screen.control.asked[-1] == {"restart": True}
        await screen.show(sessions.running(), Status())
        assert isinstance(screen.app.screen, LiveScreen)
        again = EngineDiedError("It died again.")
        await screen.show(sessions.dead(), Status(failure=again, is_over=True))
        assert "It died again." in screen.text
        await screen.press("escape")
        assert "the engine has ended" in screen.lines[0]


def test_an_engine_that_cannot_start_is_told_by_its_sentence() -> None:
    failure = ModelFileError("There is no file x.gguf.", remedy="Check the spelling.")

    @on(snapshot=sessions.starting(), status=Status(failure=failure, is_over=True))
    async def _(screen: Screen) -> None:
        assert "The engine could not start" in screen.text
        assert "Check the spelling." in screen.text
        await screen.press("q")
        await screen.until(lambda: not screen.app.is_running)
