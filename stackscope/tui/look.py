"""How things are drawn on this terminal: Unicode or ASCII characters, with many colours, few or none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Final

_PLAINER: Final = str.maketrans(
    {
        "…": "~", "·": ".", "×": "x", "→": ">", "±": "~", "µ": "u", "−": "-", "–": "-", "σ": "s", "≤": "<", "°": " ",
        "✗": "!", "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ",
    }
)  # fmt: skip
"""What stands for characters of ours in ASCII: one cell for one cell, so that nothing moves."""


@dataclass(frozen=True, eq=False)
class Look:
    """Characters to draw with. Looks are few and compared by identity, so that what is drawn can be kept by look."""

    is_ascii: bool = False
    has_colour: bool = True
    is_blended: bool = True
    """A cell may have one colour above or left of another: a terminal has backgrounds of every colour."""
    ellipsis: str = "…"
    eighths: str = " ▏▎▍▌▋▊▉█"
    """A horizontal bar's last cell, by parts of it."""
    levels: str = " ▁▂▃▄▅▆▇█"
    """A sparkline's cell, by parts of its height; the first is nothing at all."""
    textures: str = "▒█▓░▚▞▦▤·╱"
    """One per part of a stacked bar, told apart without colour; used where there is none."""
    gap: str = " "
    """Where nothing is known."""
    mark: str = "┊"
    """Vertical line of a change on a chart."""
    spare: str = "░"
    """What is left below a ceiling."""
    track: str = "─"
    """The rest of a bar's scale."""
    axis: str = "│"
    axis_end: str = "┤"
    origin: str = "┼"
    pointer: str = "▸"
    """Before what is selected."""
    swatch: str = "■"
    cursor: str = "▌"
    dot: str = "·"
    times: str = "×"
    arrow: str = "→"
    plus_minus: str = "±"
    recording: str = "●"
    cross: str = "✗"
    tick: str = "✓"
    paused: str = "‖"

    def spelled(self, text: str) -> str:
        """The text in characters that this terminal has, cell by cell; what has no likeness is a question mark."""
        if not self.is_ascii or text.isascii():
            return text
        text = text.translate(_PLAINER)
        return text if text.isascii() else "".join(map(_questioned, text))


def _questioned(character: str) -> str:
    from rich.cells import cell_len

    return character if character.isascii() else "?" * cell_len(character)


UNICODE: Final = Look()
ASCII: Final = Look(
    is_ascii=True,
    is_blended=False,
    ellipsis="~",
    eighths=" -=#",
    levels=" .:-=+*#",
    textures="=#+:%*ox.?",
    mark="|",
    spare=".",
    track=".",
    axis="|",
    axis_end="+",
    origin="+",
    pointer=">",
    swatch="#",
    cursor="_",
    dot=".",
    times="x",
    arrow="->",
    plus_minus="+/-",
    recording="*",
    cross="!",
    tick="v",
    paused="||",
)


@cache
def chosen(*, is_ascii: bool = False, n_colours: int = 1 << 24) -> Look:
    """The look for a terminal: with Unicode or without, and with that many colours (0: none)."""
    look = ASCII if is_ascii else UNICODE
    return replace(look, has_colour=n_colours > 0, is_blended=look.is_blended and n_colours > 16)
