"""The engine as its parent sees it: a process that is started, asked, listened to and, whatever happens, ended."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from stackscope import __version__
from stackscope.engine import openmp, wire
from stackscope.engine.logring import LogRing
from stackscope.engine.pipes import is_writable
from stackscope.engine.pump import Pump, Recorder
from stackscope.errors import EngineError
from stackscope.records import AnyRecord, Header
from stackscope.session.format import LineDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from stackscope.errors import SessionFileError
    from stackscope.toggles import EngineConfig
    from stackscope.workload.spec import WorkloadSpec

ENGINE: Final = "stackscope.engine.loop:Engine"
TRAFFIC: Final = "stackscope.workload.traffic:Traffic"

PIPE_BYTES: Final = 1 << 20
"""Size of the record pipe, where the system grants it: half a second of the fastest engine."""

STOP_S: Final = 2.0
"""How long an engine that is asked to quit may take; it promises to take less than one second."""

SEND_S: Final = 2.0
"""How long the command pipe may be full. It holds hundreds of commands, and the engine reads them at once."""

Item: TypeAlias = "AnyRecord | wire.AnyMessage"


class EngineProcess:
    """A running engine process. A context manager: leaving it ends the process, and nothing of it is left.

    The order of things: `start`, `wait_ready`, `begin`, then `next_item` or one of the iterators until they end, then
    `stop`. Commands can be sent from any thread and at any time; items are for one reader.
    """

    @classmethod
    def start(
        cls,
        config: EngineConfig,
        workload: WorkloadSpec,
        *,
        record_text: bool = False,
        environ: Mapping[str, str] | None = None,
        engine: str = ENGINE,
        traffic: str = TRAFFIC,
    ) -> EngineProcess:
        """Start the process and have it load what `config` names.

        `environ` is the environment to start from, None for this process's own; `engine` and `traffic` name the classes
        that do the work. Raises `EngineError` when no process can be started, `UsageError` when the environment or a
        path makes no sense.
        """
        environment = child_environment(os.environ if environ is None else environ, config.threads)
        origin_ns = time.monotonic_ns()
        first = wire.Start(config=config, workload=workload, origin_ns=origin_ns, record_text=record_text)
        wire.encode_command(first)  # Refuses what cannot be sent before there is a process.
        process = cls(_spawn(environment, engine, traffic), origin_ns, workload, record_text=record_text)
        process.send(first)
        return process

    def __init__(self, spawned: Spawned, origin_ns: int, workload: WorkloadSpec, *, record_text: bool) -> None:
        self.origin_ns = origin_ns
        """The session's origin on the system's monotonic clock."""
        self.started = datetime.now().astimezone().isoformat(timespec="milliseconds")
        self.log = LogRing()
        """What the process and the native library wrote."""
        self.ready: wire.Ready | None = None
        """What the engine said about itself. `None`: it is still loading."""
        self.header: Header | None = None
        """First record of the session. `None`: it has not begun."""
        self._workload = workload
        self._records_text = record_text
        self._child = spawned.child
        self._commands: int | None = spawned.commands
        self._sending = threading.Lock()
        self._is_stopped = False
        self._decoder = LineDecoder()
        self._items: deque[Item] = deque()
        self._pump = Pump(spawned.child, spawned.records, spawned.logs, self.log, origin_ns=origin_ns)
        self._pump.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_over(self) -> bool:
        """The process has ended; items may be left to read."""
        return self._pump.is_over

    @property
    def is_read(self) -> bool:
        """The process has ended, and nothing is left to read."""
        return not self._items and self._pump.is_read

    @property
    def n_steps(self) -> int:
        return self._pump.n_steps

    @property
    def n_requests(self) -> int:
        return self._pump.n_requests

    @property
    def config(self) -> EngineConfig | None:
        """The configuration in force, as far as records say. `None`: the engine is not ready."""
        return self._pump.config

    @property
    def n_dropped(self) -> int:
        """Display items that were dropped, because this process was slow to read."""
        return self._pump.n_dropped

    @property
    def recording_failure(self) -> SessionFileError | None:
        """Why the recording is not whole. `None`: it is, so far."""
        return self._pump.recording_failure

    def now_ns(self) -> int:
        """This instant on the session's clock."""
        return time.monotonic_ns() - self.origin_ns

    # The order of things

    def wait_ready(self, progress: Callable[[wire.Loading], None] | None = None) -> wire.Ready:
        """Wait until the models are loaded. Raises the `StackscopeError` that prevents it.

        What is logged meanwhile stays to be read, after the header.
        """
        logged: list[Item] = []
        while self.ready is None:
            item = self.next_item()
            if item is None:
                raise EngineError("The engine process ended before it was ready.")
            if isinstance(item, wire.Loading) and progress is not None:
                progress(item)
            elif not isinstance(item, wire.Message):
                logged.append(item)
        self._items.extendleft(reversed(logged))
        return self.ready

    def compose_header(self, *, host: str, device: str) -> Header:
        """The session's header: what the engine said, with the machine as the caller describes it."""
        ready = self.ready
        assert ready is not None, "the engine is not ready"
        return Header(
            stackscope=__version__,
            started=self.started,
            host=host,
            device=device,
            library=ready.library,
            model=ready.model,
            draft_model=ready.draft,
            config=ready.config,
            workload=msgspec.to_builtins(self._workload),
            capabilities=ready.capabilities,
            records_text=self._records_text,
        )

    def begin(self, header: Header, recorder: Recorder | None = None) -> None:
        """Let the traffic begin, and record to `recorder`, as `record_to` does."""
        self.header = header
        if recorder is not None:
            self._pump.record_to(recorder)
        self.send(wire.Begin())

    def header_now(self) -> Header:
        """The header of a recording that begins now: the session's, with what is in force by now."""
        assert self.header is not None, "the session has not begun"
        return self._pump.header_now(self.header)

    def record_to(self, recorder: Recorder | None) -> None:
        """Record from here on, at any time of the session; with None, no longer. Can be called from any thread.

        `recorder` has the header already. From here on it is served from another thread, and closed with a footer when
        another one follows, or none, or when the engine ends, in order or not. A footer counts what that recording has.
        When it fails, the run goes on and `recording_failure` says why. Raises `SessionFileError` when it fails at
        once, or when the one before cannot be closed.
        """
        self._pump.record_to(recorder)

    def inject(self, record: AnyRecord) -> None:
        """Add a record of this process's own to the session: recorded and read like any other. From any thread.

        After the end of the session it is dropped.
        """
        self._pump.inject(record)

    def next_item(self, timeout_s: float | None = None) -> Item | None:
        """The next record or message, waiting for it. `None`: the time has passed, or everything has been read.

        Raises, once everything has been read, what ended the engine: `EngineDiedError` or the `StackscopeError` it met.
        """
        while not self._items:
            queued = self._pump.take(timeout_s)
            if queued is None:
                if self._pump.is_read and self._pump.failure is not None:
                    raise self._pump.failure
                return None
            if isinstance(queued, bytes):
                self._items.extend(self._decoder.feed(queued))
                problem = self._decoder.damage or self._decoder.first_misfit
                if problem is not None:
                    raise EngineError(f"The engine process sent what is no record: {problem}.")
            else:
                if isinstance(queued, wire.Ready):
                    self.ready = queued
                self._items.append(queued)
        return self._items.popleft()

    def items(self) -> Iterator[Item]:
        """Everything that comes, until the engine ends; raises as `next_item`. Can be left and taken up again."""
        while (item := self.next_item()) is not None:
            yield item

    def records(self) -> Iterator[AnyRecord]:
        """The header and all records, as a pipeline source. Raises as `next_item`."""
        assert self.header is not None, "the session has not begun"
        yield self.header
        for item in self.items():
            if not isinstance(item, wire.Message):
                yield item

    def send(self, command: wire.AnyCommand) -> None:
        """Send a command. To an engine that has ended it does nothing: how it ended is what the reader learns.

        Raises `EngineError` when the engine does not take commands, `UsageError` for text that cannot be sent.
        """
        left = memoryview(wire.encode_command(command))
        with self._sending:
            if self._commands is None:
                return
            while left:
                if not is_writable(self._commands, SEND_S):
                    raise EngineError("The engine process does not take commands.", remedy="End the run.")
                try:
                    left = left[os.write(self._commands, left) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End the process: ask it to quit, kill it when that takes too long, and close the recording.

        What it says in the end can still be read. Stopping twice is stopping once.
        """
        self._pump.unlimit()
        if not self._is_stopped:
            self._is_stopped = True
            with suppress(EngineError):  # One that takes no commands is killed in a moment.
                self.send(wire.Quit())
            self._await_end(timeout_s)
        if not self._pump.is_over:
            self._pump.kill()
        self._pump.wait_over()
        self._pump.join()
        with self._sending:
            if self._commands is not None:
                os.close(self._commands)
                self._commands = None

    def _await_end(self, timeout_s: float) -> None:
        """Wait as long as records keep coming: an engine whose reader was away has much to say before it ends."""
        n_bytes = -1
        while not self._pump.is_over and n_bytes != self._pump.n_bytes:
            n_bytes = self._pump.n_bytes
            self._pump.wait_over(timeout_s)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Spawned(msgspec.Struct):
    """A started process and the parent's ends of its pipes."""

    child: subprocess.Popen[bytes]
    commands: int
    records: int
    logs: int


def child_environment(environ: Mapping[str, str], threads: int | None) -> dict[str, str]:
    """The environment of the engine process: `environ`, with what its libraries read before anything of ours runs."""
    environment = openmp.child_environment(environ, threads)
    environment["GGML_NO_BACKTRACE"] = "1"  # Otherwise an abort forks gdb and waits for it.
    # It imports what this process imports, whatever the working folder holds.
    environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return environment


def _spawn(environment: Mapping[str, str], engine: str, traffic: str) -> Spawned:
    ends = [*os.pipe(), *os.pipe(), *os.pipe()]
    commands_in, commands_out, records_in, records_out, logs_in, logs_out = ends
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # A user may have many pipes already; the engine then keeps more to itself.
            fcntl.fcntl(records_out, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(commands_out, False)
    command = [sys.executable, "-P", "-m", "stackscope.engine.worker"]
    command += [f"--commands={commands_in}", f"--records={records_out}", f"--engine={engine}", f"--traffic={traffic}"]
    if threading.current_thread() is threading.main_thread():
        # The kernel looks at the thread that started a process; others end long before their process does.
        command.append(f"--parent={os.getpid()}")
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=logs_out,
            stderr=logs_out,
            pass_fds=(commands_in, records_out),
            env=environment,
            start_new_session=True,  # Ctrl-C and ^Z are for this process, which then decides.
        )
    except OSError as error:
        for end in (commands_out, records_in, logs_in):
            os.close(end)
        raise EngineError(f"The engine process cannot be started: {error.strerror}.") from error
    finally:
        for end in (commands_in, records_out, logs_out):
            os.close(end)
    return Spawned(child, commands_out, records_in, logs_in)
