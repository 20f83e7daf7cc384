"""Throughput, load, prefix cache and time metrics against arithmetic on paper."""

from __future__ import annotations

import pytest

from stackscope.analysis.metrics.counts import (
    AbortedSteps,
    Forwards,
    OutputTokens,
    Preemptions,
    PrefillTokens,
    Steps,
    WallTime,
)
from stackscope.analysis.metrics.load import (
    BatchRows,
    CacheBlocks,
    CopiedBytes,
    HitRate,
    InputRate,
    KvCells,
    KvCellsPeak,
    Occupancy,
    OutputRate,
    QueueDepth,
    RequestRate,
    UsefulHitRate,
)
from stackscope.analysis.metrics.time import (
    CpuShare,
    ForwardTime,
    HostTime,
    IdleShare,
    IdleTime,
    PhaseShares,
    StepTime,
)
from stackscope.analysis.summary import RunResult, RunSummary
from stackscope.records import CacheCounters, Header, Phases, StepRecord
from stackscope.toggles import EngineConfig
from tests.analysis_builders import MS, decode, prefill, request, step


def header(**config: object) -> Header:
    return Header(stackscope="0", started="", host="", device="", config=EngineConfig(**config))  # type: ignore[arg-type]


def summed(*steps: StepRecord, threads: int | None = 2) -> RunResult:
    run = RunSummary()
    run.write(header(threads=threads))
    for record in steps:
        run.write(record)
    return run.result()


def test_rates_are_over_wall_time_idle_included() -> None:
    """A prefill of 30 tokens in 20 ms, 30 ms of nothing, a decode of 2 sequences in 10 ms: 60 ms in all."""
    run = RunSummary()
    run.write(step(prefill(0, new=30, outputs=1, emitted=1), phases=Phases(decode=20 * MS)))
    run.write(step(decode(0, cached=30), decode(1, cached=9), n=1, start_ns=50 * MS, phases=Phases(decode=10 * MS)))
    run.write(request((20 * MS, 1), (60 * MS, 1)))
    result = run.result()
    assert result[WallTime] == 60 * MS
    assert result[IdleTime] == 30 * MS
    assert result[IdleShare] == 0.5
    assert result[OutputRate] == pytest.approx(3 / 0.060)
    assert result[InputRate] == pytest.approx(30 / 0.060)
    assert result[RequestRate] == pytest.approx(1 / 0.060)
    assert (result[OutputTokens], result[PrefillTokens]) == (3, 30)


def test_rates_of_no_time_are_unknown() -> None:
    result = RunSummary().result()
    assert result[OutputRate] is None
    assert result[InputRate] is None
    assert result[RequestRate] is None
    assert result[IdleTime] is None
    assert result[PhaseShares] is None
    assert result[StepTime] is None
    assert result[KvCells] is None
    assert result[Occupancy] is None


def test_levels_are_weighted_by_time() -> None:
    """8 slots: 8 busy for 30 ms, 2 busy for 10 ms."""
    result = summed(
        step(slots=8, slots_busy=8, queue=4, kv_cells=900, phases=Phases(decode=30 * MS)),
        step(slots=8, slots_busy=2, queue=0, kv_cells=100, phases=Phases(decode=10 * MS), n=1),
    )
    assert result[Occupancy] == (8 * 30 + 2 * 10) / (8 * 40)
    assert result[QueueDepth] == 4 * 30 / 40
    assert result[KvCells] == (900 * 30 + 100 * 10) / 40
    assert result[KvCellsPeak] == 900


def test_hit_rate_is_of_tokens_looked_up() -> None:
    """96,593 of 97,052 found."""
    counters = CacheCounters(lookups=1, lookup_tokens=96_593 + 459, hit_tokens=96_593, useful_hit_tokens=96_593)
    result = summed(step(cache=counters))
    assert result[HitRate] == pytest.approx(0.995, abs=0.0005)
    assert result[UsefulHitRate] == result[HitRate]


def test_finding_ones_own_work_again_is_no_useful_hit() -> None:
    """100 tokens looked up, 80 found, of which 70 had been computed for the same request before its pre-emption."""
    first = CacheCounters(lookups=1, lookup_tokens=100, hit_tokens=10, useful_hit_tokens=10)
    again = CacheCounters(lookups=1, lookup_tokens=100, hit_tokens=80, useful_hit_tokens=10)
    result = summed(step(cache=first), step(cache=again, n=1, preempted=1))
    assert result[HitRate] == 90 / 200
    assert result[UsefulHitRate] == 20 / 200
    assert result[HitRate] != result[UsefulHitRate]
    assert result[Preemptions] == 1


def test_hit_rate_without_lookups_is_undefined() -> None:
    assert summed(step(decode(0, cached=5)))[HitRate] is None
    assert summed(step(decode(0, cached=5)))[UsefulHitRate] is None


def test_blocks_and_copies() -> None:
    first = CacheCounters(blocks_read=3, blocks_written=5, resident_blocks=50, copied_bytes=7)
    second = CacheCounters(blocks_read=1, blocks_evicted=20, resident_blocks=30)
    result = summed(step(cache=first), step(cache=second, n=1))
    assert result[CacheBlocks] == {"read": 4, "written": 5, "evicted": 20, "resident": 30, "resident_peak": 50}
    assert result[CopiedBytes] == 7


def test_phases_sum_to_the_step() -> None:
    phases = Phases(admit=1, draft=2, build=3, decode=70, sample=4, commit=5, emit=6, shadow=7, other=2)
    shares = summed(step(decode(0, cached=5), phases=phases))[PhaseShares]
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["decode"] == 0.70
    assert shares["draft"] == 0.02
    assert shares["shadow"] == 0.07


def test_host_time_is_what_is_neither_drafting_nor_forward() -> None:
    phases = Phases(admit=10, draft=200, build=30, decode=700, sample=40, other=20)
    result = summed(step(decode(0, cached=5), phases=phases))
    host, forward, whole = result[HostTime], result[ForwardTime], result[StepTime]
    assert host is not None
    assert forward is not None
    assert whole is not None
    assert (host.p50, forward.p50, whole.p50) == (100, 700, 1000)


def test_cpu_share_is_of_the_threads_and_the_forward() -> None:
    """2 threads for 10 ms could use 20 ms of CPU; 15 were used. The step without a reading is left out."""
    forward = Phases(decode=10 * MS, sample=90 * MS)
    seen = step(decode(0, cached=5), phases=forward, cpu_ns=15 * MS)
    unseen = step(decode(0, cached=6), phases=forward, n=1)
    assert summed(seen, unseen)[CpuShare] == 0.75


def test_cpu_share_is_unknown_without_readings_or_threads() -> None:
    seen = step(decode(0, cached=5), cpu_ns=1 * MS)
    assert summed(step(decode(0, cached=5)))[CpuShare] is None
    assert summed(seen, threads=None)[CpuShare] is None


def test_a_cpu_reading_of_zero_is_a_reading() -> None:
    assert summed(step(decode(0, cached=5), cpu_ns=0))[CpuShare] == 0.0


def test_aborted_forwards_count_in_the_time_and_nowhere_else() -> None:
    aborted = step(prefill(0, new=500), phases=Phases(decode=30 * MS), aborted=True)
    done = step(prefill(0, new=500), phases=Phases(decode=50 * MS), n=1, start_ns=30 * MS)
    result = summed(aborted, done)
    assert (result[Steps], result[Forwards], result[AbortedSteps]) == (2, 1, 1)
    assert result[PrefillTokens] == 500
    assert result[WallTime] == 80 * MS
    rows, forward = result[BatchRows], result[ForwardTime]
    assert rows is not None
    assert forward is not None
    assert (rows.n, rows.mean) == (1, 500)
    assert forward.max == 50 * MS


def test_steps_without_work_are_no_forwards() -> None:
    result = summed(step(phases=Phases(admit=MS)))
    assert (result[Steps], result[Forwards]) == (1, 0)
    assert result[ForwardTime] is None
    assert result[HostTime] is None
