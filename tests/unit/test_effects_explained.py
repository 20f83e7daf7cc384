"""What ablations are told by recordings: what cells would do, what limits them, and the same as lessons are told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope import units
from stackscope.experiments.effects_explained import limits_of, predictions
from stackscope.experiments.lessons.contracts import LessonCell
from stackscope.experiments.lessons.foresight import foresee
from stackscope.experiments.limits import limit_of
from stackscope.records import Header
from stackscope.session.replay import Replay
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from stackscope.toggles import EngineConfig

PROFILES: Final = Path(__file__).parents[2] / "profiles"
CHAT: Final = PROFILES / "chat.jsonl.zst"
SHADOWED: Final = PROFILES / "causes" / "healthy.jsonl.zst"


@pytest.fixture(scope="module")
def baseline() -> EngineConfig:
    header = next(iter(Replay(CHAT).records()))
    assert isinstance(header, Header)
    assert header.config is not None
    return header.config


def test_lessons_and_ablations_foresee_the_same(baseline: EngineConfig) -> None:
    more = msgspec.structs.replace(baseline, slots=2 * baseline.slots)
    workload = WorkloadSpec(name="chat", requests=24)
    here, there = (LessonCell(key=key, config=c, workload=workload) for key, c in (("a", baseline), ("b", more)))
    found = predictions([CHAT], {7: more}, baseline)[7]
    assert found.step_gap is not None or found.tokens is not None
    assert foresee(CHAT, here, [there]) == {"b": found}


def test_shadows_of_further_runs_are_added(baseline: EngineConfig) -> None:
    """The first run had none; those of the other count as if they had been found at its end."""
    drafts = msgspec.structs.replace(baseline, speculation="ngram")
    alone, together = (predictions(runs, {1: drafts}, baseline)[1] for runs in ([CHAT], [CHAT, SHADOWED]))
    assert (alone.tokens, together.at_ns) == (None, alone.at_ns)
    assert "neither made nor shadowed" in alone.reason
    assert together.tokens is not None


def test_a_baseline_that_cannot_be_read_predicts_nothing(baseline: EngineConfig, tmp_path: Path) -> None:
    more = msgspec.structs.replace(baseline, slots=16)
    found = predictions([tmp_path / "none.jsonl.zst", CHAT], {1: more}, baseline)[1]
    assert (found.tokens, found.reason) == (None, "The baseline's recording cannot be read.")
    assert found.changes == {"slots": (baseline.slots, 16)}


@pytest.mark.parametrize("name", ["weight-bandwidth", "queueing", "healthy"])
def test_the_limit_of_a_run_in_words(name: str, tmp_path: Path) -> None:
    recording = PROFILES / "causes" / f"{name}.jsonl.zst"
    limit, words = limit_of(recording), limits_of(recording)
    if limit.name is None:
        assert words is None
    else:
        assert limit.share is not None
        assert words == f"{limit.name} {units.percent(limit.share)}"
    assert limits_of(tmp_path / "none.jsonl.zst") is None
