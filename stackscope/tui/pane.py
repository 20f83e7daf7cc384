"""What a pane is: from a snapshot, a size and a look to a note in the border and lines. Nothing is drawn here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from stackscope.tui.compose import shortened
from stackscope.tui.lines import Span, fitted, spelled, width
from stackscope.tui.look import UNICODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.lines import Line
    from stackscope.tui.look import Look


LEAST_WITH_MARGIN: Final = 30
"""Cells from which a pane leaves one free at either side."""


class Size(NamedTuple):
    """Room inside the border, in cells."""

    width: int
    height: int


@dataclass(frozen=True)
class PaneHelp:
    """One paragraph, behind F1: what the numbers mean, how they are computed, what would move them."""

    meaning: str
    formula: str
    moves: str


@dataclass(frozen=True, kw_only=True)
class Context:
    """All that a pane may look at. Whoever owns the screen makes one for each painting of each pane."""

    snapshot: Snapshot
    size: Size
    look: Look = UNICODE
    selected: int | None = None
    """Id of the request that is selected. `None`: nobody chose one."""
    text: str | None = None
    """What the selected request has generated so far, or its end. `None`: not known."""
    end: str | None = None
    """How the engine ended, in a sentence. `None`: it did not, or that is not known."""
    is_paused: bool = False
    """The display stands still; the engine goes on."""
    scrolled: int = 0
    """Rows of a list that are passed over, as far as there are others: see `Pane.reach`."""


@dataclass(frozen=True)
class Content:
    """What a pane shows."""

    lines: tuple[Line, ...]
    """At most as many as fit; each at most as wide as fits."""
    note: Line = ()
    """Right end of the upper border: the pane's headline. Never wider than the pane, less what its title takes."""


@dataclass(frozen=True)
class Drawn:
    """What a pane would show, before it is made to fit."""

    lines: Sequence[Line]
    notes: Sequence[Line] = ()
    """Wordings of the note from the fullest to the shortest: the first that has room beside the title is taken."""


class Pane(ABC):
    """One pane of the live screen. Stateless, so that any snapshot can be drawn at any size in any order."""

    id: ClassVar[str]
    """As in `layout` and in CSS."""
    title: ClassVar[str]
    help: ClassVar[PaneHelp]
    is_list: ClassVar[bool] = False
    """While it is focused, up and down scroll it."""

    def content(self, context: Context) -> Content:
        """The pane at this size, whatever the size: never more lines or cells than there are."""
        size, look = context.size, context.look
        if size.width < 1 or size.height < 1:
            return Content(())
        inner = _inside(context)
        drawn = self.drawn(inner)
        blank: Line = (Span(" "),) if inner is not context else ()
        lines = tuple([(*blank, *_kept(line, inner.size.width, look)) for line in drawn.lines[: size.height]])
        room = size.width - len(self.title) - 7
        note = next((line for line in drawn.notes if line and width(line) <= room), ())
        return Content(lines, spelled(note, look))

    def reach(self, context: Context) -> int:
        """How far it can be scrolled at this size. 0: all is in sight, or it is no list."""
        if context.size.width < 1 or context.size.height < 1:
            return 0
        return self.hidden(_inside(context))

    def hidden(self, context: Context) -> int:  # noqa: ARG002 - for those that are lists
        """Rows to pass over at most, so that the last one is in sight. Asked at a size of at least 1 × 1."""
        return 0

    @abstractmethod
    def drawn(self, context: Context) -> Drawn:
        """The pane at a size of at least 1 × 1. Most important first; a smaller size leaves out what matters least.

        A width below 20 cells need not be beautiful: what is too wide is cut.
        """


def _inside(context: Context) -> Context:
    """The same without the margins, where there are some."""
    width, height = context.size
    return context if width < LEAST_WITH_MARGIN else replace(context, size=Size(width - 2, height))


def _kept(line: Line, room: int, look: Look) -> Line:
    line = spelled(line, look)
    return line if width(line) <= room else fitted(shortened(line, room, look.ellipsis), room, look.ellipsis)
