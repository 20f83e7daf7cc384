"""The GPU check beside a played GPU: its readings under a load, and the ladder with an engine that the GPU follows."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.gpu.stages import DOUBTS
from stackscope.session.reader import read_session
from tests.nvml.loads import put
from tests.nvml.machine import written
from tests.nvml.play import CARDS
from tests.nvml.scenarios import driver, h100

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nvml.machine import Machine, Scenario

BURN = """
import json, sys, time
began = time.monotonic_ns()
time.sleep(2.0)
rate = 3352.32e9 * 0.759
print(json.dumps({"phase": "copy", "began_ns": began, "ended_ns": time.monotonic_ns(), "bytes_per_s": rate}))
sys.exit(int(sys.argv[1]))
"""


def stage(machine: Machine, module: str, *arguments: str, scenario: Scenario, **extra: str) -> tuple[int, str, Any]:
    """(exit status, what it said, its result)"""
    out = machine.folder / "out"
    named = [f"--carried={machine.folder}", f"--work={machine.folder / 'work'}", f"--out={out}"]
    done = machine.run(f"benchmarks.gpu.{module}", *named, *arguments, scenario=scenario, **extra)
    result = out / f"{module}.json"
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, json.loads(result.read_text()) if result.exists() else None


def read(machine: Machine, scenario: Scenario, status: int = 0) -> tuple[int, str, Any]:
    burn = machine.folder / "burn.py"
    burn.write_text(BURN)
    load = f"{sys.executable} {burn} {status}"
    return stage(machine, "readings", "--idle=0.5", f"--load={load}", scenario=scenario)


def verdicts(result: Any) -> dict[str, str]:
    return {finding["what"]: finding["verdict"] for finding in result["gpus"][0]["findings"]}


def test_readings_under_a_load_are_judged(machine: Machine) -> None:
    status, said, result = read(machine, {**driver(1), **h100(gpm_gap_ms=100)})
    assert status == 0, said
    assert (result["driver"], result["load"]) == ("570.86.15", "given")
    found = verdicts(result)
    assert found["dram_share"] == found["GPM ÷ copied bytes"] == found["peak ÷ rated"] == found["GPM"] == "ok"
    assert found["fan_share"] == "unknown"
    assert "implausible" not in found.values()
    assert "GPU 0, NVIDIA H100 80GB HBM3, 0000:1b:00.0" in said
    assert 0 < result["cost"]["share_of_a_core"] < 1


def test_a_reading_that_cannot_be_leaves_the_stage_doubtful(machine: Machine) -> None:
    status, said, result = read(machine, {**driver(1), **h100(gpm_gap_ms=100, gpm_10=20, power_mw=900_000)})
    assert status == DOUBTS
    found = verdicts(result)
    assert found["GPM ÷ copied bytes"] == found["power ÷ limit"] == "implausible"
    assert "GPM and the copies do not agree" in said


def test_a_load_that_fails_is_no_load(machine: Machine) -> None:
    status, said, result = read(machine, {**driver(1), **h100(gpm_gap_ms=100)}, status=3)
    assert (status, result["load"]) == (0, "none")
    assert "The load (given) failed with status 3" in said


def test_without_a_gpu_the_stage_fails_and_says_why(machine: Machine) -> None:
    status, said, result = read(machine, {"library.nvmlInitWithFlags": 9})
    assert status == 1
    assert result["gpus"] == []
    assert "NVML 9" in said


def test_the_chip_is_asked_of_the_driver(machine: Machine) -> None:
    scenario = {**driver(1), **h100(capability="9.0")}
    status, said, _ = stage(machine, "building", "--print", scenario=scenario)
    assert status == 0, said
    assert "-DCMAKE_CUDA_ARCHITECTURES=90-real" in said


@pytest.mark.engine
def test_the_ladder_measures_what_it_models(machine: Machine, tmp_path: Path) -> None:
    """With a GPU that is played by the engine's own ledger, both bandwidths agree at every setting."""
    from stackscope.model.catalog import bundled_target
    from stackscope.model.inflate import inflate

    load = tmp_path / "load.txt"
    put(load, {})
    written(CARDS["h100"], tmp_path / "played.txt")
    target = inflate(bundled_target(), 20, output=tmp_path / "target.gguf").path
    arguments = [f"--model={target}", "--batches=1,3", "--window=1.0", "--engine=tests.nvml.played_engine:PlayedEngine"]
    status, said, result = stage(machine, "ladder", *arguments, scenario=CARDS["h100"], FAKE_NVML_LOAD=str(load))
    assert status == 0, said
    keys = [(cell["kv_type"], cell["batch"], cell["speculation"]) for cell in result["cells"]]
    assert keys == [(kv, n, how) for kv in ("f16", "q8_0") for n in (1, 3) for how in ("off", "draft")], said
    for cell in result["cells"]:
        assert cell["measured_from"] >= 4, said
        assert 0.4 < cell["measured_bytes_per_s"] / cell["modelled_bytes_per_s"] < 2.5, said
        assert 0.99 < cell["idle_compute"] <= 1
        assert cell["peak_bytes_per_s"] == pytest.approx(3352.32e9)
        assert cell["tokens_per_forward"] == 1 or (cell["speculation"] == "draft" and cell["tokens_per_forward"] > 1)
    assert [one["kv_type"] for one in result["speculation"]] == ["f16", "q8_0"]
    session = read_session(machine.folder / "out" / "session.jsonl.zst")
    assert session.footer is not None
    assert len(session.marks) == len(result["cells"]) * 2
    assert result["recording_bytes"] < 5_000_000
    assert all(gpu.is_used for sample in session.hardware for gpu in sample.gpus or ())
