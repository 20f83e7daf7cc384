"""The help as lines: every key by where it works, as the table of keys has them, and what each pane means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.tui.bindings import KEYS, TOGGLE_KEYS, spelled
from stackscope.tui.compose import wrapped
from stackscope.tui.lines import Line, Span, cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.tui.bindings import Key, Keymap, Scope
    from stackscope.tui.pane import Pane, PaneHelp

TITLES: Final[dict[Scope, str]] = {
    "everywhere": "Everywhere",
    "running": "Where something runs",
    "live": "On the live screen",
    "steps": "On the screen of steps",
    "sessions": "On the screen of sessions",
    "replay": "While a recording is played",
}
_KEYS: Final = 12
_NAME: Final = 22


def help_lines(keymap: Keymap, panes: Iterable[Pane], room: int, *, first: Sequence[Scope] = ()) -> tuple[Line, ...]:
    """Everything, in lines of at most `room` cells. `first`: scopes that matter most where help was asked for."""
    lines: list[Line] = [
        *wrapped(
            "Every key can be changed in the settings file: under [keys], by the name in the second column,"
            " and by the one after `Back` for the way back.",
            room,
        ),
        (),
    ]
    for scope in dict.fromkeys((*first, *TITLES)):
        lines += _group(TITLES[scope], [key for key in KEYS if key.scope == scope], keymap, room)
    lines += _group("Toggles, and the same backwards", TOGGLE_KEYS, keymap, room)
    menu = keymap.shown("toggles")
    why = f"A toggle with ✗ behind its state cannot be switched now: the list of all, {menu}, says why."
    lines += [*wrapped(why, room), ()]
    for pane in panes:
        lines += [(Span(pane.title, "headline"),), *pane_lines(pane.help, room), ()]
    return tuple(lines)


def pane_lines(help: PaneHelp, room: int) -> tuple[Line, ...]:
    """What the numbers of a pane mean, how they are computed, what would move them."""
    lines: list[Line] = [*wrapped(help.meaning, room, "")]
    for title, text in (("Formula", help.formula), ("Moves", help.moves)):
        if text:
            first, *rest = wrapped(text, room - 9, "")
            lines += [(), (Span(f"{title:<9}", "label"), *first), *((Span(" " * 9), *line) for line in rest)]
    return tuple(lines)


def _group(title: str, keys: Iterable[Key], keymap: Keymap, room: int) -> list[Line]:
    """A title and a line for each action; one that goes backwards stands beside the other."""
    lines: list[Line] = [(Span(title, "headline"),)]
    backwards = {key.back_of: key for key in keys if key.back_of is not None}
    for key in keys:
        if key.back_of is not None:
            continue
        shown = " ".join(map(spelled, keymap.of(key.id)[:2]))
        if key.id in backwards:
            both = zip(keymap.of(key.id)[:2], keymap.of(backwards[key.id].id)[:2], strict=False)
            shown = "  ".join(f"{spelled(on)} {spelled(back)}" for on, back in both)
        indent = _KEYS + _NAME
        head: Line = (Span(f" {shown}".ljust(_KEYS), "key"), Span(key.id.ljust(_NAME), "label"))
        if cells(shown) >= _KEYS:
            lines.append((Span(f" {shown}", "key"),))
            head = (Span(" " * _KEYS), Span(key.id.ljust(_NAME), "label"))
        told = key.help or key.label
        if key.id in backwards:
            told = f"{told} Back: {backwards[key.id].id}."
        first, *rest = wrapped(told, max(room - indent, 12), "") or ((),)
        lines += [(*head, *first), *((Span(" " * indent), *line) for line in rest)]
    return [*lines, ()]
