"""Colours for meanings: on dark and light backgrounds, for terminals of 16 colours, and for those of none.

One accent; everything else is grey, but for the parts of a step, which need ten hues apart. Those are derived from
the palette of Okabe and Ito (Color Universal Design, 2008) and differ in lightness from the parts beside them, so that
they stay apart for the colour-blind. Nothing is told by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rich.style import Style

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = Literal["dark", "light", "ansi", "mono"]
"""`ansi`: the sixteen colours of the terminal's own palette, on its own background. `mono`: no colours."""

TEXT_STYLES: Final = (
    "", "label", "value", "unit", "unknown", "headline", "accent", "good", "bad", "warning", "selected", "key", "title",
)  # fmt: skip
"""Styles of text that is read: their contrast is at least 4.5 to 1."""
GRAPHIC_STYLES: Final = ("chart", "spare", "track", "axis", "mark", "mark.inside", "border", "border.focus")
"""Styles of what is looked at."""
PARTS: Final = (
    "prefill", "decode", "verify", "draft", "sample", "schedule", "emit", "shadow", "idle", "unexplained",
)  # fmt: skip
"""As in the snapshot. Their styles are called `part.prefill` and so on, and `part.prefill.label` is text upon one."""


@dataclass(frozen=True)
class Base:
    """The colours of a whole screen, for the theme that the application registers."""

    is_dark: bool
    background: str
    surface: str
    """Bars at the edges, dialogs."""
    foreground: str
    accent: str
    good: str
    warning: str
    bad: str


BASES: Final[Mapping[Kind, Base]] = {
    "dark": Base(
        is_dark=True, background="#0f1318", surface="#191f27", foreground="#c6ced8", accent="#ffc861",
        good="#63cf9d", warning="#f2a65a", bad="#ff8674",
    ),
    "light": Base(
        is_dark=False, background="#fcfcfa", surface="#eceef0", foreground="#2b323b", accent="#875400",
        good="#17703f", warning="#8f4a00", bad="#b3261e",
    ),
}  # fmt: skip

_STYLES: Final[Mapping[Kind, Mapping[str, str]]] = {
    "dark": {
        "": "#c6ced8", "label": "#8a95a5", "value": "bold #f3f6fa", "unit": "#8a95a5", "unknown": "#8a95a5",
        "headline": "bold #ffc861", "accent": "#ffc861", "good": "#63cf9d", "bad": "bold #ff8674",
        "warning": "#f2a65a", "selected": "bold #0f1318 on #c6ced8", "key": "bold #ffc861", "title": "bold #f3f6fa",
        "chart": "#6ea3d8", "spare": "#2f3a48", "track": "#2a323d", "axis": "#5b6676",
        "mark": "#ffc861", "mark.inside": "#ffd88a", "border": "#3a4554", "border.focus": "#ffc861",
        "part.prefill": "#2fae86", "part.decode": "#2a66b8", "part.verify": "#7cc6f2", "part.draft": "#dd7a24",
        "part.sample": "#f6c6e2", "part.schedule": "#a8432c", "part.emit": "#f0e087", "part.shadow": "#8f3f8c",
        "part.idle": "#394453", "part.unexplained": "#8f97a3",
    },
    "light": {
        "": "#2b323b", "label": "#5a6471", "value": "bold #0c1118", "unit": "#5a6471", "unknown": "#5a6471",
        "headline": "bold #875400", "accent": "#875400", "good": "#17703f", "bad": "bold #b3261e",
        "warning": "#8f4a00", "selected": "bold #fcfcfa on #2b323b", "key": "bold #875400", "title": "bold #0c1118",
        "chart": "#3a73ad", "spare": "#cfd6de", "track": "#dde2e7", "axis": "#8b95a1",
        "mark": "#b07100", "mark.inside": "#ffe9b8", "border": "#b4bcc6", "border.focus": "#b07100",
        "part.prefill": "#2a9d7f", "part.decode": "#1f568f", "part.verify": "#55addf", "part.draft": "#bf5a12",
        "part.sample": "#d678b4", "part.schedule": "#8f3420", "part.emit": "#bfab28", "part.shadow": "#8c2a68",
        "part.idle": "#cfd5dc", "part.unexplained": "#78808c",
    },
    "ansi": {
        "": "default", "label": "default", "value": "bold default", "unit": "default", "unknown": "default",
        "headline": "bold yellow", "accent": "yellow", "good": "green", "bad": "bold red", "warning": "yellow",
        "selected": "reverse", "key": "bold yellow", "title": "bold default",
        "chart": "cyan", "spare": "bright_black", "track": "bright_black",
        "axis": "bright_black", "mark": "yellow", "mark.inside": "yellow", "border": "bright_black",
        "border.focus": "yellow",
        "part.prefill": "green", "part.decode": "blue", "part.verify": "bright_cyan", "part.draft": "yellow",
        "part.sample": "bright_magenta", "part.schedule": "red", "part.emit": "bright_yellow",
        "part.shadow": "magenta", "part.idle": "bright_black", "part.unexplained": "white",
    },
    "mono": {
        "": "", "label": "dim", "value": "bold", "unit": "dim", "unknown": "dim", "headline": "bold", "accent": "bold",
        "good": "", "bad": "bold", "warning": "bold", "selected": "reverse", "key": "bold underline", "title": "bold",
        "chart": "", "spare": "dim", "track": "dim", "axis": "dim", "mark": "bold", "mark.inside": "bold",
        "border": "dim", "border.focus": "bold", **{f"part.{part}": "" for part in PARTS},
    },
}  # fmt: skip


def _labels(kind: Kind) -> dict[str, str]:
    """Styles of text upon the parts: on a palette of our own, black or white, whichever stands out more."""
    if kind == "mono":
        return {f"part.{part}.label": "reverse" for part in PARTS}
    colours = {part: _STYLES[kind][f"part.{part}"] for part in PARTS}
    if kind == "ansi":
        return {f"part.{part}.label": f"reverse {colour}" for part, colour in colours.items()}
    return {f"part.{part}.label": f"{_ink(colour)} on {colour}" for part, colour in colours.items()}


def _ink(colour: str) -> str:
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Ratio of two `#rrggbb` colours' luminances, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of a `#rrggbb` colour, from 0 to 1 (WCAG 2.2)."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


STYLES: Final[Mapping[Kind, Mapping[str, str]]] = {kind: {**_STYLES[kind], **_labels(kind)} for kind in _STYLES}
"""For each kind, the style of each meaning in rich's notation."""


@cache
def style(kind: Kind, name: str) -> Style:
    """The style of a meaning. `this on that` is the foreground of one on that of another, for cells of two colours."""
    front, _, back = name.partition(" on ")
    found = Style.parse(STYLES[kind][front] or "none")
    if not back or kind == "mono":
        return found
    return found + Style(bgcolor=style(kind, back).color)
