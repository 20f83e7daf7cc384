"""Splits the wall time of a step into its phases: every nanosecond between two stamps belongs to exactly one."""

from __future__ import annotations

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


class Stopwatch:
    """Phase times of the current step, in nanoseconds of `clock`."""

    __slots__ = ("_clock", "_delay_ns", "_delayed", "_spent", "last_ns", "start_ns")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._spent = [0] * 9
        self._delayed: int | None = None
        """The phase whose next end is to be delayed."""
        self._delay_ns = 0
        self.start_ns = 0
        self.last_ns = 0

    def begin(self, since_ns: int | None) -> None:
        """Start a step. Time since `since_ns` (the end of the one before) is `other`; None: nothing is owed."""
        now = self._clock()
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
