"""Sources make records, sinks take them; a pipeline joins the two and counts what it dropped and how late it was.

Finite sources (files) are pulled together in the order of time by `Merge`. Live sources push, each from a thread of its
own, into one `FanOut`, which delivers in the order of arrival: a recording must not wait for the slowest source.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from stackscope.records import ConfigEvent, Footer, Header, RequestRecord, StepRecord, TrafficEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stackscope.records import AnyRecord


class Source(Protocol):
    """Anything that produces records: the embedded engine, a replayed file, an attached server, a sampler."""

    def records(self) -> Iterator[AnyRecord]:
        """Yield records in the order of their time, the header first. Ends when the source does."""


class Sink(Protocol):
    """Anything that consumes records: the session writer, the live window, the headless printer."""

    def write(self, record: AnyRecord) -> None: ...

    def close(self) -> None: ...


def time_ns(record: AnyRecord) -> int | None:
    """When a record became known, on the session's clock: a step or request when it ended. `None`: a header."""
    if isinstance(record, Header):
        return None
    if isinstance(record, StepRecord):
        return record.end_ns
    if isinstance(record, RequestRecord):
        return record.finished_ns
    return record.at_ns


class Lateness:
    """How far the records of one stream came after later ones."""

    def __init__(self) -> None:
        self.n_late = 0
        """Records that came after one with a later time."""
        self.worst_ns = 0
        """Most that a record was behind the latest before it."""
        self.newest_ns: int | None = None
        """Latest time so far. `None`: nothing with a time has come."""

    def observe(self, record: AnyRecord) -> None:
        """Note that a record is delivered now."""
        at_ns = time_ns(record)
        if at_ns is None:
            return
        if self.newest_ns is None or at_ns >= self.newest_ns:
            self.newest_ns = at_ns
        else:
            self.n_late += 1
            self.worst_ns = max(self.worst_ns, self.newest_ns - at_ns)


class Merge:
    """A source made of several finite ones, in the order of time.

    The first source is the session itself: its header opens the stream and its footer ends it. Headers and footers of
    the others are left out, because a session has one of each. A source that is itself out of order does not hold up
    the rest and nothing delivered is taken back: its late records follow at once and are counted.
    """

    def __init__(self, first: Source, *others: Source) -> None:
        self._sources: Final = (first, *others)
        self.lateness = Lateness()
        """Of the records delivered so far."""
        self.n_left_out = 0
        """Headers and footers of other sources than the first, so far."""

    def records(self) -> Iterator[AnyRecord]:
        """Yield the records of all sources; of equal times, those of earlier sources first."""
        streams = [source.records() for source in self._sources]
        heads: list[tuple[float, int, AnyRecord]] = []
        footer: Footer | None = None

        def advance(index: int) -> None:
            for record in streams[index]:
                if index > 0 and isinstance(record, Header | Footer):
                    self.n_left_out += 1
                    continue
                at_ns = time_ns(record)
                heapq.heappush(heads, (float("-inf") if at_ns is None else at_ns, index, record))
                return

        for index in range(len(streams)):
            advance(index)
        while heads:
            _, index, record = heapq.heappop(heads)
            if isinstance(record, Footer):
                footer = record
            else:
                self.lateness.observe(record)
                yield record
            advance(index)
        if footer is not None:
            yield footer


def in_order(records: Iterable[AnyRecord], *, hold_ns: int, lateness: Lateness | None = None) -> Iterator[AnyRecord]:
    """Put a stream into the order of time, as far as its disorder stays below `hold_ns`.

    A record is held until one at least `hold_ns` later has come; one that comes later still is passed on at once.
    Headers are not held, and a footer comes last. `lateness` notes what is late even so.
    """
    held: list[tuple[int, int, AnyRecord]] = []
    newest_ns: int | None = None
    footer: Footer | None = None
    for arrival, record in enumerate(records):
        at_ns = time_ns(record)
        if at_ns is None:
            yield record
            continue
        if isinstance(record, Footer):
            footer = record
            continue
        newest_ns = at_ns if newest_ns is None else max(newest_ns, at_ns)
        heapq.heappush(held, (at_ns, arrival, record))
        while held and held[0][0] <= newest_ns - hold_ns:
            yield _observed(heapq.heappop(held)[2], lateness)
    while held:
        yield _observed(heapq.heappop(held)[2], lateness)
    if footer is not None:
        yield footer


def _observed(record: AnyRecord, lateness: Lateness | None) -> AnyRecord:
    if lateness is not None:
        lateness.observe(record)
    return record


def pump(source: Source, sink: Sink) -> None:
    """Deliver everything that a source has, then close the sink, also when the source fails."""
    try:
        for record in source.records():
            sink.write(record)
    finally:
        sink.close()


@dataclass(frozen=True)
class SinkFailure:
    """A sink that failed and gets no more records."""

    sink: Sink
    error: Exception
    n_delivered: int
    """Records it had been given before, the failing one left out."""


class FanOut:
    """A sink that passes each record to several, one at a time, in the order of arrival; any thread may write.

    A sink that raises is left out from then on and the others go on. Its failure is kept in `failures` and handed to
    `on_failure`, once, from the thread that met it.
    """

    def __init__(self, sinks: Sequence[Sink], *, on_failure: Callable[[SinkFailure], None]) -> None:
        self._sinks: Final = tuple(sinks)
        self._active: Final = list(sinks)
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._is_closed = False
        self.n_delivered = 0
        """Records taken so far."""
        self.lateness = Lateness()
        """Of the records taken so far."""
        self.failures: Final[list[SinkFailure]] = []

    def write(self, record: AnyRecord) -> None:
        """Pass a record to every sink that still works."""
        with self._lock:
            new_failures = self._tried(lambda sink: sink.write(record))
            self.n_delivered += 1
            self.lateness.observe(record)
        self._report(new_failures)

    def close(self) -> None:
        """Close every sink; those that failed too, whose second complaint is not reported."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for failure in self.failures:
                with suppress(Exception):  # It has failed before, and said so.
                    failure.sink.close()
            new_failures = self._tried(lambda sink: sink.close())
        self._report(new_failures)

    def _tried(self, deliver: Callable[[Sink], None]) -> list[SinkFailure]:
        new_failures: list[SinkFailure] = []
        for sink in tuple(self._active):
            try:
                deliver(sink)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one sink must not cost the others
                self._active.remove(sink)
                new_failures.append(SinkFailure(sink, error, self.n_delivered))
        self.failures.extend(new_failures)
        return new_failures

    def _report(self, new_failures: list[SinkFailure]) -> None:
        for failure in new_failures:
            self._on_failure(failure)


class DisplayQueue:
    """A sink between the pipeline and a display that looks now and then: it holds what came since the last look.

    When `capacity` records wait, the oldest goes and is counted: a display shows the present, and the recording, which
    loses nothing, is another sink. What a display could not do without is never dropped: headers, footers and changes
    of configuration or load, which are few.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("a queue holds at least one record")
        self._capacity = capacity
        self._kept: list[AnyRecord] = []
        self._waiting: deque[AnyRecord] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self.n_dropped = 0
        """Records dropped so far because nobody took them in time."""

    def write(self, record: AnyRecord) -> None:
        """Take one record, dropping the oldest if there is no room."""
        with self._changed:
            self._waiting.append(record)
            while len(self._waiting) > self._capacity:
                oldest = self._waiting.popleft()
                if isinstance(oldest, _ESSENTIAL):
                    # Everything kept is older than everything waiting, so the order stays.
                    self._kept.append(oldest)
                else:
                    self.n_dropped += 1
            self._changed.notify()

    def close(self) -> None:
        """Let a waiting `take` return; what is held can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_finished(self) -> bool:
        """Closed, and everything taken."""
        with self._changed:
            return self._is_closed and not self._waiting and not self._kept

    def take(self, *, timeout_s: float = 0.0) -> list[AnyRecord]:
        """Everything held, in order of arrival; waits up to `timeout_s` while there is nothing and more can come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._kept or self._is_closed, timeout_s)
            taken = [*self._kept, *self._waiting]
            self._kept.clear()
            self._waiting.clear()
            return taken


_ESSENTIAL: Final = (Header, Footer, ConfigEvent, TrafficEvent)
