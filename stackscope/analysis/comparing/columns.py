"""Steps as columns of numbers. A column is an array over steps, and sums over blocks of them are what is kept."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from stackscope.analysis.comparing.counting import PARTS, Counted, Floats, Ints, Passes, Spans, count, price
from stackscope.analysis.totals import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.records import CacheCounters, Phases, SlotWork, StepRecord

NAMES: Final = (
    "steps", "busy", "wall", *PHASES, "forward", "prefill_part", "verify_part", "cpu", "threads", "forwards", "emitted",
    "rows", "prefill_rows", "decode_rows", "decode_emitted", "decode_forwards", "outputs", "drafted", "committed",
    "verifications", "busy_slots", "slots", "lookup_tokens", "hit_tokens", "useful_hit_tokens", "invalid", *PARTS,
)  # fmt: skip
"""The columns. `busy` to `threads` are nanoseconds (`prefill_part` and `verify_part`: of `forward`, by rows; `threads`:
of the decode phase × engine threads, where CPU time is known), `busy_slots` and `slots` levels × nanoseconds, `PARTS`
bytes of the target's forwards, the rest counts. What was aborted counts in `steps`, `busy`, `wall`, phases, levels and
cache only, as in `StepTotals`."""

AT: Final = {name: index for index, name in enumerate(NAMES)}

LEAST_BLOCK: Final = 8
"""Steps that are summed together at least."""
MOST_BLOCKS: Final = 8192
"""Blocks that are kept at most; beyond, they are joined two by two."""

_phases: Callable[[Phases], tuple[int, ...]] = msgspec.structs.astuple
"""Their fields are `PHASES`, in that order; a third of the time of asking for each."""
_slot: Callable[[SlotWork], tuple[int, ...]] = attrgetter("new", "cached", "drafted", "emitted", "outputs")
_levels: Callable[[StepRecord], tuple[int, ...]] = attrgetter("start_ns", "slots_busy", "slots")
_lookups: Callable[[CacheCounters], tuple[int, ...]] = attrgetter("lookup_tokens", "hit_tokens", "useful_hit_tokens")


class Extracted(NamedTuple):
    """What arrays have of a stretch of steps under one configuration."""

    columns: Floats
    """(names, steps)."""
    durations: Ints
    """Nanoseconds of each step."""
    counted: Counted | None
    """The target's work in those forwards. `None`: there were none, or its geometry is not known."""
    verifications: Ints
    """(verifications, 3): drafted, accepted, emitted."""
    in_flight: int
    """Most sequences in a forward."""
    end_ns: int
    """When the last step ended."""


def extract(steps: Sequence[StepRecord], pricing: Pricing, since_ns: int | None) -> Extracted:
    """The columns of at least one step. `since_ns`: when the step before ended; `None`: there was none."""
    made = np.zeros((len(NAMES), len(steps)))
    phases = _table(map(_phases, [step.phases for step in steps]), len(steps), len(PHASES))
    levels = _table(map(_levels, steps), len(steps), 3)
    durations: Ints = phases.sum(axis=0)
    starts = levels[0]
    ends = starts + durations
    before = np.concatenate(([starts[0] if since_ns is None else since_ns], ends[:-1]))
    made[AT["steps"]] = 1.0
    made[AT["busy"]] = durations
    made[AT["wall"]] = durations + np.maximum(starts - before, 0)
    made[AT[PHASES[0]] : AT[PHASES[-1]] + 1] = phases
    made[AT["busy_slots"]] = levels[1] * durations
    made[AT["slots"]] = levels[2] * durations
    made[AT["invalid"]] = [step.invalid_output for step in steps]
    _look_up(made, steps)
    n_slots = _numbers([0 if step.aborted else len(step.work) for step in steps])
    where = np.flatnonzero(n_slots)
    none: Ints = np.zeros(0, dtype=np.int64)
    if len(where) == 0:
        return Extracted(made, durations, None, none.reshape(0, 3), 0, int(ends[-1]))
    forwards = list(steps) if len(where) == len(steps) else [steps[index] for index in where.tolist()]
    decoding = phases[PHASES.index("decode")][where]
    counted, verifications = _forwards(made, where, forwards, n_slots[where], decoding, pricing)
    return Extracted(made, durations, counted, verifications, int(n_slots.max()), int(ends[-1]))


def _look_up(made: Floats, steps: Sequence[StepRecord]) -> None:
    """Fill in what the prefix cache was asked and had; in most steps it was not asked at all."""
    asked = [index for index, step in enumerate(steps) if step.cache.lookup_tokens]
    if asked:
        at = AT["lookup_tokens"]
        found = _table([_lookups(steps[index].cache) for index in asked], len(asked), 3)
        made[at : at + 3, asked] = found


def _forwards(
    made: Floats, where: Ints, steps: Sequence[StepRecord], n_slots: Ints, decoding: Ints, pricing: Pricing
) -> tuple[Counted | None, Ints]:
    """Fill in what forwards did that ran to their end; their counted work, and the verifications."""
    slots = [slot for step in steps for slot in step.work]
    new, cached, drafted, emitted, outputs = _table(map(_slot, slots), len(slots), 5)
    decodes = np.fromiter([slot.phase != "prefill" for slot in slots], dtype=bool, count=len(slots))
    verified = decodes & (drafted > 0)
    first = np.concatenate(([0], np.cumsum(n_slots)[:-1]))
    accepted = _numbers([slot.accepted for slot in slots]) if verified.any() else np.zeros_like(new)
    kept = np.where(verified, np.minimum(accepted, emitted), 0)

    def put(name: str, values: Ints) -> Ints:
        sums: Ints = np.add.reduceat(values, first)
        made[AT[name], where] = sums
        return sums

    made[AT["forwards"], where] = 1.0
    made[AT["forward"], where] = decoding
    rows, n_outputs = put("rows", new), put("outputs", outputs)
    put("emitted", emitted)
    prefilled = put("prefill_rows", np.where(decodes, 0, new))
    put("decode_rows", np.where(decodes, new, 0))
    put("decode_emitted", np.where(decodes, emitted, 0))
    decoded = put("decode_forwards", decodes.astype(np.int64))
    made[AT["prefill_part"], where] = decoding * prefilled / np.maximum(rows, 1)
    made[AT["verify_part"], where] = decoding * np.maximum(rows - prefilled - decoded, 0) / np.maximum(rows, 1)
    put("drafted", np.where(verified, drafted, 0))
    put("committed", kept)
    put("verifications", verified.astype(np.int64))
    if pricing.threads is not None:
        cpu = _numbers([-1 if step.cpu_ns is None else step.cpu_ns for step in steps])
        made[AT["cpu"], where] = np.maximum(cpu, 0)
        made[AT["threads"], where] = np.where(cpu >= 0, decoding * pricing.threads, 0)
    counted = None
    if pricing.target is not None:
        counted = count(pricing.target, Spans(cached, new, first), _passes(steps, rows, n_outputs))
        at = AT[PARTS[0]]
        made[at : at + len(PARTS), where] = price(pricing.target, counted)
    return counted, np.stack((drafted[verified], accepted[verified], emitted[verified]), axis=1)


def _passes(steps: Sequence[StepRecord], rows: Ints, outputs: Ints) -> Passes:
    """The passes of every forward, the implied single one included."""
    cut = [len(step.ubatches) for step in steps]
    if not any(cut):
        return Passes(rows, outputs, np.arange(len(steps)))
    numbers = np.maximum(_numbers(cut), 1)
    passes = [one for step in steps for one in step.passes]
    return Passes(
        np.array([one.rows for one in passes], dtype=np.int64),
        np.array([one.outputs for one in passes], dtype=np.int64),
        np.concatenate(([0], np.cumsum(numbers)[:-1])),
    )


def _numbers(values: Sequence[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64, count=len(values))


def _table(rows: Iterable[tuple[int, ...]], n_rows: int, n_columns: int) -> Ints:
    """Rows of whole numbers as an array of columns: half the time that `np.array` takes."""
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=n_rows * n_columns)
    return np.ascontiguousarray(flat.reshape(n_rows, n_columns).T)


class BlockSums:
    """Sums of columns over blocks of as many steps each, in bounded memory: the blocks grow with the session.

    A block is shorter where a stretch of steps ends.
    """

    def __init__(self) -> None:
        self._parts: list[Floats] = []
        self._n = 0
        self._steps = LEAST_BLOCK

    def add(self, columns: Floats) -> None:
        """Take the columns of a stretch of steps: (names, steps)."""
        self._append(_joined(columns, self._steps))
        while self._n > MOST_BLOCKS:
            halved = _joined(np.concatenate(self._parts, axis=1), 2)
            self._parts, self._n = [], 0
            self._steps *= 2
            self._append(halved)

    def _append(self, sums: Floats) -> None:
        self._parts.append(sums)
        self._n += sums.shape[1]

    def all(self) -> Floats:
        """(names, blocks)."""
        return np.concatenate(self._parts, axis=1) if self._parts else np.zeros((len(NAMES), 0))


def _joined(columns: Floats, n: int) -> Floats:
    """Every `n` neighbours added up."""
    sums: Floats = np.add.reduceat(columns, np.arange(0, columns.shape[1], n), axis=1)
    return sums
