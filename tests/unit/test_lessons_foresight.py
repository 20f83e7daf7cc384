"""What a look says before anything is measured: by a session that ships, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.whatif import predict
from stackscope.experiments.basis import Basis
from stackscope.experiments.lessons.contracts import LessonCell
from stackscope.experiments.lessons.foresight import foresee
from stackscope.experiments.limits import limit_of
from stackscope.records import Header
from stackscope.session.replay import Replay
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from stackscope.toggles import EngineConfig, Setting

LOOK: Final = Path(__file__).parents[2] / "profiles" / "chat.jsonl.zst"
OFFERED: Final = WorkloadSpec(name="chat", requests=24, concurrency=8)


@pytest.fixture(scope="module")
def config() -> EngineConfig:
    header = next(iter(Replay(LOOK).records()))
    assert isinstance(header, Header)
    assert header.config is not None
    return header.config


def test_settings_and_requests_at_a_time_are_predicted_together(config: EngineConfig) -> None:
    reference = LessonCell(key="eight", config=config, workload=OFFERED)
    more = LessonCell(
        key="sixteen",
        config=msgspec.structs.replace(config, slots=16),
        workload=msgspec.structs.replace(OFFERED, concurrency=16, requests=48),
        over="eight",
    )
    drafts = LessonCell(
        key="drafts",
        config=msgspec.structs.replace(config, speculation="draft", synthetic_acceptance=0.0),
        workload=OFFERED,
        over="eight",
    )
    found = foresee(LOOK, reference, [more, drafts])
    assert found.keys() == {"sixteen", "drafts"}
    assert found["sixteen"].changes["concurrency"] == (8, 16)
    assert found["sixteen"].step_gap is not None
    assert found["sixteen"].step_gap.low > 1.0  # More in a forward make it longer.
    assert found["drafts"].tokens is not None
    assert found["drafts"].tokens.high < 1.0  # Drafts of which nothing is accepted bring nothing and cost.


def test_other_traffic_is_not_predicted(config: EngineConfig) -> None:
    reference = LessonCell(key="chat", config=config, workload=OFFERED)
    other = LessonCell(key="code", config=config, workload=WorkloadSpec(name="code", requests=24), over="chat")
    found = foresee(LOOK, reference, [other])["code"]
    assert found.tokens is None
    assert found.reason == "Its traffic is another one."


def test_a_look_that_left_nothing_predicts_nothing(config: EngineConfig, tmp_path: Path) -> None:
    reference = LessonCell(key="chat", config=config, workload=OFFERED)
    same = LessonCell(key="same", config=config, workload=OFFERED, over="chat")
    found = foresee(tmp_path / "none.jsonl.zst", reference, [same])["same"]
    assert found.tokens is None
    assert found.reason == "The first look cannot be read."
    assert limit_of(tmp_path / "none.jsonl.zst").name is None


def test_a_run_has_the_name_that_stood_longest() -> None:
    found = limit_of(LOOK)
    assert found.name is not None or found.sentence
    assert abs(sum(found.shares.values()) - 1.0) < 1e-6
    assert list(found.shares.values()) == sorted(found.shares.values(), reverse=True)


def test_a_vague_prediction_is_told_to_somebody_who_measures_it(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interval that is too wide to act on can still be held against what comes out."""
    monkeypatch.setattr(predict, "VAGUE", 1.0)  # any interval is too wide
    changes: dict[str, tuple[Setting, Setting]] = {
        "speculation": (config.speculation, "draft"),
        "synthetic_acceptance": (config.synthetic_acceptance, 0.0),
    }
    basis = Basis(LOOK, [config], name="The first look")
    refused, told = basis.foresee(changes), basis.foresee(changes, is_vague_told=True)
    assert refused.tokens is None
    assert "Anything between" in refused.reason
    assert told.tokens is not None
    assert told.tokens.low < told.tokens.value < told.tokens.high
    drafts = LessonCell(
        key="drafts",
        config=msgspec.structs.replace(config, speculation="draft", synthetic_acceptance=0.0),
        workload=OFFERED,
        over="eight",
    )
    reference = LessonCell(key="eight", config=config, workload=OFFERED)
    assert foresee(LOOK, reference, [drafts])["drafts"].tokens is not None
