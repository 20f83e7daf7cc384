"""The table of keys: nothing is in it twice, everything in it can be done, and users may give other keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual.binding import Binding

from stackscope.tui.app import StackscopeApp
from stackscope.tui.bindings import ALL, BY_ID, WHERE, Keymap, bindings, keymap, spelled, toggle_bindings
from stackscope.tui.palette import NAMES
from stackscope.tui.screens.explain import ExplainScreen
from stackscope.tui.screens.live import LiveScreen
from stackscope.tui.screens.sessions import SessionsScreen
from stackscope.tui.screens.steps import StepsScreen
from tests.tui.apps import TinyApp, driven

if TYPE_CHECKING:
    from textual.pilot import Pilot

SCREENS = {"live": LiveScreen, "steps": StepsScreen, "explain": ExplainScreen, "sessions": SessionsScreen}


def test_ids_are_unique_and_bare_keys_of_toml() -> None:
    assert len(BY_ID) == len(ALL)
    assert all(key.id.isidentifier() and key.id.isascii() for key in ALL)


def test_no_screen_has_a_key_twice() -> None:
    for screen in SCREENS:
        held = [key for action in ALL if screen in WHERE[action.scope] for key in action.keys.split(",")]
        assert sorted(held) == sorted(set(held)), screen


def test_every_action_is_there_where_its_key_works() -> None:
    for action in ALL:
        name = f"action_{action.action.partition('(')[0]}"
        if action.scope == "everywhere":
            assert hasattr(StackscopeApp, name), action.id
            continue
        for screen in WHERE[action.scope]:
            assert hasattr(SCREENS[screen], name), (action.id, screen)


def test_every_action_says_what_it_does_unless_it_is_the_reverse_of_one() -> None:
    for action in ALL:
        assert action.help.endswith(".") or action.back_of in BY_ID, action.id
        assert not action.is_shown or action.label
    assert NAMES.keys() <= BY_ID.keys()


def test_bindings_carry_their_ids() -> None:
    made = [*bindings("everywhere", "running", "live", "steps", "sessions", "replay"), *toggle_bindings()]
    assert {binding.id for binding in made} == BY_ID.keys()
    assert all(isinstance(binding, Binding) for binding in made)


@pytest.mark.parametrize(
    ("key", "text"),
    [("right_square_bracket", "]"), ("S", "S"), ("ctrl+p", "^p"), ("f1", "F1"), ("space", "space"), ("enter", "enter"),
     ("question_mark", "?"), ("shift+tab", "shift+tab")],
)  # fmt: skip
def test_keys_are_written_for_people(key: str, text: str) -> None:
    assert spelled(key) == text


# Keys of the user's own


def test_other_keys_are_taken_as_written() -> None:
    made = keymap({"mark": "v", "help": "?, F2", "speculation": "z", "speculation_back": "ctrl+z"})
    assert made == Keymap({"mark": "v", "help": "question_mark,f2", "speculation": "z", "speculation_back": "ctrl+z"})
    assert made.of("help") == ("question_mark", "f2")
    assert (made.shown("mark"), made.shown("record")) == ("v", "r")


def test_two_actions_may_swap_their_keys() -> None:
    assert keymap({"mark": "r", "record": "m"}).complaints == ()


def test_a_key_may_be_that_of_another_screen() -> None:
    assert keymap({"steps_slow": "delete"}).complaints == ()


def taken(action: str, key: str, by: str) -> str:
    return f"[keys] {action} cannot be {key}, which is the key of {by}: give {by} another one as well."


def no_key(name: str) -> str:
    return f"[keys] mark: there is no key {name}; write it as the help (?) does."


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({"marks": "v"}, "[keys] has no action marks: did you mean mark?"),
        ({"xyzzy": "v"}, "[keys] has no action xyzzy: the help (?) names them all."),
        ({"mark": "banana"}, no_key("banana")),
        ({"mark": ""}, no_key("without a name")),
        *(({"mark": blank}, no_key("without a name")) for blank in ("\n", "\t", "\r", "\u3000")),
        ({"mark": "v,\n"}, no_key("without a name")),
        ({"mark": "hyperspace+v"}, no_key("hyperspace+v")),
        ({"mark": "hyper+q"}, no_key("hyper+q")),
        ({"mark": "ctrl+meta+q"}, no_key("ctrl+meta+q")),
        ({"mark": "shift+q"}, no_key("shift+q")),
        ({"mark": "tab"}, "[keys] mark cannot be tab: lists and dialogs need that key."),
        ({"mark": "s"}, taken("mark", "s", "speculation")),
        ({"mark": "v", "record": "v"}, taken("record", "v", "mark")),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_in_a_sentence(wanted: dict[str, str], complaint: str) -> None:
    made = keymap(wanted)
    assert made.complaints == (complaint,)
    assert set(made.keys) == set(wanted) - {complaint.split()[1].rstrip(":")} - {"marks", "xyzzy"}


def test_a_refused_key_frees_no_other() -> None:
    made = keymap({"mark": "tab", "record": "m"})
    assert [complaint.split()[1] for complaint in made.complaints] == ["mark", "record"]
    assert made.keys == {}


def test_the_screen_obeys_the_keys_of_the_user() -> None:
    async def act(pilot: Pilot[None]) -> None:
        app = pilot.app
        app.set_keymap(dict(keymap({"speculation": "z", "speculation_back": "Z"}).keys))
        await pilot.press("z", "Z", "s")

    app = driven(TinyApp(StepsScreen), act)
    assert app.told == ["speculation 1", "speculation -1"]
