"""Where the terminal has nothing but ASCII, every screen and dialog keeps to it, borders and signs included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stackscope.records import StepRecord
from stackscope.session.paths import Folder
from stackscope.tui.look import ASCII
from stackscope.tui.panes import PANES
from stackscope.tui.screens.dialogs import MarkDialog, Question
from stackscope.tui.screens.explain import ExplainScreen
from stackscope.tui.screens.help import HelpScreen, PaneHelpScreen
from stackscope.tui.screens.session_dialogs import ComparisonScreen
from stackscope.tui.screens.sessions import SessionsScreen
from stackscope.tui.screens.steps import StepsScreen
from stackscope.tui.screens.toggle_menu import ToggleMenu
from tests.tui.apps import TinyApp, driven, text_of
from tests.tui.recordings import cut_off, damaged, write
from tests.tui.test_library import digest_of, entry_of
from tests.unit.record_builders import SyntheticEngine

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot
    from textual.screen import Screen


def made(name: str, app: TinyApp, folder: Path) -> Screen[Any]:
    """A screen by its name."""
    if name == "sessions":
        return SessionsScreen([Folder(folder)])
    if name == "menu":
        return ToggleMenu(app.toggling, lambda: app.frame.snapshot, app.keys, lambda _: None)
    if name == "comparison":
        path = folder / "whole.jsonl.zst"
        return ComparisonScreen((entry_of(path), digest_of(path)), (entry_of(path), digest_of(path)))
    if name == "pane":
        return PaneHelpScreen("Acceptance", PANES["acceptance"].help)
    others: dict[str, Any] = {"steps": StepsScreen, "explain": ExplainScreen, "mark": MarkDialog}
    if name in others:
        screen: Screen[Any] = others[name]()
        return screen
    return HelpScreen(tuple(PANES.values())) if name == "help" else Question("Really?", yes="go", no="stay")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@pytest.mark.parametrize(
    "name", ["steps", "explain", "sessions", "menu", "comparison", "help", "pane", "mark", "question"]
)
def test_everything_is_ascii(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    write(tmp_path / "whole.jsonl.zst", steps=50)
    cut_off(tmp_path / "cut.jsonl.zst", steps=900)
    damaged(tmp_path / "broken.jsonl.zst")
    app = TinyApp(lambda: made(name, app, tmp_path))
    app.look = ASCII
    app.feed.steps = tuple(r for r in SyntheticEngine(slots=3, draft_length=2).records(60) if isinstance(r, StepRecord))

    async def act(pilot: Pilot[None]) -> None:
        await app.workers.wait_for_complete()
        for keys in ((), ("up", "up"), ("pagedown", "pagedown")):
            await pilot.press(*keys)
            await pilot.pause()
            shown = text_of(app)
            assert shown.strip()
            assert shown.isascii(), sorted({character for character in shown if not character.isascii()})

    driven(app, act, size)
