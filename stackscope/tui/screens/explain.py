"""The screen of the evidence behind the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from stackscope.tui.evidence import Counted, counted, evidence
from stackscope.tui.lines import spelled
from stackscope.tui.pane import PaneHelp
from stackscope.tui.screens.framed import FramedScreen
from stackscope.tui.widgets.scrolled import Scrolled

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from stackscope.tui.bindings import Scope
    from stackscope.tui.feed import Frame

_WIDEST: Final = 132
"""Longer lines are hard to follow."""
_AGAIN_NS: Final = 1_000_000_000
"""How long a count of bytes stays: counting takes longer than drawing."""


class ExplainScreen(FramedScreen):
    """Scrolls; what changes is drawn again in place."""

    DEFAULT_CSS: ClassVar[str] = """
    ExplainScreen Scrolled { padding: 0 1; }
    """
    here = "screen_explain"
    scope: ClassVar[Scope] = "running"
    help_title = "Explain"
    help = PaneHelp(
        meaning="Everything that the verdict rests on: where wall time goes, which bytes are moved and which operations"
        " are done for it, at what rates, and what is missing for a full explanation.",
        formula="Bytes and operations are counted, not measured: weights once per pass, by the tensor table; KV by the"
        " tokens that each sequence has cached; divided by the steps that were counted. Rates divide them by time.",
        moves="What takes most of the time, and what is moved most, is what a change can win. Where the two do not fit"
        " together, something else is in the way.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._counted: Counted | None = None
        self._counted_at: tuple[int, int] | None = None
        """(instant, configuration) of the last count."""

    def body(self) -> ComposeResult:
        yield Scrolled(id="evidence")

    def on_mount(self) -> None:
        self.query_one(Scrolled).focus()

    def draw(self, frame: Frame) -> None:
        view = self.query_one(Scrolled)
        if view.size.width < 1:
            return
        snapshot = frame.snapshot
        last = self._counted_at
        if last is None or last[1] != snapshot.epoch or not 0 <= snapshot.at_ns - last[0] < _AGAIN_NS:
            self._counted = counted(snapshot, self.owner.feed.steps)
            self._counted_at = (snapshot.at_ns, snapshot.epoch)
        look = self.owner.look
        lines = evidence(snapshot, self._counted, min(view.room, _WIDEST), look)
        view.paint([spelled(line, look) for line in lines])
