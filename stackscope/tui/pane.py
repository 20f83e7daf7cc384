"""What a pane is: from a snapshot, a size and a look to a note in the border and lines. Nothing is drawn here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from stackscope.tui.lines import fitted, spelled, width
from stackscope.tui.look import UNICODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.tui.lines import Line
    from stackscope.tui.look import Look


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
    """What the selected request has generated so far, or its end. `None`: not known, and `text_missing` says why."""
    text_missing: str = ""
    """Why there is no text, in words."""
    is_paused: bool = False
    """The display stands still; the engine goes on."""


@dataclass(frozen=True)
class Content:
    """What a pane shows."""

    lines: tuple[Line, ...]
    """At most as many as fit; each at most as wide as fits."""
    note: Line = ()
    """Right end of the upper border: the pane's headline. Never wider than the pane, less what its title takes."""


class Pane(ABC):
    """One pane of the live screen. Stateless, so that any snapshot can be drawn at any size in any order."""

    id: ClassVar[str]
    """As in `layout` and in CSS."""
    title: ClassVar[str]
    help: ClassVar[PaneHelp]

    def content(self, context: Context) -> Content:
        """The pane at this size, whatever the size: never more lines or cells than there are."""
        size, look = context.size, context.look
        if size.width < 1 or size.height < 1:
            return Content(())
        drawn = self.drawn(context)
        lines = tuple([_kept(line, size.width, look) for line in drawn.lines[: size.height]])
        note = drawn.note if width(drawn.note) <= self.note_room(size) else ()
        return Content(lines, spelled(note, look))

    def note_room(self, size: Size) -> int:
        """Cells for the note beside the title in the upper border."""
        return size.width - len(self.title) - 6

    def note(self, variants: Sequence[Line], size: Size) -> Line:
        """The first variant that has room beside the title, from the fullest to the shortest."""
        room = self.note_room(size)
        return next((line for line in variants if line and width(line) <= room), ())

    @abstractmethod
    def drawn(self, context: Context) -> Content:
        """The pane at a size of at least 1 × 1. Most important first; a smaller size leaves out what matters least.

        A width below 20 cells need not be beautiful: what is too wide is cut.
        """


def _kept(line: Line, room: int, look: Look) -> Line:
    line = spelled(line, look)
    return line if width(line) <= room else fitted(line, room, look.ellipsis)
