"""Shadows beside the real engine: what they count while something is off is what it does once it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from stackscope.records import DraftShadow, LengthCounts
from stackscope.toggles import Sampling
from stackscope.workload.spec import WorkloadSpec
from stackscope.workload.traffic import Traffic
from tests.integration.harness import finish, job, lab_config, open_engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.engine.loop import Engine
    from stackscope.records import AnyRecord, DraftKind, StepRecord
    from stackscope.toggles import EngineConfig

pytestmark = pytest.mark.engine

ALL_THE_TIME = 100.0
"""Share of the wall time that lets shadows follow every request."""


class Driven(NamedTuple):
    """What a workload made of an engine."""

    steps: list[StepRecord]
    aside: list[AnyRecord]
    outputs: dict[int, tuple[int, ...]]

    def shadow(self, source: DraftKind, length: int) -> LengthCounts:
        return summed(r for r in self.aside if isinstance(r, DraftShadow) and r.source == source)[length]

    def real(self) -> LengthCounts:
        """The rounds that really ran, as if they were of length 0."""
        works = [w for s in self.steps for w in s.work if w.phase != "prefill" and w.emitted > 0]
        return LengthCounts(
            length=0,
            rounds=len(works),
            covered=sum(w.drafted > 0 for w in works),
            drafted=sum(w.drafted for w in works),
            accepted=sum(w.accepted for w in works),
            without_bonus=sum(w.emitted == w.accepted for w in works),
        )


def summed(records: Iterable[DraftShadow]) -> dict[int, LengthCounts]:
    sums: dict[int, list[int]] = {}
    for record in records:
        for counts in record.lengths:
            fields = [getattr(counts, name) for name in counts.__struct_fields__[1:]]
            before = sums.get(counts.length, [0] * len(fields))
            sums[counts.length] = [a + b for a, b in zip(before, fields, strict=True)]
    return {length: LengthCounts(length, *fields) for length, fields in sums.items()}


def let_follow_all(engine: Engine) -> None:
    shadows = engine._aside.shadows
    assert shadows is not None
    shadows.budget.share = ALL_THE_TIME
    for purse in shadows.budget.purses.values():
        purse.balance_ns = 1e12


def drive(config: EngineConfig, n_requests: int, *, concurrency: int = 4) -> Driven:
    """Run the copy workload with shadows that follow every request that they can."""
    engine = open_engine(config, keep_text=False)
    try:
        let_follow_all(engine)
        spec = WorkloadSpec(name="copy", requests=n_requests, concurrency=concurrency)
        traffic = Traffic(spec, engine.tokenizer, context_tokens=engine.context_tokens)
        traffic.start(engine.now())
        driven = Driven([], [], {})
        while True:
            for each in traffic.due(engine.now(), engine.in_flight):
                engine.submit(each)
            turn = engine.step()
            if turn is None:
                assert traffic.done
                driven.aside.extend(told(engine))
                return driven
            driven.steps.append(turn.step)
            driven.aside.extend(turn.aside)
            for answer in turn.answers:
                traffic.finished(answer.request, answer.tokens)
                driven.outputs[answer.request] = answer.tokens
    finally:
        engine.close()


def told(engine: Engine) -> tuple[AnyRecord, ...]:
    """What there is still to tell, once the draft model has read all that came."""
    shadows = engine._aside.shadows
    assert shadows is not None
    assert shadows.draft is not None
    while len(shadows.draft) > 0:
        shadows.draft.work()
    return engine._aside.take(0)


def prompts(engine: Engine, n: int) -> list[tuple[int, ...]]:
    spec = WorkloadSpec(name="copy", requests=n, concurrency=n)
    traffic = Traffic(spec, engine.tokenizer, context_tokens=engine.context_tokens)
    traffic.start(0)
    return [each.tokens for each in traffic.due(0, 0)]


def one_by_one(config: EngineConfig, n: int) -> list[Driven]:
    """Requests that run alone, each with what the shadows counted in it."""
    engine = open_engine(config, keep_text=False)
    try:
        let_follow_all(engine)
        found = []
        for number, tokens in enumerate(prompts(engine, n)):
            engine.submit(job(number, tokens, 40 + number, sampling=Sampling(temperature=0.0)))
            aside: list[AnyRecord] = []
            run = finish(engine, each=lambda turn, aside=aside: aside.extend(turn.aside))  # type: ignore[misc]
            found.append(Driven(run.steps, [*aside, *told(engine)], run.outputs))
        return found
    finally:
        engine.close()


@pytest.mark.parametrize(("source", "length"), [("ngram", 1), ("ngram", 3), ("ngram", 8), ("draft", 3), ("draft", 8)])
def test_a_replay_counts_what_speculation_of_that_length_really_does(source: DraftKind, length: int) -> None:
    beside = one_by_one(lab_config(speculation="off"), 6)
    really = one_by_one(lab_config(speculation=source, draft_length=length), 6)
    same = [(b, r) for b, r in zip(beside, really, strict=True) if b.outputs == r.outputs]
    assert len(same) >= 4  # Verifying several rows rounds differently, which may change a near tie.
    for shadow, real in same:
        replayed, counted = shadow.shadow(source, length), real.real()
        fields = LengthCounts.__struct_fields__[1:6]
        assert [getattr(replayed, name) for name in fields] == [getattr(counted, name) for name in fields]
    assert sum(real.real().accepted for _, real in same) > 30


@pytest.fixture(scope="module")
def off() -> Driven:
    """Nothing on, and everything tried beside it."""
    return drive(lab_config(speculation="off", prefix_cache=False), 24)


@pytest.mark.parametrize("source", ["ngram", "draft"])
def test_acceptance_while_off_is_acceptance_once_on(off: Driven, source: DraftKind) -> None:
    on = drive(lab_config(speculation=source, draft_length=3, prefix_cache=False), 24)
    told, real = off.shadow(source, 3), on.real()
    assert min(told.drafted, real.drafted) >= 2000
    assert told.accepted / told.drafted == pytest.approx(real.accepted / real.drafted, abs=0.05)
    assert told.covered / told.rounds == pytest.approx(real.covered / real.rounds, abs=0.05)
    assert told.tokens / told.rounds == pytest.approx(real.tokens / real.rounds, rel=0.05)
