"""Recordings that begin and end while the session goes on, and records that the parent adds to it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.live.view import LiveView
from stackscope.analysis.metrics.counts import Steps
from stackscope.analysis.summary import RunSummary
from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import SessionFileError
from stackscope.records import ConfigEvent, Footer, Mark, StepRecord, TrafficEvent
from stackscope.session.format import encode
from stackscope.session.reader import read_session
from stackscope.session.writer import SessionWriter
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.unit.fake_engine import ENGINE, SUMMARY, TRAFFIC
from tests.unit.pump_child import Child, Memory
from tests.unit.record_builders import make_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.records import AnyRecord

STEP = b'{"type":"step","n":0,"start_ns":0,"phases":{}}\n'
REQUEST = b'{"type":"request","id":0,"arrived_ns":0,"finished_ns":1,"finish_reason":"length","prompt_tokens":1}\n'
CONFIG = EngineConfig(model="a.gguf", slots=4)
READY = wire.Ready(
    library="fake", model=SUMMARY, draft=None, config=CONFIG, capabilities=("phases",), context_tokens=512
)


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    if child.pump.is_alive():
        child.end()


def mark(n: int) -> Mark:
    return Mark(at_ns=n, label=f"mark {n}")


class Closing(Memory):
    """A recorder that cannot be closed."""

    def close(self, footer: Footer | None = None) -> None:
        super().close(footer)
        raise SessionFileError("The disk is full.")


class TestAdding:
    def test_an_added_record_is_recorded_and_read_like_any_other(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        child.write(encode(mark(0)))
        assert child.pump.take(10) == encode(mark(0))
        child.pump.inject(mark(1))
        child.write(STEP)
        child.end()
        assert recorder.raw == encode(mark(1)).join((encode(mark(0)), STEP))
        assert child.taken()[:2] == [encode(mark(1)), STEP]

    def test_without_a_recording_it_is_only_read(self, child: Child) -> None:
        child.pump.inject(mark(1))
        assert child.taken() == [encode(mark(1))]

    def test_after_the_end_it_is_dropped(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        child.end()
        n_bytes = len(recorder.raw)
        child.pump.inject(mark(1))
        assert len(recorder.raw) == n_bytes
        (last,) = child.taken()
        assert isinstance(last, bytes)
        assert last.startswith(b'{"type":"footer"')

    def test_lines_stay_whole_whoever_adds_them(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)

        def add(first: int) -> None:
            for n in range(first, first + 100):
                child.pump.inject(mark(n))

        adders = [threading.Thread(target=add, args=(first,)) for first in (1_000, 2_000)]
        for adder in adders:
            adder.start()
        for n in range(100):
            child.write(encode(mark(n)))
        for adder in adders:
            adder.join()
        child.end()
        seen = [record.at_ns for record in recorder.records if isinstance(record, Mark)]
        assert sorted(seen) == [*range(100), *range(1_000, 1_100), *range(2_000, 2_100)]
        for first in (0, 1_000, 2_000):
            own = [n for n in seen if first <= n < first + 100]
            assert own == sorted(own)
        assert b"".join(item for item in child.taken() if isinstance(item, bytes)).startswith(recorder.raw)


class TestRecordings:
    def test_each_footer_counts_what_its_recording_has(self, child: Child) -> None:
        recorders = [Memory(), Memory(), Memory()]
        child.pump.record_to(recorders[0])
        for n, recorder in enumerate(recorders[1:]):
            child.write(STEP * (3 + n), REQUEST)
            assert child.pump.take(10) is not None
            child.pump.record_to(recorder)
        child.write(STEP, wire.encode_message(wire.Done(reason="done")))
        child.end()
        footers = [recorder.footer for recorder in recorders]
        assert [(f.reason, f.steps, f.requests) for f in footers if f is not None] == [
            ("done", 3, 1),
            ("done", 4, 1),
            ("done", 1, 0),
        ]
        last = child.taken()[-1]
        assert isinstance(last, bytes)
        assert b'"steps":8,"requests":2' in last

    def test_what_comes_between_recordings_is_in_none(self, child: Child) -> None:
        first, second = Memory(), Memory()
        child.pump.record_to(first)
        child.write(STEP)
        assert child.pump.take(10) is not None
        child.pump.record_to(None)
        child.write(STEP + encode(mark(1)))
        assert child.pump.take(10) is not None
        child.pump.record_to(second)
        child.write(encode(mark(2)))
        child.end()
        assert first.raw == STEP
        assert [record for record in second.records if isinstance(record, Mark)] == [mark(2)]

    def test_it_begins_with_what_is_in_force(self, child: Child) -> None:
        changed = msgspec.structs.replace(CONFIG, slots=2, model="b.gguf")
        other = msgspec.structs.replace(SUMMARY, name="b")
        child.write(wire.encode_message(READY))
        assert child.pump.take(10) == READY
        change = ConfigEvent(
            at_ns=1, epoch=1, kind="rebuild", config=changed, changes={"slots": (4, 2)}, model=other
        )  # fmt: skip
        refused = ConfigEvent(at_ns=3, epoch=1, kind="refused", changes={"slots": (2, 0)})
        load = TrafficEvent(at_ns=2, concurrency=3)
        child.write(encode(change) + encode(mark(1)) + encode(load) + encode(refused))
        assert child.pump.take(10) is not None
        header = make_header(config=CONFIG, model=SUMMARY, workload={"name": "code", "concurrency": 8})
        now = child.pump.header_now(header)
        assert (now.config, now.model, now.workload) == (changed, other, {"name": "code", "concurrency": 3})
        assert now.started == header.started
        recorder = Memory()
        child.pump.record_to(recorder)
        (event,) = recorder.records
        assert isinstance(event, ConfigEvent)
        assert (event.kind, event.by, event.epoch, event.changes) == ("live", "engine", 1, {})
        assert (event.config, event.model) == (changed, other)

    def test_a_load_that_changed_since_the_header_was_composed_follows_it(self, child: Child) -> None:
        child.write(wire.encode_message(READY), STEP)
        while not isinstance(child.pump.take(10), bytes):
            pass
        child.pump.header_now(make_header())
        child.write(encode(TrafficEvent(at_ns=2, rate=1.5)))
        assert child.pump.take(10) is not None
        recorder = Memory()
        child.pump.record_to(recorder)
        _, load = recorder.records
        assert isinstance(load, TrafficEvent)
        assert (load.concurrency, load.rate) == (None, 1.5)

    def test_one_that_cannot_be_closed_is_told_and_nothing_is_recorded_any_more(self, child: Child) -> None:
        old, new = Closing(), Memory()
        child.pump.record_to(old)
        with pytest.raises(SessionFileError):
            child.pump.record_to(new)
        child.write(STEP)
        child.end()
        assert old.footer is not None
        assert (old.raw, new.raw) == (b"", b"")

    def test_one_that_starts_after_the_end_is_closed_at_once(self, child: Child) -> None:
        child.write(STEP)
        child.end()
        recorder = Memory()
        child.pump.record_to(recorder)
        assert recorder.footer is not None
        assert recorder.footer.steps == 0


def take(engine: EngineProcess, kind: type[AnyRecord], n: int = 1) -> AnyRecord:
    """Read on until so many records of a kind have come; the last of them."""
    while True:
        item = engine.next_item(10)
        assert item is not None
        n -= type(item) is kind
        if n == 0:
            assert not isinstance(item, wire.Message)
            return item


def test_files_from_the_middle_of_a_session_are_whole_sessions(tmp_path: Path) -> None:
    spec = WorkloadSpec(name="unique", concurrency=2, max_tokens=20, requests=10_000)
    paths = [tmp_path / "first.jsonl.zst", tmp_path / "second.jsonl.zst"]
    with EngineProcess.start(EngineConfig(model="fake:step_us=500"), spec, engine=ENGINE, traffic=TRAFFIC) as engine:
        engine.wait_ready()
        engine.begin(engine.compose_header(host="h", device="d"))
        take(engine, StepRecord, 5)
        engine.send(wire.reconfigure({"slots": 4}))
        engine.send(wire.SetConcurrency(concurrency=4))
        take(engine, TrafficEvent)
        for path in paths:
            engine.record_to(SessionWriter(path, engine.header_now()))
            take(engine, StepRecord, 200)
            engine.inject(mark(7))
            engine.record_to(None)
            take(engine, StepRecord, 20)
    n_steps = []
    for path in paths:
        session = read_session(path)
        assert session.truncated is None
        assert session.footer is not None
        assert session.footer.reason == "done"
        assert (session.footer.steps, session.footer.requests) == (len(session.steps), len(session.requests))
        numbers = [step.n for step in session.steps]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] > 0
        assert session.marks == (mark(7),)
        assert session.header.workload["concurrency"] == 4
        assert session.header.config is not None
        assert session.header.config.slots == 4
        assert [event.epoch for event in session.configs] == [1]
        n_steps.append(len(session.steps))
    assert n_steps[1] > 100
    whole_again(paths[1], n_steps[1])


def whole_again(path: Path, n_steps: int) -> None:
    """The summary and the screen take such a file for a session of one configuration."""
    session = read_session(path)
    records = [session.header, *session.configs, *session.steps, *session.requests, session.footer]
    summary, view = RunSummary(), LiveView()
    for record in records:
        assert record is not None
        summary.write(record)
        view.write(record)
    result = summary.result()
    assert (result[Steps], result.epochs, result.ended) == (n_steps, (), "done")
    snapshot = view.snapshot(session.steps[-1].end_ns)
    assert (snapshot.n_steps, snapshot.epoch, snapshot.config, snapshot.events) == (
        n_steps,
        1,
        session.header.config,
        (),
    )
    assert snapshot.concurrency == 4
