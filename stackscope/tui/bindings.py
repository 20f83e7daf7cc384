"""Every key of the screens in one table: the footer, the palette, the help and remapping all come from it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from textual.binding import Binding
from textual.keys import Keys, format_key

from stackscope.tui.toggles import TOGGLES

if TYPE_CHECKING:
    from collections.abc import Mapping

Scope: TypeAlias = Literal["everywhere", "running", "live", "steps", "sessions", "replay"]
"""Where a key works. `running`: on screens that show what runs, the live one, steps and explain."""

WHERE: Final[Mapping[Scope, frozenset[str]]] = {
    "everywhere": frozenset({"live", "steps", "explain", "sessions"}),
    "running": frozenset({"live", "steps", "explain"}),
    "live": frozenset({"live"}),
    "steps": frozenset({"steps"}),
    "sessions": frozenset({"sessions"}),
    "replay": frozenset({"live", "steps", "explain"}),
}
"""The screens on which each scope's keys work: two keys may be the same where these have nothing in common."""


@dataclass(frozen=True)
class Key:
    """One action, and the keys that it has."""

    id: str
    """What a settings file calls it."""
    keys: str
    """Separated by commas, in Textual's names."""
    action: str
    label: str
    """For the footer."""
    help: str
    """One sentence."""
    scope: Scope
    is_shown: bool = False
    """It stands in the footer."""
    back_of: str | None = None
    """It does the same as this one, backwards."""


KEYS: Final[tuple[Key, ...]] = (
    Key("screen_live", "1", "show('live')", "live", "The live screen.", "everywhere", is_shown=True),
    Key("screen_steps", "2", "show('steps')", "steps", "Single steps, one on a line.", "everywhere", is_shown=True),
    Key("screen_explain", "3", "show('explain')", "explain", "The evidence behind the verdict.", "everywhere",
        is_shown=True),
    Key("screen_sessions", "4", "show('sessions')", "sessions", "Recordings: open, compare, delete.", "everywhere",
        is_shown=True),
    Key("mark", "m", "mark", "mark", "Put a named mark into the recording and on every chart.", "running",
        is_shown=True),
    Key("record", "r", "record", "record", "Start a recording, or end it.", "running", is_shown=True),
    Key("restart", "R", "restart", "restart", "End the engine, and start it again with the settings in force.",
        "running"),
    Key("pause", "space", "pause", "pause", "Hold the display still; the engine goes on.", "running", is_shown=True),
    Key("toggles", "o", "toggle_menu", "toggles", "All toggles with all their values, and why some are refused.",
        "running", is_shown=True),
    Key("palette", "ctrl+p,colon", "command_palette", "palette", "Search for anything that can be done.", "everywhere"),
    Key("theme", "y", "next_theme", "theme", "Another theme: dark, light, or the terminal's own colours.",
        "everywhere"),
    Key("pane_help", "f1", "pane_help", "explain pane", "What the numbers of the focused pane mean.", "running",
        is_shown=True),
    Key("help", "question_mark", "help", "help", "All keys, and what each pane means.", "everywhere", is_shown=True),
    Key("quit", "q,ctrl+q", "quit", "quit", "End the run and leave.", "everywhere", is_shown=True),
    Key("page_next", "n,pagedown", "page(1)", "next page", "The next page of panes, where not all fit on one.",
        "live"),
    Key("page_previous", "N,pageup", "page(-1)", "page before", "", "live", back_of="page_next"),
    Key("pane_next", "tab", "focus_pane(1)", "next pane", "Focus the next pane, on whatever page it is.", "live"),
    Key("pane_previous", "shift+tab", "focus_pane(-1)", "pane before", "", "live", back_of="pane_next"),
    Key("pane_none", "escape", "unfocus", "no pane", "Focus no pane; events that were scrolled show the newest again.",
        "live"),
    Key("list_down", "down", "select(1)", "down", "The next request, whose text is shown, or in the focused events an "
        "older one.", "live"),
    Key("list_up", "up", "select(-1)", "up", "", "live", back_of="list_down"),
    Key("play_step", "full_stop", "play_step(1)", "step", "Play one step of the recording, and pause.", "replay"),
    Key("play_step_back", "comma", "play_step(-1)", "step back", "", "replay", back_of="play_step"),
    Key("play_faster", "plus,equals_sign,greater_than_sign", "play_speed(1)", "faster", "Play the recording faster.",
        "replay"),
    Key("play_slower", "minus,less_than_sign", "play_speed(-1)", "slower", "", "replay", back_of="play_faster"),
    Key("play_forward", "right", "play_seek(10)", "10 s on", "Go on in the recording by 10 seconds.", "replay"),
    Key("play_back", "left", "play_seek(-10)", "10 s back", "", "replay", back_of="play_forward"),
    Key("play_start", "home", "play_start", "start", "Go to the beginning of the recording.", "replay"),
    Key("play_end", "ctrl+end", "play_end", "end", "Go to the end of the recording.", "replay"),
    Key("steps_slow", "l", "filter", "slow only", "Only steps that took twice the median or longer, or all of them.",
        "steps", is_shown=True),
    Key("steps_next_change", "n", "change(1)", "next change", "Go to the next change of the configuration.", "steps",
        is_shown=True),
    Key("steps_previous_change", "N", "change(-1)", "", "Go to the change before.", "steps",
        back_of="steps_next_change"),
    Key("steps_details", "enter", "details", "details", "Everything about the selected step, or the list alone.",
        "steps", is_shown=True),
    Key("steps_follow", "end", "follow", "follow", "Go to the newest step and stay there.", "steps", is_shown=True),
    Key("sessions_open", "enter", "open", "open", "Open the recording on the live screen.", "sessions", is_shown=True),
    Key("sessions_pick", "space", "pick", "pick", "Pick a recording for a comparison: two of them are compared.",
        "sessions", is_shown=True),
    Key("sessions_compare", "c", "compare", "compare", "Compare the two recordings that are picked.", "sessions",
        is_shown=True),
    Key("sessions_delete", "delete,d", "delete", "delete", "Delete the recording, once confirmed.", "sessions",
        is_shown=True),
    Key("sessions_refresh", "f5", "refresh", "look again", "Look again what recordings there are.", "sessions"),
)  # fmt: skip
"""Without the toggles, whose keys are in their own table."""


def _toggle_keys() -> tuple[Key, ...]:
    found = []
    for toggle in TOGGLES:
        action = f"switch('{toggle.id}', 1)"
        found.append(Key(toggle.id, toggle.key, action, toggle.name, toggle.help, "running"))
        if toggle.back is not None:
            action = f"switch('{toggle.id}', -1)"
            back = f"{toggle.name}, backwards"
            found.append(Key(f"{toggle.id}_back", toggle.back, action, back, "", "running", back_of=toggle.id))
    return tuple(found)


TOGGLE_KEYS: Final = _toggle_keys()
ALL: Final = (*KEYS, *TOGGLE_KEYS)
BY_ID: Final = {key.id: key for key in ALL}

NOT_GIVEN_AWAY: Final = frozenset(
    {"tab", "shift+tab", "escape", "enter", "up", "down", "left", "right", "pageup", "pagedown", "ctrl+c"}
)
"""Keys that move about in every list and dialog."""
_MODIFIERS: Final = ("ctrl", "shift", "alt", "super")
"""Those that terminals send. No keyboard has `hyper`, and `meta` comes as `alt`."""


@dataclass(frozen=True)
class Keymap:
    """Keys of the user's own."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """By id, in Textual's names: for `App.set_keymap`."""
    complaints: tuple[str, ...] = ()
    """What of it could not be used, a sentence each."""

    def of(self, id: str) -> tuple[str, ...]:
        """The keys that an action has now."""
        return tuple(self.keys.get(id, BY_ID[id].keys).split(","))

    def shown(self, id: str) -> str:
        """The first of them as it is written for people."""
        return spelled(self.of(id)[0])


def bindings(*scopes: Scope) -> list[Binding]:
    """Textual's bindings of these scopes, but for the toggles'."""
    return [_binding(key) for key in KEYS if key.scope in scopes]


def toggle_bindings() -> list[Binding]:
    """Textual's bindings of all toggles, in both directions. Their actions are `switch(id, direction)`."""
    return [_binding(key) for key in TOGGLE_KEYS]


def _binding(key: Key) -> Binding:
    return Binding(key.keys, key.action, key.label, show=key.is_shown, id=key.id, tooltip=key.help)


def keymap(wanted: Mapping[str, str]) -> Keymap:
    """The user's keys as far as they can be used: by the ids of the table, several separated by commas.

    Unknown ids, unknown keys, keys that every list needs, and keys that would do two things are left out, with a
    sentence each; the action then keeps the keys it has.
    """
    complaints = []
    usable: dict[str, str] = {}
    for id, text in wanted.items():
        complaint = _complaint(id, text)
        if complaint is None:
            usable[id] = ",".join(_normalised(part) for part in text.split(","))
        else:
            complaints.append(complaint)
    while True:
        clash = _clash(usable)
        if clash is None:
            return Keymap(usable, tuple(complaints))
        id, other, key = clash
        complaints.append(
            f"[keys] {id} cannot be {spelled(key)}, which is the key of {other}: give {other} another one as well."
        )
        del usable[id]


def _complaint(id: str, text: str) -> str | None:
    if id not in BY_ID:
        close = difflib.get_close_matches(id, BY_ID, n=1)
        hint = f"did you mean {close[0]}?" if close else "the help (?) names them all."
        return f"[keys] has no action {id}: {hint}"
    for part in text.split(","):
        key = _normalised(part)
        if not _is_key(key):
            return f"[keys] {id}: there is no key {part.strip() or 'without a name'}; write it as the help (?) does."
        if key in NOT_GIVEN_AWAY and key not in BY_ID[id].keys.split(","):
            return f"[keys] {id} cannot be {spelled(key)}: lists and dialogs need that key."
    return None


def _normalised(key: str) -> str:
    """A key in Textual's names: `question_mark` for `?`."""
    key = key.strip() or key
    if len(key) != 1 or (key.isspace() and key != " "):  # No terminal sends other white space as a key of that name.
        return key.strip().lower()
    named = {",": "comma", " ": "space"}.get(key)  # what separates keys cannot be one of a list of them
    return named or next(iter(Binding.make_bindings([Binding(key, "")]))).key


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+")
    if any(modifier not in _MODIFIERS for modifier in modifiers):
        return False
    if modifiers == ["shift"] and len(last) == 1:  # What comes is another character: the capital, where there is one.
        return False
    return last in _NAMES or (len(last) == 1 and last.isprintable())


_NAMES: Final = frozenset(
    {name.value for name in Keys if "+" not in name.value and not name.value.startswith("<")}
    | {_normalised(chr(code)) for code in range(32, 127)}
)


def _clash(usable: Mapping[str, str]) -> tuple[str, str, str] | None:
    """(id of the user's, id of the other, key) where a key would do two things on one screen."""
    held: dict[str, list[str]] = {}
    for id in (*(id for id in BY_ID if id not in usable), *usable):  # what the user did not touch comes first
        for key in usable.get(id, BY_ID[id].keys).split(","):
            for other in held.setdefault(key, []):
                if id != other and WHERE[BY_ID[id].scope] & WHERE[BY_ID[other].scope]:
                    return id, other, key
            held[key].append(id)
    return None


_SPELLED: Final = {"enter": "enter", "left": "left", "right": "right", "up": "up", "down": "down"}
"""Keys whose usual signs not every terminal has."""


def spelled(key: str) -> str:
    """A key as it is written for people: `]`, `S`, `^p`, `F1`, `space`."""
    *modifiers, last = key.split("+")
    name = _SPELLED.get(last) or format_key(last)
    name = name.upper() if len(name) > 1 and name[0] == "f" and name[1:].isdigit() else name
    if "ctrl" in modifiers:
        modifiers.remove("ctrl")
        name = f"^{name}"
    return "+".join((*modifiers, name))
