"""The toggles as chips on a few lines: key, name and state of each, the least important folded away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stackscope.tui.lines import Line, Span, fitted, width
from stackscope.tui.toggles import TOGGLES, awaited, is_settling, is_stuck, state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.tui.bindings import Keymap
    from stackscope.tui.look import Look
    from stackscope.tui.situation import Situation

GAPS: Final = (3, 2)
"""Cells between chips, where everything fits and where not."""


@dataclass(frozen=True)
class Chip:
    """One toggle on the bar."""

    id: str
    line: Line
    is_moving: bool
    """It was asked for, or settles: it is not folded away."""


def chips(situation: Situation, keymap: Keymap, look: Look) -> tuple[Chip, ...]:
    """All toggles, most important first."""
    found = []
    for toggle in TOGGLES:
        # Brackets stand together: `[ ] draft 5`.
        ids = [f"{toggle.id}_back", toggle.id] if toggle.key == "right_square_bracket" else [toggle.id]
        keys = " ".join(keymap.shown(id) for id in ids)
        new = awaited(toggle, situation)
        settles = is_settling(toggle, situation)
        is_dim = situation.unavailable is not None or is_stuck(toggle, situation) is not None
        text, short = state(toggle, situation), f" {toggle.short} " if toggle.short else " "
        line: list[Span] = [Span(keys, "label" if is_dim else "key"), Span(short, "label")]
        line.append(Span(text, "label" if is_dim or text == new else "value"))
        if new is not None:
            line.append(Span(f"{look.arrow}{new}", "accent"))
        elif settles:
            line.append(Span(look.ellipsis, "accent"))
        if is_dim and situation.unavailable is None:
            line.append(Span(look.cross, "label"))
        found.append(Chip(toggle.id, tuple(line), is_moving=new is not None or settles))
    return tuple(found)


def laid_out(all_chips: Sequence[Chip], room: int, n_lines: int, keymap: Keymap, look: Look) -> tuple[Line, ...]:
    """The chips on at most `n_lines` lines of `room` cells, and how many are folded away."""
    for gap in GAPS:
        lines = _flowed([chip.line for chip in all_chips], room, gap)
        if len(lines) <= n_lines:
            return tuple(fitted(line, room, look.ellipsis) for line in lines)
    by_importance = sorted(range(len(all_chips)), key=lambda index: (not all_chips[index].is_moving, index))
    for n_kept in range(len(all_chips) - 1, 0, -1):
        kept = [all_chips[index].line for index in sorted(by_importance[:n_kept])]
        lines = _flowed([*kept, _fold(len(all_chips) - n_kept, keymap, look)], room, GAPS[-1])
        if len(lines) <= n_lines:
            break
    return tuple(fitted(line, room, look.ellipsis) for line in lines[:n_lines])


def _fold(n: int, keymap: Keymap, look: Look) -> Line:
    return (Span(f"{look.ellipsis} +{n} more ", "label"), Span(keymap.shown("toggles"), "key"))


def _flowed(items: Sequence[Line], room: int, gap: int) -> list[Line]:
    """Items on as many lines as they take, with a margin of one cell at the left."""
    lines: list[Line] = []
    current: list[Span] = []
    used = 0
    for item in items:
        size = width(item)
        if current and used + gap + size > room:
            lines.append(tuple(current))
            current = []
        if current:
            current.append(Span(" " * gap))
            used += gap
        else:
            current.append(Span(" "))
            used = 1
        current += item
        used += size
    lines.append(tuple(current))
    return lines
