"""An engine of our own as the screen's source and its control: started, listened to, asked, recorded, started again."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.engine import wire
from stackscope.errors import StackscopeError
from stackscope.launch import Failures
from stackscope.records import ConfigEvent, RequestRecord, TrafficEvent
from stackscope.tui.recorded import Recorded
from stackscope.tui.source import Loading, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stackscope.config import RunOptions
    from stackscope.engine.process import EngineProcess, Item
    from stackscope.hardware.sampler import Sampler
    from stackscope.records import AnyRecord, Header, Prediction
    from stackscope.session.writer import SessionWriter
    from stackscope.toggles import EngineConfig, Setting
    from stackscope.workload.check import WorkloadFacts
    from stackscope.workload.spec import WorkloadSpec

LOADING_S: Final = 0.1
"""How often to look how far the engine has got in loading."""

STOP_S: Final = 1.2
"""How long the engine may take to end on leaving; it promises to take less than one second."""
STOP_LOADING_S: Final = 0.3

STILL_LOADING: Final = "The engine is still loading."
NOT_RUNNING: Final = "The engine does not run: start it again first."


class Runner:
    """Runs the engine that `options` describe. See `Source` and `Control` for what the methods are for.

    What the screen asks becomes a wish that the feed's thread grants the next time it looks: the pipe to the engine may
    be full, a disk may be slow, and the screen must not wait for either.
    """

    def __init__(
        self,
        options: RunOptions,
        config: EngineConfig,
        *,
        start: Callable[[EngineConfig, WorkloadSpec], EngineProcess] | None = None,
    ) -> None:
        """`config` has the paths of its models. `start` starts an engine process, the real one where it is `None`."""
        self._options = options
        self._config = config
        """In force, or to start with."""
        self._workload = options.workload
        self._start_process = start or self._start_engine
        self._facts: WorkloadFacts | None = None
        self._process: EngineProcess | None = None
        self._recorder: SessionWriter | None = None
        self._sampler: Sampler | None = None
        self._recording_began_ns = 0
        self._recorded: Path | None = None
        """What was being recorded when the engine ended."""
        self._is_recording_wanted = options.output.record
        self._recording_asks: deque[bool] = deque()
        """What was asked and is not done yet."""
        self._is_text_wanted = False
        self._logged: list[AnyRecord] = []
        """What was logged before there was a header."""
        self._loading: Loading | None = Loading(what="starting the engine", fraction=None)
        self._is_begun = False
        self._is_over = False
        self._failure: StackscopeError | None = None
        self._told_failure: StackscopeError | None = None
        self._told_over = False
        """As they were in the last status."""
        self._recording_failure: StackscopeError | None = None
        self._has_recording_failed = False
        """Nobody has asked for another recording since."""
        self._wishes: deque[Callable[[], None]] = deque()
        self._notices = [*options.remarks]
        self.failures: Final = Failures()
        self.n_served = 0
        """Requests that ran to their end, in the session that runs or ran last."""
        self.n_sessions = 1
        """One more for each time that the engine was started again."""
        self._recorded_to = Recorded(options.output)
        self.recordings: Final = self._recorded_to.paths
        """Files that were written, oldest first."""
        self.wake: Callable[[], None] = lambda: None
        """Called when there is a wish. Set by whoever owns the feed."""
        self.predict: Callable[[Mapping[str, Setting]], Prediction | None] = lambda _changes: None
        """What settings with these new values would do. Set by whoever owns the feed; called by the feed's thread."""

    # The source: for the feed's thread

    def open(self) -> None:
        self._guarded(self._start)

    def take(self) -> Iterator[Item]:
        while self._wishes:
            self._guarded(self._wishes.popleft())
        while self._process is not None and not self._is_over:
            is_read = self._process.is_read  # Only a call after that raises what ended the engine.
            try:
                item = self._process.next_item(0.0)
            except StackscopeError as error:
                self._end(error)
                return
            if item is None:
                if is_read:
                    self._end(None)
                return
            yield from self._received(item)

    def status(self) -> Status:
        self._look_at_recording()
        recording = self.recording
        notices, self._notices = tuple(self._notices), []
        self._told_failure, self._told_over = self._failure, self._is_over
        return Status(
            loading=self._loading,
            recording=recording,
            recorded_ns=0 if recording is None else self.now_ns() - self._recording_began_ns,
            recorded=self._recorded,
            has_recording_failed=self._has_recording_failed,
            failure=self._failure,
            is_over=self._is_over,
            is_between=self.n_sessions > 1 and not self._is_begun and not self._is_over,
            notices=notices,
        )

    def now_ns(self) -> int:
        return 0 if self._process is None else self._process.now_ns()

    @property
    def is_moving(self) -> bool:
        return self._is_begun and not self._is_over

    @property
    def patience_s(self) -> float | None:
        return LOADING_S if self._loading is not None and not self._is_over else None

    @property
    def has_news(self) -> bool:
        return bool(self._notices) or self._failure is not self._told_failure or self._is_over is not self._told_over

    def close(self) -> None:
        if self._process is not None:
            # An engine that has not begun has nothing to say and nothing to lose.
            self._process.stop(STOP_S if self._is_begun else STOP_LOADING_S)
        self._end_sampling()

    @property
    def outcome(self) -> StackscopeError | None:
        """What went wrong, once it is closed. `None`: nothing did."""
        return self._failure or self._recording_failure or self.failures.only()

    # The control: for the screen's thread

    @property
    def is_live(self) -> bool:
        return True

    @property
    def recording(self) -> Path | None:
        recorder = self._recorder
        return None if recorder is None else recorder.path

    @property
    def is_recording_asked(self) -> bool:
        return self._recording_asks[-1] if self._recording_asks else self._recorder is not None

    def reconfigure(self, changes: Mapping[str, Setting]) -> str | None:
        return self._ask(lambda: self._change(changes, wire.reconfigure(changes)))

    def set_concurrency(self, concurrency: int) -> str | None:
        change = {"concurrency": concurrency}
        return self._ask(lambda: self._change(change, wire.SetConcurrency(concurrency=concurrency)))

    def set_rate(self, rate: float) -> str | None:
        return self._ask(lambda: self._change({"rate": rate}, wire.SetRate(rate=rate)))

    def mark(self, label: str) -> str | None:
        return self._ask(lambda: self._send(wire.SetMark(label=label)))

    def cancel(self, request: int) -> str | None:
        return self._ask(lambda: self._send(wire.Cancel(request=request)))

    def record(self, *, is_wanted: bool) -> str | None:
        self._recording_asks.append(is_wanted)
        refusal = self._ask(lambda: self._record(is_wanted=is_wanted))
        if refusal is not None:
            self._recording_asks.pop()
        return refusal

    def show_text(self, *, is_wanted: bool) -> str | None:
        self._is_text_wanted = is_wanted
        return self._ask(lambda: self._send(wire.ShowText(shown=is_wanted)))

    def restart(self) -> str | None:
        if not self._is_begun and not self._is_over:
            return STILL_LOADING
        self._wish(self._restart)
        return None

    def _ask(self, wish: Callable[[], None]) -> str | None:
        """Have something done by an engine that runs."""
        if self._is_over:
            return NOT_RUNNING
        if not self._is_begun:
            return STILL_LOADING
        self._wish(wish)
        return None

    def _wish(self, wish: Callable[[], None]) -> None:
        self._wishes.append(wish)
        self.wake()

    # The feed's thread

    def _guarded(self, wish: Callable[[], None]) -> None:
        """Grant a wish. What fails before there is an engine ends it; later on, the user is told and all goes on."""
        try:
            wish()
        except StackscopeError as error:
            if self._is_begun and not self._is_over:
                self._notices.append(str(error))
            else:
                self._end(error)

    def _send(self, command: wire.AnyCommand) -> None:
        if self._process is not None:
            self._process.send(command)

    def _change(self, changes: Mapping[str, Setting], command: wire.AnyCommand) -> None:
        """Record what a change is predicted to do, and then have it made.

        One that goes back to what is in force while another change is still under way is predicted to do nothing, which
        is true of neither.
        """
        prediction = self.predict(changes)
        if prediction is not None and prediction.changes and self._process is not None:
            # Its time is when the change goes out: making it took some milliseconds.
            self._process.inject(msgspec.structs.replace(prediction, at_ns=self._process.now_ns()))
        self._send(command)

    def _start(self) -> None:
        """Start the engine process, after whatever can be refused without it."""
        from stackscope.workload import check

        if self._facts is None:
            self._facts = check.check(self._workload)
        if self._is_recording_wanted:
            self._recorded_to.check(self._workload, self._config)
        self._process = self._start_process(self._config, self._workload)

    def _start_engine(self, config: EngineConfig, workload: WorkloadSpec) -> EngineProcess:
        from stackscope.engine.process import EngineProcess

        return EngineProcess.start(config, workload, record_text=self._options.output.record_text)

    def _received(self, item: Item) -> Iterator[Item]:
        if isinstance(item, wire.Text):
            yield item
        elif isinstance(item, wire.Message):
            yield from self._told(item)
        elif not self._is_begun:
            self._logged.append(item)
        else:
            if type(item) is RequestRecord:
                self.failures.take(item)
                self.n_served += item.finish_reason not in ("cancelled", "error")
            elif type(item) is ConfigEvent and item.config is not None:
                self._config = item.config
                self._loading = None
            elif type(item) is TrafficEvent:
                self._remember_traffic(item)
            yield item

    def _told(self, message: wire.Message) -> Iterator[Item]:
        match message:
            case wire.Loading(what=what, fraction=fraction):
                # In a rebuild it is over when the change is recorded.
                self._loading = Loading(what=f"loading {Path(what).name}", fraction=fraction)
            case wire.Ready():
                try:
                    yield self._begin(message)
                except StackscopeError as error:
                    self._end(error)
                    return
                yield from self._logged
                self._logged.clear()
            case wire.Refused(text=text, remedy=remedy):
                self._notices.append(text if remedy is None else f"{text} {remedy}")
            case wire.Note(text=text):
                self._notices.append(text)

    def _begin(self, ready: wire.Ready) -> Header:
        """Open the recording, if there is to be one, and let the traffic begin."""
        from stackscope.launch import header_of, start_sampler

        assert self._process is not None
        assert self._facts is not None
        header = header_of(self._process, self._workload, self._facts, notes=self._notices)
        recorder = self._recorded_to.open(header, self._workload, self._config) if self._is_recording_wanted else None
        self._process.begin(header, recorder)
        self._recorder, self._recording_began_ns = recorder, self._process.now_ns()
        self._sampler = start_sampler(self._process, recorder_cpu_ns=self._recorder_cpu_ns)
        if ready.note is not None:
            self._notices.append(ready.note)
        self._config = ready.config
        self._loading = None
        self._is_begun = True
        if self._is_text_wanted:
            self._send(wire.ShowText(shown=True))
        return header

    def _end(self, failure: StackscopeError | None) -> None:
        """The engine has ended, or could not be started."""
        self._failure = failure
        self._loading = None
        self._is_over = True
        self._look_at_recording()
        self._recorded, self._recorder = self.recording, None
        if self._process is not None:
            self._process.stop()
        self._end_sampling()

    def _look_at_recording(self) -> None:
        """Say it when the recording could not go on."""
        failure = None if self._process is None else self._process.recording_failure
        if failure is not None and self._recorder is not None:
            self._recorder = None
            self._recording_failure, self._has_recording_failed = failure, True
            self._notices.append(str(failure))

    def _restart(self) -> None:
        """Another session with the configuration and the load last in force."""
        self._end_sampling()
        if self._process is not None:
            self._process.stop()
        self._process = self._recorder = None
        self._failure = self._recorded = None
        self._has_recording_failed = False
        self._is_begun = self._is_over = False
        self._logged.clear()
        self._loading = Loading(what="starting the engine", fraction=None)
        self.n_served = 0
        self.n_sessions += 1
        self._start()

    def _remember_traffic(self, event: TrafficEvent) -> None:
        if event.concurrency is not None:
            self._workload = msgspec.structs.replace(self._workload, concurrency=event.concurrency)
        if event.rate is not None:
            self._workload = msgspec.structs.replace(self._workload, rate=event.rate)

    def _end_sampling(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.close()

    # Recording

    def _recorder_cpu_ns(self) -> int | None:
        recorder = self._recorder
        return None if recorder is None else recorder.cpu_ns

    def _record(self, *, is_wanted: bool) -> None:
        try:
            if is_wanted:
                self._begin_recording()
            else:
                self._end_recording()
        finally:
            self._recording_asks.popleft()

    def _begin_recording(self) -> None:
        self._is_recording_wanted = True
        self._has_recording_failed = False
        if self._process is None or self._recorder is not None:
            return
        recorder = self._recorded_to.open(self._process.header_now(), self._workload, self._config)
        self._process.record_to(recorder)
        self._recorder, self._recording_began_ns = recorder, self._process.now_ns()

    def _end_recording(self) -> None:
        self._is_recording_wanted = False
        if self._process is not None and self._recorder is not None:
            path = self._recorder.path
            self._recorder = None
            self._process.record_to(None)
            self._notices.append(f"Recorded to {path}")
