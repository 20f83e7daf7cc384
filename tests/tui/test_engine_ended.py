"""The dialog of an engine that has ended: whatever it said last, and however small the terminal, its keys are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackscope.errors import EngineDiedError
from stackscope.tui.source import Status
from tests.tui import sessions
from tests.tui.live_apps import Screen

LONG = tuple(
    f"llama_context: n_ctx_seq (16384) > n_ctx_train (2048) -- possible training context overflow, line {n}"
    for n in range(12)
)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("recorded", [None, Path("/home/somebody/checkout/profiles/recorded/2026-11-30-a.jsonl.zst")])
def test_its_keys_and_its_last_words_are_seen(size: tuple[int, int], recorded: Path | None) -> None:
    died = EngineDiedError("The engine process was killed by SIGKILL.", remedy="Report this.", last_lines=LONG)

    async def look(screen: Screen) -> None:
        await screen.show(sessions.dead(), Status(failure=died, is_over=True, recorded=recorded))
        for text in ("r  start it again", "q  quit", "esc ", "The engine process was killed"):
            assert text in screen.text
        if recorded is not None:
            assert "The recording up to here is whole" in screen.text
        if size >= (80, 24):
            assert "line 11" in screen.text

    Screen().run(look, size)


@pytest.mark.parametrize("size", [(60, 16), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_its_keys_are_seen_however_long_the_reason_is(size: tuple[int, int]) -> None:
    path = Path("/home/somebody", *(f"a-rather-long-name-of-a-folder-{n}" for n in range(24)))
    died = EngineDiedError(f"{path / 'a.gguf'} cannot be read: it is none.", remedy="Check the path.", last_lines=LONG)

    async def look(screen: Screen) -> None:
        await screen.show(sessions.dead(), Status(failure=died, is_over=True, recorded=path / "b.jsonl.zst"))
        for text in ("The engine has ended", "/home/somebody", "cannot be read", "Check the path.", "b.jsonl.zst"):
            assert text in screen.text
        for text in ("r  start it again", "q  quit", "esc "):
            assert text in screen.text

    Screen().run(look, size)
