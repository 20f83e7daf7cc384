"""Evidence out of records: windows, idle time, what the machine says, and which model stands for a calm machine."""

from __future__ import annotations

import time

import msgspec
import pytest

from stackscope.analysis.diagnosis.follower import Follower, namings
from stackscope.analysis.diagnosis.gather import LEAST_FORWARDS, LONGEST_NS, WINDOW_NS, Gatherer
from stackscope.analysis.diagnosis.machine import Level, MachineWatch, mean_rate
from stackscope.analysis.diagnosis.reference import Pace, Reference
from stackscope.analysis.ledgers import UNPRICED
from stackscope.records import (
    CacheCounters,
    ConfigEvent,
    GpuSample,
    HardwareSample,
    Header,
    Phases,
    PrefixShadow,
    Probe,
    StepRecord,
)
from stackscope.toggles import EngineConfig
from tests.analysis_builders import MS, decode, lab_target, prefill, request, step, verify
from tests.diagnosis_machine import Costs, Disturbance, Load, Machine, Model, S, Watch

CONFIG = EngineConfig(threads=2)
HEADER = Header(stackscope="0", started="", host="", device="", model=lab_target(), config=CONFIG)


def gathered(*records: object) -> Gatherer:
    gatherer = Gatherer()
    gatherer.write(HEADER)
    for record in records:
        gatherer.write(record)  # type: ignore[arg-type]
    return gatherer


def plain(n: int, start_ns: int, duration_ns: int = 10 * MS, **fields: object) -> StepRecord:
    return step(decode(0, cached=10 + n), n=n, start_ns=start_ns, phases=Phases(decode=duration_ns), slots_busy=1,
                slots=4, cpu_ns=2 * duration_ns, **fields)  # fmt: skip


def steady(n: int, first_ns: int = 0, gap_ns: int = 10 * MS, duration_ns: int = 10 * MS) -> list[StepRecord]:
    return [plain(i, first_ns + i * gap_ns, duration_ns) for i in range(n)]


# Windows


def test_times_are_those_of_the_steps_and_of_the_pauses_between() -> None:
    phases = Phases(admit=1, build=2, draft=3, decode=4, sample=5, commit=6, emit=7, shadow=8, other=9)
    steps = [
        step(decode(0, cached=1), n=0, start_ns=0, phases=phases),
        step(decode(0, cached=2), n=1, start_ns=145, phases=phases),
    ]
    times = gathered(*steps).evidence(S, None).times
    assert (times.idle, times.admit, times.build, times.draft) == (100, 2, 4, 6)
    assert (times.forward, times.sample, times.commit, times.emit) == (8, 10, 12, 14)
    assert (times.shadow, times.other) == (16, 18)
    assert times.wall == 190


def test_a_forward_that_was_cut_short_is_not_explained() -> None:
    cut = step(decode(0, cached=1), phases=Phases(decode=100), aborted=True)
    evidence = gathered(cut).evidence(S, None)
    assert (evidence.forwards, evidence.times.forward, evidence.times.other) == (0, 0, 100)


def test_the_window_is_of_the_last_seconds() -> None:
    gatherer = gathered(*steady(3_000))
    evidence = gatherer.evidence(30 * S, None)
    assert evidence.times.wall == pytest.approx(WINDOW_NS, abs=0.5 * S)


def test_it_is_longer_where_forwards_are_slow_but_no_longer_than_a_minute() -> None:
    slow = [plain(i, i * 4 * S, 4 * S) for i in range(40)]
    evidence = gathered(*slow).evidence(160 * S, None)
    assert evidence.forwards == pytest.approx(LEAST_FORWARDS, abs=1)
    slower = [plain(i, i * 20 * S, 20 * S) for i in range(10)]
    evidence = gathered(*slower).evidence(200 * S, None)
    assert evidence.forwards <= LONGEST_NS // (20 * S) + 1


def test_a_change_begins_a_window_anew() -> None:
    changed = msgspec.structs.replace(CONFIG, slots=2)
    event = ConfigEvent(at_ns=S, epoch=1, kind="live", changes={"slots": (8, 2)}, config=changed)
    later = [plain(100 + i, S + i * 10 * MS, epoch=1) for i in range(5)]
    evidence = gathered(*steady(100), event, *later).evidence(S + 50 * MS, None)
    assert (evidence.steps, evidence.config) == (5, changed)


def test_missing_steps_leave_a_gap_and_no_idle_time() -> None:
    evidence = gathered(plain(0, 0), plain(7, 4 * S)).evidence(5 * S, None)
    assert evidence.times.idle == 0


def test_an_engine_with_nothing_in_flight_waits_until_now() -> None:
    records = [*steady(10), request((90 * MS, 1), id=0)]
    assert gathered(*records).evidence(5 * S, None).times.idle == 5 * S - 100 * MS
    assert gathered(*records).evidence(100 * S, None).times.idle == WINDOW_NS


def test_one_that_is_in_a_step_does_not() -> None:
    assert gathered(*steady(10)).evidence(5 * S, None).times.idle == 0
    queued = [plain(0, 0, queue=1), request((10 * MS, 1), id=0)]
    assert gathered(*queued).evidence(5 * S, None).times.idle == 0


def test_a_header_begins_a_session_anew() -> None:
    gatherer = gathered(*steady(10))
    gatherer.write(HEADER)
    assert gatherer.evidence(S, None).steps == 0


# Counts


def test_speculation_is_counted_as_tokens_per_sequence_and_forward() -> None:
    steps = [
        step(verify(0, cached=10, drafted=3, accepted=2), verify(1, cached=10, drafted=3, accepted=0), n=0),
        step(decode(0, cached=13), decode(1, cached=11), n=1, start_ns=MS),
    ]
    found = gathered(*steps).evidence(S, None).speculation
    assert found is not None
    assert found.tokens_per_forward == (3 + 1 + 1 + 1) / 4
    assert (found.coverage, found.acceptance, found.length) == (2 / 4, 2 / 6, 3.0)
    assert found.wasted_rows == (1 + 3) / 2
    assert found.break_even is None


def test_steps_are_told_apart_by_who_is_in_them() -> None:
    steps = [
        step(decode(0, cached=9), n=0, start_ns=0, phases=Phases(decode=10)),
        step(decode(0, cached=10), prefill(1, new=64), n=1, start_ns=10, phases=Phases(decode=50)),
        step(prefill(1, new=64, cached=64), n=2, start_ns=60, phases=Phases(decode=40)),
    ]
    found = gathered(*steps).evidence(S, None).batching
    assert (found.pure_steps, found.pure_ns) == (1, 10)
    assert (found.mixed_steps, found.mixed_ns, found.prefill_ns) == (1, 50, 40)
    assert (found.rows, found.prefill_rows, found.decode_rows) == (130, 128, 2)


def test_the_queue_is_a_share_of_requests_time_by_littles_law() -> None:
    steps = [plain(i, i * 10 * MS, queue=3) for i in range(20)]
    load = gathered(*steps).evidence(S, None).load
    # 3 wait and 1 runs: three quarters of a request's time. Slots are free, so they wait for room.
    assert (load.queue, load.slots_busy, load.wait_share, load.full) == (3.0, 1.0, 0.75, 0.0)


def test_what_hits_spare_is_priced_by_the_prompts_that_were_computed() -> None:
    cache = CacheCounters(lookups=1, lookup_tokens=200, hit_tokens=150, useful_hit_tokens=150)
    alone = step(prefill(0, new=50), n=0, start_ns=0, phases=Phases(decode=50 * MS), cache=cache)
    spared = gathered(alone, plain(1, 50 * MS, 50 * MS)).evidence(S, None).cache.spared
    # A millisecond a token for 150 of them, while 100 ms passed.
    assert spared == pytest.approx(1.5)
    beside = step(
        prefill(0, new=50), decode(1, cached=9), n=0, start_ns=0, phases=Phases(decode=60 * MS), cache=cache
    )  # fmt: skip
    assert gathered(beside, plain(1, 60 * MS, 10 * MS)).evidence(S, None).cache.spared == pytest.approx(150 / 70)
    assert gathered(beside).evidence(S, None).cache.spared is None
    assert gathered(plain(0, 0)).evidence(S, None).cache.spared == 0.0
    only = plain(0, 0, cache=cache)
    assert gathered(only).evidence(S, None).cache.spared is None


def test_a_shadow_without_limit_says_what_was_lost() -> None:
    cache = CacheCounters(lookups=1, lookup_tokens=200, hit_tokens=40, useful_hit_tokens=40, blocks_evicted=5)
    shadow = PrefixShadow(at_ns=90 * MS, epoch=0, requests=1, lookup_tokens=100, hit_tokens=90, useful_hit_tokens=90)
    limited = msgspec.structs.replace(shadow, capacity_tokens=64, useful_hit_tokens=10)
    found = gathered(plain(0, 0, cache=cache), *steady(5)[1:], shadow, limited).evidence(S, None).cache
    # 90 % of 200 tokens would have been found, 40 were.
    assert (found.unlimited_tokens, found.lost_tokens, found.hit_rate) == (180.0, 140.0, 0.2)
    unknown = gathered(plain(0, 0, cache=cache)).evidence(S, None).cache
    assert unknown.lost_tokens is None


# The machine


def probe(at_s: float, read: float, *, compute: float = 1e6, core: float = 1.0) -> Probe:
    return Probe(at_ns=round(at_s * S), read_bytes_per_s=read, compute_per_s=compute, cpu_share=core)


def test_a_level_is_sustained_and_not_the_best_moment() -> None:
    level = Level()
    for value in (10.0, 10.0, 30.0, 10.0, 10.0, 10.0):
        level.add(value)
    assert level.calm == 10.0
    assert level.against(mean_rate([5.0, 20.0])) == 0.8  # As much work takes 2 and 0.5 times as long, 1.25 on average.


def test_probes_are_held_against_what_they_found_undisturbed() -> None:
    watch = MachineWatch()
    for i in range(10):
        watch.probe(probe(2 * i, 20e9))
    for i in range(10, 100):
        watch.probe(probe(2 * i, 8e9))
    machine = watch.machine(190 * S, cpu_share=1.0)
    assert machine.read == pytest.approx(0.4)
    assert machine.compute == pytest.approx(1.0)
    assert not machine.is_calm


def computing(*rates: float) -> tuple[MachineWatch, int]:
    """A watch that saw five calm seconds and then these, one a second; and since when."""
    watch = MachineWatch()
    for at_s, rate in enumerate((1.0,) * 5 + rates):
        watch.probe(probe(at_s, 20e9, compute=rate * 1e6))
    return watch, 4 * S


def test_a_slow_probe_or_two_do_not_say_that_computing_is_slower() -> None:
    watch, since_ns = computing(0.6, 1.0, 0.6, 1.0, 1.0)
    assert watch.machine(since_ns, None).compute == 1.0
    watch, since_ns = computing(0.6, 0.6, 0.6, 1.0, 0.6)
    assert watch.machine(since_ns, None).compute == pytest.approx(0.6)


def test_computing_is_no_longer_slower_as_soon_as_two_of_the_last_three_probes_are_not() -> None:
    watch, since_ns = computing(0.6, 0.6, 0.6, 1.0, 1.0)
    assert watch.machine(since_ns, None).compute == 1.0


@pytest.mark.parametrize(("ratio", "felt"), [(1.5, 1.5), (1.0, 1.0)])
def test_forwards_are_held_against_those_of_the_seconds_in_which_the_probe_was_not_slow(
    ratio: float, felt: float
) -> None:
    watch, since_ns = computing(0.6, 0.6, 0.6, 1.0, 0.6)
    slow = (5, 6, 7, 9)
    paces = [Pace(at_s * S, 1.1 * (ratio if at_s in slow else 1.0)) for at_s in range(10)]
    machine = watch.with_felt(watch.machine(since_ns, None), since_ns, lambda: paces)
    assert machine.compute_felt == pytest.approx(felt)
    assert machine.read_felt is None  # It is read as fast as ever.


def test_what_forwards_felt_is_not_asked_while_no_probe_is_slow() -> None:
    watch, since_ns = computing(1.0, 1.0, 0.6, 1.0, 1.0)

    def never() -> list[Pace]:
        raise AssertionError

    assert watch.with_felt(watch.machine(since_ns, None), since_ns, never).compute_felt is None


def test_a_probe_that_had_no_core_says_nothing_of_memory() -> None:
    watch = MachineWatch()
    for i in range(5):
        watch.probe(probe(2 * i, 20e9))
    for i in range(5, 10):
        watch.probe(probe(2 * i, 5e9, core=0.4))
    machine = watch.machine(9 * S, cpu_share=None)
    assert machine.read is None
    assert machine.probe_cpu_share == 0.4


def test_without_probes_nothing_is_known_of_memory() -> None:
    machine = MachineWatch().machine(0, None)
    assert (machine.read, machine.compute, machine.cpu_share) == (None, None, None)
    assert machine.is_calm


def test_foreign_cores_are_what_neither_engine_nor_stackscope_used() -> None:
    watch = MachineWatch()
    for i in range(4):
        watch.sample(
            HardwareSample(at_ns=i * S, cpu_percent=75.0, cores=4, engine_cpu_ns=2 * i * S, own_cpu_ns=i * S // 10)
        )
    assert watch.machine(-1, None).foreign_cores == pytest.approx(3.0 - 2.0 - 0.1)
    assert watch.machine(2 * S, None).foreign_cores is None  # One sample has nothing to compare with.


def test_clocks_are_those_of_gpus_that_are_used() -> None:
    def gpu(*, is_used: bool) -> GpuSample:
        return GpuSample(uuid="x", name="GPU", is_used=is_used, utilisation=0.3, throttled={"power cap": 0.4})

    watch = MachineWatch()
    watch.sample(HardwareSample(at_ns=S, gpus=(gpu(is_used=False),)))
    assert watch.machine(0, None).clocks_held == ()
    watch.sample(HardwareSample(at_ns=2 * S, gpus=(gpu(is_used=True), gpu(is_used=False))))
    machine = watch.machine(0, None)
    assert (machine.clocks_held, machine.gpus, machine.gpus_used) == ((("power cap", 0.4),), 2, 1)


def test_threads_that_always_sleep_a_little_count_as_calm() -> None:
    watch = Watch(Machine(Load(output=200)))
    watch.run(6, Disturbance(sleep=0.92))
    assert watch.evidence.machine.is_calm


# The model


def test_the_model_is_asked_of_a_few_steps_that_stand_for_all() -> None:
    machine = Machine(Load(concurrency=4, prompt=128, output=20), noise=0.0)
    watch = Watch(machine)
    watch.run(10)
    evidence = watch.evidence
    assert evidence.terms is not None
    # They stand for as many steps and rows as there were, and the machine takes what the model says.
    assert evidence.terms.forward == pytest.approx(evidence.times.forward, rel=1e-3)
    assert evidence.slowdown == pytest.approx(1.0, rel=1e-3)


def test_a_disturbed_machine_is_held_against_the_model_of_before() -> None:
    machine = Machine(Load(output=200))
    watch = Watch(machine)
    watch.run(10)
    watch.run(5, Disturbance(core=0.5, foreign_cores=0.5, pressure=0.5))
    watch.model = Model(machine.costs, machine.config, error=2.0)  # By now it has learned the slow machine.
    watch.run(10, Disturbance(core=0.5, foreign_cores=0.5, pressure=0.5))
    assert watch.evidence.is_reference_calm
    assert watch.evidence.slowdown == pytest.approx(2.0, rel=0.05)


def test_in_another_configuration_the_calm_model_is_carried_over() -> None:
    machine = Machine(Load(output=200))
    watch = Watch(machine)
    watch.run(10)
    watch.run(10, Disturbance(core=0.5, foreign_cores=0.5, pressure=0.5))
    changed = msgspec.structs.replace(machine.config, token_budget=512)
    watch.gatherer.write(
        ConfigEvent(at_ns=machine.now_ns, epoch=0, kind="live", changes={"token_budget": (256, 512)}, config=changed)
    )
    slow = Model(machine.costs, changed, error=2.0)
    assert watch.gatherer.evidence(machine.now_ns, slow).slowdown == pytest.approx(2.0, rel=0.05)


def test_what_the_first_starved_steps_taught_stands_for_no_calm_machine() -> None:
    reference = Reference()
    first = Model(Costs(), CONFIG, error=0.3, is_starved=True)
    assert not reference.update(first, CONFIG, UNPRICED, is_calm=False, is_early=True)
    assert reference.model is None
    # What knows more is there to divide forwards, and does not pass for calm.
    second = Model(Costs(), CONFIG, is_starved=True)
    assert not reference.update(second, CONFIG, UNPRICED, is_calm=False)
    assert reference.model is second
    third = Model(Costs(), CONFIG)
    assert reference.update(third, CONFIG, UNPRICED, is_calm=False)
    assert reference.model is third


def test_what_knows_more_replaces_a_calm_model_of_the_first_steps() -> None:
    reference = Reference()
    first = Model(Costs(), CONFIG, error=0.3, is_calibrated=False)
    assert reference.update(first, CONFIG, UNPRICED, is_calm=True, is_early=True)
    # Starved ones that are as early do not.
    assert reference.update(Model(Costs(), CONFIG, is_starved=True), CONFIG, UNPRICED, is_calm=False, is_early=True)
    assert reference.model is first
    later = Model(Costs(), CONFIG, is_calibrated=False)
    assert not reference.update(later, CONFIG, UNPRICED, is_calm=False)
    assert reference.model is later


# As it goes by


def test_a_whole_session_is_followed_once_a_second_and_at_its_end() -> None:
    machine = Machine(Load(output=200))
    records = [machine.header, *machine.run(12)]
    found = list(namings(records))
    assert 11 <= len(found) <= 14
    assert found[-1].name == "weight bandwidth"
    assert found[-1].at_ns == max(r.end_ns for r in records if isinstance(r, StepRecord))


def test_a_follower_begins_anew_with_a_header() -> None:
    machine = Machine(Load(output=200))
    follower = Follower()
    for record in [machine.header, *machine.run(6)]:
        follower.write(record)
    follower.name(machine.now_ns)
    follower.write(machine.header)
    assert follower.name(machine.now_ns).sentence == "no step has run in the last seconds"


def test_gathering_costs_a_few_microseconds_per_step() -> None:
    machine = Machine(Load(concurrency=4, output=200), Costs(weights=0.2 * MS, row=0.01 * MS, head=0.01 * MS))
    steps = [record for record in machine.run(2) if isinstance(record, StepRecord)]
    best = min(_gathering_ns(steps) for _ in range(5))
    assert len(steps) > 500
    assert best / len(steps) < 50_000  # Measured: 3 µs; a busy machine of another kind may take longer.


def _gathering_ns(steps: list[StepRecord]) -> int:
    gatherer = gathered()
    began = time.process_time_ns()
    for one in steps:
        gatherer.write(one)
    gatherer.catch_up()
    return time.process_time_ns() - began
