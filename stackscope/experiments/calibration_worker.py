"""The process that measures: the engine's own backend in the engine's own environment, but nobody's requests.

Started by `experiments.calibrate`; it says how far it is, and in the end what it found.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn

from stackscope.engine.abort import AbortFlag
from stackscope.engine.backend import Backend
from stackscope.engine.kernels import Device
from stackscope.engine.llama import library_description, start_library, supports_offload
from stackscope.errors import EngineError
from stackscope.experiments import protocol, stages
from stackscope.experiments.apart import serve
from stackscope.experiments.assembly import weight_bytes
from stackscope.experiments.caches import caches
from stackscope.experiments.depths import depths
from stackscope.experiments.measurements import Measurement, Sampler, draft_forwards, forwards, too_many
from stackscope.experiments.reading import Sets, products, reads
from stackscope.experiments.rounds import Rounds
from stackscope.model.spec import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackscope.records import ModelSummary

PROGRESS_NS: Final = 250_000_000
"""Whoever shows progress takes time from what is measured."""


class Reporter:
    """Says how far it is, no oftener than somebody looks."""

    def __init__(self, say: Callable[[protocol.AnyMessage], None], budget: protocol.Budget) -> None:
        self._say = say
        self._total_ns = (budget.curves_s + budget.contexts_s + budget.caches_s + budget.rebuilds_s) * 1e9
        self._begun_ns = time.monotonic_ns()
        self._said_ns = 0

    def __call__(self, what: str) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._said_ns >= PROGRESS_NS:
            self._said_ns = now_ns
            self._say(protocol.Progress(what=what, fraction=min(0.99, (now_ns - self._begun_ns) / self._total_ns)))


def measure(task: protocol.Task, say: Callable[[protocol.AnyMessage], None]) -> protocol.Findings:
    """Do what the task asks. Raises `StackscopeError` when the engine cannot be had at all."""
    start_library()
    backend = Backend(task.config, AbortFlag(), progress=lambda _path, _done: None)
    threads, is_gpu = backend.size.threads, supports_offload() and task.config.gpu_layers != 0
    report, sampler, log = Reporter(say, task.budget), Sampler(), stages.Log()
    rounds = Rounds(sampler, log)
    report("matrices")
    with ExitStack() as opened:
        opened.callback(rounds.close)
        measurements = chain(
            _products(task, backend.spec, threads, is_gpu, opened, log),
            () if backend.draft is None else draft_forwards(backend.draft),
            forwards(backend.target, is_full=task.budget.is_full),
        )
        stages.curves(measurements, sampler, log, rounds, task.budget.curves_s, most=task.budget.most, progress=report)
        for rows, why in too_many(backend.target, is_full=task.budget.is_full).items():
            log.unknown[f"forward of {rows}"] = why
        if backend.trim_refusal is None:
            depths(backend.target, sampler, log, rounds, task, report)
        else:
            log.unknown["context"] = log.unknown["hand-off"] = backend.trim_refusal
        config = backend.config
        if task.budget.caches_s > 0.0:
            backend = caches(backend, sampler, log, rounds, task.budget, report)
    # Loading the target once more needs the memory that the matrices had.
    backend = stages.rebuilds(backend, config, sampler, log, task.budget, report)
    return protocol.Findings(
        library=library_description(),
        threads=threads,
        is_gpu=is_gpu,
        model=backend.spec,
        draft=backend.draft_spec,
        series=log.series(),
        unknown=log.unknown,
    )


def _products(
    task: protocol.Task, model: ModelSummary, threads: int, is_gpu: bool, opened: ExitStack, log: stages.Log
) -> Iterator[Measurement]:
    """Products outside the model, as far as the library and the memory go along."""
    cache_bytes = None if is_gpu else task.cache_bytes
    sets = Sets.of(weight_bytes(model), cache_bytes=cache_bytes, most_bytes=task.memory_bytes)
    if sets.memory_bytes is None:
        log.unknown["reading memory"] = "there is not enough memory free to go beyond the cache"
    try:
        device = Device(threads=threads, is_gpu=is_gpu)
        opened.callback(device.close)
        for made in chain(reads(device, sets), products(device, load_spec(task.config.model), sets)):
            opened.callback(made.close)
            yield made
    except EngineError as error:
        log.unknown["matrices"] = error.message


def main() -> NoReturn:
    serve(__doc__, protocol.Task, lambda task, say: say(measure(task, say)))


if __name__ == "__main__":
    main()
