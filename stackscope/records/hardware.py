"""Readings of the machine and its GPUs."""

from __future__ import annotations

import msgspec

from stackscope.records.base import Record


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of one GPU, or of one MIG instance. `None` is not known; `why` says why, where a reason is known."""

    uuid: str
    """Empty: the driver does not tell it."""
    name: str
    index: int | None = None
    """As the driver counts, which is not how CUDA counts; of an instance, that of its GPU."""
    pci_id: str | None = None
    """As `0000:01:00.0`."""
    instance_of: str | None = None
    """UUID of the GPU that this is a MIG instance of. `None`: it is a whole GPU."""
    is_used: bool = False
    """The engine runs on it. Where nobody can tell, `unknown` has a reason under this name."""
    is_lost: bool = False
    """It fell off the bus; the readings are those of nobody."""
    age_ns: int | None = None
    """How long ago the driver had been asked. What changes slowly is up to a second older."""
    took_ns: int | None = None
    """Wall time that the driver took to answer everything asked of it."""
    utilisation: float | None = None
    """Share of the time in which at least one kernel ran. It says nothing about how much of the GPU that used."""
    memory_busy: float | None = None
    """Share of the time in which memory was read or written. No bandwidth can be derived from it."""
    is_gpm_live: bool | None = None
    """The GPU's own performance counters (GPM) answer. `None`: two samples are needed to tell."""
    sm_active: float | None = None
    """Share of SM cycles with work, by GPM; so are the next three."""
    tensor_active: float | None = None
    occupancy: float | None = None
    """Warps ÷ the most that would fit, over cycles."""
    dram_share: float | None = None
    """Of the theoretical DRAM bandwidth."""
    peak_bytes_per_s: float | None = None
    """Theoretical DRAM bandwidth."""
    peak_from: str | None = None
    """Where the peak comes from, in words."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    is_memory_shared: bool = False
    """Memory is the machine's own, shared with the processor."""
    engine_memory_bytes: int | None = None
    """Held by the engine process, by the driver's list of processes."""
    process_memory_bytes: int | None = None
    """Held by all processes that compute, by the same list."""
    processes: int | None = None
    """Processes that compute on it."""
    processes_outside: int | None = None
    """Of those, the ones outside this process's namespace: a container does not see them."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    """Mean of the last second on Ampere (but the A100 and A30) and newer, of the instant before that."""
    power_limit_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    fan_share: float | None = None
    """Of the fan's full speed, as intended rather than measured."""
    throttle: tuple[str, ...] | None = None
    """Reasons in force, in words; empty: none."""
    throttled: dict[str, float] | None = None
    """Share of the last second in which each reason held the clocks down, those that did not left out."""
    pcie_read_bytes_per_s: float | None = None
    """Into the GPU, whoever started the transfer; likewise for NVLink."""
    pcie_write_bytes_per_s: float | None = None
    nvlink_read_bytes_per_s: float | None = None
    nvlink_write_bytes_per_s: float | None = None
    unknown: dict[str, str] = {}
    """Why a reading is missing, by field; under `*` stands the reason of all others."""

    @property
    def dram_bytes_per_s(self) -> float | None:
        """Measured DRAM traffic."""
        if self.dram_share is None or self.peak_bytes_per_s is None:
            return None
        return self.dram_share * self.peak_bytes_per_s

    def why(self, field: str) -> str | None:
        """Why a reading is missing. `None`: it is there, or nobody says."""
        if field in self.unknown:
            return self.unknown[field]
        return self.unknown.get("*") if getattr(self, field) is None else None


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
    io_pressure: float | None = None
    """Share of the last ten seconds in which something waited for a disk (PSI); likewise for memory."""
    memory_pressure: float | None = None
    swap_used_bytes: int | None = None
    """Of the machine's swap space."""
    swap_bytes_per_s: float | None = None
    """In and out, since the sample before; so are all rates that follow."""
    major_faults_per_s: float | None = None
    """Pages of the engine process that had to come from a disk."""
    involuntary_switches_per_s: float | None = None
    """Times that a thread of the engine process lost its core though it had more to do."""
    package_power_w: float | None = None
    """Of all processor packages, by their own counters (RAPL)."""
    dram_bytes_per_s: float | None = None
    """Between memory and processors, of the whole machine, by counters of the processors."""
    gpus: tuple[GpuSample, ...] | None = None
    """`None`: nobody looked. Empty: there are none."""
    unknown: dict[str, str] = msgspec.field(default_factory=dict)
    """Why a reading is missing, by field."""
