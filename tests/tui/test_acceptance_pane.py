"""Acceptance: what it takes for drafts to pay stands wherever it is known."""

from __future__ import annotations

import msgspec

from stackscope.analysis.explainer import Explanation
from stackscope.analysis.whatif.breakevens import BreakEven
from stackscope.analysis.whatif.ranking import Ranking
from stackscope.records import Estimate
from tests.tui.pane_words import words
from tests.tui.sessions import running


def test_where_drafts_begin_to_pay_stands_wherever_it_is_known() -> None:
    tokens = BreakEven(kind="tokens per round", value=Estimate(value=2.36, low=2.1, high=2.6), sentence="")
    ranking = Ranking(singles=(), pairs=(), break_evens=(tokens,))
    for places in range(1, 6):
        window = msgspec.structs.replace(running().now, by_position=(0.81, 0.63, 0.47, 0.32, 0.22)[:places])
        snapshot = msgspec.structs.replace(running(), now=window, explanation=Explanation(ranking=ranking))
        for height in range(3, 12):
            assert "break-even A 2.36" in words("acceptance", snapshot, 38, height), (places, height)
