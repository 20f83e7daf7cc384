"""Causal probes on the real engine: which steps are delayed, and how much later they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.diagnosis.responses import Responses
from stackscope.engine import delays
from tests.integration.harness import finish, job, lab_config, open_engine, run_jobs

if TYPE_CHECKING:
    from stackscope.engine.loop import Engine

pytestmark = pytest.mark.engine

JOBS = [job(0, range(500, 532), 1_900, ignore_eos=True)]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fiftieth of a second, by three times a usual step: what steps differ by is little beside it."""
    monkeypatch.setattr(delays, "PERIOD_NS", 20_000_000)
    monkeypatch.setattr(delays, "SHARE", 3.0)


def opened(**settings: object) -> Engine:
    # With one thread: a second one that waits for the next forward would fall asleep in so long a delay.
    engine = open_engine(lab_config(slots=1, threads=1, **settings), keep_text=False)
    for one in JOBS:
        engine.submit(one)
    return engine


def test_each_part_lengthens_the_step_by_what_it_is_delayed_by() -> None:
    engine = opened(causal_probes=True, draft_model=None)
    try:
        run = finish(engine)
    finally:
        engine.close()
    responses = Responses()
    responses.add(run.steps)
    found = responses.found()
    assert found.keys() == {"sample", "build", "decode"}
    for response in found.values():
        assert response.lag is not None
        # A forward that begins later finds its caches colder: after `build` that was 6 % of the delay on Zen 4.
        assert response.lag.low <= 1.1
        assert response.lag.high >= 0.95
        assert response.lag.value == pytest.approx(1.0, abs=0.2)
    plain = run_jobs(lab_config(slots=1, threads=1, draft_model=None), JOBS)
    assert run.outputs == plain.outputs
    assert all(step.delay is None for step in plain.steps)


def test_the_delay_is_stamped_where_it_was_made() -> None:
    engine = opened(causal_probes=True, draft_model=None)
    try:
        steps = finish(engine).steps
    finally:
        engine.close()
    delayed = [(step, step.delay) for step in steps if step.delay is not None]
    assert delayed
    for step, delay in delayed:
        assert getattr(step.phases, delay.phase) >= delay.ns
    assert any(step.cpu_ns is not None for step in steps)


def test_they_can_be_switched_while_it_runs() -> None:
    engine = opened(draft_model=None)
    try:
        before = [turn.step for _ in range(200) if (turn := engine.step()) is not None]
        engine.reconfigure(msgspec.structs.replace(engine.config, causal_probes=True))
        between = [turn.step for _ in range(300) if (turn := engine.step()) is not None]
        engine.reconfigure(msgspec.structs.replace(engine.config, causal_probes=False))
        after = finish(engine).steps
    finally:
        engine.close()
    assert [any(step.delay is not None for step in part) for part in (before, between, after)] == [False, True, False]


def test_drafting_is_delayed_where_something_drafts() -> None:
    engine = opened(causal_probes=True, speculation="ngram", draft_model=None)
    try:
        steps = finish(engine).steps
    finally:
        engine.close()
    assert "draft" in {step.delay.phase for step in steps if step.delay is not None}
