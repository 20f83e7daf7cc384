"""How much time shadows may take: a small part of the wall time, saved up for a moment and never borrowed for long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SAVED_NS: Final = 10_000_000
"""Most that a purse saves up: what all of them get in a second."""
FIRST_NS: Final = 2_000_000
"""What is in each at the start, so that the first requests are seen."""
FILL_NS: Final = 50_000_000
"""Time between two payments: each takes 3 µs."""


class Clocks(NamedTuple):
    """Where times come from, in nanoseconds."""

    wall: Callable[[], int] = time.monotonic_ns
    thread: Callable[[], int] = time.thread_time_ns
    """CPU time of the calling thread."""
    process: Callable[[], int] = time.process_time_ns
    """CPU time of all threads of the process."""


class Purse:
    """What one shadow may spend. It may overdraw once; then it is closed until that is paid back."""

    __slots__ = ("balance_ns", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.balance_ns = float(FIRST_NS)

    @property
    def is_open(self) -> bool:
        return self.balance_ns >= 0.0

    def spend(self, duration_ns: float) -> None:
        """Take out what something took; a negative duration gives back what was put by for it."""
        self.balance_ns -= duration_ns


class Budget:
    """Fills the purses of the shadows that there are, by their weights; what one cannot hold goes to the others."""

    def __init__(self, weights: Mapping[str, float], *, share: float) -> None:
        """`share` is the part of the wall time that all of them may take together."""
        self.share = share
        self.purses = {name: Purse(weight) for name, weight in weights.items()}
        self._filled_ns: int | None = None

    def fill(self, now_ns: int) -> None:
        """Pay out for the time since the last payment, if that is long enough ago."""
        if self._filled_ns is None:
            self._filled_ns = now_ns
        if now_ns - self._filled_ns < FILL_NS:
            return
        left = self.share * (now_ns - self._filled_ns)
        self._filled_ns = now_ns
        hungry = self._hungry()
        while left >= 1.0 and hungry:
            total = sum([purse.weight for purse in hungry])
            pay = left
            for purse in hungry:
                part = min(pay * purse.weight / total, SAVED_NS - purse.balance_ns)
                purse.balance_ns += part
                left -= part
            hungry = self._hungry()

    def _hungry(self) -> list[Purse]:
        return [purse for purse in self.purses.values() if purse.balance_ns < SAVED_NS]
