"""The sink that a working point comes from: what it keeps, what it forgets, and when it has nothing to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.live.view import LiveView
from stackscope.analysis.whatif.sampling import MOST_DECODING, MOST_MIXED, sample
from stackscope.analysis.whatif.watch import MOST_STEPS, Watch
from stackscope.analysis.whatif.working_point import WorkingPoint
from stackscope.engine.allowances import Allowances
from stackscope.records import CacheCounters, ConfigEvent, Delay, Phases, PrefixShadow, TrafficEvent
from tests.analysis_builders import MS, decode, prefill, request, step, verify
from tests.unit.whatif_engine import Traffic, header
from tests.unit.whatif_machine import CONFIG, MODEL, Machine, in_four_bits, pricing

if TYPE_CHECKING:
    from stackscope.records import StepRecord

TIMES: Final = Machine().times(CONFIG, pricing(CONFIG))


def steps(n: int, first: int = 0) -> list[StepRecord]:
    """Steps of 1 ms, one after the other, in which two sequences decode; every tenth computes 20 rows of a prompt."""
    made = []
    for i in range(first, first + n):
        work = [decode(0, cached=100 + i), decode(1, cached=50 + i)]
        if i % 10 == 9:
            work.append(prefill(10 + i, new=20, outputs=1, emitted=1))
        made.append(step(*work, n=i, start_ns=i * MS, slots=4, slots_busy=len(work), queue=1))
    return made


def watching(*some: StepRecord) -> Watch:
    watch = Watch()
    watch.write(header(CONFIG, Traffic(concurrency=3)))
    for one in some:
        watch.write(one)
    return watch


def point_of(watch: Watch) -> WorkingPoint:
    point = watch.point(TIMES)
    assert isinstance(point, WorkingPoint)
    return point


def test_sums_are_those_of_the_steps() -> None:
    """100 steps of 1 ms: 2 tokens each, and 10 prompts of 20 rows with a first token each."""
    point = point_of(watching(*steps(100)))
    assert point.tokens_per_s == pytest.approx(210 / 0.1)
    assert point.computed_per_token == pytest.approx(200 / 210)
    assert point.demanded_per_token == pytest.approx(200 / 210)
    assert point.tokens_per_round == 1.0
    assert point.idle_share == 0.0
    assert point.slots_busy == pytest.approx(2.1)
    assert point.queue == pytest.approx(1.0)
    assert point.gap_ns == pytest.approx(MS)
    assert point.concurrency == 3
    assert point.model == MODEL


def test_the_sample_is_bounded_and_stands_for_all_steps() -> None:
    point = point_of(watching(*steps(400)))
    plain = [one for one in point.rounds if not one.chunks]
    mixed = [one for one in point.rounds if one.chunks]
    assert (len(plain), len(mixed)) == (MOST_DECODING, MOST_MIXED)
    assert sum(one.weight for one in plain) == 360
    assert sum(one.weight for one in mixed) == 40
    assert sum(one.chunk_weight * sum(c.new for c in one.chunks) for one in mixed) == pytest.approx(800)


def test_a_chunk_knows_what_its_request_computes_and_found() -> None:
    some = [
        step(prefill(7, new=30, cached=16), n=0),
        step(prefill(7, new=10, cached=46, outputs=1, emitted=1), n=1, start_ns=MS),
    ]
    [first, second] = sample(some, 16).figures["rounds"]
    assert {one.chunks[0].computed for one in (first, second)} == {40}
    assert {one.chunks[0].found for one in (first, second)} == {16}


def test_a_prompt_without_rows_is_no_chunk() -> None:
    """Damaged recordings have such; prompts that meet less often are weighed by their rows."""
    some = [step(prefill(7, new=0, cached=16), decode(0, cached=10), n=0)]
    [only] = sample(some, 16).figures["rounds"]
    assert only.chunks == ()
    assert len(only.decoding) == 1


def test_idle_time_lies_between_steps_that_follow_each_other() -> None:
    some = [step(decode(0, cached=10), n=n, start_ns=n * 4 * MS) for n in range(9)]
    assert point_of(watching(*some)).idle_share == pytest.approx(24 / 33)
    missing = [step(decode(0, cached=10), n=3 * n, start_ns=n * 4 * MS) for n in range(9)]
    assert point_of(watching(*missing)).idle_share == 0.0


def test_drafts_are_counted_as_they_were_accepted() -> None:
    some = [step(verify(0, cached=10, drafted=3, accepted=3 if n % 2 else 1), n=n, start_ns=n * MS) for n in range(10)]
    point = point_of(watching(*some))
    assert point.tokens_per_round == pytest.approx((4 + 2) / 2)
    assert point.full_share == 0.5
    assert point.rounds[0].decoding[0].drafted == 3


def test_only_the_newest_steps_are_kept() -> None:
    assert point_of(watching(*steps(3 * MOST_STEPS))).n_steps == MOST_STEPS


@pytest.mark.parametrize("change", [{"aborted": True}, {"settling": True}])
def test_steps_that_are_no_example_are_left_out(change: dict[str, bool]) -> None:
    watch = watching(*[msgspec.structs.replace(one, **change) for one in steps(20)])
    assert watch.point(TIMES) == "Too few regular steps have run under this configuration to predict from: 0 of 8."


def test_steps_that_were_delayed_to_probe_a_cause_are_no_example_but_their_prompts_were_computed() -> None:
    """Every third step takes 3 ms, 2 of which were added to it; among them one that computes half of a prompt."""
    some = [one for one in steps(60) if all(work.phase != "prefill" for work in one.work)]
    delay = {"phases": Phases(decode=3 * MS), "delay": Delay("decode", 2 * MS)}
    probed = [msgspec.structs.replace(one, **(delay if n % 3 == 0 else {})) for n, one in enumerate(some)]
    calm = [one for one in probed if one.delay is None]
    point = point_of(watching(*probed))
    assert (point.n_steps, point.gap_ns) == (len(calm), MS)
    assert point.tokens_per_s == point_of(watching(*calm)).tokens_per_s
    assert sum(one.weight for one in point.rounds) == len(calm)
    first = msgspec.structs.replace(step(prefill(7, new=10, cached=0), n=0), **delay)
    second = step(prefill(7, new=30, cached=10, outputs=1, emitted=1), n=1, start_ns=3 * MS)
    [chunked] = sample([first, second], 16).figures["rounds"]
    assert (chunked.chunks[0].new, chunked.chunks[0].computed, chunked.chunks[0].found) == (30, 40, 0)


def test_a_step_in_which_the_engine_stood_still_is_no_example() -> None:
    calm = steps(60)
    stopped = msgspec.structs.replace(calm[30], phases=Phases(decode=300_000 * MS), slots_busy=4)
    point, usual = point_of(watching(*calm[:30], stopped, *calm[31:])), point_of(watching(*calm))
    assert point.n_steps == 59
    assert point.tokens_per_s == pytest.approx(usual.tokens_per_s, rel=0.02)
    assert point.slots_busy == pytest.approx(usual.slots_busy, rel=0.02)
    slow = [msgspec.structs.replace(one, phases=Phases(decode=2_000 * MS)) for one in calm]
    assert point_of(watching(*slow)).n_steps == 60


def test_a_change_begins_anew() -> None:
    watch = watching(*steps(100))
    after = msgspec.structs.replace(CONFIG, token_budget=64)
    event = ConfigEvent(at_ns=100 * MS, epoch=1, kind="live", changes={"token_budget": (256, 64)}, config=after)
    watch.write(event)
    assert isinstance(watch.point(TIMES), str)
    for one in steps(10, first=100):
        watch.write(one)
    point = point_of(watch)
    assert point.config == after
    assert point.n_steps == 10


def test_a_refused_change_changes_nothing() -> None:
    watch = watching(*steps(100))
    watch.write(ConfigEvent(at_ns=1, epoch=0, kind="refused", changes={"slots": (4, 8)}, reason="No."))
    assert point_of(watch).n_steps == 100


def test_other_weights_are_those_of_the_event() -> None:
    watch = watching(*steps(20))
    smaller = in_four_bits(MODEL)
    config = msgspec.structs.replace(CONFIG, model=smaller.path)
    watch.write(
        ConfigEvent(at_ns=1, epoch=1, kind="rebuild", changes={"model": ("a", "b")}, config=config, model=smaller)
    )
    for one in steps(20, first=20):
        watch.write(one)
    assert point_of(watch).model == smaller


def test_another_load_begins_anew_and_the_same_does_not() -> None:
    watch = watching(*steps(20))
    watch.write(TrafficEvent(at_ns=1, concurrency=3))
    assert point_of(watch).n_steps == 20
    watch.write(TrafficEvent(at_ns=1, concurrency=5))
    assert isinstance(watch.point(TIMES), str)


def test_waits_are_of_requests_that_arrived_since_the_change() -> None:
    watch = watching(*steps(20))
    watch.write(request((8 * MS, 1), arrived_ns=0, admitted_ns=2 * MS))
    watch.write(request((9 * MS, 1), arrived_ns=1 * MS, admitted_ns=5 * MS))
    point = point_of(watch)
    assert point.wait_ns == 3 * MS
    assert point.ttft_ns == 8 * MS
    event = ConfigEvent(at_ns=10 * MS, epoch=1, kind="live", changes={"seed": (0, 1)}, config=CONFIG)
    watch.write(event)
    watch.write(request((12 * MS, 1), arrived_ns=9 * MS, admitted_ns=9 * MS))
    for one in steps(20, first=20):
        watch.write(one)
    assert point_of(watch).wait_ns is None


def test_rules_hear_how_long_requests_were_in_the_session_and_lately() -> None:
    watch = watching(*steps(20))
    split = msgspec.structs.replace(CONFIG, unified_kv=False)

    def told() -> tuple[int | None, str | None]:
        point = watch.point(TIMES, rules=Allowances(cores=2))
        assert isinstance(point, WorkingPoint)
        assert point.rules is not None
        small = msgspec.structs.replace(split, context_tokens=48 * 512)
        return point.rules.cells(split, MODEL), point.rules.refusal(small, MODEL, None)

    usual, none = told()
    assert none is None
    watch.write(request((8 * MS, 100), arrived_ns=0, prompt_tokens=1400))
    more, reason = told()
    assert usual is not None
    assert more == usual // 1024 * 2048  # 1,500 and a quarter, rounded up.
    assert "A request in flight may take 1,500 tokens" in str(reason)
    watch.write(ConfigEvent(at_ns=10 * MS, epoch=1, kind="live", changes={"seed": (0, 1)}, config=CONFIG))
    for one in steps(20, first=20):
        watch.write(one)
    assert told() == (more, None)


def test_prompts_weigh_as_over_the_last_requests() -> None:
    """The window happens to have 20 prompt rows per 21 tokens; over the requests it was 40."""
    watch = watching(*steps(100))
    for i in range(10):
        watch.write(request(*[(k * MS, 1) for k in range(1, 22)], id=i, prompt_tokens=40))
    weights = [one.chunk_weight for one in point_of(watch).rounds if one.chunks]
    assert sum(weights) == pytest.approx(2 * 10)


def test_shadows_of_one_capacity_add_up() -> None:
    watch = watching(*steps(20))
    shadow = PrefixShadow(
        at_ns=1, epoch=0, requests=10, lookup_tokens=100, hit_tokens=40, useful_hit_tokens=30, capacity_tokens=512
    )
    watch.write(shadow)
    watch.write(shadow)
    watch.write(msgspec.structs.replace(shadow, capacity_tokens=None))
    found = {one.capacity_tokens: one.useful_hit_tokens for one in point_of(watch).prefix_shadows}
    assert found == {512: 60, None: 30}


def test_a_cache_without_limit_remembers_what_was_not_found_and_what_came_of_it() -> None:
    """Of 100 prompt tokens 60 were new, and two requests made 21 tokens each."""
    watch = Watch()
    watch.write(header(msgspec.structs.replace(CONFIG, prefix_cache=True), Traffic()))
    for one in steps(20):
        watch.write(one)
    assert point_of(watch).remembered is None
    watch.write(PrefixShadow(at_ns=1, epoch=0, requests=10, lookup_tokens=100, hit_tokens=40, useful_hit_tokens=30))
    for i in range(2):
        watch.write(request(*[(k * MS, 1) for k in range(1, 22)], id=i, prompt_tokens=50))
    assert point_of(watch).remembered == 60 + 42


def test_the_share_of_prompts_is_of_time() -> None:
    """One step of three has a prompt, and takes as long as the two others."""
    watch = watching()
    assert watch.prompt_share is None
    work = ([decode(0, cached=9)], [decode(0, cached=10)], [prefill(1, new=8)])
    for n, each in enumerate(work):
        watch.write(step(*each, n=n, start_ns=n * MS, phases=Phases(decode=MS if n < 2 else 2 * MS)))
    assert watch.prompt_share == pytest.approx(0.5)


def test_the_most_that_was_resident_is_in_tokens() -> None:
    some = [step(decode(0, cached=10), n=n, start_ns=n * MS, cache=CacheCounters(resident_blocks=n)) for n in range(9)]
    assert point_of(watching(*some)).most_resident == 8 * CONFIG.block_tokens


def test_a_source_without_a_configuration_has_no_working_point() -> None:
    assert Watch().point(TIMES) == "This source does not say how it is configured."


def test_a_header_begins_a_session_anew() -> None:
    watch = watching(*steps(20))
    watch.write(header(CONFIG, Traffic()))
    assert isinstance(watch.point(TIMES), str)


def test_steps_without_a_forward_are_no_example() -> None:
    some = [step(n=n, start_ns=n * MS, phases=Phases(admit=MS)) for n in range(20)]
    assert isinstance(watching(*some).point(TIMES), str)


def test_what_a_rebuild_has_computed_again_is_no_work_that_goes_on() -> None:
    watch = watching(*steps(30))
    watch.write(
        ConfigEvent(at_ns=30 * MS, epoch=1, kind="rebuild", changes={"kv_type_k": ("f16", "q8_0")}, config=CONFIG)
    )
    again = step(prefill(0, new=130), prefill(1, new=80), n=30, start_ns=31 * MS)
    watch.write(again)
    for one in steps(20, first=31):
        watch.write(one)
    point = point_of(watch)
    assert point.n_steps == 20
    assert point.computed_per_token == pytest.approx(40 / 42)  # The prompts of 39 and 49.
    # What is put back for want of cells is work like any other.
    watch.write(step(prefill(2, new=500), n=51, start_ns=51 * MS))
    assert point_of(watch).computed_per_token == pytest.approx(540 / 42)
    # It is a request's own prompt again once that has ended.
    watch.write(request((51 * MS, 1), id=0))
    watch.write(msgspec.structs.replace(again, n=52, start_ns=52 * MS, work=again.work[:1]))
    assert point_of(watch).n_steps == 22


def test_what_is_found_of_prompts_is_what_the_live_view_shows_of_the_last_minute() -> None:
    """The last 512 steps have one look-up, which found nothing; those of the last minute found a half."""
    view, watch = LiveView(), watching()
    view.write(header(CONFIG, Traffic(concurrency=3)))
    some = [msgspec.structs.replace(one, start_ns=one.n * 50 * MS) for one in steps(2000)]  # 100 s
    for n, useful in ((100, 100), (900, 60), (1200, 40), (1990, 0)):
        counters = CacheCounters(lookups=1, lookup_tokens=100, hit_tokens=useful, useful_hit_tokens=useful)
        some[n] = msgspec.structs.replace(some[n], cache=counters)
    for one in some:
        view.write(one)
        watch.write(one)
    shown = view.snapshot(some[-1].end_ns).minute.useful_hit_rate
    assert shown == pytest.approx(1 / 3)
    assert point_of(watch).minute_hit_rate == shown
    assert point_of(watch).useful_hit_rate == shown


def test_what_was_found_before_a_change_is_shown_but_not_predicted_from() -> None:
    watch = watching()
    found = CacheCounters(lookups=1, lookup_tokens=100, hit_tokens=50, useful_hit_tokens=50)
    for one in steps(20):
        watch.write(msgspec.structs.replace(one, cache=found))
    watch.write(ConfigEvent(at_ns=20 * MS, epoch=1, kind="live", changes={"cache_tokens": (None, 64)}, config=CONFIG))
    for one in steps(20, first=20):
        watch.write(one)
    point = point_of(watch)
    assert (point.minute_hit_rate, point.useful_hit_rate) == (0.5, None)
