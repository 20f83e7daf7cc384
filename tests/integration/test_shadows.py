"""Shadows beside the real engine: what they count while something is off is what it does once it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import pytest

from stackscope.engine.shadows import shadows as shadows_module
from stackscope.records import DraftShadow, LengthCounts, PrefixShadow
from stackscope.toggles import Sampling
from stackscope.workload.spec import WorkloadSpec
from stackscope.workload.traffic import Traffic
from tests.integration.fuzzing import SELDOM, Fuzz, Plain
from tests.integration.harness import finish, job, lab_config, open_engine, turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.engine.loop import Engine
    from stackscope.engine.shadows.shadows import Shadows
    from stackscope.engine.turn import Turn
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


def shadows_of(engine: Engine) -> Shadows:
    shadows = engine._aside.shadows
    assert shadows is not None
    return shadows


def let_follow_all(engine: Engine) -> None:
    shadows = shadows_of(engine)
    shadows.budget.share = ALL_THE_TIME
    for purse in shadows.budget.purses.values():
        purse.balance_ns = 1e12


def drive(
    config: EngineConfig, n_requests: int, *, concurrency: int = 4, workload: Literal["copy", "chat"] = "copy"
) -> Driven:
    """Run a built-in workload with shadows that follow every request that they can."""
    engine = open_engine(config, keep_text=False)
    try:
        let_follow_all(engine)
        spec = WorkloadSpec(name=workload, requests=n_requests, concurrency=concurrency)
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
    shadows = shadows_of(engine)
    while shadows.draft is not None and len(shadows.draft) > 0:
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


# Prefixes


class Found(NamedTuple):
    """Tokens that look-ups asked for and found."""

    asked: int
    found: int
    useful: int

    @classmethod
    def really(cls, driven: Driven) -> Found:
        caches = [step.cache for step in driven.steps]
        return cls(
            sum(c.lookup_tokens for c in caches),
            sum(c.hit_tokens for c in caches),
            sum(c.useful_hit_tokens for c in caches),
        )

    @classmethod
    def beside(cls, driven: Driven) -> Found:
        records = prefix_records(driven)
        return cls(
            sum(r.lookup_tokens for r in records),
            sum(r.hit_tokens for r in records),
            sum(r.useful_hit_tokens for r in records),
        )


def prefix_records(driven: Driven) -> list[PrefixShadow]:
    return [record for record in driven.aside if isinstance(record, PrefixShadow)]


@pytest.mark.parametrize(
    "settings",
    [{}, {"cache_tokens": 400}, {"cache_paths": 2}, {"unified_kv": False, "slots_max": 4, "cache_paths": 4}],
)
@pytest.mark.parametrize("period_ns", [0, 3600 * 1_000_000_000], ids=["record-each-look", "record-at-the-end"])
def test_what_a_cache_that_is_off_would_find_is_what_it_finds_once_on(
    settings: dict[str, object], period_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing may be lost between records, wherever they fall between a request's admission and its end.
    monkeypatch.setattr(shadows_module, "PERIOD_NS", period_ns)

    def run(is_on: bool) -> Driven:
        config = lab_config(prefix_cache=is_on, draft_model=None, slots=4, **settings)
        return drive(config, 10, concurrency=1, workload="chat")

    off, on = run(False), run(True)
    assert off.outputs == on.outputs
    assert Found.beside(off) == Found.really(on)
    assert Found.really(off) == Found(0, 0, 0)
    assert {record.capacity_tokens for record in prefix_records(off)} == {settings.get("cache_tokens", 4096)}
    evicted = sum(record.evicted_blocks for record in prefix_records(off))
    assert evicted == sum(step.cache.blocks_evicted for step in on.steps)


def test_beside_a_cache_that_is_too_small_one_without_limit_tells_what_it_lost() -> None:
    wide, narrow = (
        drive(lab_config(draft_model=None, cache_tokens=tokens), 10, concurrency=1, workload="chat")
        for tokens in (None, 200)
    )
    assert wide.outputs == narrow.outputs
    assert Found.beside(narrow) == Found.beside(wide) == Found.really(wide)
    assert Found.really(narrow).found < Found.beside(narrow).found
    assert {record.capacity_tokens for record in prefix_records(narrow)} == {None}


def test_what_a_preempted_request_would_find_of_its_own_is_not_useful() -> None:
    config = lab_config(prefix_cache=False, draft_model=None, slots=4, context_tokens=1024)
    driven = drive(config, 12, concurrency=4, workload="copy")
    assert sum(step.preempted for step in driven.steps) > 0
    assert Found.beside(driven).useful < Found.beside(driven).found


# Whatever is switched


def test_everything_that_came_is_scored_once_whatever_is_switched() -> None:
    settings = {name: values[0] for name, values in SELDOM.items()}
    settings |= {"draft_length": 3, "draft_model": lab_config().draft_model, "context_tokens": 1024, "slots_max": 6}
    fuzz = Fuzz(Plain(seed=3), 5, fixed={**settings, "synthetic_acceptance": None}, favourite="speculation")
    aside: list[AnyRecord] = []
    check_turn = fuzz.check_turn

    def check(turn: Turn) -> None:
        check_turn(turn)
        aside.extend(turn.aside)
        prefix = shadows_of(fuzz.engine).prefix
        assert prefix is not None
        if prefix._cache is not None:
            prefix._cache.check_integrity()
            assert {held.slot for held in prefix._held.values()} <= set(range(6))

    fuzz.check_turn = check  # type: ignore[method-assign]
    try:
        let_follow_all(fuzz.engine)
        while fuzz.n_steps < 250:
            fuzz.step()
        fuzz.finish()
        aside.extend(told(fuzz.engine))
    finally:
        fuzz.engine.close()
    assert fuzz.kinds["live"] > 20
    assert fuzz.kinds["rebuild"] == 0
    came = {number: max(0, record.output_tokens - 1) for number, record in fuzz.finished.items()}
    greedy = {number: n for number, n in came.items() if fuzz.jobs[number].sampling.is_greedy}
    for source, expected in (("ngram", came), ("draft", greedy)):
        records = [r for r in aside if isinstance(r, DraftShadow) and r.source == source]
        assert sum(record.tokens for record in records) == sum(expected.values())
        assert sum(record.requests for record in records) == sum(n > 0 for n in expected.values())
        sums = summed(records)
        assert {sums[length].tokens for length in sums if length != 3} == {sum(expected.values())}


def test_records_belong_to_the_configuration_under_which_the_tokens_came() -> None:
    engine = open_engine(lab_config(speculation="off", draft_model=None), keep_text=False)
    try:
        let_follow_all(engine)
        engine.submit(job(0, prompts(engine, 1)[0], 90, ignore_eos=True))
        aside: list[AnyRecord] = []
        for step, turn in enumerate(turns(engine)):
            aside.extend(turn.aside)
            if step == 40:
                engine.reconfigure(msgspec.structs.replace(engine.config, speculation="ngram"))
            elif step == 45:
                engine.reconfigure(msgspec.structs.replace(engine.config, shadows=False))
        aside.extend(engine.drain())
    finally:
        engine.close()
    records = [record for record in aside if isinstance(record, DraftShadow)]
    off = [record for record in records if record.epoch == 0]
    on = [record for record in records if record.epoch == 1]
    assert len(off) + len(on) == len(records)
    assert 30 <= sum(record.tokens for record in off) <= 41
    assert {counts.length for record in off for counts in record.lengths} == set(range(1, 9))
    assert {counts.length for record in on for counts in record.lengths} == set(range(1, 9)) - {3}
    assert sum(record.tokens for record in records) < 89
