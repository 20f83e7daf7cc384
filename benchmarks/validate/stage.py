"""Stages a scenario on the real engine, and records it as `stackscope run` would."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.validate import engines
from benchmarks.validate.faults import disturbed
from benchmarks.validate.reading import MARK
from benchmarks.validate.state import Staged
from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import EngineError
from stackscope.hardware.quiet import Neighbours
from stackscope.launch import header_of, start_sampler, with_models
from stackscope.records import ConfigEvent, RequestRecord
from stackscope.session.paths import Destination
from stackscope.session.writer import open_recording
from stackscope.toggles import EngineConfig
from stackscope.workload import check

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.validate.models import Models
    from benchmarks.validate.scenarios import Block, Scenario, Stand

LOOK_S: Final = 0.2
STAND: Final = "stand:"
"""Before the name of a stand, whose target is meant."""


def stage(scenario: Scenario, models: Models, destination: Path) -> Staged:
    """Record a scenario; what is known of it beside the recording. Raises `StackscopeError`."""
    target, draft = models.of(scenario.stand)
    config = with_models(EngineConfig(model=target, draft_model=draft, **scenario.settings))
    facts = check.check(scenario.workload)
    process = EngineProcess.start(config, scenario.workload, engine=scenario.engine, environ=_environment(scenario))
    with process:
        process.wait_ready()
        header = header_of(process, scenario.workload, facts)
        recorder = open_recording(Destination(destination, is_chosen=True), header)
        process.begin(header, recorder)
        with contextlib.closing(start_sampler(process, recorder_cpu_ns=lambda: recorder.cpu_ns)):
            # The header's configuration has what the engine made of it, such as the number of threads.
            foreign = _Play(process, scenario, header.config or config, models).run()
            process.stop()
            with contextlib.suppress(StopIteration):
                list(process.items())
    if process.recording_failure is not None:
        raise process.recording_failure
    return Staged(destination.name, foreign)


def _environment(scenario: Scenario) -> dict[str, str]:
    after = scenario.blocks[0].seconds if len(scenario.blocks) > 1 else 0.0
    return {**os.environ, engines.DELAY_MS: str(scenario.delay_ms), engines.AFTER_S: str(after)}


def resolved(settings: dict[str, Any], models: Models) -> dict[str, object]:
    """Settings with the files that they name by a stand."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        is_stand = isinstance(value, str) and value.startswith(STAND)
        found[name] = models.of(cast("Stand", value.removeprefix(STAND)))[0] if is_stand else value
    return found


class _Play:
    """Goes through the blocks of a scenario."""

    def __init__(self, process: EngineProcess, scenario: Scenario, config: EngineConfig, models: Models) -> None:
        self._process = process
        self._scenario = scenario
        self._config = config
        self._models = models
        self._settings: dict[str, object] = {}
        self._served = 0
        self._seconds = 0.0

    def run(self) -> float | None:
        """The largest share of a CPU that strangers took during a block. `None`: this system does not say."""
        shares: list[float | None] = []
        for number, block in enumerate(self._scenario.blocks):
            with disturbed(block.fault, self._process.pid) as neighbour:
                pids = [self._process.pid, *([] if neighbour is None else [neighbour])]
                watch = Neighbours(pids)
                self._process.send(wire.SetMark(label=f"{MARK} {number}"))
                self._change(block)
                watch.begin()
                self._follow(block.seconds)
                shares.append(watch.share())
        known = [share for share in shares if share is not None]
        return max(known) if len(known) == len(shares) else None

    def _change(self, block: Block) -> None:
        """Ask for what the block wants."""
        wanted = resolved(block.settings, self._models)
        back = {name: getattr(self._config, name) for name in self._settings if name not in wanted}
        changes = {**back, **{k: v for k, v in wanted.items() if self._settings.get(k) != v}}
        if changes:
            self._process.send(wire.reconfigure(changes, by="plan"))
        self._settings = wanted
        if block.concurrency is not None:
            self._process.send(wire.SetConcurrency(concurrency=block.concurrency))
        if block.rate_factor is not None:
            rate = max(self._served, 1) / self._seconds * block.rate_factor
            self._process.send(wire.SetRate(rate=rate))
        self._served, self._seconds = 0, block.seconds

    def _follow(self, seconds: float) -> None:
        """Read what the engine says for so long, or until its traffic is done.

        Raises `EngineError` when it ends before, or refuses something.
        """
        until = self._process.now_ns() + round(seconds * 1e9)
        while (left_ns := until - self._process.now_ns()) > 0:
            is_read = self._process.is_read
            item = self._process.next_item(min(left_ns / 1e9, LOOK_S))
            if item is None and is_read:
                if self._scenario.workload.is_endless:
                    raise EngineError("The engine ended before its scenario did.")
                return
            if isinstance(item, wire.Refused):
                raise EngineError(f"{self._scenario.name}: {item.text}")
            if isinstance(item, ConfigEvent) and item.kind == "refused":
                raise EngineError(f"{self._scenario.name}: {item.reason}")
            self._served += isinstance(item, RequestRecord)
