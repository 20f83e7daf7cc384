"""Latencies of the last minute's requests, and the time between emissions of the last seconds."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.analysis.distribution import Spread, spread_of
from stackscope.analysis.live.snapshot import Latency
from stackscope.analysis.metrics.base import ratio
from stackscope.analysis.metrics.latency import TPOT, TTFT, EndToEnd, keeps
from stackscope.analysis.totals import COMPLETED

if TYPE_CHECKING:
    from stackscope.analysis.metrics.base import ServiceLimits
    from stackscope.records import RequestRecord

MINUTE_NS: Final = 60_000_000_000
GAPS_NS: Final = 10_000_000_000
"""How far back gaps go."""
FRESH_NS: Final = 1_000_000_000
"""How long a distribution stays as it was computed."""
MOST_REQUESTS: Final = 16_384
MOST_GAPS: Final = 65_536
"""Of the newest, those that are kept and looked at."""
_E2E: Final = EndToEnd()


class Gaps:
    """When a request emitted again, and how long after the last time."""

    def __init__(self) -> None:
        self.ends = array("d")
        self.times = array("d")

    def since(self, from_ns: int) -> array[float]:
        """The gaps that ended later. Earlier ones are forgotten."""
        self._drop(max(bisect_right(self.ends, from_ns), len(self.ends) - MOST_GAPS))
        return self.times

    def trim(self) -> None:
        """Keep the newest only."""
        self._drop(len(self.ends) - MOST_GAPS)

    def _drop(self, n: int) -> None:
        del self.ends[:n], self.times[:n]


class _Request(NamedTuple):
    """What one completed request adds."""

    finished_ns: int
    ttft: tuple[float, ...]
    tpot: tuple[float, ...]
    e2e: tuple[float, ...]
    is_good: bool


class Latencies:
    """Keeps the requests of the last minute. Bounded memory."""

    def __init__(self, limits: ServiceLimits) -> None:
        self.gaps = Gaps()
        self._limits = limits
        self._requests: deque[_Request] = deque(maxlen=MOST_REQUESTS)
        self._shown: tuple[int, Latency] | None = None
        """What was last computed, and when."""

    def add(self, request: RequestRecord) -> bool:
        """Take a finished request; whether it counts: one that was cancelled or failed has no latency."""
        if request.finish_reason not in COMPLETED:
            return False
        self._requests.append(
            _Request(
                request.finished_ns,
                TTFT.values(request),
                TPOT.values(request),
                _E2E.values(request),
                keeps(request, self._limits),
            )
        )
        return True

    def latency(self, now_ns: int, *, gaps_ns: int = GAPS_NS, is_complete: bool) -> Latency:
        """The distributions now, or as they were less than a second ago."""
        if self._shown is not None and 0 <= now_ns - self._shown[0] < FRESH_NS:
            return self._shown[1]
        while self._requests and self._requests[0].finished_ns <= now_ns - MINUTE_NS:
            self._requests.popleft()
        recent, limits = self._requests, self._limits
        good = sum([request.is_good for request in recent])
        latency = Latency(
            ttft=_spread([value for request in recent for value in request.ttft]),
            step_gap=_spread(self.gaps.since(now_ns - gaps_ns)),
            tpot=_spread([value for request in recent for value in request.tpot]),
            e2e=_spread([value for request in recent for value in request.e2e]),
            ttft_limit_ns=limits.ttft_ns,
            tpot_limit_ns=limits.tpot_ns,
            good_share=ratio(good, len(recent)) if limits.is_given else None,
            is_complete=is_complete,
        )
        self._shown = now_ns, latency
        return latency


def _spread(values: list[float] | array[float]) -> Spread | None:
    return spread_of(values) if len(values) > 0 else None
