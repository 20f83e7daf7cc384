"""The stages of a calibration, each within its own time: curves and rebuilds. `depths` and `caches` are the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.cgroups import available_memory
from stackscope.engine.backend import Backend
from stackscope.engine.llama import Model
from stackscope.experiments.depths import OVERTIME
from stackscope.experiments.measurements import sample_ns
from stackscope.experiments.protocol import Item, Series
from stackscope.experiments.samples import Sample, interleaved, repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stackscope.experiments.measurements import Measurement, Sampler
    from stackscope.experiments.protocol import Budget
    from stackscope.experiments.rounds import Rounds
    from stackscope.toggles import EngineConfig

SMALL_SHARE: Final = 0.02
"""What takes less than this of a stage's time is measured once even when there is none left."""

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

    def has(self, kind: str) -> bool:
        """Whether anything of a kind was measured."""
        return any(item.kind == kind for item in self._samples)

    def forward_ns(self, rows: int) -> float | None:
        """What a forward of so many rows took last, at empty contexts. `None`: it was not measured."""
        return next(
            (samples[-1].ns for item, samples in self._samples.items() if (item.kind, item.rows) == ("forward", rows)),
            None,
        )

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
    measurements: Iterable[Measurement], sampler: Sampler, log: Log, rounds: Rounds, seconds: float, *, most: int,
    progress: Callable[[str], None],
) -> None:  # fmt: skip
    """Measure everything once, from the cheap to the dear, and then again as often as the time allows, interleaved.

    What is measured in rounds joins them.
    """
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
        sample = sampler.first(measurement.run)
        log.add(item, sample)
        if rounds.takes(item):
            rounds.join(measurement, sampler.now() - sample_begun_ns)
            continue
        taken.append(sample_ns(sample.ns))
        done.append(measurement)
        cheaper[item.kind] = item
        rounds.maybe()
    left_ns = budget_ns - (sampler.now() - begun_ns)
    counts = repeats(taken, left_ns * (1.0 - rounds.share), most=most - 1)
    for index in interleaved(counts):
        if sampler.now() - begun_ns > OVERTIME * budget_ns:
            return
        item = done[index].item
        progress(described(item))
        cost_ns = log.cost_ns(item)
        assert cost_ns is not None
        log.add(item, sampler.take(done[index].run, cost_ns))
        rounds.maybe()


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


def rebuilds(
    backend: Backend, config: EngineConfig, sampler: Sampler, log: Log, budget: Budget,
    progress: Callable[[str], None],
) -> Backend:  # fmt: skip
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
        backend = Backend(config, backend.abort, progress=lambda _path, _done: None, previous=backend)
        log.add(Item(kind="rebuild"), Sample(sampler.now() - sample_ns))
        if has_room:
            load_ns = sampler.now()
            model = Model(path, config)
            log.add(Item(kind="load"), Sample(sampler.now() - load_ns))
            model.close()
        spent_ns = sampler.now() - begun_ns
        if spent_ns * (nth + 2) / (nth + 1) > budget.rebuilds_s * 1e9:
            break
    return backend


def _has_room(backend: Backend) -> bool:
    available = available_memory()
    return available is None or ROOM * backend.spec.file_bytes < available
