"""The stages of a calibration, each within its own time: curves, depths of context, rebuilds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackscope import units
from stackscope.cgroups import available_memory
from stackscope.engine.backend import Backend
from stackscope.engine.llama import Model
from stackscope.experiments.measurements import BLOCK_NS, forward
from stackscope.experiments.protocol import Item, Series
from stackscope.experiments.samples import Sample, interleaved, repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stackscope.engine.llama import Context
    from stackscope.experiments.measurements import Measurement, Sampler
    from stackscope.experiments.protocol import Budget

OVERTIME: Final = 1.3
"""A stage that takes longer than its time by this factor ends: something has begun to disturb it."""

SMALL_SHARE: Final = 0.02
"""What takes less than this of a stage's time is measured once even when there is none left."""

FILL_SHARE: Final = 0.7
"""Of the time for depths of context, what filling it may take."""

CHUNK: Final = 512
"""Tokens by which a context is filled."""

DEEPEST: Final = {False: 4096, True: 16_384}
"""Cached tokens to go to at most, by whether the calibration is a full one."""

ROUND: Final = 64
"""Depths are multiples of this where there is room."""

VISIT_NS: Final = 150_000_000
"""How long to stay at a depth, each time that it is reached: on the way down and on the way up."""

FEWEST_PER_VISIT, MOST_PER_VISIT = 3, 8

HANDOFFS: Final = 5

ROOM: Final = 1.2
"""Memory that loading a model once more needs, in lengths of its file: repacked weights have buffers of their own."""


class Log:
    """What was measured so far, and what could not be."""

    def __init__(self) -> None:
        self._samples: dict[Item, list[Sample]] = {}
        self.unknown: dict[str, str] = {}

    def add(self, item: Item, sample: Sample) -> None:
        self._samples.setdefault(item, []).append(sample)

    def cost_ns(self, item: Item) -> float | None:
        """What it took last. `None`: it was not measured."""
        samples = self._samples.get(item)
        return samples[-1].ns if samples else None

    def row_ns(self) -> float | None:
        """What a row takes in the forward of most rows. `None`: there was no forward."""
        times = [(item.rows, samples[-1].ns) for item, samples in self._samples.items() if item.kind == "forward"]
        if not times:
            return None
        rows, taken_ns = max(times)
        return taken_ns / rows

    def series(self) -> tuple[Series, ...]:
        return tuple(Series(item=item, samples=tuple(samples)) for item, samples in self._samples.items())


def curves(
    measurements: Iterable[Measurement], sampler: Sampler, log: Log, seconds: float, *, most: int,
    progress: Callable[[str], None],
) -> None:  # fmt: skip
    """Measure everything once, from the cheap to the dear, and then again as often as the time allows, interleaved."""
    begun_ns, budget_ns = sampler.now(), seconds * 1e9
    done: list[Measurement] = []
    taken: list[float] = []
    cheaper: dict[str, Item] = {}
    for measurement in measurements:
        item = measurement.item
        progress(described(item))
        left_ns = budget_ns - (sampler.now() - begun_ns)
        expected_ns = _expected_ns(item, cheaper.get(item.kind), log)
        if expected_ns > max(left_ns, SMALL_SHARE * budget_ns):
            log.unknown[described(item)] = (
                f"it would have taken about {units.duration(expected_ns)}, longer than there was"
            )
            continue
        sample_begun_ns = sampler.now()
        log.add(item, sampler.first(measurement.run))
        taken.append(sampler.now() - sample_begun_ns)
        done.append(measurement)
        cheaper[item.kind] = item
    counts = repeats(taken, budget_ns - (sampler.now() - begun_ns), most=most - 1)
    for index in interleaved(counts):
        if sampler.now() - begun_ns > OVERTIME * budget_ns:
            return
        item = done[index].item
        progress(described(item))
        cost_ns = log.cost_ns(item)
        assert cost_ns is not None
        log.add(item, sampler.take(done[index].run, cost_ns))


def _expected_ns(item: Item, cheaper: Item | None, log: Log) -> float:
    """What a forward will take at most, by that of one with fewer rows; 0 where there is nothing to go by."""
    cost_ns = None if cheaper is None or item.kind not in ("forward", "draft") else log.cost_ns(cheaper)
    return 0.0 if cheaper is None or cost_ns is None else cost_ns * item.rows / cheaper.rows


def described(item: Item) -> str:
    """What is measured, in words."""
    match item.kind:
        case "read":
            return f"reading {'memory' if item.place == 'memory' else 'the cache'}"
        case "product":
            return f"{item.type} matrices × {item.rows}"
        case "draft":
            return f"draft forward of {item.rows}"
        case _:
            outputs = "" if item.outputs == item.rows else ", one output"
            return f"forward of {item.rows}{outputs}"


def depths(context: Context, sampler: Sampler, log: Log, budget: Budget, progress: Callable[[str], None]) -> None:
    """One-row forwards at growing depths of a context and on the way back, and handing its state over at the deepest.

    The memory must be able to forget the end of a sequence.
    """
    begun_ns, fill_ns = sampler.now(), FILL_SHARE * budget.contexts_s * 1e9
    last = min(context.size.n_ctx_seq - 1, DEEPEST[budget.is_full])
    chunk = chunk_of(log.row_ns(), fill_ns, last=min(last, 2 * context.size.n_batch))
    visited = [0]
    n_samples = _visit(context, 0, sampler, log)
    cost_ns = 0
    while chunk > 0 and visited[-1] + chunk <= last:
        progress(f"context of {visited[-1] + chunk}")
        if len(visited) > 1 and sampler.now() - begun_ns + cost_ns > fill_ns:
            break
        cost_ns = forward(context, chunk, start=visited[-1])
        visited.append(visited[-1] + chunk)
        _visit(context, visited[-1], sampler, log, n_samples=n_samples)
    _hand_over(context, visited[-1], sampler, log)
    for depth in reversed(visited):
        context.remove(0, depth)
        _visit(context, depth, sampler, log, n_samples=n_samples)
    context.clear()


def chunk_of(row_ns: float | None, fill_ns: float, *, last: int) -> int:
    """Tokens by which to fill a context so that there is time for two depths; 0: there is not even for a small one.

    `row_ns` is what a row of a long forward takes, and `last` the deepest there is room for.
    """
    possible = last if row_ns is None else min(last, int(fill_ns / row_ns))
    chunk = min(CHUNK, possible // 2)
    return chunk // ROUND * ROUND if chunk >= ROUND else chunk if possible == last else 0


def _visit(context: Context, depth: int, sampler: Sampler, log: Log, *, n_samples: int | None = None) -> int:
    """Time one-row forwards at a depth; how many samples were taken, which is the same at all depths."""

    def run() -> int:
        taken_ns = forward(context, 1, outputs=1, start=depth)
        context.remove(0, depth)
        return taken_ns

    item = Item(kind="context", rows=1, sequences=1, outputs=1, cached=depth)
    cost_ns = run()
    if n_samples is None:
        n_samples = min(max(round(VISIT_NS / max(cost_ns, BLOCK_NS)), FEWEST_PER_VISIT), MOST_PER_VISIT)
    for _ in range(n_samples):
        log.add(item, sampler.take(run, cost_ns))
    return n_samples


def _hand_over(context: Context, tokens: int, sampler: Sampler, log: Log) -> None:
    """Save the state of sequence 0 and load it into another, in memory."""
    if tokens == 0:
        log.unknown["hand-off"] = "there was no time to fill a context"
        return
    if context.size.n_seq_max < 2 or (context.size.is_unified and context.n_ctx < 2 * tokens):
        log.unknown["hand-off"] = "the context has no room for the state of a second sequence; give a larger --context"
        return
    state = np.empty(context.state_bytes(0), np.uint8)
    save = Item(kind="save", cached=tokens, bytes=state.nbytes)
    load = Item(kind="load state", cached=tokens, bytes=state.nbytes)
    context.save_state(0, state)
    for _ in range(HANDOFFS):
        begun_ns = sampler.now()
        context.save_state(0, state)
        saved_ns = sampler.now()
        context.load_state(1, state)
        loaded_ns = sampler.now()
        context.remove(1, 0)
        log.add(save, Sample(saved_ns - begun_ns))
        log.add(load, Sample(loaded_ns - saved_ns))


def rebuilds(backend: Backend, sampler: Sampler, log: Log, budget: Budget, progress: Callable[[str], None]) -> Backend:
    """Make the contexts anew, as a change of their type does, and load the target once more; the last backend."""
    begun_ns = sampler.now()
    path = backend.model.path
    has_room = _has_room(backend)
    if not has_room:
        log.unknown["loading"] = "there is not enough memory free to load the target once more"
    for nth in range(budget.most):
        progress("rebuild")
        sample_ns = sampler.now()
        backend.close_contexts()
        backend = Backend(backend.config, backend.abort, progress=lambda _path, _done: None, previous=backend)
        log.add(Item(kind="rebuild"), Sample(sampler.now() - sample_ns))
        if has_room:
            load_ns = sampler.now()
            model = Model(path, backend.config)
            log.add(Item(kind="load"), Sample(sampler.now() - load_ns))
            model.close()
        spent_ns = sampler.now() - begun_ns
        if spent_ns * (nth + 2) / (nth + 1) > budget.rebuilds_s * 1e9:
            break
    return backend


def _has_room(backend: Backend) -> bool:
    available = available_memory()
    return available is None or ROOM * backend.spec.file_bytes < available
