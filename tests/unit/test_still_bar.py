"""The bar of what is measured: there where somebody can see it, and still unless it is told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from stackscope.commands import still_bar
from stackscope.commands.experiment_progress import ExperimentProgress, planned
from stackscope.commands.still_bar import StillBar
from stackscope.experiments.blocks import Standing
from stackscope.experiments.plan import Blocks


def screen(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, width: int = 100) -> io.StringIO:
    """Puts a terminal, or a file, in the place of standard error; what is written to it."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=is_terminal, width=width)
    monkeypatch.setattr(still_bar, "Console", lambda **_: console)
    return shown


def test_it_writes_when_it_is_told_and_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, is_terminal=True)
    with StillBar("loading", is_quiet=False) as bar:
        assert not bar._bar.live.auto_refresh
        bar.show("matrices", 0.5)
        assert "matrices" in shown.getvalue()
        assert bar._bar.tasks[0].percentage == 50.0
    assert shown.getvalue().endswith("\x1b[2K")  # The line is erased.


@pytest.mark.parametrize("width", [40, 100])
def test_it_makes_room_for_what_is_written_meanwhile(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    shown = screen(monkeypatch, is_terminal=True, width=width)
    with StillBar("loading", is_quiet=False) as bar:
        bar.show("matrices that take long to load", 0.5)
        with bar.aside():
            assert shown.getvalue().endswith("\r\x1b[2K")  # The line is erased, and the cursor at its start.
            shown.write("predicted\n")
        back = shown.getvalue().partition("predicted\n")[2]
        assert "matrices" in back
        assert "\x1b[1A" not in back  # It does not go up into what was written.


@pytest.mark.parametrize(("is_terminal", "is_quiet"), [(False, False), (True, True)])
def test_it_is_silent_where_nobody_looks(monkeypatch: pytest.MonkeyPatch, is_terminal: bool, is_quiet: bool) -> None:
    shown = screen(monkeypatch, is_terminal=is_terminal)
    with StillBar("loading", is_quiet=is_quiet) as bar:
        bar.show("matrices", 0.5)
    assert shown.getvalue() == ""


def test_where_no_terminal_is_an_experiment_says_in_a_line_which_run_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = screen(monkeypatch, is_terminal=False)
    with ExperimentProgress(is_quiet=False) as progress:
        for n in (4, 5):
            progress.take(Standing(block=1, n_blocks=3, cell=0, n_done=n, n_total=12, left_s=240.0), "drafts\x1b of 3")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": drafts")[0] for line in lines] == [
        "stackscope: block 2 of 3, run 5 of 12",
        "stackscope: block 2 of 3, run 6 of 12",
    ]
    assert "\x1b" not in "".join(lines)
    assert shown.getvalue() == ""


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(
    ("n_done", "is_over", "rest"),
    [
        (0, False, ""),
        (1, False, "; 1 was there already"),
        (6, False, "; 6 were there already"),
        (12, True, "; 12 were there already, and none is missing"),
    ],
)
def test_what_will_run_and_what_was_there_is_said_on_a_terminal_and_elsewhere(
    is_terminal: bool,
    n_done: int,
    is_over: bool,
    rest: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen(monkeypatch, is_terminal=is_terminal)
    told = planned(Blocks(first=3, least=3, is_adaptive=False, seconds=None), 4, "cell")
    ExperimentProgress(is_quiet=True).opening(told, n_done, is_over=is_over)
    assert capsys.readouterr().err == ""
    ExperimentProgress(is_quiet=False).opening(told, n_done, is_over=is_over)
    assert capsys.readouterr().err == f"stackscope: 4 cells in 3 blocks: 12 runs{rest}\n"


def test_blocks_that_may_become_more_are_said_to() -> None:
    assert planned(Blocks(), 5, "cell") == "5 cells in 8 blocks: 40 runs, fewer or more as intervals ask"


def test_an_experiment_says_which_run_is_next_and_how_long_all_take(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, is_terminal=True)
    with ExperimentProgress(is_quiet=False) as progress:
        progress.take(Standing(block=1, n_blocks=3, cell=0, n_done=4, n_total=12, left_s=240.0), "drafts of 3")
    assert "block 2 of 3, run 5 of 12: drafts of 3, about 4" in shown.getvalue()
