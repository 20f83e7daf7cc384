"""Causal probes in the engine: which steps are delayed, where, and what is stamped."""

from __future__ import annotations

import itertools

from stackscope.engine import stopwatch
from stackscope.engine.delays import LEAST_NS, MOST_NS, PERIOD_NS, SHARE, Delays
from stackscope.engine.stopwatch import Stopwatch
from stackscope.records import Delay, SlotWork

STEP_NS = 10_000_000
DECODING = (SlotWork(request=0, slot=0, phase="decode", new=1, cached=5),)
PREFILLING = (SlotWork(request=0, slot=0, phase="prefill", new=9, cached=0),)
LAPS = (stopwatch.ADMIT, stopwatch.BUILD, stopwatch.DRAFT, stopwatch.BUILD, stopwatch.DECODE, stopwatch.SAMPLE)


class Clock:
    """Time that passes while it is looked at, as a busy wait needs it, and while work is done."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 100
        return self.ns


class Loop:
    """Steps of a made-up engine."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.watch = Stopwatch(self.clock)
        self.delays = Delays()
        self.delays.switch(self.watch, is_on=True)

    def step(
        self, ns: int = STEP_NS, work: tuple[SlotWork, ...] = DECODING, *, is_drafting: bool = False
    ) -> tuple[Delay | None, int]:
        """What a step was delayed by, and how long it took."""
        self.watch.begin(None)
        if self.delays.is_on:
            self.delays.arm(self.watch, is_drafting=is_drafting)
        for phase in LAPS:
            if phase == stopwatch.DECODE:
                self.clock.ns += ns
            self.watch.lap(phase)
        delay = self.delays.take(self.watch, work) if self.delays.is_on else None
        assert self.watch.phases().total == self.watch.last_ns - self.watch.start_ns
        return delay, self.watch.phases().total

    def delayed(self, n: int, *, is_drafting: bool = False) -> list[tuple[Delay, int, float]]:
        """The next `n` delayed steps: what they were delayed by, how long they took, and when they began."""
        found: list[tuple[Delay, int, float]] = []
        while len(found) < n:
            began = self.clock.ns
            delay, took = self.step(is_drafting=is_drafting)
            if delay is not None:
                found.append((delay, took, began))
        return found


def test_parts_take_turns_a_few_times_a_minute() -> None:
    loop = Loop()
    found = loop.delayed(6)
    assert [delay.phase for delay, _, _ in found] == ["sample", "build", "decode"] * 2
    gaps = [after[2] - before[2] for before, after in itertools.pairwise(found)]
    assert all(PERIOD_NS <= gap <= PERIOD_NS + 3 * STEP_NS for gap in gaps)
    assert {delay.phase for delay, _, _ in loop.delayed(4, is_drafting=True)} == {"sample", "build", "decode", "draft"}


def test_a_step_takes_as_much_longer_as_is_recorded() -> None:
    loop = Loop()
    _, plain = loop.step()
    for delay, took, _ in loop.delayed(3):
        assert abs(delay.ns - SHARE * plain) < 0.01 * plain
        assert delay.ns <= took - plain <= delay.ns + 1_000


def test_delays_are_bounded_and_follow_what_is_usual() -> None:
    loop = Loop()
    loop.step(ns=10_000)
    loop.clock.ns += 2 * PERIOD_NS
    assert loop.step(ns=10_000)[0] == Delay("sample", LEAST_NS)
    loop = Loop()
    loop.step(ns=1_000_000_000)
    loop.clock.ns += 2 * PERIOD_NS
    assert loop.step(ns=1_000_000_000)[0] == Delay("sample", MOST_NS)


def test_before_a_usual_step_was_seen_nothing_is_delayed() -> None:
    loop = Loop()
    for _ in range(3):
        loop.clock.ns += 2 * PERIOD_NS
        assert loop.step(work=PREFILLING)[0] is None
    loop.step()
    assert loop.step()[0] is not None


def test_switched_off_nothing_is_delayed_even_if_a_step_was_to_be() -> None:
    loop = Loop()
    loop.step()
    loop.clock.ns += 2 * PERIOD_NS
    loop.watch.begin(None)
    loop.delays.arm(loop.watch, is_drafting=False)  # And then there is nothing to do.
    loop.delays.switch(loop.watch, is_on=False)
    delay, took = loop.step()
    assert delay is None
    assert took < STEP_NS + 10_000


def test_a_phase_that_did_not_come_was_not_delayed() -> None:
    loop = Loop()
    loop.step()
    loop.clock.ns += 2 * PERIOD_NS
    loop.watch.begin(None)
    loop.delays.arm(loop.watch, is_drafting=False)
    loop.watch.lap(stopwatch.ADMIT)
    assert loop.delays.take(loop.watch, ()) is None
    # The turn is not lost.
    delay, _ = loop.step()
    assert delay is not None
    assert delay.phase == "sample"
