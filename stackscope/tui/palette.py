"""Everything that can be done, to be searched by name: each toggle with each of its values, the screens, the rest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from stackscope.tui.bindings import KEYS, WHERE
from stackscope.tui.lines import printable
from stackscope.tui.toggles import TOGGLES, choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.bindings import Keymap, Scope
    from stackscope.tui.situation import Situation
    from stackscope.tui.toggles import Choice

NAMES: Final = {
    "screen_live": "Screen: live", "screen_steps": "Screen: steps", "screen_explain": "Screen: explain",
    "screen_sessions": "Screen: sessions", "mark": "Mark this moment", "record": "Start or end a recording",
    "pause": "Pause the display, or go on",
    "restart": "Restart the engine",
    "play_end": "Go to the end of the recording", "toggles": "All toggles", "theme": "Next theme", "help": "Help",
    "quit": "Quit", "play_start": "Play from the beginning", "play_faster": "Play faster",
    "play_slower": "Play slower", "steps_slow": "Slow steps only, or all", "steps_follow": "Follow the newest step",
    "steps_next_change": "Next change of the configuration", "sessions_open": "Open this recording",
    "sessions_compare": "Compare two recordings", "sessions_delete": "Delete this recording",
    "sessions_refresh": "Look for recordings again",
}  # fmt: skip
"""Actions of the table of keys that are worth searching for, as commands."""
NOT_OF_RECORDINGS: Final = frozenset({"mark", "record", "restart"})
"""What a recording refuses."""
ON_THE_APP: Final[Scope] = "everywhere"


class Command(NamedTuple):
    """One line of the palette."""

    name: str
    help: str
    action: str
    """As in a binding. Where a toggle's value is chosen: empty."""
    choice: tuple[str, str] | None = None
    """(toggle, label of the value)."""


def commands(situation: Situation, keymap: Keymap, screen: str, *, is_replay: bool) -> Iterator[Command]:
    """What can be done now, on that screen."""
    for key in KEYS:
        if key.id not in NAMES or screen not in WHERE[key.scope] or (key.scope == "replay" and not is_replay):
            continue
        if is_replay and key.id in NOT_OF_RECORDINGS:
            continue
        space = "app" if key.scope == ON_THE_APP else "screen"
        name, help = NAMES[key.id], key.help
        if is_replay and key.id == "pause":
            name, help = "Play the recording, or pause", "Hold the recording still, or play on."
        told = f"{help} Key: {keymap.shown(key.id)}" if help else f"Key: {keymap.shown(key.id)}"
        yield Command(name, told, f"{space}.{key.action}")
    for toggle in TOGGLES:
        for choice in choices(toggle, situation):
            name = f"{toggle.name}: {printable(choice.label)} ({state_of(choice)})"
            yield Command(name, choice.refusal or choice.note or toggle.help, "", (toggle.id, choice.label))


def state_of(choice: Choice) -> str:
    """How a value would come into force, or that it cannot."""
    if choice.is_current:
        return "in force"
    return "refused" if choice.refusal is not None else choice.kind.value


class StackscopeCommands(Provider):
    """Gives the palette its commands."""

    async def startup(self) -> None:
        """Gather them once: the situation does not change while one types."""
        owner = cast("StackscopeApp", self.app)
        screen = owner.current_mode if owner.current_mode in WHERE["everywhere"] else "live"
        is_replay = owner.playback is not None
        self._found = tuple(commands(owner.toggling.situation, owner.keys, screen, is_replay=is_replay))

    async def discover(self) -> Hits:
        """Everything, before anything is typed."""
        for command in self._found:
            yield DiscoveryHit(command.name, partial(self._run, command), help=command.help)

    async def search(self, query: str) -> Hits:
        """What resembles the query, the most similar first."""
        matcher = self.matcher(query)
        for command in self._found:
            score = matcher.match(command.name)
            if score > 0:
                yield Hit(score, matcher.highlight(command.name), partial(self._run, command), help=command.help)

    async def _run(self, command: Command) -> None:
        owner = cast("StackscopeApp", self.app)
        if command.choice is not None:
            owner.choose_toggle(*command.choice)
        else:
            await owner.run_action(command.action, self.screen)
