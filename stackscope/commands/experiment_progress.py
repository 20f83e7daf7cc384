"""What an experiment says on stderr: what it is going to run, then which block, which cell, how long it will take."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stackscope import units
from stackscope.characters import harmless
from stackscope.commands.still_bar import StillBar

if TYPE_CHECKING:
    from stackscope.experiments.blocks import Standing
    from stackscope.experiments.plan import Blocks


class ExperimentProgress(StillBar):
    """A bar that moves between runs only; where there is no terminal, a line for each run that begins."""

    def __init__(self, *, is_quiet: bool) -> None:
        super().__init__("starting", is_quiet=is_quiet)
        self._is_quiet = is_quiet

    def opening(self, plan: str, n_done: int, *, is_over: bool) -> None:
        """Say what is going to run, and what of it was there already; nothing where it is quiet."""
        if self._is_quiet:
            return
        there = "" if n_done == 0 else f"; {units.count(n_done)} {'was' if n_done == 1 else 'were'} there already"
        missing = ", and none is missing" if is_over else ""
        self._say(f"{plan}{there}{missing}")

    def show(self, text: str, fraction: float) -> None:
        """Show how far it is, 0 to 1, and any text."""
        super().show(text, fraction)
        if not self._is_quiet and not self.is_on_terminal:
            self._say(text)

    def _say(self, text: str) -> None:
        print(f"stackscope: {harmless(text)}", file=sys.stderr, flush=True)

    def take(self, standing: Standing, label: str) -> None:
        """Show how far it is, and what runs next."""
        self.show(
            f"block {standing.block + 1} of {standing.n_blocks}, run {standing.n_done + 1} of {standing.n_total}: "
            f"{label}, {left(standing.left_s)}",
            standing.n_done / standing.n_total,
        )


def planned(blocks: Blocks, n_cells: int, what: str) -> str:
    """What blocks are going to hold, in words: `5 cells in 8 blocks: 40 runs`."""
    n = blocks.first
    told = f"{units.counted(n_cells, what)} in {units.counted(n, 'block')}: {units.counted(n * n_cells, 'run')}"
    return f"{told}, fewer or more as intervals ask" if blocks.is_adaptive else told


def left(seconds: float) -> str:
    """How long it will take, for people: `about 4 min left`."""
    return f"about {units.duration(round(seconds) * 10**9)} left"
