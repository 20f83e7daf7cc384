"""The engine process from outside, with a fake engine in it: order, commands, ends, and what is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import EngineDiedError, EngineError, ModelFileError, SessionFileError, UsageError, WorkloadError
from stackscope.records import ConfigEvent, Footer, Header, Log, Mark, RequestRecord, StepRecord, TrafficEvent
from stackscope.session.reader import SessionReader
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.integration.worker_support import begin, is_gone_within, rest_of, start, until_step, wait_ms
from tests.unit.fake_engine import ENGINE, SUMMARY, TRAFFIC

if TYPE_CHECKING:
    from stackscope.engine.process import Item

T = TypeVar("T")

ENDLESS: Final = 1_000_000


def of_type(items: list[Item], kind: type[T]) -> list[T]:
    return [item for item in items if isinstance(item, kind)]


def run_through(model: str = "fake:", **workload: object) -> list[Item]:
    """Everything that a session yields once it has begun."""
    with start(model, **workload) as engine:
        begin(engine)
        return rest_of(engine)


def open_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


class TestOrder:
    def test_a_session_from_beginning_to_end(self, tmp_path: Path) -> None:
        path = tmp_path / "s.jsonl.zst"
        with start(requests=20, concurrency=4, max_tokens=8) as engine:
            progress: list[wire.Loading] = []
            ready = engine.wait_ready(progress.append)
            assert ready.model == SUMMARY
            assert progress[0].fraction == 0.0
            assert progress[-1] == wire.Loading(what="fake.gguf", fraction=1.0)
            begin(engine, path)
            records = list(engine.records())
        header, *_, footer = records
        assert isinstance(header, Header)
        assert header.model == SUMMARY
        assert header.workload["requests"] == 20
        steps = [r for r in records if isinstance(r, StepRecord)]
        requests = [r for r in records if isinstance(r, RequestRecord)]
        assert [s.n for s in steps] == list(range(40))  # 20 requests × 8 tokens ÷ 4 at a time
        assert sorted(r.id for r in requests) == list(range(20))
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(steps))
        assert isinstance(footer, Footer)
        assert (footer.reason, footer.steps, footer.requests, footer.dropped_display) == ("done", 40, 20, 0)
        # A session file is a recorded pipe: what was read live is what is in the file.
        recorded = list(SessionReader(path))
        assert recorded[:-1] == records[:-1]
        assert isinstance(recorded[-1], Footer)

    def test_traffic_waits_for_the_beginning(self) -> None:
        with start() as engine:
            engine.wait_ready()
            assert engine.next_item(0.2) is None
            assert not engine.is_over
            engine.begin(engine.compose_header(host="h", device="d"))
            assert isinstance(engine.next_item(), StepRecord)

    def test_arrivals_are_met_when_they_come_and_rests_belong_to_no_step(self) -> None:
        items = run_through("fake:step_us=1000", rate=50.0, requests=20, max_tokens=2)
        steps = of_type(items, StepRecord)
        arrivals = sorted(r.arrived_ns for r in of_type(items, RequestRecord))
        assert [round((b - a) / 1e6) for a, b in pairwise(arrivals)] == [20] * 19  # 1 s ÷ 50
        # 40 steps of 1 ms; had the rests of 18 ms been charged to steps, it would be the 380 ms between the arrivals.
        assert sum(s.duration_ns for s in steps) < 0.5 * (arrivals[-1] - arrivals[0])

    def test_text_of_requests_is_recorded_only_when_asked(self) -> None:
        assert {(r.prompt, r.output) for r in of_type(run_through(), RequestRecord)} == {(None, None)}
        spec = WorkloadSpec(name="unique", requests=2, max_tokens=2)
        config = EngineConfig(model="fake:")
        with EngineProcess.start(config, spec, record_text=True, engine=ENGINE, traffic=TRAFFIC) as engine:
            begin(engine)
            records = list(engine.records())
        assert isinstance(records[0], Header)
        assert records[0].records_text
        assert {(r.prompt, r.output) for r in records if isinstance(r, RequestRecord)} == {("prompt", "fake")}

    def test_what_the_traffic_has_to_say_is_said_once_and_recorded(self) -> None:
        items = run_through(truncate=True, requests=20, concurrency=1)
        texts = ["Job 0 was shortened.", "Job 1 was shortened."]
        assert [n.text for n in of_type(items, wire.Note)] == texts
        assert [r.text for r in of_type(items, Log)] == texts

    def test_reading_can_be_left_and_taken_up_again(self) -> None:
        with start() as engine:
            begin(engine)
            until_step(engine, 5)
            steps = of_type(rest_of(engine), StepRecord)
        assert [s.n for s in steps] == list(range(6, 40))


class TestCommands:
    def test_settings_load_and_marks_change_between_steps(self) -> None:
        with start("fake:step_us=500", requests=ENDLESS, concurrency=2) as engine:
            begin(engine)
            until_step(engine, 10)
            engine.send(wire.reconfigure({"slots": 1}, by="plan"))
            engine.send(wire.SetConcurrency(concurrency=6))
            engine.send(wire.SetMark(label="here"))
            engine.send(wire.reconfigure({"slots": 0}))
            items = [item for item, _ in zip(engine.items(), range(200), strict=False)]
        events = [i for i in items if isinstance(i, ConfigEvent | TrafficEvent | Mark)]
        live, traffic, mark, refused = events
        assert isinstance(live, ConfigEvent)
        assert (live.kind, live.by, live.epoch, live.changes) == ("live", "plan", 1, {"slots": (8, 1)})
        assert isinstance(traffic, TrafficEvent)
        assert traffic.concurrency == 6
        assert isinstance(mark, Mark)
        assert mark.label == "here"
        assert isinstance(refused, ConfigEvent)
        assert (refused.kind, refused.epoch) == ("refused", 1)
        after = items[items.index(live) :]
        assert {(s.epoch, s.slots, len(s.work)) for s in of_type(after, StepRecord)} == {(1, 1, 1)}

    def test_a_command_that_cannot_be_obeyed_is_refused_and_the_run_goes_on(self) -> None:
        with start("fake:step_us=500", requests=ENDLESS) as engine:
            begin(engine)
            engine.send(wire.SetRate(rate=2.0))
            refused = next(i for i in engine.items() if isinstance(i, wire.Refused))
            assert refused == wire.Refused(text="A closed loop has no rate.", remedy="Set its concurrency.")
            engine.send(wire.Reconfigure(changes={"slot": 3}))
            refused = next(i for i in engine.items() if isinstance(i, wire.Refused))
            assert refused.text == "There is no setting slot."
            assert until_step(engine, 100)

    def test_cancelling_ends_one_request(self) -> None:
        with start("fake:step_us=500", requests=ENDLESS, concurrency=2, max_tokens=400) as engine:
            begin(engine)
            until_step(engine, 3)
            engine.send(wire.Cancel(request=1))
            engine.send(wire.Cancel(request=12345))
            record = next(i for i in engine.items() if isinstance(i, RequestRecord))
            assert (record.id, record.finish_reason) == (1, "cancelled")

    def test_a_short_forward_is_not_cut_short_by_a_cancellation(self) -> None:
        with start("fake:step_us=20000", requests=ENDLESS, concurrency=2, max_tokens=400) as engine:
            begin(engine)
            until_step(engine, 2)
            engine.send(wire.Cancel(request=1))
            steps: list[StepRecord] = []
            for item in engine.items():
                if isinstance(item, StepRecord):
                    steps.append(item)
                if isinstance(item, RequestRecord):
                    break
        assert not any(s.aborted for s in steps)

    @pytest.mark.parametrize(
        "command",
        [wire.Cancel(request=1), wire.reconfigure({"kv_type_k": "q8_0"})],
        ids=["cancel", "rebuild"],
    )
    def test_a_long_forward_is_cut_short_for_what_is_urgent(self, command: wire.AnyCommand) -> None:
        with start("fake:step_us=30000000", concurrency=2) as engine:
            begin(engine)
            assert engine.next_item(0.3) is None  # In the forward by now.
            sent = time.monotonic()
            engine.send(command)
            step = engine.next_item()
            assert time.monotonic() - sent < 1.0
        assert isinstance(step, StepRecord)
        assert step.aborted
        assert step.work == ()

    def test_a_live_setting_waits_for_the_end_of_the_step(self) -> None:
        with start("fake:step_us=700000", concurrency=2) as engine:
            begin(engine)
            until_step(engine, 0)
            engine.send(wire.reconfigure({"draft_length": 2}))
            items = [engine.next_item(), engine.next_item()]
        assert [type(i) for i in items] == [StepRecord, ConfigEvent]
        step = items[0]
        assert isinstance(step, StepRecord)
        assert not step.aborted

    def test_text_comes_when_asked_and_stops_again(self) -> None:
        with start("fake:step_us=300,text=3", requests=ENDLESS) as engine:
            begin(engine)
            until_step(engine, 20)
            engine.send(wire.ShowText(shown=True))
            text = next(i for i in engine.items() if isinstance(i, wire.Text))
            assert {t for _, t in text.gained} == {"ééé"}
            engine.send(wire.ShowText(shown=False))
            engine.send(wire.SetMark(label="off"))
            next(i for i in engine.items() if isinstance(i, Mark))
            later = [engine.next_item() for _ in range(200)]
        assert len(of_type([i for i in later if i is not None], wire.Text)) <= 1  # What was on its way.

    def test_commands_to_an_engine_that_has_ended_do_nothing(self) -> None:
        with start(requests=1) as engine:
            begin(engine)
            rest_of(engine)
            engine.send(wire.Cancel(request=0))
            engine.stop()
            engine.send(wire.Cancel(request=0))
            assert rest_of(engine) == []


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

    def test_ctrl_c_does_not_reach_it(self) -> None:
        with start("fake:step_us=300", requests=ENDLESS) as engine:
            begin(engine)
            assert os.getsid(engine.pid) == engine.pid != os.getsid(0)
            os.kill(engine.pid, signal.SIGINT)
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

            def tick(self) -> None: ...

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

            def tick(self) -> None: ...

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
