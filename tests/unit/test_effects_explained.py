"""What ablations are told by recordings: what cells would do, what limits them, and the same as lessons are told."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest

from stackscope import units
from stackscope.engine.allowances import Allowances
from stackscope.experiments import effects_explained
from stackscope.experiments.effects_explained import limits_of, predictions, refusals_of
from stackscope.experiments.lessons.contracts import LessonCell
from stackscope.experiments.lessons.foresight import foresee
from stackscope.experiments.limits import limit_of
from stackscope.records import Header, LayerSummary
from stackscope.session.replay import Replay
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.analysis_builders import attention, dense_model

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


def test_a_prefix_cache_that_a_model_cannot_have_keeps_nothing_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine leaves it out; speculation, which was asked for, it does not."""
    state = LayerSummary(heads=0, kv_heads=0, key_length=0, value_length=0, recurrent_state=1024)
    recurrent = dense_model(layers=[attention(), state])
    monkeypatch.setattr(effects_explained, "summaries", lambda paths: dict.fromkeys(paths, recurrent))
    plain = EngineConfig(model="recurrent.gguf", threads=2)
    assert plain.prefix_cache
    drafting = msgspec.structs.replace(plain, speculation="ngram")
    bare = msgspec.structs.replace(plain, prefix_cache=False)
    refused = refusals_of([plain, drafting, bare], Allowances(2))
    assert list(refused) == [1]
