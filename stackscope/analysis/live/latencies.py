"""Latencies of the last minute's requests, and the time between emissions of the last seconds."""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, Final

from stackscope.analysis.distribution import Spread, spread_of
from stackscope.analysis.live.snapshot import Latency
from stackscope.analysis.metrics.base import ratio
from stackscope.analysis.metrics.latency import TPOT, TTFT, EndToEnd, keeps
from stackscope.analysis.totals import COMPLETED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.analysis.metrics.base import ServiceLimits
    from stackscope.records import RequestRecord

MINUTE_NS: Final = 60_000_000_000
GAPS_NS: Final = 10_000_000_000
"""How far back gaps go."""
FRESH_NS: Final = 1_000_000_000
"""How long a distribution stays as it was computed."""
MOST_VALUES: Final = 65_536
"""Newest values of a distribution that are looked at."""
_E2E: Final = EndToEnd()


class Recent:
    """Values and when they came, the oldest forgotten. Bounded memory."""

    def __init__(self) -> None:
        self._values = array("d")
        self._batches: deque[tuple[int, int]] = deque()
        """When they came, and how many, for each batch of values."""

    def add(self, at_ns: int, values: Iterable[float]) -> None:
        """Take values that came at one time, later than all before."""
        n_before = len(self._values)
        self._values.extend(values)
        n = len(self._values) - n_before
        if n > 0:
            self._batches.append((at_ns, n))
        if len(self._values) > 2 * MOST_VALUES:
            self._forget(None)

    def since(self, from_ns: int) -> array[float]:
        """The values that came later, to be looked at before the next come. Earlier ones are forgotten."""
        self._forget(from_ns)
        return self._values

    def _forget(self, until_ns: int | None) -> None:
        batches, n_old, n = self._batches, 0, len(self._values)
        while batches and (n - n_old > MOST_VALUES or (until_ns is not None and batches[0][0] <= until_ns)):
            n_old += batches.popleft()[1]
        del self._values[:n_old]


class Latencies:
    """Keeps the latencies of the last minute. Bounded memory."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._gaps, self._ttft, self._tpot, self._e2e, self._good = Recent(), Recent(), Recent(), Recent(), Recent()
        self._shown: tuple[int, Latency] | None = None
        """What was last computed, and when."""
        self._asked_ns: int | None = None
        """When it was last asked for."""
        self._is_stale = False
        """Something came since it was computed."""

    def add_gaps(self, until_ns: int, gaps: Iterable[float]) -> None:
        """Take nanoseconds between two emissions of the same request, of steps up to `until_ns`."""
        self._gaps.add(until_ns, gaps)
        self._is_stale = True

    def add(self, request: RequestRecord) -> bool:
        """Take a finished request; whether it counts: one that was cancelled or failed has no latency."""
        if request.finish_reason not in COMPLETED:
            return False
        at_ns = request.finished_ns
        self._ttft.add(at_ns, TTFT.values(request))
        self._tpot.add(at_ns, TPOT.values(request))
        self._e2e.add(at_ns, _E2E.values(request))
        if self._limits.is_given:
            self._good.add(at_ns, (keeps(request, self._limits),))
        self._is_stale = True
        return True

    def latency(self, now_ns: int, *, gaps_ns: int = GAPS_NS, is_complete: bool) -> Latency:
        """The distributions now, or as they were less than a second ago while time goes on."""
        is_settled = now_ns != self._asked_ns or not self._is_stale
        self._asked_ns = now_ns
        if self._shown is not None and is_settled and 0 <= now_ns - self._shown[0] < FRESH_NS:
            return self._shown[1]
        self._is_stale = False
        from_ns, limits = now_ns - MINUTE_NS, self._limits
        good = self._good.since(from_ns)
        latency = Latency(
            ttft=_spread(self._ttft.since(from_ns)),
            step_gap=_spread(self._gaps.since(now_ns - gaps_ns)),
            tpot=_spread(self._tpot.since(from_ns)),
            e2e=_spread(self._e2e.since(from_ns)),
            ttft_limit_ns=limits.ttft_ns,
            tpot_limit_ns=limits.tpot_ns,
            good_share=ratio(sum(good), len(good)),
            is_complete=is_complete,
        )
        self._shown = now_ns, latency
        return latency


def _spread(values: array[float]) -> Spread | None:
    return spread_of(values) if len(values) > 0 else None
