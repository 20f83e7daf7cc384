"""The menu of all toggles as lines: at the left the toggles, at the right the values of the one that is selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.toggles import ToggleKind
from stackscope.tui.compose import wrapped
from stackscope.tui.lines import Line, Span, fitted, printable
from stackscope.tui.toggles import TOGGLES, awaited, choices, is_stuck, state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.bindings import Keymap
    from stackscope.tui.look import Look
    from stackscope.tui.situation import Situation
    from stackscope.tui.toggles import Choice, Toggle

_LEFT: Final = 36
_MOST_LEFT: Final = 50
_LEAST_RIGHT: Final = 54
"""Cells for the values, beyond which the names of those in force have what is free."""
_GAP: Final = 3


@dataclass(frozen=True)
class Cursor:
    """What is selected."""

    toggle: int = 0
    """Index in `TOGGLES`."""
    value: int | None = None
    """Index of the value. `None`: the toggles are gone through, and no value is selected."""


class Menu(NamedTuple):
    """The menu, and what is where, for the mouse."""

    lines: tuple[Line, ...]
    toggles: dict[int, int]
    """Index of the toggle by line."""
    values: dict[int, int]
    """Index of the value by line."""
    left: int
    """Cells of the left part."""


def menu(
    situation: Situation, snapshot: Snapshot, cursor: Cursor, room: tuple[int, int], keymap: Keymap, look: Look
) -> Menu:
    """The menu in so many cells and lines. What does not fit scrolls with the cursor."""
    width, height = room
    left = max(min(max(_LEFT, min(_MOST_LEFT, width - _LEAST_RIGHT)), width // 2), 1)
    first = _first_shown(len(TOGGLES), cursor.toggle, height)
    shown = range(first, min(first + height, len(TOGGLES)))
    one = [_toggle_line(index, situation, cursor, left, keymap, look) for index in shown]
    two, values = _values(TOGGLES[cursor.toggle], situation, snapshot, cursor, (width - left - _GAP, height), look)
    lines = []
    for y in range(height):
        at_left = one[y] if y < len(one) else fitted((), left)
        at_right = two[y] if y < len(two) else ()
        lines.append((*at_left, Span(f" {look.mark} ", "border"), *at_right))
    return Menu(tuple(lines), dict(enumerate(shown)), values, left)


def cost(choice: Choice, snapshot: Snapshot) -> str:
    """What choosing a value costs, in one sentence."""
    if choice.kind is ToggleKind.LIVE:
        return "Live: from the next step on."
    flying = [request for request in snapshot.requests if request.finished is None]
    n_tokens = sum(request.prefilled + request.output_tokens for request in flying)
    again = f"{units.counted(len(flying), 'request')} in flight, {units.counted(n_tokens, 'token')} to prefill again"
    text = f"Rebuild: {again}." if flying else "Rebuild: nothing is in flight."
    last = next((event.duration_ns for event in snapshot.events if event.duration_ns is not None), None)
    return text if last is None else f"{text} The last one took {units.duration(last)}."


def _toggle_line(index: int, now: Situation, cursor: Cursor, room: int, keymap: Keymap, look: Look) -> Line:
    toggle = TOGGLES[index]
    is_here = index == cursor.toggle
    new = awaited(toggle, now)
    value = state(toggle, now) + (f"{look.arrow}{new}" if new is not None else "")
    is_stopped = now.unavailable is not None or is_stuck(toggle, now) is not None
    sign = f"{look.cross} " if is_stopped and now.unavailable is None else "  "
    key = Span(f" {keymap.shown(toggle.id):<2} ", "label" if is_stopped else "key")
    style = "title" if is_here else "label" if is_stopped else ""
    name = fitted((Span(toggle.name, style),), max(min(room - 14, 21), 8), look.ellipsis)
    line = fitted((key, *name, Span(f"{sign}{value}", "label" if is_stopped else "value")), room, look.ellipsis)
    if not is_here:
        return line
    style = "selected" if cursor.value is None else "title"
    return tuple(Span(span.text, style) for span in line)


def _values(
    toggle: Toggle, now: Situation, snapshot: Snapshot, cursor: Cursor, room: tuple[int, int], look: Look
) -> tuple[list[Line], dict[int, int]]:
    """The right part, and the index of the value on each of its lines."""
    width, height = room
    family = "" if toggle.family == toggle.name.lower() else toggle.family
    lines: list[Line] = [(Span(toggle.name, "headline"), Span(f"  {family}", "label"))]
    lines += [*wrapped(toggle.help, width), ()]
    offered = choices(toggle, now)
    if not offered:
        return [*lines, *wrapped("Its state is not known.", width)], {}
    below = _below(offered, now, snapshot, cursor, width)
    n_rows = max(min(len(offered), height - len(lines) - len(below)), 1)
    here = cursor.value if cursor.value is not None else next((i for i, c in enumerate(offered) if c.is_current), 0)
    first = _first_shown(len(offered), here, n_rows)
    shown = range(first, min(first + n_rows, len(offered)))
    places = {len(lines) + place: index for place, index in enumerate(shown)}
    lines += [_value_line(offered[index], index == cursor.value, width, look) for index in shown]
    return [*lines, *below][:height], places


def _value_line(choice: Choice, is_here: bool, room: int, look: Look) -> Line:
    sign = look.recording if choice.is_current else look.cross if choice.refusal is not None else " "
    kind = "in force" if choice.is_current else "refused" if choice.refusal is not None else choice.kind.value
    is_dim = choice.refusal is not None
    line = fitted(
        (Span(f"{sign} ", "accent" if choice.is_current else "label"),
         Span(f"{printable(choice.label):<18}", "label" if is_dim else "value"), Span(kind, "label")),
        room, look.ellipsis,
    )  # fmt: skip
    return tuple(Span(span.text, "selected") for span in line) if is_here else line


def _below(offered: Sequence[Choice], now: Situation, snapshot: Snapshot, cursor: Cursor, room: int) -> list[Line]:
    """What there is to say about the value that is selected."""
    if cursor.value is None or cursor.value >= len(offered):
        return [(), *wrapped(now.unavailable, room)] if now.unavailable is not None else []
    choice = offered[cursor.value]
    if choice.is_current:
        return [(), *wrapped("This is in force, or asked for.", room)]
    if choice.refusal is not None:
        again = " Enter asks the engine once more." if choice.has_been_refused and now.unavailable is None else ""
        return [(), *wrapped(f"Refused: {choice.refusal}{again}", room, "warning")]
    lines: list[Line] = [(), *wrapped(cost(choice, snapshot), room)]
    for text in filter(None, (choice.note, choice.detail)):
        lines += wrapped(text, room, "")
    return lines


def _first_shown(n: int, here: int, room: int) -> int:
    """First of `n` rows that is shown in `room` lines, so that `here` is among them."""
    return max(min(here - room // 2, n - room), 0)
