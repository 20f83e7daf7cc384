"""Acceptance drifts: another draft length is judged by how drafts do now, not by how they did over the last minute."""

from __future__ import annotations

import math

import msgspec
import pytest

from stackscope.analysis.whatif.plans import MOST_DRIFT, DraftPlan, draft_plan
from stackscope.analysis.whatif.predict import predict
from tests.unit.whatif_engine import LotCurve
from tests.unit.whatif_machine import CONFIG, stated_point, weights_only

EIGHT = frozenset(range(1, 9))
CURVE = LotCurve(0.5, 1.0, EIGHT)
"""Of the last minute: 1.875 tokens a round at 3, and 1.5 at 1."""
DRAFTING = msgspec.structs.replace(CONFIG, speculation="draft", draft_length=3)


def planned(tokens_per_round: float, length: int = 1, config: object = DRAFTING) -> DraftPlan:
    point = stated_point(weights_only, config, curves={"draft": CURVE}, tokens_per_round=tokens_per_round)  # type: ignore[arg-type]
    plan = draft_plan(point, msgspec.structs.replace(DRAFTING, draft_length=length))
    assert not isinstance(plan, str)
    return plan


def test_drafts_that_do_as_they_did_are_taken_from_the_curve() -> None:
    assert planned(1.875).tokens == pytest.approx(1.5)


def test_drafts_that_do_worse_now_would_do_worse_at_another_length_too() -> None:
    assert planned(1.4375).tokens == pytest.approx(1.25)  # They win half of what they won.


def test_an_accident_does_not_turn_everything_over() -> None:
    assert planned(1.01).tokens == pytest.approx(1.0 + 0.5 / MOST_DRIFT)
    assert planned(4.0).tokens == pytest.approx(1.0 + 0.5 * MOST_DRIFT)


def test_what_is_off_is_known_by_its_curve_alone() -> None:
    assert planned(1.0, config=CONFIG).tokens == pytest.approx(1.5)


def test_how_drafts_go_on_is_not_sure_but_alike_at_all_lengths() -> None:
    point = stated_point(weights_only, DRAFTING, curves={"draft": CURVE}, tokens_per_round=1.6)
    plans = [draft_plan(point, msgspec.structs.replace(DRAFTING, draft_length=length)) for length in (3, 1)]
    recorded, shorter = plans
    assert not isinstance(recorded, str)
    assert not isinstance(shorter, str)
    assert recorded.level_error == pytest.approx(math.log(1.875 / 1.6) / 4, rel=0.01)
    assert shorter.level_error == recorded.level_error
    assert (recorded.error, shorter.error > 0.0) == (0.0, True)
    steady = planned(1.875, length=3)
    assert steady.level_error == pytest.approx(CURVE.error, rel=0.5)
    assert planned(1.0, length=3, config=CONFIG).level_error == 0.0


def test_switching_drafts_off_is_as_unsure_as_what_they_win() -> None:
    known = stated_point(weights_only, DRAFTING, tokens_per_round=1.6)
    unsure = stated_point(weights_only, DRAFTING, curves={"draft": CURVE}, tokens_per_round=1.6)
    widths = []
    for point in (known, unsure):
        tokens = predict(point, {"speculation": "off"}).tokens
        assert tokens is not None
        widths.append(math.log(tokens.high / tokens.low))
    assert widths[1] > widths[0] + 0.05
