"""Synthetic machines: samples of a processor alone, of one GPU, and of eight."""

from __future__ import annotations

from typing import Any

import msgspec

from stackscope.records import GpuSample, HardwareSample


def without_gpu(**changes: Any) -> HardwareSample:
    """Two cores, a control group with a quota, and no GPU."""
    sample = HardwareSample(
        at_ns=133_800_000_000, late_ns=80_000, cost_ns=900_000, cpu_percent=96.4, cores=2, frequency_mhz=2_600.0,
        rss_bytes=318_000_000, memory_available_bytes=5_900_000_000, memory_total_bytes=8_250_000_000,
        engine_cpu_ns=251_000_000_000, own_cpu_ns=2_100_000_000, cpu_pressure=0.004, throttled_share=0.0, gpus=(),
    )  # fmt: skip
    return msgspec.structs.replace(sample, **changes)


def make_gpu(index: int = 0, **changes: Any) -> GpuSample:
    """A GPU under load, of which everything is known."""
    gpu = GpuSample(
        uuid=f"GPU-{index:08d}", name="NVIDIA H100 80GB HBM3", index=index, is_used=True, utilisation=0.99,
        memory_busy=0.97, sm_active=0.91, tensor_active=0.22, occupancy=0.34, dram_share=0.759,
        peak_bytes_per_s=3.352e12, memory_used_bytes=21_400_000_000, memory_total_bytes=80_000_000_000,
        sm_clock_mhz=1_755.0, memory_clock_mhz=2_619.0, power_w=412.0, power_limit_w=700.0, energy_j=8.1e6,
        temperature_c=61.0, throttle=(), pcie_read_bytes_per_s=0.2e9, pcie_write_bytes_per_s=0.05e9,
    )  # fmt: skip
    return msgspec.structs.replace(gpu, **changes)


def one_gpu() -> HardwareSample:
    """A server with one GPU."""
    return without_gpu(
        cpu_percent=7.2, cores=16, rss_bytes=1_200_000_000, memory_available_bytes=118_000_000_000,
        memory_total_bytes=128_000_000_000,
        gpus=(make_gpu(),),
    )  # fmt: skip


def several_gpus() -> HardwareSample:
    """Eight GPUs: two in use, one of those held back, four idle, one lost, one that keeps its counters to itself."""
    idle: dict[str, Any] = {
        "is_used": False, "utilisation": 0.0, "memory_busy": 0.0, "sm_active": 0.0, "dram_share": 0.0,
        "power_w": 71.0, "memory_used_bytes": 600_000_000, "sm_clock_mhz": 345.0, "temperature_c": 33.0,
    }  # fmt: skip
    gpus = (
        make_gpu(0),
        make_gpu(1, power_w=698.0, sm_clock_mhz=1_410.0, throttle=("power limit", "hot"), temperature_c=86.0),
        *(make_gpu(index, **idle) for index in range(2, 6)),
        GpuSample(
            uuid="GPU-lost",
            name="NVIDIA H100 80GB HBM3",
            index=6,
            is_lost=True,
            unknown={"utilisation": "the GPU fell off the bus"},
        ),
        make_gpu(
            7, **idle | {"sm_active": None, "dram_share": None, "tensor_active": None, "occupancy": None,
                         "unknown": {"dram_share": "counters are not allowed for this user"}},
        ),
    )  # fmt: skip
    return without_gpu(
        cpu_percent=7.2, cores=112, rss_bytes=1_200_000_000, memory_available_bytes=900_000_000_000,
        memory_total_bytes=1_000_000_000_000,
        gpus=gpus,
    )  # fmt: skip
