"""Laws of the metrics: bounds, orders, and that a run is the sum of its parts."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.distribution import Distribution
from stackscope.analysis.metrics.catalogue import METRICS
from stackscope.analysis.metrics.cost import BytesByPart, BytesPerToken
from stackscope.analysis.metrics.latency import REQUEST_METRICS, StepGap, TimePerOutputToken
from stackscope.analysis.metrics.speculation import (
    AcceptanceByPosition,
    AcceptanceRate,
    Coverage,
    Survival,
    TokensPerForward,
    WastedRows,
    WastedRowShare,
)
from stackscope.analysis.metrics.time import IdleShare, PhaseShares
from stackscope.analysis.summary import RunSummary
from stackscope.analysis.totals import StepTotals, Totals
from stackscope.records import ConfigEvent, Header, ModelSummary, Phases, RequestRecord, SlotWork, StepRecord
from stackscope.toggles import EngineConfig
from tests.analysis_builders import decode, lab_target, prefill, request, sparse_model, step, verify

HEADER = Header(stackscope="0", started="", host="", device="", model=lab_target(), config=EngineConfig(threads=2))


@st.composite
def slots(draw: st.DrawFn) -> SlotWork:
    kind = draw(st.sampled_from(["prefill", "decode", "verify"]))
    cached = draw(st.integers(0, 500))
    if kind == "prefill":
        new = draw(st.integers(1, 64))
        outputs = draw(st.integers(0, 1))
        return prefill(0, new=new, cached=cached, outputs=outputs, emitted=outputs)
    if kind == "decode":
        return decode(0, cached=cached, emitted=draw(st.integers(0, 1)))
    drafted = draw(st.integers(1, 8))
    accepted = draw(st.integers(0, drafted))
    return verify(0, cached=cached, drafted=drafted, accepted=accepted, emitted=draw(st.integers(0, accepted + 1)))


nanoseconds = st.integers(0, 10**9)


@st.composite
def sessions(draw: st.DrawFn) -> list[StepRecord]:
    steps, now = [], 0
    for n in range(draw(st.integers(0, 12))):
        phases = Phases(admit=draw(nanoseconds), draft=draw(nanoseconds), decode=draw(nanoseconds), other=n % 3)
        now += draw(nanoseconds)
        work = draw(st.lists(slots(), max_size=4))
        aborted = draw(st.booleans()) and draw(st.booleans())
        steps.append(step(*work, n=n, start_ns=now, phases=phases, aborted=aborted, cpu_ns=draw(nanoseconds)))
        now += phases.total
    return steps


def summed(records: list[StepRecord]) -> RunSummary:
    run = RunSummary()
    run.write(HEADER)
    for record in records:
        run.write(record)
    return run


@given(sessions())
def test_acceptance_is_a_share(session: list[StepRecord]) -> None:
    result = summed(session).result()
    for share in (result[AcceptanceRate], result[Coverage], result[WastedRowShare], result[IdleShare]):
        assert share is None or 0.0 <= share <= 1.0
    wasted = result[WastedRows]
    assert wasted is None or wasted >= 0.0


@given(sessions())
def test_acceptance_falls_with_the_position(session: list[StepRecord]) -> None:
    result = summed(session).result()
    by_position, survival = result[AcceptanceByPosition], result[Survival]
    assert (by_position is None) == (survival is None)
    for curve in (by_position or (), [s for s in survival or () if s is not None]):
        assert all(0.0 <= s <= 1.0 for s in curve)
        assert all(later <= earlier + 1e-12 for earlier, later in pairwise(curve))


@given(sessions())
def test_acceptance_by_position_sums_to_the_accepted_tokens_per_draft(session: list[StepRecord]) -> None:
    result = summed(session).result()
    by_position = result[AcceptanceByPosition]
    if by_position is not None:
        kept = [min(w.accepted, w.emitted) for s in session if not s.aborted for w in s.work if w.drafted > 0]
        assert sum(by_position) == pytest.approx(sum(kept) / len(kept))


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_survival_of_drafts_of_one_length_is_acceptance_by_position(rounds: list[tuple[int, int]]) -> None:
    """With nothing short and nothing cut, Kaplan–Meier is the plain share."""
    drafts = [verify(0, cached=0, drafted=6, accepted=accepted) for _, accepted in rounds]
    result = summed([step(work, n=n) for n, work in enumerate(drafts)]).result()
    assert result[Survival] == pytest.approx(result[AcceptanceByPosition])


@given(sessions())
def test_shares_sum_to_one(session: list[StepRecord]) -> None:
    shares = summed(session).result()[PhaseShares]
    assert (shares is None) == (sum(s.phases.total for s in session) == 0)
    if shares is not None:
        assert sum(shares.values()) == pytest.approx(1.0)
        assert all(share >= 0.0 for share in shares.values())


@given(sessions())
def test_without_drafts_a_is_at_most_one(session: list[StepRecord]) -> None:
    plain = [s for s in session if all(work.phase != "verify" for work in s.work)]
    a = summed(plain).result()[TokensPerForward]
    assert a is None or a <= 1.0


@given(sessions())
def test_parts_of_the_cost_sum_to_it(session: list[StepRecord]) -> None:
    result = summed(session).result()
    parts, total = result[BytesByPart], result[BytesPerToken]
    assert (parts is None) == (total is None)
    if parts is not None:
        assert sum(parts.values()) == pytest.approx(total)


@given(sessions(), st.integers(0, 12))
def test_a_run_does_not_depend_on_where_its_configuration_changed(session: list[StepRecord], cut: int) -> None:
    """A change that changes nothing leaves the run's figures as they were."""
    whole, parted = summed(session), RunSummary()
    parted.write(HEADER)
    for record in session[:cut]:
        parted.write(record)
    at_ns = session[cut].start_ns if cut < len(session) else 0
    parted.write(ConfigEvent(at_ns=at_ns, epoch=1, kind="live", config=HEADER.config))
    for record in session[cut:]:
        parted.write(StepRecord(**{name: getattr(record, name) for name in record.__struct_fields__} | {"epoch": 1}))
    one, two = whole.result(), parted.result()
    for metric in METRICS:
        assert two.values[metric.tag] == one.values[metric.tag], metric.tag


@given(sessions(), st.sets(st.integers(0, 12)), st.sampled_from([lab_target(), sparse_model()]), st.integers(0, 10**9))
def test_when_the_result_was_asked_for_changes_nothing(
    session: list[StepRecord], asked: set[int], model: ModelSummary, warmup_ns: int
) -> None:
    """Steps are summed many at a time; at how many, and with what between them, leaves no trace."""
    header = msgspec.structs.replace(HEADER, model=model)
    whole, parted = RunSummary(warmup_ns=warmup_ns), RunSummary(warmup_ns=warmup_ns)
    for run in (whole, parted):
        run.write(header)
    for n, record in enumerate(session):
        whole.write(record)
        parted.write(record)
        if n in asked:
            parted.result()
    assert parted.to_dict() == whole.to_dict()


@given(sessions(), st.none() | st.integers(0, 10**9), st.none() | st.integers(1, 4))
def test_steps_sum_to_the_same_one_by_one_and_all_at_once(
    session: list[StepRecord], since_ns: int | None, threads: int | None
) -> None:
    together, apart = StepTotals(), StepTotals()
    if session:
        together.add(session, since_ns=since_ns, threads=threads)
    for record in session:
        apart.add([record], since_ns=since_ns, threads=threads)
        since_ns = record.end_ns
    assert plain(together) == plain(apart)
    assert together.time.busy_ns == sum(record.duration_ns for record in session)


def plain(totals: Totals) -> dict[str, object]:
    """The sums by name; distributions summed up."""
    return {
        name: plain(value)
        if isinstance(value, Totals)
        else value.spread()
        if isinstance(value, Distribution)
        else value
        for name, value in vars(totals).items()
    }


@st.composite
def requests(draw: st.DrawFn) -> RequestRecord:
    arrived = draw(nanoseconds)
    admitted = arrived + draw(nanoseconds)
    now, emissions = admitted, []
    for _ in range(draw(st.integers(0, 5))):
        now += draw(nanoseconds)
        emissions.append((now, draw(st.integers(1, 4))))
    return request(*emissions, arrived_ns=arrived, admitted_ns=admitted, finished_ns=now + draw(nanoseconds))


@given(requests())
def test_latencies_are_never_negative(one: RequestRecord) -> None:
    for metric in REQUEST_METRICS:
        assert all(value >= 0 for value in metric.values(one))


@given(requests())
def test_gaps_sum_to_the_time_after_the_first_token(one: RequestRecord) -> None:
    gaps, pace = StepGap().values(one), TimePerOutputToken().values(one)
    assert len(gaps) == max(len(one.emissions) - 1, 0)
    if pace:
        assert sum(gaps) == pytest.approx(pace[0] * (one.output_tokens - 1))


@given(st.lists(st.floats(0, 1e15), max_size=200))
def test_percentiles_are_ordered(values: list[float]) -> None:
    spread = Distribution(values).spread()
    assert (spread is None) == (values == [])
    if spread is not None:
        ordered = [spread.min, spread.p50, spread.p90, spread.p95, spread.p99, spread.max]
        assert all(earlier <= later * (1 + 1e-12) for earlier, later in pairwise(ordered))
