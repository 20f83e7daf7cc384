"""From a plan to the rows of one forward: fills the batch arrays and remembers whose rows are where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from stackscope.engine.sequence import Sequence
from stackscope.engine.ubatches import split_equal, split_simple
from stackscope.records import SlotWork, WorkPhase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stackscope.engine.llama import Batch
    from stackscope.engine.scheduler import Plan
    from stackscope.records import Ubatch

_POSITIONS: NDArray[np.int32] = np.arange(1 << 16, dtype=np.int32)


class Entry(msgspec.Struct, eq=False, gc=False):
    """One sequence's rows in the forward: `new` rows from position `cached`, logits for the last `outputs` of them."""

    sequence: Sequence
    slot: int
    phase: WorkPhase
    cached: int
    new: int
    outputs: int
    first_output: int
    """Index of its first row among the forward's logit rows."""
    accepted: int = 0
    emitted: list[int] = []

    @property
    def ends_prefill(self) -> bool:
        """The last rows of a prompt are among its rows."""
        return self.phase == "prefill" and self.outputs > 0


class Rows:
    """The rows of one forward, in the batch's own arrays."""

    __slots__ = ("ends_prefill", "entries", "n", "n_outputs")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.n = 0
        self.n_outputs = 0
        self.ends_prefill = False
        """The last rows of a prompt are among them."""

    def work(self) -> tuple[SlotWork, ...]:
        """What each sequence did, for the record."""
        return tuple(
            [
                SlotWork(
                    request=e.sequence.job.id,
                    slot=e.slot,
                    phase=e.phase,
                    new=e.new,
                    cached=e.cached,
                    drafted=e.new - 1 if e.phase == "verify" else 0,
                    accepted=e.accepted,
                    emitted=len(e.emitted),
                    outputs=e.outputs,
                )
                for e in self.entries
            ]
        )


def fill_plan(batch: Batch, running: list[Sequence], plan: Plan) -> Rows:
    """The rows of a plan for these running sequences."""
    if len(plan.decode) == len(running):
        return fill(batch, running, [])
    by_slot = {s.slot: s for s in running}
    decoding = [by_slot[slot] for slot, _ in plan.decode]
    prefills = [(by_slot[slot], n) for slot, n in plan.prefill]
    return fill(batch, decoding, prefills)


def fill(batch: Batch, decoding: list[Sequence], prefills: list[tuple[Sequence, int]]) -> Rows:
    """Decode and verify rows first (drafts as each sequence holds them), then prefill chunks of the given lengths."""
    rows = Rows()
    entries = rows.entries
    token, position, slot, output = batch.token, batch.position, batch.sequence, batch.output
    n = 0
    for sequence in decoding:
        draft = sequence.draft
        cached = sequence.kv
        new = 1 + len(draft)
        entries.append(Entry(sequence, sequence.slot, "verify" if draft else "decode", cached, new, new, n))
        token[n] = sequence.tokens.item(cached)
        if draft:
            end = n + new
            token[n + 1 : end] = draft
            position[n:end] = _positions(cached, cached + new)
            slot[n:end] = sequence.slot
            output[n:end] = 1
        else:
            # One number at a time: numpy looks at a list for longer than it takes to store one of sixteen.
            position[n] = cached
            slot[n] = sequence.slot
            output[n] = 1
        n += new
    outputs = decoded = n
    for sequence, length in prefills:
        start, stop = sequence.kv, sequence.kv + length
        end = n + length
        token[n:end] = sequence.tokens[start:stop]
        position[n:end] = _positions(start, stop)
        slot[n:end] = sequence.slot
        output[n:end] = 0
        is_last = stop == sequence.n
        if is_last:
            output[end - 1] = 1
        entries.append(Entry(sequence, sequence.slot, "prefill", start, length, int(is_last), outputs))
        outputs += is_last
        n = end
    rows.n = n
    rows.n_outputs = outputs
    rows.ends_prefill = outputs > decoded
    return rows


def _positions(start: int, stop: int) -> NDArray[np.int32]:
    return _POSITIONS[start:stop] if stop <= len(_POSITIONS) else np.arange(start, stop, dtype=np.int32)


def passes(rows: Rows, batch: Batch, n_ubatch: int, *, is_unified: bool) -> tuple[Ubatch, ...]:
    """The ubatches of the forward; empty when it is a single one that holds every row."""
    if is_unified:
        if rows.n <= n_ubatch:
            return ()
        return split_simple([bool(flag) for flag in batch.output[: rows.n]], n_ubatch)
    if len(rows.entries) == 1 and rows.n <= n_ubatch:
        return ()
    split = split_equal([(e.sequence.slot, e.new, e.outputs) for e in rows.entries], n_ubatch)
    return split if len(split) > 1 else ()
