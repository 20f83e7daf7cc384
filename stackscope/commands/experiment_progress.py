"""The progress line of an experiment, on stderr: which block, which cell, how long it will take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope import units
from stackscope.commands.still_bar import StillBar

if TYPE_CHECKING:
    from stackscope.experiments.blocks import Standing


class ExperimentProgress(StillBar):
    """A bar that moves between runs only."""

    def __init__(self, *, is_quiet: bool) -> None:
        super().__init__("starting", is_quiet=is_quiet)

    def take(self, standing: Standing, label: str) -> None:
        """Show how far it is, and what runs next."""
        self.show(
            f"block {standing.block + 1} of {standing.n_blocks}, run {standing.n_done + 1} of {standing.n_total}: "
            f"{label}, {left(standing.left_s)}",
            standing.n_done / standing.n_total,
        )


def left(seconds: float) -> str:
    """How long it will take, for people: `about 4 min left`."""
    return f"about {units.duration(round(seconds) * 10**9)} left"
