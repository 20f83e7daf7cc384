"""Runs the real engine in this process on the bundled lab pair, and can force a history through it while it watches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from stackscope.engine.loop import Engine
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.toggles import EngineConfig, Sampling
from stackscope.workload.jobs import Job
from tests.integration import affinity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from stackscope.engine.batching import Entry
    from stackscope.engine.turn import Turn
    from stackscope.records import RequestRecord, StepRecord

    Logits = dict[tuple[int, int], NDArray[np.float32]]


def lab_config(**settings: object) -> EngineConfig:
    """The lab pair with both models loaded, two threads."""
    defaults: dict[str, object] = {
        "model": str(bundled_target()),
        "draft_model": str(bundled_draft()),
        "threads": 2,
        "context_tokens": 4096,
    }
    return EngineConfig(**{**defaults, **settings})  # type: ignore[arg-type]


def open_engine(config: EngineConfig, *, keep_text: bool = True) -> Engine:
    origin = time.monotonic_ns()

    def clock() -> int:
        return time.monotonic_ns() - origin

    affinity.bind()
    return Engine.open(config, clock=clock, progress=lambda _path, _done: None, keep_text=keep_text)


def job(number: int, tokens: Iterable[int], max_tokens: int, **more: object) -> Job:
    return Job(id=number, tokens=tuple(tokens), max_tokens=max_tokens, arrived_ns=0, **more)  # type: ignore[arg-type]


class Run(NamedTuple):
    steps: list[StepRecord]
    requests: list[RequestRecord]
    outputs: dict[int, tuple[int, ...]]


def turns(engine: Engine, *, limit: int = 1_000_000) -> Iterator[Turn]:
    """Turns until nothing is in flight."""
    for _ in range(limit):
        turn = engine.step()
        if turn is None:
            return
        yield turn
    raise AssertionError(f"still busy after {limit} steps")


def finish(engine: Engine, *, each: Callable[[Turn], None] | None = None) -> Run:
    """Run everything that was submitted, and check the books at the end."""
    run = Run([], [], {})
    for turn in turns(engine):
        run.steps.append(turn.step)
        run.requests.extend(turn.finished)
        run.outputs.update({answer.request: answer.tokens for answer in turn.answers})
        if each is not None:
            each(turn)
    engine._residents.cache.check_integrity()
    return run


def run_jobs(config: EngineConfig, jobs: Iterable[Job]) -> Run:
    engine = open_engine(config)
    try:
        for each in jobs:
            engine.submit(each)
        return finish(engine)
    finally:
        engine.close()


class Forcing:
    """Stands in for the chooser: whatever the logits say, each request goes on as its history does.

    Drafts are accepted where they agree with the history, so that rows are accepted and rejected as in a real run;
    the logits at every position of every request are kept.
    """

    def __init__(self, histories: Mapping[int, Sequence[int]]) -> None:
        self._histories = histories
        self.logits: Logits = {}

    def choose(self, entries: Sequence[Entry], logits: NDArray[np.float32], synthetic: float | None) -> None:
        assert synthetic is None
        for entry in entries:
            if entry.outputs == 0:
                continue
            sequence = entry.sequence
            history = self._histories[sequence.job.id]
            draft = sequence.draft if entry.phase == "verify" else []
            kept = 0
            while kept < min(len(draft), len(history) - sequence.n) and draft[kept] == history[sequence.n + kept]:
                kept += 1
            first = entry.cached + entry.new - entry.outputs
            for row in range(kept + 1):
                position = first + row
                self.logits[sequence.job.id, position] = logits[entry.first_output + row].copy()
            entry.accepted = kept
            entry.emitted = list(history[sequence.n : sequence.n + kept + 1])
            del entry.emitted[sequence.max_n - sequence.n :]
            entry.accepted = min(kept, len(entry.emitted))


def force(config: EngineConfig, histories: Mapping[int, Sequence[int]], n_prompt: int) -> Logits:
    """Logits along each history, by (request, position), under a configuration."""
    engine = open_engine(config)
    try:
        forcing = Forcing(histories)
        engine._chooser = forcing  # type: ignore[assignment]
        for number, history in histories.items():
            # The last token of a history is never fed, so its own logits are not asked for.
            engine.submit(job(number, history[:n_prompt], len(history) - n_prompt - 1, ignore_eos=True))
        finish(engine)
        return forcing.logits
    finally:
        engine.close()


def greedy(seed: int = 0) -> Sampling:
    return Sampling(temperature=0.0, seed=seed)
