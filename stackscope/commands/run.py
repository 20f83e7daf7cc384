"""`stackscope run`: serve a workload headless, record every step, and say where the time went."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.explainer import Explainer, unhurried
from stackscope.analysis.summary import RunSummary
from stackscope.commands.interrupts import SIGNALLED, Interrupts, told_when_interrupted
from stackscope.commands.progress import Progress
from stackscope.engine import wire
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.engine.process import EngineProcess
from stackscope.errors import StackscopeError
from stackscope.launch import Failures, header_of, place_of_recording, start_sampler, with_models
from stackscope.records import RequestRecord, StepRecord
from stackscope.report import explained, output
from stackscope.report.text import RunReport, summary
from stackscope.session.writer import check_destination, open_recording
from stackscope.workload import check
from stackscope.workload.spec import describe

if TYPE_CHECKING:
    from stackscope.config import RunOptions
    from stackscope.session.writer import SessionWriter
    from stackscope.toggles import EngineConfig

LOOK_S: Final = 0.05
"""How often the loop looks for a signal, and the progress line at the clock, while the engine says nothing."""


def run(options: RunOptions) -> int:
    """Do what the options ask, print the summary, and return the exit status. Raises `StackscopeError`."""
    facts = check.check(options.workload)
    config = with_models(options.engine)
    return _Session(options, config, facts).run()


class _Session:
    """One run from the start of the engine to the summary."""

    def __init__(self, options: RunOptions, config: EngineConfig, facts: check.WorkloadFacts) -> None:
        self._options = options
        self._config = config
        self._facts = facts
        self._summary = RunSummary(limits=options.limits.service)
        self._explainer = Explainer(rules=Allowances(usable_cores()), cpu_ns=unhurried)  # As a replay does.
        self._last_ns = 0
        self._notes = [*options.remarks]
        self._failures = Failures()
        self._destination = place_of_recording(
            options.output, options.workload, config, started=datetime.now().astimezone()
        )
        self._recorder: SessionWriter | None = None
        self._interrupts = Interrupts()

    def run(self) -> int:
        with told_when_interrupted(self._what_is_left):
            return self._serve()

    def _what_is_left(self) -> str:
        """What a signal leaves that the run does not end in order for: the first while loading, or else the second."""
        if self._recorder is not None:
            return f"what ran until then is in {self._recorder.path}."
        return "nothing was recorded."

    def _serve(self) -> int:
        options = self._options
        if self._destination is not None:
            check_destination(self._destination)
        process = EngineProcess.start(self._config, options.workload, record_text=options.output.record_text)
        failure: StackscopeError | None = None
        with process, Progress(options.workload, is_quiet=options.output.json) as progress, ExitStack() as ending:
            try:
                process.wait_ready(progress.loading)
                with self._interrupts:
                    self._begin(process)
                    sampler = start_sampler(process, recorder_cpu_ns=self._recorder_cpu_ns)
                    ending.callback(sampler.close)
                    self._follow(process, progress)
            except StackscopeError as error:
                if process.header is None:
                    raise
                failure = error
        self._report(process)
        failure = failure or process.recording_failure or self._failures.only()
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
        header = header_of(process, self._options.workload, self._facts, notes=self._notes)
        if self._destination is not None:
            self._recorder = open_recording(self._destination, header)
        self._summary.write(header)
        self._explainer.write(header)
        process.begin(header, self._recorder)

    def _recorder_cpu_ns(self) -> int | None:
        return None if self._recorder is None else self._recorder.cpu_ns

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
                self._explainer.write(item)
                if isinstance(item, StepRecord):
                    self._last_ns = item.end_ns
                progress.take(item)
                if isinstance(item, RequestRecord):
                    self._failures.take(item)

    def _report(self, process: EngineProcess) -> None:
        recording = None if self._recorder is None else self._recorder.path
        result = self._summary.result()
        explanation = self._explainer.final(self._last_ns)
        header = process.header
        assert header is not None
        notes = [*self._notes, *self._failures.told()]
        if not self._options.output.json:
            report = RunReport(
                result=result,
                header=header,
                workload=describe(self._options.workload),
                recording=recording,
                notes=tuple(notes),
                explanation=explanation,
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
            "failures": dict(self._failures.reasons),
            "notes": notes,
            **result.to_dict(),
            "explanation": explained.document(explanation),
        }
        output.write(json.dumps(document, allow_nan=False) + "\n")
