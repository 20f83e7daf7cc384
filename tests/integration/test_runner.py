"""The engine behind the screen, with the fake one in its process: started, asked, recorded, dead, started again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from stackscope.config import RunOptions
from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import EngineDiedError, ModelFileError, SessionFileError, WorkloadError
from stackscope.options import OutputOptions
from stackscope.records import (
    ConfigEvent,
    Estimate,
    Header,
    Log,
    Mark,
    Prediction,
    RequestRecord,
    StepRecord,
    TrafficEvent,
)
from stackscope.session.reader import SessionReader, read_session
from stackscope.toggles import EngineConfig
from stackscope.tui.runner import NOT_RUNNING, STILL_LOADING, Runner
from stackscope.workload.spec import WorkloadSpec
from tests.integration.worker_support import DEADLINE_S, wait_ms
from tests.unit.fake_engine import ENGINE, TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from stackscope.engine.process import Item
    from stackscope.tui.source import Status

SLOW: Final = "fake:step_us=2000"


class Driven:
    """A runner whose items are taken here, in place of the feed's thread."""

    def __init__(self, folder: Path, model: str = SLOW, *, record: bool = True, **workload: Any) -> None:
        asked = {"name": "unique", "concurrency": 2, "max_tokens": 8, **workload}
        output = OutputOptions(record=record, record_path=f"{folder}/")
        self.started: list[tuple[EngineConfig, WorkloadSpec]] = []
        self.runner = Runner(
            RunOptions(workload=WorkloadSpec(**asked), output=output), EngineConfig(model=model), start=self._start
        )
        self.items: list[Item] = []
        self.notices: list[str] = []
        self.model = model
        """Of the next start."""

    def _start(self, config: EngineConfig, workload: WorkloadSpec) -> EngineProcess:
        self.started.append((config, workload))
        config = msgspec.structs.replace(config, model=self.model, threads=1)
        return EngineProcess.start(config, workload, engine=ENGINE, traffic=TRAFFIC)

    def look(self) -> Status:
        """Take what has come."""
        self.items += self.runner.take()
        status = self.runner.status()
        self.notices += status.notices
        return status

    def until(self, holds: Callable[[Status], object]) -> Status:
        """Look until something holds of the status, or of what was taken."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds(status := self.look()):
            assert time.monotonic() < deadline, "it has not come about"
            wait_ms(5)
        return status

    def of(self, kind: type[Any]) -> list[Any]:
        return [item for item in self.items if isinstance(item, kind)]

    def running(self) -> Driven:
        """Once steps come."""
        self.runner.open()
        self.until(lambda _: self.of(StepRecord))
        return self


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    made: list[Driven] = []

    def make(model: str = SLOW, **options: Any) -> Driven:
        made.append(Driven(tmp_path, model, **options))
        return made[-1]

    yield make
    for one in made:
        one.runner.close()


def test_it_loads_then_begins_with_a_header(driven: Callable[..., Driven]) -> None:
    one = driven("fake:step_us=2000,load_ms=700")
    first = one.runner.status()
    assert first.loading is not None
    assert first.loading.what == "starting the engine"
    one.runner.open()
    assert one.runner.mark("too early") == STILL_LOADING
    assert one.runner.patience_s is not None
    loading = one.until(lambda status: status.loading is not None and status.loading.fraction == 1.0).loading
    assert loading is not None
    assert loading.what == "loading fake.gguf"
    status = one.until(lambda _: one.of(StepRecord))
    assert isinstance(one.items[0], Header)
    assert status.loading is None
    assert one.runner.patience_s is None
    assert one.runner.is_moving


def test_what_is_asked_shows_in_the_records(driven: Callable[..., Driven]) -> None:
    one = driven().running()
    woken: list[str] = []
    one.runner.wake = lambda: woken.append("!")
    assert one.runner.mark("here") is None
    assert one.runner.reconfigure({"slots": 1}) is None
    assert one.runner.set_concurrency(3) is None
    one.until(lambda _: one.of(TrafficEvent) and one.of(ConfigEvent) and one.of(Mark))
    assert [mark.label for mark in one.of(Mark)] == ["here"]
    assert len(woken) == 3


def test_a_prediction_is_recorded_before_the_change_it_is_of(driven: Callable[..., Driven]) -> None:
    one = driven().running()
    asked: list[dict[str, object]] = []

    def predict(changes: Mapping[str, object]) -> Prediction:
        asked.append(dict(changes))
        return Prediction(at_ns=one.runner.now_ns(), changes={"slots": (8, 1)}, tokens=Estimate(0.5, 0.4, 0.6))

    one.runner.predict = predict
    one.runner.reconfigure({"slots": 1})
    one.runner.set_concurrency(3)
    one.until(lambda _: one.of(TrafficEvent) and one.of(ConfigEvent))
    assert asked == [{"slots": 1}, {"concurrency": 3}]
    kinds = [type(item) for item in one.items if isinstance(item, Prediction | ConfigEvent)]
    assert kinds == [Prediction, ConfigEvent, Prediction] or kinds == [Prediction, Prediction, ConfigEvent]
    path = one.runner.recording
    one.runner.close()
    assert path is not None
    assert [record.tokens for record in SessionReader(path) if isinstance(record, Prediction)] == [
        Estimate(0.5, 0.4, 0.6)
    ] * 2


def test_a_prediction_of_no_change_is_not_recorded(driven: Callable[..., Driven]) -> None:
    """What is asked while a rebuild is under way may be what still is in force."""
    one = driven().running()
    one.runner.predict = lambda _: Prediction(at_ns=one.runner.now_ns(), changes={}, tokens=Estimate(1.0, 1.0, 1.0))
    one.runner.reconfigure({"slots": 1})
    one.until(lambda _: one.of(ConfigEvent))
    assert not one.of(Prediction)


def test_what_makes_no_sense_is_told_and_all_goes_on(driven: Callable[..., Driven]) -> None:
    one = driven().running()
    one.runner.reconfigure({"sluts": 1})
    one.runner.set_rate(3.0)
    n_steps = len(one.of(StepRecord))
    one.until(lambda _: len(one.notices) == 2 and len(one.of(StepRecord)) > n_steps)
    assert one.notices == ["There is no setting sluts.", "A closed loop has no rate. Set its concurrency."]


def test_text_comes_while_it_is_wanted_only(driven: Callable[..., Driven]) -> None:
    one = driven("fake:step_us=2000,text=3")
    one.runner.show_text(is_wanted=True)
    one.running()
    one.until(lambda _: one.of(wire.Text))
    one.runner.show_text(is_wanted=False)
    one.runner.mark("off")
    one.until(lambda _: one.of(Mark))
    one.items.clear()
    one.until(lambda _: len(one.of(StepRecord)) > 20)
    assert one.of(wire.Text) == []


def test_recording_can_be_ended_and_begun_again_in_the_middle(driven: Callable[..., Driven]) -> None:
    one = driven().running()
    first = one.runner.recording
    assert first is not None
    one.runner.record(is_wanted=False)
    assert one.until(lambda status: status.recording is None).recording is None
    assert one.notices == [f"Recorded to {first}"]
    one.runner.record(is_wanted=True)
    second = one.until(lambda status: status.recording is not None).recording
    one.runner.mark("in the second")
    one.until(lambda _: one.of(Mark))
    one.runner.close()
    assert one.runner.recordings == [first, second]
    assert second is not None
    assert [mark.label for mark in read_session(second).marks] == ["in the second"]
    assert read_session(second).truncated is None
    assert read_session(first).marks == ()


def test_without_recording_none_is_made(driven: Callable[..., Driven], tmp_path: Path) -> None:
    one = driven(record=False).running()
    assert one.look().recording is None
    one.runner.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["abort", "kill", "segv"])
def test_a_death_is_told_with_the_recording_whole(driven: Callable[..., Driven], how: str) -> None:
    one = driven(f"fake:step_us=2000,die={how},die_at=30").running()
    path = one.runner.recording
    status = one.until(lambda status: status.is_over)
    assert isinstance(status.failure, EngineDiedError)
    assert (status.recording, status.recorded) == (None, path)
    assert not one.runner.is_moving
    assert one.runner.mark("too late") == NOT_RUNNING
    assert path is not None
    session = read_session(path)
    assert session.footer is not None
    assert session.footer.reason == "engine-died"
    assert isinstance(one.runner.outcome, EngineDiedError)


def test_after_a_death_it_starts_again_with_what_was_in_force(driven: Callable[..., Driven]) -> None:
    one = driven("fake:step_us=2000,die=kill,die_at=150").running()
    one.runner.reconfigure({"slots": 3})
    one.runner.set_concurrency(5)
    one.until(lambda _: one.of(TrafficEvent) and one.of(ConfigEvent))
    one.until(lambda status: status.is_over)
    one.model = SLOW
    one.items.clear()
    assert one.runner.n_sessions == 1
    assert one.runner.restart() is None
    one.until(lambda _: one.of(StepRecord))
    assert isinstance(one.items[0], Header)
    config, workload = one.started[1]
    assert (config.slots, workload.concurrency) == (3, 5)
    assert one.runner.outcome is None
    assert len(set(one.runner.recordings)) == 2
    one.items.clear()
    assert one.runner.restart() is None  # One that runs, but hangs for instance, gives way to another.
    one.until(lambda _: one.of(StepRecord))
    assert isinstance(one.items[0], Header)
    assert len(set(one.runner.recordings)) == 3
    assert one.runner.n_sessions == 3  # What is counted at the end is of the last alone.


def test_a_model_that_cannot_be_loaded_ends_it_before_it_began(driven: Callable[..., Driven], tmp_path: Path) -> None:
    one = driven("fake:refuse=true")
    one.runner.open()
    status = one.until(lambda status: status.is_over)
    assert isinstance(status.failure, ModelFileError)
    assert (status.loading, status.recorded, one.items) == (None, None, [])
    assert isinstance(one.runner.outcome, ModelFileError)
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_refused_without_an_engine_starts_none(driven: Callable[..., Driven], tmp_path: Path) -> None:
    one = driven(path=str(tmp_path / "none.jsonl"), name=None)
    one.runner.open()
    status = one.look()
    assert isinstance(status.failure, WorkloadError)
    assert one.started == []
    assert one.runner.now_ns() == 0


def test_two_quick_presses_are_two_presses(driven: Callable[..., Driven]) -> None:
    one = driven().running()
    runner = one.runner
    states = []
    for _ in range(3):  # As the application asks, without waiting for what became of it.
        runner.record(is_wanted=not runner.is_recording_asked)
        states.append(runner.is_recording_asked)
    assert states == [False, True, False]
    one.until(lambda status: status.recording is None)
    assert len(runner.recordings) == 2
    assert not runner.is_recording_asked


def test_a_disk_that_fills_up_is_told_and_the_run_goes_on(driven: Callable[..., Driven]) -> None:
    one = driven().running()
    path = one.runner.recording
    assert path is not None
    path.unlink()
    status = one.until(lambda _: one.notices)
    assert (status.recording, status.has_recording_failed) == (None, True)
    assert "was deleted" in one.notices[0]
    n_steps = len(one.of(StepRecord))
    one.until(lambda _: len(one.of(StepRecord)) > n_steps)
    one.runner.record(is_wanted=True)
    assert not one.until(lambda status: status.recording is not None).has_recording_failed
    one.runner.close()
    assert isinstance(one.runner.outcome, SessionFileError)


def test_a_run_that_comes_to_its_end(driven: Callable[..., Driven]) -> None:
    one = driven("fake:", requests=6)
    one.runner.open()
    status = one.until(lambda status: status.is_over)
    assert (status.failure, one.runner.outcome) == (None, None)
    assert (len(one.of(RequestRecord)), one.runner.n_served) == (6, 6)
    assert status.recorded is not None


def test_what_the_engine_writes_comes_as_log_lines(driven: Callable[..., Driven]) -> None:
    one = driven("fake:step_us=2000,noise=1").running()
    one.until(lambda _: one.of(Log))
    assert isinstance(one.items[0], Header)


def test_it_is_closed_quickly_at_any_time(driven: Callable[..., Driven]) -> None:
    for model in (SLOW, "fake:load_ms=30000", "fake:deaf_us=30000000"):
        one = driven(model)
        one.runner.open()
        one.look()
        began = time.monotonic()
        one.runner.close()
        assert time.monotonic() - began < 2.0
