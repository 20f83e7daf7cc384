"""What is read of GPUs that work, each in its own way: values, and for what is missing the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.hardware.gpu_use import EngineUse
from stackscope.hardware.nvml_gpm import FIELDS
from tests.nvml.scenarios import GIB, a10, driver, gb10, gpu, h100, mig

if TYPE_CHECKING:
    from stackscope.hardware.gpu_probe import GpuReading
    from stackscope.records import GpuSample
    from tests.nvml.machine import Machine

REFUSED = "this GPU or its driver does not support it (NVML 3)"
TOO_OLD = "this GPU has no GPM counters; Hopper and later have, and GeForce from the 50 series on"


def only(reading: GpuReading) -> GpuSample:
    assert reading.problem is None
    assert reading.gpus is not None
    [found] = reading.gpus
    return found


def test_an_h100_tells_all_there_is(machine: Machine) -> None:
    first, second, third = (only(r) for r in machine.read({**driver(1), **h100()}, (0, 0.2, 1.2)))
    assert (first.name, first.index, first.pci_id) == ("NVIDIA H100 80GB HBM3", 0, "0000:1b:00.0")
    assert first.uuid == "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd"
    # The mean of what the driver's buffer got since the look before.
    assert [first.utilisation, second.utilisation] == pytest.approx([0.95, 0.70])
    # What was meanwhile is read with what changes slowly, once a second.
    assert [first.memory_busy, second.memory_busy, third.memory_busy] == pytest.approx([0.60, 0.60, 0.40])
    assert (first.sm_clock_mhz, first.memory_clock_mhz) == (1755, 2619)
    assert (first.memory_used_bytes, first.memory_total_bytes) == (21 * GIB, 80 * GIB)
    assert not first.is_memory_shared
    assert [first.power_w, first.power_limit_w] == pytest.approx([412.345, 700])
    assert (first.energy_j, third.energy_j) == (5000, 5412)
    assert (first.temperature_c, first.memory_temperature_c) == (47, 58)
    # 2619 MHz × 5120 bit × 2 ÷ 8
    assert first.peak_bytes_per_s == 3_352_320_000_000
    assert first.peak_from == "2,619 MHz × 5,120 bit × 2 ÷ 8"
    assert first.fan_share is None
    assert first.why("fan_share") == REFUSED
    assert first.took_ns is not None


def test_low_clocks_of_an_idle_gpu_are_no_throttling(machine: Machine) -> None:
    first, later = (only(r) for r in machine.read({**driver(1), **h100()}, (0, 1)))
    assert first.throttle == ()
    assert later.throttle == ("power cap", "temperature (by software)")


def test_counters_become_shares_and_rates_at_the_second_look(machine: Machine) -> None:
    first, early, second = (only(r) for r in machine.read({**driver(1), **h100(gpm=0)}, (0, 0.5, 2)))
    for sample in (first, early):
        assert sample.throttled is None
        assert sample.why("throttled") == "it takes two readings, a second apart"
        assert sample.why("pcie_read_bytes_per_s") == "it takes two readings, a second apart"
    # 250 ms of 2 s under the power cap; 200 MB and 8 GB in 2 s.
    assert second.throttled == {"power cap": 0.125}
    assert second.pcie_write_bytes_per_s == pytest.approx(100e6)
    assert second.pcie_read_bytes_per_s == pytest.approx(4e9)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"field_197": "9000000,1000000"}, "the driver's counter ran over"),
        ({"field_type_197": 1}, "the driver's counter has 32 bits and may run over unseen"),
        ({"field_197": "1,2", "nvmlDeviceGetFieldValues": "999"}, "the driver reports an unknown error (NVML 999)"),
    ],
)
def test_a_pcie_counter_that_cannot_be_trusted_says_why(
    machine: Machine, changes: dict[str, object], reason: str
) -> None:
    found = only(machine.read({**driver(1), **h100(gpm=0, **changes)}, (0, 1))[1])
    assert found.pcie_write_bytes_per_s is None
    assert found.why("pcie_write_bytes_per_s") == reason


def test_throttle_counters_that_jump_are_not_shown(machine: Machine) -> None:
    found = only(machine.read({**driver(1), **h100(field_74="0,9000000000")}, (0, 1))[1])
    assert found.throttled is None
    assert found.why("throttled") == "the driver's counters of it jump"


def test_gpm_is_believed_once_two_samples_were_compared(machine: Machine) -> None:
    first, second = (only(r) for r in machine.read({**driver(1), **h100()}, (0, 0.2)))
    assert first.is_gpm_live is None
    assert first.dram_share is None
    assert first.why("dram_share") == "GPM needs two samples"
    assert second.is_gpm_live is True
    assert [second.sm_active, second.occupancy] == pytest.approx([0.615, 0.1225])
    assert [second.tensor_active, second.dram_share] == pytest.approx([0.035, 0.759])
    # MiB per second
    assert second.pcie_write_bytes_per_s == 100 * (1 << 20)
    assert second.pcie_read_bytes_per_s == 2000 * (1 << 20)
    assert second.nvlink_read_bytes_per_s == 0
    # 75.9 % of 3352.32 GB/s
    assert second.dram_bytes_per_s == pytest.approx(2_544_410_880_000)


def test_memory_busy_time_is_no_bandwidth(machine: Machine) -> None:
    found = only(machine.read({**driver(1), **h100(gpm=0, memory_samples="100")}, (0, 0.2))[1])
    assert found.memory_busy == 1.0
    assert found.dram_share is None
    assert found.dram_bytes_per_s is None
    assert found.why("dram_share") == TOO_OLD


def test_an_older_card_has_no_gpm_and_a_fan(machine: Machine) -> None:
    found = only(machine.read({**driver(1), **a10()}, (0, 0.2, 5))[2])
    assert found.is_gpm_live is False
    assert found.why("is_gpm_live") == TOO_OLD
    assert {found.why(field) for field in FIELDS if not field.startswith("pcie")} == {TOO_OLD}
    assert found.fan_share == pytest.approx(0.45)
    assert found.throttle == ("power cap",)
    assert found.why("memory_temperature_c") == REFUSED
    # 6251 MHz × 384 bit × 2 ÷ 8
    assert found.peak_bytes_per_s == pytest.approx(600.096e9)


def test_an_empty_buffer_falls_back_to_the_drivers_own_average(machine: Machine) -> None:
    scenario = h100(gpu_samples=",none,50", gpu_percent=33, memory_samples="none")
    readings = machine.read({**driver(1), **scenario}, (0, 0.2, 0.4))
    assert [only(r).utilisation for r in readings] == [0.33, 0.33, 0.5]
    assert [only(r).memory_busy for r in readings] == [0.12] * 3


def test_an_impossible_utilisation_is_left_out(machine: Machine) -> None:
    found = only(machine.read({**driver(1), **h100(gpu_samples="4000000;40")}, (0,))[0])
    assert found.utilisation == pytest.approx(0.4)


def test_mig_is_read_per_instance_or_not_at_all(machine: Machine) -> None:
    gpus = machine.read({**driver(1), **mig()}, (0, 0.2))[1].gpus
    assert gpus is not None
    whole, one, other = gpus
    assert whole.instance_of is None
    for field in ("utilisation", "memory_busy"):
        assert getattr(whole, field) is None
        assert whole.why(field) == "the driver has none while MIG is on (NVML 3)"
    assert whole.why("memory_used_bytes") == "it needs more rights (NVML 4)"
    assert whole.power_w == pytest.approx(412.345)
    assert [one.name, other.name] == ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"] * 2
    assert [one.uuid[:12], other.uuid[:12]] == ["MIG-00000000", "MIG-00000002"]
    assert {one.instance_of, other.instance_of} == {whole.uuid}
    assert [one.memory_used_bytes, other.memory_used_bytes] == [1 * GIB, 3 * GIB]
    assert one.memory_total_bytes == 10 * GIB
    assert [one.dram_share, other.dram_share] == pytest.approx([0.20, 0.22])
    assert [one.sm_active, other.sm_active] == pytest.approx([0.30, 0.32])
    assert one.is_gpm_live
    assert one.power_w is None
    assert one.why("power_w") == "it is read for the whole GPU, not for an instance"
    # A share of an instance's part is no share of the GPU's peak.
    assert one.peak_bytes_per_s is None
    assert one.dram_bytes_per_s is None
    assert one.why("peak_bytes_per_s") == "the bandwidth of an instance's part of the GPU is not told"


@pytest.mark.parametrize("memory", [{}, {"memory_total": 0}], ids=["not supported", "total is 0"])
def test_unified_memory_is_the_machines_own(machine: Machine, memory: dict[str, object]) -> None:
    """Case 55: memory that is not supported, or of which there is none."""
    machine.run_process(4242)
    found = only(machine.read({**driver(1), **gb10(**memory)}, (0,))[0])
    assert found.is_memory_shared
    assert found.memory_total_bytes == 128_000_000 * 1024
    assert found.memory_used_bytes == 30_000_000 * 1024
    assert found.process_memory_bytes == 40_430_000_000
    assert found.utilisation == pytest.approx(0.96)
    # 0 beside a busy GPU is what this driver says whatever happens.
    assert found.memory_busy is None
    assert found.why("memory_busy") == "the driver says 0 here whatever the memory does"
    assert found.peak_bytes_per_s is None
    assert "memory is the machine's own" in (found.why("peak_bytes_per_s") or "")
    assert found.pci_id == "000f:01:00.0"


def test_a_stated_bandwidth_fills_in_for_one_that_is_not_told(machine: Machine) -> None:
    """Case 56: what the driver does not tell can be stated."""
    found = only(machine.read({**driver(1), **gb10()}, (0,), peak=273e9)[0])
    assert (found.peak_bytes_per_s, found.peak_from) == (273e9, "stated")
    assert found.why("peak_bytes_per_s") is None


def test_wsl_says_little_and_its_memory_is_not_taken_for_shared(machine: Machine) -> None:
    machine.write("proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2")
    scenario = gpu(0, name="NVIDIA GeForce RTX 4090", uuid="GPU-30000000", gpu_percent=37, memory_percent=5)
    found = only(machine.read({**driver(1), **scenario}, (0, 1))[1])
    assert [found.utilisation, found.memory_busy] == pytest.approx([0.37, 0.05])
    assert not found.is_memory_shared
    for field in ("memory_used_bytes", "power_w", "energy_j", "sm_clock_mhz", "throttle", "temperature_c", "processes"):
        assert getattr(found, field) is None
        assert found.why(field) == REFUSED
    assert found.why("peak_bytes_per_s") == f"{REFUSED}; STACKSCOPE_GPU_BANDWIDTH can state it"
    assert found.why("dram_share") == TOO_OLD
    assert found.pci_id is None


@pytest.mark.parametrize(
    ("changes", "peak", "words"),
    [
        ({"bus_bits": 0}, None, "tells no width"),
        ({"nvmlDeviceGetMaxClockInfo": 3}, None, REFUSED),
        ({"memory_clock_max": 0}, None, "tells no memory clock"),
        ({"memory_clock_max": 0xFFFFFFFF}, None, "tells no memory clock"),
        ({"memory_clock_max": 3996, "bus_bits": 7680}, 7_672_320_000_000, "3,996 MHz × 7,680 bit"),
        # Older drivers tell a B200's bus wrongly.
        (
            {"name": "NVIDIA B200", "memory_clock_max": 3996, "bus_bits": 8192},
            7_672_320_000_000,
            "this driver tells 8,192 bit",
        ),
    ],
)
def test_peak_bandwidth_comes_from_clock_and_bus(
    machine: Machine, changes: dict[str, object], peak: float | None, words: str
) -> None:
    """Case 56: by the formula, else unknown with the reason."""
    found = only(machine.read({**driver(1), **h100(**changes)}, (0,))[0])
    assert found.peak_bytes_per_s == peak
    assert words in (found.peak_from or found.why("peak_bytes_per_s") or "")
    assert found.memory_total_bytes == 80 * GIB


def test_a_name_that_is_not_utf_8_is_still_a_name(machine: Machine) -> None:
    found = only(machine.read({**driver(1), **h100(name=b"NVIDIA \xff\x1b[31mThing")}, (0,))[0])
    assert found.name == "NVIDIA \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31mThing"
    assert found.utilisation == pytest.approx(0.95)


def test_processes_of_another_namespace_are_not_taken_for_the_engine(machine: Machine) -> None:
    """Case 53: the engine is process 1 of its container, and the host's process 1 computes on the GPU too."""
    machine.run_process(1)
    scenario = {**driver(1), **h100(processes=f"999999:{2 * GIB};1:{GIB}")}
    found = only(machine.read(scenario, (0,), use=EngineUse(pid=1))[0])
    assert (found.processes, found.processes_outside) == (2, 1)
    assert found.process_memory_bytes == 3 * GIB
    assert found.engine_memory_bytes is None
    assert not found.is_used
    reason = "the driver lists processes of another namespace; a container needs --pid=host"
    assert found.why("engine_memory_bytes") == reason
    assert found.why("is_used") == "neither the engine nor the driver's process list says"


def test_in_a_namespace_of_its_own_no_process_id_is_matched(machine: Machine) -> None:
    """Case 53: no number is matched by chance."""
    machine.run_process(77)
    machine.enter_namespace("pid:[4026532500]")
    found = only(machine.read({**driver(1), **h100(processes=f"77:{GIB}")}, (0,), use=EngineUse(pid=77))[0])
    assert found.engine_memory_bytes is None
    assert not found.is_used


def test_the_engines_process_is_found_where_ids_are_the_drivers(machine: Machine) -> None:
    machine.run_process(77)
    machine.run_process(78)
    scenario = {**driver(2), **h100(0, processes=f"77:{GIB};78:5"), **h100(1, processes="78")}
    gpus = machine.read(scenario, (0,), use=EngineUse(pid=77))[0].gpus
    assert gpus is not None
    one, other = gpus
    assert (one.is_used, other.is_used) == (True, False)
    assert one.engine_memory_bytes == GIB
    assert other.engine_memory_bytes == 0
    assert other.process_memory_bytes is None
    assert other.why("process_memory_bytes") == "the driver has no value for it"
