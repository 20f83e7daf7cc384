"""A run, summed up while it goes on: records in, one by one, and every metric out, for the run and for each epoch."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec

from stackscope.analysis.account import NOTHING, Account
from stackscope.analysis.distribution import Spread
from stackscope.analysis.ledger import WorkSum
from stackscope.analysis.ledgers import UNPRICED, Ledgers, Pricing
from stackscope.analysis.metrics.base import Figures, Metric, ServiceLimits, unknown_needs
from stackscope.analysis.metrics.catalogue import METRICS
from stackscope.analysis.totals import EventTotals, RequestTotals, StepTotals
from stackscope.records import ConfigEvent, Footer, Header, RequestRecord, StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.analysis.ledger import Ledger
    from stackscope.records import AnyRecord
    from stackscope.toggles import EngineConfig

T = TypeVar("T")

MOST_HELD: Final = 256
"""Steps held back to be summed together: half a second of a fast engine, and half a megabyte."""


@dataclass
class _Epoch:
    """The records under one configuration."""

    number: int
    began_ns: int
    config: EngineConfig | None = None
    pricing: Pricing = UNPRICED
    steps: StepTotals = field(default_factory=StepTotals)
    requests: RequestTotals = field(default_factory=RequestTotals)
    events: EventTotals = field(default_factory=EventTotals)
    """The change that began it, and the refusals during it."""
    work: WorkSum = field(default_factory=WorkSum)
    draft_work: WorkSum = field(default_factory=WorkSum)

    def add(self, steps: Sequence[StepRecord], since_ns: int | None) -> None:
        """Take steps, and the idle time since the one before ended, unless that is `None`."""
        pricing = self.pricing
        self.steps.add(steps, since_ns=since_ns, threads=pricing.threads)
        if pricing.target is not None:
            for some in _portions(pricing.target, [step for step in steps if not step.aborted]):
                self.work.add(pricing.target.count_steps(some))
        if pricing.draft is not None:
            for some in _portions(pricing.draft, [step for step in steps if step.draft]):
                self.draft_work.add(pricing.draft.count_draft([forward for step in some for forward in step.draft]))

    @property
    def target(self) -> Account | None:
        if self.pricing.target is not None:
            return self.pricing.target.price(self.work.total)
        return NOTHING if self.steps.work.forwards == 0 else None

    @property
    def draft(self) -> Account | None:
        if self.pricing.draft is not None:
            return self.pricing.draft.price(self.draft_work.total)
        return NOTHING if self.steps.draft_forwards == 0 else None


def _portions(ledger: Ledger, steps: Sequence[StepRecord]) -> Iterable[Sequence[StepRecord]]:
    """The steps as they are counted: all at once, but singly where the order of additions shows in the result."""
    return [[step] for step in steps] if ledger.is_sparse else [steps]


@dataclass(frozen=True)
class Summary:
    """Every metric of a run, or of one epoch of it, at one moment."""

    values: Mapping[str, object]
    """Values by tag. `None`: unknown or undefined."""

    def __getitem__(self, metric: type[Metric[T]]) -> T | None:
        """The value of a metric, with its type."""
        return cast("T | None", self.values[metric.tag])

    def to_dict(self) -> dict[str, object]:
        """The values by tag as plain JSON types; unknown is null."""
        return {tag: _plain(value) for tag, value in self.values.items()}


@dataclass(frozen=True)
class EpochSummary(Summary):
    """The metrics of the records under one configuration. Requests are those that arrived and ran under it alone; the
    idle time in which the configuration changed belongs to the run, and to no epoch."""

    number: int = 0
    began_ns: int = 0
    config: EngineConfig | None = None
    """`None`: not recorded."""

    def to_dict(self) -> dict[str, object]:
        head = {"epoch": self.number, "began_ns": self.began_ns}
        return {**head, "config": msgspec.to_builtins(self.config), **super().to_dict()}


@dataclass(frozen=True)
class RunResult(Summary):
    """The metrics of a whole run, and of its epochs when the configuration changed."""

    epochs: tuple[EpochSummary, ...] = ()
    """In the order in which they ran; empty when there was only one."""
    spanning_requests: int = 0
    """Requests that ran under more than one configuration: in the run's figures, in no epoch's."""
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    warmup_ns: int = 0
    warmup_steps: int = 0
    warmup_requests: int = 0
    not_modelled: tuple[str, ...] = ()
    """What the cost leaves out of the models that ran, in words."""
    ended: str | None = None
    """How the session ended. `None`: it is still running, or was killed."""

    def to_dict(self) -> dict[str, object]:
        return {
            **super().to_dict(),
            "units": {metric.tag: metric.unit for metric in METRICS},
            "limits": {"ttft_ns": self.limits.ttft_ns, "tpot_ns": self.limits.tpot_ns},
            "warmup": {
                "until_ns": self.warmup_ns,
                "excluded_steps": self.warmup_steps,
                "excluded_requests": self.warmup_requests,
            },
            "not_modelled": list(self.not_modelled),
            "ended": self.ended,
            "spanning_requests": self.spanning_requests,
            "epochs": [epoch.to_dict() for epoch in self.epochs],
        }


def _plain(value: object) -> object:
    if isinstance(value, Spread):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


class RunSummary:
    """A sink that keeps sums of what it is fed: bounded memory, a few microseconds per step.

    Warm-up: nothing is left out unless `warmup_ns` is given; then steps that began, and requests that arrived, before
    that instant of the session enter no metric and are counted apart.
    """

    def __init__(self, *, limits: ServiceLimits | None = None, warmup_ns: int = 0) -> None:
        self._limits = ServiceLimits() if limits is None else limits
        self._warmup_ns = warmup_ns
        self._warmup_steps = self._warmup_requests = 0
        self._header: Header | None = None
        self._ledgers = Ledgers()
        self._epoch = _Epoch(0, 0)
        self._epochs = {0: self._epoch}
        self._requests = RequestTotals()
        self._last_end_ns: int | None = None
        self._boundaries: list[tuple[int, int]] = []
        """(first step, epoch) of each stretch of steps."""
        self._between_ns = 0
        """Idle time between the last step of an epoch and the first of the next: a rebuild, for instance."""
        self._ended: str | None = None
        self._held: list[StepRecord] = []
        """Steps that no sum has yet."""

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session, in the order of their time."""
        if isinstance(record, StepRecord):
            self._held.append(record)
            if len(self._held) == MOST_HELD:
                self._add_steps()
            return
        self._add_steps()
        if isinstance(record, RequestRecord):
            self._add_request(record)
        elif isinstance(record, ConfigEvent):
            self._change(record)
        elif isinstance(record, Header):
            self._begin(record)
        elif isinstance(record, Footer):
            self._ended = record.reason

    def close(self) -> None:
        """Nothing is held that needs releasing; the result stays available."""

    def result(self) -> RunResult:
        """Every metric of the records so far."""
        self._add_steps()
        epochs = [self._epochs[number] for number in sorted(self._epochs)]
        ran = [epoch for epoch in epochs if epoch.steps.steps > 0]
        return RunResult(
            self._values(_figures(epochs, self._requests, self._limits, between_ns=self._between_ns)),
            epochs=tuple(self._epoch_summary(epoch) for epoch in ran) if len(ran) > 1 else (),
            spanning_requests=self._requests.finished - sum(epoch.requests.finished for epoch in epochs),
            limits=self._limits,
            warmup_ns=self._warmup_ns,
            warmup_steps=self._warmup_steps,
            warmup_requests=self._warmup_requests,
            not_modelled=self._ledgers.not_modelled,
            ended=self._ended,
        )

    def to_dict(self) -> dict[str, object]:
        """Every metric of the records so far as plain JSON types, with units."""
        return self.result().to_dict()

    def _begin(self, header: Header) -> None:
        self._header = header
        self._epoch.config = header.config
        self._epoch.pricing = self._ledgers.begin(header)

    def _change(self, event: ConfigEvent) -> None:
        if event.kind == "refused":
            self._epoch.events.add(event)
            return
        epoch = self._epochs.setdefault(event.epoch, _Epoch(event.epoch, event.at_ns))
        epoch.events.add(event)
        epoch.config = event.config
        epoch.pricing = self._ledgers.change(event)
        self._epoch = epoch

    def _add_steps(self) -> None:
        """Sum up the steps that are held."""
        steps, self._held = self._held, []
        if steps and steps[0].start_ns < self._warmup_ns:
            n_held = len(steps)
            steps = [step for step in steps if step.start_ns >= self._warmup_ns]
            self._warmup_steps += n_held - len(steps)
        for number, stretch in groupby(steps, attrgetter("epoch")):
            self._add_stretch(number, list(stretch))

    def _add_stretch(self, number: int, steps: list[StepRecord]) -> None:
        """Take steps of one epoch."""
        if number != self._epoch.number:
            # Its event was lost, or precedes the last steps of the epoch before.
            self._epoch = self._epochs.setdefault(number, _Epoch(number, steps[0].start_ns))
        since_ns, self._last_end_ns = self._last_end_ns, steps[-1].end_ns
        if not self._boundaries or self._boundaries[-1][1] != number:
            self._boundaries.append((steps[0].n, number))
            if since_ns is not None:
                self._between_ns += max(steps[0].start_ns - since_ns, 0)
            since_ns = None
        self._epoch.add(steps, since_ns)

    def _add_request(self, request: RequestRecord) -> None:
        if request.arrived_ns < self._warmup_ns:
            self._warmup_requests += 1
            return
        self._requests.add(request, self._limits)
        epoch = self._epoch_of(request)
        if epoch is not None:
            epoch.requests.add(request, self._limits)

    def _epoch_of(self, request: RequestRecord) -> _Epoch | None:
        """The epoch that a request arrived and ran in. `None`: it saw more than one."""
        epoch = self._epoch
        if request.emissions:
            first = self._epoch_at(request.emissions[0].step)
            last = self._epoch_at(request.emissions[-1].step)
            if first is None or first is not last:
                return None
            epoch = first
        return epoch if request.arrived_ns >= epoch.began_ns else None

    def _epoch_at(self, step: int) -> _Epoch | None:
        place = bisect_right(self._boundaries, step, key=lambda boundary: boundary[0]) - 1
        return self._epochs[self._boundaries[place][1]] if place >= 0 else None

    def _epoch_summary(self, epoch: _Epoch) -> EpochSummary:
        values = self._values(_figures([epoch], epoch.requests, self._limits))
        return EpochSummary(values, number=epoch.number, began_ns=epoch.began_ns, config=epoch.config)

    def _values(self, figures: Figures) -> dict[str, object]:
        unknown = unknown_needs(self._header)
        return {m.tag: None if unknown.intersection(m.needs) else m.compute(figures) for m in METRICS}


def _figures(epochs: list[_Epoch], requests: RequestTotals, limits: ServiceLimits, *, between_ns: int = 0) -> Figures:
    """The sums of several epochs, and of the idle time between them, as one."""
    steps, events = epochs[0].steps, epochs[0].events
    target, draft = epochs[0].target, epochs[0].draft
    if len(epochs) > 1:
        steps, events = StepTotals(), EventTotals()
        for epoch in epochs:
            steps.merge(epoch.steps)
            events.merge(epoch.events)
        steps.time.idle_ns += between_ns
        for epoch in epochs[1:]:
            target = _sum(target, epoch.target)
            draft = _sum(draft, epoch.draft)
    return Figures(steps=steps, requests=requests, events=events, target=target, draft=draft, limits=limits)


def _sum(a: Account | None, b: Account | None) -> Account | None:
    return None if a is None or b is None else a + b
