"""Staging for the validation, on the real engine: faults begin when they should, and nothing names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.validate.faults import PERIOD_S
from benchmarks.validate.models import Models
from benchmarks.validate.reading import read
from benchmarks.validate.scenarios import FAULTY, Block, Fault, Scenario, fixed
from benchmarks.validate.stage import stage
from stackscope.errors import EngineError
from stackscope.records import Mark, StepRecord, TrafficEvent

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.validate.reading import Recording

pytestmark = pytest.mark.engine

DELAY_MS: Final = 20.0


def staged(folder: Path, **fields: Any) -> Recording:
    """A scenario on the bundled pair, recorded and read back."""
    given: dict[str, Any] = {"name": "secret", "goal": "naming", "stand": "small", "workload": fixed("code", 32, 64, 1)}
    path = folder / "000.jsonl.zst"
    stage(Scenario(**{**given, **fields}), Models(folder), path)
    return read(path)


def median(values: list[int]) -> float:
    return float(sorted(values)[len(values) // 2])


def test_a_slow_sampler_is_slow_from_the_second_block_on(tmp_path: Path) -> None:
    blocks = (Block(seconds=1.5), Block(seconds=2.5))
    found = staged(tmp_path, engine=f"{FAULTY}SlowSampler", delay_ms=DELAY_MS, blocks=blocks)
    first, second = found.stretches
    before = median([step.phases.sample for step in (*first.warm_up, *first.steps) if step.work])
    after = median([step.phases.sample for step in second.steps if step.work])
    assert before < 0.5 * DELAY_MS * 1e6
    assert DELAY_MS * 1e6 <= after < 2 * DELAY_MS * 1e6 + before
    labels = [record.label for record in found.records if isinstance(record, Mark)]
    assert labels == ["block 0", "block 1"]


def test_a_slow_scheduler_takes_its_time_while_the_batch_is_built(tmp_path: Path) -> None:
    found = staged(tmp_path, engine=f"{FAULTY}SlowScheduler", delay_ms=DELAY_MS, blocks=(Block(seconds=1.5),))
    steps = [record for record in found.records if isinstance(record, StepRecord) and record.work]
    assert median([step.phases.build for step in steps]) >= DELAY_MS * 1e6


def test_settings_change_with_blocks_and_go_back(tmp_path: Path) -> None:
    blocks = (Block(seconds=1.2), Block(seconds=1.2, settings={"threads": 1, "slots": 4}), Block(seconds=1.2))
    found = staged(tmp_path, blocks=blocks, settings={"threads": 2, "slots": 2})
    assert [one.changes for one in found.stretches] == [{}, {"threads": 1, "slots": 4}, {"threads": 2, "slots": 2}]


def test_other_weights_are_named_by_their_stand(tmp_path: Path) -> None:
    blocks = (Block(seconds=1.0), Block(seconds=1.0, settings={"model": "stand:small"}))
    found = staged(tmp_path, blocks=blocks)
    assert found.stretches[1].changes == {}  # the very model that is loaded already


def test_arrivals_follow_what_was_served(tmp_path: Path) -> None:
    blocks = (Block(seconds=1.5), Block(seconds=1.0, rate_factor=2.0))
    found = staged(tmp_path, blocks=blocks, workload=fixed("code", 16, 8, 2))
    [event] = [record for record in found.records if isinstance(record, TrafficEvent)]
    assert event.rate is not None
    served = len(found.stretches[0].requests)
    assert event.rate == pytest.approx(2.0 * served / 1.5, rel=0.2)


def test_an_engine_that_is_stopped_goes_on_afterwards(tmp_path: Path) -> None:
    blocks = (Block(seconds=1.0), Block(seconds=1.0, fault=Fault("stop", 0.9)), Block(seconds=1.5))
    found = staged(tmp_path, blocks=blocks)
    _, stopped, after = found.stretches
    durations = [step.duration_ns for step in (*stopped.warm_up, *stopped.steps)]
    assert sum(ns > 0.8 * 0.9 * PERIOD_S * 1e9 for ns in durations) >= 5
    assert after.steps


def test_what_is_refused_ends_the_staging(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="secret"):
        staged(tmp_path, blocks=(Block(seconds=1.0, settings={"draft_length": 3, "threads": -1}),))
