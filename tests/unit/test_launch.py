"""What runs of the engine have in common: which models, where to record, and what became of the requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import ToggleRefusedError, WorkloadError
from stackscope.launch import Failures, place_of_recording, with_models
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.options import OutputOptions
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.unit.record_builders import make_request

if TYPE_CHECKING:
    from pathlib import Path

STARTED = datetime(2026, 11, 29, 20, 15, 3, tzinfo=UTC)


def test_without_a_model_it_is_the_bundled_pair() -> None:
    config = with_models(EngineConfig())
    assert (config.model, config.draft_model) == (str(bundled_target()), str(bundled_draft()))


def test_a_model_that_is_named_brings_no_draft_model() -> None:
    assert with_models(EngineConfig(model="lab-target-f16")).draft_model is None
    with pytest.raises(ToggleRefusedError, match="needs a draft model"):
        with_models(EngineConfig(model="lab-target-f16", speculation="draft"))


def test_a_recording_is_called_by_its_time_workload_and_model(tmp_path: Path) -> None:
    config = EngineConfig(model="/models/small.gguf")
    place = place_of_recording(
        OutputOptions(record_path=f"{tmp_path}/"), WorkloadSpec(path="my/prompts.jsonl"), config, started=STARTED
    )
    assert place is not None
    assert place.path == tmp_path / "2026-11-29T20-15-03-prompts-small.jsonl.zst"
    nowhere = place_of_recording(OutputOptions(record=False), WorkloadSpec(name="code"), config, started=STARTED)
    assert nowhere is None


def test_failures_are_told_by_how_common_they_are() -> None:
    failures = Failures()
    for n, why in enumerate(["rare", "common", "common", "a", "b", "c"]):
        failures.take(make_request(id=n, finish_reason="error", error=why))
    assert failures.told() == [
        "2 requests failed: common",
        "1 request failed: rare",
        "1 request failed: a",
        "Requests failed for 2 other reasons.",
    ]


def test_only_failures_are_the_failure_of_the_run() -> None:
    failures = Failures()
    assert failures.only() is None
    failures.take(make_request(id=0, finish_reason="error", error="it does not fit."))
    error = failures.only()
    assert isinstance(error, WorkloadError)
    assert error.message == "None of 1 request could run: it does not fit."
    failures.take(make_request(id=1, finish_reason="length"))
    assert failures.only() is None
