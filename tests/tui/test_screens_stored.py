"""The whole live screen against stored texts: every state at the three sizes. All of the sessions are synthetic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from stackscope.errors import EngineDiedError
from stackscope.tui.control import SPEEDS
from stackscope.tui.source import Loading, Playing, Status
from tests.tui import sessions
from tests.tui.controls import FakeControl
from tests.tui.live_apps import Screen
from tests.tui.preview import TEXT
from tests.tui.stored import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.analysis.live.snapshot import Snapshot

SIZES: Final = ((80, 24), (120, 40), (200, 60))

DIED: Final = EngineDiedError(
    "The engine process aborted (SIGABRT): native code found something it cannot go on from.",
    remedy="Please report this with the lines below.",
    last_lines=("ggml.c:4120: GGML_ASSERT(ne00 == ne10) failed",),
)
RECORDING: Final = Path("/recordings/synthetic.jsonl.zst")
RECORDED: Final = Status(recording=RECORDING, recorded_ns=134_000_000_000)
END_NS: Final = 140_000_000_000
AT_END: Final = Playing(
    position_ns=END_NS, end_ns=END_NS, speed=SPEEDS[2], is_playing=False, is_at_end=True, truncated=None
)


class State(NamedTuple):
    """What is shown, and how."""

    snapshot: Callable[[], Snapshot]
    status: Status = RECORDED
    is_paused: bool = False
    is_played: bool = False


STATES: Final = {
    "starting": State(sessions.starting, Status(loading=Loading(what="loading synthetic.gguf", fraction=0.43))),
    "running": State(sessions.running),
    "paused": State(sessions.running, is_paused=True),
    "toggling": State(sessions.settling),
    "dead": State(sessions.dead, Status(failure=DIED, is_over=True, recorded=RECORDING)),
    "no-gpu": State(sessions.calibrated),
    "gpus": State(sessions.with_gpus),
    "attached": State(sessions.attached, Status()),
    "empty": State(sessions.empty, Status(playing=AT_END, is_over=True), is_played=True),
    "replay-end": State(sessions.replay_end, Status(playing=AT_END, is_over=True), is_played=True),
}


class FakePlayback(FakeControl):
    """A recording that stands at its end."""

    is_playing = False
    speed = 1.0
    cores = None
    position_ns = end_ns = END_NS

    def __init__(self) -> None:
        super().__init__(is_live=False)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STATES)
def test_it_looks_as_stored(name: str, size: tuple[int, int]) -> None:
    state = STATES[name]
    shown: list[str] = []

    async def look(screen: Screen) -> None:
        if state.is_paused:
            await screen.press("space")
            screen.source.has_news = True
        requests = state.snapshot().requests
        if requests:
            screen.app.feed.texts.add(requests[0].id, TEXT)
        await screen.show(status=state.status)
        if state.status.failure is not None:
            await screen.until(lambda: "Its log ends with" in screen.text)
        shown.extend(line.rstrip() for line in screen.lines)

    Screen(state.snapshot(), state.status, playback=FakePlayback() if state.is_played else None).run(look, size)
    text = "\n".join(shown) + "\n"
    assert "synthetic" in text
    check(f"screen-{name}-{size[0]}.txt", text)


@pytest.mark.parametrize(("key", "mode"), [("1", "live"), ("2", "steps"), ("3", "explain"), ("4", "sessions")])
def test_the_keys_below_are_those_that_work(key: str, mode: str) -> None:
    """A recording takes neither marks nor recordings, and no screen needs the key that leads to it."""

    async def look(screen: Screen) -> None:
        screen.app.action_show(mode)
        await screen.until(lambda: "? help  q quit" in screen.lines[-1])
        footer = screen.lines[-1]
        assert f" {key} " not in footer
        assert ("m mark" in footer) is (mode != "sessions" and not screen.source.state.playing)

    Screen(sessions.running(), RECORDED).run(look, (160, 40))
    Screen(sessions.replay_end(), Status(playing=AT_END, is_over=True), playback=FakePlayback()).run(look, (160, 40))
