"""The live screen as a user drives it: pages, focus, pause, marks, recording, an engine that dies, a small terminal."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.live.snapshot import Event
from stackscope.errors import EngineDiedError
from stackscope.tui.bindings import ALL
from stackscope.tui.layout import PANES as PLACED
from stackscope.tui.panes import PANES
from stackscope.tui.screens.dialogs import MarkDialog
from stackscope.tui.screens.live import LiveScreen
from stackscope.tui.source import Loading, Status
from tests.tui import sessions
from tests.tui.live_screens import live, on

if TYPE_CHECKING:
    from tests.tui.live_apps import Screen

RECORDING = Path("/recordings/a.jsonl.zst")


def shows(screen: Screen, *panes: str) -> bool:
    """Whether all these panes are on the screen, and only they."""
    return all((f"─ {PANES[pane].title} " in screen.text) is (pane in panes) for pane in PLACED)


def focus_of(screen: Screen) -> str:
    focused = live(screen).focused
    assert focused is not None
    return focused.id or ""


def test_everything_at_once_on_a_usual_terminal() -> None:
    @on()
    async def _(screen: Screen) -> None:
        lines = screen.lines
        assert lines[0].startswith(" stackscope  synthetic-135m Q8_0")
        assert "─ Verdict ─" in lines[1]
        for title in ("Step anatomy", "Idle compute", "Acceptance", "Prefix cache", "Bandwidth", "Events"):
            assert f"─ {title} ─" in screen.text
        assert "q quit" in lines[-1]
        assert max(map(len, lines)) <= 120


def test_older_events_are_scrolled_to_while_their_pane_is_focused() -> None:
    events = tuple(Event(at_ns=k * 10**9, kind="mark", label=f"number {k}") for k in range(40, 0, -1))

    @on((80, 24), snapshot=msgspec.structs.replace(sessions.running(), events=events))
    async def _(screen: Screen) -> None:
        while live(screen).focused is None or focus_of(screen) != "events":
            await screen.press("shift+tab")
        await screen.until(lambda: "number 40 " in screen.text)
        assert "number 1 " not in screen.text
        chosen = live(screen)._selected
        await screen.press(*["down"] * 45)
        await screen.until(lambda: "number 1 " in screen.text)
        assert "number 40 " not in screen.text
        assert live(screen)._selected == chosen
        await screen.press("up")
        await screen.until(lambda: "number 1 " not in screen.text)
        await screen.press("escape")
        await screen.until(lambda: "number 40 " in screen.text)
        await screen.press("down")
        assert live(screen)._selected != chosen


def test_on_a_small_terminal_pages_have_the_rest() -> None:
    @on((80, 24))
    async def _(screen: Screen) -> None:
        assert "─ Step anatomy ─" in screen.text
        assert "─ Prefix cache ─" not in screen.text
        assert "q quit" in screen.lines[-1]
        seen: list[str] = []
        for panes in live(screen)._places.page.pages:
            await screen.until(lambda panes=panes: shows(screen, *panes))  # type: ignore[misc]
            seen += panes
            await screen.press("pagedown")
        assert sorted(seen) == sorted(PLACED)
        await screen.until(lambda: shows(screen, "anatomy", "acceptance", "throughput"))
        await screen.press("pageup")
        await screen.until(lambda: shows(screen, "events"))


def test_the_focus_goes_through_all_panes_and_turns_the_pages() -> None:
    @on((80, 24))
    async def _(screen: Screen) -> None:
        focused: list[str] = []
        for _n in range(len(PLACED) + 1):
            await screen.press("tab")
            focused.append(focus_of(screen))
            await screen.until(lambda: f"─ {PANES[focused[-1]].title} " in screen.text)
        assert sorted(focused) == sorted([*PLACED, "verdict"])
        await screen.press("shift+tab")
        assert focus_of(screen) == focused[-2]
        await screen.press("escape")
        assert live(screen).focused is None


def test_a_frame_redraws_only_the_lines_that_changed() -> None:
    @on()
    async def _(screen: Screen) -> None:
        drawn: list[str] = []
        for name in PLACED:
            widget = live(screen).query_one(f"#{name}")
            widget.refresh = lambda *_, name=name, **__: drawn.append(name)  # type: ignore[method-assign, assignment]
        await screen.show()
        assert drawn == []
        await screen.show(sessions.settling())
        assert "events" in drawn


def test_a_frame_may_come_before_the_widgets_that_show_it() -> None:
    @on()
    async def _(screen: Screen) -> None:
        screen.app.push_screen(LiveScreen())
        assert not live(screen).is_composed
        screen.app.take(screen.app.frame)
        await screen.until(lambda: live(screen).is_composed and "q quit" in screen.lines[-1])
        screen.app.switch_mode("steps")
        screen.app.take(screen.app.frame)
        await screen.until(lambda: "does not tell single steps" in screen.text)


def test_a_terminal_that_is_too_small_says_so_and_recovers() -> None:
    @on()
    async def _(screen: Screen) -> None:
        await screen.pilot.resize_terminal(50, 12)
        await screen.pilot.pause()
        assert "This terminal is too small." in screen.text
        assert "50 columns and 12 rows" in screen.text
        assert "Verdict" not in screen.text
        await screen.show()
        await screen.press("tab", "pagedown", "1")
        await screen.pilot.resize_terminal(4, 1)
        await screen.pilot.pause()
        await screen.pilot.resize_terminal(120, 40)
        await screen.until(lambda: "─ Verdict ─" in screen.text)
        assert "too small" not in screen.text


@pytest.mark.parametrize("mode", ["live", "steps", "explain", "sessions"])
def test_a_screen_fits_a_terminal_that_changed_its_size_while_another_was_shown(mode: str) -> None:
    other = "explain" if mode == "live" else "live"

    @on((80, 24))
    async def _(screen: Screen) -> None:
        screen.app.action_show(mode)
        await screen.pilot.pause()
        screen.app.action_show(other)
        await screen.pilot.pause()
        await screen.pilot.resize_terminal(120, 40)
        await screen.pilot.pause()
        screen.app.action_show(mode)
        await screen.until(lambda: "q quit" in screen.lines[-1] and len(screen.lines) == 40)
        # Nothing moves, so no frame comes that would put it right.
        await screen.app.workers.wait_for_complete()
        for _ in range(5):
            await screen.pilot.pause()
        shown = screen.text
        screen.app.screen.show_again()  # type: ignore[attr-defined]
        for _ in range(5):
            await screen.pilot.pause()
        assert screen.text == shown
        assert len(screen.lines[0].rstrip()) > 100


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (100, 30), (120, 40), (200, 60), (300, 90)])
def test_every_state_fits_every_size(size: tuple[int, int]) -> None:
    @on(size)
    async def _(screen: Screen) -> None:
        for make in sessions.SESSIONS.values():
            await screen.show(make())
            assert len(screen.lines) == size[1]
            assert screen.lines[0].startswith(" stackscope")
            assert "q quit" in screen.lines[-1]


def test_a_mark_asks_for_its_name() -> None:
    @on()
    async def _(screen: Screen) -> None:
        await screen.press("m")
        assert isinstance(screen.app.screen, MarkDialog)
        await screen.press(*"warm q", "enter")
        assert screen.control.asked[-1] == {"mark": "warm q"}
        n_asked = len(screen.control.asked)
        await screen.press("m", "escape")
        await screen.press("m", "enter")
        assert len(screen.control.asked) == n_asked
        assert isinstance(screen.app.screen, LiveScreen)


def test_recording_is_shown_and_switched() -> None:
    @on()
    async def _(screen: Screen) -> None:
        assert "not recording" in screen.lines[0]
        await screen.press("r")
        assert screen.control.asked[-1] == {"record": True}
        await screen.show(status=Status(recording=RECORDING, recorded_ns=134_000_000_000))
        assert "● rec 2:14" in screen.lines[0]
        screen.control._recording = RECORDING
        await screen.press("r")
        assert screen.control.asked[-1] == {"record": False}


def test_loading_is_shown_with_how_far_it_is() -> None:
    @on(snapshot=sessions.starting(), status=Status(loading=Loading(what="loading a.gguf", fraction=0.434)))
    async def _(screen: Screen) -> None:
        assert "loading a.gguf 43 %" in screen.lines[0]


def test_what_cannot_be_done_is_said() -> None:
    @on()
    async def _(screen: Screen) -> None:
        screen.control.refusal = "The engine is still loading."
        await screen.press("r")
        await screen.until(lambda: "The engine is still loading." in screen.text)
        await screen.show(status=Status(notices=("Job 3 was shortened. [not markup]",)))
        await screen.until(lambda: "[not markup]" in screen.text)


def test_toggles_have_keys() -> None:
    @on()
    async def _(screen: Screen) -> None:
        await screen.press("s")
        assert screen.control.asked[-1].keys() == {"speculation"}
        await screen.press("right_square_bracket")
        assert "draft_length" in screen.control.asked[-1]


@pytest.mark.parametrize("key", ["q", "ctrl+q", "ctrl+c"])
def test_leaving_closes_the_source(key: str) -> None:
    @on()
    async def screen(screen: Screen) -> None:
        await screen.press(key)

    assert screen.source.is_closed
    assert screen.app.is_interrupted is (key == "ctrl+c")


def test_a_fault_of_the_feed_ends_the_screen() -> None:
    @on()
    async def screen(screen: Screen) -> None:
        screen.source.error = ZeroDivisionError("a bug")
        screen.app.feed.wake()
        await screen.until(lambda: not screen.app.is_running)

    assert isinstance(screen.app.fault, ZeroDivisionError)


def test_text_is_wanted_while_it_is_looked_at() -> None:
    @on()
    async def _(screen: Screen) -> None:
        assert screen.control.asked[-1] == {"show_text": False}
        await screen.press("pagedown")
        assert screen.control.asked[-1] == {"show_text": True}
        await screen.press("pagedown")
        assert screen.control.asked[-1] == {"show_text": False}


def test_another_request_can_be_selected_for_its_text() -> None:
    @on((200, 60))
    async def _(screen: Screen) -> None:
        screen.app.feed.texts.add(611, "the first of them")
        screen.app.feed.texts.add(612, "the second of them")
        await screen.show()
        assert "the first of them" in screen.text
        await screen.press("down")
        assert "the second of them" in screen.text
        await screen.press("up")
        assert "the first of them" in screen.text


def test_themes_can_be_gone_through() -> None:
    @on(kinds=("dark", "mono"))
    async def _(screen: Screen) -> None:
        kinds = []
        for _n in range(3):
            await screen.press("y")
            kinds.append(screen.app.kind)
        assert kinds == ["mono", "dark", "mono"]


KEYS = [
    *(key for binding in ALL if binding.id != "quit" for key in binding.keys.split(",")),
    *("tab", "shift+tab", "escape", "up", "down", "left", "right", "enter", "end"),
]
SIZES = ((80, 24), (120, 40), (200, 60), (30, 8), (60, 16), (1, 1), (100, 30), (61, 17))
STATUSES = (
    Status(),
    Status(loading=Loading(what="loading a.gguf", fraction=0.5)),
    Status(recording=RECORDING, recorded_ns=5),
    Status(failure=EngineDiedError("The engine process aborted."), is_over=True),
    Status(notices=("Job 3 was shortened.",)),
)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_that_anybody_does_ends_it(seed: int) -> None:
    chosen = random.Random(seed)

    @on()
    async def _(screen: Screen) -> None:
        screen.source.has_news = True
        for _n in range(60):
            match chosen.choices(("key", "size", "state"), (7, 1, 2))[0]:
                case "key":
                    await screen.press(chosen.choice(KEYS))
                case "size":
                    await screen.pilot.resize_terminal(*chosen.choice(SIZES))
                case _:
                    screen.view.still = chosen.choice(list(sessions.SESSIONS.values()))()
                    screen.source.state = Status(**vars(chosen.choice(STATUSES)))
                    screen.app.feed.wake()
                    await screen.pilot.pause()
        assert screen.app.is_running
