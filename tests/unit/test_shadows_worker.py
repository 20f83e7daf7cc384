"""What is found out beside the steps leaves the engine process with the other records, to the last."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from stackscope.engine import wire
from stackscope.engine.inbox import Inbox
from stackscope.engine.outbox import Outbox
from stackscope.engine.turn import Turn
from stackscope.engine.worker import Worker
from stackscope.records import DraftShadow, LengthCounts, Phases, PrefixShadow, StepRecord
from stackscope.session.format import decode, encode

if TYPE_CHECKING:
    from stackscope.records import AnyRecord


def shadow(at_ns: int) -> DraftShadow:
    counts = LengthCounts(1, 5, 4, 4, 3, 1, 4, 3)
    return DraftShadow(at_ns=at_ns, epoch=0, source="ngram", requests=1, tokens=7, lengths=(counts,), cpu_ns=9)


class Beside(argparse.Namespace):
    """An engine of two steps that has something to tell beside the first, and something at the end."""

    def __init__(self) -> None:
        super().__init__(in_flight=0, text_is_read=False, interrupt=lambda: None, idle=lambda: None)
        self.n = 0

    def step(self) -> Turn | None:
        self.n += 1
        if self.n > 2:
            return None
        record = StepRecord(n=self.n - 1, start_ns=0, phases=Phases(shadow=3))
        return Turn(record, (), (), (), (shadow(1),) if self.n == 1 else ())

    def drain(self, reason: str) -> list[AnyRecord]:
        assert reason == "cancelled"
        return [PrefixShadow(at_ns=2, epoch=0, requests=1, lookup_tokens=32, hit_tokens=16, useful_hit_tokens=16)]


def test_records_beside_the_steps_are_sent_and_the_last_ones_too() -> None:
    reading, writing = os.pipe()
    try:
        outbox = Outbox(writing)
        traffic = argparse.Namespace(
            start=lambda _: None, due=lambda *_: [], done=True, notes=(), next_arrival_ns=lambda: None
        )
        worker = Worker(Beside(), traffic, Inbox(), outbox, lambda: 0)  # type: ignore[arg-type]
        worker.run()
        outbox.finish()
        lines = os.read(reading, 1 << 16).splitlines()
    finally:
        os.close(reading)
        os.close(writing)
    records = [decode(line) for line in lines if not line.startswith(wire.CONTROL)]
    assert [type(record) for record in records] == [StepRecord, DraftShadow, StepRecord, PrefixShadow]
    assert records[1] == shadow(1)


def test_a_record_with_the_fields_of_before_is_still_read() -> None:
    line = encode(shadow(1)).replace(b"[1,5,4,4,3,1,4,3]", b"[1,5,4,4,3]")
    record = decode(line)
    assert isinstance(record, DraftShadow)
    assert record.lengths == (LengthCounts(1, 5, 4, 4, 3),)
    assert record.lengths[0].tokens == 8
