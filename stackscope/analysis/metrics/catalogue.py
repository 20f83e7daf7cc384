"""Every metric, in the order in which it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.analysis.metrics.cost import COST_METRICS
from stackscope.analysis.metrics.counts import COUNT_METRICS
from stackscope.analysis.metrics.latency import REQUEST_METRICS, Goodput, GoodShare
from stackscope.analysis.metrics.load import LOAD_METRICS
from stackscope.analysis.metrics.speculation import SPECULATION_METRICS
from stackscope.analysis.metrics.time import TIME_METRICS

if TYPE_CHECKING:
    from stackscope.analysis.metrics.base import Metric

SECTIONS: Final[dict[str, tuple[Metric[object], ...]]] = {
    "Counts": COUNT_METRICS,
    "Latency": (*REQUEST_METRICS, Goodput(), GoodShare()),
    "Throughput, load and prefix cache": LOAD_METRICS,
    "Speculation": SPECULATION_METRICS,
    "Time": TIME_METRICS,
    "Cost": COST_METRICS,
}
METRICS: Final[tuple[Metric[object], ...]] = tuple(metric for section in SECTIONS.values() for metric in section)
