"""A terminal that becomes too small, and large again: nothing is lost by it, and nothing is answered unseen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from stackscope.tui.screens.dialogs import MarkDialog, Question
from stackscope.tui.screens.modal import Modal
from tests.tui.live_apps import Screen

LARGE = (80, 24)
SMALL = [(20, 6), (59, 24)]


async def resized(screen: Screen, size: tuple[int, int]) -> None:
    await screen.pilot.resize_terminal(*size)
    await screen.pilot.pause()


@pytest.mark.parametrize("mode", ["live", "steps", "explain", "sessions"])
@pytest.mark.parametrize("size", SMALL)
def test_every_screen_comes_back_whole(mode: str, size: tuple[int, int]) -> None:
    async def act(screen: Screen) -> None:
        screen.app.action_show(mode)
        await screen.until(lambda: "? help  q quit" in screen.lines[-1] and "Looking" not in screen.text)
        await screen.show()
        before = screen.text
        await resized(screen, size)
        assert "are needed" in screen.text
        await resized(screen, LARGE)
        await screen.until(lambda: screen.text == before)

    Screen().run(act, LARGE)


@pytest.mark.parametrize("size", SMALL)
def test_a_question_is_not_answered_unseen(size: tuple[int, int]) -> None:
    answers: list[bool | None] = []

    async def act(screen: Screen) -> None:
        for leave, expected in (("y", True), ("escape", False)):
            screen.app.push_screen(Question("Delete it?", "a.jsonl.zst", yes="delete it", no="keep it"), answers.append)
            await screen.until(lambda: "Delete it?" in screen.text)
            await resized(screen, size)
            assert "are needed" in screen.text
            assert "elete" not in screen.text
            await screen.press("y", "n", "q", "enter")
            assert not answers
            if leave == "escape":
                await screen.press("escape")
            await resized(screen, LARGE)
            if leave == "y":
                assert "Delete it?" in screen.text
                await screen.press("y")
            assert answers == [expected]
            answers.clear()

    Screen().run(act, LARGE)


@pytest.mark.parametrize("key", ["m", "o", "question_mark", "f1", "R"])
def test_what_stands_over_the_screen_gives_way_to_the_notice(key: str) -> None:
    async def act(screen: Screen) -> None:
        await screen.press(key)
        opened = screen.app.screen
        assert isinstance(opened, Modal)
        before = screen.text
        await resized(screen, (40, 10))
        assert [line.strip() for line in screen.lines if line.strip()] == [
            "This terminal is too small.",
            "It has 40 columns and 10 rows;",
            "60 and 16 are needed.",
        ]
        await resized(screen, LARGE)
        assert screen.app.screen is opened
        await screen.until(lambda: screen.text == before)
        await resized(screen, (40, 10))
        await screen.press("escape")
        assert screen.app.screen is not opened

    Screen().run(act, LARGE)


def test_the_name_of_a_mark_is_kept_and_goes_on() -> None:
    async def act(screen: Screen) -> None:
        await screen.press("m", "a")
        dialog = screen.app.screen
        assert isinstance(dialog, MarkDialog)
        await resized(screen, (20, 6))
        await screen.press("x", "enter")
        await resized(screen, LARGE)
        await screen.press("b")
        assert dialog.query_one(Input).value == "ab"

    Screen().run(act, LARGE)


@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
def test_a_question_and_its_keys_are_seen_whatever_its_details(size: tuple[int, int]) -> None:
    path = str(Path("/home/somebody", *(f"a-rather-long-name-of-a-folder-{n}" for n in range(24)), "a.jsonl.zst"))

    async def act(screen: Screen) -> None:
        question = Question("Delete it?", path, "It cannot be brought back.", yes="delete it", no="keep it")
        screen.app.push_screen(question)
        await screen.pilot.pause()
        for text in ("Delete it?", "/home/somebody", "a.jsonl.zst", "brought back", "y  delete it", "esc  keep it"):
            assert text in screen.text

    Screen().run(act, size)
