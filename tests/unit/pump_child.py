"""A process to drain that says what the test has it say, and a recorder that remembers."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

from stackscope.engine.logring import LogRing
from stackscope.engine.pump import Pump
from stackscope.session.format import LineDecoder
from stackscope.session.writer import FLUSH_NS

if TYPE_CHECKING:
    from stackscope.engine import wire
    from stackscope.records import AnyRecord, Footer


class Child:
    """A process that ends when told to, and the writing ends of its pipes in the hands of the test."""

    def __init__(self, *, most_queued_bytes: int = 1 << 20) -> None:
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        records, self.records = os.pipe()
        logs, self.logs = os.pipe()
        self.ring = LogRing()
        self.pump = Pump(
            self.process, records, logs, self.ring, origin_ns=0, most_queued_bytes=most_queued_bytes
        )  # fmt: skip
        self.pump.start()

    def write(self, *lines: bytes) -> None:
        os.write(self.records, b"".join(lines))

    def end(self) -> None:
        for end in (self.records, self.logs):
            os.close(end)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.pump.join()

    def taken(self) -> list[bytes | wire.AnyMessage]:
        """All that is left in the queue."""
        items = []
        while (item := self.pump.take(0)) is not None:
            items.append(item)
        return items


class Memory:
    """A recorder that keeps what it is given."""

    def __init__(self) -> None:
        self.raw = b""
        self.footer: Footer | None = None
        self.ticked = threading.Event()
        self.wrote = threading.Event()
        self.rested = threading.Event()
        """It was told that the next call comes so late that nothing may wait for it."""

    def write_line(self, raw: bytes) -> None:
        self.raw += raw
        self.wrote.set()

    def tick(self, rest_ns: int = 0) -> None:
        self.ticked.set()
        if rest_ns >= FLUSH_NS:
            self.rested.set()

    def close(self, footer: Footer | None = None) -> None:
        self.footer = footer

    @property
    def records(self) -> list[AnyRecord]:
        return LineDecoder().feed(self.raw)
