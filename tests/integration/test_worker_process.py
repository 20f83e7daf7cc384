"""The engine process from outside, with a fake engine in it: the order of things, and commands."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.records import ConfigEvent, Footer, Header, Log, Mark, RequestRecord, StepRecord, TrafficEvent
from stackscope.session.reader import SessionReader
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.integration.worker_support import ENDLESS, begin, of_type, rest_of, run_through, start, until_step
from tests.unit.fake_engine import ENGINE, SUMMARY, TRAFFIC

if TYPE_CHECKING:
    from pathlib import Path


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
