"""The bar of what is measured: there where somebody can see it, and still unless it is told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from stackscope.commands import still_bar
from stackscope.commands.experiment_progress import ExperimentProgress
from stackscope.commands.still_bar import StillBar
from stackscope.experiments.blocks import Standing


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


def test_an_experiment_says_which_run_is_next_and_how_long_all_take(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, is_terminal=True)
    with ExperimentProgress(is_quiet=False) as progress:
        progress.take(Standing(block=1, n_blocks=3, cell=0, n_done=4, n_total=12, left_s=240.0), "drafts of 3")
    assert "block 2 of 3, run 5 of 12: drafts of 3, about 4" in shown.getvalue()
