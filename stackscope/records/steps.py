"""What the engine did, step by step."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from stackscope.records.base import Natural, Record, Rows

WorkPhase: TypeAlias = Literal["prefill", "decode", "verify"]
DelayedPhase: TypeAlias = Literal["draft", "build", "decode", "sample"]


class Phases(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the wall time of one step went, in nanoseconds. The parts are disjoint and sum to the step."""

    admit: Natural = 0
    """Commands, arrivals, the queue, prefix look-ups and the KV copies they need."""
    draft: Natural = 0
    """Everything done to obtain drafts: n-gram look-ups, draft model forwards, its prefill and catch-up."""
    build: Natural = 0
    """Deciding the batch and filling its arrays."""
    decode: Natural = 0
    """The target's forward, until the backend has synchronised."""
    sample: Natural = 0
    """Logits to tokens: argmax or sampling, and verification of drafts."""
    commit: Natural = 0
    """Trimming rejected rows, extending histories, handing prefixes to the cache."""
    emit: Natural = 0
    """Detokenising, stop strings, finishing requests."""
    shadow: Natural = 0
    """Tracking what an optimisation that is off would have done."""
    other: Natural = 0
    """The rest of the loop: making records, handing them over, waiting on nothing in particular."""

    @property
    def total(self) -> int:
        return (
            self.admit + self.draft + self.build + self.decode + self.sample
            + self.commit + self.emit + self.shadow + self.other
        )  # fmt: skip


class SlotWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one sequence did in one target forward."""

    request: Natural
    slot: Natural
    phase: WorkPhase
    new: Rows
    """Rows fed to the forward (q): prompt tokens of a prefill chunk, or 1 + drafted."""
    cached: Natural
    """Tokens of the sequence already in the KV cache before the forward (c)."""
    drafted: Rows = 0
    accepted: Rows = 0
    """Drafted tokens that verification kept. The bonus token is not among them."""
    emitted: Rows = 0
    """Tokens committed to the output: never past a stop, a limit or an end-of-sequence token."""
    outputs: Rows = 0
    """Rows for which logits were computed."""


class Ubatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pass over the weights inside a forward."""

    rows: int
    outputs: int


class DraftForward(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One forward of the draft model."""

    spans: tuple[tuple[int, int], ...]
    """(cached, new) tokens of each sequence in it."""
    outputs: int
    ubatches: tuple[Ubatch, ...] = ()
    """Empty: one ubatch that held every row."""

    @property
    def passes(self) -> tuple[Ubatch, ...]:
        """The ubatches, the implied single one included."""
        if self.ubatches or not self.spans:
            return self.ubatches
        return (Ubatch(sum(new for _, new in self.spans), self.outputs),)


class CacheCounters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the prefix cache did in one step; `resident_*` are levels at its end, the rest are counts."""

    lookups: int = 0
    lookup_tokens: int = 0
    """Prompt tokens that could have hit."""
    hit_tokens: int = 0
    useful_hit_tokens: int = 0
    """Hits that spared work never done before for that request: re-admission after a pre-emption is not useful."""
    blocks_read: int = 0
    blocks_written: int = 0
    blocks_evicted: int = 0
    resident_blocks: int = 0
    resident_paths: int = 0
    shared_blocks: int = 0
    """Of the resident blocks, those that more than one cached path runs through."""
    missed_at: int | None = None
    """Prompt token at which the step's last look-up left what is cached. `None`: nothing missed."""
    copied_bytes: int = 0
    """KV bytes really copied (split KV only; a unified cache shares cells without copying)."""


class Delay(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A causal probe: what was added to one phase of a step, and is part of its time."""

    phase: DelayedPhase
    ns: int


class StepRecord(Record, frozen=True, kw_only=True, omit_defaults=True, tag="step", gc=False):
    """One turn of the engine loop: at most one target forward and the draft forwards that fed it."""

    n: Natural
    """Counts from 0 within the session, without gaps; a recording of its middle begins with a later one."""
    start_ns: Natural
    phases: Phases
    work: tuple[SlotWork, ...] = ()
    ubatches: tuple[Ubatch, ...] = ()
    """Empty with work present: one ubatch that held every row."""
    draft: tuple[DraftForward, ...] = ()
    queue: Natural = 0
    """Requests waiting when the forward began."""
    slots_busy: Natural = 0
    slots: Natural = 0
    cache: CacheCounters = CacheCounters()
    kv_cells: Natural = 0
    """Occupied cells of the KV cache after the step, idle cached prefixes included."""
    cpu_ns: Natural | None = None
    """CPU time of the process during the decode phase: spinning counts. `None`: not read, as in most short forwards."""
    preempted: Natural = 0
    aborted: bool = False
    """The forward was cut short by a command; its rows are redone and nothing was emitted."""
    settling: bool = False
    """A toggle's after-effects (a draft model catching up) are still being paid."""
    invalid_output: bool = False
    """Acceptance was synthetic: timing is meaningful, text is not."""
    delay: Delay | None = None
    """`None`: the step was left alone."""
    epoch: Natural = 0
    """Which configuration ran: the number of ConfigEvents applied before."""

    @property
    def duration_ns(self) -> int:
        return self.phases.total

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.phases.total

    @property
    def rows(self) -> int:
        return sum(w.new for w in self.work)

    @property
    def outputs(self) -> int:
        return sum(w.outputs for w in self.work)

    @property
    def emitted(self) -> int:
        return sum(w.emitted for w in self.work)

    @property
    def passes(self) -> tuple[Ubatch, ...]:
        """The ubatches of the forward, the implied single one included."""
        if self.ubatches or not self.work:
            return self.ubatches
        return (Ubatch(self.rows, self.outputs),)
