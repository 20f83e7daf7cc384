"""Killing either side at random moments: nothing survives, nothing hangs, and the recording reads."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.errors import EngineDiedError
from stackscope.records import Footer, StepRecord
from stackscope.session.reader import SessionReader
from tests.integration.worker_support import Parent, begin, is_gone_within, rest_of, start, until_step, wait_ms

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.engine.process import EngineProcess
    from stackscope.records import AnyRecord

KILLS: Final = 20
LAST_SECOND_NS: Final = 1_000_000_000


def steps_of(records: list[AnyRecord]) -> list[StepRecord]:
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert [step.n for step in steps] == list(range(len(steps))), "a step is missing in the middle"
    return steps


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_parent_killed_at_any_moment_takes_the_engine_along_and_loses_a_second_at_most(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    path = tmp_path / "session.jsonl.zst"
    # Steps from the 0.3 ms of the fastest engine up to forwards that are native code and last for seconds.
    model = draw.choice(["fake:step_us=300", "fake:step_us=2000", "fake:step_us=20000", "fake:deaf_us=3000000"])
    parent = Parent(path, model)
    wait_ms(draw.uniform(0, 2_500))
    killed_ns = parent.signal(signal.SIGKILL)
    assert is_gone_within(parent.engine_pid, 1.0)
    assert parent.wait() == (-signal.SIGKILL, "")
    if parent.began_ns is None:
        return
    steps = steps_of(list(SessionReader(path)))
    if "deaf" not in model:
        last_ns = steps[-1].end_ns if steps else parent.began_ns
        assert killed_ns - last_ns < LAST_SECOND_NS


def run_through(engine: EngineProcess) -> None:
    begin(engine)
    rest_of(engine)


@pytest.mark.parametrize("seed", range(KILLS))
def test_an_engine_killed_at_any_moment_is_reported_at_once_with_the_recording_closed(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    path = tmp_path / "session.jsonl.zst"
    with start(
        draw.choice(["fake:", "fake:step_us=300", "fake:step_us=20000", "fake:deaf_us=3000000"]), requests=1_000_000
    ) as engine:
        if draw.random() < 0.2:  # While it loads.
            wait_ms(draw.uniform(0, 200))
            os.kill(engine.pid, signal.SIGKILL)
            with pytest.raises(EngineDiedError, match="SIGKILL"):
                run_through(engine)
            return
        begin(engine, path)
        wait_ms(draw.uniform(0, 300))
        killed_at = time.monotonic()
        killed_ns = engine.now_ns()
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EngineDiedError, match="SIGKILL, perhaps because memory ran out"):
            rest_of(engine)
        assert time.monotonic() - killed_at < 1.0
        records = list(SessionReader(path))
        steps = steps_of(records)
        footer = records[-1]
        assert isinstance(footer, Footer)
        assert footer.steps == engine.n_steps == len(steps)
        assert footer.reason == "engine-died"
        assert footer.at_ns - killed_ns < LAST_SECOND_NS


def test_a_stopped_engine_dies_with_its_parent(tmp_path: Path) -> None:
    parent = Parent(tmp_path / "s.jsonl.zst", "fake:step_us=1000")
    parent.await_begin()
    os.kill(parent.engine_pid, signal.SIGSTOP)
    parent.signal(signal.SIGKILL)
    assert is_gone_within(parent.engine_pid, 1.0)
    parent.wait()


def test_a_suspended_parent_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    parent = Parent(path, "fake:", requests=3_000)
    parent.await_begin()
    parent.signal(signal.SIGSTOP)  # As ^Z does; the engine is in a session of its own and goes on.
    wait_ms(1_500)
    parent.signal(signal.SIGCONT)
    assert parent.wait() == (0, "")
    records = list(SessionReader(path))
    steps_of(records)
    footer = records[-1]
    assert isinstance(footer, Footer)
    assert (footer.reason, footer.requests) == ("done", 3_000)


def test_an_engine_started_by_a_thread_outlives_the_thread() -> None:
    engines = []
    thread = threading.Thread(target=lambda: engines.append(start("fake:step_us=1000", requests=100_000)))
    thread.start()
    thread.join()
    with engines[0] as engine:
        begin(engine)
        assert until_step(engine, 100).n >= 100
