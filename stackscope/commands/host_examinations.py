"""What doctor says of the readings that a host may have or not: which there are, and why the others are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.commands.examinations import Check
from stackscope.hardware.host import ROOT, allowed_cores
from stackscope.hardware.host_probes import HostProbes
from stackscope.hardware.host_rates import Absence
from stackscope.hardware.host_waits import NO_PRESSURE
from stackscope.hardware.procfs import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC: Final = "Readings of the host"
NOTHING: Final = "Nothing to do: it is shown as unknown, and nothing depends on it."
NAMES: Final = {
    "cpu_pressure": "CPU pressure",
    "io_pressure": "I/O pressure",
    "memory_pressure": "Memory pressure",
    "throttled_share": "Quota throttling",
    "frequency_mhz": "Frequency",
    "engine": "Engine process",
    "swap_used_bytes": "Swap",
    "package_power_w": "Package power",
    "dram_bytes_per_s": "DRAM traffic",
}
"""In the order in which they are told."""
PRESENT: Final = {
    "cpu_pressure": "who waits for a core",
    "io_pressure": "who waits for a disk",
    "memory_pressure": "who waits for memory",
    "throttled_share": "how often a quota held this process up",
    "frequency_mhz": "clock of the cores",
    "engine": "CPU time, memory, page faults from disk, lost cores",
    "swap_used_bytes": "space in use, and what moves",
    "package_power_w": "by the processor's own counters (RAPL)",
}


def of_host(root: Path = ROOT) -> Iterator[Check]:
    """One check for each reading. `root` is where `/proc` and `/sys` are."""
    probes = HostProbes(root)
    kernel = Kernel(root, allowed_cores() or frozenset())
    absences = {**_of_kernel(kernel), **probes.absences()}
    counter = probes.traffic.name
    probes.close()
    for field, name in NAMES.items():
        absence = absences[field]
        if absence is None:
            yield Check(topic=TOPIC, name=name, holds=True, value=PRESENT.get(field) or f"by {counter}")
        else:
            value, remedy = f"none: {absence.reason}", absence.remedy or NOTHING
            yield Check(topic=TOPIC, name=name, holds=False, value=value, remedy=remedy)


def _of_kernel(kernel: Kernel) -> dict[str, Absence | None]:
    """Why readings that every sample tries to have cannot be had."""
    return {
        "cpu_pressure": NO_PRESSURE if kernel.cpu_pressure() is None else None,
        "throttled_share": None if kernel.throttling() else Absence("no control group counts it"),
        "frequency_mhz": Absence(kernel.why_no_frequency()) if kernel.frequency_mhz() is None else None,
        "engine": None if kernel.exists else Absence("page faults and lost cores are told by Linux alone"),
    }
