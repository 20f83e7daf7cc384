"""What can be timed on an engine's own contexts: forwards of any shape, at any depth, and moving a sequence's state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from stackscope.engine.llama import DecodeStatus
from stackscope.errors import EngineError
from stackscope.experiments.protocol import Item
from stackscope.experiments.samples import Sample
from stackscope.hardware.quiet import Waiting
from stackscope.records.ceilings import CURVE_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackscope.engine.kernels import Products
    from stackscope.engine.llama import Context

BLOCK_NS: Final = 15_000_000
"""A sample of something short is the median of as many runs as take this long."""

MOST_RUNS: Final = 64

DEAR_NS: Final = 400_000_000
"""From here on even the first run counts: what it has to warm up is lost in it. First use of the logits of 64 rows over
a vocabulary of 262,144 takes 60 to 110 ms."""

FIRST_TOKENS: Final = 16
"""Token numbers below are often special. Which tokens are fed makes no difference to a forward's time."""


LONGEST_DECODE: Final = 64
"""Rows of a batch of decodes that a quick calibration goes up to."""

DRAFT_ROWS: Final = (1, 2, 4, 8, 16)


class Measurement(Protocol):
    """Something that can be timed again and again."""

    item: Item

    def run(self) -> int:
        """Do it once; how long it took, in nanoseconds."""


class Sampler:
    """Takes samples, and notes of each whether anything on the machine had to wait meanwhile."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.now = clock
        self._waiting = Waiting()

    def first(self, run: Callable[[], int]) -> Sample:
        """The first sample: a warm-up precedes it, unless that takes long enough to be the sample."""
        self._waiting.begin()
        cost_ns = run()
        if cost_ns >= DEAR_NS:
            return Sample(cost_ns, self._waiting.share())
        return self.take(run, cost_ns)

    def take(self, run: Callable[[], int], cost_ns: float) -> Sample:
        """One sample of something that takes about `cost_ns`."""
        n_runs = _n_runs(cost_ns)
        if n_runs > 1:
            run()  # What ran before has filled the caches with its own.
        self._waiting.begin()
        taken = [run() for _ in range(n_runs)]
        return Sample(float(np.median(taken)), self._waiting.share())

    def best(self, run: Callable[[], int], cost_ns: float) -> Sample:
        """The shortest of as many runs as fit a sample: what is possible, where whatever disturbs can only delay."""
        self._waiting.begin()
        taken_ns = min(run() for _ in range(_n_runs(cost_ns)))
        return Sample(float(taken_ns), self._waiting.share())


def _n_runs(cost_ns: float) -> int:
    """Runs that a sample of something is made of."""
    return min(MOST_RUNS, max(1, round(BLOCK_NS / max(1.0, cost_ns))))


def sample_ns(cost_ns: float) -> float:
    """How long it takes to take a sample of something that takes `cost_ns`."""
    n_runs = _n_runs(cost_ns)
    return cost_ns * (n_runs + 1 if n_runs > 1 else 1)


class TimedProducts:
    """Matrix products outside any model."""

    def __init__(self, item: Item, products: Products) -> None:
        self.item = item
        self._products = products

    def run(self) -> int:
        return self._products.run()

    def close(self) -> None:
        self._products.close()


class TimedForward:
    """A forward of `rows` rows in empty contexts, spread evenly over sequences, that are emptied again."""

    def __init__(self, item: Item, context: Context) -> None:
        self.item = item
        self._context = context

    def run(self) -> int:
        item, context = self.item, self._context
        taken_ns = forward(context, item.rows, sequences=item.sequences, outputs=item.outputs)
        for sequence in range(item.sequences):
            context.remove(sequence, 0)
        return taken_ns


def forward(
    context: Context, rows: int, *, sequences: int = 1, outputs: int = 0, start: int = 0, first: int = 0
) -> int:
    """Run a forward and time it, in nanoseconds; the last `outputs` rows have logits.

    Each sequence, from `first` on, gets the same number of rows, from position `start` on. Raises `EngineError` when it
    does not run.
    """
    batch, each = context.batch, rows // sequences
    batch.token[:rows] = FIRST_TOKENS + np.arange(rows) % max(1, context.model.n_vocab - FIRST_TOKENS)
    batch.position[:rows] = start + np.arange(rows) % each
    batch.sequence[:rows] = first + np.arange(rows) // each
    batch.output[:rows] = 0
    batch.output[rows - outputs : rows] = 1
    begun_ns = time.perf_counter_ns()
    status = context.decode(rows)
    taken_ns = time.perf_counter_ns() - begun_ns
    if status != DecodeStatus.OK:
        raise EngineError(f"A forward of {rows} rows did not run: the context has no room for it.")
    return taken_ns


def decode_item(context: Context, rows: int) -> Item | None:
    """A forward as sequences that decode make it: rows over as many of them as divide it. `None`: it does not fit."""
    size = context.size
    if rows > size.n_outputs_max or rows > size.n_batch:
        return None
    sequences = max(n for n in range(1, size.slots_max + 1) if rows % n == 0)
    return Item(kind="forward", rows=rows, sequences=sequences, outputs=rows)


def prefill_item(context: Context, rows: int) -> Item | None:
    """A forward as the end of a prompt makes it. `None`: it does not fit."""
    size = context.size
    return (
        Item(kind="forward", rows=rows, sequences=1, outputs=1) if rows <= min(size.n_batch, size.n_ctx_seq) else None
    )


def forwards(context: Context, *, is_full: bool) -> Iterator[TimedForward]:
    """The curve of forward time against rows, from the cheapest on.

    As batches of decodes up to 64 rows, as prefills above that; all rows in both ways when `is_full`.
    """
    for rows in CURVE_ROWS:
        for item in _wanted(context, rows, is_full=is_full):
            if item is not None:
                yield TimedForward(item, context)


def _wanted(context: Context, rows: int, *, is_full: bool) -> list[Item | None]:
    """The forwards of so many rows; `None` for one that does not fit."""
    decode, prefill = decode_item(context, rows), prefill_item(context, rows)
    return [decode, prefill] if is_full and rows > 1 else [decode if rows <= LONGEST_DECODE else prefill]


def too_many(context: Context, *, is_full: bool) -> dict[int, str]:
    """Why no forward of so many rows is in the curve, by rows: those that this context has no room for."""
    fits_a_prompt = {rows: prefill_item(context, rows) is not None for rows in CURVE_ROWS}
    return {
        rows: "the context has room for fewer outputs" if fits else "the context holds fewer tokens"
        for rows, fits in fits_a_prompt.items()
        if not any(_wanted(context, rows, is_full=is_full))
    }


def draft_forwards(context: Context) -> Iterator[TimedForward]:
    """The draft model's forwards: one row for each sequence."""
    for rows in DRAFT_ROWS:
        if rows <= context.size.slots_max:
            yield TimedForward(Item(kind="draft", rows=rows, sequences=rows, outputs=rows), context)
