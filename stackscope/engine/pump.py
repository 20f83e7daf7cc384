"""The parent's thread that drains the engine process: its records, its messages, its log, and in the end its status."""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from stackscope.engine import wire
from stackscope.engine.exits import died
from stackscope.engine.in_force import InForce
from stackscope.errors import SessionFileError
from stackscope.records import Footer
from stackscope.session.format import encode, encode_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.engine.logring import LogRing
    from stackscope.records import AnyRecord, Header, Log
    from stackscope.toggles import EngineConfig

TICK_S: Final = 0.1
"""How often the recorder is asked to write what has waited long enough."""

REST_S: Final = 0.1
"""How long steps are left in the pipe, so that several writes of the engine are read at once: each look costs as much
as decoding ten steps."""
FEW_BYTES: Final = 1 << 15
"""What was read at once, beyond which the pipe would fill up meanwhile."""

AWAY_NS: Final = 1_250_000_000
"""A reader that looks so rarely shows nothing of what comes: a screen that is paused."""
AWAY_REST_S: Final = 0.5
AWAY_FEW_BYTES: Final = 1 << 18
"""The same then. What is read after so long is recorded at once, so that a kill costs no more than otherwise."""

MOST_QUEUED_BYTES: Final = 64 << 20
"""Lines, not read yet, beyond which no more are taken from the pipe: minutes of a fast engine."""

EXIT_GRACE_NS: Final = 5_000_000_000
"""How long the process may live on after it has closed its pipe."""

_READ_BYTES: Final = 1 << 20
_STEP: Final = b'{"type":"step"'
_REQUEST: Final = b'{"type":"request"'


class Recorder(Protocol):
    """What writes the session; `session.writer.SessionWriter` is one. Its methods may raise `SessionFileError`."""

    def write_line(self, raw: bytes) -> None:
        """Take whole record lines, each with its newline."""

    def tick(self, rest_ns: int = 0) -> None:
        """Write what has waited long enough, or will have in `rest_ns`, where the next call does not come before."""

    def close(self, footer: Footer | None = None) -> None: ...


Reason: TypeAlias = Literal["done", "interrupted", "engine-died", "error"]

Queued: TypeAlias = "bytes | wire.AnyMessage"
"""A stretch of record lines, or a message."""


class Pump(threading.Thread):
    """Drains one engine process until it has ended, hands record lines to the recorder, and queues all for the reader.

    When the reader stays away so long that the queue is full, the engine keeps what follows, and in the end rests. Log
    and recorder are served meanwhile.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        records: int,
        logs: int,
        ring: LogRing,
        *,
        origin_ns: int,
        most_queued_bytes: int = MOST_QUEUED_BYTES,
    ) -> None:
        """`records` and `logs` are the reading ends of the pipes; they are closed when the thread ends."""
        super().__init__(name="engine pump", daemon=True)
        os.set_blocking(records, False)
        os.set_blocking(logs, False)
        self._child = child
        self._records = records
        self._logs = logs
        self._ring = ring
        self._origin_ns = origin_ns
        self._splitter = wire.LineSplitter()
        self._selector = selectors.DefaultSelector()
        self._changed = threading.Condition()
        self._queue: deque[tuple[Queued, int]] = deque()
        """With the size of each in bytes, as they came."""
        self._n_queued_bytes = 0
        self._most_queued_bytes = most_queued_bytes
        self._is_unlimited = False
        self._hurry = threading.Event()
        self._is_awaited = False
        """The reader waits for what comes next."""
        self._looked_ns = time.monotonic_ns()
        """When it had last taken everything, or waited."""
        self._apart_ns = 0  # From when it last did that before; 0 while it waits.
        self._recording = threading.Lock()
        """Held while lines are handed on: a recording begins and ends between two stretches, and the footer is last."""
        self._recorder: Recorder | None = None
        self._counts_before = (0, 0, 0)
        """Steps, requests and dropped items before the recording began."""
        self._in_force = InForce()
        self._is_concluded = False
        """The last line has been handed on."""
        self._done: wire.Done | None = None
        self._failed: wire.Failed | None = None
        self._is_killed = False
        self.n_bytes = 0
        """Taken from the record pipe so far."""
        self.n_steps = 0
        self.n_requests = 0
        self.n_dropped = 0
        """Display items that the engine dropped, because this thread was slow."""
        self.failure: Exception | None = None
        """Why the session did not end in order. `None`: it did, or goes on."""
        self.recording_failure: SessionFileError | None = None
        """Why the recording is not whole. `None`: it is, so far."""
        self.is_over = False
        """Nothing will be queued any more."""

    # For other threads

    @property
    def is_read(self) -> bool:
        """Nothing is queued, and nothing will be."""
        with self._changed:
            return self.is_over and not self._queue

    def take(self, timeout_s: float | None) -> Queued | None:
        """The next stretch or message. `None`: the time has passed, or all is over and read."""
        with self._changed:
            self._is_awaited = True
            self._changed.wait_for(lambda: self._queue or self.is_over, timeout_s)
            self._is_awaited, now_ns = False, time.monotonic_ns()
            if timeout_s != 0.0:
                self._apart_ns, self._looked_ns = 0, now_ns
            if not self._queue:
                self._apart_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
                return None
            item, size = self._queue.popleft()
            self._n_queued_bytes -= size
            return item

    def wait_over(self, timeout_s: float | None = None) -> None:
        """Wait until nothing will be queued any more, or the time has passed.

        Not by `join`: one that a Ctrl-C interrupts has Python believe that the thread has ended (until Python 3.12).
        """
        with self._changed:
            self._changed.wait_for(lambda: self.is_over, timeout_s)

    def record_to(self, recorder: Recorder | None) -> None:
        """Record from here on, or with None no longer; the recording before is closed with a footer of its own.

        A recording from the start has the log lines of before in it; one that begins later starts with what is in
        force. Raises `SessionFileError` when the old one cannot be closed or the new one written; the new one is not
        kept then.
        """
        with self._recording:
            old, self._recorder = self._recorder, None
            footer = self._footer("done", self._now(), since=self._counts_before)
        if old is not None:
            old.close(footer)
        if recorder is None:
            return
        with self._recording:
            self._counts_before = self._counts()
            is_from_start = self._counts_before == (0, 0, 0) and self._in_force.epoch == 0
            opening = self._ring.lines if is_from_start else self._in_force.opening(self._now())
            if opening:
                recorder.write_line(encode_all(opening))
            self.recording_failure = None
            is_too_late = self._is_concluded
            if not is_too_late:
                self._recorder = recorder
        if is_too_late:
            recorder.close(self._footer("done", self._now(), since=self._counts()))

    @property
    def config(self) -> EngineConfig | None:
        """The configuration in force. `None`: the engine is not ready."""
        return self._in_force.config

    def header_now(self, header: Header) -> Header:
        """The header of a recording that begins now, given that of the session."""
        with self._recording:
            return self._in_force.amend(header)

    def inject(self, record: AnyRecord) -> None:
        """Add a record to the session, from any thread. After the end it is dropped."""
        raw = encode(record)
        with self._recording:
            if not self._is_concluded:
                self._hand_on(raw)

    def unlimit(self) -> None:
        """Take everything from now on, at once, whether or not it is read: the end is near."""
        self._is_unlimited = True
        self._hurry.set()

    def kill(self) -> None:
        """End the process now, on somebody's wish."""
        self._is_killed = True
        self._child.kill()
        self._hurry.set()

    # The thread

    def run(self) -> None:
        """Drain until the process has ended, then close the recording."""
        try:
            try:
                self._drain()
                self._await_exit()
            except Exception as error:  # noqa: BLE001 - the reader gets it, in a thread of its own.
                self.failure = error
                self._child.kill()
                self._child.wait()
            self._conclude()
        except Exception as error:  # noqa: BLE001 - likewise.
            self.failure = self.failure or error
        finally:
            self._selector.close()
            os.close(self._records)
            os.close(self._logs)
            with self._changed:
                self.is_over = True
                self._changed.notify_all()

    def _now(self) -> int:
        return time.monotonic_ns() - self._origin_ns

    def _drain(self) -> None:
        """Serve both pipes until the engine has closed that of the records."""
        self._selector.register(self._logs, selectors.EVENT_READ)
        is_listening = False
        while True:
            has_room = self._is_unlimited or self._n_queued_bytes < self._most_queued_bytes
            if has_room and not is_listening:
                self._selector.register(self._records, selectors.EVENT_READ)
            elif is_listening and not has_room:
                self._selector.unregister(self._records)
            is_listening = has_room
            ready = {key.fd for key, _ in self._selector.select(TICK_S)}
            if self._logs in ready and not self._read_logs():
                self._selector.unregister(self._logs)
            n_bytes = self.n_bytes
            if self._records in ready and not self._read_records():
                return
            may_rest = self.n_steps > 0 and self._logs not in ready
            rest_s = self._rest_s(self.n_bytes - n_bytes) if may_rest else 0.0
            with self._recording:
                self._record(None, rest_ns=round(rest_s * 1e9) if rest_s > REST_S else 0)
            if rest_s > 0:
                self._hurry.wait(rest_s)

    def _rest_s(self, n_bytes: int) -> float:
        """How long to leave in the pipe what comes next, after so many bytes were read at once."""
        apart_ns = max(time.monotonic_ns() - self._looked_ns, self._apart_ns)
        is_away = apart_ns >= AWAY_NS and not self._is_awaited
        rest_s, few_bytes = (AWAY_REST_S, AWAY_FEW_BYTES) if is_away else (REST_S, FEW_BYTES)
        return rest_s if 0 < n_bytes < few_bytes else 0.0

    def _await_exit(self) -> None:
        """Serve the log until the process has ended; one that stays although it has said all is killed."""
        deadline_ns = time.monotonic_ns() + EXIT_GRACE_NS
        while True:
            try:
                self._child.wait(0.02)
                break
            except subprocess.TimeoutExpired:
                self._read_logs()
                if time.monotonic_ns() > deadline_ns:
                    self._child.kill()
        while self._read_logs():
            pass
        self._log(self._ring.finish(at_ns=self._now()))

    def _read_records(self) -> bool:
        """Take what the record pipe holds. False: it has been closed."""
        try:
            chunk = os.read(self._records, _READ_BYTES)
        except BlockingIOError:
            return True
        self.n_bytes += len(chunk)
        for stretch in self._splitter.feed(chunk):
            if stretch.startswith(wire.CONTROL):
                self._receive(stretch)
            else:
                with self._recording:
                    self.n_steps += stretch.count(_STEP)
                    self.n_requests += stretch.count(_REQUEST)
                    self._in_force.feed(stretch)
                    self._hand_on(stretch)
        return bool(chunk)

    def _read_logs(self) -> bool:
        """Take what the log pipe holds. False: there is nothing more now, or ever."""
        try:
            chunk = os.read(self._logs, _READ_BYTES)
        except BlockingIOError:
            return False
        self._log(self._ring.feed(chunk, at_ns=self._now()))
        return bool(chunk)

    def _log(self, lines: Sequence[Log]) -> None:
        if lines:
            with self._recording:
                self._hand_on(encode_all(lines))

    def _receive(self, line: bytes) -> None:
        message = wire.decode_message(line)
        match message:
            case wire.Ready():
                self._in_force.start(message)
            case wire.Done():
                self._done = message
            case wire.Failed():
                self._failed = message
            case wire.Dropped():
                self.n_dropped = message.display
        self._put(message, len(line))

    def _put(self, item: Queued, size: int) -> None:
        with self._changed:
            self._queue.append((item, size))
            self._n_queued_bytes += size
            self._changed.notify()

    def _hand_on(self, raw: bytes) -> None:
        """Lines for the recorder and for the reader. To be called with `_recording` held."""
        self._record(raw)
        self._put(raw, len(raw))

    def _record(self, raw: bytes | None, *, rest_ns: int = 0) -> None:
        """Hand lines to the recorder, or with None have it look at the clock, which it then does not do again for
        `rest_ns`. A recorder that fails is let go.

        To be called with `_recording` held.
        """
        if self._recorder is None:
            return
        try:
            if raw is None:
                self._recorder.tick(rest_ns)
            else:
                self._recorder.write_line(raw)
        except SessionFileError as error:
            self._recorder = None
            self.recording_failure = error

    def _counts(self) -> tuple[int, int, int]:
        return self.n_steps, self.n_requests, self.n_dropped

    def _footer(self, reason: Reason, at_ns: int, *, since: tuple[int, int, int] = (0, 0, 0)) -> Footer:
        steps, requests, dropped = (now - before for now, before in zip(self._counts(), since, strict=True))
        return Footer(at_ns=at_ns, reason=reason, steps=steps, requests=requests, dropped_display=dropped)

    def _conclude(self) -> None:
        """Say how it ended, to the reader and in the recording."""
        reason: Reason
        if self.failure is not None:
            reason = "error"
        elif self._failed is not None:
            self.failure = wire.error_of(self._failed)
            reason = "error"
        elif self._done is not None:
            reason = self._done.reason
        elif self._is_killed:
            reason = "interrupted"
        else:
            self.failure = died(self._child.wait(), [line.text for line in self._ring.lines])
            reason = "engine-died"
        with self._recording:
            recorder, self._recorder = self._recorder, None
            at_ns = self._now()
            last = encode(self._footer(reason, at_ns))
            footer = self._footer(reason, at_ns, since=self._counts_before)
            self._is_concluded = True
        if recorder is not None:
            try:
                recorder.close(footer)
            except SessionFileError as error:
                self.recording_failure = error
        self._put(last, len(last))
