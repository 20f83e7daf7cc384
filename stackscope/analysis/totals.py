"""Running sums over records: all that the metrics need, in bounded memory, cheap enough to keep up with a live run.

Steps are summed many at a time and column by column, which takes a fifth of the time that it takes one by one.
"""

from __future__ import annotations

from collections import Counter
from operator import add, attrgetter, mul
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from stackscope.analysis.distribution import Distribution
from stackscope.analysis.metrics.latency import REQUEST_METRICS, keeps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stackscope.analysis.metrics.base import ServiceLimits
    from stackscope.records import CacheCounters, ConfigEvent, FinishReason, Phases, RequestRecord, StepRecord

PHASES: Final = ("admit", "draft", "build", "decode", "sample", "commit", "emit", "shadow", "other")
SPELLED: Final[Mapping[str, str]] = {"decode": "forward"}
"""What readers are told a phase is called, where that is not its name: this one is the whole forward of the target, and
`decode` elsewhere the part of it for one row of each sequence that decodes."""
COMPLETED: Final[frozenset[FinishReason]] = frozenset({"eos", "length", "context", "stop"})
"""Ways to finish that count as done. Cancelled and failed requests enter no latency: theirs are cut short."""

Spent: TypeAlias = tuple[int, ...]
"""The nanoseconds of one step by phase, in the order of `PHASES`."""

_DRAFT, _DECODE = PHASES.index("draft"), PHASES.index("decode")

_phases: Callable[[Phases], Spent] = attrgetter(*PHASES)
_counters: Callable[[CacheCounters], tuple[int, ...]] = attrgetter(
    "lookups", "lookup_tokens", "hit_tokens", "useful_hit_tokens", "blocks_read", "blocks_written", "blocks_evicted",
    "copied_bytes",
)  # fmt: skip


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

    def add(self, phases: Sequence[Spent], durations_ns: Sequence[int], idle_ns: int) -> None:
        """Take the phases of steps, what they sum to, and the idle time before the steps."""
        self.busy_ns += sum(durations_ns)
        self.idle_ns += idle_ns
        for name, spent in zip(PHASES, zip(*phases, strict=True), strict=True):
            self.phases_ns[name] += sum(spent)
        self.step_ns.extend(durations_ns)

    def add_forwards(self, forwards: Sequence[tuple[StepRecord, Spent, int]], threads: int | None) -> None:
        """Take the steps, with phases and durations, whose forward ran to its end, and the engine's threads."""
        decoding = [spent[_DECODE] for _, spent, _ in forwards]
        self.forward_total_ns += sum(decoding)
        self.forward_ns.extend(decoding)
        self.host_ns.extend([ns - spent[_DRAFT] - spent[_DECODE] for _, spent, ns in forwards])
        if threads is not None:
            known = [(step.cpu_ns, spent[_DECODE]) for step, spent, _ in forwards if step.cpu_ns is not None]
            self.cpu_ns += sum([cpu_ns for cpu_ns, _ in known])
            self.thread_ns += sum([ns for _, ns in known]) * threads


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

    def add(self, steps: Sequence[StepRecord]) -> None:
        """Take steps with forwards that ran to their end."""
        n_prefill = n_decode = n_outputs = n_emitted = n_decode_emitted = n_decoding = 0
        verifications, batches = [], []
        for step in steps:
            rows = 0
            for slot in step.work:
                new, emitted = slot.new, slot.emitted
                rows += new
                n_emitted += emitted
                n_outputs += slot.outputs
                if slot.phase == "prefill":
                    n_prefill += new
                    continue
                n_decoding += 1
                n_decode += new
                n_decode_emitted += emitted
                if slot.drafted > 0:
                    verifications.append((slot.drafted, slot.accepted, emitted))
            batches.append(rows)
        self.forwards += len(batches)
        self.prefill_rows += n_prefill
        self.decode_rows += n_decode
        self.outputs += n_outputs
        self.emitted += n_emitted
        self.decode_emitted += n_decode_emitted
        self.decode_forwards += n_decoding
        self.verifications.update(verifications)
        self.batch_rows.extend(batches)


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

    def add(self, caches: Sequence[CacheCounters]) -> None:
        """Take what the cache did in steps."""
        lookups, asked, hits, useful, read, written, evicted, copied = map(
            sum, zip(*map(_counters, caches), strict=True)
        )
        self.lookups += lookups
        self.lookup_tokens += asked
        self.hit_tokens += hits
        self.useful_hit_tokens += useful
        self.blocks_read += read
        self.blocks_written += written
        self.blocks_evicted += evicted
        self.copied_bytes += copied
        self.resident_blocks_last = caches[-1].resident_blocks
        self.resident_paths_last = caches[-1].resident_paths
        self.resident_blocks_peak = max(self.resident_blocks_peak, max([cache.resident_blocks for cache in caches]))


class LoadTotals(Totals):
    """How full the engine was. Levels are weighted by the time they lasted: level × nanoseconds of the step."""

    def __init__(self) -> None:
        self.busy_slot_ns = 0
        self.slot_ns = 0
        self.queue_request_ns = 0
        self.queue_peak = 0
        self.kv_cell_ns = 0
        self.kv_cells_peak = 0

    def add(self, steps: Sequence[StepRecord], durations_ns: Sequence[int]) -> None:
        """Take the levels of steps."""
        queues, cells = [step.queue for step in steps], [step.kv_cells for step in steps]
        self.busy_slot_ns += sum(map(mul, [step.slots_busy for step in steps], durations_ns))
        self.slot_ns += sum(map(mul, [step.slots for step in steps], durations_ns))
        self.queue_request_ns += sum(map(mul, queues, durations_ns))
        self.kv_cell_ns += sum(map(mul, cells, durations_ns))
        self.queue_peak = max(self.queue_peak, max(queues))
        self.kv_cells_peak = max(self.kv_cells_peak, max(cells))


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

    def add(self, steps: Sequence[StepRecord], *, since_ns: int | None = None, threads: int | None = None) -> None:
        """Take at least one step, and the engine's threads (`None`: not known).

        From `since_ns`, when the step before ended, until the first began was idle time; `None`: that is not counted.
        """
        phases = [_phases(step.phases) for step in steps]
        durations_ns = list(map(sum, phases))
        starts = [step.start_ns for step in steps]
        ends = [starts[0] if since_ns is None else since_ns, *map(add, starts, durations_ns)]
        idle_ns = sum([start - end for start, end in zip(starts, ends, strict=False) if start > end])
        self.steps += len(steps)
        self.aborted += sum([step.aborted for step in steps])
        self.settling += sum([step.settling for step in steps])
        self.invalid_output += sum([step.invalid_output for step in steps])
        self.preempted += sum([step.preempted for step in steps])
        self.draft_forwards += sum([len(step.draft) for step in steps])
        self.time.add(phases, durations_ns, idle_ns)
        self.cache.add([step.cache for step in steps])
        self.load.add(steps, durations_ns)
        every = zip(steps, phases, durations_ns, strict=True)
        forwards = [each for each in every if each[0].work and not each[0].aborted]
        self.time.add_forwards(forwards, threads)
        self.work.add([step for step, _, _ in forwards])


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
