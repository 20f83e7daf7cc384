"""The screen of single steps: a waterfall that follows the newest, and everything about the one that is selected."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.containers import Container

from stackscope import units
from stackscope.tui.bindings import bindings
from stackscope.tui.lines import Line, Span, spelled, spread
from stackscope.tui.pane import PaneHelp
from stackscope.tui.screens.framed import FramedScreen
from stackscope.tui.step_details import details
from stackscope.tui.steps import SLOW, Divider, Waterfall, heading, waterfall
from stackscope.tui.widgets.painted import Bar
from stackscope.tui.widgets.scrolled import Scrolled
from stackscope.tui.widgets.step_list import StepList

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from stackscope.records import StepRecord
    from stackscope.tui.feed import Frame

_BESIDE: Final = 150
"""Columns from which the details stand beside the list."""
_BELOW: Final = 30
"""Rows from which they stand below it, in a narrower terminal."""


class StepsScreen(FramedScreen):
    """Steps, the newest at the bottom."""

    DEFAULT_CSS: ClassVar[str] = """
    StepsScreen #steps { height: 1fr; layout: vertical; }
    StepsScreen #steps.beside { layout: horizontal; }
    StepsScreen #list { height: 1fr; width: 1fr; }
    StepsScreen #details { display: none; height: 13; border-top: solid $border; padding: 0 1; }
    StepsScreen .beside #details { display: block; width: 62; height: 1fr; border: none; border-left: solid $border; }
    StepsScreen .below #details { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("steps")]
    here = "screen_steps"
    scope = "steps"
    help_title = "Steps"
    help = PaneHelp(
        meaning="One line for each turn of the engine's loop, the newest at the bottom: how long it took and for what,"
        " to one scale for all lines; who was in the batch; how many tokens were drafted, kept of those, and put out;"
        " how many prompt tokens the prefix cache had. The batch is told by slot: 0d decodes, 1v4 verifies a draft in"
        " 4 rows, 2p256 prefills 256 rows; where that is too long, by kind: 5×d.",
        formula="The forward is divided by its rows: P prompt rows, D one row for each sequence that decodes, V drafted"
        " rows. d obtaining drafts, s sampling, c scheduling, e emitting, h shadows, ? the rest. After the number:"
        " ! cut short, ~ settling, x invalid text. A bar that runs over the edge ends in a pointer.",
        moves="Long P: the token budget cuts prompts into chunks. Long V for few kept tokens: a shorter draft. Slow"
        " steps alone, and a change of the configuration, can be gone to by their keys.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._is_slow_only = False
        self._shown: tuple[StepRecord, ...] = ()
        """What the list is made of; while it stands still, no longer the newest."""

    def body(self) -> ComposeResult:
        yield Bar(id="caption")
        yield Bar(id="heading")
        with Container(id="steps"):
            yield StepList(id="list")
            yield Scrolled(id="details")

    @property
    def _list(self) -> StepList:
        return self.query_one("#list", StepList)

    def on_mount(self) -> None:
        self._list.focus()

    def on_resize(self) -> None:
        width, height = self.size
        box = self.query_one("#steps", Container)
        box.set_class(width >= _BESIDE, "beside")
        box.set_class(width < _BESIDE and height >= _BELOW, "below")
        super().on_resize()

    def draw(self, frame: Frame) -> None:
        steps = self.owner.feed.steps
        is_other = bool(self._shown) and (not steps or steps[-1].n < self._shown[-1].n)
        if self._list.is_following or is_other or not self._shown:
            if is_other:
                self._list.is_following = True
            self._take(steps, frame)
        self._caption(frame, steps)
        self._details()

    def _take(self, steps: tuple[StepRecord, ...], frame: Frame) -> None:
        if steps and self._shown and steps[-1] is self._shown[-1] and self._list.waterfall.n_steps == len(steps):
            return
        self._shown = steps
        self._fill(frame)

    def _fill(self, frame: Frame) -> None:
        found = waterfall(self._shown, frame.snapshot.events, self.owner.look, is_slow_only=self._is_slow_only)
        self._list.show(found)

    def _caption(self, frame: Frame, steps: tuple[StepRecord, ...]) -> None:
        found: Waterfall = self._list.waterfall
        look = self.owner.look
        if not found.n_steps:
            text = "No step yet." if frame.snapshot.n_steps == 0 else "This source does not tell single steps."
            self.bar("caption").show((Span(f" {text}", "label"),))
            self.bar("heading").show(())
            return
        left: Line = (
            Span(" Steps", "title"),
            Span(f"  the newest {units.count(found.n_steps)}, median ", "label"),
            Span(units.duration(found.median_ns), "value"),
        )
        if self._is_slow_only:
            n = sum(1 for row in found.rows if not isinstance(row, Divider))
            left += (Span(f"   {units.count(n)} took {units.count(SLOW)} times that or more", "accent"),)
        newer = steps[-1].n - self._shown[-1].n if steps and self._shown else 0
        key = self.owner.keys.shown("steps_follow")
        state = (
            Span("following ", "label")
            if self._list.is_following
            else Span(
                f"{look.paused} {units.count(newer)} newer, {key} follows " if newer else f"{key} follows ", "warning"
            )
        )
        self.bar("caption").show(spelled(spread(left, (state,), self.size.width, look.ellipsis), look))
        self.bar("heading").show(spelled(heading(self._list.room, found.scale_ns, look), look))

    def _details(self) -> None:
        view = self.query_one("#details", Scrolled)
        if not view.display or view.size.width < 1:
            return
        step = self._list.selected
        config = self.owner.frame.snapshot.config
        threads = None if config is None else config.threads or self.owner.toggling.cores
        look = self.owner.look
        lines = () if step is None else details(step, threads, view.room, look)
        view.paint([spelled(line, look) for line in lines])

    def on_step_list_selected(self) -> None:
        frame = self.owner.frame
        self._caption(frame, self.owner.feed.steps)
        self._details()

    def action_filter(self) -> None:
        """Only slow steps, or all."""
        self._is_slow_only = not self._is_slow_only
        self._fill(self.owner.frame)
        self.show_again()

    def action_change(self, direction: int) -> None:
        """Go to the next change of the configuration, or the one before."""
        if not self._list.to_change(direction):
            self.owner.tell(f"There is no change {'after' if direction > 0 else 'before'} this step.")

    def action_follow(self) -> None:
        """Go to the newest step and stay there."""
        self._list.is_following = True
        self._shown = ()
        self.show_again()
        self._list.follow()

    def action_details(self) -> None:
        """Show the details, or hide them."""
        self.query_one("#steps", Container).toggle_class("below")
        self.call_after_refresh(self.show_again)
