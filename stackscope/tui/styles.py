"""How Textual's own parts look: our colours as one of its themes, and borders that every terminal can draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter, Monochrome, NoColor
from textual.theme import Theme

from stackscope.tui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.color import Color

CSS: Final = """
Screen { background: $background; color: $foreground; overflow: hidden; }
ModalScreen { background: $background 40%; }
ToastRack { dock: top; align: right top; margin-bottom: 0; }
LiveScreen ToastRack { margin-top: 5; }
CommandPalette SearchIcon { display: none; }
CommandPalette > Vertical, CommandPalette > Vertical:dark { background: $surface; }
CommandPalette #--input { border: hkey $border-blurred; }
CommandPalette #--input.--list-visible { border-bottom: none; }
CommandPalette CommandList { border-bottom: hkey $border-blurred; }
.-ascii ModalScreen > Vertical, .-ascii CommandPalette #--input, .-ascii CommandPalette #--results,
.-ascii CommandPalette CommandList {
    border: ascii $border;
}
.-ascii Toast { border-left: ascii $border; }
.-ascii StepsScreen #details { border-top: ascii $border; }
.-ascii StepsScreen .beside #details { border-top: none; border-left: ascii $border; }
.-ascii Scrolled { scrollbar-size-vertical: 0; }
"""
"""Of the application: what screens and widgets say of themselves comes before it."""


_ANSI_VARIABLES: Final = {
    "ansi-background": "ansi_black",
    "ansi-foreground": "ansi_white",
    "border": "ansi_bright_black",
    "border-blurred": "ansi_bright_black",
    "block-cursor-foreground": "ansi_black",
    "block-cursor-background": "ansi_white",
    "input-cursor-background": "ansi_white",
    "input-cursor-foreground": "ansi_black",
    "input-cursor-text-style": "none",
    "input-selection-background": "ansi_bright_blue",
    "input-selection-foreground": "ansi_black",
    "screen-selection-background": "ansi_bright_blue",
    "screen-selection-foreground": "ansi_black",
}
"""What Textual's own stylesheets ask of a theme of the terminal's colours."""

_MONO_VARIABLES: Final = _ANSI_VARIABLES | dict.fromkeys(
    ("scrollbar-background", "scrollbar-background-hover", "scrollbar-background-active"), "ansi_default"
)
"""A painted track would be reversed, as the thumb is."""


class Colourless(LineFilter):
    """Takes out every colour; what stands on a painted background, as cursors and selections do, is reversed."""

    _PLAIN: Final = Style(color="default", bgcolor="default")
    _PAINTED: Final = Style(color="default", bgcolor="default", reverse=True)

    def apply(self, segments: list[Segment], _background: Color) -> list[Segment]:
        return [Segment(text, self._without(style), control) for text, style, control in segments]

    def _without(self, style: Style | None) -> Style | None:
        if style is None:
            return None
        is_painted = style.bgcolor is not None and not style.bgcolor.is_default
        return style + (self._PAINTED if is_painted else self._PLAIN)


_COLOURLESS: Final = Colourless()
"""One for all: lines remember what a filter made of them."""


def textual_theme(kind: theme.Kind) -> Theme:
    """A theme of Textual's with the colours of ours."""
    base = theme.BASES.get(kind)
    if base is None:
        return Theme(
            name=f"stackscope-{kind}", primary="ansi_yellow", secondary="ansi_yellow", accent="ansi_yellow",
            success="ansi_green", warning="ansi_yellow", error="ansi_red", foreground="ansi_default",
            background="ansi_default", surface="ansi_default", panel="ansi_default", boost="ansi_default", ansi=True,
            variables=_MONO_VARIABLES if kind == "mono" else _ANSI_VARIABLES,
        )  # fmt: skip
    return Theme(
        name=f"stackscope-{kind}", primary=base.accent, accent=base.accent, foreground=base.foreground,
        background=base.background, surface=base.surface, panel=base.surface, success=base.good, warning=base.warning,
        error=base.bad, dark=base.is_dark, variables=_scrollbars(kind),
    )  # fmt: skip


def line_filters(kind: theme.Kind, own: Sequence[LineFilter]) -> list[LineFilter]:
    """Textual's own filters, but for those that `NO_COLOR` adds; without colours, one that takes out every colour.

    Textual chooses its filter before it knows our theme: it makes greys of colours, and black of the terminal's own
    background.
    """
    kept = [each for each in own if not isinstance(each, (Monochrome, NoColor))]
    return [*kept, _COLOURLESS] if kind == "mono" else kept


def _scrollbars(kind: theme.Kind) -> dict[str, str]:
    """As quiet as the axes of charts: Textual would give them the accent, on black."""
    styles = theme.STYLES[kind]
    thumbs = dict.fromkeys(("scrollbar", "scrollbar-hover", "scrollbar-active"), styles["axis"])
    tracks = ("scrollbar-background", "scrollbar-background-hover", "scrollbar-background-active")
    return thumbs | dict.fromkeys(tracks, styles["track"])
