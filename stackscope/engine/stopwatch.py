"""Splits the wall time of a step into its phases: every nanosecond between two stamps belongs to exactly one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from stackscope.records import Phases

if TYPE_CHECKING:
    from collections.abc import Callable

ADMIT: Final = 0
DRAFT: Final = 1
BUILD: Final = 2
DECODE: Final = 3
SAMPLE: Final = 4
COMMIT: Final = 5
EMIT: Final = 6
SHADOW: Final = 7
OTHER: Final = 8

SHORT_NS: Final = 1_000_000
"""Forwards shorter than this have their CPU time read only now and then: the two readings take 3 µs."""
EVERY: Final = 16
"""One of so many short forwards has it read."""


class Stopwatch:
    """Phase times of the current step, in nanoseconds of `clock`."""

    __slots__ = ("_clock", "_delay_ns", "_delayed", "_spent", "last_decode_ns", "last_ns", "start_ns")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._spent = [0] * 9
        self._delayed: int | None = None
        """The phase whose next end is to be delayed."""
        self._delay_ns = 0
        self.start_ns = 0
        self.last_ns = 0
        self.last_decode_ns = 0
        """What the decode phase of the step before took."""

    def begin(self, since_ns: int | None) -> None:
        """Start a step. Time since `since_ns` (the end of the one before) is `other`; None: nothing is owed."""
        now = self._clock()
        self.last_decode_ns = self._spent[DECODE]
        self._spent = [0] * 9
        self.start_ns = now if since_ns is None else since_ns
        self._spent[OTHER] = now - self.start_ns
        self.last_ns = now

    def lap(self, phase: int) -> None:
        """Charge the time since the last stamp to a phase."""
        if phase == self._delayed:
            self._spend()
        now = self._clock()
        self._spent[phase] += now - self.last_ns
        self.last_ns = now

    def delay(self, phase: int, ns: int) -> None:
        """Have the next end of a phase come that much later; the processor is kept busy, as a slower phase would."""
        self._delayed, self._delay_ns = phase, ns

    def disarm(self) -> bool:
        """Whether a delay was still waiting for its phase, which now will not come."""
        was_waiting = self._delayed is not None
        self._delayed = None
        return was_waiting

    def _spend(self) -> None:
        self._delayed = None
        until = self._clock() + self._delay_ns
        while self._clock() < until:
            pass

    def spent(self, phase: int) -> int:
        """Nanoseconds charged to a phase so far."""
        return self._spent[phase]

    def phases(self) -> Phases:
        s = self._spent
        return Phases(
            admit=s[0],
            draft=s[1],
            build=s[2],
            decode=s[3],
            sample=s[4],
            commit=s[5],
            emit=s[6],
            shadow=s[7],
            other=s[8],
        )


class CpuMeter:
    """CPU time of the whole process during forwards: each long one's, and one in sixteen of the short ones'."""

    __slots__ = ("_before_ns", "_clock", "_skipped")

    def __init__(self, clock: Callable[[], int] = time.process_time_ns) -> None:
        """`clock`: CPU time of the process, in nanoseconds."""
        self._clock = clock
        self._before_ns: int | None = None
        self._skipped = EVERY

    def begin(self, last_ns: int) -> None:
        """A forward begins; the one before took `last_ns`."""
        self._skipped += 1
        if self._skipped < EVERY and last_ns < SHORT_NS:
            self._before_ns = None
            return
        self._skipped = 0
        self._before_ns = self._clock()

    def end(self) -> int | None:
        """CPU time since the forward began. `None`: it was not read."""
        return None if self._before_ns is None else self._clock() - self._before_ns
