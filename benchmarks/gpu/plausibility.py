"""Whether what a GPU is read to do can be: ranges, relations of readings, agreement with a load of known size."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from stackscope import units
from stackscope.hardware import peaks
from stackscope.records import GpuSample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Verdict: TypeAlias = Literal["ok", "implausible", "unknown"]

SHARES: Final = (*("utilisation", "memory_busy", "sm_active", "tensor_active", "occupancy", "dram_share", "fan_share"),)
NUMBERS: Final = (
    *SHARES,
    *("peak_bytes_per_s", "memory_used_bytes", "memory_total_bytes", "engine_memory_bytes", "process_memory_bytes"),
    *("sm_clock_mhz", "memory_clock_mhz", "power_w", "power_limit_w", "energy_j", "temperature_c"),
    *("memory_temperature_c", "pcie_read_bytes_per_s", "pcie_write_bytes_per_s", "nvlink_read_bytes_per_s"),
    *("nvlink_write_bytes_per_s", "took_ns"),
)
"""Every reading that is a number."""
RANGES: Final[dict[str, tuple[float, float]]] = {
    **dict.fromkeys(SHARES, (0.0, 1.0)),
    "peak_bytes_per_s": (10e9, 20e12),
    "memory_total_bytes": (1e9, 1e12),
    "sm_clock_mhz": (100, 4_000),
    "memory_clock_mhz": (100, 20_000),
    "power_w": (3, 2_000),
    "power_limit_w": (20, 2_000),
    "energy_j": (0, 1e12),
    "temperature_c": (5, 110),
    "memory_temperature_c": (5, 120),
    "pcie_read_bytes_per_s": (0, 130e9),
    "pcie_write_bytes_per_s": (0, 130e9),
    "nvlink_read_bytes_per_s": (0, 2e12),
    "nvlink_write_bytes_per_s": (0, 2e12),
    "took_ns": (0, 100e6),
}
"""What a reading may be at most and at least, of any GPU."""
TOLERANCE: Final = 0.25
"""Of agreement between two ways of knowing the same."""
SHORTEST_S: Final = 4.0
"""Of a phase from which power is derived."""
POWER_ABOVE_LIMIT: Final = 1.2
AVERAGING_S: Final = 1.2
"""Power and clocks are means of the second before, so the beginning of a phase is not looked at."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which one thing was done, and the readings in it."""

    name: str
    """`idle`, `copy`, `matmul` or `engine`."""
    samples: tuple[GpuSample, ...]
    seconds: float
    bytes_per_s: float | None = None
    """What the load says that it moved. `None`: it does not say."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A reading or a relation, and whether it can be."""

    what: str
    value: str
    verdict: Verdict
    why: str = ""


def judge(phases: Sequence[Phase]) -> list[Finding]:
    """All findings about one GPU."""
    found = [finding for name in NUMBERS for finding in _reading(name, phases)]
    return found + [finding for check in RELATIONS if (finding := check(phases)) is not None]


def value_of(phase: Phase, name: str) -> float | None:
    """The median of a reading in a phase. `None`: it was never there."""
    known = [value for sample in phase.samples if (value := getattr(sample, name)) is not None]
    return median(known) if known else None


def _reading(name: str, phases: Sequence[Phase]) -> list[Finding]:
    """One finding for all phases."""
    values = {phase.name: value for phase in phases if (value := value_of(phase, name)) is not None}
    if not values:
        reasons = {why for phase in phases for sample in phase.samples if (why := sample.why(name)) is not None}
        return [Finding(what=name, value=units.UNKNOWN, verdict="unknown", why="; ".join(sorted(reasons)))]
    low, high = RANGES.get(name, (0.0, float("inf")))
    every = [getattr(sample, name) for phase in phases for sample in phase.samples]
    strays = [value for value in every if value is not None and not low <= value <= high]
    told = ", ".join(f"{phase} {spelled(name, value)}" for phase, value in values.items())
    why = f"{spelled(name, strays[0])} is outside {spelled(name, low)} to {spelled(name, high)}" if strays else ""
    return [Finding(what=name, value=told, verdict="implausible" if strays else "ok", why=why)]


def spelled(name: str, value: float) -> str:
    """A reading with its unit."""
    if name in SHARES:
        return units.percent(value)
    if name.endswith("bytes_per_s"):
        return units.bandwidth(value)
    if name.endswith("_bytes"):
        return units.data_size(value)
    if name.endswith("_ns"):
        return units.duration(value)
    unit = {"_mhz": "MHz", "_w": "W", "_j": "J", "_c": "°C"}[name[name.rindex("_") :]]
    return units.number(value, unit=unit)


def _relation(what: str, value: str, *, holds: bool, why: str) -> Finding:
    return Finding(what=what, value=value, verdict="ok" if holds else "implausible", why="" if holds else why)


def _memory(phases: Sequence[Phase]) -> Finding | None:
    pairs = [
        (sample.memory_used_bytes, sample.memory_total_bytes)
        for phase in phases
        for sample in phase.samples
        if sample.memory_used_bytes is not None and sample.memory_total_bytes is not None
    ]
    if not pairs:
        return None
    most = max(used / total for used, total in pairs)
    return _relation("memory used ÷ total", units.percent(most), holds=0 < most <= 1, why="it is more than there is")


def _power(phases: Sequence[Phase]) -> Finding | None:
    pairs = [
        (sample.power_w, sample.power_limit_w)
        for phase in phases
        for sample in phase.samples
        if sample.power_w is not None and sample.power_limit_w is not None
    ]
    if not pairs:
        return None
    most = max(power / limit for power, limit in pairs)
    why = f"it is more than {units.percent(POWER_ABOVE_LIMIT)} of the limit"
    return _relation("power ÷ limit", units.percent(most), holds=most <= POWER_ABOVE_LIMIT, why=why)


def _energy(phases: Sequence[Phase]) -> Finding | None:
    """Energy rises, and by as much as power over time."""
    every = [sample.energy_j for phase in phases for sample in phase.samples if sample.energy_j is not None]
    longest = max(phases, key=lambda phase: phase.seconds if phase.name != "idle" else 0.0)
    energies = [sample.energy_j for sample in longest.samples if sample.energy_j is not None]
    powers = [sample.power_w for sample in longest.samples if sample.power_w is not None]
    if len(energies) < 2 or not powers or longest.seconds < SHORTEST_S:
        return None
    if sorted(every) != every or energies[-1] <= energies[0]:
        return _relation("energy rises", units.number(energies[-1], unit="J"), holds=False, why="it does not rise")
    mean_w = (energies[-1] - energies[0]) / max(longest.seconds, 1e-9)
    ratio = mean_w / (sum(powers) / len(powers))
    # Both the first and the last reading of it may be up to a second old.
    reach = TOLERANCE + 1 / longest.seconds
    why = "energy over time and power do not agree"
    return _relation("energy ÷ time ÷ power", units.number(ratio), holds=abs(ratio - 1) <= reach, why=why)


def _busy(phases: Sequence[Phase]) -> Finding | None:
    loaded = [phase for phase in phases if phase.name != "idle"]
    values = [value for phase in loaded if (value := value_of(phase, "utilisation")) is not None]
    if not values:
        return None
    return _relation("busy under load", units.percent(max(values)), holds=max(values) > 0.5, why="it looks idle")


def _copy(phases: Sequence[Phase]) -> Finding | None:
    """GPM's bandwidth against copies of known size."""
    for phase in phases:
        measured = [sample.dram_bytes_per_s for sample in phase.samples if sample.dram_bytes_per_s is not None]
        if phase.bytes_per_s is not None and measured:
            told, ratio = phase.bytes_per_s, median(measured) / phase.bytes_per_s
            value = f"{units.bandwidth(median(measured))} ÷ {units.bandwidth(told)} = {units.number(ratio)}"
            return _relation(
                "GPM ÷ copied bytes", value, holds=abs(ratio - 1) <= TOLERANCE, why="GPM and the copies do not agree"
            )
    return None


def _tensor(phases: Sequence[Phase]) -> Finding | None:
    """Matrix products keep the tensor cores busy, and copies do not."""
    values = {phase.name: value_of(phase, "tensor_active") for phase in phases}
    product, copy = values.get("matmul"), values.get("copy")
    if product is None or copy is None:
        return None
    value = f"matmul {units.percent(product)}, copy {units.percent(copy)}"
    return _relation("tensor cores", value, holds=product > 0.2 > copy, why="they do not follow the load")


def _rated(phases: Sequence[Phase]) -> Finding | None:
    """The peak from clock and bus against the rated one."""
    sample = next((sample for phase in phases for sample in phase.samples), None)
    row = None if sample is None else peaks.rated(sample.name)
    if sample is None or row is None or row.dram_gb_per_s is None or sample.peak_bytes_per_s is None:
        return None
    ratio = sample.peak_bytes_per_s / (row.dram_gb_per_s * 1e9)
    value = f"{units.bandwidth(sample.peak_bytes_per_s)}, rated {units.bandwidth(row.dram_gb_per_s * 1e9)}"
    return _relation("peak ÷ rated", value, holds=abs(ratio - 1) <= 0.1, why="clock × bus is not the rated bandwidth")


def _gpm(phases: Sequence[Phase]) -> Finding | None:
    sample = next((sample for phase in reversed(phases) for sample in reversed(phase.samples)), None)
    if sample is None:
        return None
    if sample.is_gpm_live:
        return Finding(what="GPM", value="live", verdict="ok")
    return Finding(what="GPM", value="no", verdict="unknown", why=sample.why("is_gpm_live") or "")


RELATIONS: Final[tuple[Callable[[Sequence[Phase]], Finding | None], ...]] = (
    _gpm, _rated, _memory, _power, _energy, _busy, _copy, _tensor,
)  # fmt: skip
