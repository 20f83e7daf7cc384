"""Plain sums over steps, cheap enough for every step of a fast engine.

What is added up is what `totals.StepTotals` adds up, without the distributions and in loops over many steps at once,
which takes a sixth of the time. A property test holds the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from stackscope.analysis.account import NOTHING
from stackscope.analysis.metrics.speculation import committed_tokens, drafted_tokens
from stackscope.records import Ubatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.records import DraftForward, StepRecord

Table: TypeAlias = dict[tuple[int, int, int], int]
"""How many verifications ended as (drafted, accepted, emitted)."""


class Sums(msgspec.Struct, gc=False):
    """Sums over steps and the idle stretches before them. They add; a fraction of them is that of every field."""

    steps: float = 0
    forwards: float = 0
    """Of the target, that ran to their end; likewise every count below but `draft_forwards`."""
    draft_forwards: float = 0
    settling: float = 0
    """Steps that were paying for a change."""
    completed: float = 0
    """Requests."""

    busy_ns: float = 0
    idle_ns: float = 0
    prefill_ns: float = 0
    """The decode phase, divided by rows: this and the next two."""
    decode_ns: float = 0
    verify_ns: float = 0
    draft_ns: float = 0
    sample_ns: float = 0
    schedule_ns: float = 0
    emit_ns: float = 0
    shadow_ns: float = 0
    unexplained_ns: float = 0
    """The phase `other`, and the decode phase of forwards that were cut short."""
    forward_ns: float = 0
    """Decode phase of the forwards."""
    cpu_ns: float = 0
    thread_ns: float = 0

    emitted: float = 0
    prefill_rows: float = 0
    decode_rows: float = 0
    decode_emitted: float = 0
    decode_forwards: float = 0
    """(Sequence, forward) pairs that were decoding or verifying."""
    drafted: float = 0
    committed: float = 0
    """Of the drafted tokens, those that entered the output."""

    lookup_tokens: float = 0
    hit_tokens: float = 0
    useful_hit_tokens: float = 0
    blocks_read: float = 0
    blocks_written: float = 0
    blocks_evicted: float = 0

    busy_slot_ns: float = 0
    slot_ns: float = 0
    queue_request_ns: float = 0

    target_bytes: float = 0
    draft_bytes: float = 0
    weight_bytes: float = 0
    kv_read_bytes: float = 0
    kv_written_bytes: float = 0
    target_flops: float = 0
    draft_flops: float = 0
    unpriced: float = 0
    """Forwards of either model whose cost is not known."""

    @property
    def wall_ns(self) -> float:
        return self.busy_ns + self.idle_ns

    @property
    def parts(self) -> tuple[float, ...]:
        """Nanoseconds of each of `snapshot.PARTS`. They sum to the wall time."""
        return (
            self.prefill_ns, self.decode_ns, self.verify_ns, self.draft_ns, self.sample_ns, self.schedule_ns,
            self.emit_ns, self.shadow_ns, self.idle_ns, self.unexplained_ns,
        )  # fmt: skip

    @property
    def row(self) -> tuple[float, ...]:
        """The fields in order."""
        return msgspec.structs.astuple(self)

    def add(self, row: Iterable[float]) -> None:
        """Take the fields of another in order."""
        for name, more in zip(FIELDS, row, strict=True):
            if more:
                setattr(self, name, getattr(self, name) + more)


FIELDS: Final = Sums.__struct_fields__


def total(rows: Iterable[tuple[float, ...]]) -> Sums:
    """The sum of rows."""
    return Sums(*map(sum, zip(*rows, strict=True)))


def end_times(steps: Sequence[StepRecord]) -> list[int]:
    """When each step ended; `StepRecord.end_ns` for many."""
    ends = []
    for step in steps:
        p = step.phases
        ends.append(
            step.start_ns + p.admit + p.draft + p.build + p.decode + p.sample + p.commit + p.emit + p.shadow + p.other
        )
    return ends


class Counted(NamedTuple):
    """What some steps amounted to."""

    sums: Sums
    verifications: Table
    longest_ns: int
    """Of the steps."""


def counted(steps: Sequence[StepRecord], ends: Sequence[int], pricing: Pricing) -> Counted:
    """Sums over at least one step, all under one configuration. `ends` are their `end_times`.

    Time between consecutive steps is idle; where steps are missing nothing is known of it, and it is left out.
    """
    sums = Sums(steps=len(steps))
    verifications: Table = {}
    longest_ns = _add_times(sums, steps, ends)
    _add_cache(sums, steps)
    _add_work(sums, verifications, steps, pricing)
    return Counted(sums, verifications, longest_ns)


def _add_times(sums: Sums, steps: Sequence[StepRecord], ends: Sequence[int]) -> int:
    """Add up times and levels; the longest step."""
    busy = idle = draft = decode = sample = emit = shadow = other = busy_slots = slots = queue = settling = longest = 0
    last_n, last_ns = -1, steps[0].start_ns
    for step, end_ns in zip(steps, ends, strict=True):
        start_ns = step.start_ns
        n = step.n
        if start_ns > last_ns and n == last_n + 1:
            idle += start_ns - last_ns
        last_n, last_ns = n, end_ns
        duration = end_ns - start_ns
        busy += duration
        if duration > longest:
            longest = duration
        p = step.phases
        draft += p.draft
        decode += p.decode
        sample += p.sample
        emit += p.emit
        shadow += p.shadow
        other += p.other
        busy_slots += step.slots_busy * duration
        slots += step.slots * duration
        queue += step.queue * duration
        if step.settling:
            settling += 1
    sums.busy_ns, sums.idle_ns, sums.settling = busy, idle, settling
    sums.draft_ns, sums.sample_ns, sums.emit_ns, sums.shadow_ns = draft, sample, emit, shadow
    sums.schedule_ns = busy - draft - decode - sample - emit - shadow - other
    sums.unexplained_ns = other + decode  # Less what the forwards take of it.
    sums.busy_slot_ns, sums.slot_ns, sums.queue_request_ns = busy_slots, slots, queue
    return longest


def _add_cache(sums: Sums, steps: Sequence[StepRecord]) -> None:
    lookup = hit = useful = read = written = evicted = 0
    for step in steps:
        cache = step.cache
        lookup += cache.lookup_tokens
        hit += cache.hit_tokens
        useful += cache.useful_hit_tokens
        read += cache.blocks_read
        written += cache.blocks_written
        evicted += cache.blocks_evicted
    sums.lookup_tokens, sums.hit_tokens, sums.useful_hit_tokens = lookup, hit, useful
    sums.blocks_read, sums.blocks_written, sums.blocks_evicted = read, written, evicted


def _add_work(sums: Sums, table: Table, steps: Sequence[StepRecord], pricing: Pricing) -> None:
    spans: list[tuple[int, int]] = []
    passes: list[Ubatch] = []
    drafts: list[DraftForward] = []
    forwards = outputs = emitted = prefill_rows = decode_rows = decode_emitted = pairs = 0
    forward_ns = cpu_ns = thread_ns = 0
    prefill_ns = verify_ns = 0.0
    threads = pricing.threads
    for step in steps:
        if step.draft:
            drafts += step.draft
        work = step.work
        if not work or step.aborted:
            continue
        forwards += 1
        decode_ns = step.phases.decode
        forward_ns += decode_ns
        if threads is not None and (cpu := step.cpu_ns) is not None:
            cpu_ns += cpu
            thread_ns += decode_ns * threads
        n_prefill = n_rows = n_decoding = n_outputs = 0
        for slot in work:
            new, tokens = slot.new, slot.emitted
            spans.append((slot.cached, new))
            n_outputs += slot.outputs
            emitted += tokens
            if slot.phase == "prefill":
                n_prefill += new
                continue
            n_decoding += 1
            n_rows += new
            decode_emitted += tokens
            if drafted := slot.drafted:
                key = (drafted, slot.accepted, tokens)
                table[key] = table.get(key, 0) + 1
        outputs += n_outputs
        prefill_rows += n_prefill
        decode_rows += n_rows
        pairs += n_decoding
        rows = n_prefill + n_rows
        if n_prefill:
            prefill_ns += decode_ns * n_prefill / rows
        if n_rows > n_decoding:
            verify_ns += decode_ns * (n_rows - n_decoding) / rows
        passes += step.ubatches or (Ubatch(rows, n_outputs),)
    sums.forwards, sums.draft_forwards, sums.forward_ns = forwards, len(drafts), forward_ns
    sums.prefill_ns, sums.verify_ns, sums.decode_ns = prefill_ns, verify_ns, forward_ns - prefill_ns - verify_ns
    sums.unexplained_ns -= forward_ns
    sums.cpu_ns, sums.thread_ns = cpu_ns, thread_ns
    sums.emitted, sums.prefill_rows, sums.decode_rows = emitted, prefill_rows, decode_rows
    sums.decode_emitted, sums.decode_forwards = decode_emitted, pairs
    sums.drafted = drafted_tokens(table)
    sums.committed = committed_tokens(table)
    _add_cost(sums, spans, outputs, passes, drafts, pricing)


def _add_cost(
    sums: Sums,
    spans: list[tuple[int, int]],
    outputs: int,
    passes: list[Ubatch],
    drafts: list[DraftForward],
    pricing: Pricing,
) -> None:
    target, draft = NOTHING, NOTHING
    if pricing.target is None:
        sums.unpriced += sums.forwards
    elif spans:
        rows = int(sums.prefill_rows + sums.decode_rows)
        target = pricing.target.price(pricing.target.count_spans(spans, rows, outputs, passes))
    if pricing.draft is None:
        sums.unpriced += len(drafts)
    elif drafts:
        draft = pricing.draft.account_draft(drafts)
    sums.target_bytes, sums.draft_bytes = target.total_bytes, draft.total_bytes
    sums.weight_bytes = target.weight_bytes + draft.weight_bytes
    sums.kv_read_bytes = target.exact.kv_read + draft.exact.kv_read
    sums.kv_written_bytes = target.exact.kv_written + draft.exact.kv_written
    sums.target_flops, sums.draft_flops = target.flops.total, draft.flops.total
