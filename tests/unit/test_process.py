"""The parent's side of the engine process: draining without a child's help, the environment, one whole session."""

from __future__ import annotations

import os
import resource
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stackscope.engine import pump, wire
from stackscope.engine.process import EngineProcess, child_environment
from stackscope.errors import EngineDiedError, EngineError
from stackscope.records import Footer, Log, Mark, StepRecord
from stackscope.session.format import LineDecoder, encode
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.unit.fake_engine import ENGINE, TRAFFIC
from tests.unit.pump_child import Child, Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.records import AnyRecord


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child(most_queued_bytes=1_000)
    yield child
    if child.pump.is_alive():
        child.pump.unlimit()
        child.end()


def mark(n: int) -> Mark:
    return Mark(at_ns=n, label="x" * 60)


STEP = b'{"type":"step","n":0,"start_ns":0,"phases":{}}\n'
DONE = wire.encode_message(wire.Done(reason="done"))


class TestPump:
    def test_records_go_to_the_recorder_as_they_came_and_messages_do_not(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        lines = [encode(mark(n)) for n in range(4)]
        child.write(lines[0], lines[1], wire.encode_message(wire.Dropped(display=2)), lines[2], STEP, DONE)
        child.end()
        assert recorder.raw == lines[0] + lines[1] + lines[2] + STEP
        footer = recorder.footer
        assert footer is not None
        assert (footer.reason, footer.steps, footer.requests, footer.dropped_display) == ("done", 1, 0, 2)
        queued = child.taken()
        assert queued[:4] == [
            lines[0] + lines[1],
            wire.Dropped(display=2),
            lines[2] + STEP,
            wire.Done(reason="done"),
        ]
        assert isinstance(queued[4], bytes)
        assert LineDecoder().feed(queued[4]) == [footer]

    def test_a_line_that_was_cut_off_is_left_out(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        child.write(encode(mark(0)), encode(mark(1))[:-5])
        child.end()
        assert recorder.records == [mark(0)]
        assert isinstance(child.pump.failure, EngineDiedError)

    def test_steps_rest_longer_in_the_pipe_while_nobody_looks_and_are_recorded_as_they_are_read(
        self, child: Child, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        monkeypatch.setattr(pump, "AWAY_NS", 3600 * 10**9)  # However busy this machine is.
        until_s = time.monotonic() + 3 * pump.REST_S
        while time.monotonic() < until_s:  # The reader looks all the time.
            child.write(STEP)
            child.pump.take(0.01)
        assert not recorder.rested.is_set()
        monkeypatch.setattr(pump, "AWAY_NS", 0)
        child.write(STEP)
        assert recorder.rested.wait(10)
        begun_s = time.monotonic()
        monkeypatch.setattr(pump, "AWAY_REST_S", 60.0)
        child.write(STEP)
        child.pump.unlimit()  # Whoever ends it does not wait for that.
        child.end()
        assert time.monotonic() - begun_s < 10
        assert recorder.raw.count(b"\n") == child.pump.n_steps > 2

    def test_the_recorder_is_ticked_when_nothing_comes(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        assert recorder.ticked.wait(10)

    def test_log_lines_from_before_the_recording_are_in_it(self, child: Child) -> None:
        os.write(child.logs, b"early\n")
        assert child.pump.take(10) is not None
        recorder = Memory()
        child.pump.record_to(recorder)
        os.write(child.logs, b"late\nunfinished")
        child.end()
        assert [r.text for r in recorder.records if isinstance(r, Log)] == ["early", "late", "unfinished"]

    def test_a_full_queue_stops_the_records_and_neither_the_log_nor_the_ticks(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        for n in count():  # Until the pipe is full, because nobody takes from it any more.
            os.set_blocking(child.records, False)
            try:
                child.write(encode(mark(n)))
            except BlockingIOError:
                break
        n_written = n
        n_recorded = len(recorder.records)
        assert n_recorded < n_written
        recorder.ticked.clear()
        recorder.wrote.clear()
        os.write(child.logs, b"still here\n")
        assert recorder.ticked.wait(10)
        assert recorder.wrote.wait(10)
        assert next(r for r in recorder.records if isinstance(r, Log)).text == "still here"
        marks: list[AnyRecord] = []
        while len(marks) < n_written:
            item = child.pump.take(10)
            assert isinstance(item, bytes)
            marks += [r for r in LineDecoder().feed(item) if isinstance(r, Mark)]
        assert marks == [mark(n) for n in range(n_written)]

    def test_lifting_the_limit_takes_everything(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        os.set_blocking(child.records, False)
        n_written = 0
        for n in count():
            try:
                child.write(encode(mark(n)))
            except BlockingIOError:
                n_written = n
                break
        child.pump.unlimit()
        child.end()
        assert [r for r in recorder.records if isinstance(r, Mark)] == [mark(n) for n in range(n_written)]

    def test_what_is_no_message_ends_the_process_and_is_told(self, child: Child) -> None:
        recorder = Memory()
        child.pump.record_to(recorder)
        child.write(b"!nonsense\n")
        child.pump.join()
        assert recorder.footer is not None
        assert recorder.footer.reason == "error"
        assert child.pump.failure is not None
        assert "JSON" in str(child.pump.failure)
        assert child.process.returncode == -9
        os.close(child.records)
        os.close(child.logs)
        assert child.process.stdin is not None
        child.process.stdin.close()

    def test_a_process_that_stays_after_its_last_word_is_still_waited_for(self, child: Child) -> None:
        child.write(DONE)
        os.close(child.records)
        child.pump.join(0.1)
        assert child.pump.is_alive()
        os.write(child.logs, b"closing\n")
        os.close(child.logs)
        assert child.process.stdin is not None
        child.process.stdin.close()
        child.pump.join()
        assert child.pump.failure is None
        assert [line.text for line in child.ring.lines] == ["closing"]


class TestEnvironment:
    def test_an_abort_forks_no_debugger(self) -> None:
        assert child_environment({}, None)["GGML_NO_BACKTRACE"] == "1"

    def test_it_imports_what_we_import_and_not_what_lies_about(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(sys, "path", ["", "/opt/ours", *sys.path])
        paths = child_environment({"PYTHONPATH": "/elsewhere"}, None)["PYTHONPATH"].split(os.pathsep)
        assert paths == [str(Path.cwd()), "/opt/ours", *sys.path[2:]]
        (tmp_path / "msgspec.py").write_text("raise SystemExit('the wrong msgspec')")
        monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path[2:]])
        monkeypatch.chdir(tmp_path)
        with EngineProcess.start(
            EngineConfig(model="fake:"), WorkloadSpec(name="unique"), engine=ENGINE, traffic=TRAFFIC
        ) as engine:
            assert engine.wait_ready().library == "fake 1.0"


def test_a_whole_session() -> None:
    spec = WorkloadSpec(name="unique", requests=8, concurrency=4, max_tokens=3)
    with EngineProcess.start(EngineConfig(model="fake:"), spec, engine=ENGINE, traffic=TRAFFIC) as engine:
        engine.wait_ready()
        header = engine.compose_header(host="h", device="d")
        engine.begin(header)
        records = list(engine.records())
    assert records[0] == header
    assert [r.n for r in records if isinstance(r, StepRecord)] == list(range(6))  # 8 requests × 3 tokens ÷ 4 at a time
    assert isinstance(records[-1], Footer)


def test_it_runs_beside_a_thousand_open_files() -> None:
    """`select` would fail on either side: the engine's descriptors have the numbers that they have here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_000:
        pytest.skip("this system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_100)]
    try:
        test_a_whole_session()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_cannot_be_started_is_an_error_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(entry.name for entry in Path("/proc/self/fd").iterdir())
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(EngineError, match="cannot be started: No such file"):
        EngineProcess.start(EngineConfig(), WorkloadSpec(name="chat"))
    assert sorted(entry.name for entry in Path("/proc/self/fd").iterdir()) == before
