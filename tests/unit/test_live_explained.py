"""What a verdict says of the changes that it puts forward."""

from __future__ import annotations

import pytest

from stackscope.analysis.live.explained import LEAST_PRICE, suggested
from stackscope.analysis.live.snapshot import Ratio
from stackscope.analysis.whatif.candidates import Candidate
from stackscope.analysis.whatif.ranking import Ranked
from stackscope.records import Estimate, Prediction

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
