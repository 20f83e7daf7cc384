"""One run of a cell: which requests are measured, and what is made of its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.errors import EngineError, WorkloadError
from stackscope.experiments.runs import Collector
from stackscope.experiments.runs_traffic import TwoWaves
from stackscope.records import (
    Emission,
    HardwareSample,
    Header,
    Phases,
    RequestRecord,
    SlotWork,
    StepRecord,
)
from stackscope.workload.spec import Length, WorkloadSpec
from tests.workload_fakes import WordTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.workload.jobs import Job

MS = 1_000_000


def traffic(n: int, concurrency: int, **more: object) -> TwoWaves:
    spec = WorkloadSpec(name="unique", requests=n, concurrency=concurrency, prompt_tokens=Length.fixed(8), **more)  # type: ignore[arg-type]
    return TwoWaves(spec, WordTokenizer(), context_tokens=512)


def ids(jobs: Sequence[Job]) -> list[int]:
    return [job.id for job in jobs]


def test_the_first_wave_ends_before_the_second_begins() -> None:
    some = traffic(7, 3)
    assert ids(some.due(0, 0)) == [0, 1, 2]
    some.finished(1, [1])
    # A slot is free, and nothing comes: the first wave is not over.
    assert some.due(10, 2) == []
    assert some.next_arrival_ns() is None
    assert not some.done
    some.finished(0, [1])
    some.finished(2, [1])
    assert some.next_arrival_ns() is not None
    second = some.due(20, 0)
    assert ids(second) == [3, 4, 5]
    assert {job.arrived_ns for job in second} == {20}
    some.finished(4, [1])
    assert ids(some.due(30, 2)) == [6]
    for job in (3, 5, 6):
        some.finished(job, [1])
    assert some.done


def test_every_cell_gets_the_same_requests_whatever_ends_first() -> None:
    one, other = traffic(6, 2), traffic(6, 2)
    first = {job.id: job.tokens for job in one.due(0, 0)}
    second = {job.id: job.tokens for job in other.due(0, 0)}
    for some, order in ((one, (0, 1)), (other, (1, 0))):
        for job in order:
            some.finished(job, [1])
    first |= {job.id: job.tokens for job in one.due(1, 0)}
    second |= {job.id: job.tokens for job in other.due(1, 0)}
    assert first == second
    assert len(first) == 4


def test_an_open_loop_does_not_rest() -> None:
    some = traffic(6, 2, rate=1_000.0)
    some.start(0)
    taken = ids(some.due(10**9, 0))
    assert taken == list(range(6))


def request(number: int, arrived_ms: int, *emissions_ms: int, tokens: int = 1) -> RequestRecord:
    return RequestRecord(
        id=number,
        arrived_ns=arrived_ms * MS,
        admitted_ns=arrived_ms * MS,
        finished_ns=emissions_ms[-1] * MS,
        finish_reason="length",
        prompt_tokens=4,
        emissions=tuple(Emission(0, at * MS, tokens) for at in emissions_ms),
    )


def step(number: int, start_ms: int, length_ms: int, *, emitted: int = 1, draft_ms: int = 0) -> StepRecord:
    return StepRecord(
        n=number,
        start_ns=start_ms * MS,
        phases=Phases(decode=(length_ms - draft_ms) * MS, draft=draft_ms * MS),
        work=(SlotWork(request=0, slot=0, phase="decode", new=1, cached=1, emitted=emitted, outputs=1),),
        slots=1,
    )


HEADER = Header(stackscope="0", started="", host="h", device="d")


def test_what_warms_up_is_in_no_figure() -> None:
    collector = Collector(ServiceLimits(), 1)
    for record in (
        HEADER,
        step(0, 0, 100),  # ten times as slow
        request(0, 0, 100),
        step(1, 100, 10),
        step(2, 110, 10, draft_ms=2),
        request(1, 100, 110, 120),
    ):
        collector.take(record)
    figures = collector.figures()
    assert figures["tokens_per_s"] == pytest.approx(2 / 0.020)
    assert (figures["ttft_n"], figures["ttft_p50_ns"], figures["step_gap_p50_ns"]) == (1, 10 * MS, 10 * MS)
    assert (figures["output_tokens"], figures["wall_ns"], figures["warmup_requests"]) == (2, 20 * MS, 1)
    assert figures["share.draft"] == pytest.approx(0.1)
    assert figures["host_share"] == pytest.approx(0.0)
    assert "acceptance" not in figures
    assert "idle_compute" not in figures
    assert "memory_bytes" not in figures


def test_memory_and_energy_are_those_of_the_measured_part() -> None:
    collector = Collector(ServiceLimits(), 1)
    for record in (
        HEADER,
        HardwareSample(at_ns=0, rss_bytes=9_000, package_power_w=99.0),
        step(0, 0, 100),
        HardwareSample(at_ns=90 * MS, rss_bytes=100, package_power_w=10.0),
        request(0, 0, 100),
        step(1, 100, 500),
        HardwareSample(at_ns=400 * MS, rss_bytes=300, package_power_w=20.0),
        step(2, 600, 500),
        request(1, 100, 600, 1_100),
    ):
        collector.take(record)
    figures = collector.figures()
    assert figures["memory_bytes"] == 300
    # 15 W on average over one second, for two tokens.
    assert figures["joules_per_token"] == pytest.approx(7.5)


def test_goodput_needs_limits() -> None:
    for limits, expected in ((ServiceLimits(), None), (ServiceLimits(ttft_ns=15 * MS), 50.0)):
        collector = Collector(limits, 1)
        for record in (HEADER, step(0, 0, 10), request(0, 0, 10), step(1, 10, 20), request(1, 20, 30)):
            collector.take(record)
        assert collector.figures().get("goodput") == expected


def test_a_run_that_measured_nothing_is_none() -> None:
    collector = Collector(ServiceLimits(), 2)
    for record in (HEADER, step(0, 0, 10), request(0, 0, 10)):
        collector.take(record)
    with pytest.raises(EngineError, match="ended before"):
        collector.figures()
    failed = Collector(ServiceLimits(), 1)
    failed.take(HEADER)
    for number in range(2):
        failed.take(
            RequestRecord(
                id=number, arrived_ns=0, finished_ns=1, finish_reason="error", prompt_tokens=4, error="no room"
            )
        )
    with pytest.raises(WorkloadError, match="no room"):
        failed.figures()
