"""Arrival times, with the arithmetic."""

from __future__ import annotations

import itertools

import pytest

from stackscope.workload.arrivals import ArrivalTimes, PacedArrivals, TraceArrivals, unit_gaps

SECOND = 10**9


def take(arrivals: ArrivalTimes, n: int) -> list[int]:
    times = []
    for _ in range(n):
        assert arrivals.next_ns is not None
        times.append(arrivals.next_ns)
        arrivals.advance()
    return times


def equal_gaps(rate: float, start_ns: int = 0) -> PacedArrivals:
    return PacedArrivals(itertools.repeat(1.0), start_ns=start_ns, rate=rate)


def test_equal_gaps_at_a_rate() -> None:
    # 4 per second from second 10 on: one every 250 ms, the first after one gap.
    assert take(equal_gaps(4, start_ns=10 * SECOND), 3) == [10_250_000_000, 10_500_000_000, 10_750_000_000]


def test_a_change_of_rate_scales_what_is_left_of_the_gap() -> None:
    arrivals = equal_gaps(1)
    # 0.4 s of the 1 s gap are over; the other 0.6 of a gap take 0.06 s at ten times the rate.
    arrivals.set_rate(10, now_ns=400_000_000)
    assert take(arrivals, 2) == [460_000_000, 560_000_000]


def test_an_overdue_arrival_stays_where_it_was() -> None:
    arrivals = equal_gaps(1)
    arrivals.set_rate(0.5, now_ns=5 * SECOND)
    assert arrivals.next_ns == 1 * SECOND
    arrivals.advance()
    assert arrivals.next_ns == 3 * SECOND


def test_rate_zero_holds_and_a_rate_resumes() -> None:
    arrivals = equal_gaps(2)
    arrivals.set_rate(0, now_ns=100_000_000)
    assert arrivals.next_ns is None
    # 0.1 s × 2 = 0.2 of the gap were used before; 0.8 are left, at 2 per second 0.4 s.
    arrivals.set_rate(2, now_ns=7 * SECOND)
    assert arrivals.next_ns == 7_400_000_000


def test_an_overdue_arrival_is_due_even_at_rate_zero() -> None:
    arrivals = equal_gaps(1)
    arrivals.set_rate(0, now_ns=2 * SECOND)
    assert arrivals.next_ns == 1 * SECOND
    arrivals.advance()
    assert arrivals.next_ns is None


def test_gaps_come_from_the_seed_alone() -> None:
    for kind, shape in (("poisson", 1.0), ("gamma", 0.3)):
        first = list(itertools.islice(unit_gaps(kind, shape, 5), 3_000))  # type: ignore[arg-type]
        again = list(itertools.islice(unit_gaps(kind, shape, 5), 3_000))  # type: ignore[arg-type]
        other = list(itertools.islice(unit_gaps(kind, shape, 6), 3_000))  # type: ignore[arg-type]
        assert first == again
        assert first != other


@pytest.mark.parametrize(
    ("kind", "shape", "variance"), [("poisson", 1.0, 1.0), ("gamma", 0.25, 4.0), ("uniform", 1.0, 0)]
)
def test_gaps_have_mean_one_and_the_variance_of_their_kind(kind: str, shape: float, variance: float) -> None:
    n = 200_000
    gaps = list(itertools.islice(unit_gaps(kind, shape, 1), n))  # type: ignore[arg-type]
    mean = sum(gaps) / n
    measured = sum((gap - mean) ** 2 for gap in gaps) / n
    # Five standard errors of the mean, √(variance ÷ n); the variance itself within 5 %.
    assert abs(mean - 1) <= 5 * (variance / n) ** 0.5
    assert measured == pytest.approx(variance, rel=0.05)


def test_a_trace_begins_at_the_start_and_is_scaled() -> None:
    times = [3_600 * SECOND, 3_601 * SECOND, 3_604 * SECOND]
    arrivals = TraceArrivals(times, start_ns=5 * SECOND, time_scale=0.5)
    # Offsets 0, 1 and 4 s, halved. The mean gap is 2 s, halved: the second lap begins 1 s after the last arrival.
    assert take(arrivals, 4) == [5 * SECOND, 5_500_000_000, 7 * SECOND, 8 * SECOND]


def test_a_trace_of_one_instant_does_not_repeat_without_end() -> None:
    arrivals = TraceArrivals([7, 7], start_ns=0, time_scale=2.0)
    assert take(arrivals, 4) == [0, 0, 2 * SECOND, 2 * SECOND]
