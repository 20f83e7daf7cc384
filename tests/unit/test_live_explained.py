"""What a verdict says of the changes that it puts forward."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from stackscope.analysis.explainer import Explainer
from stackscope.analysis.live.explained import LEAST_PRICE, suggested, suggestions
from stackscope.analysis.live.snapshot import Ratio
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.whatif.candidates import Candidate
from stackscope.analysis.whatif.ranking import Ranked
from stackscope.engine.allowances import Allowances
from stackscope.pipeline import time_ns
from stackscope.records import Estimate, Prediction
from stackscope.session.reader import SessionReader

GAIN = Estimate(1.1, 1.03, 1.15)


def ranked(ttft: Estimate | None) -> Ranked:
    prediction = Prediction(at_ns=0, changes={"slots": (8, 4)}, tokens=GAIN, ttft=ttft)
    return Ranked(Candidate("slots", {"slots": 4}), prediction, GAIN, "4 slots")


def test_a_later_first_token_is_the_price_of_a_change() -> None:
    made = suggested(ranked(Estimate(13.6, 11.0, 16.0)))
    assert made.price == Ratio(value=13.6, low=11.0, high=16.0)
    assert (made.label, made.changes) == ("4 slots", {"slots": 4})
    assert made.predicted == Ratio(value=1.1, low=1.03, high=1.15)


@pytest.mark.parametrize(
    "ttft", [None, Estimate(0.5, 0.4, 0.6), Estimate(1.3, LEAST_PRICE - 0.01, 1.6), Estimate(1.05, 1.03, LEAST_PRICE)]
)
def test_a_first_token_that_may_come_as_early_is_no_price(ttft: Estimate | None) -> None:
    assert suggested(ranked(ttft)).price is None


CAUSES = Path(__file__).parents[2] / "profiles" / "causes"


@pytest.mark.parametrize("name", ["cache-thrash", "queueing", "host-scheduling"])
def test_at_the_end_the_verdict_puts_forward_what_was_predicted_last(name: str) -> None:
    """Predictions come in parts, in later looks at a moment at which time stands still."""
    spent = itertools.count(step=1_000_000)
    view = LiveView(explainer=Explainer(rules=Allowances(2), cpu_ns=lambda: next(spent), part_ns=3_000_000))
    end_ns = 0
    for record in SessionReader(CAUSES / f"{name}.jsonl.zst"):
        view.write(record)
        end_ns = max(end_ns, time_ns(record) or 0)
    seen = []
    while True:
        shown = view.snapshot(end_ns)
        assert shown.explanation is not None
        assert shown.verdict.next == suggestions(shown.explanation)
        seen.append(shown.verdict.next)
        if not view.rest(end_ns, is_over=True):
            break
    assert len(seen) > 2
