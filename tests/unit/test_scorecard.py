"""Predictions joined with what was measured of the changes they were made for, and the score of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.live.snapshot import Effect, Ratio
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.scorecard import (
    FEW,
    MEASURED_AT,
    Outcome,
    Scorecard,
    merged,
    score_of,
    score_session,
)
from stackscope.records import ConfigEvent, Estimate, Footer, Header, Phases, Prediction, StepRecord, TrafficEvent
from tests.analysis_builders import MS, decode, step
from tests.unit.whatif_machine import CONFIG

if TYPE_CHECKING:
    from stackscope.records import AnyRecord
    from stackscope.toggles import Setting

SECOND: Final = 1_000_000_000


def predicted(at_ns: int = 0, tokens: float | None = 1.5, **changes: tuple[Setting, Setting]) -> Prediction:
    estimate = None if tokens is None else Estimate(tokens, tokens / 1.1, tokens * 1.1)
    return Prediction(at_ns=at_ns, changes=changes or {"slots": (4, 8)}, tokens=estimate)


def changed(at_ns: int, **changes: tuple[Setting, Setting]) -> ConfigEvent:
    return ConfigEvent(at_ns=at_ns, epoch=1, kind="live", changes=changes or {"slots": (4, 8)})


def measured(value: float, reach: float = 1.05) -> Effect:
    """Its interval is one of 99 %, and reaches this factor to either side."""
    return Effect(state="measured", tokens=Ratio(value=value, low=value / reach, high=value * reach))


def outcome(prediction: float, measurement: float, width: float = 1.1, reach: float = 1.02) -> Outcome:
    return Outcome(
        at_ns=0,
        changes={},
        predicted=Estimate(prediction, prediction / width, prediction * width),
        measured=Estimate(measurement, measurement / reach, measurement * reach),
    )


def card_of(prediction: Prediction | None, event: ConfigEvent, effect: Effect | None) -> Scorecard:
    card = Scorecard(lambda at_ns: effect if at_ns == event.at_ns else None)
    if prediction is not None:
        card.predicted(prediction)
    card.changed(event.at_ns, event.changes)
    return card


def test_a_change_is_scored_against_the_prediction_before_it() -> None:
    score = card_of(predicted(), changed(2 * SECOND), measured(1.4)).score()
    assert score.n == 1
    assert score.signs_right == score.n_signs == 1
    assert score.median_error == pytest.approx(math.log(1.5 / 1.4))
    assert score.covered == 1


def test_measured_intervals_are_brought_to_the_level_of_predictions() -> None:
    """One of 99 % reaches 2.576 standard errors, one of 90 % 1.645."""
    [one] = card_of(predicted(), changed(SECOND), measured(1.4, math.exp(MEASURED_AT / 100))).outcomes()
    assert one.measured is not None
    assert math.log(one.measured.high / one.measured.value) == pytest.approx(0.01645, rel=1e-3)


def test_the_sign_is_asked_only_of_effects_beyond_three_percent() -> None:
    assert outcome(1.2, 1.1).is_sign_right is True
    assert outcome(0.9, 1.1).is_sign_right is False
    assert outcome(1.0, 1.1).is_sign_right is False
    assert outcome(1.2, 1.02).is_sign_right is None
    assert outcome(0.9, 0.98).is_sign_right is None


def test_an_interval_holds_what_both_errors_together_allow() -> None:
    """Predicted within 10 %, measured within 2 %: √(ln² 1.1 + ln² 1.02) = ln 1.1023."""
    assert outcome(1.1, 1.0).is_covered is True
    assert outcome(1.102, 1.0).is_covered is True
    assert outcome(1.104, 1.0).is_covered is False
    assert outcome(1.0, 1.102).is_covered is True
    assert outcome(1.0, 1.104).is_covered is False


def test_the_side_of_the_interval_that_counts_is_that_of_the_measurement() -> None:
    lopsided = Outcome(at_ns=0, changes={}, predicted=Estimate(1.0, 0.99, 1.5), measured=Estimate(1.3, 1.29, 1.31))
    assert lopsided.is_covered is True
    other = Outcome(at_ns=0, changes={}, predicted=Estimate(1.0, 0.99, 1.5), measured=Estimate(0.8, 0.79, 0.81))
    assert other.is_covered is False


@pytest.mark.parametrize(
    ("prediction", "event", "effect", "why"),
    [
        (None, changed(SECOND), measured(1.4), "it was not predicted"),
        (predicted(tokens=None), changed(SECOND), measured(1.4), "the prediction gave no number"),
        (predicted(slots=(4, 16)), changed(SECOND), measured(1.4), "it was not predicted"),
        (predicted(), changed(SECOND), None, "it was not measured"),
        (
            predicted(), changed(SECOND),
            Effect(state="not comparable", why="the work differs: 2 prompt tokens before, 5 after"),
            "the work differs",
        ),
        (
            predicted(), changed(SECOND), Effect(state="not comparable", why="changed again after 1.2 s, too soon"),
            "changed again",
        ),
        (
            predicted(), changed(SECOND),
            Effect(state="measured", tokens=Ratio(value=2.0, low=1.9, high=2.1), why="with the change before it"),
            "it was measured together with other changes",
        ),
    ],
)  # fmt: skip
def test_what_does_not_count_is_counted_apart(
    prediction: Prediction | None, event: ConfigEvent, effect: Effect | None, why: str
) -> None:
    card = card_of(prediction, event, effect)
    card.settle()
    score = card.score()
    assert score.n == 0
    assert score.median_error is None
    assert score.coverage is None
    assert score.left_out == {why: 1}
    assert score.sentence == "No prediction has been scored yet."


def test_no_difference_counts_without_a_sign() -> None:
    effect = Effect(state="not distinguishable", tokens=Ratio(value=1.01, low=0.97, high=1.05))
    score = card_of(predicted(tokens=1.02), changed(SECOND), effect).score()
    assert (score.n, score.n_signs, score.covered) == (1, 0, 1)


def test_what_is_still_being_measured_is_pending() -> None:
    card = card_of(predicted(), changed(SECOND), Effect(state="measuring", why="another 3 s"))
    score = card.score()
    assert (score.n, score.n_pending, score.left_out) == (0, 1, {})
    card.settle()
    assert card.score().left_out == {"it was still being measured": 1}


def test_the_next_change_makes_a_measurement_final() -> None:
    effects = {SECOND: measured(1.4)}
    card = Scorecard(effects.get)
    card.predicted(predicted())
    card.changed(SECOND, {"slots": (4, 8)})
    card.changed(9 * SECOND, {"slots": (8, 4)})
    effects.clear()
    assert card.score().n == 1


def test_the_score_over_several_sessions() -> None:
    first = score_of([outcome(1.1, 1.0), outcome(1.5, 1.4)])
    second = score_of([outcome(0.8, 1.2)])
    both = merged([first, second])
    assert (both.n, both.n_signs, both.signs_right, both.covered) == (3, 2, 1, 2)
    assert both.median_error == pytest.approx(math.log(1.1))
    assert both.coverage == pytest.approx(2 / 3)
    assert both.sentence == (
        "3 predictions scored: 1 of 2 signs right, median error 9.53 %, 2 of 3 intervals held, too few to judge by."
    )


def test_many_are_enough_to_judge_by() -> None:
    score = score_of([outcome(1.1, 1.0)] * FEW)
    assert not score.is_of_few
    assert "too few" not in score.sentence
    assert score_of([]).is_of_few


def session(*, ends: bool = True) -> list[AnyRecord]:
    """8 s of steps of 10 ms with 2 tokens each, a prediction of 2×, the change, and 12 s of steps of 5 ms."""
    header = Header(
        stackscope="0", started="2026-01-01T00:00:00+00:00", host="lab", device="cpu", config=CONFIG,
        workload={"concurrency": 2},
    )  # fmt: skip
    records: list[AnyRecord] = [header]
    now, n = 0, 0

    def steps(seconds: float, duration_ms: float, epoch: int) -> None:
        nonlocal now, n
        until = now + round(seconds * SECOND)
        while now < until:
            # Durations wobble, so that there is a spread to estimate.
            duration = round(duration_ms * MS * (1.0 + 0.05 * ((n * 7) % 5 - 2)))
            work = decode(0, cached=n), decode(1, cached=n)
            phases = Phases(decode=duration)
            records.append(step(*work, n=n, start_ns=now, phases=phases, slots=2, slots_busy=2, epoch=epoch))
            now, n = now + duration, n + 1

    steps(8.0, 10.0, 0)
    changes: dict[str, tuple[Setting, Setting]] = {"kv_type_k": ("f16", "q8_0")}
    records.append(Prediction(at_ns=now, changes=changes, tokens=Estimate(2.0, 1.8, 2.2)))
    records.append(ConfigEvent(at_ns=now, epoch=1, kind="live", changes=changes, config=CONFIG))
    steps(12.0, 5.0, 1)
    if ends:
        records.append(Footer(at_ns=now, reason="done", steps=n, requests=0))
    return records


@pytest.mark.parametrize("ends", [True, False])
def test_a_session_is_scored_from_its_records(ends: bool) -> None:
    score = score_session(session(ends=ends))
    assert (score.n, score.n_signs, score.signs_right, score.covered) == (1, 1, 1, 1)
    assert score.median_error is not None
    assert score.median_error < 0.02


def test_a_session_measures_as_the_live_view_does() -> None:
    records = session()
    view = LiveView()
    for record in records:
        view.write(record)
    [event] = [event for event in view.snapshot(20 * SECOND).events if event.kind == "live"]
    [one] = score_session(records).outcomes
    assert event.effect is not None
    assert event.effect.tokens is not None
    assert one.measured is not None
    assert one.measured.value == event.effect.tokens.value


def test_refusals_and_the_load_of_the_start_are_no_changes() -> None:
    records = session()
    records.insert(1, TrafficEvent(at_ns=0, concurrency=2))
    refused = ConfigEvent(at_ns=SECOND, epoch=0, kind="refused", changes={"slots": (2, 500)}, reason="No.")
    records.insert(50, refused)
    score = score_session(records)
    assert len(score.outcomes) == 1
    assert score.left_out == {}


def test_changes_of_the_load_count_too() -> None:
    records = session()
    where = next(i for i, record in enumerate(records) if isinstance(record, ConfigEvent))
    at_ns = records[where].at_ns  # type: ignore[union-attr]
    records[where - 1] = Prediction(at_ns=at_ns, changes={"concurrency": (2, 3)}, tokens=Estimate(2.0, 1.8, 2.2))
    records[where] = TrafficEvent(at_ns=at_ns, concurrency=3)
    score = score_session(records)
    assert [one.changes for one in score.outcomes] == [{"concurrency": (2, 3)}]


def test_an_effect_that_cannot_be_told_from_none_has_no_sign() -> None:
    changes: dict[str, tuple[Setting, Setting]] = {"slots": (1, 2)}
    vague = Outcome(at_ns=0, changes=changes, predicted=Estimate(1.2, 1.0, 1.4), measured=Estimate(0.9, 0.7, 1.2))
    assert vague.is_sign_right is None
    sure = Outcome(at_ns=0, changes=changes, predicted=Estimate(1.2, 1.0, 1.4), measured=Estimate(0.9, 0.8, 0.95))
    assert sure.is_sign_right is False


def changed_again(after_s: float) -> list[AnyRecord]:
    """The same session, with one more predicted change some seconds after the first."""
    records = session()
    [first] = [record for record in records if isinstance(record, ConfigEvent)]
    at_ns = first.at_ns + round(after_s * SECOND)
    changes: dict[str, tuple[Setting, Setting]] = {"flash_attention": (True, False)}
    second: list[AnyRecord] = [
        Prediction(at_ns=at_ns, changes=changes, tokens=Estimate(1.0, 0.9, 1.1)),
        ConfigEvent(at_ns=at_ns, epoch=1, kind="live", changes=changes, config=CONFIG),
    ]
    where = next(i for i, record in enumerate(records) if isinstance(record, StepRecord) and record.start_ns >= at_ns)
    return [*records[:where], *second, *records[where:]]


@pytest.mark.parametrize(
    ("after_s", "left_out"),
    [
        (2.0, {"changed again": 1, "it was measured together with other changes": 1}),
        (10.9, {"the session ended": 1}),
    ],
)
def test_the_next_change_ends_a_measurement_before_it_is_scored(after_s: float, left_out: dict[str, int]) -> None:
    """Whatever it comes to then: what the screen says of it is what counts, and nothing is pending for ever."""
    records = changed_again(after_s)
    score = score_session(records)
    assert score.left_out == left_out
    view = LiveView()
    for record in records:
        view.write(record)
    snapshot = view.snapshot(20 * SECOND)
    shown = {event.at_ns: event.effect for event in snapshot.events if event.kind == "live"}
    assert snapshot.score is not None
    assert snapshot.score.left_out == left_out
    for one in score.outcomes:
        effect = shown[one.at_ns]
        assert effect is not None
        assert (one.measured is not None) == (effect.state in ("measured", "not distinguishable"))
        assert one.measured is None or (effect.tokens and one.measured.value == effect.tokens.value)
