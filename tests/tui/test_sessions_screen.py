"""The screen of recordings, driven: it lists, opens, compares and deletes, and never what is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from stackscope.session.paths import Folder
from stackscope.tui.lines import plain
from stackscope.tui.look import UNICODE
from stackscope.tui.screens.dialogs import Question
from stackscope.tui.screens.session_dialogs import ComparisonScreen
from stackscope.tui.screens.sessions import SessionList, SessionsScreen
from stackscope.tui.session_lines import columns, heading
from tests.tui.apps import TinyApp, driven, text_of
from tests.tui.controls import FakeControl
from tests.tui.recordings import cut_off, damaged, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from textual.pilot import Pilot


class _Sessions(TinyApp):
    """Notes what is to be opened."""

    def __init__(self, folders: list[Folder], recording: Path | None = None) -> None:
        super().__init__(lambda: SessionsScreen(folders), control=FakeControl(recording=recording))
        self.opened: list[Path] = []

    def on_sessions_screen_opened(self, event: SessionsScreen.Opened) -> None:
        self.opened.append(event.path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three recordings of one's own: whole, cut off, damaged, in this order; and one that ships."""
    import os

    for age, path in enumerate(
        (
            write(tmp_path / "whole.jsonl.zst", steps=100, started="2027-01-15T08:00:02+00:00"),
            cut_off(tmp_path / "cut.jsonl.zst", steps=2_000, started="2027-01-15T08:00:01+00:00"),
            damaged(tmp_path / "broken.jsonl.zst"),
            write(tmp_path / "profiles" / "shipped.jsonl.zst", steps=100, draft_length=3),
        )
    ):
        os.utime(path, ns=(1_800_000_000_000_000_000 - age,) * 2)
    return tmp_path


def on_sessions(
    folder: Path, act: Callable[[Pilot[None], _Sessions], Any], recording: Path | None = None,
    size: tuple[int, int] = (120, 40),
) -> _Sessions:  # fmt: skip
    app = _Sessions([Folder(folder), Folder(folder / "profiles", is_shipped=True)], recording)

    async def run(pilot: Pilot[None]) -> None:
        await app.workers.wait_for_complete()
        await pilot.pause()
        await act(pilot, app)

    driven(app, run, size)
    return app


def test_it_lists_what_there_is_with_its_state(folder: Path) -> None:
    async def act(_: Pilot[None], app: _Sessions) -> None:
        lines = text_of(app).split("\n")
        assert lines[1].startswith(" Sessions  4 recordings, ")
        assert lines[3].startswith("▸")
        assert lines[3].endswith("✓ whole")
        assert lines[4].endswith("~ cut off")
        assert "✗ broken.jsonl.zst has a damaged header" in lines[5]
        assert lines[6].endswith("✓ whole")
        assert str(folder / "whole.jsonl.zst") in text_of(app)

    on_sessions(folder, act)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (200, 60)])
def test_every_size_shows_it(folder: Path, size: tuple[int, int]) -> None:
    async def act(_: Pilot[None], app: _Sessions) -> None:
        assert "synthetic"[:4] in text_of(app)
        assert max(map(len, text_of(app).split("\n"))) <= size[0]

    on_sessions(folder, act, size=size)


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    async def act(pilot: Pilot[None], app: _Sessions) -> None:
        await pilot.press("enter", "space", "delete", "c", "up", "down", "end", "f5")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert f"There are no recordings in {tmp_path} yet." in text_of(app)

    app = on_sessions(tmp_path, act)
    assert app.told == ["Pick two recordings to compare, with space."]


def test_enter_opens_and_says_why_it_does_not(folder: Path) -> None:
    async def act(pilot: Pilot[None], _: _Sessions) -> None:
        await pilot.press("enter", "down", "enter", "down", "enter")

    app = on_sessions(folder, act)
    assert app.opened == [folder / "whole.jsonl.zst", folder / "cut.jsonl.zst"]
    (why,) = app.told
    assert "damaged header" in why


def test_what_is_being_written_is_neither_opened_nor_deleted(folder: Path) -> None:
    written = folder / "whole.jsonl.zst"

    async def act(pilot: Pilot[None], app: _Sessions) -> None:
        assert "● being written" in text_of(app)
        await pilot.press("enter", "delete")
        await pilot.pause()
        assert not isinstance(app.screen, Question)

    app = on_sessions(folder, act, recording=written.parent / "." / written.name)
    assert app.opened == []
    assert app.told == ["! This recording is being written: end it first."] * 2
    assert written.exists()


def test_deleting_asks_and_only_y_deletes(folder: Path) -> None:
    async def act(pilot: Pilot[None], app: _Sessions) -> None:
        for key in ("enter", "escape"):
            await pilot.press("delete")
            await pilot.pause()
            assert "Delete this recording?" in text_of(app)
            await pilot.press(key)
            if key == "enter":
                assert isinstance(app.screen, Question)
                await pilot.press("n")
            await pilot.pause()
        assert (folder / "whole.jsonl.zst").exists()
        await pilot.press("d", "y")
        await pilot.pause()
        assert "3 recordings" in text_of(app)

    app = on_sessions(folder, act)
    assert not (folder / "whole.jsonl.zst").exists()
    assert app.told == ["whole.jsonl.zst is deleted."]
    assert app.opened == []


def test_what_ships_stays(folder: Path) -> None:
    async def act(pilot: Pilot[None], _: _Sessions) -> None:
        await pilot.press("end", "delete")

    app = on_sessions(folder, act)
    assert app.told == ["! This recording comes with Stackscope and stays."]


def test_two_are_picked_and_compared(folder: Path) -> None:
    async def act(pilot: Pilot[None], app: _Sessions) -> None:
        await pilot.press("space")
        await pilot.pause()
        assert "1 recording picked, one more to compare" in text_of(app)
        await pilot.press("end", "space", "c")
        await pilot.pause()
        assert isinstance(app.screen, ComparisonScreen)
        assert "A  whole.jsonl.zst" in text_of(app)
        assert "B  shipped.jsonl.zst" in text_of(app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, SessionsScreen)

    on_sessions(folder, act)


def test_a_third_pick_replaces_the_oldest_and_a_second_press_takes_one_back(folder: Path) -> None:
    async def act(pilot: Pilot[None], app: _Sessions) -> None:
        await pilot.press("space", "space", "space")
        screen = app.screen
        assert isinstance(screen, SessionsScreen)
        assert [path.name for path in screen._picked] == ["cut.jsonl.zst", "broken.jsonl.zst"]
        await pilot.press("up", "space")
        assert [path.name for path in screen._picked] == ["cut.jsonl.zst"]

    on_sessions(folder, act)


def test_new_recordings_show_when_looked_for(folder: Path) -> None:
    async def act(pilot: Pilot[None], app: _Sessions) -> None:
        await pilot.press("down")
        write(folder / "another.jsonl.zst", steps=10)
        await pilot.press("f5")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "5 recordings" in text_of(app)
        screen = app.screen
        assert isinstance(screen, SessionsScreen)
        assert screen.selected is not None
        assert screen.selected.path.name == "cut.jsonl.zst"  # the same as before

    on_sessions(folder, act)


def test_until_somebody_chooses_the_newest_is_selected(folder: Path) -> None:
    """Whatever the files' own times say at first: these are of copies, perhaps."""
    import os

    os.utime(folder / "cut.jsonl.zst", ns=(1_900_000_000_000_000_000,) * 2)

    async def act(_: Pilot[None], app: _Sessions) -> None:
        assert app.screen.query_one(SessionList).here == 0
        assert str(folder / "whole.jsonl.zst") in text_of(app)

    on_sessions(folder, act)


@pytest.mark.parametrize("room", range(59, 120))
def test_no_column_is_too_narrow_for_its_name(room: int) -> None:
    told = plain(heading(room, UNICODE))
    assert len(told) == room
    assert "…" not in told
    names = told.split()
    assert {"recorded", "model", "took", "tok/s", "size"} <= set(names)
    assert set(names) <= {"recorded", "model", "workload", "took", "tok/s", "A", "hits", "size", "state"}
    assert columns(room).model >= 8


def test_where_little_has_room_a_path_that_is_cut_ends_in_an_ellipsis(tmp_path: Path) -> None:
    folder = tmp_path / ("a-rather-long-name-" * 5)
    folder.mkdir()
    write(folder / "a.jsonl.zst", steps=3)

    async def act(_: Pilot[None], app: _Sessions) -> None:
        path = next(line for line in text_of(app).split("\n") if line.strip().startswith(str(tmp_path)[:20]))
        assert path.endswith("…")

    on_sessions(folder, act, size=(60, 16))
