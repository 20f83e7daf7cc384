"""A small fixed piece of work between two steps, now and then: what the machine can do just now.

A forward that gets slower looks the same whether others read memory, clocks fell, or somebody took the core. Reading
memory beyond the caches and computing inside them, with one thread whose CPU time is known, tell the three apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackscope.records import Probe

if TYPE_CHECKING:
    import numpy.typing as npt

    from stackscope.engine.shadows.budget import Clocks

EVERY_NS: Final = 1_000_000_000
EAGER: Final = 6
"""So many follow each other as soon as their share allows: what comes later is held against them."""
FIRST_NS: Final = 200_000_000
SHARE: Final = 0.003
"""Of the wall time, at most: a probe that took longer is followed by a longer pause."""
BUFFER_BYTES: Final = 64 * 1024**2
"""Twice a large last-level cache: a window comes round again after all of it has passed through, and long pauses."""
WINDOW_BYTES: Final = 8 * 1024**2
"""Read at a time: 1 ms at 8 GB/s, which the clocks measure to a few microseconds."""
CACHED: Final = 2048
"""Doubles of the computation: 16 kB, so they stay in the first cache."""
REPETITIONS: Final = 256


class Probes:
    """Says when a probe is due, and runs it. Its memory is touched when it is made."""

    def __init__(
        self,
        clocks: Clocks,
        *,
        every_ns: int = EVERY_NS,
        share: float = SHARE,
        buffer_bytes: int = BUFFER_BYTES,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Raises `ValueError` when the windows do not fill the buffer."""
        if window_bytes <= 0 or buffer_bytes % window_bytes:
            raise ValueError("a buffer holds a whole number of windows")
        self._clocks = clocks
        self._every_ns = every_ns
        self._share = share
        self._windows = np.ones((buffer_bytes // window_bytes, window_bytes // 8))
        self._next = 0
        self._numbers = np.linspace(0.5, 1.5, CACHED)
        self._scratch = np.empty_like(self._numbers)
        self._due_ns: int | None = None
        self._n = 0
        self.spent_ns = 0
        """Wall time of all probes so far."""

    def due(self, now_ns: int) -> bool:
        """Whether to run one now. The first is due when the session has run for a while."""
        if self._due_ns is None:
            self._due_ns = now_ns + FIRST_NS
        return now_ns >= self._due_ns

    def run(self) -> Probe:
        """Run one, about 1.5 ms long."""
        wall, thread = self._clocks.wall, self._clocks.thread
        window: npt.NDArray[np.float64] = self._windows[self._next]
        self._next = (self._next + 1) % len(self._windows)
        began_cpu, began = thread(), wall()
        window.sum()
        read = wall()
        for _ in range(REPETITIONS):
            np.multiply(self._numbers, self._numbers, out=self._scratch)
        ended = wall()
        cpu = thread() - began_cpu
        took = ended - began
        self.spent_ns += took
        self._n += 1
        pause = 0 if self._n < EAGER else self._every_ns
        self._due_ns = ended + max(pause, int(took / self._share))
        return Probe(
            at_ns=ended,
            read_bytes_per_s=_rate(window.nbytes, read - began),
            compute_per_s=_rate(REPETITIONS, ended - read),
            cpu_share=min(1.0, cpu / took) if took > 0 else None,
        )


def _rate(amount: int, ns: int) -> float | None:
    """Per second. `None`: no time passed on this clock."""
    return amount * 1e9 / ns if ns > 0 else None
