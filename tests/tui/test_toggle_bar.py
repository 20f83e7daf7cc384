"""The bar and the menu of toggles: what is shown, what is folded away, how refusals and waiting look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.live.snapshot import Effect, Event
from stackscope.tui.bindings import Keymap
from stackscope.tui.chips import chips, laid_out
from stackscope.tui.lines import plain, width
from stackscope.tui.look import ASCII, UNICODE
from stackscope.tui.screens.toggle_menu import ToggleMenu
from stackscope.tui.toggle_menu import Cursor, menu
from stackscope.tui.toggles import TOGGLES
from stackscope.tui.toggling import Said, Toggling
from tests.tui import sessions
from tests.tui.apps import TinyApp, driven, text_of
from tests.tui.controls import FakeControl

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.look import Look

KEYS = Keymap()


def toggling(snapshot: Snapshot | None = None, **control: Any) -> Toggling:
    made = Toggling(FakeControl(**control), cores=2)
    made.see(sessions.running() if snapshot is None else snapshot)
    return made


def bar(made: Toggling, room: int, n_lines: int = 1, look: Look = UNICODE, keymap: Keymap = KEYS) -> list[str]:
    return [plain(line) for line in laid_out(chips(made.situation, keymap, look), room, n_lines, keymap, look)]


def test_it_shows_keys_names_and_states_most_important_first() -> None:
    first, second = bar(toggling(), 120, 2)
    assert first.rstrip().split("   ") == [
        " s spec draft", "[ ] draft 5", "p cache on", "k KV f16", "w Q8_0✗", "b slots 4", "c load 8", "f flash on",
        "t threads 2",
    ]  # fmt: skip
    assert second.rstrip() == (
        " g budget 256   a adapt off   u unified on   h limit none   d split off✗   e disagg off✗   x accept off"
    )


def test_what_has_no_room_is_folded_away_and_counted() -> None:
    (line,) = bar(toggling(), 80)
    assert line.rstrip() == " s spec draft  [ ] draft 5  p cache on  k KV f16  w Q8_0✗  … +11 more o"


@pytest.mark.parametrize("room", [20, 40, 60, 80, 100, 120, 200, 300])
@pytest.mark.parametrize("n_lines", [1, 2, 3])
@pytest.mark.parametrize("name", sorted(sessions.SESSIONS))
def test_lines_keep_to_the_room_and_nothing_is_lost(name: str, room: int, n_lines: int) -> None:
    made = toggling(sessions.SESSIONS[name]())
    lines = laid_out(chips(made.situation, KEYS, UNICODE), room, n_lines, KEYS, UNICODE)
    assert 1 <= len(lines) <= n_lines
    assert {width(line) for line in lines} == {room}
    text = "".join(plain(line) for line in lines)
    keys = [word for word in text.split() if word in {KEYS.shown(toggle.id) for toggle in TOGGLES}]
    folded = int(text.partition("+")[2].split()[0]) if " more " in text else 0
    assert len(set(keys)) + folded == len(TOGGLES) or room < 40


def test_what_was_asked_for_is_shown_and_never_folded_away() -> None:
    made = toggling()
    made.press("synthetic")
    (line,) = bar(made, 80)
    assert "x accept off→0 %" in line
    assert bar(made, 80, look=ASCII)[0].isascii()


def test_settling_is_marked() -> None:
    switch = Event(at_ns=1, kind="rebuild", changes={"kv_type_k": ("f16", "q8_0")}, effect=Effect(state="settling"))
    made = toggling(msgspec.structs.replace(sessions.running(), events=(switch,)))
    assert "k KV f16…" in bar(made, 80)[0]


def test_in_ascii_the_sign_of_a_refusal_is_no_letter() -> None:
    assert "d split off!   e disagg off!   x accept off" in "".join(bar(toggling(), 250, 2, ASCII))


def test_a_recording_has_no_keys_to_press_and_nothing_crossed_out() -> None:
    made = toggling(is_live=False)
    found = chips(made.situation, KEYS, UNICODE)
    assert all(chip.line[0].style == "label" for chip in found)
    assert "✗" not in "".join(bar(made, 200, 2))


def test_the_user_s_own_keys_are_on_the_chips() -> None:
    own = Keymap({"speculation": "z", "toggles": "f9"})
    (line,) = bar(toggling(), 80, keymap=own)
    assert line.startswith(" z spec draft")
    assert line.rstrip().endswith("more F9")


# The menu


@given(st.integers(1, 150), st.integers(1, 40), st.integers(0, len(TOGGLES) - 1), st.none() | st.integers(0, 12))
def test_the_menu_survives_every_size(room: int, height: int, toggle: int, value: int | None) -> None:
    made = toggling()
    found = menu(made.situation, sessions.running(), Cursor(toggle, value), (room, height), KEYS, UNICODE)
    assert len(found.lines) == height
    assert toggle in found.toggles.values()


def shown(made: Toggling, cursor: Cursor, room: tuple[int, int] = (100, 22)) -> str:
    found = menu(made.situation, sessions.running(), cursor, room, KEYS, UNICODE)
    return "\n".join(plain(line).rstrip() for line in found.lines)


def test_the_menu_says_what_a_value_costs_or_why_it_is_refused() -> None:
    text = shown(toggling(), Cursor(3, 1))
    assert "Rebuild: 4 requests in flight, 1,768 tokens to prefill again. The last one took 182 ms." in joined(text)
    text = shown(toggling(), Cursor(0, 3))
    assert "Refused: Multi-token prediction needs a model with MTP heads" in joined(text)
    assert "Live: from the next step on." in shown(toggling(), Cursor(0, 1))
    assert "This is in force, or asked for." in shown(toggling(), Cursor(0, 2))


def joined(text: str) -> str:
    """The right part of a menu as one line."""
    return " ".join(line.partition("┊")[2].strip() for line in text.split("\n"))


class _Menu(TinyApp):
    def __init__(self, snapshot: Snapshot | None = None) -> None:
        def make() -> ToggleMenu:
            return ToggleMenu(self.toggling, lambda: self.frame.snapshot, self.keys, self.say)

        super().__init__(make, snapshot)

    def say(self, said: Said | None) -> None:
        if said is not None:
            self.tell(said.text, is_warning=said.is_refusal)


def test_arrows_and_enter_choose_a_value() -> None:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("right", "up", "enter")
        await pilot.pause()
        assert "off" in text_of(pilot.app)

    app = driven(_Menu(), act)
    assert isinstance(app.control, FakeControl)
    assert app.control.asked == [{"speculation": "ngram"}]


def test_a_refused_value_says_why_and_asks_nothing() -> None:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("right", "down", "enter")

    app = driven(_Menu(), act)
    assert isinstance(app.control, FakeControl)
    assert app.control.asked == []
    assert app.told[0].startswith("! Multi-token prediction needs")


def test_the_menu_goes_to_both_ends_and_closes() -> None:
    async def act(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, ToggleMenu)
        await pilot.press("end")
        assert screen.cursor == Cursor(len(TOGGLES) - 1)
        await pilot.press("down", "right", "end", "left", "home")
        assert screen.cursor == Cursor(0)
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(pilot.app.screen, ToggleMenu)

    driven(_Menu(), act)


def test_the_mouse_selects_and_then_chooses() -> None:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.pause()
        body = pilot.app.screen.query_one("MenuBody")
        await pilot.click(body, offset=(3, 3))
        screen = pilot.app.screen
        assert isinstance(screen, ToggleMenu)
        assert screen.cursor == Cursor(3)
        line = next(y for y, row in enumerate(text_of(pilot.app).split("\n")) if "q8_0  " in row)
        offset = (body.region.width // 2 + 4, line - body.region.y)
        await pilot.click(body, offset=offset)
        assert screen.cursor == Cursor(3, 1)
        await pilot.click(body, offset=offset)

    app = driven(_Menu(), act)
    assert isinstance(app.control, FakeControl)
    assert app.control.asked == [{"kv_type_k": "q8_0", "kv_type_v": "q8_0"}]


def test_without_a_configuration_the_menu_says_so() -> None:
    assert "Its state is not known." in shown(toggling(sessions.attached()), Cursor(0))
    loading = toggling(sessions.starting())
    assert "Its state is not known." in shown(loading, Cursor(2))
