"""What idle compute is said to be good for: room for drafts only where drafts are cheap by what was measured."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.analysis.explainer import Explanation
from stackscope.analysis.whatif.breakevens import BreakEven
from stackscope.analysis.whatif.ranking import Ranking
from stackscope.records import Estimate
from stackscope.tui.lines import plain
from stackscope.tui.look import UNICODE
from stackscope.tui.pane import Context, Size
from stackscope.tui.panes import PANES
from tests.tui.sessions import SESSIONS, calibrated


def headlines(needed: float | None, *, ceiling: float | None = None) -> list[str]:
    """The title's notes over a GPU that is mostly idle, when drafts need so many tokens a round, longest first."""
    value = None if needed is None else Estimate(needed, needed - 0.1, needed + 0.1)
    ranking = Ranking((), (), (), (BreakEven(kind="tokens per round", value=value, sentence="."),))
    snapshot = msgspec.structs.replace(SESSIONS["gpu"](), explanation=Explanation(ranking=ranking))
    if ceiling is not None:
        snapshot = msgspec.structs.replace(snapshot, compute_ceiling=ceiling)
    drawn = PANES["compute"].drawn(Context(snapshot=snapshot, size=Size(58, 6), look=UNICODE))
    return [plain(note) for note in drawn.notes]


@pytest.mark.parametrize("needed", [1.05, 1.39])
def test_where_drafts_are_cheap_idle_compute_is_room_for_them(needed: float) -> None:
    assert headlines(needed)[0] == "81.0 % idle: room to speculate"


def test_before_it_is_known_what_drafts_cost_nothing_is_promised() -> None:
    """As in the first minute: the same compute may be out of reach of a few rows."""
    assert headlines(None) == ["81.0 % idle", "81.0 %"]


@pytest.mark.parametrize(("needed", "told"), [(1.85, "1.85"), (2.456, "2.46")])
def test_where_drafts_make_a_step_much_longer_idle_compute_is_not_called_room_for_them(
    needed: float, told: str
) -> None:
    assert headlines(needed) == [
        f"81.0 % idle, yet drafts make a step {told}× as long", f"81.0 % idle, yet drafts cost {told}×", "81.0 % idle",
        "81.0 %",
    ]  # fmt: skip


def test_where_hardly_anything_is_left_that_is_what_counts() -> None:
    assert headlines(1.85, ceiling=1.0)[0] == "0 % idle: little left to spend"


def test_between_the_two_nothing_is_promised() -> None:
    pane = PANES["compute"].drawn(Context(snapshot=calibrated(), size=Size(58, 6), look=UNICODE))
    assert plain(pane.notes[0]) == "30.5 % idle"
