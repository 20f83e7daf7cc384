"""The whole application beside GPUs: what its screen and its recordings tell of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.session.reader import read_session
from tests.nvml.machine import ROOT
from tests.nvml.scenarios import a10, driver, h100

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.session.reader import Session
    from tests.nvml.machine import Machine, Scenario

FIRST = "0000:1b:00.0"


def test_the_screen_shows_an_h100_that_the_engine_runs_on(machine: Machine) -> None:
    done = machine.run("tests.nvml.shown", FIRST, scenario={**driver(1), **h100(gpm_gap_ms=100, throttle="0x4")})
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert re.search(r"GPU0 [\d.]+ % throttled: power cap mem 22.5/85.9 GB 412 W 1,755 MHz DRAM 75.9 %", text)
    assert "measured 2.54 TB/s" in text
    assert "peak 3.35 TB/s" in text
    assert "power limit 700 W" in text


def test_the_screen_tells_the_gpu_in_use_from_the_others(machine: Machine) -> None:
    scenario = {**driver(3), **a10(0), **h100(1), **a10(2), "gpu.2.nvmlDeviceGetHandleByIndex_v2": 999}
    done = machine.run("tests.nvml.shown", "0000:1c:00.0", scenario=scenario)
    assert done.returncode == 0, done.stderr
    [first] = [line for line in done.stdout.splitlines() if "GPU0" in line]
    [second] = [line for line in done.stdout.splitlines() if "GPU1" in line]
    assert "not used" in first
    assert "not used" not in second
    assert "the driver reports an unknown error (NVML 999)" in done.stdout


def test_the_screen_says_why_there_are_no_readings(machine: Machine) -> None:
    scenario: Scenario = {"library.nvmlInitWithFlags": 18}
    done = machine.run("tests.nvml.shown", FIRST, scenario=scenario)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "GPUs: The NVIDIA driver was updated while it ran, and its library no longer matches it (NVML" in text
    assert "18). Reboot." in text


@pytest.mark.engine
@pytest.mark.parametrize("draft", [False, True])
def test_a_played_gpu_follows_the_steps_of_the_engine(tmp_path: Path, draft: bool) -> None:
    """`python -m tests.nvml.play run`, with the real engine: measured and modelled bandwidth are then the same."""
    recording = tmp_path / "played.jsonl.zst"
    command = [sys.executable, "-m", "tests.nvml.play", "--gpu", "h100", "run", "--duration", "4", "--json"]
    command += ["--record", str(recording), "--concurrency", "2", "--speculation", "draft" if draft else "off"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["device"] == "NVIDIA H100 80GB HBM3"
    session = read_session(recording)
    gpus = [sample.gpus[0] for sample in session.hardware if sample.gpus]
    assert len(gpus) >= 3
    assert all(gpu.is_used and gpu.pci_id == FIRST for gpu in gpus)
    assert all(gpu.engine_memory_bytes == gpu.memory_used_bytes or gpu.why("engine_memory_bytes") for gpu in gpus)
    measured = [gpu.dram_bytes_per_s for gpu in gpus if gpu.dram_bytes_per_s]
    modelled = _modelled(session)
    # Both are means over other stretches, and a noisy neighbour can take most of one.
    assert modelled / 3 < sorted(measured)[len(measured) // 2] < modelled * 3
    energies = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
    assert energies == sorted(energies)
    assert energies[-1] > energies[0]
    *readings, last = session.hardware
    assert all(sample.engine_cpu_ns for sample in readings)
    # The engine may end before the sampler does.
    assert last.engine_cpu_ns or last.unknown["engine_cpu_ns"] == "the engine process has ended"


def _modelled(session: Session) -> float:
    """Bytes per second of target and draft model, over the whole session."""
    header, steps = session.header, session.steps
    assert header.model is not None
    n_bytes = sum(Ledger(header.model).account(step).exact.total for step in steps)
    if header.draft_model is not None:
        n_bytes += sum(Ledger(header.draft_model).account_draft(step.draft).exact.total for step in steps)
    return n_bytes * 1e9 / (steps[-1].end_ns - steps[0].start_ns)
