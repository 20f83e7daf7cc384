"""What the benchmark of the screen counts: the same seconds of each run, and no run that stood still or ended early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from benchmarks import screen_cost
from benchmarks.common import Round
from benchmarks.screen_cost import HEADLESS, SHOWN, Cost, Speeds, SpoiledError, tokens_per_s
from tests.unit.record_builders import make_step

if TYPE_CHECKING:
    from stackscope.records import StepRecord

SECOND = 1_000_000_000


def steps(n: int) -> list[StepRecord]:
    """One of a millisecond after the other, a token in each."""
    return [make_step(k) for k in range(n)]


def paused(found: list[StepRecord], at: int, ns: int) -> list[StepRecord]:
    """The same with a stop before one of them."""
    return [msgspec.structs.replace(s, start_ns=s.start_ns + (ns if s.n >= at else 0)) for s in found]


def test_tokens_are_counted_over_the_same_seconds_of_every_run() -> None:
    # What comes before and after them runs at half the speed: two milliseconds a step.
    slow = [msgspec.structs.replace(s, start_ns=s.start_ns + s.n * 1_000_000) for s in steps(1_000)]
    begun_ns = slow[-1].end_ns
    fast = [msgspec.structs.replace(s, start_ns=begun_ns + s.n * 1_000_000) for s in steps(3_000)]
    tail = [msgspec.structs.replace(s, start_ns=fast[-1].end_ns + s.n * 2_000_000) for s in steps(500)]
    assert tokens_per_s([*slow, *fast, *tail], 2.0, 3.0) == pytest.approx(1_000, rel=1e-3)


def test_a_run_that_stood_still_says_nothing() -> None:
    run = steps(6_000)
    assert tokens_per_s(run, 1.0, 4.0) == pytest.approx(1_000, rel=1e-3)
    with pytest.raises(SpoiledError, match=r"stood still for 60\.0 s"):
        tokens_per_s([*paused(run, 3_000, 60 * SECOND), *paused(steps(100_000)[6_000:], 0, 60 * SECOND)], 1.0, 90.0)
    # Before the seconds that count it does no harm, and neither does what comes after them.
    assert tokens_per_s(paused(run, 500, 3 * SECOND), 4.0, 4.0) == pytest.approx(1_000, rel=1e-3)


def test_a_run_that_ended_early_says_nothing() -> None:
    with pytest.raises(SpoiledError, match=r"it ended 1\.0 s before its time"):
        tokens_per_s(steps(4_000), 1.0, 4.0)
    with pytest.raises(SpoiledError, match="no step was recorded"):
        tokens_per_s([], 1.0, 4.0)


def test_the_line_of_a_table_has_the_verdict_of_quiet_rounds() -> None:
    # Two runs of each side a round: 4,000 tokens/s without the screen, and within 1 % of that with it.
    without_ns = 2 * SECOND // 4
    rounds = [Round(0, {SHOWN: round(without_ns / (0.995 + 0.001 * k)), HEADLESS: without_ns}, 0.01) for k in range(5)]
    noisy = Round(0, {SHOWN: without_ns * 3, HEADLESS: without_ns}, 0.4)
    line = screen_cost.show_speed(1, Speeds([*rounds, noisy], ["it ended 1.0 s before its time"]))
    assert line[:2] == ["1", ">= 0.98"]
    assert line[2].startswith("0.997 [")
    assert line[3:] == ["met", "4,000", "5 of 6, 1 spoiled"]
    assert screen_cost.show_speed(1, Speeds([noisy, rounds[0]], []))[3] == "NOT QUIET"
    assert screen_cost.show_speed(4, Speeds(rounds, []))[1:4:2] == ["-", "-"]
    assert screen_cost.show_speed(1, Speeds([], ["no token came"]))[2:] == ["-", "-", "-", "0 of 0, 1 spoiled"]


def test_costs_have_an_interval_and_a_verdict_when_it_was_quiet() -> None:
    found = Cost([0.020, 0.021, 0.022, 0.021], [0.004, 0.005, 0.006, 0.005], 8_000.0, 0.01)
    line = screen_cost.show_cost(2, found)
    assert line[0] == "2"
    assert (line[2], line[4]) == ("met", "met")
    assert line[-1] == "8.0 kB/s"
    assert screen_cost.show_cost(2, found._replace(foreign=0.5))[2] == "NOT QUIET"
    assert screen_cost.show_cost(2, found._replace(foreign=None))[4] == "NOT QUIET"


def test_rounds_end_with_the_time_and_a_spoiled_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("sys.argv", ["screen_cost"])
    n_runs = [0]

    def speed(side: str, *_: object) -> float:
        clock[0] += 8.0
        n_runs[0] += 1
        if n_runs[0] == 6:
            raise SpoiledError("the engine stood still for 9.0 s")
        return 1_000.0 if side == HEADLESS else 990.0

    monkeypatch.setattr(screen_cost, "speed", speed)
    found = screen_cost.speed_rounds(screen_cost.parsed(), 1, 100.0)
    assert found.spoiled == ["the engine stood still for 9.0 s"]
    # 32 s, 16 s of a spoiled one, 32 s; another one would take it beyond 100 s.
    assert len(found.rounds) == 2
    assert found.rounds[0].speed(SHOWN, HEADLESS) == pytest.approx(0.99)
