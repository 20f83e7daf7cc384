"""The live view as a whole: states, windows that widen, what follows changes, and what is not known."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.live import view as view_module
from stackscope.analysis.live.snapshot import Snapshot, Window
from stackscope.analysis.live.view import MOST_LINES, MOST_STEPS, LiveView
from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.records import (
    CacheCounters,
    ConfigEvent,
    DraftForward,
    HardwareSample,
    Log,
    Mark,
    Phases,
    StepRecord,
    TrafficEvent,
)
from stackscope.toggles import EngineConfig
from tests.analysis_builders import MS, decode, lab_target, prefill, request, step
from tests.unit.record_builders import make_footer, make_header

if TYPE_CHECKING:
    from stackscope.records import AnyRecord, Header

SECOND = 1_000 * MS
CONFIG = EngineConfig(model="/models/lab-F16.gguf", threads=2)


def header(**changes: object) -> Header:
    known = ("phases", "cpu", "slots", "prefix_cache", "acceptance")
    fields: dict[str, object] = {"model": lab_target(), "config": CONFIG, "capabilities": known}
    return make_header(**(fields | changes))


def decoding(n: int, start_ns: int, duration_ns: int = MS, **changes: object) -> StepRecord:
    phases = Phases(decode=duration_ns)
    return step(decode(0, cached=9), n=n, start_ns=start_ns, phases=phases, slots_busy=1, slots=8, **changes)


def finishing(end_ns: int, id: int = 0) -> AnyRecord:
    return request((end_ns, 1), id=id, arrived_ns=0, finished_ns=end_ns)


def fed(*records: AnyRecord, limits: ServiceLimits | None = None) -> LiveView:
    view = LiveView(limits)
    for record in records:
        view.write(record)
    return view


def steady(n: int, duration_ns: int = MS, *, first: int = 0) -> list[StepRecord]:
    return [decoding(k, k * duration_ns, duration_ns) for k in range(first, first + n)]


def test_nothing_is_known_before_anything_comes() -> None:
    shown = fed().snapshot(5)
    assert shown == Snapshot(at_ns=5, verdict=shown.verdict)
    assert shown.verdict.name is None
    assert shown.verdict.sentence


def test_it_starts_with_what_the_header_says() -> None:
    workload = {"name": "code", "concurrency": 6, "rate": None}
    shown = fed(header(workload=workload)).snapshot(0)
    assert (shown.state, shown.config, shown.concurrency, shown.rate) == ("starting", CONFIG, 6, None)
    assert shown.model_name == "hand-made"
    assert (shown.now, shown.minute, shown.history.points) == (Window(), Window(), ())


def test_the_model_is_named_by_its_file() -> None:
    model = msgspec.structs.replace(lab_target(), path="/models/qwen3-8b-Q8_0.gguf", name="Qwen3 8B")
    assert fed(header(model=model)).snapshot(0).model_name == "qwen3-8b-Q8_0"


def test_it_runs_while_something_is_in_flight() -> None:
    assert fed(header(), *steady(3)).snapshot(60 * SECOND).state == "running"


def test_it_waits_when_nothing_is_in_flight_for_a_while() -> None:
    view = fed(header(), *steady(3), finishing(3 * MS))
    assert view.snapshot(100 * MS).state == "running"
    shown = view.snapshot(603 * MS)
    assert shown.state == "waiting"
    assert shown.now.wall_ns == 603 * MS
    assert shown.verdict.name is None
    assert fed(header(), decoding(0, 0, queue=1), finishing(MS)).snapshot(60 * SECOND).state == "running"


def test_with_slow_steps_it_takes_longer_to_count_as_waiting() -> None:
    """In a closed loop the next request is in its prefill by then."""
    view = fed(header(), decoding(0, 0, 4 * SECOND), finishing(4 * SECOND))
    assert view.snapshot(11 * SECOND).state == "running"
    assert view.snapshot(12 * SECOND).state == "waiting"


def test_it_does_not_claim_to_wait_when_the_source_does_not_know_the_slots() -> None:
    shown = fed(header(capabilities=("phases",)), *steady(3), finishing(3 * MS)).snapshot(60 * SECOND)
    assert shown.state == "running"


def test_a_settling_step_shows() -> None:
    assert fed(header(), decoding(0, 0, settling=True)).snapshot(MS).state == "settling"
    assert fed(header(), decoding(0, 0, settling=True), decoding(1, MS)).snapshot(2 * MS).state == "running"


@pytest.mark.parametrize(
    ("reason", "state"),
    [("done", "finished"), ("interrupted", "finished"), ("error", "finished"), ("engine-died", "dead")],
)
def test_it_ends_as_its_footer_says_and_stands_still(reason: str, state: str) -> None:
    view = fed(header(), *steady(2_000), make_footer(at_ns=2_100 * MS, reason=reason))
    shown = view.snapshot(2_200 * MS)
    assert (shown.state, shown.ended, shown.at_ns) == (state, reason, 2_100 * MS)
    assert view.snapshot(99 * SECOND) == shown


def test_a_header_begins_a_session_anew() -> None:
    view = fed(header(), *steady(700), Mark(at_ns=SECOND, label="old"), make_footer())
    view.write(header())
    assert view.snapshot(0) == fed(header()).snapshot(0)
    assert len(view.steps) == 0


def test_now_is_two_seconds() -> None:
    shown = fed(header(), *steady(10_000)).snapshot(10 * SECOND)
    assert 2 * SECOND <= shown.now.wall_ns <= 2.5 * SECOND
    assert shown.minute.wall_ns == 10 * SECOND


def test_now_holds_four_forwards_however_long_they_take() -> None:
    shown = fed(header(), *steady(20, 3 * SECOND)).snapshot(60 * SECOND)
    assert 4 <= shown.now.steps <= 5
    assert shown.now.step_ns == 3 * SECOND
    assert shown.now.tokens_per_s == pytest.approx(1 / 3)


def test_short_steps_far_apart_do_not_widen_it() -> None:
    apart = [decoding(n, n * 5 * SECOND) for n in range(6)]
    shown = fed(header(), *apart).snapshot(25 * SECOND + MS)
    assert 2 * SECOND <= shown.now.wall_ns <= 2.5 * SECOND
    assert shown.now.steps == 1


def test_now_is_not_known_any_more_when_nothing_comes() -> None:
    view = fed(header(), *steady(3_000))
    assert view.snapshot(5 * SECOND).now.tokens_per_s == 1_000
    silent = view.snapshot(9 * SECOND)
    assert silent.now == Window()
    assert silent.verdict.name is None
    assert silent.verdict.sentence == "no step has ended for 6 seconds, with 1 request in flight"


def test_counts_are_of_the_whole_session() -> None:
    records = [*steady(300), finishing(300 * MS), *[decoding(n, n * MS + 200 * SECOND) for n in range(300, 400)]]
    shown = fed(header(), *records).snapshot(201 * SECOND)
    assert (shown.n_steps, shown.n_tokens, shown.n_requests) == (400, 400, 1)
    assert shown.minute.steps == 100


def test_a_recording_that_begins_in_the_middle() -> None:
    """Header, then a change without changes that says what is in force, then steps from any number on."""
    other = msgspec.structs.replace(CONFIG, slots=3, kv_type_k="q8_0", kv_type_v="q8_0")
    in_force = ConfigEvent(at_ns=0, epoch=7, kind="rebuild", config=other)
    steps = [decoding(5_000 + n, 90 * SECOND + n * MS, epoch=7) for n in range(100)]
    shown = fed(header(), in_force, *steps).snapshot(91 * SECOND)
    assert (shown.config, shown.epoch, shown.events, shown.history.changes) == (other, 7, (), ())
    assert shown.n_steps == 100
    assert shown.now.wall_ns == 100 * MS
    one = Ledger(lab_target(), "q8_0", "q8_0").account(steps[0])
    assert shown.now.bytes_per_step == one.total_bytes


def test_a_change_is_followed() -> None:
    other = msgspec.structs.replace(CONFIG, model="/models/lab-Q8_0.gguf")
    small = msgspec.structs.replace(lab_target(), path="/models/lab-Q8_0.gguf")
    change = ConfigEvent(
        at_ns=SECOND, epoch=1, kind="rebuild", changes={"model": (CONFIG.model, other.model)}, config=other,
        model=small, duration_ns=300 * MS, requeued=2,
    )  # fmt: skip
    shown = fed(header(), *steady(1_000), change).snapshot(SECOND)
    assert (shown.config, shown.model_name, shown.epoch) == (other, "lab-Q8_0", 1)
    event = shown.events[0]
    assert (event.kind, event.duration_ns, event.requeued) == ("rebuild", 300 * MS, 2)
    assert shown.history.changes == ((SECOND, "weights Q8_0"),)


def test_a_refusal_changes_nothing() -> None:
    refused = ConfigEvent(
        at_ns=SECOND, epoch=0, kind="refused", changes={"kv_type_v": ("f16", "q4_0")}, reason="Not without it."
    )
    shown = fed(header(), *steady(1_000), refused).snapshot(SECOND)
    assert (shown.config, shown.epoch, shown.history.changes) == (CONFIG, 0, ())
    assert (shown.events[0].kind, shown.events[0].label, shown.events[0].effect) == ("refused", "Not without it.", None)


def test_the_load_is_followed() -> None:
    change = TrafficEvent(at_ns=SECOND, concurrency=16)
    again = TrafficEvent(at_ns=2 * SECOND, concurrency=16)
    shown = fed(header(workload={"concurrency": 8}), *steady(1_000), change, again).snapshot(2 * SECOND)
    assert (shown.concurrency, shown.rate) == (16, None)
    assert [event.changes for event in shown.events] == [{"concurrency": (8, 16)}]
    assert shown.history.changes == ((SECOND, "load 16"),)


def test_load_told_before_any_step_is_what_it_starts_with() -> None:
    shown = fed(header(workload={"concurrency": 8}), TrafficEvent(at_ns=0, rate=2.5), *steady(9)).snapshot(9 * MS)
    assert (shown.rate, shown.events) == (2.5, ())


def test_levels_are_those_of_the_last_step() -> None:
    first = decoding(0, 0, cache=CacheCounters(lookups=1, resident_blocks=2, missed_at=118))
    last = decoding(1, MS, queue=3, kv_cells=77, cache=CacheCounters(resident_blocks=5, resident_paths=2))
    levels = fed(header(), first, last).snapshot(2 * MS).levels
    assert (levels.queue, levels.slots_busy, levels.slots, levels.kv_cells) == (3, 1, 8, 77)
    assert (levels.resident_blocks, levels.resident_paths, levels.shared_blocks) == (5, 2, 0)
    assert levels.held_bytes == 5 * CONFIG.block_tokens * Ledger(lab_target()).kv_bytes_per_token
    assert levels.missed_at == 118  # No step has looked anything up since.


def test_a_look_up_that_missed_nothing_takes_back_where_the_last_one_missed() -> None:
    first = decoding(0, 0, cache=CacheCounters(lookups=1, missed_at=118))
    last = decoding(1, MS, cache=CacheCounters(lookups=1))
    assert fed(header(), first, last).snapshot(2 * MS).levels.missed_at is None


def test_what_an_attached_source_does_not_name_stays_unknown() -> None:
    source = header(source="attach", model=None, config=None, capabilities=())
    steps = [step(prefill(0, new=5, emitted=1), n=n, start_ns=n * MS, phases=Phases(other=MS)) for n in range(3_000)]
    shown = fed(source, *steps).snapshot(3 * SECOND)
    assert shown.now.tokens_per_s == 1_000
    for window in (shown.now, shown.minute):
        assert window.parts == ()
        for name in (
            "coverage", "acceptance", "drafted", "wasted_rows", "lookup_tokens", "useful_hit_rate", "blocks_evicted",
            "bytes_per_s", "forward_bytes_per_s", "flops_per_s", "occupancy", "slots_busy", "queue", "cpu_share",
            "requests_per_s",
        ):  # fmt: skip
            assert getattr(window, name) is None, name
    assert set(msgspec.structs.asdict(shown.levels).values()) == {None}
    assert not shown.latency.is_complete
    assert shown.verdict.name is None
    assert "does not say" in shown.verdict.sentence


def test_requests_that_kept_the_limits() -> None:
    records = [*steady(10), finishing(5 * MS, 1), finishing(9 * MS, 2)]
    latency = fed(header(), *records, limits=ServiceLimits(ttft_ns=6 * MS)).snapshot(10 * MS).latency
    assert (latency.ttft_limit_ns, latency.good_share) == (6 * MS, 0.5)
    assert fed(header(), *records).snapshot(10 * MS).latency.good_share is None


def test_hardware_and_log_are_handed_on() -> None:
    sample = HardwareSample(at_ns=800 * MS, cpu_percent=40.0)
    lines = [Log(at_ns=k, text=f"line {k}") for k in range(50)]
    shown = fed(header(), *steady(1_200), sample, *lines).snapshot(1_200 * MS)
    assert shown.hardware == sample
    assert len(shown.log) == MOST_LINES
    assert shown.log[-1] == "line 49"
    assert [point.cpu_percent for point in shown.history.points] == [40.0, 40.0]


def test_the_newest_steps_can_be_looked_at() -> None:
    view = fed(header(), *steady(3_000))
    view.snapshot(3 * SECOND)
    assert [one.n for one in view.steps] == list(range(3_000 - MOST_STEPS, 3_000))


def test_a_step_whose_change_was_lost_is_priced_by_nobody() -> None:
    shown = fed(header(), *[decoding(n, n * MS, epoch=3) for n in range(10)]).snapshot(10 * MS)
    assert shown.now.tokens_per_s == 1_000
    assert shown.now.bytes_per_s is None
    assert shown.epoch == 3


def test_without_the_draft_model_no_byte_is_known() -> None:
    drafting = decoding(0, 0, draft=(DraftForward(((3, 1),), 1),))
    assert fed(header(), decoding(0, 0)).snapshot(MS).now.bytes_per_s is not None
    assert fed(header(), drafting).snapshot(MS).now.bytes_per_s is None
    known = header(draft_model=lab_target(), config=msgspec.structs.replace(CONFIG, draft_model="draft.gguf"))
    assert fed(known, drafting).snapshot(MS).now.bytes_per_s is not None


def test_the_verdict_is_of_the_phases_and_says_so() -> None:
    shown = fed(header(), *steady(5_000)).snapshot(5 * SECOND)
    assert (shown.verdict.basis, shown.verdict.name, shown.verdict.share) == ("phases", "Decode forward", 1.0)
    assert "by phase shares alone" in shown.verdict.sentence


def test_records_are_summed_together_only_up_to_a_bound() -> None:
    """What waits is summed up when it is many, without anybody looking."""
    view = fed(header(), *steady(view_module.MOST_PENDING))
    assert len(view.steps) == view_module.MOST_PENDING


def test_a_change_is_measured() -> None:
    """Twelve seconds of about 10 ms a step, then as long at half of it: the event tells about twice the speed."""
    dice = random.Random(3)
    records: list[AnyRecord] = [header(workload={"concurrency": 1})]
    now = n = 0
    for epoch, typical_ns in enumerate((10 * MS, 5 * MS)):
        until_ns = now + 12 * SECOND
        while now < until_ns:
            duration_ns = round(typical_ns * dice.lognormvariate(0, 0.05))
            records.append(decoding(n, now, duration_ns, epoch=epoch))
            now, n = now + duration_ns, n + 1
        if epoch == 0:
            other = msgspec.structs.replace(CONFIG, threads=4)
            records.append(ConfigEvent(at_ns=now, epoch=1, kind="live", changes={"threads": (2, 4)}, config=other))
    event = fed(*records).snapshot(now).events[0]
    assert event.effect is not None
    assert event.effect.state == "measured"
    assert event.effect.tokens is not None
    assert event.effect.tokens.is_distinguishable
    assert event.effect.tokens.value == pytest.approx(2, rel=0.05)
