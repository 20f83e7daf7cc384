"""`stackscope run`: serve a workload headless, record every step, and say where the time went."""

from __future__ import annotations

import json
import platform
from collections import Counter
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.analysis.metrics import counts
from stackscope.analysis.summary import RunSummary
from stackscope.commands.interrupts import Interrupts
from stackscope.commands.progress import Progress
from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import StackscopeError, ToggleRefusedError, WorkloadError
from stackscope.hardware.host import look
from stackscope.model.catalog import bundled_draft, bundled_target, resolve
from stackscope.records import RequestRecord
from stackscope.report import output
from stackscope.report.text import RunReport, summary
from stackscope.session.paths import destination
from stackscope.session.writer import check_destination, open_recording
from stackscope.workload import check
from stackscope.workload.spec import describe

if TYPE_CHECKING:
    from stackscope.config import RunOptions
    from stackscope.session.paths import Destination
    from stackscope.session.writer import SessionWriter
    from stackscope.toggles import EngineConfig

SIGNALLED: Final = 128
"""Exit status after a signal, as shells count: this and its number."""

LOOK_S: Final = 0.05
"""How often the loop looks for a signal, and the progress line at the clock, while the engine says nothing."""

MOST_FAILURES: Final = 3
"""Reasons why requests failed that are told; the recording has all of them."""


def run(options: RunOptions) -> int:
    """Do what the options ask, print the summary, and return the exit status. Raises `StackscopeError`."""
    facts = check.check(options.workload)
    config = with_models(options.engine)
    return _Session(options, config, facts).run()


def with_models(config: EngineConfig) -> EngineConfig:
    """The configuration with the paths of its models, checked: the bundled pair where none was named."""
    if config.model:
        model = str(resolve(config.model))
        draft = None if config.draft_model is None else str(resolve(config.draft_model))
    else:
        model = str(bundled_target())
        draft = str(bundled_draft()) if config.draft_model is None else str(resolve(config.draft_model))
    if config.speculation == "draft" and draft is None:
        raise ToggleRefusedError("Speculation by draft model needs a draft model.", remedy="Give one with --draft.")
    return msgspec.structs.replace(config, model=model, draft_model=draft)


def _destination(options: RunOptions, config: EngineConfig) -> Destination | None:
    """Where to record. `None`: not at all."""
    if not options.output.record:
        return None
    workload = options.workload
    return destination(
        options.output.record_path,
        started=datetime.now().astimezone(),
        workload=workload.name or Path(workload.path or "").stem,
        model=Path(config.model).stem,
    )


class _Session:
    """One run from the start of the engine to the summary."""

    def __init__(self, options: RunOptions, config: EngineConfig, facts: check.WorkloadFacts) -> None:
        self._options = options
        self._config = config
        self._facts = facts
        self._summary = RunSummary()
        self._notes: list[str] = []
        self._failures: Counter[str] = Counter()
        """Why requests failed, and how many."""
        self._destination = _destination(options, config)
        self._recorder: SessionWriter | None = None
        self._interrupts = Interrupts()

    def run(self) -> int:
        options = self._options
        if self._destination is not None:
            check_destination(self._destination)
        process = EngineProcess.start(self._config, options.workload, record_text=options.output.record_text)
        failure: StackscopeError | None = None
        with process, Progress(options.workload, is_quiet=options.output.json) as progress:
            try:
                process.wait_ready(progress.loading)
                with self._interrupts:
                    self._begin(process)
                    self._follow(process, progress)
            except StackscopeError as error:
                if process.header is None:
                    raise
                failure = error
        self._report(process)
        failure = failure or process.recording_failure or self._only_failures()
        if failure is not None:
            raise failure
        received = self._interrupts.received
        return 0 if received is None else SIGNALLED + received

    def _begin(self, process: EngineProcess) -> None:
        """Open the recording, if there is to be one, and let the traffic begin."""
        ready = process.ready
        assert ready is not None
        if ready.note is not None:
            self._notes.append(ready.note)
        workload = self._options.workload
        header = process.compose_header(host=platform.node(), device=look().processor or platform.machine())
        header = msgspec.structs.replace(header, workload=check.header(workload, self._facts))
        if self._destination is not None:
            self._recorder = open_recording(self._destination, header)
        self._summary.write(header)
        process.begin(header, self._recorder)

    def _follow(self, process: EngineProcess, progress: Progress) -> None:
        """Take everything the engine says until it ends, or is told to by a signal."""
        is_stopping = False
        while True:
            if self._interrupts.received is not None and not is_stopping:
                is_stopping = True
                process.stop()
            is_read = process.is_read  # Only a call after that raises what ended the engine.
            item = process.next_item(LOOK_S)
            if item is None:
                if is_read:
                    return
                progress.look(process.now_ns())
            elif isinstance(item, wire.Refused | wire.Note):
                self._notes.append(item.text)
            elif not isinstance(item, wire.Message):
                self._summary.write(item)
                progress.take(item)
                if isinstance(item, RequestRecord) and item.error is not None:
                    self._failures[item.error] += 1

    def _only_failures(self) -> StackscopeError | None:
        """The failure of a run in which not one request could run. `None`: it was another run."""
        if not self._failures or set(self._summary.result()[counts.Requests] or {}) != {"error"}:
            return None
        reason, _ = self._failures.most_common(1)[0]
        requests = units.counted(self._failures.total(), "request")
        return WorkloadError(
            f"None of {requests} could run: {reason}", remedy="Change the workload, or give a larger --context."
        )

    def _report(self, process: EngineProcess) -> None:
        recording = None if self._recorder is None else self._recorder.path
        result = self._summary.result()
        header = process.header
        assert header is not None
        notes = [*self._notes, *self._told_failures()]
        if not self._options.output.json:
            report = RunReport(
                result=result,
                header=header,
                workload=describe(self._options.workload),
                recording=recording,
                notes=tuple(notes),
            )
            output.show(partial(summary, report))
            return
        if process.recording_failure is not None:
            notes.append(str(process.recording_failure))
        document = {
            "stackscope": header.stackscope,
            "started": header.started,
            "host": header.host,
            "device": header.device,
            "library": header.library,
            "model": None if header.model is None else header.model.name,
            "draft_model": None if header.draft_model is None else header.draft_model.name,
            "workload": header.workload,
            "config": msgspec.to_builtins(header.config),
            "recording": None if recording is None else str(recording),
            "interrupted": self._interrupts.received is not None,
            "failures": dict(self._failures),
            "notes": notes,
            **result.to_dict(),
        }
        output.write(json.dumps(document, allow_nan=False) + "\n")

    def _told_failures(self) -> list[str]:
        """Why requests failed, the commonest reasons first."""
        told = [f"{units.counted(n, 'request')} failed: {why}" for why, n in self._failures.most_common(MOST_FAILURES)]
        n_more = len(self._failures) - len(told)
        return told if n_more <= 0 else [*told, f"Requests failed for {units.counted(n_more, 'other reason')}."]
