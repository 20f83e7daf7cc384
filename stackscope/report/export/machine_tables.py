"""The tables of the machine: its readings, and those of its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.report.export.columns import Column, Kind, Table, as_json, field, json_or_unknown

if TYPE_CHECKING:
    from stackscope.records import GpuSample

_Plain = tuple[str, Kind, str, str]


class GpuRow(NamedTuple):
    """What a row of `gpus` is made from."""

    at_ns: int
    gpu: GpuSample


_HARDWARE: Final[tuple[_Plain, ...]] = (
    ("at_ns", "int", "ns", "When it was taken."),
    ("late_ns", "int", "ns", "How much later than planned."),
    ("cost_ns", "int", "ns", "CPU time that taking it took."),
    ("cpu_percent", "float", "%", "Of all logical cores together, since the sample before."),
    ("cores", "int", "cores", "Logical cores that this stands for."),
    ("frequency_mhz", "float", "MHz", "Clock of the processor."),
    ("rss_bytes", "int", "B", "Resident memory of the engine process."),
    ("memory_available_bytes", "int", "B", "Memory that could still be had."),
    ("memory_total_bytes", "int", "B", "Memory of the machine."),
    ("engine_cpu_ns", "int", "ns", "CPU time of the engine process since it began."),
    ("own_cpu_ns", "int", "ns", "CPU time of Stackscope's own process since it began."),
    ("recorder_cpu_ns", "int", "ns", "CPU time of recording."),
    ("cpu_pressure", "float", "1", "Share of the last ten seconds in which something waited for a core (PSI)."),
    ("throttled_share", "float", "1", "Share of control-group periods in which the quota held it up."),
    ("io_pressure", "float", "1", "Share of the last ten seconds in which something waited for a disk (PSI)."),
    ("memory_pressure", "float", "1", "The same for memory."),
    ("swap_used_bytes", "int", "B", "Of the machine's swap space."),
    ("swap_bytes_per_s", "float", "B/s", "In and out, since the sample before."),
    ("major_faults_per_s", "float", "1/s", "Pages of the engine that had to come from a disk."),
    ("involuntary_switches_per_s", "float", "1/s", "Times that a thread of the engine lost its core."),
    ("package_power_w", "float", "W", "Of all processor packages (RAPL)."),
    ("dram_bytes_per_s", "float", "B/s", "Between memory and processors, measured."),
)

_GPU: Final[tuple[_Plain, ...]] = (
    ("uuid", "text", "", "Which GPU; empty: the driver does not tell."),
    ("name", "text", "", "Its model."),
    ("index", "int", "", "As the driver counts."),
    ("pci_id", "text", "", "Its place on the bus."),
    ("instance_of", "text", "", "UUID of the GPU that this is a MIG instance of."),
    ("is_used", "bool", "", "The engine runs on it."),
    ("is_lost", "bool", "", "It fell off the bus."),
    ("age_ns", "int", "ns", "How long ago the driver had been asked."),
    ("took_ns", "int", "ns", "How long the driver took to answer."),
    ("utilisation", "float", "1", "Share of the time in which any kernel ran."),
    ("memory_busy", "float", "1", "Share of the time in which memory was used. No bandwidth."),
    ("is_gpm_live", "bool", "", "Its own performance counters answer."),
    ("sm_active", "float", "1", "Share of SM cycles with work."),
    ("tensor_active", "float", "1", "Share of cycles in which tensor cores worked."),
    ("occupancy", "float", "1", "Warps ÷ the most that would fit."),
    ("dram_share", "float", "1", "Of the theoretical DRAM bandwidth, measured."),
    ("dram_bytes_per_s", "float", "B/s", "DRAM traffic, measured: share × peak."),
    ("peak_bytes_per_s", "float", "B/s", "Theoretical DRAM bandwidth."),
    ("peak_from", "text", "", "Where the peak comes from."),
    ("memory_used_bytes", "int", "B", "Memory in use."),
    ("memory_total_bytes", "int", "B", "Memory that it has."),
    ("is_memory_shared", "bool", "", "Its memory is the machine's own."),
    ("engine_memory_bytes", "int", "B", "Held by the engine process."),
    ("process_memory_bytes", "int", "B", "Held by all processes that compute."),
    ("processes", "int", "processes", "Processes that compute on it."),
    ("processes_outside", "int", "processes", "Of them, those outside this process's namespace."),
    ("sm_clock_mhz", "float", "MHz", "Clock of its processors."),
    ("memory_clock_mhz", "float", "MHz", "Clock of its memory."),
    ("power_w", "float", "W", "Power drawn."),
    ("power_limit_w", "float", "W", "Power allowed."),
    ("energy_j", "float", "J", "Since the driver was loaded."),
    ("temperature_c", "float", "°C", "Of the chip."),
    ("memory_temperature_c", "float", "°C", "Of its memory."),
    ("fan_share", "float", "1", "Of the fan's full speed."),
    ("pcie_read_bytes_per_s", "float", "B/s", "Into the GPU."),
    ("pcie_write_bytes_per_s", "float", "B/s", "Out of it."),
    ("nvlink_read_bytes_per_s", "float", "B/s", "The same over NVLink."),
    ("nvlink_write_bytes_per_s", "float", "B/s", "The same over NVLink."),
)


_WHY: Final = Column("unknown", "text", "", "Why readings are missing, by column, as JSON.",
                     lambda row: as_json(getattr(row, "gpu", row).unknown))  # fmt: skip

HARDWARE: Final = Table("hardware", "One reading of the machine.", (*(field(*plain) for plain in _HARDWARE), _WHY))

GPUS: Final = Table(
    "gpus",
    "One reading of one GPU.",
    (
        field("at_ns", "int", "ns", "When the sample was taken: `at_ns` of `hardware`."),
        *(field(*plain, of=f"gpu.{plain[0]}") for plain in _GPU),
        Column("throttle", "text", "", "Why its clocks are held down, as a JSON list.",
               lambda row: json_or_unknown(row.gpu.throttle)),
        Column("throttled", "text", "", "Share of the last second in which each reason did, as JSON.",
               lambda row: json_or_unknown(row.gpu.throttled)),
        _WHY,
    ),
)  # fmt: skip
