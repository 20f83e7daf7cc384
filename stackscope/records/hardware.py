"""Readings of the machine and its GPUs."""

from __future__ import annotations

import msgspec

from stackscope.records.base import Record


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of one GPU. `None` is not known; `unknown` says why, where a reason is known."""

    uuid: str
    name: str
    index: int | None = None
    """As the driver counts."""
    is_used: bool = False
    """The engine runs on it."""
    is_lost: bool = False
    """It fell off the bus; the readings are those of nobody."""
    utilisation: float | None = None
    """Share of the time in which at least one kernel ran. It says nothing about how much of the GPU that used."""
    memory_busy: float | None = None
    """Share of the time in which memory was read or written. No bandwidth can be derived from it."""
    sm_active: float | None = None
    tensor_active: float | None = None
    occupancy: float | None = None
    dram_share: float | None = None
    """Of the theoretical DRAM bandwidth, by the GPU's own counters (GPM)."""
    peak_bytes_per_s: float | None = None
    """Theoretical DRAM bandwidth, from clock and bus width."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    is_memory_shared: bool = False
    """Memory is the machine's own, shared with the processor."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    temperature_c: float | None = None
    throttle: tuple[str, ...] | None = None
    """Reasons in force, in words; empty: none."""
    pcie_read_bytes_per_s: float | None = None
    pcie_write_bytes_per_s: float | None = None
    unknown: dict[str, str] = {}
    """Why a reading is missing, by field."""

    @property
    def dram_bytes_per_s(self) -> float | None:
        """Measured DRAM traffic."""
        if self.dram_share is None or self.peak_bytes_per_s is None:
            return None
        return self.dram_share * self.peak_bytes_per_s


class HardwareSample(Record, frozen=True, kw_only=True, omit_defaults=True, tag="hardware"):
    """One reading of the machine. Every reading is optional; `late_ns` is the sampler's own error."""

    at_ns: int
    late_ns: int = 0
    cost_ns: int | None = None
    """CPU time that taking this sample took."""
    cpu_percent: float | None = None
    """Of all the machine's logical cores together, since the sample before."""
    cores: int | None = None
    """Logical cores that this stands for."""
    frequency_mhz: float | None = None
    rss_bytes: int | None = None
    """Of the engine process."""
    memory_available_bytes: int | None = None
    memory_total_bytes: int | None = None
    engine_cpu_ns: int | None = None
    """CPU time of the engine process, all threads, since it began."""
    own_cpu_ns: int | None = None
    """CPU time of Stackscope's own process since it began."""
    recorder_cpu_ns: int | None = None
    cpu_pressure: float | None = None
    """Share of the last ten seconds in which something runnable waited for a core (PSI)."""
    throttled_share: float | None = None
    """Share of control-group periods since the sample before in which the quota held it up."""
    gpus: tuple[GpuSample, ...] | None = None
    """`None`: nobody looked. Empty: there are none."""
    unknown: dict[str, str] = msgspec.field(default_factory=dict)
    """Why a reading is missing, by field."""
