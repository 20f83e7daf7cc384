"""How things are drawn on this terminal: Unicode or ASCII characters, with colours or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Look:
    """Characters to draw with."""

    is_ascii: bool = False
    has_colour: bool = True
    ellipsis: str = "…"
    eighths: str = " ▏▎▍▌▋▊▉█"
    """A horizontal bar's last cell, by eighths of it."""
    levels: str = " ▁▂▃▄▅▆▇█"
    """A sparkline's cell, by eighths of its height."""
    textures: str = "█▓▒░▚▞▦▤▨·"
    """One per part of a stacked bar, told apart without colour; used where there is none."""
    gap: str = " "
    """Where nothing is known."""
    mark: str = "┊"
    """Vertical line of a change on a chart."""
    dot: str = "·"
    times: str = "×"
    arrow: str = "→"
    plus_minus: str = "±"
    recording: str = "●"
    cross: str = "✗"
    tick: str = "✓"
    paused: str = "‖"


UNICODE: Final = Look()
ASCII: Final = Look(
    is_ascii=True,
    ellipsis="~",
    eighths=" -=#",
    levels=" .:-=+*#",
    textures="#=+-:*o%x.",
    mark="|",
    dot=".",
    times="x",
    arrow="->",
    plus_minus="+/-",
    recording="*",
    cross="x",
    tick="v",
    paused="||",
)
