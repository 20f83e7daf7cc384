"""What the host's optional probes have in common: why one is missing, and rates from counters that only grow."""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST: Final = "it takes two readings"


class Absence(NamedTuple):
    """Why a reading cannot be had on this machine."""

    reason: str
    remedy: str | None = None
    """An imperative sentence. `None`: nothing helps."""


class Rate:
    """Growth per second of a counter."""

    def __init__(self, modulus: int | None = None) -> None:
        """`modulus` is where the counter begins anew. `None`: it never does, and one that shrank was exchanged."""
        self._modulus = modulus
        self._before: tuple[int, float] | None = None

    def update(self, now_ns: int, value: float | None) -> float | None:
        """Per second, since the last time. `None`: there was none, or the counter is not known."""
        before, self._before = self._before, None if value is None else (now_ns, value)
        if value is None or before is None or now_ns <= before[0]:
            return None
        grown = value - before[1]
        if grown < 0:
            if self._modulus is None:
                return None
            grown += self._modulus
        return grown * 1e9 / (now_ns - before[0])
