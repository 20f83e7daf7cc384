"""Readings of a GPU that can be, and readings that cannot: each relation is broken once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from benchmarks.gpu.plausibility import Finding, Phase, judge, spelled
from benchmarks.gpu.readings import NONE, Taken, cost, phases_of
from stackscope.hardware.gpu_probe import GpuReading
from stackscope.records import GpuSample

SECOND = 1_000_000_000


def gpu(**changes: Any) -> GpuSample:
    """An H200 that copies in its memory."""
    sample = GpuSample(
        uuid="GPU-1", name="NVIDIA H200", index=0, pci_id="0000:01:00.0", is_gpm_live=True, utilisation=1.0,
        memory_busy=0.95, sm_active=0.9, tensor_active=0.0, occupancy=0.6, dram_share=0.9, peak_bytes_per_s=4.8e12,
        memory_used_bytes=10**10, memory_total_bytes=15 * 10**10, sm_clock_mhz=1980, memory_clock_mhz=3201,
        power_w=500.0, power_limit_w=700.0, energy_j=1e6, temperature_c=50, memory_temperature_c=60, took_ns=400_000,
        pcie_read_bytes_per_s=1e9, pcie_write_bytes_per_s=1e8,
        unknown={"fan_share": "it has none"},
    )  # fmt: skip
    return msgspec.structs.replace(sample, **changes)


def phase(name: str = "copy", seconds: float = 5.0, bytes_per_s: float | None = None, **changes: Any) -> Phase:
    """A second apart, at 500 W."""
    times = range(int(seconds) + 1)
    samples = tuple(gpu(**{"energy_j": 1e6 + 500.0 * at, **changes}) for at in times)
    return Phase(name=name, samples=samples, seconds=seconds, bytes_per_s=bytes_per_s)


def found(*phases: Phase) -> dict[str, Finding]:
    return {finding.what: finding for finding in judge(phases)}


def test_what_can_be_is_ok() -> None:
    copy = phase(bytes_per_s=4.3e12)
    product = phase("matmul", tensor_active=0.7, energy_j=2e6)
    findings = judge([copy, product])
    assert [one for one in findings if one.verdict == "implausible"] == []
    told = {one.what: one.value for one in findings}
    assert told["dram_share"] == "copy 90.0 %, matmul 90.0 %"
    assert told["GPM"] == "live"
    assert told["GPM ÷ copied bytes"] == "4.32 TB/s ÷ 4.30 TB/s = 1.00"
    assert told["peak ÷ rated"] == "4.80 TB/s, rated 4.80 TB/s"
    assert told["tensor cores"] == "matmul 70.0 %, copy 0 %"


def test_what_is_missing_has_its_reason() -> None:
    findings = found(phase())
    assert (findings["fan_share"].verdict, findings["fan_share"].why) == ("unknown", "it has none")
    assert findings["nvlink_read_bytes_per_s"].verdict == "unknown"
    silent = found(Phase(name="idle", samples=(GpuSample(uuid="", name="x", unknown={"*": "it is off"}),), seconds=1.0))
    assert silent["power_w"].why == "it is off"
    assert "power ÷ limit" not in silent


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"dram_share": 1.2}, "dram_share"),
        ({"utilisation": -0.1}, "utilisation"),
        ({"peak_bytes_per_s": 3.3e12}, "peak ÷ rated"),
        ({"peak_bytes_per_s": 4.8e9}, "peak_bytes_per_s"),
        ({"memory_used_bytes": 16 * 10**10}, "memory used ÷ total"),
        ({"memory_used_bytes": 0}, "memory used ÷ total"),
        ({"power_w": 900.0}, "power ÷ limit"),
        ({"power_w": 120.0}, "energy ÷ time ÷ power"),
        ({"energy_j": 7.0}, "energy rises"),
        ({"temperature_c": 0}, "temperature_c"),
        ({"sm_clock_mhz": 1.98}, "sm_clock_mhz"),
        ({"utilisation": 0.0}, "busy under load"),
        ({"dram_share": 0.4}, "GPM ÷ copied bytes"),
        ({"pcie_read_bytes_per_s": 1e12}, "pcie_read_bytes_per_s"),
    ],
)
def test_what_cannot_be_is_told(changes: dict[str, Any], what: str) -> None:
    finding = found(phase(bytes_per_s=4.3e12, **changes))[what]
    assert finding.verdict == "implausible"
    assert finding.why


def test_tensor_cores_that_do_not_follow_the_load_are_told() -> None:
    assert found(phase(), phase("matmul", tensor_active=0.01))["tensor cores"].verdict == "implausible"
    assert found(phase(tensor_active=0.9), phase("matmul", tensor_active=0.9))["tensor cores"].verdict == "implausible"


def test_gpm_that_does_not_answer_is_unknown_and_says_why() -> None:
    finding = found(phase(is_gpm_live=False, unknown={"is_gpm_live": "it is too old"}))["GPM"]
    assert (finding.verdict, finding.why) == ("unknown", "it is too old")


def test_energy_of_a_moment_is_no_measure_of_power() -> None:
    assert "energy ÷ time ÷ power" not in found(phase(seconds=2.0, power_w=120.0))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("dram_share", 0.5, "50 %"),
        ("memory_used_bytes", 21e9, "21.0 GB"),
        ("peak_bytes_per_s", 4.8e12, "4.80 TB/s"),
        ("took_ns", 2e6, "2 ms"),
        ("sm_clock_mhz", 1980, "1,980 MHz"),
        ("energy_j", 5.0, "5.00 J"),
    ],
)
def test_readings_have_their_units(name: str, value: float, text: str) -> None:
    assert spelled(name, value) == text


# What was read when


def taken(at_s: float, *gpus: GpuSample, cost_ns: int = 100_000) -> Taken:
    return Taken(round(at_s * SECOND), GpuReading(gpus=gpus, taken_ns=0, took_ns=300_000, cost_ns=cost_ns))


def mark(phase: str, began_s: float, ended_s: float, **rates: float) -> str:
    return json.dumps({"phase": phase, "began_ns": began_s * SECOND, "ended_ns": ended_s * SECOND, **rates})


def test_readings_belong_to_what_was_done_meanwhile() -> None:
    rounds = [taken(at / 2, gpu(power_w=float(at))) for at in range(1, 40)]
    told = "\n".join(["noise", mark("copy", 5, 10, bytes_per_s=4e12), mark("matmul", 11, 16, flops_per_s=7e14)])
    idle, copy, product = phases_of(rounds, told, 0, load="torch")
    assert (idle.name, copy.name, product.name) == ("idle", "copy", "matmul")
    # Power is a mean of the second before, so each phase begins late.
    assert [sample.power_w for sample in idle.samples] == [*map(float, range(1, 10))]
    assert [sample.power_w for sample in copy.samples] == [*map(float, range(13, 20))]
    assert (copy.bytes_per_s, product.bytes_per_s) == (4e12, None)
    assert copy.seconds == 3.0


def test_without_marks_it_is_all_one_phase() -> None:
    rounds = [taken(at, gpu()) for at in range(5)]
    [idle] = phases_of(rounds, "", 0, load=NONE)
    assert (idle.name, len(idle.samples)) == ("idle", 5)
    [engine] = phases_of(rounds, "{}", 0, load="engine")
    assert (engine.name, len(engine.samples)) == ("engine", 3)
    assert phases_of([taken(0)], "", 0, load=NONE) == []


def test_reading_costs_what_its_threads_took() -> None:
    rounds = [taken(0, cost_ns=10**9), taken(1, cost_ns=10**9), taken(2), taken(10)]
    assert cost(rounds)["share_of_a_core"] == pytest.approx(200_000 / 10**10)
    assert cost(rounds)["median_round_ns"] == 300_000
