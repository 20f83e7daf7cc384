"""The live screen in tmux, driven by its keys: every toggle in one run, and what came of the requests meanwhile."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tour import tour
from tour_report import STOPS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed, in which the screen is driven"),
]


def test_every_toggle_changes_what_runs_and_harms_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))  # The other weights are no business of the user's.
    found = tour(tmp_path / "tour", stay_s=1.0)
    assert not found.faults, "\n".join([*found.lines, *found.faults])
    assert len(found.lines) == len(STOPS) + 1
    screens = sorted((tmp_path / "tour").glob("*-*.txt"), key=lambda path: int(path.name.partition("-")[0]))
    assert len(screens) == len(STOPS)
    for stop, path in zip(STOPS, screens, strict=True):
        assert stop.chip in path.read_text(encoding="utf-8")
