"""Running sums over records: all that the metrics need, in bounded memory, cheap enough to keep up with a live run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from stackscope.analysis.distribution import Distribution
from stackscope.analysis.metrics.latency import REQUEST_METRICS, keeps

if TYPE_CHECKING:
    from stackscope.analysis.metrics.base import ServiceLimits
    from stackscope.records import ConfigEvent, FinishReason, RequestRecord, StepRecord

PHASES: Final = ("admit", "draft", "build", "decode", "sample", "commit", "emit", "shadow", "other")
COMPLETED: Final[frozenset[FinishReason]] = frozenset({"eos", "length", "context", "stop"})
"""Ways to finish that count as done. Cancelled and failed requests enter no latency: theirs are cut short."""


class Totals:
    """Sums that merge: `*_peak` takes the larger, `*_last` the later, everything else adds."""

    def merge(self, later: Self) -> None:
        """Take over the sums of records that came after those already counted."""
        for name, theirs in vars(later).items():
            mine = vars(self)[name]
            if isinstance(mine, Totals | Distribution):
                mine.merge(theirs)
            elif isinstance(mine, Counter):
                mine.update(theirs)
            elif isinstance(mine, dict):
                for key, values in theirs.items():
                    mine[key].merge(values)
            elif name.endswith("_peak"):
                setattr(self, name, max(mine, theirs))
            else:
                setattr(self, name, theirs if name.endswith("_last") else mine + theirs)


class TimeTotals(Totals):
    """Where wall time and CPU time went, in nanoseconds."""

    def __init__(self) -> None:
        self.busy_ns = 0
        """Inside steps."""
        self.idle_ns = 0
        """From the end of a step to the start of the next."""
        self.phases_ns: Counter[str] = Counter(dict.fromkeys(PHASES, 0))
        self.cpu_ns = 0
        """CPU time of the decode phase, over steps where both it and the threads are known."""
        self.thread_ns = 0
        """Wall time of the decode phase × engine threads, over the same steps."""
        self.step_ns = Distribution()
        self.forward_total_ns = 0
        """Decode phase of the target forwards that ran to their end."""
        self.forward_ns = Distribution()
        """The same, one by one."""
        self.host_ns = Distribution()
        """Outside drafting and the target's forward, of the same steps."""

    @property
    def wall_ns(self) -> int:
        return self.busy_ns + self.idle_ns

    def add(self, step: StepRecord, duration_ns: int, idle_ns: int, threads: int | None) -> None:
        p, sums = step.phases, self.phases_ns
        self.busy_ns += duration_ns
        self.idle_ns += idle_ns
        sums["admit"] += p.admit
        sums["draft"] += p.draft
        sums["build"] += p.build
        sums["decode"] += p.decode
        sums["sample"] += p.sample
        sums["commit"] += p.commit
        sums["emit"] += p.emit
        sums["shadow"] += p.shadow
        sums["other"] += p.other
        self.step_ns.add(duration_ns)
        if step.work and not step.aborted:
            self.forward_total_ns += p.decode
            self.forward_ns.add(p.decode)
            self.host_ns.add(duration_ns - p.draft - p.decode)
            if step.cpu_ns is not None and threads is not None:
                self.cpu_ns += step.cpu_ns
                self.thread_ns += p.decode * threads


class WorkTotals(Totals):
    """Rows fed to the target and tokens won, of forwards that ran to their end."""

    def __init__(self) -> None:
        self.forwards = 0
        """Forwards of the target."""
        self.prefill_rows = 0
        self.decode_rows = 0
        """Rows of sequences that were decoding or verifying."""
        self.outputs = 0
        self.emitted = 0
        self.decode_emitted = 0
        """Of them, by sequences that were decoding or verifying."""
        self.decode_forwards = 0
        """Sequences that were decoding or verifying, summed over forwards."""
        self.verifications: Counter[tuple[int, int, int]] = Counter()
        """How many ended as (drafted, accepted, emitted); a bounded number of keys."""
        self.batch_rows = Distribution()

    def add(self, step: StepRecord) -> None:
        rows = 0
        for slot in step.work:
            new, emitted = slot.new, slot.emitted
            rows += new
            self.emitted += emitted
            self.outputs += slot.outputs
            if slot.phase == "prefill":
                self.prefill_rows += new
                continue
            self.decode_forwards += 1
            self.decode_rows += new
            self.decode_emitted += emitted
            if slot.drafted > 0:
                self.verifications[slot.drafted, slot.accepted, emitted] += 1
        self.forwards += 1
        self.batch_rows.add(rows)


class CacheTotals(Totals):
    """What the prefix cache did."""

    def __init__(self) -> None:
        self.lookups = 0
        self.lookup_tokens = 0
        self.hit_tokens = 0
        self.useful_hit_tokens = 0
        self.blocks_read = 0
        self.blocks_written = 0
        self.blocks_evicted = 0
        self.copied_bytes = 0
        self.resident_blocks_last = 0
        self.resident_blocks_peak = 0
        self.resident_paths_last = 0

    def add(self, step: StepRecord) -> None:
        cache = step.cache
        self.lookups += cache.lookups
        self.lookup_tokens += cache.lookup_tokens
        self.hit_tokens += cache.hit_tokens
        self.useful_hit_tokens += cache.useful_hit_tokens
        self.blocks_read += cache.blocks_read
        self.blocks_written += cache.blocks_written
        self.blocks_evicted += cache.blocks_evicted
        self.copied_bytes += cache.copied_bytes
        self.resident_blocks_last = cache.resident_blocks
        self.resident_paths_last = cache.resident_paths
        if cache.resident_blocks > self.resident_blocks_peak:
            self.resident_blocks_peak = cache.resident_blocks


class LoadTotals(Totals):
    """How full the engine was. Levels are weighted by the time they lasted: level × nanoseconds of the step."""

    def __init__(self) -> None:
        self.busy_slot_ns = 0
        self.slot_ns = 0
        self.queue_request_ns = 0
        self.queue_peak = 0
        self.kv_cell_ns = 0
        self.kv_cells_peak = 0

    def add(self, step: StepRecord, duration_ns: int) -> None:
        self.busy_slot_ns += step.slots_busy * duration_ns
        self.slot_ns += step.slots * duration_ns
        self.queue_request_ns += step.queue * duration_ns
        self.kv_cell_ns += step.kv_cells * duration_ns
        if step.queue > self.queue_peak:
            self.queue_peak = step.queue
        if step.kv_cells > self.kv_cells_peak:
            self.kv_cells_peak = step.kv_cells


class StepTotals(Totals):
    """Sums over steps. An aborted forward counts as time and as an abort; its rows are redone, and count then."""

    def __init__(self) -> None:
        self.steps = 0
        self.aborted = 0
        self.settling = 0
        self.invalid_output = 0
        self.preempted = 0
        self.draft_forwards = 0
        """Forwards of the draft model, those ahead of an aborted forward of the target included."""
        self.time = TimeTotals()
        self.work = WorkTotals()
        self.cache = CacheTotals()
        self.load = LoadTotals()

    def add(self, step: StepRecord, *, idle_ns: int = 0, threads: int | None = None) -> None:
        """Take one step, the idle time before it, and the engine's threads (`None`: not known)."""
        duration_ns = step.phases.total
        self.steps += 1
        self.aborted += step.aborted
        self.settling += step.settling
        self.invalid_output += step.invalid_output
        self.preempted += step.preempted
        self.draft_forwards += len(step.draft)
        self.time.add(step, duration_ns, idle_ns, threads)
        self.cache.add(step)
        self.load.add(step, duration_ns)
        if step.work and not step.aborted:
            self.work.add(step)


class RequestTotals(Totals):
    """Sums over requests, by how they finished, and the distributions of what completed."""

    def __init__(self) -> None:
        self.by_reason: Counter[FinishReason] = Counter()
        self.completed = 0
        self.good = 0
        """Completed within the limits."""
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.output_tokens = 0
        self.preemptions = 0
        self.requeues = 0
        self.invalid_output = 0
        self.values: dict[str, Distribution] = {metric.tag: Distribution() for metric in REQUEST_METRICS}

    @property
    def finished(self) -> int:
        return sum(self.by_reason.values())

    def add(self, request: RequestRecord, limits: ServiceLimits) -> None:
        """Take one finished request."""
        self.by_reason[request.finish_reason] += 1
        self.prompt_tokens += request.prompt_tokens
        self.hit_tokens += request.hit_tokens
        self.output_tokens += request.output_tokens
        self.preemptions += request.preemptions
        self.requeues += request.requeues
        self.invalid_output += request.invalid_output
        if request.finish_reason not in COMPLETED:
            return
        self.completed += 1
        self.good += keeps(request, limits)
        for metric in REQUEST_METRICS:
            distribution = self.values[metric.tag]
            for value in metric.values(request):
                distribution.add(value)


class EventTotals(Totals):
    """Changes of the configuration."""

    def __init__(self) -> None:
        self.live = 0
        self.rebuilds = 0
        self.timed_rebuilds = 0
        """Those whose duration is known."""
        self.rebuild_ns = 0
        self.refused = 0

    def add(self, event: ConfigEvent) -> None:
        """Take one change, or the refusal of one."""
        if event.kind == "live":
            self.live += 1
        elif event.kind == "rebuild":
            self.rebuilds += 1
            if event.duration_ns is not None:
                self.timed_rebuilds += 1
                self.rebuild_ns += event.duration_ns
        else:
            self.refused += 1
