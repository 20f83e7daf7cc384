"""The CPU time of forwards: of which ones it is read, and that it is unknown, not zero, of the others."""

from __future__ import annotations

import itertools

from stackscope.engine import stopwatch
from stackscope.engine.stopwatch import EVERY, SHORT_NS, CpuMeter, Stopwatch


def read(n: int, *, last_ns: int) -> list[int | None]:
    """What a meter says of `n` forwards that each take 7 ns of CPU time, after forwards of `last_ns`."""
    readings = itertools.count(0, 7)
    meter = CpuMeter(lambda: next(readings))
    found: list[int | None] = []
    for _ in range(n):
        meter.begin(last_ns)
        found.append(meter.end())
    return found


def test_long_forwards_are_all_read() -> None:
    assert read(10, last_ns=SHORT_NS) == [7] * 10


def test_of_short_forwards_one_in_sixteen_is_read_and_the_others_are_unknown() -> None:
    assert read(2 * EVERY + 1, last_ns=SHORT_NS - 1) == [7, *[None] * (EVERY - 1)] * 2 + [7]


def test_a_forward_after_a_long_one_is_read_whatever_came_before() -> None:
    readings = itertools.count(0, 7)
    meter = CpuMeter(lambda: next(readings))
    found = []
    for last_ns in (0, 0, SHORT_NS, *[0] * EVERY):
        meter.begin(last_ns)
        found.append(meter.end())
    assert found == [7, None, 7, *[None] * (EVERY - 1), 7]


def test_the_stopwatch_keeps_what_the_last_forward_took() -> None:
    times = iter([0, 5, 25, 30, 40])
    watch = Stopwatch(lambda: next(times))
    watch.begin(None)
    watch.lap(stopwatch.BUILD)
    watch.lap(stopwatch.DECODE)
    assert watch.last_decode_ns == 0
    watch.begin(watch.last_ns)
    assert watch.last_decode_ns == 20
    watch.lap(stopwatch.ADMIT)
    assert watch.spent(stopwatch.DECODE) == 0
