"""How long requests waited and ran. Every interval is named by its two events."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from stackscope.analysis.metrics.base import Figures, Metric, Need, RequestMetric, ServiceLimits, ratio

if TYPE_CHECKING:
    from stackscope.records import RequestRecord


class QueueTime(RequestMetric):
    """From arrival to the first admission to a slot. Waiting again after a pre-emption is not in it."""

    tag = "queue_ns"
    header = "queue time"
    unit = "ns"
    formula = "first admission − arrival"

    def values(self, request: RequestRecord) -> tuple[float, ...]:
        return () if request.admitted_ns is None else (request.admitted_ns - request.arrived_ns,)


class TimeToFirstToken(RequestMetric):
    """From arrival to the first emission: queue, prefill and, after a pre-emption, both again."""

    tag = "ttft_ns"
    header = "TTFT"
    unit = "ns"
    formula = "first emission − arrival"

    def values(self, request: RequestRecord) -> tuple[float, ...]:
        first = request.first_token_ns
        return () if first is None else (first - request.arrived_ns,)


class StepGap(RequestMetric):
    """From one emission of a request to its next, all such gaps of all requests. The first token ends no gap, and
    tokens that left together (accepted drafts) have none between them."""

    tag = "step_gap_ns"
    header = "step gap"
    unit = "ns"
    formula = "emission j+1 − emission j, for j ≥ 1"

    def values(self, request: RequestRecord) -> tuple[float, ...]:
        times = [emission.at_ns for emission in request.emissions]
        return tuple([later - earlier for earlier, later in pairwise(times)])


class TimePerOutputToken(RequestMetric):
    """Pace of a request after its first token. Undefined below two emissions: nothing passed between tokens."""

    tag = "tpot_ns"
    header = "TPOT"
    unit = "ns"
    formula = "(last emission − first emission) ÷ (output tokens − 1)"

    def values(self, request: RequestRecord) -> tuple[float, ...]:
        emissions = request.emissions
        tokens = request.output_tokens
        if len(emissions) < 2 or tokens < 2:
            return ()
        return ((emissions[-1].at_ns - emissions[0].at_ns) / (tokens - 1),)


class EndToEnd(RequestMetric):
    """From arrival to the end of the request."""

    tag = "e2e_ns"
    header = "E2E"
    unit = "ns"
    formula = "finished − arrival"

    def values(self, request: RequestRecord) -> tuple[float, ...]:
        return (request.finished_ns - request.arrived_ns,)


class PrefillSpeed(RequestMetric):
    """Prompt tokens computed per second between admission and first token. What the prefix cache spared is in neither
    part; undefined when it spared everything or no time passed."""

    tag = "prefill_tokens_per_s"
    header = "prefill speed"
    unit = "tokens/s"
    formula = "(prompt tokens − hit tokens) ÷ (first emission − first admission)"

    def values(self, request: RequestRecord) -> tuple[float, ...]:
        first, admitted = request.first_token_ns, request.admitted_ns
        computed = request.prompt_tokens - request.hit_tokens
        if first is None or admitted is None or first <= admitted or computed <= 0:
            return ()
        return (computed * 1e9 / (first - admitted),)


TTFT = TimeToFirstToken()
TPOT = TimePerOutputToken()
REQUEST_METRICS: tuple[RequestMetric, ...] = (QueueTime(), TTFT, StepGap(), TPOT, EndToEnd(), PrefillSpeed())


def keeps(request: RequestRecord, limits: ServiceLimits) -> bool:
    """Whether a completed request kept the limits. A TPOT that is undefined breaks none; a missing first token does."""
    ttft, tpot = TTFT.values(request), TPOT.values(request)
    if limits.ttft_ns is not None and (not ttft or ttft[0] > limits.ttft_ns):
        return False
    return limits.tpot_ns is None or not tpot or tpot[0] <= limits.tpot_ns


class Goodput(Metric[float]):
    """Completed requests per second that kept the limits on TTFT and TPOT. Unknown when no limit was given."""

    tag = "goodput_requests_per_s"
    header = "goodput"
    unit = "requests/s"
    formula = "completed requests with TTFT and TPOT within their limits ÷ wall time"
    needs: ClassVar[tuple[Need, ...]] = ("requests", "steps", "limits")

    def compute(self, figures: Figures) -> float | None:
        if not figures.limits.is_given or figures.wall_s is None:
            return None
        return figures.requests.good / figures.wall_s


class GoodShare(Metric[float]):
    """Share of the completed requests that kept the limits on TTFT and TPOT."""

    tag = "good_share"
    header = "within limits"
    unit = "1"
    formula = "completed requests with TTFT and TPOT within their limits ÷ completed requests"
    needs: ClassVar[tuple[Need, ...]] = ("requests", "limits")

    def compute(self, figures: Figures) -> float | None:
        if not figures.limits.is_given:
            return None
        return ratio(figures.requests.good, figures.requests.completed)
