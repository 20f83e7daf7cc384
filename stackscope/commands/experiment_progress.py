"""The progress line of an experiment, on stderr: which block, which cell, how long it will take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from stackscope import units

if TYPE_CHECKING:
    from stackscope.experiments.blocks import Standing


class ExperimentProgress:
    """A bar that is only there on a terminal, and moves between runs only: they want the cores for themselves."""

    def __init__(self, *, is_quiet: bool) -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn("dots" if console.encoding.startswith("utf") else "line"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            disable=is_quiet or not console.is_terminal,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("starting", total=1.0)

    def take(self, standing: Standing, label: str) -> None:
        """Show how far it is, and what runs next."""
        self.show(
            f"block {standing.block + 1} of {standing.n_blocks}, run {standing.n_done + 1} of {standing.n_total}: "
            f"{label}, {left(standing.left_s)}",
            standing.n_done / standing.n_total,
        )

    def show(self, text: str, fraction: float) -> None:
        """Show any text."""
        self._bar.update(self._task, description=text, completed=fraction, refresh=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def left(seconds: float) -> str:
    """How long it will take, for people: `about 4 min left`."""
    return f"about {units.duration(round(seconds) * 10**9)} left"
