"""Arrivals at a rate: they converge to it, never go back, and change with it exactly; lengths stay in their bounds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from stackscope.workload.arrivals import PacedArrivals, TraceArrivals, unit_gaps
from stackscope.workload.draws import Purpose, draw, stream
from stackscope.workload.spec import Length, parse_length, validate_length

if TYPE_CHECKING:
    from stackscope.workload.spec import Arrivals

SECOND = 10**9
KINDS: st.SearchStrategy[Arrivals] = st.sampled_from(["poisson", "gamma", "uniform"])


@settings(max_examples=30, deadline=None)
@given(kind=KINDS, shape=st.floats(0.2, 5), rate=st.floats(0.01, 10_000), seed=st.integers(0, 2**63 - 1))
def test_the_rate_converges(kind: Arrivals, shape: float, rate: float, seed: int) -> None:
    n = 4_000
    arrivals = PacedArrivals(unit_gaps(kind, shape, seed), start_ns=7, rate=rate)
    times = []
    for _ in range(n):
        assert arrivals.next_ns is not None
        times.append(arrivals.next_ns)
        arrivals.advance()
    assert times == sorted(times)
    variance = {"poisson": 1.0, "gamma": 1 / shape, "uniform": 0.0}[kind]
    # n arrivals take n ÷ rate, within six standard deviations √(n × variance) of a mean gap, and rounding.
    assert (times[-1] - 7) * rate / 1e9 == pytest.approx(n, abs=6 * (n * variance) ** 0.5 + 1e-3 * n)


@given(
    changes=st.lists(st.tuples(st.integers(0, 2 * SECOND), st.sampled_from([0.0, 0.5, 2.0, 30.0])), max_size=12),
    seed=st.integers(0, 1_000),
)
def test_a_varying_rate_uses_up_the_same_gaps(changes: list[tuple[int, float]], seed: int) -> None:
    """The integral of the rate between two arrivals is the gap between them, however the rate changed in between."""
    gaps = list(itertools.islice(unit_gaps("poisson", 1.0, seed), 500))
    arrivals = PacedArrivals(iter(gaps), start_ns=0, rate=1.0)
    rates = [(0, 1.0)]
    seen: list[int] = []
    now_ns = 0
    for wait_ns, rate in [*changes, (5 * SECOND, 1.0)]:
        now_ns += wait_ns
        while (at_ns := arrivals.next_ns) is not None and at_ns <= now_ns and len(seen) < 400:
            seen.append(at_ns)
            arrivals.advance()
        arrivals.set_rate(rate, now_ns=now_ns)
        rates.append((now_ns, rate))

    def integral(until_ns: int) -> float:
        ends = [at_ns for at_ns, _ in rates[1:]] + [until_ns]
        return sum(
            rate * max(0, min(end, until_ns) - start) / 1e9 for (start, rate), end in zip(rates, ends, strict=True)
        )

    assert seen == sorted(seen)
    for at_ns, used in zip(seen, itertools.accumulate(gaps), strict=False):
        assert integral(at_ns) == pytest.approx(used, abs=1e-6)


@given(
    times=st.lists(st.integers(0, 10**15), min_size=1, max_size=20).map(sorted),
    scale=st.floats(1e-3, 1e3),
    start_ns=st.integers(0, 10**15),
)
def test_a_trace_keeps_its_order_over_its_laps(times: list[int], scale: float, start_ns: int) -> None:
    arrivals = TraceArrivals(times, start_ns=start_ns, time_scale=scale)
    seen = []
    for _ in range(3 * len(times)):
        seen.append(arrivals.next_ns)
        arrivals.advance()
    assert seen == sorted(seen)
    assert seen[0] == start_ns
    assert seen[-1] > start_ns  # laps take time


@st.composite
def lengths(draws: st.DrawFn) -> Length:
    low = draws(st.integers(1, 5_000))
    high = draws(st.none() | st.integers(low, 10_000))
    match draws(st.sampled_from(["fixed", "uniform", "lognormal", "geometric"])):
        case "uniform":
            return Length.uniform(low, high or low)
        case kind:
            mean = draws(st.floats(1, 10_000))
            return Length(kind=kind, mean=mean, spread=draws(st.floats(0, 10)), low=low, high=high)  # type: ignore[arg-type]


@given(length=lengths(), seed=st.integers(0, 2**63 - 1), index=st.integers(0, 10**9))
def test_a_draw_is_whole_positive_bounded_and_repeatable(length: Length, seed: int, index: int) -> None:
    validate_length("length", length)
    value = draw(length, stream(seed, Purpose.JOB, index))
    assert isinstance(value, int)
    assert 1 <= value <= length.most
    assert value >= length.low
    assert draw(length, stream(seed, Purpose.JOB, index)) == value


@given(st.text(alphabet="0123456789.,() lognrmaegtic-en", max_size=24))
def test_any_text_is_a_good_length_or_refused(text: str) -> None:
    from stackscope.errors import WorkloadError

    try:
        length = parse_length(text)
    except WorkloadError:
        return
    assert parse_length(str(length)) == length
