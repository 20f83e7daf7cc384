"""Stage `ladder`: batch sizes, speculation and KV types toggled in one engine, measured bandwidth beside the modelled.

At each batch speculation is off, on, on, off, so that what drifts falls on both alike. What the engine does meanwhile
is recorded, with samples of the GPU five times a second: `session.jsonl.zst`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.gpu.figures import Cell, Window, cells_of, losing, tables
from benchmarks.gpu.folders import Folders, add_folders, say, sentence_of
from stackscope import units
from stackscope.engine import wire
from stackscope.engine.process import ENGINE, EngineProcess
from stackscope.errors import EngineError
from stackscope.launch import header_of, start_sampler
from stackscope.model.catalog import bundled_draft
from stackscope.records import ConfigEvent, HardwareSample, StepRecord
from stackscope.session.paths import Destination
from stackscope.session.writer import SessionWriter, open_recording
from stackscope.toggles import EngineConfig
from stackscope.workload.check import check
from stackscope.workload.spec import Length, WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.records import Header

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
KV_TYPES: Final = ("f16", "q8_0")
PLAN: Final = ("off", "draft", "draft", "off")
DRAFT_LENGTH: Final = 3
WINDOW_S: Final = 1.2
SETTLE_S: Final = 0.3
PATIENCE_S: Final = 20.0
"""For a change, or for the requests to become as many as they should."""
SAMPLING_NS: Final = 200_000_000
MOST_BYTES: Final = 4_600_000
"""The recording ends here; what follows is measured all the same. A step takes 41 bytes at batch 1 without speculation
and 830 at batch 64 with it, so all of the ladder should take some 4 MB."""
STEADY_STEPS: Final = 3
"""In a row with the batch that was asked for."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done."""

    batches: tuple[int, ...] = BATCHES
    kv_types: tuple[str, ...] = KV_TYPES
    window_s: float = WINDOW_S
    settle_s: float = SETTLE_S
    engine: str = ENGINE
    most_bytes: int = MOST_BYTES


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_folders(parser)
    parser.add_argument("--model", type=Path, help="the target; what stage inflate made, if not given")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--kv", default=",".join(KV_TYPES))
    parser.add_argument("--window", type=float, default=WINDOW_S, help="seconds of each of the four windows of a batch")
    parser.add_argument("--engine", default=ENGINE, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    folders = Folders.of(given)
    options = Options(
        batches=tuple(int(batch) for batch in given.batches.split(",")),
        kv_types=tuple(given.kv.split(",")),
        window_s=given.window,
        engine=given.engine,
    )
    ladder = Ladder(given.model or folders.target, folders.out / "session.jsonl.zst", options)
    header = ladder.climb()
    cells = cells_of(header, ladder.windows, ladder.steps, ladder.samples)
    return report(folders, header, cells, ladder)


def report(folders: Folders, header: Header, cells: Sequence[Cell], ladder: Ladder) -> int:
    """Print the tables, and write all of it down. Returns the exit status."""
    say(f"{header.device}, {header.library}")
    for table in tables(cells):
        say(f"\n{table}")
    verdicts = losing(cells)
    for verdict in verdicts:
        say(verdict.text)
    for note in ladder.notes:
        say(f"Note: {note}")
    size = ladder.recording.stat().st_size
    say(f"Recorded {units.data_size(size)} to {ladder.recording}")
    folders.save(
        "ladder",
        {
            "device": header.device,
            "library": header.library,
            "cells": msgspec.to_builtins(cells),
            "speculation": msgspec.to_builtins(verdicts),
            "notes": ladder.notes,
            "recording_bytes": size,
        },
    )
    return 0 if cells else 1


class Ladder:
    """Takes one engine through all batches and settings, and keeps what it recorded."""

    def __init__(self, model: Path, recording: Path, options: Options) -> None:
        self._model = model
        self._options = options
        self.recording = recording
        self.windows: list[Window] = []
        self.steps: list[StepRecord] = []
        self.samples: list[HardwareSample] = []
        self.notes: list[str] = []
        self._recorder: SessionWriter | None = None
        self._changes = 0
        """Configurations that have come into force."""

    def climb(self) -> Header:
        """Do all of it. Returns the session's header. Raises `StackscopeError`."""
        workload = WorkloadSpec(
            name="code", concurrency=1, prompt_tokens=Length.fixed(128), output_tokens=Length.uniform(256, 768),
            ignore_eos=True,
        )  # fmt: skip
        facts = check(workload)
        with EngineProcess.start(self._config(), workload, engine=self._options.engine) as process:
            ready = process.wait_ready()
            self.notes += [] if ready.note is None else [ready.note]
            header = header_of(process, workload, facts, notes=self.notes)
            self.recording.unlink(missing_ok=True)
            self._recorder = open_recording(Destination(path=self.recording, is_chosen=True), header)
            process.begin(header, self._recorder)
            sampler = start_sampler(process, recorder_cpu_ns=lambda: None, period_ns=SAMPLING_NS)
            try:
                for kv_type in self._options.kv_types:
                    self._climb_with(process, kv_type)
            finally:
                sampler.close()
        for _ in process.items():
            pass  # how it ended is raised here
        if process.recording_failure is not None:
            raise process.recording_failure
        return header

    def _config(self) -> EngineConfig:
        most = max(self._options.batches)
        return EngineConfig(
            model=str(self._model),
            draft_model=str(bundled_draft()),
            draft_length=DRAFT_LENGTH,
            draft_length_max=DRAFT_LENGTH,
            prefix_cache=False,
            slots=most,
            slots_max=most,
            context_tokens=1024 * most,
            token_budget=max(256, (1 + DRAFT_LENGTH) * most + 256),
        )

    def _climb_with(self, process: EngineProcess, kv_type: str) -> None:
        if not self._change(process, kv_type_k=kv_type, kv_type_v=kv_type):
            return
        for batch in self._options.batches:
            process.send(wire.SetConcurrency(concurrency=batch))
            for work in self.steps[-1].work[batch:] if self.steps else ():
                process.send(wire.Cancel(request=work.request))
            if not self._until(process, lambda batch=batch: self._is_steady(batch)):  # type: ignore[misc]
                self.notes.append(f"KV {kv_type}: there were never {batch} requests at once.")
                continue
            for speculation in PLAN:
                if self._change(process, speculation=speculation):
                    self._measure(process, kv_type, batch, speculation)

    def _change(self, process: EngineProcess, **changes: object) -> bool:
        """Change settings, and wait until they are in force. Returns whether they are."""
        config = process.config
        if config is not None and all(getattr(config, name) == value for name, value in changes.items()):
            return True
        before = self._changes
        process.send(wire.reconfigure(changes))
        if self._until(process, lambda: self._changes > before):
            return True
        self.notes.append(f"The engine does not change to {changes}.")
        return False

    def _measure(self, process: EngineProcess, kv_type: str, batch: int, speculation: str) -> None:
        """Let it settle, then take one window."""
        self._for(process, self._options.settle_s)
        process.send(wire.SetMark(label=f"KV {kv_type}, batch {batch}, speculation {speculation}"))
        began_ns = process.now_ns()
        self._for(process, self._options.window_s)
        self.windows.append(
            Window(kv_type=kv_type, batch=batch, speculation=speculation, began_ns=began_ns, ended_ns=process.now_ns())
        )
        self._look_at_size(process)

    def _look_at_size(self, process: EngineProcess) -> None:
        if self._recorder is not None and self._recorder.bytes_written > self._options.most_bytes:
            process.record_to(None)
            self._recorder = None
            self.notes.append("The recording ends early, because it had become large enough.")

    def _is_steady(self, batch: int) -> bool:
        last = self.steps[-STEADY_STEPS:]
        return len(last) == STEADY_STEPS and all(step.slots_busy == batch for step in last)

    def _for(self, process: EngineProcess, seconds: float) -> None:
        """Take what the engine says for a while."""
        self._take(process, lambda: False, seconds)

    def _until(self, process: EngineProcess, holds: Callable[[], bool]) -> bool:
        """Take what the engine says until something holds, or patience ends. Returns whether it holds."""
        return self._take(process, holds, PATIENCE_S)

    def _take(self, process: EngineProcess, holds: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            item = process.next_item(left)
            if item is None and process.is_over:
                raise EngineError("The engine ended in the middle of the ladder.")
            match item:
                case StepRecord():
                    self.steps.append(item)
                case HardwareSample():
                    self.samples.append(item)
                case ConfigEvent(kind="refused", reason=reason):
                    self.notes.append(f"Refused: {reason}")
                    return False
                case ConfigEvent():
                    self._changes += 1
                case wire.Refused(text=text):
                    self.notes.append(f"Refused: {text}")
                    return False
            if holds():
                return True
        return False


if __name__ == "__main__":
    sys.exit(sentence_of(main))
