"""Things that went wrong for others, a test for each, by their numbers in the list: model files, backend, embedding."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from llama_cpp import llama_cpp as low

from stackscope.engine import llama, sizing, wire
from stackscope.engine.process import EngineProcess
from stackscope.errors import LibraryError, ModelFileError
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.records import Header, Log, RequestRecord, StepRecord
from stackscope.session.reader import SessionReader
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length, WorkloadSpec
from tests.integration.cli_support import ROOT, SMALL, STACKSCOPE, run_json, start, until
from tests.integration.harness import finish, job, lab_config, open_engine, run_jobs
from tests.integration.worker_support import begin, wait_ms
from tests.unit.gguf_builder import keys, write_gguf

if TYPE_CHECKING:
    from stackscope.engine.process import Item

pytestmark = pytest.mark.engine


@pytest.fixture
def native_loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that the inference library was asked to load."""
    asked: list[str] = []
    load = low.llama_model_load_from_file

    def watched(path: bytes, params: Any) -> Any:
        asked.append(os.fsdecode(path))
        return load(path, params)

    monkeypatch.setattr(low, "llama_model_load_from_file", watched)
    return asked


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<html>", "is a web page"),
        (b"", "is empty"),
        (b"ggjt", "in a format that llama.cpp read before August 2023"),
        (None, "is cut"),
    ],
    ids=["html", "nothing", "ggjt", "cut at 90 %"],
)
def test_case_23_files_that_are_no_model_are_told_apart_before_any_native_load(
    content: bytes | None, says: str, tmp_path: Path, native_loads: list[str]
) -> None:
    whole = bundled_target().read_bytes()
    path = tmp_path / "model.gguf"
    path.write_bytes(whole[: len(whole) * 9 // 10] if content is None else content)
    for wrong in ({"model": str(path)}, {"draft_model": str(path)}):
        with pytest.raises(ModelFileError, match=says) as caught:
            open_engine(lab_config(**wrong))
        assert caught.value.remedy is not None
    assert native_loads == []


@pytest.mark.parametrize(
    ("architecture", "says"), [("clip", "mmproj"), ("bert", "embedding model"), ("t5", "encoder-decoder model")]
)
def test_case_25_models_of_other_kinds_are_refused_by_their_architecture(
    architecture: str, says: str, tmp_path: Path, native_loads: list[str]
) -> None:
    path = write_gguf(tmp_path / "model.gguf", keys(architecture))
    with pytest.raises(ModelFileError, match=says):
        open_engine(lab_config(model=str(path)))
    assert native_loads == []


@pytest.mark.skipif(llama.supports_offload(), reason="this build can offload layers")
def test_case_26_layers_that_stay_on_the_cpu_are_told() -> None:
    document = run_json(*SMALL, "--requests", "1", "--max-tokens", "2", "--no-record", "--gpu-layers", "99")
    assert document["notes"] == [
        "This build of llama.cpp has no GPU backend: every layer is on the CPU, and an idle GPU expected."
    ]
    assert run_json(*SMALL, "--requests", "1", "--max-tokens", "2", "--no-record")["notes"] == []
    asked = subprocess.run([*STACKSCOPE, "doctor", "--json"], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert json.loads(asked.stdout)["library"]["gpu_offload"] is False
    assert "underused" not in asked.stdout


def test_case_27_what_native_code_writes_reaches_the_log_and_never_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    options = ("--requests", "60", "--max-tokens", "40", "--record", path)
    with start(*SMALL, *options, output_too=True) as running:
        until(path.exists)  # The library has been loaded, and has warned, by now.
        descriptors = [str(Path(f"/proc/{running.pid}/fd/{number}").readlink()) for number in (1, 2)]
        assert all(name.startswith("/dev/pts/") for name in descriptors)  # Nobody put anything else in their place.
        assert "libllama" not in Path(f"/proc/{running.pid}/maps").read_text()
        assert running.wait() == 0
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", running.terminal)
    assert "requests      60 reached their limit" in shown
    logged = [record.text for record in SessionReader(path) if isinstance(record, Log)]
    assert any(line.startswith("llama_context: n_ctx_seq") for line in logged)  # A warning.
    for sign in ("llama_", "load_tensors", "print_info", "ggml"):
        assert sign not in shown


def anonymous_memory() -> int:
    """Bytes of anonymous resident memory of this process."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    pytest.skip("this system does not tell anonymous memory")


def test_case_29_memory_comes_back_when_models_and_contexts_are_exchanged() -> None:
    """Twenty changes that load other weights or another cache; the first round is warm-up."""
    engine = open_engine(lab_config(slots=2, draft_model=None))
    rounds: list[dict[str, object]] = [
        {"model": str(bundled_draft())}, {"kv_type_k": "q8_0"}, {"model": str(bundled_target())},
        {"kv_type_k": "f16", "unified_kv": False, "context_tokens": 48 * 256},
        {"unified_kv": True, "context_tokens": 4096},
    ]  # fmt: skip
    sizes = []
    try:
        for n in range(25):
            event = engine.reconfigure(msgspec.structs.replace(engine.config, **rounds[n % 5]))
            assert event.kind == "rebuild", event
            engine.submit(job(n, range(10, 40), 4, ignore_eos=True))
            assert finish(engine).requests[0].finish_reason == "length"
            if n % 5 == 4:
                sizes.append(anonymous_memory())
    finally:
        engine.close()
    assert sizes[-1] - sizes[0] < 10e6


def test_case_30_logit_rows_are_sized_by_what_is_verified_and_not_by_the_context() -> None:
    """A context of 32k over a vocabulary of 152k: 16 slots × 9 rows × 152k × 4 B = 87.6 MB, not 19.9 GB."""
    engine = open_engine(lab_config(slots=1))
    spec = msgspec.structs.replace(engine.model, vocabulary=152_064, context=32_768)
    engine.close()
    config = EngineConfig(context_tokens=32_768)
    size = sizing.resolve(config, spec, usable_threads=2)
    cells = size.n_ctx * sizing.kv_bytes_per_cell(config, spec)
    assert sizing.memory_estimate(config, size, spec) - cells == 16 * 9 * 152_064 * 4 < 0.005 * 32_768 * 152_064 * 4

    run = run_jobs(lab_config(slots=2, speculation="draft", draft_length=3), [
        job(i, range(10 + i, 90), 20, ignore_eos=True) for i in range(2)
    ])  # fmt: skip
    verified = [w for s in run.steps for w in s.work if w.phase == "verify"]
    assert verified
    assert all(w.outputs == w.drafted + 1 for w in verified)
    assert all(w.outputs <= 1 for s in run.steps for w in s.work if w.phase == "prefill")


class Shifted:
    """Default parameters as a binding with one field too few would read them: each field has its neighbour's value."""

    def __init__(self, params: Any) -> None:
        names = [name for name, *_ in params._fields_]
        for name, neighbour in zip(names, [*names[1:], names[0]], strict=True):
            setattr(self, name, getattr(params, neighbour))


@pytest.mark.parametrize("struct", ["context", "model"])
def test_case_31_a_binding_that_reads_other_fields_is_refused(struct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"llama_{struct}_default_params"
    defaults = getattr(low, name)()
    monkeypatch.setattr(low, name, lambda: Shifted(defaults))
    with pytest.raises(LibraryError, match=rf"disagree: default {struct} parameter \w+ reads .*, not .*\. Install"):
        llama.check_binding()


@pytest.mark.parametrize("version", ["0.3.35", "0.3.37", "0.4.0", "1.0"])
def test_case_31_a_version_outside_the_tested_range_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_cpp.__version__", version)
    with pytest.raises(LibraryError, match=rf"llama-cpp-python {version} is not a version .*>=0\.3\.36,<0\.3\.37"):
        llama.check_binding()


def test_case_32_a_prefill_is_cancelled_within_a_second_and_the_others_go_on(lab_200_mb: Path) -> None:
    """Two prompts whose forwards take long; one is cancelled inside the first, the other is not harmed."""
    spec = WorkloadSpec(
        name="unique", requests=2, concurrency=2, prompt_tokens=Length.fixed(1500), max_tokens=3, ignore_eos=True
    )
    config = lab_config(model=str(lab_200_mb), draft_model=None, slots=2, token_budget=1024)
    with EngineProcess.start(config, spec) as engine:
        begin(engine)
        wait_ms(200)  # Inside the first forward, also where a processor does 1,024 rows in half a second.
        asked = time.monotonic()
        engine.send(wire.Cancel(request=1))
        items: list[Item] = []
        for item in engine.items():
            items.append(item)
            if isinstance(item, RequestRecord):
                break
        took = time.monotonic() - asked
        cancelled = items[-1]
        rest = [item for item in engine.items() if isinstance(item, RequestRecord)]
    assert isinstance(cancelled, RequestRecord)
    assert (cancelled.id, cancelled.finish_reason, cancelled.output_tokens) == (1, "cancelled", 0)
    assert any(isinstance(item, StepRecord) and item.aborted for item in items)
    assert took < 1.0
    assert [(r.id, r.finish_reason, r.output_tokens) for r in rest] == [(0, "length", 3)]


def test_every_recording_begins_with_what_the_library_can_do(tmp_path: Path) -> None:
    """The header names the library, its build and CPU features: what explains a difference between two machines."""
    path = tmp_path / "s.jsonl.zst"
    run_json(*SMALL, "--requests", "1", "--max-tokens", "2", "--record", path)
    header = next(iter(SessionReader(path)))
    assert isinstance(header, Header)
    assert str(header.library).startswith("llama-cpp-python 0.3.36 | CPU")
