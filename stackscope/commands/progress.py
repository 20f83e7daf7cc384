"""The progress line of a run, on stderr: what is loading, then requests done and tokens per second now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from stackscope import units
from stackscope.records import RequestRecord, StepRecord

if TYPE_CHECKING:
    from types import TracebackType

    from stackscope.engine import wire
    from stackscope.records import AnyRecord
    from stackscope.workload.spec import WorkloadSpec

WINDOW_NS: Final = 1_000_000_000
"""The rate shown is that of the last second: it moves when the engine's does."""
UPDATES_PER_S: Final = 4
"""The engine needs the cores more than the bar does."""
ALMOST: Final = 0.999
"""The most that loading shows: a bar that was once full stops its clock."""


class Progress:
    """A bar that is only there on a terminal; elsewhere nothing is written."""

    def __init__(self, workload: WorkloadSpec, *, is_quiet: bool) -> None:
        console = Console(stderr=True)
        self._is_shown = console.is_terminal and not is_quiet
        self._total = workload.requests
        self._duration_ns = None if workload.duration_s is None else round(workload.duration_s * 1e9)
        self._bar = Bar(
            SpinnerColumn("dots" if console.encoding.startswith("utf") else "line"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not self._is_shown,
            transient=True,
            refresh_per_second=UPDATES_PER_S,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("starting", total=None if workload.is_endless else 1.0, figures="")
        self._done = 0
        self._window: list[tuple[int, int]] = []
        self._window_tokens = 0
        self._began_ns: int | None = None
        """When the first step began. `None`: none has been seen."""
        self._shown_ns = 0

    def __enter__(self) -> Self:
        self._bar.start()
        if self._is_shown:
            # Hidden, it would stay so in the shell after ^Z or a kill.
            self._bar.console.show_cursor(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def loading(self, message: wire.Loading) -> None:
        """A model is being loaded."""
        what = f"loading {Path(message.what).name}"
        self._bar.update(self._task, description=what, completed=min(message.fraction, ALMOST), refresh=True)

    def take(self, record: AnyRecord) -> None:
        """Follow the run."""
        if not self._is_shown:
            return
        if isinstance(record, RequestRecord):
            self._done += 1
        elif isinstance(record, StepRecord):
            if self._began_ns is None:
                self._began_ns = record.start_ns
            self._window.append((record.end_ns, record.emitted))
            self._window_tokens += record.emitted
            self.look(record.end_ns)

    def look(self, now_ns: int) -> None:
        """Show how far it is at this instant of the session, if it is time to."""
        if self._began_ns is not None and now_ns - self._shown_ns >= 1_000_000_000 // UPDATES_PER_S:
            self._show(now_ns, began_ns=self._began_ns)

    def _show(self, now_ns: int, *, began_ns: int) -> None:
        self._shown_ns = now_ns
        since_ns = max(began_ns, now_ns - WINDOW_NS)
        n_old = 0
        while n_old < len(self._window) and self._window[n_old][0] < since_ns:
            self._window_tokens -= self._window[n_old][1]
            n_old += 1
        del self._window[:n_old]
        span_ns = max(now_ns - since_ns, 1)
        of_total = "" if self._total is None else f" of {units.count(self._total)}"
        figures = (
            f"{units.count(self._done)}{of_total} requests  {units.token_rate(self._window_tokens * 1e9 / span_ns)}"
        )
        completed = 0.0
        if self._total is not None:
            completed = self._done / self._total
        elif self._duration_ns is not None:
            completed = min(1.0, (now_ns - began_ns) / self._duration_ns)
        self._bar.update(self._task, description="running", completed=completed, figures=figures)
