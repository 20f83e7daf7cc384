"""The engine's side of the record pipe: batches lines into few writes, and never waits for the reader."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from stackscope.engine import wire
from stackscope.engine.pipes import is_writable
from stackscope.session.format import encode_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.records import AnyRecord

PERIOD_NS: Final = 50_000_000
"""Least time between two writes: at most 20 a second."""

OVERDUE_NS: Final = 200_000_000
"""Age of unsent data at which another thread sends it, because a long forward keeps the engine's own busy."""

MOST_DISPLAY_BYTES: Final = 1 << 20
"""Unsent bytes beyond which display items are dropped."""

MOST_BYTES: Final = 256 << 20
"""Unsent bytes beyond which the engine should rest. The reader has been away for minutes by then (suspended, say)."""

_WRITE_BYTES: Final = 1 << 20


class Outbox:
    """Lines on their way to the parent. Methods may be called from several threads.

    Records are never dropped: what the pipe does not take stays in memory. Display items are, beyond a bound, and the
    reader is told how many. `BrokenPipeError` from any method means that the reader is gone.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        most_bytes: int = MOST_BYTES,
        most_display_bytes: int = MOST_DISPLAY_BYTES,
    ) -> None:
        """`descriptor` is the writing end of a pipe, which becomes non-blocking."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._most_display_bytes = most_display_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._records: list[AnyRecord] = []
        """Not encoded yet: all at once is cheaper."""
        self._gained: list[tuple[int, str]] = []
        self._unsent = bytearray()
        self._oldest_ns: int | None = None
        """When the oldest thing that waits came in. `None`: nothing waits."""
        self._written_ns = clock() - PERIOD_NS
        self.n_dropped = 0
        """Display items dropped so far."""
        self._told_dropped = 0

    def record(self, *records: AnyRecord) -> None:
        """Take records."""
        with self._lock:
            self._records += records
            self._wait_from_now()

    def message(self, message: wire.AnyMessage) -> None:
        """Take a message; its place among the records is kept."""
        with self._lock:
            self._encode()
            self._unsent += wire.encode_message(message)
            self._wait_from_now()

    def show(self, gained: Sequence[tuple[int, str]]) -> None:
        """Take text for display, or drop it when the reader is far behind."""
        with self._lock:
            if len(self._unsent) > self._most_display_bytes:
                self.n_dropped += len(gained)
            else:
                self._gained += gained
                self._wait_from_now()

    @property
    def is_full(self) -> bool:
        """So much waits that the engine should rest until the reader has caught up."""
        return len(self._unsent) > self._most_bytes

    @property
    def is_half_full(self) -> bool:
        """The reader has not caught up enough for the engine to go on after a rest."""
        return 2 * len(self._unsent) > self._most_bytes

    @property
    def due_ns(self) -> int | None:
        """When the next write may happen, on the clock. `None`: nothing waits."""
        return None if self._oldest_ns is None else self._written_ns + PERIOD_NS

    @property
    def wait_ns(self) -> int | None:
        """How long until the next write may happen. `None`: nothing waits."""
        due = self.due_ns
        return None if due is None else max(0, due - self._clock())

    def flush_if_due(self) -> bool:
        """Write, unless nothing waits or the last write was a moment ago; whether it did."""
        if self._oldest_ns is None or self._clock() < self._written_ns + PERIOD_NS:
            return False
        self.flush()
        return True

    def flush_if_overdue(self) -> None:
        """Write what has waited longer than the engine's own thread would let it."""
        oldest = self._oldest_ns
        if oldest is not None and self._clock() - oldest >= OVERDUE_NS:
            self.flush()

    def flush(self) -> None:
        """Write what the pipe takes, in one go."""
        with self._lock:
            self._encode()
            self._write()

    def finish(self) -> None:
        """Write everything, however long the reader takes."""
        while True:
            self.flush()
            if self._oldest_ns is None:
                return
            is_writable(self._descriptor, None)

    def _wait_from_now(self) -> None:
        if self._oldest_ns is None:
            self._oldest_ns = self._clock()

    def _encode(self) -> None:
        if self._records:
            self._unsent += encode_all(self._records)
            self._records.clear()
        if self._gained:
            self._unsent += wire.encode_message(wire.Text(gained=tuple(self._gained)))
            self._gained.clear()

    def _write(self) -> None:
        self._written_ns = self._clock()
        while True:
            if self.n_dropped != self._told_dropped and len(self._unsent) <= self._most_display_bytes:
                self._told_dropped = self.n_dropped
                self._unsent += wire.encode_message(wire.Dropped(display=self.n_dropped))
            if not self._unsent:
                break
            with memoryview(self._unsent) as whole, whole[:_WRITE_BYTES] as part:
                try:
                    n = os.write(self._descriptor, part)
                except BlockingIOError:
                    return
            del self._unsent[:n]
        self._oldest_ns = None
