"""Which steps are kept to learn from: some of every kind, the newest of each, and never more than fit."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope.analysis.timing.design import BLOCKS, COLUMNS_OF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.timing.curves import Floats
    from stackscope.records import StepRecord

PER_KIND: Final = 48
"""Steps kept of each kind. A mean of so many is better than what one kind can teach about its neighbours."""

MOST: Final = 640
"""Steps kept in all: a fit then takes some 10 ms."""

PAUSE_NS: Final = 10_000_000
"""Time of steps that has to pass between two that are kept, once a kind is known: keeping one takes some 50 µs."""
FIRST: Final = 4
"""Steps of a kind that are kept without waiting."""

Kind = tuple[int, int, int, int, bool]


_LENGTHS: Final = tuple(len(COLUMNS_OF[name].terms) for name in BLOCKS)
assert sum(_LENGTHS) <= 256, "a place takes a byte"
_STARTS: Final = tuple(sum(_LENGTHS[:index]) for index in range(len(BLOCKS) + 1))
"""Where the columns of each block begin in a row of all of them, and where the last one ends."""


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What is needed of one step. Thousands are kept, so that columns are packed: most of them are zero."""

    where: bytes
    """Places of the columns that are not zero, a byte each, in a row of all blocks' columns."""
    values: bytes
    """Those columns, float64."""
    target_ns: int
    draft_ns: int
    sample_ns: int
    host_ns: int
    share: float | None
    """CPU time ÷ what the threads could have had during the forward. `None`: not known."""
    at_ns: int
    rows: tuple[int, ...]
    """Rows of each pass."""
    outputs: tuple[int, ...]
    """Output rows of each pass."""
    deepest: int
    """Most tokens that a sequence had cached."""
    cells: int
    """Occupied KV cells."""


def packed(columns: Sequence[Floats]) -> tuple[bytes, bytes]:
    """`Kept.where` and `Kept.values` of one step's columns, a vector for each block."""
    row = np.concatenate(columns)
    places = np.flatnonzero(row)
    return places.astype(np.uint8).tobytes(), row[places].tobytes()


def unpacked(steps: Sequence[Kept]) -> tuple[Floats, ...]:
    """(steps, columns) for each block."""
    rows = np.repeat(np.arange(len(steps)), [len(kept.where) for kept in steps])
    matrix = np.zeros((len(steps), _STARTS[-1]))
    matrix[rows, np.frombuffer(b"".join([kept.where for kept in steps]), np.uint8)] = np.frombuffer(
        b"".join([kept.values for kept in steps])
    )
    return tuple(matrix[:, start:end] for start, end in itertools.pairwise(_STARTS))


def times_by_block(steps: Sequence[Kept]) -> Floats:
    """(steps, blocks) nanoseconds, the blocks as in `BLOCKS`."""
    found = [(kept.target_ns, kept.draft_ns, kept.sample_ns, kept.host_ns) for kept in steps]
    return np.array(found, dtype=float).reshape(-1, len(BLOCKS))


def kind_of(step: StepRecord) -> Kind:
    """Steps of one kind have the same rows, passes and drafts, and about the same context (within a factor of 2)."""
    rows = outputs = cached = 0
    for slot in step.work:
        rows += slot.new
        outputs += slot.outputs
        cached += slot.cached
    fine = rows if rows <= 64 else rows >> 4 << 4
    return fine, min(outputs, 64), cached.bit_length(), len(step.ubatches), bool(step.draft)


class Sampled:
    """Steps by kind. Of a kind that is common ever fewer are taken, and each replaces the oldest of its kind."""

    def __init__(self) -> None:
        self._seen: dict[Kind, int] = {}
        self._kept: dict[Kind, list[Kept]] = {}
        self._n = 0
        self._passed_ns = PAUSE_NS

    def __len__(self) -> int:
        return self._n

    def wants(self, kind: Kind, taken_ns: int) -> bool:
        """Count one more step of a kind, and the time it took; whether it should be kept."""
        seen = self._seen.get(kind, 0) + 1
        if len(self._seen) > 8 * MOST:
            self._seen.clear()
        self._seen[kind] = seen
        self._passed_ns += taken_ns
        if seen > FIRST and (self._passed_ns < PAUSE_NS or (seen > PER_KIND and seen % (seen // PER_KIND) != 0)):
            return False
        # What is left of a long step goes to the next: else a short one that always follows a long one were never kept.
        self._passed_ns = min(max(0, self._passed_ns - PAUSE_NS), PAUSE_NS)
        return True

    def keep(self, kind: Kind, one: Kept) -> None:
        """Take a step in, and let another go when there are too many."""
        of_kind = self._kept.setdefault(kind, [])
        of_kind.append(one)
        self._n += 1
        if len(of_kind) > PER_KIND:
            del of_kind[0]
            self._n -= 1
        elif self._n > MOST:
            fullest = max(self._kept.values(), key=len)
            del fullest[0]
            self._n -= 1
            if not fullest:  # Every kind has one: the oldest kind goes.
                self._kept = {k: v for k, v in self._kept.items() if v}

    def all(self) -> list[Kept]:
        """Everything that is kept, in the order of time."""
        return sorted([one for of_kind in self._kept.values() for one in of_kind], key=lambda one: one.at_ns)
