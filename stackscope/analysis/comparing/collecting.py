"""Streaming a session into a `Digest`: a sink that costs a few microseconds per step and keeps no record."""

from __future__ import annotations

from array import array
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from stackscope.analysis.account import NOTHING
from stackscope.analysis.comparing.columns import AT, BlockSums, extract
from stackscope.analysis.comparing.digest import Digest, EpochSpan, Requests, Values
from stackscope.analysis.comparing.figures import DISTRIBUTIONS, RATES
from stackscope.analysis.comparing.loads import LoadSpan, load_of
from stackscope.analysis.comparing.readings import Readings
from stackscope.analysis.comparing.sampling import TermSample
from stackscope.analysis.comparing.totalling import Kept, Sums, figures_of
from stackscope.analysis.ledger import WorkSum
from stackscope.analysis.ledgers import UNPRICED, Ledgers
from stackscope.analysis.metrics import counts, latency, load, time
from stackscope.analysis.metrics.base import unknown_needs
from stackscope.analysis.totals import COMPLETED
from stackscope.records import ConfigEvent, Footer, HardwareSample, Header, RequestRecord, StepRecord, TrafficEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.analysis.account import Account
    from stackscope.analysis.comparing.counting import Floats
    from stackscope.analysis.comparing.loads import Load
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.metrics.base import Metric
    from stackscope.records import AnyRecord, FinishReason
    from stackscope.toggles import EngineConfig

MOST_HELD: Final = 2048
"""Steps that are turned into columns together: numpy's own cost is then spread over enough of them."""

METRICS: Final[tuple[type[Metric[object]], ...]] = (
    *(rate.metric for rate in RATES if rate.metric is not None),
    *DISTRIBUTIONS,
    load.HitRate,
    counts.WallTime,
    counts.Steps,
    counts.Forwards,
    counts.OutputTokens,
    counts.PrefillTokens,
    counts.Requests,
    counts.InvalidOutputSteps,
    time.PhaseShares,
)
"""What a digest has values of."""


class Collector:
    """A sink for the records of one session, in their order. `digest` may be asked for at any time."""

    def __init__(self, name: str, *, warmup_ns: int = 0) -> None:
        """`warmup_ns`: steps that began, and requests that arrived, before this instant of the session are left out."""
        self._name = name
        self._warmup_ns = warmup_ns
        self._warmup_steps = self._warmup_requests = 0
        self._header: Header | None = None
        self._ledgers = Ledgers()
        self._pricing: dict[int, Pricing] = {}
        self._configs: dict[int, EngineConfig | None] = {}
        self._steps_of: dict[int, int] = {}
        self._load: Load | None = None
        self._loads: list[LoadSpan] = []
        self._held: list[StepRecord] = []
        self._sums = Sums()
        self._work: dict[Pricing, tuple[WorkSum, WorkSum]] = {}
        """What the target and the draft model did, by what prices it."""
        self._blocks = BlockSums()
        self._durations: list[Floats] = []
        self._last_end_ns: int | None = None
        self._first: StepRecord | None = None
        self._latencies = {metric.tag: (array("d"), array("i")) for metric in latency.REQUEST_METRICS}
        self._requests = (array("q"), array("q"), array("q"))
        self._n_finished = 0
        self._in_flight = 0
        self._by_reason: dict[FinishReason, int] = {}
        self._readings = Readings()
        self._terms: TermSample | None = None
        self._footer: Footer | None = None

    def take(self, records: Iterable[AnyRecord]) -> None:
        """Take records one after the other."""
        for record in records:
            self.write(record)

    def take_batch(self, records: Sequence[AnyRecord]) -> None:
        """The same, faster where all are steps."""
        if {type(record) for record in records} != {StepRecord}:
            self.take(records)
            return
        self._held += cast("Sequence[StepRecord]", records)
        if len(self._held) >= MOST_HELD:
            self._add_steps()

    def write(self, record: AnyRecord) -> None:
        """Take the next record."""
        if isinstance(record, StepRecord):
            self._held.append(record)
            if len(self._held) >= MOST_HELD:
                self._add_steps()
        elif isinstance(record, RequestRecord):
            self._add_request(record)
        elif isinstance(record, HardwareSample):
            self._readings.add(record)
        elif isinstance(record, ConfigEvent):
            self._add_steps()
            if record.kind != "refused":
                self._begin(record.epoch, self._ledgers.change(record), record.config)
        elif isinstance(record, TrafficEvent):
            self._add_steps()
            if self._load is not None:
                self._load = self._load.changed(record)
        elif isinstance(record, Header):
            self._header = record
            self._load = load_of(record)
            self._terms = TermSample(record)
            self._begin(0, self._ledgers.begin(record), record.config)
        elif isinstance(record, Footer):
            self._footer = record

    def close(self) -> None:
        """Nothing is held that needs releasing."""

    def digest(self, *, truncated: str | None = None, left_out: str | None = None) -> Digest:
        """What was collected. Raises `ValueError` when no header came."""
        if self._header is None:
            raise ValueError("a session begins with its header")
        self._add_steps()
        blocks = self._blocks.all()
        distributions = {tag: _values(*held) for tag, held in self._latencies.items()}
        distributions[time.StepTime.tag] = self._step_times(blocks)
        first = self._first
        ids, prompts, outputs = (np.array(held, dtype=np.int64) for held in self._requests)
        return Digest(
            name=self._name,
            header=self._header,
            values=self._values(blocks, distributions),
            blocks=blocks,
            distributions=distributions,
            requests=Requests(ids, prompts, outputs),
            in_flight=self._in_flight,
            n_finished=self._n_finished,
            epochs=tuple(
                EpochSpan(number, self._configs.get(number), steps) for number, steps in self._steps_of.items()
            ),
            loads=tuple(self._loads),
            machine=self._readings.state(),
            terms="there is no step" if self._terms is None else self._terms.times(),
            first_step=None if first is None else first.n,
            warm_blocks=0 if first is None else max(first.cache.resident_blocks - first.cache.blocks_written, 0),
            warmup_ns=self._warmup_ns,
            warmup_steps=self._warmup_steps,
            warmup_requests=self._warmup_requests,
            footer=self._footer,
            truncated=truncated,
            left_out=left_out,
        )

    def _begin(self, epoch: int, pricing: Pricing, config: EngineConfig | None) -> None:
        self._pricing[epoch], self._configs[epoch] = pricing, config

    def _add_steps(self) -> None:
        steps, self._held = self._held, []
        if steps and self._first is None:
            self._first = steps[0]
        if steps and steps[0].start_ns < self._warmup_ns:
            n_held = len(steps)
            steps = [step for step in steps if step.start_ns >= self._warmup_ns]
            self._warmup_steps += n_held - len(steps)
        if steps and self._load is not None:
            last = self._loads.pop() if self._loads and self._loads[-1].load == self._load else LoadSpan(self._load, 0)
            self._loads.append(LoadSpan(self._load, last.steps + len(steps)))
        if steps and steps[0].epoch == steps[-1].epoch:  # Epochs only ever grow.
            self._add_stretch(steps[0].epoch, steps)
            return
        for number, stretch in groupby(steps, attrgetter("epoch")):
            self._add_stretch(number, list(stretch))

    def _add_stretch(self, number: int, steps: list[StepRecord]) -> None:
        """Take steps of one epoch."""
        pricing = self._pricing.get(number, UNPRICED)
        config = self._configs.get(number)
        found = extract(steps, pricing, self._last_end_ns)
        self._last_end_ns = found.end_ns
        self._in_flight = max(self._in_flight, found.in_flight)
        self._steps_of[number] = self._steps_of.get(number, 0) + len(steps)
        self._blocks.add(found.columns)
        self._durations.append(found.durations.astype(np.float64))
        work, draft_work = self._work.setdefault(pricing, (WorkSum(), WorkSum()))
        if found.counted is not None:
            work.add(found.counted.total)
        drafts = [forward for step in steps for forward in step.draft]
        if pricing.draft is not None and drafts:
            draft_work.add(pricing.draft.count_draft(drafts))
        self._sums.add(steps, found.verifications, len(drafts), pricing)
        if self._terms is not None:
            self._terms.add(number, steps, config, pricing)

    def _add_request(self, request: RequestRecord) -> None:
        if request.arrived_ns < self._warmup_ns:
            self._warmup_requests += 1
            return
        self._n_finished += 1
        self._by_reason[request.finish_reason] = self._by_reason.get(request.finish_reason, 0) + 1
        if request.finish_reason not in COMPLETED:
            return
        ids, prompts, outputs = self._requests
        index = len(ids)
        ids.append(request.id)
        prompts.append(request.prompt_tokens)
        outputs.append(request.output_tokens)
        for metric in latency.REQUEST_METRICS:
            values, owners = self._latencies[metric.tag]
            found = metric.values(request)
            values.extend(found)
            owners.extend([index] * len(found))

    def _step_times(self, blocks: Floats) -> Values:
        """Of all steps, by the block that each is in."""
        sizes = blocks[AT["steps"]].astype(np.int32)
        owners = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        return Values.of(np.concatenate(self._durations) if self._durations else np.zeros(0), owners)

    def _values(self, blocks: Floats, distributions: Mapping[str, Values]) -> dict[str, object]:
        target = self._account(is_target=True)
        kept = {tag: Kept(values.ordered) for tag, values in distributions.items()}
        draft = self._account(is_target=False)
        figures = figures_of(blocks, self._sums, kept, self._by_reason, target=target, draft=draft)
        unknown = unknown_needs(self._header)
        return {m.tag: None if unknown.intersection(m.needs) else m().compute(figures) for m in METRICS}

    def _account(self, *, is_target: bool) -> Account | None:
        """What target or draft model cost under all pricings. `None`: the geometry of some was not known."""
        if (self._sums.unpriced_forwards if is_target else self._sums.unpriced_drafts) > 0:
            return None
        total = NOTHING
        for pricing, (work, draft_work) in self._work.items():
            ledger, done = (pricing.target, work) if is_target else (pricing.draft, draft_work)
            if ledger is not None:
                total += ledger.price(done.total)
        return total


def _values(values: array[float], owners: array[int]) -> Values:
    return Values.of(np.array(values, dtype=np.float64), np.array(owners, dtype=np.int32))
