"""How the engine process ends, on whose wish or without one, and what is left behind: fake engine, real process."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import EngineDiedError, EngineError, ModelFileError, SessionFileError, UsageError, WorkloadError
from stackscope.records import Footer, Log, RequestRecord, StepRecord
from stackscope.session.reader import SessionReader
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.integration.worker_support import (
    ENDLESS,
    begin,
    is_gone_within,
    of_type,
    open_descriptors,
    rest_of,
    run_through,
    start,
    until_step,
    wait_ms,
)

if TYPE_CHECKING:
    from pathlib import Path


class TestQuitting:
    def test_at_once_cancels_what_is_in_flight_in_less_than_a_second(self) -> None:
        with start("fake:step_us=30000000", requests=ENDLESS, concurrency=3) as engine:
            begin(engine)
            assert engine.next_item(0.3) is None
            asked = time.monotonic()
            engine.send(wire.Quit())
            items = rest_of(engine)
            assert time.monotonic() - asked < 1.0
        assert [r.finish_reason for r in of_type(items, RequestRecord)] == ["cancelled"] * 3
        assert wire.Done(reason="interrupted") in items
        assert of_type(items, Footer)[0].reason == "interrupted"

    def test_in_order_finishes_what_is_in_flight(self) -> None:
        with start("fake:step_us=500", requests=ENDLESS, concurrency=3, max_tokens=100) as engine:
            begin(engine)
            until_step(engine, 10)
            engine.send(wire.Quit(drain=True))
            items = rest_of(engine)
        assert [r.finish_reason for r in of_type(items, RequestRecord)] == ["length"] * 3
        assert of_type(items, Footer)[0].reason == "interrupted"

    def test_a_second_wish_overtakes_the_first(self) -> None:
        with start("fake:step_us=500", requests=ENDLESS, max_tokens=ENDLESS) as engine:
            begin(engine)
            until_step(engine, 10)
            engine.send(wire.Quit(drain=True))
            until_step(engine, 100)
            engine.send(wire.Quit())
            assert {r.finish_reason for r in of_type(rest_of(engine), RequestRecord)} == {"cancelled"}

    def test_while_loading_takes_less_than_a_second(self) -> None:
        with start("fake:load_ms=30000") as engine:
            assert isinstance(engine.next_item(), wire.Loading)
            asked = time.monotonic()
            engine.send(wire.Quit())
            with pytest.raises(EngineError, match="before it was ready"):
                engine.wait_ready()
            assert time.monotonic() - asked < 1.0

    def test_before_the_beginning_takes_no_time(self) -> None:
        with start() as engine:
            engine.wait_ready()
            engine.send(wire.Quit())
            assert [type(i) for i in rest_of(engine)] == [wire.Done, Footer]

    def test_while_resting_takes_no_time(self) -> None:
        with start(rate=0.001, requests=2) as engine:
            begin(engine)
            next(i for i in engine.items() if isinstance(i, RequestRecord))
            asked = time.monotonic()
            engine.send(wire.Quit())
            rest_of(engine)
            assert time.monotonic() - asked < 1.0

    def test_a_forward_that_cannot_be_cut_short_is_left_alone_and_the_log_says_so(self) -> None:
        with start("fake:deaf_us=30000000", concurrency=3) as engine:
            begin(engine)
            assert engine.next_item(0.3) is None
            asked = time.monotonic()
            engine.stop()
            assert time.monotonic() - asked < 1.0
            items = rest_of(engine)
        assert "3 requests in flight have no record" in of_type(items, Log)[-1].text
        assert of_type(items, Footer)[0].reason == "interrupted"

    def test_an_engine_that_does_not_answer_is_killed(self) -> None:
        with start(requests=ENDLESS) as engine:
            begin(engine)
            os.kill(engine.pid, signal.SIGSTOP)
            engine.stop(0.2)
            assert of_type(rest_of(engine), Footer)[0].reason == "interrupted"
            assert is_gone_within(engine.pid, 0)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_to_all_processes_does_not_end_it(self, number: signal.Signals) -> None:
        with start("fake:step_us=300", requests=ENDLESS) as engine:
            begin(engine)
            assert os.getsid(engine.pid) == engine.pid != os.getsid(0)
            os.kill(engine.pid, number)
            assert until_step(engine, 500)


class TestFailures:
    def test_a_model_that_cannot_be_loaded(self) -> None:
        with start("fake:refuse=true") as engine, pytest.raises(ModelFileError) as caught:
            engine.wait_ready()
        assert (caught.value.message, caught.value.remedy) == ("fake.gguf is no model.", "Give another file.")

    def test_a_workload_that_cannot_be_read(self) -> None:
        with start(name=None, path="prompts.jsonl") as engine, pytest.raises(WorkloadError, match="line 3"):
            engine.wait_ready()

    def test_an_error_in_the_middle_ends_the_requests_in_flight_with_it(self, tmp_path: Path) -> None:
        path = tmp_path / "s.jsonl.zst"
        with start("fake:die=error,die_at=5", requests=ENDLESS) as engine:
            begin(engine, path)
            with pytest.raises(EngineError, match="failed with -3") as caught:
                rest_of(engine)
        assert caught.value.remedy == "Use a smaller batch."
        records = list(SessionReader(path))
        assert [r.finish_reason for r in records if isinstance(r, RequestRecord)] == ["error"] * 4
        assert isinstance(records[-1], Footer)
        assert (records[-1].reason, records[-1].steps) == ("error", 5)

    @pytest.mark.parametrize(
        ("death", "match"),
        [
            ("abort", "SIGABRT"),
            ("native_abort", "SIGABRT"),
            ("ggml_abort", "SIGABRT"),
            ("segv", "SIGSEGV"),
            ("kill", "SIGKILL"),
            ("exit", "without saying why"),
            ("raise", "status 70"),
        ],
    )
    def test_a_death_is_told_with_the_last_lines_and_the_recording_is_closed(
        self, death: str, match: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "s.jsonl.zst"
        with start(f"fake:step_us=1000,noise=1,die={death},die_at=200", requests=ENDLESS) as engine:
            begin(engine, path)
            with pytest.raises(EngineDiedError, match=match) as caught:
                rest_of(engine)
        assert caught.value.exit_code == 7
        assert "step 200 line 0" in caught.value.last_lines or death == "raise"
        if death in {"abort", "native_abort"}:
            assert "ggml.c:123: GGML_ASSERT(false) failed" in str(caught.value)
        if death == "ggml_abort":
            assert "ops.cpp:7: GGML_ASSERT(rows > 0) failed" in str(caught.value)
        if death == "raise":
            assert caught.value.last_lines[-1] == "RuntimeError: a bug"
        records = list(SessionReader(path))
        footer = records[-1]
        assert isinstance(footer, Footer)
        assert footer.reason == "engine-died"
        steps = [r for r in records if isinstance(r, StepRecord)]
        assert [s.n for s in steps] == list(range(footer.steps))
        assert footer.steps > 100  # 200 steps of 1 ms: the last fifth of a second may be missing, no more.
        assert any(isinstance(r, Log) and r.text == "step 200 line 0" for r in records)

    def test_an_engine_that_holds_requests_and_runs_none_is_an_error_and_no_endless_wait(self) -> None:
        with start("fake:jammed=true", concurrency=4) as engine:
            begin(engine)
            with pytest.raises(EngineError, match="holds 4 requests and can run none"):
                rest_of(engine)

    def test_a_recording_that_fails_is_let_go_and_the_run_goes_on(self) -> None:
        class Full:
            n_lines = 0

            def write_line(self, raw: bytes) -> None:
                self.n_lines += raw.count(b"\n")
                if self.n_lines > 10:
                    raise SessionFileError("The disk is full.")

            def tick(self, rest_ns: int = 0) -> None: ...

            def close(self, footer: Footer | None = None) -> None:
                raise AssertionError(f"closed with {footer} after it failed")

        with start(requests=200) as engine:
            engine.wait_ready()
            engine.begin(engine.compose_header(host="h", device="d"), Full())
            assert len(of_type(rest_of(engine), RequestRecord)) == 200
            assert isinstance(engine.recording_failure, SessionFileError)

    def test_a_recorder_with_a_bug_ends_the_run_with_that_bug(self) -> None:
        class Broken:
            def write_line(self, raw: bytes) -> None:
                raise ZeroDivisionError(f"{len(raw)} bytes")

            def tick(self, rest_ns: int = 0) -> None: ...

            def close(self, footer: Footer | None = None) -> None: ...

        with start(requests=ENDLESS) as engine:
            engine.wait_ready()
            engine.begin(engine.compose_header(host="h", device="d"), Broken())
            with pytest.raises(ZeroDivisionError):
                rest_of(engine)
        assert is_gone_within(engine.pid, 0)

    def test_an_environment_that_makes_no_sense_starts_nothing(self) -> None:
        before = open_descriptors()
        with pytest.raises(UsageError, match="STACKSCOPE_SPIN"):
            EngineProcess.start(
                EngineConfig(), WorkloadSpec(name="chat"), environ={**os.environ, "STACKSCOPE_SPIN": "lots"}
            )
        assert open_descriptors() == before


class TestLog:
    def test_lines_are_records_in_the_stream_and_in_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "s.jsonl.zst"
        with start("fake:noise=2", requests=4, max_tokens=2) as engine:
            begin(engine, path)
            live = [i.text for i in rest_of(engine) if isinstance(i, Log)]
        expected = [f"step {step} line {line}" for step in range(2) for line in range(2)]
        assert live == expected
        assert [r.text for r in SessionReader(path) if isinstance(r, Log)] == expected
        assert [line.text for line in engine.log.lines] == expected

    def test_a_flood_is_drained_and_bounded(self) -> None:
        with start("fake:noise=500", requests=40) as engine:
            begin(engine)
            items = rest_of(engine)
        assert len(of_type(items, Log)) == 80 * 500  # 40 requests × 8 tokens ÷ 4 at a time
        assert len(engine.log.lines) == 2_000


class TestLeftovers:
    def test_nothing_is_left_open_running_or_unburied(self) -> None:
        run_through(requests=4)
        descriptors, threads = open_descriptors(), threading.active_count()
        for model in ("fake:", "fake:refuse=true", "fake:die=native_abort", "fake:die=kill", "fake:deaf_us=9000000"):
            with start(model, requests=4) as engine:
                try:
                    begin(engine)
                    if "deaf" not in model:
                        rest_of(engine)
                except (EngineError, ModelFileError):
                    pass
            assert is_gone_within(engine.pid, 0)
            with pytest.raises(ChildProcessError):
                os.waitpid(engine.pid, os.WNOHANG)
        assert open_descriptors() == descriptors
        assert threading.active_count() == threads

    def test_leaving_in_the_middle_ends_it(self) -> None:
        pids = []

        def run() -> None:
            with start("fake:step_us=300", requests=ENDLESS) as engine:
                pids.append(engine.pid)
                begin(engine)
                until_step(engine, 10)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run()
        assert is_gone_within(pids[0], 0)

    def test_stopping_twice_is_stopping_once(self) -> None:
        with start() as engine:
            engine.stop()
            engine.stop()

    def test_a_reader_that_stays_away_keeps_neither_engine_nor_recorder_from_their_work(self, tmp_path: Path) -> None:
        path = tmp_path / "s.jsonl.zst"
        with start(requests=2_000, max_tokens=20) as engine:
            begin(engine, path)
            while not engine.is_over:
                wait_ms(20)
        footer = list(SessionReader(path))[-1]
        assert isinstance(footer, Footer)
        assert (footer.reason, footer.requests) == ("done", 2_000)

    def test_an_engine_with_much_to_say_in_the_end_is_heard_out(self, tmp_path: Path) -> None:
        path = tmp_path / "s.jsonl.zst"
        with start(requests=ENDLESS, concurrency=16) as engine:
            begin(engine, path)
            while engine.n_steps < 500:
                wait_ms(5)
            engine.stop(0.05)  # Far less than it takes to write all that is recorded in the meantime.
            steps = of_type(rest_of(engine), StepRecord)
        recorded = [r for r in SessionReader(path) if isinstance(r, StepRecord)]
        assert recorded == steps
        assert [s.n for s in steps] == list(range(len(steps)))
