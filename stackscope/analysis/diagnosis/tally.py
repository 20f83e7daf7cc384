"""Sums over steps that the causes need, in one loop over many steps at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from stackscope.analysis.diagnosis.evidence import Times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.records import StepRecord

LEAST_UBATCH = 512
"""Rows that one pass holds at least, where no larger one was seen (llama.cpp's default n_ubatch)."""


class Rounds(dict[tuple[int, int, int], int]):
    """How often so many tokens were drafted, accepted and emitted. They add up, to new ones."""

    def __add__(self, other: Rounds) -> Rounds:
        both = Rounds(self)
        for key, times in other.items():
            both[key] = both.get(key, 0) + times
        return both

    def __radd__(self, other: int) -> Rounds:
        """After nothing, which a sum begins with."""
        del other
        return Rounds(self)


class Tally(msgspec.Struct, gc=False):
    """Sums over steps and the idle stretches before them. They add field by field. Durations are nanoseconds."""

    steps: int = 0
    forwards: int = 0
    """Of the target, that ran to their end; likewise every count below."""
    settling: int = 0
    busy: int = 0
    stalled: int = 0
    """Of `busy`, the time of steps that stalled (`stalls`). Nothing else is counted of them, not even in `steps`."""
    idle: int = 0
    admit: int = 0
    build: int = 0
    commit: int = 0
    emit: int = 0
    shadow: int = 0
    sample: int = 0
    draft: int = 0
    forward: int = 0
    cpu: int = 0
    """CPU time of the forwards that it is known of, and their threads × wall time."""
    thread_time: int = 0

    rows: int = 0
    outputs: int = 0
    prefill_rows: int = 0
    decode_rows: int = 0
    passes: int = 0
    least_passes: int = 0
    pairs: int = 0
    """(Sequence, forward) pairs that were decoding or verifying, and the tokens they emitted."""
    emitted: int = 0
    verifications: int = 0
    drafted: int = 0
    accepted: int = 0
    wasted_rows: int = 0
    rounds: Rounds = msgspec.field(default_factory=Rounds)
    """Of the verifications."""
    mixed_steps: int = 0
    mixed: int = 0
    pure_steps: int = 0
    pure_rows: int = 0
    pure: int = 0
    prefill_only: int = 0
    cached: int = 0
    cells: int = 0
    idle_cells: int = 0
    samplings: int = 0
    """Forwards with outputs; the next four are their sums for the regression of sampling on outputs."""
    output_sum: int = 0
    output_squares: int = 0
    sample_sum: int = 0
    output_samples: int = 0

    queue_time: int = 0
    slot_time: int = 0
    busy_slot_time: int = 0
    waiting: int = 0
    full: int = 0
    lookup_tokens: int = 0
    hit_tokens: int = 0
    useful_hit_tokens: int = 0
    evicted_blocks: int = 0
    preempted: int = 0

    @property
    def times(self) -> Times:
        """Where the wall time went."""
        known = self.admit + self.build + self.commit + self.emit + self.shadow + self.sample + self.draft
        return Times(
            idle=self.idle, admit=self.admit, build=self.build, commit=self.commit, emit=self.emit, shadow=self.shadow,
            sample=self.sample, draft=self.draft, forward=self.forward, other=self.busy - known - self.forward,
        )  # fmt: skip

    @property
    def running(self) -> int:
        """The time of the steps that counts and means are over."""
        return self.busy - self.stalled

    @property
    def per_output_ns(self) -> float | None:
        """What one more output row adds to sampling, by least squares; where outputs do not vary, the mean."""
        n, sum_o, sum_s = self.samplings, self.output_sum, self.sample_sum
        if n == 0 or sum_o == 0:
            return None
        spread = n * self.output_squares - sum_o * sum_o
        if spread <= 0:
            return sum_s / sum_o
        return (n * self.output_samples - sum_o * sum_s) / spread


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of several."""
    rows = [msgspec.structs.astuple(tally) for tally in tallies]
    sums: list[Any] = [sum(column) for column in zip(*rows, strict=True)]
    return Tally(*sums)


def add_steps(tally: Tally, steps: Sequence[StepRecord], ends: Sequence[int], threads: int | None) -> None:
    """Add steps in their order. `ends` are their end times; `threads` of the engine, where they are known.

    Time between consecutive steps is idle; where steps are missing nothing is known of it, and it is left out.
    """
    last_n, last_ns = -1, steps[0].start_ns if steps else 0
    for step, end_ns in zip(steps, ends, strict=True):
        start_ns = step.start_ns
        if start_ns > last_ns and step.n == last_n + 1:
            tally.idle += start_ns - last_ns
        last_n, last_ns = step.n, end_ns
        duration = end_ns - start_ns
        p = step.phases
        tally.steps += 1
        tally.settling += step.settling
        tally.busy += duration
        tally.admit += p.admit
        tally.build += p.build
        tally.commit += p.commit
        tally.emit += p.emit
        tally.shadow += p.shadow
        tally.sample += p.sample
        tally.draft += p.draft
        _add_load(tally, step, duration)
        if step.work and not step.aborted:
            _add_forward(tally, step, duration, threads)


def _add_load(tally: Tally, step: StepRecord, duration: int) -> None:
    queue = step.queue
    tally.slot_time += step.slots * duration
    tally.busy_slot_time += step.slots_busy * duration
    if queue:
        tally.queue_time += queue * duration
        tally.waiting += duration
        if step.slots_busy >= step.slots:
            tally.full += duration
    tally.preempted += step.preempted
    cache = step.cache
    if cache.lookup_tokens or cache.blocks_evicted:
        tally.lookup_tokens += cache.lookup_tokens
        tally.hit_tokens += cache.hit_tokens
        tally.useful_hit_tokens += cache.useful_hit_tokens
        tally.evicted_blocks += cache.blocks_evicted


def _add_forward(tally: Tally, step: StepRecord, duration: int, threads: int | None) -> None:
    p = step.phases
    forward = p.decode
    tally.forwards += 1
    tally.forward += forward
    if threads is not None and (cpu := step.cpu_ns) is not None:
        tally.cpu += cpu
        tally.thread_time += forward * threads
    prefill = decode = pairs = outputs = held = 0
    rounds = tally.rounds
    for slot in step.work:
        new = slot.new
        held += slot.cached
        outputs += slot.outputs
        if slot.phase == "prefill":
            prefill += new
            continue
        pairs += 1
        decode += new
        tally.emitted += slot.emitted
        if drafted := slot.drafted:
            tally.verifications += 1
            tally.drafted += drafted
            tally.accepted += slot.accepted
            tally.wasted_rows += new - slot.emitted
            key = drafted, slot.accepted, slot.emitted
            rounds[key] = rounds.get(key, 0) + 1
    rows = prefill + decode
    tally.rows += rows
    tally.outputs += outputs
    tally.prefill_rows += prefill
    tally.decode_rows += decode
    tally.pairs += pairs
    tally.cached += held
    tally.cells += step.kv_cells
    if (idle_cells := step.kv_cells - held - rows) > 0:
        tally.idle_cells += idle_cells
    if ubatches := step.ubatches:
        tally.passes += len(ubatches)
        tally.least_passes += -(-rows // max(LEAST_UBATCH, max([one.rows for one in ubatches])))
    else:
        tally.passes += 1
        tally.least_passes += 1
    if prefill == 0:
        tally.pure_steps += 1
        tally.pure_rows += rows
        tally.pure += duration
    elif pairs:
        tally.mixed_steps += 1
        tally.mixed += duration
    else:
        tally.prefill_only += duration
    if outputs:
        sample = p.sample
        tally.samplings += 1
        tally.output_sum += outputs
        tally.output_squares += outputs * outputs
        tally.sample_sum += sample
        tally.output_samples += outputs * sample
