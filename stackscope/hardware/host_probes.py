"""What a host may tell beyond processor and memory, each reading with its reason where it is missing.

Nothing needs root. Which of them there are is found out once; a reading is then a few small files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from stackscope.hardware.host_power import PackagePower
from stackscope.hardware.host_rates import FIRST, Absence, Rate
from stackscope.hardware.host_traffic import DramTraffic
from stackscope.hardware.host_waits import Pressure, Swap, Waits, waits_of

if TYPE_CHECKING:
    from pathlib import Path

Values: TypeAlias = dict[str, float | int | None]
"""By field of `HardwareSample`."""

ENGINE_FIELDS: Final = ("major_faults_per_s", "involuntary_switches_per_s")
NOT_TOLD: Final = "this system does not tell it"
NO_ENGINE: Final = "there is no engine process"


class HostProbes:
    """The optional readings of the machine and of the engine process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pressures = {"io_pressure": Pressure(root, "io"), "memory_pressure": Pressure(root, "memory")}
        self._swap = Swap(root)
        self._swapping = Rate()
        self._power = PackagePower(root)
        self.traffic: Final = DramTraffic(root)
        self._pid: int | None = None
        self._faults, self._switches = Rate(), Rate()

    def absences(self) -> dict[str, Absence | None]:
        """By field of `HardwareSample`: why it can never be had here. `None`: it can."""
        return {
            **{field: pressure.absence for field, pressure in self._pressures.items()},
            "swap_used_bytes": self._swap.absence,
            "swap_bytes_per_s": self._swap.absence,
            "package_power_w": self._power.absence,
            "dram_bytes_per_s": self.traffic.absence,
        }

    def read(self, pid: int | None, now_ns: int) -> tuple[Values, dict[str, str]]:
        """(values, reasons of those that are missing). `pid` is the engine process. `None`: there is none."""
        values: Values = {field: pressure.read() for field, pressure in self._pressures.items()}
        values["swap_used_bytes"] = self._swap.used()
        values["swap_bytes_per_s"] = self._swapping.update(now_ns, self._swap.moved())
        values["package_power_w"] = self._power.read(now_ns)
        values["dram_bytes_per_s"] = self.traffic.read(now_ns)
        unknown = {
            field: FIRST if absence is None else absence.reason
            for field, absence in self.absences().items()
            if values[field] is None
        }
        waits = self._waits(pid)
        values["major_faults_per_s"] = self._faults.update(now_ns, None if waits is None else waits.major_faults)
        values["involuntary_switches_per_s"] = self._switches.update(
            now_ns, None if waits is None else waits.involuntary_switches
        )
        why = FIRST if waits is not None else NO_ENGINE if pid is None else NOT_TOLD
        unknown |= {field: why for field in ENGINE_FIELDS if values[field] is None}
        return values, unknown

    def _waits(self, pid: int | None) -> Waits | None:
        if pid != self._pid:
            self._pid, self._faults, self._switches = pid, Rate(), Rate()
        return None if pid is None else waits_of(self._root, pid)

    def close(self) -> None:
        """Let go of what is counted."""
        self.traffic.close()
