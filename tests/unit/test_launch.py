"""What runs of the engine have in common: which models, where to record, and what became of the requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest

from stackscope.engine import wire
from stackscope.engine.devices import Device
from stackscope.engine.openmp import usable_cores
from stackscope.engine.process import EngineProcess
from stackscope.errors import ToggleRefusedError, UsageError, WorkloadError
from stackscope.hardware.gpu_use import EngineUse
from stackscope.launch import Failures, gpu_use_of, header_of, place_of_recording, with_models
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.options import OutputOptions
from stackscope.toggles import EngineConfig
from stackscope.workload.check import WorkloadFacts
from stackscope.workload.spec import WorkloadSpec
from tests.unit.fake_engine import ENGINE, SUMMARY, TRAFFIC
from tests.unit.record_builders import make_request

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.records import Header

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


class Ready:
    """An engine process that is ready, as far as its GPUs go."""

    pid = 17

    def __init__(self, *devices: Device, config: EngineConfig | None = None) -> None:
        self.ready = wire.Ready(
            library="fake", model=SUMMARY, draft=None, config=EngineConfig(), capabilities=(), context_tokens=1,
            devices=devices,
        )  # fmt: skip
        self.config = config

    @property
    def process(self) -> EngineProcess:
        return cast("EngineProcess", self)


CPU = Device(name="CPU", description="A processor", type="cpu")
FIRST = Device(name="CUDA0", description="NVIDIA H100", type="gpu", pci_id="00000000:01:00.0")
SECOND = Device(name="CUDA1", description="", type="gpu", pci_id="0000:02:00.0")
UNTOLD = Device(name="Vulkan0", description="", type="gpu")


def test_the_gpus_that_an_engine_uses_are_those_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    found = gpu_use_of(Ready(FIRST, SECOND, CPU).process)
    assert found == EngineUse(pid=17, offloads=True, pci_ids=("0000:01:00.0", "0000:02:00.0"), visible="1,0")
    switched = Ready(FIRST, SECOND, CPU, config=EngineConfig(split_mode="none", main_gpu=1))
    assert gpu_use_of(switched.process).pci_ids == ("0000:02:00.0",)


def test_a_build_for_the_processor_uses_no_gpu_and_a_silent_engine_may_use_any() -> None:
    assert gpu_use_of(Ready(CPU).process).offloads is False
    assert gpu_use_of(Ready().process).offloads is None
    partly = gpu_use_of(Ready(FIRST, UNTOLD, CPU).process)
    assert (partly.offloads, partly.pci_ids) == (True, None)


def composed(model: str) -> Header:
    """The header of a session with this engine."""
    workload = WorkloadSpec(name="unique")
    with EngineProcess.start(EngineConfig(model=model, threads=1), workload, engine=ENGINE, traffic=TRAFFIC) as process:
        process.wait_ready()
        return header_of(process, workload, WorkloadFacts())


def test_the_header_names_the_gpu_where_there_is_one() -> None:
    assert composed("fake:gpu=0000:1b:00.0").device == "A GPU"
    assert composed("fake:").device not in ("A GPU", "")
    assert composed("fake:").cores == usable_cores()


def test_a_bandwidth_that_is_none_is_refused_before_the_traffic_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_GPU_BANDWIDTH", "fast")
    with pytest.raises(UsageError, match="STACKSCOPE_GPU_BANDWIDTH"):
        composed("fake:")
