"""The help, and what one pane means."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.binding import Binding
from textual.containers import Vertical

from stackscope.tui.help_lines import help_lines, pane_lines
from stackscope.tui.lines import Line, Span, spelled
from stackscope.tui.screens.modal import Modal
from stackscope.tui.widgets.painted import Bar
from stackscope.tui.widgets.scrolled import Scrolled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from stackscope.tui.app import StackscopeApp
    from stackscope.tui.bindings import Scope
    from stackscope.tui.pane import Pane, PaneHelp

_WIDEST: Final = 116
"""Longer lines are hard to follow."""


class Reading(Modal[None]):
    """Lines to be read over whatever is on the screen; escape closes."""

    DEFAULT_CSS: ClassVar[str] = """
    Reading { align: center middle; }
    Reading > Vertical { background: $surface; border: round $border; border-title-color: $foreground; padding: 0 1; }
    """
    BINDINGS: ClassVar = [Binding("escape,q,question_mark,f1,enter", "close", show=False)]
    title_text: str = ""

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self.title_text
            yield Scrolled()
            yield Bar()

    def on_mount(self) -> None:
        self.query_one(Scrolled).focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def lines(self, room: int) -> Sequence[Line]:
        """What there is to read."""
        raise NotImplementedError

    def draw(self) -> None:
        """Lay the lines out for the width there is."""
        view = self.query_one(Scrolled)
        if view.size.width < 1:
            return
        look = cast("StackscopeApp", self.app).look
        view.paint([spelled(line, look) for line in self.lines(view.room)])
        arrows = "up/down" if look.is_ascii else "↑↓"
        pairs = ((arrows, "scroll"), ("esc", "close"))
        self.query_one(Bar).show(
            tuple(part for key, what in pairs for part in (Span(key, "key"), Span(f" {what}   ", "label")))
        )

    def action_close(self) -> None:
        self.dismiss(None)


class HelpScreen(Reading):
    """All keys and all panes."""

    DEFAULT_CSS: ClassVar[str] = """
    HelpScreen > Vertical { width: 96%; max-width: 120; height: 96%; }
    """
    title_text = "Help"

    def __init__(self, panes: Sequence[Pane], *, first: Sequence[Scope] = ()) -> None:
        """`first`: scopes that matter most where help was asked for."""
        super().__init__()
        self._panes = panes
        self._first = first

    def lines(self, room: int) -> Sequence[Line]:
        keys = cast("StackscopeApp", self.app).keys
        return help_lines(keys, self._panes, min(room, _WIDEST), first=self._first)


class PaneHelpScreen(Reading):
    """What the numbers of one pane mean."""

    DEFAULT_CSS: ClassVar[str] = """
    PaneHelpScreen > Vertical { width: 90%; max-width: 92; height: 90%; max-height: 22; }
    """

    def __init__(self, title: str, help: PaneHelp) -> None:
        super().__init__()
        self.title_text = title
        self._help = help

    def lines(self, room: int) -> Sequence[Line]:
        return pane_lines(self._help, room)
