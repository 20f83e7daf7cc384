"""The engine's side of the record pipe: few writes, no waiting, no record lost, display dropped and counted."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

import pytest

from stackscope.engine import wire
from stackscope.engine.outbox import OVERDUE_NS, PERIOD_NS, Outbox
from stackscope.records import Mark
from stackscope.session.format import LineDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.records import AnyRecord


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ns = 10**12

    def __call__(self) -> int:
        return self.ns


class Pipe:
    """A pipe of one page, so that it is soon full."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.size = fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self.reading, False)
        self.n_reads = 0

    def read(self) -> bytes:
        """All that is in the pipe."""
        got = b""
        while True:
            try:
                chunk = os.read(self.reading, 1 << 20)
            except BlockingIOError:
                return got
            if not chunk:
                return got
            got += chunk

    def close(self) -> None:
        for end in (self.reading, self.writing):
            if end >= 0:
                os.close(end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def mark(n: int) -> Mark:
    return Mark(at_ns=n, label="x" * 100)


def records_in(stream: bytes) -> list[AnyRecord]:
    decoder = LineDecoder()
    return [r for s in wire.split(stream) if not s.startswith(wire.CONTROL) for r in decoder.feed(s)]


def messages_in(stream: bytes) -> list[wire.AnyMessage]:
    return [wire.decode_message(s) for s in wire.split(stream) if s.startswith(wire.CONTROL)]


def test_a_write_comes_at_most_every_fiftieth_of_a_second(pipe: Pipe) -> None:
    clock = Clock()
    outbox = Outbox(pipe.writing, clock=clock)
    n_writes = 0
    for n in range(1_000):  # A step each millisecond.
        clock.ns += 1_000_000
        outbox.record(mark(n))
        outbox.flush_if_due()
        n_writes += bool(pipe.read())
    assert n_writes == 20  # 1 s ÷ 50 ms


def test_nothing_waits_longer_than_a_period_when_the_engine_asks_often(pipe: Pipe) -> None:
    clock = Clock()
    outbox = Outbox(pipe.writing, clock=clock)
    assert outbox.due_ns is None
    assert outbox.wait_ns is None
    outbox.record(mark(0))
    assert outbox.wait_ns == 0  # The first is due at once.
    outbox.flush_if_due()
    outbox.record(mark(1))
    assert outbox.wait_ns == PERIOD_NS
    clock.ns += PERIOD_NS - 1
    outbox.flush_if_due()
    assert records_in(pipe.read()) == [mark(0)]
    clock.ns += 1
    outbox.flush_if_due()
    assert records_in(pipe.read()) == [mark(1)]
    assert outbox.wait_ns is None


def test_what_a_long_forward_holds_up_is_overdue(pipe: Pipe) -> None:
    clock = Clock()
    outbox = Outbox(pipe.writing, clock=clock)
    outbox.record(mark(0))
    clock.ns += OVERDUE_NS - 1
    outbox.flush_if_overdue()
    assert pipe.read() == b""
    clock.ns += 1
    outbox.flush_if_overdue()
    assert records_in(pipe.read()) == [mark(0)]
    outbox.flush_if_overdue()
    assert pipe.read() == b""


def test_records_and_messages_keep_their_order(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing)
    outbox.record(mark(0), mark(1))
    outbox.message(wire.Done(reason="done"))
    outbox.record(mark(2))
    outbox.flush()
    stretches = wire.split(pipe.read())
    assert stretches == [
        encode(mark(0)) + encode(mark(1)),
        wire.encode_message(wire.Done(reason="done")),
        encode(mark(2)),
    ]


def test_a_full_pipe_neither_blocks_nor_loses(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing)
    sent = [mark(n) for n in range(500)]  # 500 × about 140 bytes, into 4,096.
    outbox.record(*sent)
    outbox.flush()
    got = pipe.read()
    assert len(got) == pipe.size
    while outbox.due_ns is not None:
        outbox.flush()
        got += pipe.read()
    assert records_in(got) == sent


def test_display_is_dropped_when_the_reader_is_behind_and_the_number_is_told(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing, most_display_bytes=10_000)
    outbox.show([(1, "shown")])
    outbox.record(*[mark(n) for n in range(200)])  # Over 20,000 bytes.
    outbox.flush()
    outbox.show([(1, "lost"), (2, "lost")])
    outbox.show([(1, "lost")])
    got = b""
    while outbox.due_ns is not None:
        got += pipe.read()
        outbox.flush()
    got += pipe.read()
    assert messages_in(got) == [wire.Text(gained=((1, "shown"),)), wire.Dropped(display=3)]
    assert len(records_in(got)) == 200
    outbox.show([(1, "shown again")])
    outbox.flush()
    assert messages_in(pipe.read()) == [wire.Text(gained=((1, "shown again"),))]


def test_it_is_full_beyond_its_bound_and_half_full_down_to_half_of_it(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing, most_bytes=50_000)
    outbox.record(*[mark(n) for n in range(100)])
    outbox.flush()
    assert not outbox.is_full
    outbox.record(*[mark(n) for n in range(500)])
    outbox.flush()
    assert outbox.is_full
    while outbox.is_half_full:
        pipe.read()
        outbox.flush()
    assert not outbox.is_full
    assert outbox.due_ns is not None


def test_finishing_waits_for_the_reader_and_leaves_nothing(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing, most_display_bytes=1_000)
    outbox.record(*[mark(n) for n in range(1_000)])
    outbox.flush()
    outbox.show([(1, "lost")])
    os.set_blocking(pipe.reading, True)
    got: list[bytes] = []

    def read() -> None:
        while chunk := os.read(pipe.reading, 1 << 16):
            got.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    outbox.finish()
    os.close(pipe.writing)
    pipe.writing = -1
    reader.join()
    assert len(records_in(b"".join(got))) == 1_000
    assert messages_in(b"".join(got)) == [wire.Dropped(display=1)]


def test_a_reader_that_is_gone_is_an_error(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing)
    os.close(pipe.reading)
    pipe.reading = -1
    outbox.record(mark(0))
    with pytest.raises(BrokenPipeError):
        outbox.flush()


def test_threads_that_record_and_flush_at_once_lose_nothing(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing)
    is_done = threading.Event()
    got: list[bytes] = []

    def flush() -> None:
        while not is_done.is_set():
            outbox.flush()

    def read() -> None:
        while not is_done.is_set():
            got.append(pipe.read())

    others = [threading.Thread(target=flush), threading.Thread(target=read)]
    for thread in others:
        thread.start()
    for n in range(5_000):
        outbox.record(mark(n))
    while outbox.due_ns is not None:
        outbox.flush()
    is_done.set()
    for thread in others:
        thread.join()
    got.append(pipe.read())
    assert records_in(b"".join(got)) == [mark(n) for n in range(5_000)]
