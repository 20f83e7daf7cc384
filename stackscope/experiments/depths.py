"""Forwards at depths of a context, which is filled by copying: a few hundred tokens are computed, and their cells stand
for all others. What keys and values hold makes no difference to how long it takes to go through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackscope.experiments.measurements import BLOCK_NS, forward
from stackscope.experiments.protocol import Item
from stackscope.experiments.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from stackscope.engine.llama import Context
    from stackscope.experiments.measurements import Sampler
    from stackscope.experiments.protocol import Task
    from stackscope.experiments.rounds import Rounds
    from stackscope.experiments.stages import Log
    from stackscope.records.ceilings import CacheKind

FILL_SHARE: Final = 0.5
"""Of the time for depths of context, what computing tokens may take."""

CHUNK: Final = 256
"""Tokens that are computed together."""

ROUND: Final = 64
"""Depths are multiples of this where there is room."""

LADDER: Final = (0, 256, 512, 1024, 2048, 4096, 8192, 16_384)
"""Cached tokens to measure at, in powers of two: cost per token changes where keys and values leave a cache."""

DEEPEST: Final = {False: 8192, True: 16_384}
"""Cached tokens to go to at most, by whether the calibration is a full one."""

VISIT_NS: Final = 60_000_000
"""How long to stay at a depth with forwards of one shape, where it is visited once."""

MOST: Final = 4
"""Samples in such a visit."""

DESCENTS_PER_SAMPLE: Final = 2
"""Descents at most, by the samples that anything else has at most: they are quick."""

FEW_DESCENTS: Final = 2
"""Fewer depths are visited where there is no time to go through all of them as often as this."""

FEW_ROWS: Final = (1, 4)
"""Rows of the forwards at each depth: one has a kernel of its own on a CPU."""

TILE: Final = 64
"""Rows of a piece of a prompt: a kernel of its own again,"""
TILE_DEPTHS: Final = (512, 4096)
"""and dear, so that it is timed at these depths alone."""
DEAR_NS: Final = 240_000_000
"""A piece that takes longer is not timed."""

DESCENTS: Final = {TILE: 2, FEW_ROWS[1]: 3}
"""Descents that time forwards of so many rows; those of one row are in all."""

HANDOFFS: Final = 3
"""Times that a state is handed over in a descent,"""
HANDOFF_DESCENTS: Final = 5
"""and how many descents do so."""
HANDOFF_TOKENS: Final = 2048
"""Tokens of a state that is handed over, at most."""

OVERTIME: Final = 1.3
"""A stage that takes longer than its time by this factor ends: something has begun to disturb it."""


class Filler:
    """Brings sequence 0 to any depth that there is room for. Sequence 1 is used on the way, and is empty afterwards."""

    def __init__(self, context: Context, chunk: int) -> None:
        """Compute the first `chunk` tokens. Raises `EngineError` when the context has no room for them."""
        self._context = context
        self._chunk = chunk
        self.taken_ns = forward(context, chunk)
        self.depth = chunk
        self._state = np.empty(context.state_bytes(0), np.uint8)
        context.save_state(0, self._state)
        self._deep: NDArray[np.uint8] | None = None

    @staticmethod
    def is_possible(context: Context) -> bool:
        """Whether cells can be copied to other positions of a sequence: in one cache for all, that can shift them."""
        return context.size.is_unified and context.size.n_seq_max > 1 and context.can_shift

    def to(self, tokens: int) -> None:
        """Go to a depth, or a little less: copies of the first tokens, moved to the positions that they stand for."""
        context, chunk = self._context, self._chunk
        context.clear()
        self.depth = max(1, tokens // chunk) * chunk
        for start in range(0, self.depth, chunk):
            context.load_state(1, self._state)
            if start > 0:
                context.shift(1, start)
            context.copy(1, 0, start, start + chunk)
            context.remove(1, 0)
        forward(context, 1, start=self.depth)  # The keys are turned to their new positions before it.
        context.remove(0, self.depth)

    def keep(self, most_bytes: int) -> None:
        """Save the state at the present depth, if it is no larger than this: `again` is quicker then."""
        n_bytes = self._context.state_bytes(0)
        if n_bytes <= most_bytes:
            self._deep = np.empty(n_bytes, np.uint8)
            self._context.save_state(0, self._deep)

    def again(self) -> None:
        """Go back to the depth where sequence 0 was brought."""
        if self._deep is None:
            self.to(self.depth)
        else:
            self._context.clear()
            self._context.load_state(0, self._deep)

    def on(self, tokens: int, until_ns: float, now: Callable[[], int]) -> None:
        """Go deeper by computing, where nothing can be copied: until `tokens` are there or the time is up."""
        while self.depth + self._chunk <= tokens and now() + self.taken_ns <= until_ns:
            self.taken_ns = forward(self._context, self._chunk, start=self.depth)
            self.depth += self._chunk


def depths(
    context: Context, sampler: Sampler, log: Log, rounds: Rounds, task: Task, progress: Callable[[str], None]
) -> None:
    """Forwards of few rows at depths of a context, with the cells of others beside them, and handing over a state.

    All depths are gone through again and again, quickly: what a cached token costs is the difference of forwards that
    take nearly the same, and those of one descent have the same clock and neighbours. The memory must be able to forget
    the end of a sequence.
    """
    budget = task.budget
    begun_ns, budget_ns = sampler.now(), budget.contexts_s * 1e9
    progress("context")
    last = min(min(context.size.n_ctx_seq, context.n_ctx) - TILE, DEEPEST[budget.is_full])
    chunk = chunk_of(log.row_ns(), FILL_SHARE * budget_ns, last=min(last, 2 * context.size.n_batch))
    filler = Filler(context, chunk) if chunk > 0 else None
    is_copied = filler is not None and Filler.is_possible(context)
    if is_copied:
        assert filler is not None
        filler.to(last)
        filler.keep(task.memory_bytes)
    elif filler is not None:
        filler.on(last, begun_ns + FILL_SHARE * budget_ns, sampler.now)
    deepest = 0 if filler is None else filler.depth
    left_ns = budget_ns - (sampler.now() - begun_ns)
    rungs = thinned(ladder(deepest), int(left_ns / FEW_DESCENTS / max(1.0, _visits_ns(log))))
    descent = _Descent(context, sampler, log, progress, begun_ns + OVERTIME * budget_ns)
    most = DESCENTS_PER_SAMPLE * budget.most if is_copied else 1
    for nth in range(most):
        descent_ns = sampler.now()
        if filler is not None and nth > 0:
            filler.again()
        descent.go(rungs, nth, most=1 if most > 1 else MOST)
        rounds.maybe()
        ended_ns = sampler.now()
        is_over = ended_ns - begun_ns + (ended_ns - descent_ns) > budget_ns and nth + 1 >= FEW_DESCENTS
        if is_over or ended_ns > descent.until_ns:
            break
    if not log.has("save"):
        log.unknown.setdefault("hand-off", "there was no time to fill a context")
    context.clear()


class _Descent(NamedTuple):
    """Goes through depths from the deepest on, where sequence 0 is."""

    context: Context
    sampler: Sampler
    log: Log
    progress: Callable[[str], None]
    until_ns: float

    def go(self, rungs: Sequence[int], nth: int, *, most: int) -> None:
        """Visit each of the depths for the nth time, and take so many samples of a shape at most."""
        context, sampler, log = self.context, self.sampler, self.log
        rows = tuple(rows for rows in FEW_ROWS if nth < DESCENTS.get(rows, nth + 1))
        tiles = TILE_DEPTHS if nth < DESCENTS[TILE] else ()
        moved = max((depth for depth in rungs if 0 < depth <= HANDOFF_TOKENS and nth < HANDOFF_DESCENTS), default=None)
        _residents(context, rungs[-1], sampler, log, rows=rows, most=most)
        for depth in reversed(rungs):
            self.progress(f"context of {depth}")
            context.remove(0, depth)
            visit(context, depth, sampler, log, few=rows, tiles=tiles, most=most)
            if depth == moved:
                _hand_over(context, depth, sampler, log)
            if sampler.now() > self.until_ns:
                return


def ladder(deepest: int) -> list[int]:
    """Depths to measure at, the deepest included."""
    return [*(depth for depth in LADDER if depth < deepest), deepest]


def thinned(depths: Sequence[int], most: int) -> list[int]:
    """At most so many of some depths, one at least: the deepest, and others evenly from it on."""
    if most >= len(depths):
        return list(depths)
    every = -(-len(depths) // max(1, most))
    return list(depths[::-1][::every])[::-1]


def _visits_ns(log: Log) -> float:
    """What a sample of each shape at one depth takes, by the same forwards at empty contexts."""
    costs = (log.forward_ns(rows) for rows in FEW_ROWS)
    return sum(max(cost_ns, BLOCK_NS) for cost_ns in costs if cost_ns is not None)


def _n_samples(cost_ns: float, most: int) -> int:
    return min(max(round(VISIT_NS / max(cost_ns, BLOCK_NS)), 1), most)


def visit(
    context: Context, depth: int, sampler: Sampler, log: Log, *, few: Sequence[int] = FEW_ROWS, tiles: Sequence[int],
    most: int = MOST, cache: CacheKind | None = None,
) -> None:  # fmt: skip
    """Time forwards of `few` rows at the depth where sequence 0 is, and of a piece of a prompt where that is one of
    `tiles`; `most` samples of each at most."""
    shapes = [(rows, rows) for rows in few]
    row_ns = log.row_ns()
    if depth in tiles and (row_ns is None or row_ns * TILE < DEAR_NS):
        shapes.append((TILE, 1))
    for rows, outputs in shapes:
        item = Item(kind="context", rows=rows, sequences=1, outputs=outputs, cached=depth, cache=cache)
        _time(context, item, sampler, log, most=most)


def _residents(context: Context, deepest: int, sampler: Sampler, log: Log, *, rows: Sequence[int], most: int) -> None:
    """Forwards of an empty sequence, while another one occupies cells that are passed over."""
    if deepest == 0 or not context.size.is_unified or context.size.n_seq_max < 2:
        return
    for n_rows in rows:
        item = Item(kind="context", rows=n_rows, sequences=1, outputs=n_rows, others=deepest)
        _time(context, item, sampler, log, most=most, sequence=1)


def _time(context: Context, item: Item, sampler: Sampler, log: Log, *, most: int, sequence: int = 0) -> None:
    """Samples of a forward of an item's shape, by a sequence that has as many tokens as it says."""
    if item.rows > context.size.n_batch or item.outputs > context.size.n_outputs_max:
        return

    def run() -> int:
        taken_ns = forward(context, item.rows, outputs=item.outputs, start=item.cached, first=sequence)
        context.remove(sequence, item.cached)
        return taken_ns

    known_ns = log.cost_ns(item)
    first = sampler.first(run) if known_ns is None else sampler.take(run, known_ns)
    log.add(item, first)
    for _ in range(_n_samples(first.ns, most) - 1):
        log.add(item, sampler.take(run, first.ns))


def chunk_of(row_ns: float | None, fill_ns: float, *, last: int) -> int:
    """Tokens to compute together so that there is time for two such pieces; 0: there is not even for a small one.

    `row_ns` is what a row of a long forward takes, and `last` the deepest there is room for.
    """
    possible = last if row_ns is None else min(last, int(fill_ns / row_ns))
    chunk = min(CHUNK, possible // 2)
    return max(0, chunk // ROUND * ROUND if chunk >= ROUND else chunk if possible == last else 0)


def _hand_over(context: Context, tokens: int, sampler: Sampler, log: Log) -> None:
    """Save the state of sequence 0 and load it into another, in memory."""
    if context.size.n_seq_max < 2 or (context.size.is_unified and context.n_ctx < 2 * tokens):
        log.unknown["hand-off"] = "the context has no room for the state of a second sequence; give a larger --context"
        return
    state = np.empty(context.state_bytes(0), np.uint8)
    save = Item(kind="save", cached=tokens, bytes=state.nbytes)
    load = Item(kind="load state", cached=tokens, bytes=state.nbytes)
    context.save_state(0, state)  # The first of each touches its memory for the first time.
    context.load_state(1, state)
    context.remove(1, 0)
    for _ in range(HANDOFFS):
        begun_ns = sampler.now()
        context.save_state(0, state)
        saved_ns = sampler.now()
        context.load_state(1, state)
        loaded_ns = sampler.now()
        context.remove(1, 0)
        log.add(save, Sample(saved_ns - begun_ns))
        log.add(load, Sample(loaded_ns - saved_ns))
