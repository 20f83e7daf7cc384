"""A progress bar on stderr that stands still unless it is told to move: what is measured wants the cores for itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator


class StillBar:
    """A bar that is only there on a terminal. A context manager: leaving it takes the bar away."""

    def __init__(self, text: str, *, is_quiet: bool) -> None:
        """`text` stands beside it at first. `is_quiet`: it is not shown on a terminal either."""
        console = Console(stderr=True)
        self.is_on_terminal = console.is_terminal
        self._bar = Progress(
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
        self._task = self._bar.add_task(text, total=1.0)

    def show(self, text: str, fraction: float) -> None:
        """Show how far it is, 0 to 1, and any text."""
        self._bar.update(self._task, description=text, completed=fraction, refresh=True)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the lines of the bar, cleared, to what is written meanwhile, which has to end them."""
        self._bar.update(self._task, visible=False, refresh=True)
        yield
        self._bar.update(self._task, visible=True, refresh=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
