"""The small fixed piece of work between steps, on clocks that the test turns."""

from __future__ import annotations

import pytest

from stackscope.engine.probes import EAGER, EVERY_NS, FIRST_NS, REPETITIONS, SHARE, Probes
from stackscope.engine.shadows.budget import Clocks

MS = 1_000_000
SMALL = 1024**2


class Clock:
    """Each look at it takes a while: wall and thread time by steps of their own."""

    def __init__(self, wall_step: int, thread_step: int) -> None:
        self.wall_ns = self.thread_ns = 0
        self._wall_step, self._thread_step = wall_step, thread_step

    def wall(self) -> int:
        self.wall_ns += self._wall_step
        return self.wall_ns

    def thread(self) -> int:
        self.thread_ns += self._thread_step
        return self.thread_ns


def probes(wall_step: int = MS, thread_step: int = 2 * MS) -> tuple[Probes, Clock]:
    clock = Clock(wall_step, thread_step)
    made = Probes(
        Clocks(wall=clock.wall, thread=clock.thread), buffer_bytes=4 * SMALL, window_bytes=SMALL, every_ns=EVERY_NS
    )
    return made, clock


def test_rates_are_of_the_wall_time_that_each_part_took() -> None:
    made, _ = probes()
    probe = made.run()
    # Each part takes one look at the clock, which is 1 ms: 1 MiB and 256 repetitions in it.
    assert probe.read_bytes_per_s == pytest.approx(SMALL * 1000)
    assert probe.compute_per_s == pytest.approx(REPETITIONS * 1000)


def test_the_share_of_a_core_is_cpu_time_by_wall_time() -> None:
    made, _ = probes(wall_step=2 * MS, thread_step=1 * MS)
    # 1 ms of CPU time between the two looks at it, 4 ms of wall time.
    assert made.run().cpu_share == pytest.approx(0.25)


def test_a_coarse_thread_clock_never_gives_more_than_a_core() -> None:
    made, _ = probes(wall_step=MS, thread_step=10 * MS)
    assert made.run().cpu_share == 1.0


def test_a_clock_that_stands_still_leaves_the_rates_unknown() -> None:
    made, _ = probes(wall_step=0)
    probe = made.run()
    assert (probe.read_bytes_per_s, probe.compute_per_s, probe.cpu_share) == (None, None, None)


def test_the_first_ones_follow_as_soon_as_their_share_allows_and_the_others_once_in_a_while() -> None:
    made, clock = probes(wall_step=1_000)
    assert not made.due(0)
    assert not made.due(FIRST_NS - 1)
    assert made.due(FIRST_NS)
    clock.wall_ns = FIRST_NS
    for _ in range(EAGER - 1):
        at = made.run().at_ns
        assert not made.due(at + round(2_000 / SHARE) - 10)
        assert made.due(at + round(2_000 / SHARE))
    at = made.run().at_ns
    assert not made.due(at + EVERY_NS - 1)
    assert made.due(at + EVERY_NS)


def test_a_slow_probe_is_followed_by_a_pause_that_keeps_its_share() -> None:
    made, _ = probes(wall_step=50 * MS)
    at = made.run().at_ns
    took = 2 * 50 * MS
    assert made.spent_ns == took
    assert not made.due(at + round(took / SHARE) - 1_000)
    assert made.due(at + round(took / SHARE))


def test_over_a_long_session_probes_take_no_more_than_their_share() -> None:
    made, clock = probes(wall_step=20 * MS)
    for _ in range(2_000):
        clock.wall_ns += 500 * MS
        if made.due(clock.wall_ns):
            made.run()
    assert 0 < made.spent_ns <= SHARE * clock.wall_ns


def test_windows_are_read_in_turn() -> None:
    made, _ = probes()
    for window in range(4):
        made._windows[window] *= window + 1  # So that each has a sum of its own.
    seen = []
    for _ in range(5):
        seen.append(made._next)
        made.run()
    assert seen == [0, 1, 2, 3, 0]


def test_a_buffer_must_hold_whole_windows() -> None:
    with pytest.raises(ValueError, match="whole number of windows"):
        Probes(Clocks(), buffer_bytes=100, window_bytes=64)


def test_on_a_real_clock_there_are_real_rates() -> None:
    probe = Probes(Clocks(), buffer_bytes=8 * SMALL, window_bytes=SMALL).run()
    assert probe.read_bytes_per_s is not None
    assert probe.compute_per_s is not None
    assert 1e8 < probe.read_bytes_per_s < 1e12
    assert 1e4 < probe.compute_per_s < 1e8
