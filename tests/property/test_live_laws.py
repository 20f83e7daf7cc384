"""Laws of the live view: it says what the summary of the run says, its parts sum, and no record upsets it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stackscope.analysis.live.bins import BIN_NS, MOST_BINS
from stackscope.analysis.live.inflight import MOST
from stackscope.analysis.live.snapshot import PARTS
from stackscope.analysis.live.view import MOST_STEPS, LiveView
from stackscope.analysis.metrics import cost, counts, latency, load, speculation
from stackscope.analysis.metrics import time as times
from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.analysis.summary import RunSummary
from stackscope.analysis.totals import PHASES
from stackscope.records import (
    ConfigEvent,
    DraftForward,
    Footer,
    HardwareSample,
    Header,
    Log,
    Mark,
    Phases,
    RequestRecord,
    SlotWork,
    StepRecord,
    TrafficEvent,
)
from stackscope.toggles import EngineConfig
from tests.analysis_builders import attention, decode, dense_model, lab_target, prefill, request, step, verify
from tests.property.record_strategies import records
from tests.unit.record_builders import synthetic_session

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot, Window
    from stackscope.analysis.summary import RunResult
    from stackscope.records import AnyRecord, FinishReason

DRAFT = dense_model(layers=[attention()])
CONFIG = EngineConfig(draft_model=DRAFT.path, threads=2)
HEADER = Header(
    stackscope="0", started="", host="", device="", model=lab_target(), draft_model=DRAFT, config=CONFIG,
    capabilities=("phases", "cpu", "slots", "prefix_cache", "acceptance"),
)  # fmt: skip
LIMITS = ServiceLimits(ttft_ns=400_000_000)

phase = st.integers(0, 10**8)
fewer = settings(max_examples=50)


@st.composite
def slots(draw: st.DrawFn, request: int) -> SlotWork:
    kind = draw(st.sampled_from(["prefill", "decode", "verify"]))
    cached = draw(st.integers(0, 500))
    if kind == "prefill":
        outputs = draw(st.integers(0, 1))
        return prefill(request, new=draw(st.integers(1, 64)), cached=cached, outputs=outputs, emitted=outputs)
    if kind == "decode":
        return decode(request, cached=cached, emitted=draw(st.integers(0, 1)))
    drafted = draw(st.integers(1, 5))
    accepted = draw(st.integers(0, drafted))
    emitted = draw(st.integers(0, accepted + 1))
    return verify(request, cached=cached, drafted=drafted, accepted=accepted, emitted=emitted)


@st.composite
def steps(draw: st.DrawFn, n: int, start_ns: int, shortest_ns: int) -> StepRecord:
    names = draw(st.sets(st.sampled_from(PHASES)))
    phases = Phases(**{name: draw(phase) for name in names} | {"build": shortest_ns + draw(phase)})
    work = [draw(slots(request)) for request in range(draw(st.integers(0, 3)))]
    drafts = [DraftForward(((draw(st.integers(0, 300)), 1),), 1)] * draw(st.integers(0, 2))
    cache = {name: draw(st.integers(0, 40)) for name in ("lookup_tokens", "hit_tokens", "blocks_evicted")}
    return step(
        *work, n=n, start_ns=start_ns, phases=phases, draft=tuple(drafts), queue=draw(st.integers(0, 3)),
        slots_busy=len(work), slots=4, cache=msgspec.convert(cache, type(step().cache)),
        cpu_ns=draw(st.none() | phase), aborted=draw(st.integers(0, 9)) == 0,
    )  # fmt: skip


@st.composite
def sessions(draw: st.DrawFn, shortest_ns: int = 0) -> list[AnyRecord]:
    """A header, and up to 15 steps over less than a minute with idle time between them, some under a second
    configuration; requests that finish among them."""
    stream: list[AnyRecord] = [HEADER]
    now = draw(st.integers(0, 10**10))
    epoch = 0
    for n in range(draw(st.integers(0, 15))):
        now += draw(st.sampled_from([0, 0, 0, 1, 10**6, 10**8, 3 * 10**8, 10**9]))
        if n > 0 and draw(st.integers(0, 11)) == 0:
            epoch += 1
            changed = msgspec.structs.replace(CONFIG, threads=draw(st.sampled_from([None, 1, 2])), kv_type_k="q8_0")
            stream.append(
                ConfigEvent(at_ns=now, epoch=epoch, kind="live", config=changed, changes={"kv_type_k": ("f16", "q8_0")})
            )
        one = msgspec.structs.replace(draw(steps(n, now, shortest_ns)), epoch=epoch)
        stream.append(one)
        now = one.end_ns
        if draw(st.integers(0, 4)) == 0:
            reason: FinishReason = draw(st.sampled_from(["length", "cancelled"]))
            stream.append(
                request(
                    (now, 1), id=1_000 + n, arrived_ns=max(now - draw(phase), 0), finished_ns=now, finish_reason=reason
                )
            )
    return stream


def seen(stream: list[AnyRecord], *, cut: int | None = None) -> tuple[LiveView, Snapshot]:
    """The view of a session, and what it shows when its last step ends."""
    view = LiveView(LIMITS)
    for place, record in enumerate(stream):
        if place == cut:
            view.snapshot(0)
        view.write(record)
    now_ns = max((record.end_ns for record in stream if isinstance(record, StepRecord)), default=0)
    view.snapshot(now_ns)
    return view, view.snapshot(now_ns)


def summed(stream: list[AnyRecord]) -> RunResult:
    run = RunSummary(limits=LIMITS)
    for record in stream:
        run.write(record)
    return run.result()


def assert_agree(window: Window, run: RunResult) -> None:
    """Every figure of a window over the whole session is that of its summary."""
    emitted, wall_ns = run[counts.OutputTokens], run[counts.WallTime]
    assert emitted is not None
    assert wall_ns is not None
    blocks = run[load.CacheBlocks]
    step_ns, rows = run[times.StepTime], run[load.BatchRows]
    expected: dict[str, object] = {
        "wall_ns": wall_ns,
        "steps": run[counts.Steps],
        "forwards": run[counts.Forwards],
        "step_ns": None if step_ns is None else step_ns.mean,
        "tokens_per_s": run[load.OutputRate],
        "prefill_tokens_per_s": run[load.InputRate],
        "requests_per_s": run[load.RequestRate],
        "tokens_per_forward": run[speculation.TokensPerForward],
        "coverage": run[speculation.Coverage],
        "acceptance": run[speculation.AcceptanceRate],
        "by_position": run[speculation.AcceptanceByPosition] or (),
        "drafted": run[speculation.DraftedTokens],
        "wasted_rows": run[speculation.WastedRows],
        "wasted_share": run[speculation.WastedRowShare],
        "useful_hit_rate": run[load.UsefulHitRate],
        "hit_rate": run[load.HitRate],
        "blocks_evicted": None if blocks is None else blocks["evicted"],
        "occupancy": run[load.Occupancy],
        "queue": run[load.QueueDepth],
        "batch_rows": None if rows is None else rows.mean,
        "cpu_share": run[times.CpuShare],
        "forward_bytes_per_s": run[cost.TargetBandwidth],
        "forward_flops_per_s": run[cost.TargetFlopRate],
    }
    for name, value in expected.items():
        shown = getattr(window, name)
        assert shown == (value if value is None else pytest.approx(value)), name
    per_token = {
        "bytes_per_s": run[cost.BytesPerToken],
        "weight_bytes_per_s": run[cost.WeightBytesPerToken],
        "flops_per_s": run[cost.FlopsPerToken],
    }
    for name, each in per_token.items():
        if each is not None:
            assert getattr(window, name) == pytest.approx(each * emitted * 1e9 / wall_ns), name


@fewer
@given(sessions(), st.integers(1, 60))
def test_a_window_over_everything_says_what_the_summary_says(stream: list[AnyRecord], cut: int) -> None:
    """However the records fall into bins, configurations and snapshots in between."""
    run = summed(stream)
    _, snapshot = seen(stream, cut=cut)
    if run[counts.WallTime] == 0:
        assert snapshot.minute.steps == 0
        return
    assert_agree(snapshot.minute, run)
    assert snapshot.n_steps == run[counts.Steps]
    assert snapshot.n_tokens == run[counts.OutputTokens]
    assert snapshot.latency.ttft == run[latency.TimeToFirstToken]
    assert snapshot.latency.e2e == run[latency.EndToEnd]
    assert snapshot.latency.good_share == run[latency.GoodShare]


@pytest.mark.parametrize(("n", "slots", "draft_length"), [(900, 1, 0), (700, 8, 0), (500, 4, 5)])
def test_a_session_as_an_engine_makes_them_agrees_too(n: int, slots: int, draft_length: int) -> None:
    stream = synthetic_session(n, slots=slots, draft_length=draft_length)
    stream[0] = msgspec.structs.replace(HEADER)
    run = RunSummary()
    for record in stream:
        run.write(record)
    _, snapshot = seen(stream)
    assert_agree(snapshot.minute, run.result())
    gaps = run.result()[latency.StepGap]
    assert gaps is not None
    assert snapshot.latency.step_gap is not None
    assert snapshot.latency.step_gap.p50 == pytest.approx(gaps.p50, rel=0.01)


@fewer
@given(sessions())
def test_parts_sum_to_the_wall_time(stream: list[AnyRecord]) -> None:
    _, snapshot = seen(stream)
    for window in (snapshot.minute, snapshot.now):
        if window.parts:
            assert tuple(part.name for part in window.parts) == PARTS
            assert sum(part.ns for part in window.parts) == pytest.approx(window.wall_ns, abs=1)
            assert sum(part.share for part in window.parts) == pytest.approx(1.0)
            assert all(part.ns >= -1e-3 for part in window.parts)
    for point in snapshot.history.points:
        if point.shares is not None:
            assert sum(point.shares) == pytest.approx(1.0)
            assert all(share >= -1e-9 for share in point.shares)


@fewer
@given(sessions(shortest_ns=1))
def test_charts_hold_every_token_and_every_nanosecond(stream: list[AnyRecord]) -> None:
    """Levels are spread over bins, and nothing is lost in between. Watched until the last bin is complete."""
    done = [record for record in stream if isinstance(record, StepRecord)]
    assume(done)
    view = LiveView()
    view.write(msgspec.structs.replace(HEADER, capabilities=("phases",)))  # Without slots it never counts as waiting.
    for record in stream[1:]:
        view.write(record)
    start_ns, end_ns = done[0].start_ns, done[-1].end_ns
    spans, tokens, idle = [], [], []
    for point in view.snapshot(end_ns + 4 * BIN_NS).history.points:
        if point.shares is not None and point.tokens_per_s is not None:
            span_ns = min(point.at_ns, end_ns) - max(point.at_ns - BIN_NS, start_ns)
            spans.append(span_ns)
            tokens.append(point.tokens_per_s * span_ns / 1e9)
            idle.append(point.shares[PARTS.index("idle")] * span_ns)
    run = summed(stream)
    assert sum(spans) == end_ns - start_ns
    assert sum(tokens) == pytest.approx(run[counts.OutputTokens])
    assert sum(idle) == pytest.approx(run[times.IdleTime], abs=1)


@fewer
@given(sessions())
def test_history_has_no_holes(stream: list[AnyRecord]) -> None:
    view, snapshot = seen(stream)
    later = view.snapshot(snapshot.at_ns + 7 * BIN_NS)
    for one in (snapshot, later):
        ends = [point.at_ns for point in one.history.points]
        assert all(after - before == BIN_NS for before, after in pairwise(ends))
        assert all(end <= one.at_ns for end in ends)


KINDS = (StepRecord, RequestRecord, TrafficEvent, Mark, Log, HardwareSample, Footer)


@fewer
@given(st.lists(st.one_of([records(kind) for kind in KINDS]), max_size=12), st.integers(-(2**63), 2**64))
def test_no_record_upsets_it(stream: list[AnyRecord], now_ns: int) -> None:
    """A file can hold anything that has the right types; what is shown stays of bounded size."""
    view = LiveView()
    view.write(HEADER)
    for record in stream:
        view.write(record)
    snapshot = view.snapshot(now_ns)
    assert len(snapshot.history.points) <= MOST_BINS
    assert len(snapshot.requests) <= MOST
    assert len(view.steps) <= MOST_STEPS
