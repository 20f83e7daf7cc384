"""Everything that a report says of one session, from one pass over its recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stackscope.analysis.explainer import Explainer, Explanation, unhurried
from stackscope.analysis.ledgers import UNPRICED
from stackscope.analysis.live.events import label_of
from stackscope.analysis.live.snapshot import PARTS, Event, Point
from stackscope.analysis.live.standing import Standing
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.metrics.base import unknown_needs
from stackscope.analysis.metrics.latency import REQUEST_METRICS
from stackscope.analysis.summary import RunResult, RunSummary
from stackscope.analysis.totals import COMPLETED
from stackscope.engine.allowances import Allowances
from stackscope.pipeline import time_ns
from stackscope.records import ConfigEvent, HardwareSample, RequestRecord, StepRecord
from stackscope.report.page.series import Series
from stackscope.report.page.shares import Below, Cumulative

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stackscope.analysis.live.sums import Sums
    from stackscope.analysis.metrics.base import ServiceLimits
    from stackscope.records import AnyRecord, Header
    from stackscope.session.reader import SessionReader

_MOST_HELD: Final = 256


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What the wall time of a step went to, in the mean over the steps of one epoch."""

    epoch: int
    steps: int
    parts_ns: tuple[float, ...]
    """Of `PARTS`, idle time between steps included."""

    @property
    def total_ns(self) -> float:
        return sum(self.parts_ns)


@dataclass(frozen=True, kw_only=True)
class SessionFigures:
    """What a report says of one session."""

    path: Path
    header: Header
    result: RunResult
    explanation: Explanation
    start_ns: int
    """When the first step began; 0 without any."""
    end_ns: int
    bin_ns: int
    points: tuple[Point, ...]
    measured: tuple[tuple[int, float], ...]
    """(time, bytes per second) of DRAM traffic, as the hardware itself says. Empty: it does not."""
    measured_by: str
    """What said it."""
    bandwidth_ceiling: float | None
    """Bytes per second measured on this machine at most. `None`: not measured."""
    curves: Mapping[str, tuple[Below, ...]]
    """How latencies are distributed, by the metric's tag."""
    anatomy: tuple[Anatomy, ...]
    """By epoch, in order. Empty: no step, or the source does not know phases."""
    events: tuple[Event, ...]
    """The last changes, loads, marks and refusals, oldest first, with what they did."""
    score: str | None
    """How the predictions of these did. `None`: none was made."""
    truncated: str | None
    """Why it ended early. `None`: it did not."""
    left_out: str | None
    """What of it could not be read, as a sentence. `None`: nothing."""

    @property
    def marks(self) -> tuple[tuple[int, str], ...]:
        """(time, short label) of what stands on every chart."""
        return tuple([(event.at_ns, label_of(event)) for event in self.events if event.kind != "refused"])


class _Gathering:
    """A sink for all records of a session."""

    def __init__(self, header: Header, limits: ServiceLimits) -> None:
        self.unknown = unknown_needs(header)
        self.series = Series(self.unknown)
        self.run = RunSummary(limits=limits)
        self.view = LiveView(limits)
        self.explainer = Explainer(rules=Allowances(header.cores), cpu_ns=unhurried)
        self.curves = {metric.tag: Cumulative() for metric in REQUEST_METRICS}
        self.measured_by = ""
        self.end_ns = 0
        self.stepped_ns = 0
        """When the last step ended."""
        self._standing = Standing(header)
        self._held: list[StepRecord] = []

    def write(self, record: AnyRecord) -> None:
        """Take the next record."""
        self.run.write(record)
        self.view.write(record)
        self.explainer.write(record)
        self.end_ns = max(self.end_ns, time_ns(record) or 0)
        match record:
            case StepRecord():
                if len(self._held) >= _MOST_HELD or (self._held and self._held[-1].epoch != record.epoch):
                    self.catch_up()
                self._held.append(record)
                self.stepped_ns = record.end_ns
            case RequestRecord() if record.finish_reason in COMPLETED:
                for metric in REQUEST_METRICS:
                    for value in metric.values(record):
                        self.curves[metric.tag].add(value)
            case ConfigEvent() if record.kind != "refused":
                self.catch_up()
                self._standing.change(record)
            case HardwareSample():
                self._sample(record)

    def catch_up(self) -> None:
        """Sum up the steps that are held."""
        steps, self._held = self._held, []
        if steps:
            self.series.add(steps, self._standing.pricing(steps[0].epoch) or UNPRICED)

    def _sample(self, sample: HardwareSample) -> None:
        used = [gpu.dram_bytes_per_s for gpu in sample.gpus or () if gpu.is_used]
        known = [rate for rate in used if rate is not None]
        if used and len(known) == len(used):
            self.measured_by = "the GPU's counters"
            self.series.measure(sample.at_ns, sum(known))
        elif not used and sample.dram_bytes_per_s is not None:
            self.measured_by = "the processor's counters, whole machine"
            self.series.measure(sample.at_ns, sample.dram_bytes_per_s)

    @property
    def bandwidth_ceiling(self) -> float | None:
        limit = self._standing.limits.bandwidth
        return None if limit is None else limit.value

    def anatomy(self) -> tuple[Anatomy, ...]:
        if "phases" in self.unknown:
            return ()
        return tuple([_anatomy(epoch, sums) for epoch, sums in sorted(self.series.epochs.items())])


def _anatomy(epoch: int, sums: Sums) -> Anatomy:
    assert len(sums.parts) == len(PARTS)
    return Anatomy(epoch=epoch, steps=round(sums.steps), parts_ns=tuple([spent / sums.steps for spent in sums.parts]))


def gather(reader: SessionReader, limits: ServiceLimits) -> SessionFigures:
    """Read a session once, in bounded memory."""
    found = _Gathering(reader.header, limits)
    for record in reader:
        found.write(record)
    found.catch_up()
    snapshot = found.view.snapshot(found.end_ns)
    points = found.series.points()
    return SessionFigures(
        path=reader.path,
        header=reader.header,
        result=found.run.result(),
        explanation=found.explainer.final(found.stepped_ns),
        start_ns=found.series.start_ns or 0,
        end_ns=points[-1].at_ns if points else found.end_ns,
        bin_ns=found.series.width_ns,
        points=points,
        measured=found.series.measured(),
        measured_by=found.measured_by,
        bandwidth_ceiling=found.bandwidth_ceiling,
        curves={tag: values.curve() for tag, values in found.curves.items()},
        anatomy=found.anatomy(),
        events=tuple(reversed(snapshot.events)),
        score=None if snapshot.score is None else snapshot.score.told,
        truncated=reader.truncated,
        left_out=reader.left_out,
    )
