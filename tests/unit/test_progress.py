"""The progress line: how far, how fast just now, and that it is only there where somebody can see it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from stackscope.commands import progress
from stackscope.commands.progress import Progress
from stackscope.engine import wire
from stackscope.records import Phases
from stackscope.workload.spec import WorkloadSpec
from tests.analysis_builders import MS, decode, request, step

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000 * MS


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., io.StringIO]:
    """Puts a terminal in the place of standard error; what it shows."""

    def put(*, is_terminal: bool = True) -> io.StringIO:
        shown = io.StringIO()
        console = Console(file=shown, force_terminal=is_terminal, width=80)
        monkeypatch.setattr(progress, "Console", lambda **_: console)
        return shown

    return put


def figures(line: Progress) -> str:
    return str(line._bar.tasks[0].fields["figures"])


def done(line: Progress) -> float | None:
    task = line._bar.tasks[0]
    return None if task.total is None else task.completed / task.total


def test_the_rate_is_that_of_the_last_second(terminal: Callable[..., io.StringIO]) -> None:
    terminal()
    line = Progress(WorkloadSpec(name="unique", requests=4), is_quiet=False)
    # Steps of 100 ms from 5 s after the origin on: ten of 8 tokens, then ten of 2.
    for n in range(20):
        work = [decode(slot, cached=9) for slot in range(8 if n < 10 else 2)]
        line.take(step(*work, n=n, start_ns=5 * SECOND + n * 100 * MS, phases=Phases(decode=100 * MS)))
        if n == 4:
            assert figures(line) == "0 of 4 requests  80.0 tok/s"  # 40 tokens in the 0.5 s since it began
    line.take(request((7 * SECOND, 1)))
    line.look(7 * SECOND)
    assert figures(line).startswith("0 of 4")  # Not yet a quarter of a second since the last look.
    line.look(7 * SECOND + 250 * MS)
    assert figures(line) == "1 of 4 requests  16.0 tok/s"  # 8 steps of 2 in the last second, none in its last quarter
    assert done(line) == 0.25
    line.look(60 * SECOND)
    assert figures(line) == "1 of 4 requests  0 tok/s"


def test_a_run_by_duration_advances_with_time_and_one_without_end_does_not(
    terminal: Callable[..., io.StringIO],
) -> None:
    terminal()
    timed = Progress(WorkloadSpec(name="unique", duration_s=10), is_quiet=False)
    endless = Progress(WorkloadSpec(name="unique"), is_quiet=False)
    for line in (timed, endless):
        line.take(step(decode(0, cached=9), start_ns=3 * SECOND))
        line.look(8 * SECOND)
    assert done(timed) == pytest.approx(0.5)  # It began 3 s after the origin.
    assert done(endless) is None
    assert figures(endless).startswith("0 requests")


def test_loading_says_what_and_does_not_stop_the_clock(terminal: Callable[..., io.StringIO]) -> None:
    shown = terminal()
    with Progress(WorkloadSpec(name="unique", requests=1), is_quiet=False) as line:
        line.loading(wire.Loading(what="/models/big.gguf", fraction=1.0))
        assert "loading big.gguf" in shown.getvalue()
        assert line._bar.tasks[0].finished_time is None
    assert shown.getvalue().rfind("\x1b[?25h") > shown.getvalue().rfind("\x1b[?25l")


@pytest.mark.parametrize(("is_terminal", "is_quiet"), [(False, False), (True, True)])
def test_it_is_silent_where_nobody_looks(
    terminal: Callable[..., io.StringIO], is_terminal: bool, is_quiet: bool
) -> None:
    shown = terminal(is_terminal=is_terminal)
    with Progress(WorkloadSpec(name="unique", requests=1), is_quiet=is_quiet) as line:
        line.loading(wire.Loading(what="a.gguf", fraction=0.5))
        line.take(step(decode(0, cached=9), start_ns=SECOND))
        line.look(2 * SECOND)
    assert shown.getvalue() == ""
