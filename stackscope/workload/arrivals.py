"""When the requests of an open loop arrive: gaps from a seed at a rate that may change, or the times of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from stackscope.workload.draws import Purpose, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.workload.spec import Arrivals

# Drawn many at a time: one draw by itself costs 2 µs, one of 1,024 costs 0.02.
_BATCH = 1_024


class ArrivalTimes(Protocol):
    """The arrivals of an open loop, one after the other."""

    @property
    def next_ns(self) -> int | None:
        """When the next request arrives, on the session's clock. `None`: none will, as things stand."""

    def advance(self) -> None:
        """Go on to the arrival after the next."""


def unit_gaps(arrivals: Arrivals, burstiness: float, seed: int) -> Iterator[float]:
    """Gaps of mean 1 without end: exponential, gamma of shape `burstiness`, or all equal."""
    rng = stream(seed, Purpose.ARRIVALS)
    while True:
        match arrivals:
            case "gamma":
                yield from rng.gamma(burstiness, 1.0 / burstiness, _BATCH).tolist()
            case "uniform":
                yield from np.ones(_BATCH).tolist()
            case _:
                yield from rng.standard_exponential(_BATCH).tolist()


class PacedArrivals:
    """Arrivals at a rate. A change of rate stretches or shrinks what is left of the gap that is running."""

    def __init__(self, gaps: Iterator[float], *, start_ns: int, rate: float) -> None:
        """`rate` in requests per second; 0 holds the arrivals until it changes."""
        self._gaps = gaps
        self._rate = rate
        self._from_ns = float(start_ns)
        """The instant up to which the running gap has been used. A float, since gaps are; its error is below 1 µs."""
        self._left = next(gaps)
        """What is left of the running gap from `_from_ns` on, in mean gaps."""

    @property
    def rate(self) -> float:
        return self._rate

    @property
    def next_ns(self) -> int | None:
        if self._left <= 0:
            return round(self._from_ns)
        if self._rate <= 0:
            return None
        return round(self._from_ns + self._left / self._rate * 1e9)

    def advance(self) -> None:
        """Go on to the arrival after the next. Only when there is a next one."""
        self._close_gap()
        self._left = next(self._gaps)

    def set_rate(self, rate: float, *, now_ns: int) -> None:
        """From `now_ns` on, arrive at `rate`. An arrival that is overdue stays where it was."""
        upcoming_ns = self.next_ns
        if upcoming_ns is not None and upcoming_ns <= now_ns:
            self._close_gap()  # it ended in the past and must not be paced anew
        else:
            elapsed_ns = max(0.0, now_ns - self._from_ns)
            self._left = max(0.0, self._left - elapsed_ns * self._rate / 1e9)
            self._from_ns = max(self._from_ns, float(now_ns))
        self._rate = rate

    def _close_gap(self) -> None:
        """Stand at the end of the running gap."""
        if self._left > 0:
            self._from_ns += self._left / self._rate * 1e9
            self._left = 0.0


class TraceArrivals:
    """The arrival times of a trace, its first at the start; started over one mean gap after its last."""

    def __init__(self, times_ns: Sequence[int], *, start_ns: int, time_scale: float) -> None:
        """`times_ns` must be ascending and not empty; `time_scale` multiplies the distances between them."""
        first_ns = times_ns[0]
        self._offsets_ns = [round((at_ns - first_ns) * time_scale) for at_ns in times_ns]
        span_ns = self._offsets_ns[-1]
        mean_gap_ns = span_ns // (len(times_ns) - 1) if len(times_ns) > 1 else 0
        # A trace whose arrivals all coincide is repeated each second: without a gap it would never end.
        self._period_ns = span_ns + mean_gap_ns if span_ns > 0 else round(1e9 * time_scale)
        self._start_ns = start_ns
        self._n_taken = 0

    @property
    def next_ns(self) -> int:
        lap, index = divmod(self._n_taken, len(self._offsets_ns))
        return self._start_ns + lap * self._period_ns + self._offsets_ns[index]

    def advance(self) -> None:
        self._n_taken += 1
