"""How a step answers to delays: known answers from made-up steps."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.diagnosis.gather import Gatherer
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.diagnosis.responses import LEAST_PROBES, Response, Responses, answer, contradiction, middle
from stackscope.analysis.statistics import Interval
from stackscope.records import Delay, DelayedPhase, Finding, Phases, SlotWork, StepRecord, WorkPhase
from tests.unit.test_diagnosis_causes import staged

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_NS = 10_000_000
DELAY_NS = 2_000_000


def work(n: int, phase: WorkPhase = "decode") -> tuple[SlotWork, ...]:
    return tuple(SlotWork(request=i, slot=i, phase=phase, new=1, cached=7) for i in range(n))


def steps(
    n: int, lag: float, *, every: int = 10, noise: float = 0.0, phase: DelayedPhase = "sample", sequences: int = 2
) -> Iterator[StepRecord]:
    """Every so many steps one is delayed, and the next begins `lag` × the delay later."""
    rng = random.Random(1)
    at = 0
    for number in range(n):
        is_delayed = number % every == every - 1
        took = round(STEP_NS * (1 + noise * rng.gauss(0, 1)) + (lag * DELAY_NS if is_delayed else 0))
        yield StepRecord(
            n=number,
            start_ns=at,
            phases=Phases(decode=took),
            work=work(sequences),
            delay=Delay(phase, DELAY_NS) if is_delayed else None,
        )
        at += took


def lag_of(responses: Responses, phase: DelayedPhase = "sample") -> Interval:
    """What was found of a part."""
    lag = responses.found()[phase].lag
    assert lag is not None
    return lag


def found(made: list[StepRecord], size: int = 7) -> Responses:
    responses = Responses()
    for first in range(0, len(made), size):
        responses.add(made[first : first + size])
    return responses


@pytest.mark.parametrize("lag", [1.0, 0.4, 0.0])
@pytest.mark.parametrize("size", [1, 3, 64, 1000])
def test_the_lag_is_found_however_the_records_come(lag: float, size: int) -> None:
    response = found(list(steps(203, lag)), size).found()["sample"]
    assert response.n == 20
    assert response.lag is not None
    assert response.lag.value == pytest.approx(lag)


def test_with_noise_the_interval_holds_the_truth() -> None:
    held = 0
    for seed in range(50):
        rng = random.Random(seed)
        made = []
        at = 0
        for step in steps(300, 0.0):
            took = round(STEP_NS * (1 + 0.05 * rng.gauss(0, 1)) + (step.delay.ns if step.delay else 0))
            made.append(StepRecord(n=step.n, start_ns=at, phases=Phases(decode=took), work=step.work, delay=step.delay))
            at += took
        held += lag_of(found(made)).holds(1.0)
    assert held >= 45


def test_one_hiccup_changes_little() -> None:
    made = list(steps(300, 1.0))
    shifted = [made[0]]
    for before, step in itertools.pairwise(made):
        hiccup = 500_000_000 if before.n == 109 else 0
        start = shifted[-1].start_ns + (step.start_ns - before.start_ns) + hiccup
        shifted.append(StepRecord(n=step.n, start_ns=start, phases=step.phases, work=step.work, delay=step.delay))
    assert lag_of(found(shifted)).value == pytest.approx(1.0)


def test_steps_that_did_other_work_say_nothing() -> None:
    grown = [
        StepRecord(n=s.n, start_ns=s.start_ns, phases=s.phases, delay=s.delay, work=work(s.n + 1))
        for s in steps(100, 1.0)
    ]
    prefilling = [
        StepRecord(n=s.n, start_ns=s.start_ns, phases=s.phases, delay=s.delay, work=work(2, "prefill"))
        for s in steps(100, 1.0)
    ]
    gaps = [s for s in steps(200, 1.0) if s.n % 10 != 8]
    for made in (grown, prefilling, gaps):
        assert found(made).found() == {}


def test_a_few_delays_are_not_enough() -> None:
    few = found(list(steps(59, 1.0))).found()["sample"]
    assert (few.n, few.lag) == (LEAST_PROBES - 1, None)
    assert answer({"sample": few}, "sample") is None
    assert contradiction({"sample": few}, "sample") is None
    enough = found(list(steps(63, 1.0))).found()["sample"]
    assert enough.n == LEAST_PROBES
    assert enough.lag is not None


def test_parts_are_told_apart() -> None:
    one, other = list(steps(203, 1.0)), list(steps(203, 0.2, phase="build"))
    responses = found(one)
    responses.add(other)
    assert lag_of(responses).value == pytest.approx(1.0)
    assert lag_of(responses, "build").value == pytest.approx(0.2)


def test_the_middle_by_order_statistics() -> None:
    assert middle([1.0] * 5) is None
    assert middle([3.0, 1.0, 2.0, 5.0, 4.0, 6.0]) == Interval(3.5, 1.0, 6.0)
    # Table of David and Nagaraja: of twenty, the sixth smallest to the sixth largest.
    assert middle([float(i) for i in range(20)]) == Interval(9.5, 5.0, 14.0)


def judged(cause: str, phase: DelayedPhase, lag: float) -> Finding:
    """What is said of a cause, staged, when delays of a phase lengthen steps by so much of them."""
    watch = staged(cause)
    response = Response(phase, 12, Interval(lag, lag - 0.1, lag + 0.1))
    evidence = msgspec.structs.replace(watch.evidence, responses={phase: response})
    return next(one for one in judge(evidence).findings if one.cause == cause)


@pytest.mark.parametrize(
    ("cause", "phase"), [("host scheduling", "build"), ("sampling", "sample"), ("draft overhead", "draft")]
)
def test_delays_speak_for_a_cause_or_against_it(cause: str, phase: DelayedPhase) -> None:
    waited_for = judged(cause, phase, 1.0)
    assert waited_for.is_confirmed
    assert "12 causal probes: a step ends 1.00 [0.90, 1.10] ms later for each ms of delay" in waited_for.evidence
    hidden = judged(cause, phase, 0.1)
    assert not hidden.is_confirmed
    assert hidden.against == "a delay there lengthens the step by 10.0 % of it only"
    unsure = judged(cause, phase, 0.45)
    assert unsure.is_confirmed


@pytest.mark.parametrize("cause", ["weight bandwidth", "KV and attention", "compute"])
def test_delays_of_the_forward_are_told_beside_what_it_does(cause: str) -> None:
    assert any("causal probes" in line for line in judged(cause, "decode", 1.0).evidence)


def test_the_gatherer_finds_them_in_the_records() -> None:
    gatherer = Gatherer()
    made = list(steps(203, 1.0))
    for step in made:
        gatherer.write(step)
    responses = gatherer.evidence(made[-1].end_ns, None).responses
    lag = responses["sample"].lag
    assert lag is not None
    assert lag.value == pytest.approx(1.0)
