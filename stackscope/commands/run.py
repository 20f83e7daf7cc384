"""`stackscope run`: serve a workload headless, record every step, and say where the time went."""

from __future__ import annotations

import json
import platform
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.summary import RunSummary
from stackscope.commands.progress import Progress
from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import StackscopeError, ToggleRefusedError
from stackscope.hardware.host import look
from stackscope.model.catalog import bundled_draft, bundled_target, resolve
from stackscope.report.text import print_summary
from stackscope.session.paths import destination
from stackscope.session.writer import open_recording
from stackscope.workload.check import check
from stackscope.workload.spec import describe

if TYPE_CHECKING:
    from stackscope.config import RunOptions
    from stackscope.session.writer import SessionWriter
    from stackscope.toggles import EngineConfig

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells count: 128 + SIGINT."""


def run(options: RunOptions) -> int:
    """Do what the options ask, print the summary, and return the exit status. Raises `StackscopeError`."""
    check(options.workload)
    config = with_models(options.engine)
    session = _Session(options, config)
    return session.run()


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


class _Session:
    """One run from the start of the engine to the summary."""

    def __init__(self, options: RunOptions, config: EngineConfig) -> None:
        self._options = options
        self._config = config
        self._summary = RunSummary()
        self._notes: list[str] = []
        self._recorder: SessionWriter | None = None
        self._is_interrupted = False

    def run(self) -> int:
        options = self._options
        process = EngineProcess.start(self._config, options.workload, record_text=options.output.record_text)
        failure: StackscopeError | None = None
        with process, Progress(options.workload, is_quiet=options.output.json) as progress:
            try:
                process.wait_ready(progress.loading)
                self._begin(process)
                self._follow(process, progress)
            except KeyboardInterrupt:
                self._interrupt(process, progress)
            except StackscopeError as error:
                if process.header is None:
                    raise
                failure = error
        if process.recording_failure is not None:
            self._notes.append(str(process.recording_failure))
        self._report(process)
        if failure is not None:
            raise failure
        return INTERRUPTED if self._is_interrupted else 0

    def _begin(self, process: EngineProcess) -> None:
        """Open the recording, if there is to be one, and let the traffic begin."""
        ready = process.ready
        assert ready is not None
        if ready.note is not None:
            self._notes.append(ready.note)
        header = process.compose_header(host=platform.node(), device=look().processor or platform.machine())
        output = self._options.output
        if output.record:
            workload = self._options.workload
            where = destination(
                output.record_path,
                started=datetime.fromisoformat(process.started),
                workload=workload.name or Path(workload.path or "").stem,
                model=Path(self._config.model).stem,
            )
            self._recorder = open_recording(where, header)
        self._summary.write(header)
        process.begin(header, self._recorder)

    def _follow(self, process: EngineProcess, progress: Progress) -> None:
        """Take everything the engine says until it ends."""
        for item in process.items():
            if isinstance(item, wire.Message):
                if isinstance(item, wire.Refused):
                    self._notes.append(item.text)
                continue
            self._summary.write(item)
            progress.take(item)

    def _interrupt(self, process: EngineProcess, progress: Progress) -> None:
        """Ctrl-C: cancel what runs, keep what was. A second one while that happens ends the process at once."""
        self._is_interrupted = True
        if process.header is None:
            raise KeyboardInterrupt
        process.stop()
        self._follow(process, progress)

    def _report(self, process: EngineProcess) -> None:
        recording = None if self._recorder is None else self._recorder.path
        result = self._summary.result()
        if not self._options.output.json:
            print_summary(result, process.header, describe(self._options.workload), recording, self._notes)
            return
        header = process.header
        assert header is not None
        document = {
            "stackscope": header.stackscope,
            "started": header.started,
            "host": header.host,
            "device": header.device,
            "library": header.library,
            "model": None if header.model is None else header.model.name,
            "draft_model": None if header.draft_model is None else header.draft_model.name,
            "workload": msgspec.to_builtins(self._options.workload),
            "config": msgspec.to_builtins(header.config),
            "recording": None if recording is None else str(recording),
            "interrupted": self._is_interrupted,
            "notes": self._notes,
            **result.to_dict(),
        }
        json.dump(document, sys.stdout, allow_nan=False)
        sys.stdout.write("\n")
