"""Latencies of the last minute, and of the last seconds."""

from __future__ import annotations

from stackscope.analysis.live.latencies import FRESH_NS, GAPS_NS, MINUTE_NS, MOST_VALUES, Latencies, Recent
from stackscope.analysis.metrics.base import ServiceLimits
from tests.analysis_builders import MS, request


def latencies(**limits: int) -> Latencies:
    return Latencies(ServiceLimits(**limits))


def test_requests_of_the_last_minute_count() -> None:
    kept = latencies()
    kept.add(request((30 * MS, 1), (40 * MS, 1), arrived_ns=0))
    kept.add(request((MINUTE_NS, 1), (MINUTE_NS + 6 * MS, 3), arrived_ns=MINUTE_NS - 5 * MS))
    shown = kept.latency(MINUTE_NS + 39 * MS, is_complete=True)
    assert shown.ttft is not None
    assert shown.tpot is not None
    assert (shown.ttft.n, shown.ttft.max, shown.tpot.min) == (2, 30 * MS, 2 * MS)
    later = kept.latency(MINUTE_NS + 2 * FRESH_NS, is_complete=True)
    assert later.ttft is not None
    assert later.e2e is not None
    assert (later.ttft.n, later.ttft.max, later.e2e.max) == (1, 5 * MS, 11 * MS)


def test_requests_that_were_cut_short_have_no_latency() -> None:
    kept = latencies()
    assert not kept.add(request((MS, 1), finish_reason="cancelled"))
    assert kept.latency(2 * MS, is_complete=True).ttft is None


def test_gaps_are_of_the_last_seconds() -> None:
    kept = latencies()
    kept.add_gaps(0, [5.0, 6.0])
    kept.add_gaps(GAPS_NS, [7.0])
    assert (spread := kept.latency(GAPS_NS, is_complete=True).step_gap) is not None
    assert spread.n == 1
    slow = latencies()
    slow.add_gaps(0, [5.0, 6.0])
    assert (spread := slow.latency(GAPS_NS, gaps_ns=2 * GAPS_NS, is_complete=True).step_gap) is not None
    assert spread.n == 2


def test_percentiles_stay_for_a_second() -> None:
    kept = latencies()
    kept.add_gaps(0, [5.0])
    first = kept.latency(0, is_complete=True)
    kept.add_gaps(1, [50.0])
    assert kept.latency(FRESH_NS - 1, is_complete=True) is first
    assert kept.latency(FRESH_NS, is_complete=True) != first


def test_a_display_that_stands_still_shows_everything() -> None:
    """At the end of a recording no later second comes."""
    kept = latencies()
    kept.add_gaps(0, [5.0])
    kept.latency(0, is_complete=True)
    kept.add_gaps(1, [50.0])
    kept.latency(2, is_complete=True)
    assert (spread := kept.latency(2, is_complete=True).step_gap) is not None
    assert spread.max == 50


def test_a_look_back_shows_nothing_of_later() -> None:
    kept = latencies()
    first = kept.latency(5 * FRESH_NS, is_complete=True)
    assert kept.latency(FRESH_NS, is_complete=True) is not first


def test_the_share_that_kept_the_limits() -> None:
    kept = latencies(ttft_ns=10 * MS)
    for first in (5, 9, 11):
        kept.add(request((first * MS, 1), arrived_ns=0))
    shown = kept.latency(20 * MS, is_complete=False)
    assert shown.good_share == 2 / 3
    assert (shown.ttft_limit_ns, shown.tpot_limit_ns, shown.is_complete) == (10 * MS, None, False)
    assert latencies(ttft_ns=10 * MS).latency(0, is_complete=True).good_share is None


def test_the_oldest_values_are_forgotten() -> None:
    recent = Recent()
    for at in range(30):
        recent.add(at, [float(at)] * (MOST_VALUES // 10))
    assert len(recent.since(-1)) <= MOST_VALUES
    assert recent.since(-1)[-1] == 29
    assert set(recent.since(27)) == {28, 29}
